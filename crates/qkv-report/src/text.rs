//! The explanation as text for a terminal or a file.

pub(crate) mod heat;
mod matrix;
mod wrap;

use crate::describe;
use crate::explanation::{Block, Explanation, Matrix, Part, Worked};
use crate::expr::{TIED, joined};
use crate::printed::{self, Line, Lines};
use crate::words::{self, Words};
use crate::{Settings, Subject};
pub(crate) use wrap::columns;
use wrap::{Hang, wrap};

/// The worked calculation: every step of the run with its formula, its shape, each number's own
/// line with the numbers put in, and what it means.
///
/// ```text
/// o[0,0] = 0.6698·2 + 0.3302·0 ≈ 1.3395 [shown digits give 1.3396]
/// ```
///
/// Where redoing a line from the digits that it shows gives another last digit, the line says so.
/// Large inputs are shown by shapes, formulas, heat maps and the chosen rows. No line is wider than
/// `settings.width` columns, down to a width of 40; a Chinese character takes two.
pub fn text(subject: &Subject<'_>, settings: &Settings) -> String {
    let words = words::of(settings.lang);
    page(
        &describe::explain(subject, settings, words),
        settings,
        words,
    )
}

/// A description as text.
pub(crate) fn page(explanation: &Explanation, settings: &Settings, words: &dyn Words) -> String {
    let mut page = Page {
        out: String::new(),
        settings,
        words,
        width: settings.width.max(24),
        lines: Lines::new(settings.digits, words),
        last: Kind::Start,
    };
    page.explanation(explanation);
    page.out
}

/// The page under way.
struct Page<'a> {
    out: String,
    settings: &'a Settings,
    words: &'a dyn Words,
    width: usize,
    lines: Lines<'a>,
    last: Kind,
}

/// What was printed last: decides about the empty line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Start,
    Heading,
    Line,
    Paragraph,
    /// A paragraph that announces the lines below it.
    Colon,
    Figure,
}

#[derive(Clone, Copy)]
enum Style {
    Plain,
    Bold,
    Dim,
}

const INDENT: usize = 2;

impl Page<'_> {
    fn explanation(&mut self, explanation: &Explanation) {
        self.underlined(&explanation.title, '═');
        for block in &explanation.opening {
            self.block(block);
        }
        for (number, part) in explanation.parts.iter().enumerate() {
            self.part(number + 1, part);
        }
        if let Some(data) = &explanation.data {
            self.out.push('\n');
            self.wrapped(&self.words.for_programs(), 0, 0, Style::Dim);
            self.line(0, data, Style::Plain);
        }
    }

    fn part(&mut self, number: usize, part: &Part) {
        self.out.push('\n');
        self.underlined(&format!("{number}. {}", part.heading), '─');
        if let Some(formula) = &part.formula {
            let formula = self.words.formula(formula);
            let formula = tied(&formula, self.width.saturating_sub(INDENT + 2));
            self.wrapped(&formula, INDENT, INDENT + 2, Style::Plain);
            self.last = Kind::Line;
        }
        for shape in &part.steps {
            let text = self.words.shape(&shape.steps, &shape.shape, shape.axes);
            self.wrapped(&text, INDENT, INDENT + 2, Style::Plain);
            self.last = Kind::Line;
        }
        for block in &part.blocks {
            self.block(block);
        }
    }

    fn block(&mut self, block: &Block) {
        let kind = match block {
            Block::Finding(block) => return self.block(block),
            Block::Paragraph(_) | Block::Formula(_) | Block::Heading(_) => Kind::Paragraph,
            Block::Item(_) | Block::Worked(_) | Block::Warning(_) => Kind::Line,
            Block::Matrix(_) | Block::Beside(_) | Block::HeatMap(_) | Block::Blanks(_) => {
                Kind::Figure
            }
        };
        let together = kind == Kind::Line && matches!(self.last, Kind::Line | Kind::Colon);
        if !together && !matches!(self.last, Kind::Start | Kind::Heading) {
            self.out.push('\n');
        }
        self.last = kind;
        match block {
            Block::Paragraph(text) => {
                self.wrapped(text, 0, 0, Style::Plain);
                if text.ends_with([':', '：']) {
                    self.last = Kind::Colon;
                }
            }
            Block::Formula(text) => self.wrapped(text, 0, 0, Style::Plain),
            Block::Item(text) => self.wrapped(text, INDENT, INDENT + 2, Style::Plain),
            Block::Heading(text) => {
                self.wrapped(text, 0, 0, Style::Bold);
                self.last = Kind::Heading;
            }
            Block::Warning(text) => {
                let text = format!("{}{TIED}{text}", self.words.warning());
                self.wrapped(&text, INDENT, INDENT + 2, Style::Bold);
            }
            Block::Finding(_) => {}
            Block::Worked(worked) => self.worked(worked),
            Block::Blanks(blanks) => {
                for (at, blank) in blanks.lines.iter().enumerate() {
                    if at > 0 {
                        self.out.push('\n');
                    }
                    let line = printed::blank(blank, self.width - INDENT);
                    self.line(INDENT, &line, Style::Plain);
                }
            }
            Block::Matrix(matrix) => self.matrices(std::slice::from_ref(matrix)),
            Block::Beside(matrices) => self.matrices(matrices),
            Block::HeatMap(map) => {
                self.wrapped(&map.name, 0, 0, Style::Plain);
                let map = heat::draw(map, self.width - INDENT, heat::MOST_ROWS, self.settings);
                for line in &map.lines {
                    self.line(INDENT, line, Style::Plain);
                }
                let legend = match map.merged {
                    Some((rows, columns)) => self.words.merged_cells(rows, columns),
                    None => self.words.legend(&map.largest),
                };
                self.wrapped(&legend, INDENT, INDENT, Style::Dim);
            }
        }
    }

    /// Matrices side by side, as many as there is room for, and the others below.
    fn matrices(&mut self, matrices: &[Matrix]) {
        let room = self.width - INDENT;
        let drawn = matrices
            .iter()
            .map(|matrix| matrix::lines(matrix, self.settings.digits, room))
            .collect();
        for (at, figure) in matrix::rows(drawn, room).into_iter().enumerate() {
            if at > 0 {
                self.out.push('\n');
            }
            for line in &figure.lines {
                self.line(INDENT, line, Style::Plain);
            }
            if let Some(needed) = figure.needed {
                let text = self.words.how_to_widen(needed + INDENT);
                self.wrapped(&text, INDENT, INDENT, Style::Dim);
            }
        }
    }

    /// `label = formula = … ≈ value [note]`.
    fn worked(&mut self, worked: &Worked) {
        let line = self.lines.line(worked);
        for line in wrap_line(&line, self.width, INDENT) {
            self.line(0, &line, Style::Plain);
        }
    }

    fn underlined(&mut self, text: &str, with: char) {
        let lines = wrap(text, self.width, 0, Hang::at(0));
        let width = lines.iter().map(|line| columns(line)).max().unwrap_or(0);
        for line in lines {
            self.line(0, &line, Style::Bold);
        }
        let rule = with.to_string().repeat(width);
        self.line(0, &rule, Style::Dim);
        self.last = Kind::Heading;
    }

    fn wrapped(&mut self, text: &str, first: usize, others: usize, style: Style) {
        let own = text.len() - text.trim_start_matches(' ').len();
        let lines = wrap(
            text.trim_start_matches(' '),
            self.width,
            first + own,
            Hang::at(others + own),
        );
        for line in lines {
            self.line(0, &line, style);
        }
    }

    fn line(&mut self, indent: usize, text: &str, style: Style) {
        let text = text.replace(TIED, " ");
        let text = match style {
            // The sample of a legend has the colour that it stands for.
            Style::Dim if self.settings.color => text.replace('█', heat::SAMPLE),
            _ => text,
        };
        let text = text.trim_end();
        let code = match style {
            Style::Bold if self.settings.color => "\x1b[1m",
            Style::Dim if self.settings.color => "\x1b[2m",
            _ => "",
        };
        let reset = if code.is_empty() { "" } else { "\x1b[0m" };
        if !text.is_empty() {
            self.out
                .push_str(&format!("{}{code}{text}{reset}", " ".repeat(indent)));
        }
        self.out.push('\n');
    }
}

/// A text in lines of a given width, the second and further ones indented.
pub(crate) fn paragraph(text: &str, width: usize, indent: usize) -> Vec<String> {
    wrap(text, width, 0, Hang::at(indent))
}

/// A worked line in lines of a given width; further ones hang below its first "=".
pub(crate) fn wrap_line(line: &Line<'_>, width: usize, indent: usize) -> Vec<String> {
    let tied_label = line.label.replace(' ', &TIED.to_string());
    let mut text = tied_label.replace(&format!("{TIED}={TIED}"), &format!(" ={TIED}"));
    for (sign, tokens) in &line.pieces {
        text.push_str(&format!(" {sign}{TIED}{}", joined(tokens)));
    }
    if let Some(remark) = &line.remark {
        text.push_str(&format!(" {remark}"));
    }
    let label = text.split(" =").next().map_or(0, columns);
    let label = label.min(text.split(" ≈").next().map_or(0, columns));
    let hang = if label + indent <= width / 3 {
        Hang {
            relation: indent + label + 1,
            other: indent + label + 3,
        }
    } else {
        Hang {
            relation: indent + 2,
            other: indent + 4,
        }
    };
    let lines = wrap(&text, width, indent, hang);
    lines
        .into_iter()
        .map(|line| line.replace(TIED, " "))
        .collect()
}

/// A list of formulas that breaks after its commas only, where the formulas fit.
fn tied(formulas: &str, width: usize) -> String {
    let formulas: Vec<String> = formulas
        .split(", ")
        .map(|formula| match columns(formula) < width {
            true => formula.replace(' ', &TIED.to_string()),
            false => formula.into(),
        })
        .collect();
    formulas.join(", ")
}
