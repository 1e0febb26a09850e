//! A filled-in sheet corrected, blank by blank.
//!
//! A number is right if it can come out when every number before it is rounded as it was written:
//! each blank has a range, which is its formula over the ranges of the numbers in it, and a number
//! typed with n decimals stands for half a unit of the last of them on either side. A wrong number
//! that its formula gives from wrong numbers before it follows from those, and is not counted again.

mod read;
mod says;
mod slip;

pub use read::{BadSheet, Sheet};

use crate::entry::Entry;
use crate::exercise::{Answer, Asked, Question, questions};
use crate::expr::Range;
use crate::number::{half_unit, shown};
use crate::{Lang, Settings, Subject};
use qkv::StepName;
use read::Typed;
use slip::Slip;
use std::cell::Cell;
use std::collections::HashMap;

/// What came of each blank.
#[derive(Clone, Debug, PartialEq)]
pub struct Correction {
    /// In order of their numbers, from 1.
    pub blanks: Vec<Corrected>,
}

/// A blank.
#[derive(Clone, Debug, PartialEq)]
pub struct Corrected {
    /// What it asks for, as the sheet's data has it: `scaled[0,0,1,0]`.
    pub asks: String,
    /// What stands before it.
    pub label: String,
    /// What was written into it.
    pub typed: Option<String>,
    /// The answer, as the key prints it.
    pub right: String,
    /// What came of it.
    pub state: State,
    /// What probably happened, for a number that is wrong: its name, and a sentence.
    pub slip: Option<(&'static str, String)>,
}

/// What came of a blank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It is right.
    Right,
    /// Nothing is written in it.
    Empty,
    /// It is wrong.
    Wrong,
    /// It is not right, but follows from a wrong number before it.
    Follows,
    /// It is no number.
    Unreadable,
}

impl State {
    /// The name in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            State::Right => "right",
            State::Empty => "empty",
            State::Wrong => "wrong",
            State::Follows => "follows",
            State::Unreadable => "unreadable",
        }
    }
}

impl Correction {
    /// How many blanks are in this state.
    pub fn count(&self, state: State) -> usize {
        self.blanks.iter().filter(|one| one.state == state).count()
    }

    /// The first blank that is wrong or cannot be read, from 0.
    pub fn first_wrong(&self) -> Option<usize> {
        let wrong = |one: &Corrected| matches!(one.state, State::Wrong | State::Unreadable);
        self.blanks.iter().position(wrong)
    }
}

/// Corrects a sheet; `subject` is the run that its command makes.
///
/// # Errors
/// If the sheet's blanks are not those of that run, or a blank is there twice.
pub fn correct(
    subject: &Subject<'_>,
    sheet: &Sheet,
    settings: &Settings,
) -> Result<Correction, BadSheet> {
    let asking = Settings {
        lang: sheet.lang,
        digits: sheet.digits,
        rows: sheet.rows.clone(),
        ..settings.clone()
    };
    let questions = questions(subject, &asking).ok_or(BadSheet::Other)?;
    let asks: Vec<String> = questions.iter().map(|one| one.asked.name()).collect();
    if asks != sheet.blanks {
        return Err(BadSheet::Other);
    }
    let labels: Vec<&str> = questions.iter().map(|one| &one.label[..]).collect();
    let typed = sheet.answers(&labels)?;
    let marker = Marker::new(&questions, &typed, sheet.digits, settings.lang);
    Ok(Correction {
        blanks: (0..questions.len()).map(|at| marker.mark(at)).collect(),
    })
}

/// Everything that a correction looks at.
pub(crate) struct Marker<'a> {
    questions: &'a [Question],
    typed: &'a [Option<Typed>],
    places: HashMap<&'a Entry, usize>,
    digits: usize,
    lang: Lang,
    /// Which numbers each blank may have.
    allowed: Vec<Range>,
    /// What its writer goes on with.
    own: Vec<Range>,
    /// Whether something is wrong in it or in what it comes from.
    tainted: Vec<bool>,
}

impl<'a> Marker<'a> {
    fn new(
        questions: &'a [Question],
        typed: &'a [Option<Typed>],
        digits: usize,
        lang: Lang,
    ) -> Marker<'a> {
        let number = |(at, one): (usize, &'a Question)| match &one.asked {
            Asked::Number(entry) => Some((entry, at)),
            _ => None,
        };
        let mut marker = Marker {
            questions,
            typed,
            places: questions.iter().enumerate().filter_map(number).collect(),
            digits,
            lang,
            allowed: Vec::new(),
            own: Vec::new(),
            tainted: Vec::new(),
        };
        for at in 0..questions.len() {
            let (allowed, own) = marker.ranges(at);
            marker.allowed.push(allowed);
            marker.own.push(own);
            let state = marker.typed[at]
                .as_ref()
                .map(|typed| marker.judged(at, typed).0);
            let tainted = match state {
                Some(state) => state != State::Right,
                None => marker.follows_wrong(at),
            };
            marker.tainted.push(tainted);
        }
        marker
    }

    /// The blank that a number of a formula comes from, if it is before blank `before`.
    fn source(&self, entry: Option<&Entry>, before: usize) -> Option<usize> {
        let entry = entry?;
        let found = self.places.get(entry).copied().or_else(|| {
            // What is kept goes on unchanged.
            let steps = [StepName::Biased, StepName::Capped, StepName::Scaled];
            let masked = entry.of == StepName::Masked.as_str();
            let same = |step: &StepName| Entry {
                of: step.as_str(),
                index: entry.index.clone(),
            };
            let mut before = steps.iter().filter(|_| masked).map(same);
            before.find_map(|entry| self.places.get(&entry).copied())
        });
        found.filter(|at| *at < before)
    }

    /// Which numbers blank `at` may have, and which its writer goes on with.
    fn ranges(&self, at: usize) -> (Range, Range) {
        let Answer::Worked(worked) = &self.questions[at].answer else {
            return (Range::at(0.0), Range::at(0.0));
        };
        let printed = shown(worked.value.value, self.digits + worked.more_digits);
        let rounding = match printed.exact {
            true => 0.0,
            false => half_unit(&printed, self.digits + worked.more_digits),
        };
        // Redone from rounded numbers it may lie elsewhere; its own rounding comes on top.
        let from = |ranges: &[Range]| {
            let own = Range::at(worked.value.value);
            let redone = worked.chain.first().map(|expr| {
                expr.range(&|number| match self.source(number.entry.as_ref(), at) {
                    Some(source) => ranges[source],
                    None => {
                        let printed = shown(number.value, self.digits);
                        let half = half_unit(&printed, self.digits);
                        let rounded = !printed.exact;
                        Range::around(number.value, if rounded { half } else { 0.0 })
                    }
                })
            });
            (own, redone)
        };
        let (right, redone) = from(&self.allowed);
        let allowed = redone.map_or(right, |redone| Range {
            low: redone.low.min(right.low),
            high: redone.high.max(right.high),
        });
        let typed = self.typed[at].as_ref().and_then(|typed| typed.number);
        let coarse = typed.map_or(0.0, |(_, half)| half);
        let widened = match allowed.high - allowed.low > 0.0 || !printed.exact {
            true => allowed.widened(rounding.max(coarse)),
            false => allowed,
        };
        let own = match typed {
            Some((value, half)) => Range::around(value, half),
            None => from(&self.own).1.unwrap_or(right),
        };
        (widened, own)
    }

    /// Whether a number in the formula of blank `at` is wrong.
    fn follows_wrong(&self, at: usize) -> bool {
        let Answer::Worked(worked) = &self.questions[at].answer else {
            return false;
        };
        let wrong = Cell::new(false);
        if let Some(expr) = worked.chain.first() {
            expr.range(&|number| {
                let source = self.source(number.entry.as_ref(), at);
                wrong.set(wrong.get() || source.is_some_and(|source| self.tainted[source]));
                Range::at(number.value)
            });
        }
        wrong.get()
    }

    /// What the formula of blank `at` gives from its writer's own numbers.
    pub(crate) fn redone(&self, at: usize, expr: &crate::expr::Expr) -> Range {
        expr.range(&|number| match self.source(number.entry.as_ref(), at) {
            Some(source) => self.own[source],
            None => Range::at(number.value),
        })
    }

    fn mark(&self, at: usize) -> Corrected {
        let question = &self.questions[at];
        let right = match &question.answer {
            Answer::Shape(shape) => format!("{shape:?}"),
            Answer::Worked(worked) => {
                shown(worked.value.value, self.digits + worked.more_digits).text
            }
        };
        let (state, slip) = match &self.typed[at] {
            None => (State::Empty, None),
            Some(typed) => self.judged(at, typed),
        };
        let slip = slip.map(|slip| (slip.id(), says::slip(&slip, self, at)));
        Corrected {
            asks: question.asked.name(),
            label: question.label.clone(),
            typed: self.typed[at].as_ref().map(|typed| typed.text.clone()),
            right,
            state,
            slip,
        }
    }

    fn judged(&self, at: usize, typed: &Typed) -> (State, Option<Slip>) {
        match &self.questions[at].answer {
            Answer::Shape(shape) => match &typed.shape {
                None => (State::Unreadable, None),
                Some(typed) if same_shape(typed, shape) => (State::Right, None),
                Some(_) => (State::Wrong, None),
            },
            Answer::Worked(worked) => {
                let Some((value, half)) = typed.number else {
                    return (State::Unreadable, None);
                };
                if self.allowed[at].holds(value) {
                    return (State::Right, None);
                }
                let first = worked.chain.first();
                let redone = first.map(|expr| self.redone(at, expr).widened(half));
                let printed = shown(worked.value.value, self.digits);
                let unit = half_unit(&printed, self.digits);
                let redone = redone.is_some_and(|own| own.widened(unit).holds(value));
                match redone && self.follows_wrong(at) {
                    true => (State::Follows, None),
                    false => (State::Wrong, slip::find(self, at, worked, (value, half))),
                }
            }
        }
    }

    /// The number that a blank asks for.
    fn right(&self, at: usize) -> Option<f64> {
        match &self.questions[at].answer {
            Answer::Worked(worked) => Some(worked.value.value),
            Answer::Shape(_) => None,
        }
    }

    pub(crate) fn entry(&self, at: usize) -> Option<&'a Entry> {
        match &self.questions[at].asked {
            Asked::Number(entry) => Some(entry),
            _ => None,
        }
    }
}

/// Leading axes of length 1 may be left out.
fn same_shape(typed: &[usize], right: &[usize]) -> bool {
    fn short(shape: &[usize]) -> &[usize] {
        let ones = shape.iter().take_while(|n| **n == 1).count();
        &shape[ones.min(shape.len() - 1)..]
    }
    !typed.is_empty() && !right.is_empty() && short(typed) == short(right)
}
