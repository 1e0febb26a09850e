//! The explanation as Markdown.
//!
//! Formulas are mathematics between `$$`, which GitHub, GitLab, notebooks and pandoc typeset. Worked
//! lines are code blocks: aligned, and readable also where nothing is rendered.

use crate::describe;
use crate::explanation::{Block, Explanation, HeatMap, Matrix, Part};
use crate::notation::{equations, is_sentence, to_tex};
use crate::printed::{self, Lines};
use crate::text::{heat, wrap_line};
use crate::words::{self, Words};
use crate::{Settings, Subject};

/// A table of more characters in a row is split.
const TABLE: usize = 120;

/// The worked calculation in Markdown with the tables of GitHub.
///
/// It says what [`text`](crate::text()) says: headings, formulas as mathematics, matrices as tables,
/// worked lines and heat maps as code of `settings.width` columns.
pub fn markdown(subject: &Subject<'_>, settings: &Settings) -> String {
    let words = words::of(settings.lang);
    page(
        &describe::explain(subject, settings, words),
        settings,
        words,
    )
}

/// A description in Markdown.
pub(crate) fn page(explanation: &Explanation, settings: &Settings, words: &dyn Words) -> String {
    let mut page = Page {
        out: String::new(),
        settings: Settings {
            color: false,
            ..settings.clone()
        },
        words,
        lines: Lines::new(settings.digits, words),
        last: Kind::Other,
    };
    page.separate(Kind::Other);
    page.push(&format!("# {}", escaped(&explanation.title)));
    page.blocks(&explanation.opening);
    for (number, part) in explanation.parts.iter().enumerate() {
        page.part(number + 1, part);
    }
    if let Some(data) = &explanation.data {
        page.separate(Kind::Other);
        page.push(&format!("<!-- {data} -->"));
    }
    page.finish()
}

struct Page<'a> {
    out: String,
    settings: Settings,
    words: &'a dyn Words,
    lines: Lines<'a>,
    last: Kind,
}

/// What was written last.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Item,
    /// An open code block.
    Code,
    Other,
}

impl Page<'_> {
    fn part(&mut self, number: usize, part: &Part) {
        self.separate(Kind::Other);
        self.push(&format!("## {number}. {}", escaped(&part.heading)));
        if let Some(formula) = &part.formula {
            self.formula(formula);
        }
        for shape in &part.steps {
            let text = self.words.shape(&shape.steps, &shape.shape, shape.axes);
            self.item(&text);
        }
        self.blocks(&part.blocks);
    }

    fn blocks(&mut self, blocks: &[Block]) {
        for block in blocks {
            self.block(block);
        }
    }

    fn block(&mut self, block: &Block) {
        match block {
            Block::Item(text) => self.item(text),
            Block::Worked(worked) => {
                self.separate(Kind::Code);
                let line = self.lines.line(worked);
                for line in wrap_line(&line, self.settings.width, 0) {
                    self.push(&line);
                }
            }
            Block::Blanks(blanks) => {
                for blank in &blanks.lines {
                    if self.last == Kind::Code {
                        self.out.push('\n');
                    }
                    self.separate(Kind::Code);
                    self.push(&printed::blank(blank, self.settings.width));
                }
            }
            Block::Finding(block) => self.block(block),
            Block::Paragraph(text) => {
                self.separate(Kind::Other);
                self.push(&escaped(text));
            }
            Block::Formula(formula) => self.formula(formula),
            Block::Heading(text) => {
                self.separate(Kind::Other);
                self.push(&format!("### {}", escaped(text)));
            }
            Block::Warning(text) => {
                self.separate(Kind::Other);
                let mark = self.words.warning();
                self.push(&format!("> **{mark}** {}", escaped(text)));
            }
            Block::Matrix(matrix) => self.matrix(matrix),
            Block::Beside(matrices) => matrices.iter().for_each(|matrix| self.matrix(matrix)),
            Block::HeatMap(map) => self.heat_map(map),
        }
    }

    /// An empty line, and the fence of a code block that begins or ends.
    fn separate(&mut self, next: Kind) {
        if self.last == next && next != Kind::Other {
            return;
        }
        if self.last == Kind::Code {
            self.push("```");
        }
        self.last = next;
        if !self.out.is_empty() {
            self.out.push('\n');
        }
        if next == Kind::Code {
            self.push("```text");
        }
    }

    fn push(&mut self, text: &str) {
        self.out.push_str(text.trim_end());
        self.out.push('\n');
    }

    /// Indented remarks belong to the one before.
    fn item(&mut self, text: &str) {
        self.separate(Kind::Item);
        let own = text.trim_start_matches(' ');
        let indent = if own.len() < text.len() { "  " } else { "" };
        self.push(&format!("{indent}- {}", escaped(own)));
    }

    fn formula(&mut self, formula: &str) {
        for equation in equations(formula) {
            self.separate(Kind::Other);
            self.push(&match is_sentence(equation) {
                true => escaped(equation),
                false => format!("$$\n{}\n$$", to_tex(equation).trim_end()),
            });
        }
    }

    fn matrix(&mut self, matrix: &Matrix) {
        let cells = printed::cells(matrix, self.settings.digits);
        for part in printed::column_groups(matrix, &cells, TABLE) {
            self.separate(Kind::Other);
            self.row(&in_table(&matrix.name), &matrix.columns[part.clone()]);
            self.push(&format!("|:--|{}", "--:|".repeat(part.len())));
            for (name, row) in matrix.rows.iter().zip(&cells) {
                let name = match name.trim() {
                    "" => String::new(),
                    name => format!("**{}**", in_table(name)),
                };
                self.row(&name, &row[part.clone()]);
            }
        }
    }

    fn row(&mut self, name: &str, cells: &[String]) {
        let cells: Vec<String> = cells.iter().map(|cell| in_table(cell)).collect();
        self.push(&format!("| {name} | {} |", cells.join(" | ")));
    }

    fn heat_map(&mut self, map: &HeatMap) {
        self.separate(Kind::Other);
        self.push(&escaped(&map.name));
        self.separate(Kind::Code);
        let drawn = heat::draw(map, self.settings.width, heat::MOST_ROWS, &self.settings);
        for line in &drawn.lines {
            self.push(line);
        }
        let legend = match drawn.merged {
            Some((rows, columns)) => self.words.merged_cells(rows, columns),
            None => self.words.legend(&drawn.largest),
        };
        self.separate(Kind::Other);
        self.push(&escaped(&legend));
    }

    fn finish(mut self) -> String {
        if self.last == Kind::Code {
            self.push("```");
        }
        self.out
    }
}

fn in_table(text: &str) -> String {
    escaped(text).replace('|', "\\|")
}

/// Text that Markdown leaves as it is.
fn escaped(text: &str) -> String {
    let links = text.contains("](") || text.contains("][") || text.contains("]:");
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::new();
    for (at, &c) in chars.iter().enumerate() {
        let neighbour = |at: Option<usize>| at.and_then(|at| chars.get(at)).copied();
        let word = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
        match c {
            '<' => out.push_str("&lt;"),
            '&' => out.push_str("&amp;"),
            // Inside a word it is no emphasis.
            '_' if word(neighbour(at.checked_sub(1))) && word(neighbour(Some(at + 1))) => {
                out.push(c);
            }
            '\\' | '`' | '*' | '_' | '$' | '~' => out.extend(['\\', c]),
            '[' | ']' if links => out.extend(['\\', c]),
            '#' | '>' | '+' | '-' if at == 0 => out.extend(['\\', c]),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::escaped;

    #[test]
    fn nothing_of_a_label_is_markdown() {
        for (text, written) in [
            ("d_k = 2", "d_k = 2"),
            (
                "_a_ *b* `c` <script>",
                "\\_a\\_ \\*b\\* \\`c\\` &lt;script>",
            ),
            ("[a](b) & $1$", "\\[a\\](b) &amp; \\$1\\$"),
            ("[1, 2] = batch", "[1, 2] = batch"),
            ("# no", "\\# no"),
        ] {
            assert_eq!(escaped(text), written);
        }
    }
}
