//! What is explained, in an order and in words, but in no format.
//!
//! A renderer turns an [`Explanation`] into characters. Numbers stay numbers and formulas stay
//! formulas up to there, so that a renderer may link a number to where it came from or typeset it,
//! and so that an exercise is the same description with blanks in it.

use crate::entry::{Entry, Number};
use crate::expr::Expr;

/// The whole worked calculation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Explanation {
    pub title: String,
    pub opening: Vec<Block>,
    pub parts: Vec<Part>,
    /// What a program finds again in the page, on one line; shown where people do not see it.
    pub data: Option<String>,
}

/// One stage of the calculation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Part {
    /// The steps whose numbers it works out, those of one shape together; none for the parts that
    /// look back.
    pub steps: Vec<Shape>,
    pub heading: String,
    pub formula: Option<String>,
    pub blocks: Vec<Block>,
}

/// Steps or gradients of one shape.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    /// Their names.
    pub steps: Vec<&'static str>,
    pub shape: Vec<usize>,
    /// What the axes are.
    pub axes: &'static str,
}

#[derive(Clone, Debug)]
pub(crate) enum Block {
    Paragraph(String),
    /// A formula by itself.
    Formula(String),
    /// One of several short remarks.
    Item(String),
    /// A heading inside a part, for example a head or a query.
    Heading(String),
    Matrix(Matrix),
    /// Matrices to compare, side by side where there is room.
    Beside(Vec<Matrix>),
    Worked(Worked),
    Blanks(Blanks),
    HeatMap(HeatMap),
    /// Something that needs attention.
    Warning(String),
    /// A block that tells results in words: an exercise leaves it out.
    Finding(Box<Block>),
}

/// Numbers with named rows and columns.
#[derive(Clone, Debug)]
pub(crate) struct Matrix {
    pub name: String,
    pub rows: Vec<String>,
    pub columns: Vec<String>,
    pub cells: Vec<Vec<Cell>>,
}

/// A place in a matrix.
#[derive(Clone, Debug)]
pub(crate) enum Cell {
    Number(Number),
    /// Left to the learner: the result of the line of this number, or of none.
    Blank(Option<usize>),
}

/// `label = formula = formula … ≈ value`.
#[derive(Clone, Debug)]
pub(crate) struct Worked {
    /// Its number in an exercise.
    pub number: Option<usize>,
    pub label: String,
    /// Empty where a number is named and nothing is to be worked out.
    pub chain: Vec<Expr>,
    pub value: Number,
    /// Decimals that this line shows beyond the usual ones.
    pub more_digits: usize,
}

/// Lines of an exercise, with room for their calculations.
#[derive(Clone, Debug)]
pub(crate) struct Blanks {
    pub lines: Vec<Blank>,
    /// Whether half the width of a page is room enough.
    pub short: bool,
}

/// `(7) label = ____`.
#[derive(Clone, Debug)]
pub(crate) struct Blank {
    pub number: usize,
    pub label: String,
}

/// The weights as shades.
#[derive(Clone, Debug)]
pub(crate) struct HeatMap {
    pub name: String,
    /// Names of the queries and of the keys.
    pub rows: Vec<String>,
    pub columns: Vec<String>,
    /// `[queries][keys]`.
    pub values: Vec<Vec<f64>>,
    /// The step and its leading indices, if these are a step's.
    pub at: Option<Entry>,
}
