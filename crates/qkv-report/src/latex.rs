//! The explanation as a LaTeX document that compiles in one run.
//!
//! Worked lines are formulas inside a paragraph: TeX breaks these after = and + by itself, so that
//! no sum is too long. Everything comes from packages that every installation has.

mod figure;
mod findings;
mod prose;

use crate::describe;
use crate::explanation::{Blank, Blanks, Block, Explanation, HeatMap, Matrix, Part, Worked};
use crate::expr::{Token, joined};
use crate::notation::{equations, is_sentence, to_tex};
use crate::number::shown;
use crate::printed::Lines;
use crate::words::{self, Words};
use crate::{Lang, Settings, Subject};
use prose::{mixed, plain};

/// What both kinds of document load and define.
const COMMON: &str = r"\usepackage{amsmath}
\usepackage[table]{xcolor}
\usepackage[a4paper,margin=22mm]{geometry}
\setlength{\parindent}{0pt}
\setlength{\parskip}{4pt plus 2pt}
\emergencystretch=3em
\renewcommand{\labelitemi}{$\bullet$}
\renewcommand{\labelitemii}{$\circ$}
\relpenalty=400
\binoppenalty=100
\pagestyle{plain}
\makeatletter
\def\@listi{\leftmargin\leftmargini\topsep1pt\parsep0pt\itemsep1pt}
\let\@listI\@listi
\def\@listii{\leftmargin\leftmarginii\topsep1pt\parsep0pt\itemsep1pt}
\makeatother
% One line of calculation: further lines hang.
\newcommand{\worked}[1]{{\rightskip=0pt plus 8em\hangindent=2em\hangafter=1 #1\par}}
\renewcommand{\arraystretch}{1.1}
\newcommand{\result}[1]{\mathbf{#1}}
\newcommand{\remark}[1]{{\small\color{black!65}#1}}
% Where a learner writes: lines of a share of the width, and in matrices.
\newcommand{\blank}[2]{\makebox[#1\linewidth][s]{\rule{0pt}{8mm}#2 \hrulefill}}
\newcommand{\room}{\underline{\hspace{14mm}}}
";

/// For what pdflatex can set.
const LATIN: &str = r"\documentclass[11pt]{article}
\usepackage[utf8]{inputenc}
\IfFileExists{lmodern.sty}{\usepackage[T1]{fontenc}\usepackage{lmodern}}{}
";

/// The worked calculation as a LaTeX document.
///
/// It says what [`text`](crate::text()) says. Its first line is a comment with the command that
/// compiles it: pdflatex, or xelatex where there is Chinese in it.
pub fn latex(subject: &Subject<'_>, settings: &Settings) -> String {
    let words = words::of(settings.lang);
    page(
        &describe::explain(subject, settings, words),
        settings,
        words,
    )
}

/// A description as a document.
pub(crate) fn page(explanation: &Explanation, settings: &Settings, words: &dyn Words) -> String {
    let mut page = Page {
        out: String::new(),
        digits: settings.digits,
        words,
        lines: Lines::new(settings.digits, words),
        list: 0,
    };
    let title = mixed(&explanation.title);
    page.push(&format!(
        "\\begin{{center}}\\Large\\bfseries {title}\\end{{center}}"
    ));
    page.blocks(&explanation.opening);
    for part in &explanation.parts {
        page.part(part);
    }
    let body = page.out;
    let head = head(settings.lang, &body);
    let data = explanation.data.as_ref();
    let data = data.map_or(String::new(), |data| format!("% {data}\n"));
    let colours = figure::colours();
    format!("{head}{COMMON}{colours}\\begin{{document}}\n{body}\\end{{document}}\n{data}")
}

/// The document class for a language, or for what is quoted in it.
fn head(lang: Lang, body: &str) -> String {
    let latin = |c: char| c <= '\u{ff}' || "–—‘’“”…".contains(c);
    match lang {
        Lang::En if body.chars().all(latin) => {
            format!("% Compile it with: pdflatex FILE.tex (once)\n{LATIN}")
        }
        Lang::En => "% Compile it with: xelatex FILE.tex (once)\n\
                     \\documentclass[11pt,scheme=plain]{ctexart}\n"
            .into(),
        Lang::Zh => "% 编译（一次即可）：xelatex 文件名.tex\n\\documentclass[11pt]{ctexart}\n\
             \\ctexset{section/format=\\Large\\bfseries\\raggedright}\n"
            .into(),
    }
}

struct Page<'a> {
    out: String,
    digits: usize,
    words: &'a dyn Words,
    lines: Lines<'a>,
    /// How many lists are open.
    list: usize,
}

impl Page<'_> {
    fn push(&mut self, tex: &str) {
        self.out.push_str(tex);
        self.out.push('\n');
    }

    /// A paragraph by itself.
    fn paragraph(&mut self, tex: &str) {
        self.push(&format!("{tex}\n"));
    }

    fn part(&mut self, part: &Part) {
        self.push(&format!("\\section{{{}}}", mixed(&part.heading)));
        if let Some(formula) = &part.formula {
            self.formula(formula);
        }
        for shape in &part.steps {
            let text = self.words.shape(&shape.steps, &shape.shape, shape.axes);
            self.item(&text);
        }
        self.lists(0);
        self.blocks(&part.blocks);
    }

    fn blocks(&mut self, blocks: &[Block]) {
        for block in blocks {
            self.block(block);
        }
        self.lists(0);
    }

    fn block(&mut self, block: &Block) {
        match block {
            Block::Item(text) => return self.item(text),
            Block::Finding(block) => return self.block(block),
            _ => self.lists(0),
        }
        match block {
            Block::Item(_) | Block::Finding(_) => {}
            Block::Paragraph(text) => self.paragraph(&mixed(text)),
            Block::Formula(formula) => self.formula(formula),
            Block::Heading(text) => self.push(&format!("\\subsection*{{{}}}", mixed(text))),
            Block::Warning(text) => {
                let mark = plain(self.words.warning());
                self.paragraph(&format!("\\textbf{{{mark}}} {}", mixed(text)));
            }
            Block::Worked(worked) => self.worked(worked),
            Block::Blanks(blanks) => self.blanks(blanks),
            Block::Matrix(matrix) => self.matrices(std::slice::from_ref(matrix)),
            Block::Beside(matrices) => self.matrices(matrices),
            Block::HeatMap(map) => self.heat_map(map),
        }
    }

    /// Opens or closes lists until so many are open.
    fn lists(&mut self, open: usize) {
        while self.list > open {
            self.push("\\end{itemize}");
            self.list -= 1;
        }
        while self.list < open {
            self.push("\\begin{itemize}\\setlength{\\itemsep}{0pt}");
            self.list += 1;
        }
    }

    /// Indented remarks belong to the one before.
    fn item(&mut self, text: &str) {
        let inside = text.starts_with(' ') && self.list > 0;
        self.lists(if inside { 2 } else { 1 });
        // A bracket after \item would be its label.
        self.push(&format!("\\item {{}}{}", mixed(text.trim_start())));
    }

    fn formula(&mut self, formula: &str) {
        self.push("\\begin{center}");
        for equation in equations(formula) {
            self.paragraph(&match is_sentence(equation) {
                true => mixed(equation),
                false => format!("$\\displaystyle {}$", to_tex(equation).trim_end()),
            });
        }
        self.push("\\end{center}");
    }

    fn worked(&mut self, worked: &Worked) {
        let line = self.lines.line(worked);
        let mut tex = unbroken(&to_tex(&line.label));
        let last = line.pieces.len().saturating_sub(1);
        for (at, (sign, tokens)) in line.pieces.iter().enumerate() {
            let sign = if *sign == '=' { " = " } else { " \\approx " };
            tex.push_str(sign);
            tex.push_str(&match at == last {
                true => format!("\\result{{{}}}", number(&joined(tokens))),
                false => expression(tokens),
            });
        }
        let remark = line.remark.map_or(String::new(), |remark| {
            format!(" \\remark{{{}}}", mixed(&remark))
        });
        self.push(&format!("\\worked{{${tex}${remark}}}"));
    }

    fn blanks(&mut self, blanks: &Blanks) {
        let width = if blanks.short { "0.47" } else { "1" };
        for (at, Blank { number, label }) in blanks.lines.iter().enumerate() {
            let left = blanks.short && at % 2 == 0 && at + 1 < blanks.lines.len();
            let end = if left { "\\hfill" } else { "\\par" };
            let label = mixed(label);
            self.push(&format!(
                "\\blank{{{width}}}{{({number}) {label} $=$}}{end}"
            ));
        }
        self.push("\\smallskip");
    }

    fn matrices(&mut self, matrices: &[Matrix]) {
        let arrays: Vec<String> = matrices
            .iter()
            .flat_map(|matrix| figure::matrix(matrix, self.digits))
            .collect();
        let arrays = arrays.join("\\qquad\n");
        self.paragraph(&format!(
            "{{\\raggedright\\lineskip=6pt\n{arrays}\\par}}\\medskip"
        ));
    }

    fn heat_map(&mut self, map: &HeatMap) {
        let (table, grid) = figure::heat_map(map, self.digits);
        let legend = match grid.is_merged() {
            true => self.words.merged_cells(grid.queries, grid.keys),
            false => self.words.legend(&shown(grid.largest, self.digits).text),
        };
        // The sample of the legend has the colour that it stands for.
        let sample = "{\\color{h8}\\rule{2ex}{1.6ex}}";
        let legend: Vec<String> = legend.split('█').map(mixed).collect();
        let name = mixed(&map.name);
        self.paragraph(&format!(
            "\\begin{{minipage}}{{\\linewidth}}\n{name}\\\\[2pt]\n{table}\\\\[2pt]\n\
             \\remark{{{}}}\n\\end{{minipage}}",
            legend.join(sample)
        ));
    }
}

/// A printed number.
fn number(text: &str) -> String {
    to_tex(text).trim_end().to_string()
}

/// A formula with numbers, which may break after + and after commas.
fn expression(tokens: &[Token]) -> String {
    let mut out = String::new();
    for tokens in tokens.chunk_by(|a, b| is_words(a) == is_words(b)) {
        let text = joined(tokens);
        out.push_str(&match is_words(&tokens[0]) {
            true => format!("\\text{{{}}}", mixed(&text)),
            false => unbroken(&to_tex(&text)).replace(", ", ",\\allowbreak\\, "),
        });
    }
    out
}

fn is_words(token: &Token) -> bool {
    matches!(token, Token::Words(_))
}

/// Products and powers of ten stay together.
fn unbroken(tex: &str) -> String {
    tex.replace("\\cdot ", "{\\cdot}")
        .replace("\\times ", "{\\times}")
}
