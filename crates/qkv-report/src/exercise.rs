//! An exercise: the explanation with blanks for results, and its key.
//!
//! Sheet and key are made from the same description, block by block, so that every number of a
//! blank stands beside its answer in the key.

use crate::describe::{self, Task};
use crate::entry::{Entry, Number};
use crate::explanation::{Blank, Blanks, Block, Cell, Explanation, Matrix, Part, Shape, Worked};
use crate::expr::joined;
use crate::printed::Lines;
use crate::text::columns;
use crate::words::{self, Words};
use crate::{Lang, Settings, Subject, html, latex, markdown, text};
use qkv::StepName;
use serde_json::json;
use std::collections::{HashMap, HashSet};
use std::fmt;

/// A sheet with blanks and the key to it.
///
/// Blank 7 of the sheet is the line `(7) s[1,0] = ____`, which line `(7)` of the key fills. The
/// sheet also holds one line of JSON: the command that makes the problem, what each blank asks for
/// (`scaled[0,0,1,0]`), the rows, decimals and language.
#[derive(Clone, Debug)]
pub struct Exercise {
    /// For the learner.
    pub sheet: String,
    /// For who corrects it.
    pub key: String,
}

/// Why there is no exercise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoExercise {
    /// Even one query would take a pencil too long.
    Large,
    /// The sheet would have so many blanks.
    Long(usize),
    /// There is no query or no key.
    Nothing,
}

impl fmt::Display for NoExercise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoExercise::Large => f.write_str(
                "the problem is too large to be worked out by hand; give fewer or shorter rows",
            ),
            NoExercise::Long(blanks) => write!(
                f,
                "the sheet would have {blanks} blanks, more than {MOST_BLANKS}; ask for one query \
                 with --row, or give a smaller problem"
            ),
            NoExercise::Nothing => {
                f.write_str("there is nothing to work out; give at least one query and one key")
            }
        }
    }
}

impl std::error::Error for NoExercise {}

/// With more blanks than this only one row is asked for, if the caller chose none.
const MANY_BLANKS: usize = 60;
/// Two lines of so many characters fit beside each other when they are written by hand.
const SHORT: usize = 32;
/// More blanks than this are no exercise.
const MOST_BLANKS: usize = 240;

/// What the pages of an exercise are written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paper {
    /// Text.
    Text,
    /// Markdown.
    Markdown,
    /// LaTeX.
    Latex,
    /// HTML.
    Html,
}

impl Paper {
    fn page(self, page: &Explanation, settings: &Settings, words: &dyn Words) -> String {
        match self {
            Paper::Text => text::page(page, settings, words),
            Paper::Markdown => markdown::page(page, settings, words),
            Paper::Latex => latex::page(page, settings, words),
            Paper::Html => html::page(page, settings, words),
        }
    }
}

/// The run as an exercise: the explanation with blanks for its results, and the key.
///
/// `command` is what makes the same problem again, word by word; the sheet keeps it for a program
/// that corrects.
///
/// # Errors
///
/// If there would be no blank or too many.
pub fn exercise(
    subject: &Subject<'_>,
    settings: &Settings,
    paper: Paper,
    command: &[String],
) -> Result<Exercise, NoExercise> {
    let words = words::of(settings.lang);
    let make = |settings: &Settings| {
        let task = describe::task(subject, settings, words).ok_or(NoExercise::Large)?;
        Ok(pages(&task, settings, subject.past_len, words))
    };
    let mut settings = settings.clone();
    let mut made = make(&settings)?;
    // A gradient needs every query.
    let may_choose = settings.rows.is_none() && subject.backward.is_none();
    if made.asked.len() > MANY_BLANKS && may_choose {
        settings.rows = telling_row(subject).map(|row| vec![row]);
        made = make(&settings)?;
    }
    match made.asked.len() {
        0 => return Err(NoExercise::Nothing),
        blanks if blanks > MOST_BLANKS => return Err(NoExercise::Long(blanks)),
        _ => {}
    }
    made.sheet.data = Some(data(&made.asked, &settings, command));
    Ok(Exercise {
        sheet: paper.page(&made.sheet, &settings, words),
        key: paper.page(&made.key, &settings, words),
    })
}

/// The questions of the sheet that these settings make, in order; `None` for too large a problem.
pub(crate) fn questions(subject: &Subject<'_>, settings: &Settings) -> Option<Vec<Question>> {
    let words = words::of(settings.lang);
    let task = describe::task(subject, settings, words)?;
    Some(pages(&task, settings, subject.past_len, words).asked)
}

/// The last query that drops some key and keeps two; if there is none, the last.
fn telling_row(subject: &Subject<'_>) -> Option<usize> {
    let queries = subject.steps.get(StepName::Q)?.shape()[2];
    let masked = |i: &usize| {
        let row = subject.steps.get(StepName::Masked)?.row(&[0, 0, *i]);
        let dropped = row.iter().filter(|s| **s == f64::NEG_INFINITY).count();
        (dropped > 0 && row.len() >= dropped + 2).then_some(())
    };
    let telling = (0..queries).rev().find(|i| masked(i).is_some());
    telling.or(queries.checked_sub(1))
}

/// What a program needs to correct the sheet, in one line that can stand in any comment.
fn data(asked: &[Question], settings: &Settings, command: &[String]) -> String {
    let blanks: Vec<String> = asked.iter().map(|one| one.asked.name()).collect();
    let data = json!({
        "qkv": "sheet",
        "version": 1,
        "command": command,
        "rows": settings.rows,
        "digits": settings.digits,
        "lang": match settings.lang {
            Lang::En => "en",
            Lang::Zh => "zh",
        },
        "blanks": blanks,
    });
    // "-->" would end a comment in HTML, and "--" is not allowed in one.
    data.to_string()
        .replace("--", "-\\u002d")
        .replace('<', "\\u003c")
        .replace('>', "\\u003e")
}

/// The two pages, and what is asked.
struct Pages {
    sheet: Explanation,
    key: Explanation,
    /// Blank n + 1 of the sheet.
    asked: Vec<Question>,
}

/// What a blank asks for, and its answer.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    pub asked: Asked,
    /// As it stands before the blank.
    pub label: String,
    pub answer: Answer,
}

/// What fills a blank.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Shape(Vec<usize>),
    Worked(Worked),
}

/// What a blank asks for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Asked {
    Shape(&'static str),
    Number(Entry),
    /// A number on the way to one of a step, by its label.
    Between(String),
}

impl Asked {
    /// `scaled[0,0,1,0]`, `shape of scaled`, or the label.
    pub(crate) fn name(&self) -> String {
        match self {
            Asked::Shape(step) => format!("shape of {step}"),
            Asked::Number(Entry { of, index }) => {
                let index: Vec<String> = index.iter().map(usize::to_string).collect();
                format!("{of}[{}]", index.join(","))
            }
            Asked::Between(label) => label.clone(),
        }
    }
}

/// Makes both pages of a task's description.
fn pages(task: &Task, settings: &Settings, past: usize, words: &dyn Words) -> Pages {
    let mut maker = Maker {
        words,
        digits: settings.digits,
        rows: settings.rows.as_deref(),
        past,
        results: results(task),
        numbers: HashMap::new(),
        asked: Vec::new(),
    };
    let parts = task.parts.iter().filter(|part| is_asked(part));
    let correction = Block::Paragraph(words.how_to_correct(settings.digits));
    let (sheets, keys) = parts.map(|part| maker.part(part)).unzip();
    Pages {
        sheet: Explanation {
            title: words.exercise_title(),
            opening: [&task.instructions[..], &task.problem].concat(),
            parts: sheets,
            data: None,
        },
        key: Explanation {
            title: words.key_title(),
            opening: [&[correction][..], &task.problem].concat(),
            parts: keys,
            data: None,
        },
        asked: maker.asked,
    }
}

/// Parts that look back are no task, nor is the logarithm that no output needs.
fn is_asked(part: &Part) -> bool {
    let mut steps = part.steps.iter().flat_map(|shape| &shape.steps);
    steps.any(|step| *step != StepName::Lse.as_str())
}

/// Whether a learner works this out.
fn is_task(block: &Block) -> bool {
    matches!(block, Block::Worked(worked) if !worked.chain.is_empty())
}

/// The steps whose numbers have lines.
fn results(task: &Task) -> HashSet<&'static str> {
    let blocks = task.parts.iter().flat_map(|part| &part.blocks);
    let entry = |block: &Block| match block {
        Block::Worked(worked) if is_task(block) => Some(worked.value.entry.as_ref()?.of),
        _ => None,
    };
    blocks.filter_map(entry).collect()
}

/// Puts matrices that follow each other side by side.
fn beside(blocks: Vec<Block>) -> Vec<Block> {
    let mut out: Vec<Block> = Vec::new();
    for block in blocks {
        match (out.pop(), block) {
            (Some(Block::Matrix(one)), Block::Matrix(other)) => {
                out.push(Block::Beside(vec![one, other]));
            }
            (Some(Block::Beside(mut several)), Block::Matrix(other)) => {
                several.push(other);
                out.push(Block::Beside(several));
            }
            (before, block) => {
                out.extend(before);
                out.push(block);
            }
        }
    }
    out
}

/// What becomes of a number of a matrix.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// It is given, or told in words, as the zero of a dropped key is.
    Given,
    /// It is the result of a line, or only put here together.
    Blank(Option<usize>),
    /// A result that is not asked for.
    Hidden,
}

struct Maker<'a> {
    words: &'a dyn Words,
    digits: usize,
    /// The queries that are asked for, if not all.
    rows: Option<&'a [usize]>,
    /// Keys and values that were given before the first that is calculated.
    past: usize,
    /// The steps that have lines.
    results: HashSet<&'static str>,
    /// The blank that asks for a number of a step.
    numbers: HashMap<Entry, usize>,
    asked: Vec<Question>,
}

impl Maker<'_> {
    /// A part of the sheet and of the key.
    fn part(&mut self, part: &Part) -> (Part, Part) {
        let mut sheet = Part {
            blocks: Vec::new(),
            ..part.clone()
        };
        let mut key = sheet.clone();
        if part.blocks.iter().any(is_task) {
            sheet.steps.clear();
            key.steps.clear();
            for shape in &part.steps {
                self.push_shape(shape, &mut sheet, &mut key);
            }
        }
        for block in &part.blocks {
            self.push(block, &mut sheet, &mut key);
        }
        for page in [&mut sheet, &mut key] {
            page.blocks = beside(std::mem::take(&mut page.blocks));
        }
        (sheet, key)
    }

    fn number(&mut self, asked: Asked, label: &str, answer: Answer) -> usize {
        self.asked.push(Question {
            asked,
            label: label.to_owned(),
            answer,
        });
        self.asked.len()
    }

    fn push_shape(&mut self, shape: &Shape, sheet: &mut Part, key: &mut Part) {
        let Some(&step) = shape.steps.first() else {
            return;
        };
        let label = self.words.shape_asked(&shape.steps, shape.axes);
        let right = Answer::Shape(shape.shape.clone());
        let number = self.number(Asked::Shape(step), &label, right);
        sheet.blocks.push(Block::Blanks(Blanks {
            lines: vec![Blank { number, label }],
            short: false,
        }));
        let answer = self.words.shape(&shape.steps, &shape.shape, shape.axes);
        key.blocks.push(Block::Item(format!("({number}) {answer}")));
    }

    fn push(&mut self, block: &Block, sheet: &mut Part, key: &mut Part) {
        match block {
            Block::Worked(worked) if is_task(block) => {
                let asked = match &worked.value.entry {
                    Some(entry) => Asked::Number(entry.clone()),
                    None => Asked::Between(worked.label.clone()),
                };
                let right = Answer::Worked(worked.clone());
                let number = self.number(asked, &worked.label, right);
                if let Some(entry) = &worked.value.entry {
                    self.numbers.insert(entry.clone(), number);
                }
                self.push_blank(number, worked, &mut sheet.blocks);
                key.blocks.push(Block::Worked(Worked {
                    number: Some(number),
                    ..worked.clone()
                }));
            }
            Block::Matrix(matrix) => self.push_matrix(matrix, sheet, key),
            Block::HeatMap(_) | Block::Warning(_) => {}
            Block::Finding(_) | Block::Beside(_) => key.blocks.push(block.clone()),
            _ => {
                sheet.blocks.push(block.clone());
                key.blocks.push(block.clone());
            }
        }
    }

    /// Adds a line to those before it.
    fn push_blank(&self, number: usize, worked: &Worked, blocks: &mut Vec<Block>) {
        let short = self.length(worked) <= SHORT;
        let blank = Blank {
            number,
            label: worked.label.clone(),
        };
        match blocks.last_mut() {
            Some(Block::Blanks(blanks)) if blanks.short == short => blanks.lines.push(blank),
            _ => blocks.push(Block::Blanks(Blanks {
                lines: vec![blank],
                short,
            })),
        }
    }

    /// Characters of `label = calculation = result`.
    fn length(&self, worked: &Worked) -> usize {
        let line = Lines::new(self.digits, self.words).line(worked);
        let last = line.pieces.iter().rev().take(2);
        let pieces = last.map(|(_, tokens)| columns(&joined(tokens)) + 3);
        columns(&line.label) + pieces.sum::<usize>()
    }

    /// Without the rows that are not asked for.
    fn push_matrix(&self, matrix: &Matrix, sheet: &mut Part, key: &mut Part) {
        let mut blank = Matrix {
            rows: Vec::new(),
            cells: Vec::new(),
            ..matrix.clone()
        };
        let mut full = blank.clone();
        for (name, cells) in matrix.rows.iter().zip(&matrix.cells) {
            let places: Vec<Place> = cells.iter().map(|cell| self.place(cell)).collect();
            if places.iter().all(|place| *place == Place::Hidden) {
                continue;
            }
            let cell = |(cell, place): (&Cell, &Place)| match place {
                Place::Blank(number) => Cell::Blank(*number),
                Place::Given | Place::Hidden => cell.clone(),
            };
            blank.rows.push(name.clone());
            blank
                .cells
                .push(cells.iter().zip(&places).map(cell).collect());
            full.rows.push(name.clone());
            full.cells.push(cells.clone());
        }
        if !blank.rows.is_empty() {
            sheet.blocks.push(Block::Matrix(blank));
            key.blocks.push(Block::Matrix(full));
        }
    }

    fn place(&self, cell: &Cell) -> Place {
        let Cell::Number(Number {
            entry: Some(entry), ..
        }) = cell
        else {
            return Place::Given;
        };
        if let Some(number) = self.numbers.get(entry) {
            return Place::Blank(Some(*number));
        }
        let is = |step: StepName| entry.of == step.as_str();
        let query = match () {
            () if is(StepName::Masked) => entry.index.get(2),
            () if is(StepName::Concatenated) => entry.index.get(1),
            () => None,
        };
        if let Some(query) = query {
            let asked = self.rows.is_none_or(|rows| rows.contains(query));
            return if asked {
                Place::Blank(None)
            } else {
                Place::Hidden
            };
        }
        let cached = (is(StepName::K) || is(StepName::V)) && entry.index[2] < self.past;
        match self.results.contains(entry.of) && !cached {
            true => Place::Hidden,
            false => Place::Given,
        }
    }
}
