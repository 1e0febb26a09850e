//! What is wrong with numbers typed as text, and where.

use std::fmt;

use crate::shown::{many, shown_within};

/// Where in a text something was found; everything counts from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A character of a literal or of a JSON file.
    Character {
        /// Line, from 1.
        line: usize,
        /// Character in that line, from 1.
        column: usize,
    },
    /// A cell of a table.
    Cell {
        /// Line of the file, from 1.
        line: usize,
        /// Cell in that line, from 1.
        column: usize,
    },
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Character { line, column } => write!(f, "line {line}, character {column}"),
            Place::Cell { line, column } => write!(f, "line {line}, column {column}"),
        }
    }
}

/// What is wrong with numbers that were typed.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum TextFault {
    /// Something stands where a number should.
    NotANumber {
        /// What was found.
        found: String,
        /// What was probably meant.
        remedy: &'static str,
    },
    /// A number too large for 64-bit floating point.
    Overflow {
        /// The number as typed.
        found: String,
    },
    /// Two separators with nothing between them, or a blank cell.
    MissingValue,
    /// No value at all.
    NoValues,
    /// A first column that numbers the rows.
    IndexColumn,
    /// Rows of different lengths.
    RaggedRows {
        /// Values in each row so far (at most the first 16), the last one being the odd one.
        lengths: Vec<usize>,
        /// The row, counting from 0, that differs from the first.
        row: usize,
    },
    /// Lists of different lengths.
    RaggedLists {
        /// The list that differs: its index at each depth, counting from 0.
        path: Vec<usize>,
        /// Values in the first list of that depth.
        expected: usize,
        /// Values in this one.
        found: usize,
    },
    /// A number and a list side by side.
    MixedDepth {
        /// Where: its index at each depth, counting from 0.
        path: Vec<usize>,
    },
    /// Truth values and numbers in one array.
    MixedBool {
        /// The first value of the other kind.
        found: String,
    },
    /// More brackets inside each other than are allowed.
    TooDeep {
        /// How many are allowed.
        limit: usize,
    },
    /// A bracket that was never opened.
    NotOpened {
        /// The bracket.
        found: char,
    },
    /// Brackets still open at the end.
    NotClosed {
        /// How many.
        open: usize,
    },
    /// Something after the end of the array.
    AfterEnd {
        /// What.
        found: String,
    },
    /// A text that has two readings.
    TwoReadings {
        /// The two readings and how to choose.
        readings: &'static str,
    },
    /// An array as Python prints it, which is no file format.
    Printed {
        /// How it begins: `array(`.
        start: String,
    },
    /// Not valid in the format at all.
    Syntax {
        /// What is wrong.
        says: String,
    },
    /// More values than memory holds.
    Memory,
}

/// What stood where a value should.
fn token(text: &str) -> String {
    shown_within(text, 40)
}

/// An index as Python writes it: `[1][0]`.
fn subscripts(path: &[usize]) -> String {
    path.iter().map(|i| format!("[{i}]")).collect()
}

impl fmt::Display for TextFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TextFault::NotANumber { found, remedy } => {
                write!(f, "\"{}\" is not a number; {remedy}", token(found))
            }
            TextFault::Overflow { found } => write!(
                f,
                "{} is too large for a 64-bit number (at most about 1.8e308); \
                 type a smaller one, or inf where that is allowed",
                token(found)
            ),
            TextFault::MissingValue => write!(
                f,
                "a value is missing here; type one (nan if it is unknown) or remove the separator"
            ),
            TextFault::NoValues => write!(f, "there is no value; type at least one number"),
            TextFault::IndexColumn => write!(
                f,
                "the first cell is blank, so the first column probably numbers the rows; \
                 save the table without its index (pandas: to_csv(..., index=False)) or fill the cell"
            ),
            TextFault::RaggedRows { lengths, row } => {
                let lengths: Vec<String> = lengths.iter().map(ToString::to_string).collect();
                write!(
                    f,
                    "the rows have {} values: row {row} (counting from 0) differs from row 0; \
                     give every row the same number of values",
                    lengths.join(", "),
                )
            }
            TextFault::RaggedLists {
                path,
                expected,
                found,
            } => write!(
                f,
                "the list at {} has {} where the first has {expected}; \
                 give all lists of one depth the same length",
                subscripts(path),
                many(*found, "value")
            ),
            TextFault::MixedDepth { path } => write!(
                f,
                "at {} a number and a list stand side by side; \
                 nest all numbers equally deep",
                subscripts(path)
            ),
            TextFault::MixedBool { found } => write!(
                f,
                "\"{}\" mixes truth values and numbers; write all as true/false or all as numbers",
                token(found)
            ),
            TextFault::TooDeep { limit } => write!(
                f,
                "brackets are nested more than {limit} deep; give at most {limit} axes"
            ),
            TextFault::NotOpened { found } => {
                write!(
                    f,
                    "\"{found}\" closes nothing; remove it or add the opening bracket"
                )
            }
            TextFault::NotClosed { open } => {
                write!(
                    f,
                    "{} still open at the end; add {}",
                    if *open == 1 {
                        "1 bracket is".to_owned()
                    } else {
                        format!("{open} brackets are")
                    },
                    "]".repeat((*open).min(8))
                )
            }
            TextFault::AfterEnd { found } => write!(
                f,
                "\"{}\" follows the end of the array; remove it or wrap everything in one more pair of brackets",
                token(found)
            ),
            TextFault::TwoReadings { readings } => write!(f, "this has two readings: {readings}"),
            TextFault::Printed { start } => write!(
                f,
                "\"{}…)\" is an array as Python prints it, which no file should hold; save the array \
                 itself with numpy.save('q.npy', x) (a tensor: x.numpy()), or leave out \"{}\" and \
                 what stands after the last bracket",
                token(start),
                token(start)
            ),
            TextFault::Syntax { says } => write!(f, "not valid: {says}; correct it there"),
            TextFault::Memory => {
                write!(
                    f,
                    "there is no memory for more values; free some or give a smaller array"
                )
            }
        }
    }
}
