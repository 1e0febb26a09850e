//! One table of conventions: every way in which attention is known to be done differently.
//!
//! Diagnosis, presets, documentation and tests come from it. A convention has one or several
//! variants, each of which changes decisions of a recipe; the problem says which are possible.

mod bias;
mod causal;
mod heads;
mod mask;
mod position;
mod projection;
mod result;
mod scale;
mod sequence;
mod softmax;
mod undeclared;

use crate::problem::Base;
use crate::recipe::Recipe;
use crate::report::{Parameters, Value};
pub(crate) use undeclared::{sink_logits, sinks};

/// A text in both languages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Text {
    /// English.
    pub en: &'static str,
    /// Chinese.
    pub zh: &'static str,
}

/// One way in which somebody else's attention may differ.
#[derive(Clone, Copy)]
pub struct Convention {
    /// Its name, which never changes.
    pub id: &'static str,
    /// What the other side did, with parameters in braces.
    pub says: Text,
    /// The ways to do it in this problem; none where it means nothing.
    pub(crate) variants: fn(&Base<'_>, &Recipe) -> Vec<Variant>,
    /// An unknown number that is to be found.
    pub(crate) fits: &'static [Fit],
}

/// One way to do it.
pub(crate) struct Variant {
    pub parameters: Parameters,
    pub edit: Edit,
    /// Whether it adds what the options do not have, which is less likely than another way to do what
    /// they have.
    pub undeclared: bool,
}

/// A change of a recipe.
pub(crate) type Edit = Box<dyn Fn(&mut Recipe) + Send + Sync>;

/// A number that is to be found.
#[derive(Clone, Copy)]
pub(crate) struct Fit {
    /// Where to look first; none where it means nothing.
    pub grid: fn(&Base<'_>, &Recipe) -> Vec<f64>,
    /// Puts the number into a recipe.
    pub set: fn(&Base<'_>, &mut Recipe, f64),
    /// What kind of number it is.
    pub number: Number,
    /// Whether it is looked for alone, not beside another change: there are too many, or too slow.
    pub alone: bool,
    /// How it is reported.
    pub parameters: fn(&Base<'_>, &Recipe, f64) -> Parameters,
}

/// What kind of number is to be found.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Number {
    Real,
    Whole,
    /// The index of one of a list, all of which are tried.
    Listed,
}

impl Variant {
    fn new(edit: impl Fn(&mut Recipe) + Send + Sync + 'static) -> Variant {
        Variant {
            parameters: Parameters::new(),
            edit: Box::new(edit),
            undeclared: false,
        }
    }

    fn undeclared(mut self) -> Variant {
        self.undeclared = true;
        self
    }

    fn with(mut self, name: &'static str, value: Value) -> Variant {
        self.parameters.insert(name, value);
        self
    }
}

impl Convention {
    const fn new(
        id: &'static str,
        en: &'static str,
        zh: &'static str,
        variants: fn(&Base<'_>, &Recipe) -> Vec<Variant>,
    ) -> Convention {
        Convention {
            id,
            says: Text { en, zh },
            variants,
            fits: &[],
        }
    }

    /// Each of the ways to do it that have an unknown number.
    const fn fits(mut self, fits: &'static [Fit]) -> Convention {
        self.fits = fits;
        self
    }
}

/// One variant, or none.
fn only(possible: bool, edit: impl Fn(&mut Recipe) + Send + Sync + 'static) -> Vec<Variant> {
    match possible {
        true => vec![Variant::new(edit)],
        false => Vec::new(),
    }
}

/// The table, simplest and most frequent first.
pub fn table() -> impl Iterator<Item = &'static Convention> {
    [
        causal::TABLE,
        mask::TABLE,
        scale::TABLE,
        softmax::TABLE,
        heads::TABLE,
        position::TABLE,
        bias::TABLE,
        sequence::TABLE,
        undeclared::TABLE,
        projection::TABLE,
        result::TABLE,
    ]
    .into_iter()
    .flatten()
}

/// The convention of this id.
pub fn find(id: &str) -> Option<&'static Convention> {
    table().find(|convention| convention.id == id)
}
