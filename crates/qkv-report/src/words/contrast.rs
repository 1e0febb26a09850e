//! Sentences about common mistakes.

use qkv_check::{Mistake, WrongScale};

/// Right and wrong factor on q·k.
pub(crate) struct Factors {
    pub wrong: String,
    pub right: String,
    /// wrong/right.
    pub times: String,
    /// Whether the wrong one makes the softmax sharper, or else flatter.
    pub sharper: bool,
    /// Whether the width of the model is that of x, or else that of all heads together.
    pub of_x: bool,
    pub heads: usize,
    pub dk: usize,
}

/// Why a mistake makes no difference.
pub(crate) enum Same {
    OneQuery,
    /// d_k = 1: the right factor is 1 too.
    OneColumn,
    /// The caller's own scale is the wrong one.
    GivenFactor,
    /// The model is as wide as a head.
    ModelIsHead(usize),
    /// All scores of a row are equal.
    EqualScores,
    NoMask,
    ColumnsSumToOne,
    Chance,
}

pub(crate) trait Contrasts {
    fn heading_contrast(&self, mistake: Mistake) -> String;
    fn contrast_over_queries(&self) -> String;
    fn contrast_joint(&self) -> String;
    fn contrast_scale(&self, kind: WrongScale, factors: &Factors) -> String;
    fn contrast_mask(&self) -> String;
    fn contrast_same(&self, same: &Same) -> String;
    fn contrast_entry(&self, label: &str, right: &str, wrong: &str) -> String;
    fn contrast_empty(&self, rows: &[usize]) -> String;
    /// A name, marked as that of the right or of the wrong numbers.
    fn right(&self, name: &str) -> String;
    fn wrong(&self, name: &str) -> String;
    fn difference(&self) -> String;
}
