//! Literals: `1 0; 0 1` and `[[1, 0], [0, 1]]`.
//!
//! Two notations share the values of [`crate::number`]:
//! - rows: values between blanks or commas, rows between semicolons or line ends; always a matrix;
//! - lists: values in brackets, as deep as the array has axes; also what JSON files hold.
//!
//! The full-width forms `；，［］` mean what their ASCII forms do, and `−` is a minus sign.

use std::iter::Peekable;
use std::str::Chars;

use crate::array::Array;
use crate::error::{Error, Result};
use crate::fault::{Place, TextFault};
use crate::lists::{Lists, parse_lists};
use crate::number::{self, Gathered};
use crate::text;

/// Reads an array typed in place: `1 0; 0 1` or `[[1, 0], [0, 1]]`.
///
/// Rows between semicolons always give two axes: `1,5;2,5` is two rows, since a comma never is a
/// decimal point. On several lines, semicolons that could separate cells as well are refused.
/// Brackets give as many axes as they are deep, at most four.
///
/// # Errors
/// Uneven rows, missing values, fractions, numbers beyond 64-bit floating point, unbalanced
/// brackets and anything else that is no number are refused with their place.
///
/// ```
/// use qkv_io::parse_literal;
/// assert_eq!(parse_literal("1 0; 0 1")?.shape, [2, 2]);
/// assert_eq!(parse_literal("3")?.shape, [1, 1]);
/// assert_eq!(parse_literal("[1, 2, 3]")?.shape, [3]);
/// assert_eq!(parse_literal("［［1，−2］］")?.to_f64()?, [1.0, -2.0]);
/// assert_eq!(parse_literal("0.3302 12; 1.5e3 3e-5")?.decimals, Some(vec![4, 0, -2, 5]));
/// let error = parse_literal("1 0; 0 1/3").unwrap_err().to_string();
/// assert!(error.contains("line 1, character 8: \"1/3\" is not a number"), "{error}");
/// # Ok::<(), qkv_io::Error>(())
/// ```
pub fn parse_literal(text: &str) -> Result<Array> {
    let array = parse_typed(text, "argument", Lists::Literal, false)?;
    text::refuse_two_readings(text, "argument")?;
    Ok(array)
}

/// Whether an argument is meant as a literal rather than as a path.
pub(crate) fn looks_like_literal(text: &str) -> bool {
    let text = text.trim();
    if text.starts_with(['[', '\u{FF3B}']) {
        return true;
    }
    let separator = |c: char| c.is_whitespace() || [',', '，', ';', '；'].contains(&c);
    let mut tokens = text.split(separator).filter(|t| !t.is_empty()).peekable();
    if tokens.peek().is_none() {
        return true; // nothing but separators, or nothing: no path either
    }
    if text.contains(separator) {
        tokens.all(number::looks_like_number)
    } else {
        tokens.all(|t| !matches!(number::parse(t), Err(TextFault::NotANumber { .. })))
    }
}

/// Whether a text that is no literal resembles one.
pub(crate) fn resembles_literal(text: &str) -> bool {
    let text = text.trim();
    let numeric = text.starts_with(|c: char| c.is_ascii_digit() || "+-\u{2212}".contains(c));
    // Words belong to file names, such as 2024-run/q.npy.
    let words = text
        .split(|c: char| !c.is_alphabetic())
        .any(|word| word.len() > 1);
    text.contains([';', '；', '[', ']', '［', '］'])
        || (numeric && !words)
        || number::printed(text).is_some()
}

/// Reads either notation.
pub(crate) fn parse_typed(text: &str, origin: &str, lists: Lists, comments: bool) -> Result<Array> {
    let trimmed = text.trim();
    let bracketed = trimmed.starts_with(['[', '［']);
    let semicolon = trimmed.contains([';', '；']);
    // [1 0; 0 1], as other languages write it: one pair of brackets around rows.
    if bracketed && semicolon && trimmed.matches(['[', ']', '［', '］']).count() == 2 {
        return parse_rows(&text.replace(['[', ']', '［', '］'], " "), origin, comments);
    }
    if bracketed {
        parse_lists(text, origin, lists)
    } else {
        parse_rows(text, origin, comments)
    }
}

/// Characters with their places.
pub(crate) struct Scanner<'a> {
    chars: Peekable<Chars<'a>>,
    line: usize,
    column: usize,
}

impl<'a> Scanner<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Scanner {
            chars: text.chars().peekable(),
            line: 1,
            column: 1,
        }
    }

    /// The place of the next character.
    pub(crate) fn place(&self) -> Place {
        Place::Character {
            line: self.line,
            column: self.column,
        }
    }

    /// The next character, with full-width punctuation in its ASCII form.
    pub(crate) fn peek(&mut self) -> Option<char> {
        self.chars.peek().map(|&c| match c {
            '；' => ';',
            '，' => ',',
            '［' => '[',
            '］' => ']',
            c => c,
        })
    }

    pub(crate) fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.chars.next();
        if c == '\n' {
            self.line += 1;
            self.column = 1;
        } else {
            self.column += 1;
        }
        Some(c)
    }

    /// What is left, without the blanks around it.
    pub(crate) fn rest(self) -> String {
        self.chars.collect::<String>().trim().to_owned()
    }

    /// Characters up to the next separator or bracket.
    pub(crate) fn token(&mut self, brackets: bool) -> String {
        let mut token = String::new();
        while let Some(c) = self.peek() {
            if c.is_whitespace() || c == ',' || c == ';' || (brackets && (c == '[' || c == ']')) {
                break;
            }
            token.push(c);
            self.next();
        }
        token
    }
}

/// Reads rows of values: `1 0; 0 1`.
pub(crate) fn parse_rows(text: &str, origin: &str, comments: bool) -> Result<Array> {
    let mut scanner = Scanner::new(text);
    let mut gathered = Gathered::default();
    let mut rows = Rows::default();
    let mut comma: Option<Place> = None;
    let mut line_start = true;
    let mut first = scanner.place();
    loop {
        let place = scanner.place();
        let fail = |fault| Error::Text {
            origin: origin.to_owned(),
            place,
            fault,
        };
        match scanner.peek() {
            Some('#') if comments && line_start => {
                while scanner.peek().is_some_and(|c| c != '\n') {
                    scanner.next();
                }
            }
            Some(',') => {
                if comma.is_some() || rows.current == 0 {
                    return Err(fail(TextFault::MissingValue));
                }
                comma = Some(place);
                scanner.next();
            }
            end @ (Some(';' | '\n') | None) => {
                if comma.is_some() || (end == Some(';') && rows.current == 0) {
                    return Err(fail(TextFault::MissingValue));
                }
                rows.end().map_err(|fault| Error::Text {
                    origin: origin.to_owned(),
                    place: first,
                    fault,
                })?;
                if end.is_none() {
                    break;
                }
                scanner.next();
                line_start = end == Some('\n');
            }
            Some(c) if c.is_whitespace() => {
                scanner.next();
            }
            Some(_) => {
                gathered.push(&scanner.token(false)).map_err(fail)?;
                if rows.current == 0 {
                    first = place;
                }
                rows.current += 1;
                comma = None;
                line_start = false;
            }
        }
    }
    match rows.shape() {
        Some(shape) => Ok(gathered.into_array(shape)),
        None => Err(Error::Text {
            origin: origin.to_owned(),
            place: scanner.place(),
            fault: TextFault::NoValues,
        }),
    }
}

/// Counts the values of each row and refuses uneven rows.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    /// Values in the row being read.
    pub(crate) current: usize,
    lengths: Vec<usize>,
    width: usize,
    count: usize,
}

impl Rows {
    /// Ends a row; a row without values does not count.
    pub(crate) fn end(&mut self) -> std::result::Result<(), TextFault> {
        const SHOWN: usize = 16;
        let length = std::mem::take(&mut self.current);
        if length == 0 {
            return Ok(());
        }
        if self.count == 0 {
            self.width = length;
        }
        self.count += 1;
        if self.lengths.len() < SHOWN {
            self.lengths.push(length);
        } else if let Some(last) = self.lengths.last_mut() {
            *last = length;
        }
        if length == self.width {
            return Ok(());
        }
        Err(TextFault::RaggedRows {
            lengths: self.lengths.clone(),
            row: self.count - 1,
        })
    }

    /// Rows and columns, if there was a row.
    pub(crate) fn shape(&self) -> Option<Vec<usize>> {
        (self.count > 0).then(|| vec![self.count, self.width])
    }
}
