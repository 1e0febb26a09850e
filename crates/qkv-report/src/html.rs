//! The explanation as one HTML page that asks for nothing from outside.
//!
//! A number that is an entry of a step or an input carries `data-e="weights.0.0.1.0"`, a worked line
//! the entry that it works out as `data-of`. The page's script lights up a number's origin from
//! these alone; without it everything is still there to read.

mod heat;
pub(crate) mod markup;

use crate::describe;
use crate::explanation::{Blank, Blanks, Block, Cell, Explanation, Matrix, Part, Worked};
use crate::expr::Token;
use crate::notation::equations;
use crate::printed::{self, Lines};
use crate::words::{self, Words};
use crate::{Settings, Subject};
use markup::{attribute, escaped, marked};

const STYLE: &str = include_str!("html/style.css");
const SCRIPT: &str = include_str!("html/script.js");
/// Nothing is fetched from anywhere.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'";

/// The worked calculation as an HTML page, in one file.
///
/// It says what [`text`](crate::text()) says. Steps fold, the weights are a coloured table, and a
/// number that is pointed at, tapped or focused shows the line that it came from. It reads without
/// scripts, prints unfolded, and follows the reader's choice of light or dark.
pub fn html(subject: &Subject<'_>, settings: &Settings) -> String {
    let words = words::of(settings.lang);
    page(
        &describe::explain(subject, settings, words),
        settings,
        words,
    )
}

/// A description as a page.
pub(crate) fn page(explanation: &Explanation, settings: &Settings, words: &dyn Words) -> String {
    let mut page = Page {
        out: String::new(),
        digits: settings.digits,
        words,
        lines: Lines::new(settings.digits, words),
        open: Open::Nothing,
        maps: 0,
    };
    page.head(&explanation.title);
    page.outline(explanation);
    page.push("<main id=\"main\">\n");
    page.push(&format!("<h1>{}</h1>\n", escaped(&explanation.title)));
    page.blocks(&explanation.opening);
    // There is nothing to follow on a sheet.
    let sheet = explanation.data.is_some();
    if !sheet {
        page.controls();
    }
    for (number, part) in explanation.parts.iter().enumerate() {
        page.part(number + 1, part);
    }
    page.push("</main>\n");
    if let Some(data) = &explanation.data {
        page.push(&format!("<!-- {data} -->\n"));
    }
    if !sheet {
        page.origin();
        page.push(&format!("<script>\n{SCRIPT}</script>\n"));
    }
    page.push("</body>\n</html>\n");
    page.out
}

struct Page<'a> {
    out: String,
    digits: usize,
    words: &'a dyn Words,
    lines: Lines<'a>,
    open: Open,
    /// Heat maps so far.
    maps: usize,
}

/// What further blocks of a kind are added to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Open {
    Nothing,
    List,
    /// A list inside the last item of a list.
    Sublist,
    Lines,
}

impl Page<'_> {
    fn push(&mut self, html: &str) {
        self.out.push_str(html);
    }

    fn head(&mut self, title: &str) {
        let language = self.words.language();
        let (title, skip) = (escaped(title), self.words.skip());
        self.push(&format!(
            "<!DOCTYPE html>\n<html lang=\"{language}\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n\
             <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
             <a class=\"skip\" href=\"#main\">{skip}</a>\n",
        ));
    }

    fn outline(&mut self, explanation: &Explanation) {
        let name = self.words.outline();
        self.push(&format!("<nav aria-label=\"{name}\">\n<ol>\n"));
        for (number, part) in explanation.parts.iter().enumerate() {
            let number = number + 1;
            let heading = marked(&part.heading);
            self.push(&format!(
                "<li><a href=\"#step-{number}\"><span>{number}</span> {heading}</a></li>\n"
            ));
        }
        self.push("</ol>\n</nav>\n");
    }

    /// What only works with the script, which shows it.
    fn controls(&mut self) {
        let words = self.words;
        self.push(&format!(
            "<div class=\"controls\" hidden>\n<p>{}</p>\n\
             <p><button type=\"button\" data-fold=\"open\">{}</button> \
             <button type=\"button\" data-fold=\"\">{}</button></p>\n</div>\n",
            words.how_to_follow(),
            words.unfold_all(),
            words.fold_all(),
        ));
    }

    /// Where the script says where a number came from.
    fn origin(&mut self) {
        let words = self.words;
        self.push(&format!(
            "<aside id=\"origin\" aria-label=\"{}\" data-none=\"{}\" hidden>\n\
             <div role=\"status\"></div>\n\
             <p><button type=\"button\" data-go>{}</button> \
             <button type=\"button\" data-close>{}</button></p>\n</aside>\n",
            words.origin(),
            words.no_line(),
            words.go_to_line(),
            words.close(),
        ));
    }

    fn part(&mut self, number: usize, part: &Part) {
        let heading = marked(&part.heading);
        self.push(&format!(
            "<details class=\"step\" id=\"step-{number}\" open>\n\
             <summary><h2>{number}. {heading}</h2></summary>\n"
        ));
        if let Some(formula) = &part.formula {
            self.formula(formula);
        }
        for shape in &part.steps {
            let text = self.words.shape(&shape.steps, &shape.shape, shape.axes);
            self.push(&format!("<p class=\"shape\">{}</p>\n", marked(&text)));
        }
        self.blocks(&part.blocks);
        self.push("</details>\n");
    }

    fn blocks(&mut self, blocks: &[Block]) {
        for block in blocks {
            self.block(block);
        }
        self.open(Open::Nothing);
    }

    fn block(&mut self, block: &Block) {
        match block {
            Block::Item(text) => return self.item(text),
            Block::Worked(worked) => return self.worked(worked),
            Block::Finding(block) => return self.block(block),
            _ => self.open(Open::Nothing),
        }
        match block {
            Block::Paragraph(text) => self.push(&format!("<p>{}</p>\n", marked(text))),
            Block::Formula(formula) => self.formula(formula),
            Block::Heading(text) => self.push(&format!("<h3>{}</h3>\n", marked(text))),
            Block::Warning(text) => {
                let mark = self.words.warning();
                let text = marked(text);
                self.push(&format!(
                    "<p class=\"warning\"><strong>{mark}</strong> {text}</p>\n"
                ));
            }
            Block::Blanks(blanks) => self.blanks(blanks),
            Block::Matrix(matrix) => self.matrix(matrix),
            Block::Beside(matrices) => {
                self.push("<div class=\"beside\">\n");
                matrices.iter().for_each(|matrix| self.matrix(matrix));
                self.push("</div>\n");
            }
            Block::HeatMap(map) => {
                self.maps += 1;
                let html = heat::table(map, self.maps, self.digits, self.words);
                self.push(&html);
            }
            Block::Item(_) | Block::Worked(_) | Block::Finding(_) => {}
        }
    }

    /// Ends what is open and begins what comes.
    fn open(&mut self, next: Open) {
        if self.open == next {
            return;
        }
        match (self.open, next) {
            (Open::List, Open::Sublist) => self.push("\n<ul>\n"),
            (Open::Sublist, Open::List) => self.push("</li>\n</ul>\n"),
            _ => {
                match self.open {
                    Open::Nothing => {}
                    Open::List => self.push("</li>\n</ul>\n"),
                    Open::Sublist => self.push("</li>\n</ul>\n</li>\n</ul>\n"),
                    Open::Lines => self.push("</div>\n"),
                }
                match next {
                    Open::Nothing => {}
                    Open::List | Open::Sublist => self.push("<ul>\n"),
                    Open::Lines => self.push("<div class=\"lines\">\n"),
                }
            }
        }
        self.open = next;
    }

    /// Indented remarks belong to the one before.
    fn item(&mut self, text: &str) {
        let inside = matches!(self.open, Open::List | Open::Sublist);
        let next = match text.starts_with(' ') && inside {
            true => Open::Sublist,
            false => Open::List,
        };
        let goes_on = self.open == next || (self.open, next) == (Open::Sublist, Open::List);
        self.open(next);
        if goes_on {
            self.push("</li>\n");
        }
        self.push(&format!("<li>{}", marked(text.trim_start())));
    }

    fn formula(&mut self, formula: &str) {
        self.push("<div class=\"formula\">\n");
        for equation in equations(formula) {
            self.push(&format!("<p>{}</p>\n", marked(equation)));
        }
        self.push("</div>\n");
    }

    fn worked(&mut self, worked: &Worked) {
        self.open(Open::Lines);
        let line = self.lines.line(worked);
        let of = attribute("data-of", worked.value.entry.as_ref());
        let mut html = format!("<p{of}><span>{}</span>", marked(&line.label));
        for (sign, tokens) in &line.pieces {
            html.push_str(&format!(" <span>{sign}\u{a0}"));
            for token in tokens {
                html.push_str(&inline(token));
            }
            html.push_str("</span>");
        }
        if let Some(remark) = &line.remark {
            html.push_str(&format!(" <small>{}</small>", escaped(remark)));
        }
        html.push_str("</p>\n");
        self.push(&html);
    }

    fn blanks(&mut self, blanks: &Blanks) {
        let class = if blanks.short {
            "blanks short"
        } else {
            "blanks"
        };
        self.push(&format!("<div class=\"{class}\">\n"));
        for Blank { number, label } in &blanks.lines {
            let (label, room) = (marked(label), room(self.words.blank()));
            self.push(&format!(
                "<p><span>({number}) {label} =</span> {room}</p>\n"
            ));
        }
        self.push("</div>\n");
    }

    fn matrix(&mut self, matrix: &Matrix) {
        let cells = printed::cells(matrix, self.digits);
        let groups = printed::column_groups(matrix, &cells, printed::PAGE);
        for group in &groups {
            let caption = match (matrix.columns.get(group.start), groups.len()) {
                (Some(first), 2..) => {
                    let last = &matrix.columns[group.end - 1];
                    self.words.columns_of(&matrix.name, first, last)
                }
                _ => self.words.matrix(&matrix.name),
            };
            let caption = escaped(&caption);
            let mut html = format!(
                "{}<table class=\"matrix\">\
                 <caption>{caption}</caption>\n<thead><tr><th scope=\"col\">{}</th>",
                markup::scroll(&caption),
                marked(&matrix.name),
            );
            for column in &matrix.columns[group.clone()] {
                html.push_str(&format!("<th scope=\"col\">{}</th>", escaped(column)));
            }
            html.push_str("</tr></thead>\n<tbody>\n");
            for (r, name) in matrix.rows.iter().enumerate() {
                let name = escaped(name.trim());
                html.push_str(&format!("<tr><th scope=\"row\">{name}</th>"));
                for c in group.clone() {
                    html.push_str(&match &matrix.cells[r][c] {
                        Cell::Number(number) => {
                            let of = attribute("data-e", number.entry.as_ref());
                            format!("<td{of}>{}</td>", cells[r][c])
                        }
                        Cell::Blank(number) => {
                            let number = number.map_or(String::new(), |n| format!("({n}) "));
                            format!("<td>{number}{}</td>", room(self.words.blank()))
                        }
                    });
                }
                html.push_str("</tr>\n");
            }
            html.push_str("</tbody></table></div>\n");
            self.push(&html);
        }
    }
}

/// Where a learner writes.
fn room(name: &str) -> String {
    format!("<span class=\"room\"><span>{name}</span></span>")
}

fn inline(token: &Token) -> String {
    match token {
        Token::Number { text, number } => {
            let of = attribute("data-e", number.entry.as_ref());
            format!("<b{of}>{text}</b>")
        }
        Token::Sign(text) | Token::Words(text) => escaped(text),
    }
}
