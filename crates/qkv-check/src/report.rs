//! What a check finds.

use crate::recipe::Recipe;
use qkv::{DType, StepName};
use std::collections::BTreeMap;

/// Whether somebody else's numbers are the right ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Within what rounding to their own number format can do.
    Equal,
    /// Only within what rounding to a coarser number format can do.
    Rounding,
    /// Neither.
    Different,
    /// There is no number to compare with; or scores are so large, or roundings so coarse, that the
    /// bound allows nearly anything.
    Undecided,
}

impl Verdict {
    /// The name in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Equal => "equal",
            Verdict::Rounding => "rounding",
            Verdict::Different => "different",
            Verdict::Undecided => "undecided",
        }
    }

    /// Whether the other side is right.
    pub fn agrees(self) -> bool {
        matches!(self, Verdict::Equal | Verdict::Rounding)
    }
}

/// Everything that a check finds.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Whether they agree.
    pub verdict: Verdict,
    /// The coarser format whose rounding explains the difference.
    pub rounding: Option<DType>,
    /// Where the first step that differs does so first.
    pub first_difference: Option<FirstDifference>,
    /// All explanations that fit, the simplest first; none unless the verdict is different.
    pub causes: Vec<Cause>,
    /// Groups of their ids that give the same numbers for this input.
    pub indistinguishable: Vec<Vec<String>>,
    /// The absolute error allowed at the first difference, or else the largest allowed anywhere.
    pub bound: f64,
    /// Largest |theirs − right|; infinite where one is no number and the other is.
    pub max_abs_error: f64,
    /// Where they differ, if they do.
    pub places: Option<Places>,
    /// What is odd about the input or the numbers, before any comparison.
    pub lint: Vec<Lint>,
    /// How each of the causes computes, where they were found by recomputing.
    pub(crate) recipes: Vec<Recipe>,
}

/// The first number that differs.
#[derive(Clone, Debug, PartialEq)]
pub struct FirstDifference {
    /// Its step.
    pub step: StepName,
    /// Its index, of full rank.
    pub index: Vec<usize>,
    /// The right number.
    pub right: f64,
    /// The other side's.
    pub theirs: f64,
}

/// One explanation: what the other side did against the options given.
#[derive(Clone, Debug, PartialEq)]
pub struct Cause {
    /// Ids of the conventions that differ, one or several.
    pub ids: Vec<&'static str>,
    /// Numbers and names that go with them.
    pub parameters: Parameters,
    /// Largest difference that is left under this explanation.
    pub max_abs_error: f64,
}

impl Cause {
    /// The ids with a plus sign between them.
    pub fn id(&self) -> String {
        self.ids.join("+")
    }
}

/// Parameters of a cause by name, in order of names.
pub type Parameters = BTreeMap<&'static str, Value>;

/// A parameter of a cause.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A number.
    Number(f64),
    /// A whole number.
    Whole(i64),
    /// A name.
    Name(&'static str),
    /// All names that fit.
    Names(Vec<&'static str>),
    /// Whole numbers.
    Wholes(Vec<i64>),
    /// Numbers.
    Numbers(Vec<f64>),
}

impl Value {
    /// How far a side of a window reaches.
    pub(crate) fn side(side: Option<usize>) -> Value {
        match side {
            Some(n) => Value::Whole(n as i64),
            None => Value::Name("inf"),
        }
    }
}

/// Where numbers of the first differing step differ.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Places {
    /// How many numbers differ.
    pub count: usize,
    /// Of how many.
    pub of: usize,
    /// Batch entries that hold one.
    pub batches: Vec<usize>,
    /// Heads that hold one; empty where heads are put together.
    pub heads: Vec<usize>,
    /// Rows (queries) that hold one.
    pub rows: Vec<usize>,
    /// theirs ÷ right of the first differing row, where all its numbers have one ratio.
    pub ratio: Option<f64>,
}

/// One finding about the input or the numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Lint {
    /// Its name, kebab-case.
    pub id: &'static str,
    /// Numbers that go with it.
    pub parameters: Parameters,
}
