//! What every format prints of a worked line and of a matrix.

use crate::entry::Number;
use crate::explanation::{Blank, Cell, Matrix, Worked};
use crate::expr::{Expr, TIED, Token, joined};
use crate::number::{shown, shown_fixed};
use crate::redone;
use crate::text::columns;
use crate::words::Words;
use std::borrow::Cow;
use std::ops::Range;

/// Beside numbers so much larger, a number is as good as 0 and needs no power of ten.
const NOTHING: f64 = 1e-9;
/// Characters between two columns.
const GAP: usize = 2;
/// Characters of a table that fit side by side on paper.
pub(crate) const PAGE: usize = 76;

/// Where a learner writes a number of a matrix.
const ROOM: &str = "………";

/// The numbers of a matrix as they are printed.
pub(crate) fn cells(matrix: &Matrix, digits: usize) -> Vec<Vec<String>> {
    let finite = matrix.cells.iter().flatten().map(|cell| match cell {
        Cell::Number(number) if number.value.is_finite() => number.value,
        _ => 0.0,
    });
    let largest = finite.fold(0.0_f64, |largest, value| largest.max(value.abs()));
    let print = |cell: &Cell| match cell {
        Cell::Number(Number { value, .. }) if value.abs() < NOTHING * largest => {
            shown_fixed(*value, digits).text
        }
        Cell::Number(Number { value, .. }) => shown(*value, digits).text,
        Cell::Blank(Some(number)) => format!("({number}) {ROOM}"),
        Cell::Blank(None) => ROOM.into(),
    };
    let rows = matrix.cells.iter();
    rows.map(|row| row.iter().map(print).collect()).collect()
}

/// The columns of a matrix in groups that take at most `width` characters.
pub(crate) fn column_groups(
    matrix: &Matrix,
    cells: &[Vec<String>],
    width: usize,
) -> Vec<Range<usize>> {
    let long = |text: &String| text.chars().count();
    let names = matrix.rows.iter().chain([&matrix.name]).map(long);
    let label = names.max().unwrap_or(0);
    let mut groups: Vec<Range<usize>> = Vec::new();
    let mut used = label;
    for (c, header) in matrix.columns.iter().enumerate() {
        let cells = cells.iter().filter_map(|row| row.get(c));
        let own = cells.chain([header]).map(long).max().unwrap_or(0) + GAP;
        match groups.last_mut() {
            Some(group) if used + own <= width => {
                group.end = c + 1;
                used += own;
            }
            _ => {
                groups.push(c..c + 1);
                used = label + own;
            }
        }
    }
    groups
}

/// `label = formula ≈ formula ≈ value [remark]`.
pub(crate) struct Line<'a> {
    pub label: Cow<'a, str>,
    /// Each with the sign in front of it; the last is the value.
    pub pieces: Vec<(char, Vec<Token>)>,
    /// About digits that differ when the line is redone.
    pub remark: Option<String>,
}

/// The lines of one page.
pub(crate) struct Lines<'a> {
    pub digits: usize,
    pub words: &'a dyn Words,
    /// Whether a reader has been told why redone digits may differ.
    explained: bool,
}

impl Lines<'_> {
    pub(crate) fn new(digits: usize, words: &dyn Words) -> Lines<'_> {
        Lines {
            digits,
            words,
            explained: false,
        }
    }

    pub(crate) fn line<'w>(&mut self, worked: &'w Worked) -> Line<'w> {
        let digits = self.digits + worked.more_digits;
        let value = shown(worked.value.value, digits);
        let mut pieces = Vec::new();
        let mut chain: Vec<(&Expr, String)> = Vec::new();
        for expr in &worked.chain {
            let tokens = expr.tokens(digits, self.words);
            let text = joined(&tokens);
            let before = chain.last();
            if before.is_some_and(|(_, before)| *before == text) || text == value.text {
                continue;
            }
            let sign = match before {
                Some((before, _)) if !redone::equal(before, expr, digits) => '≈',
                _ => '=',
            };
            pieces.push((sign, tokens));
            chain.push((expr, text));
        }
        let last = worked.chain.last();
        let exact = value.exact && last.is_none_or(|expr| redone::gives(expr, &value, digits));
        let last = vec![Token::Number {
            text: value.text,
            number: worked.value.clone(),
        }];
        pieces.push((if exact { '=' } else { '≈' }, last));
        Line {
            label: match worked.number {
                Some(number) => format!("({number}) {}", worked.label).into(),
                None => worked.label.as_str().into(),
            },
            pieces,
            remark: self.remark(worked, &chain),
        }
    }

    fn remark(&mut self, worked: &Worked, chain: &[(&Expr, String)]) -> Option<String> {
        let Number { value, .. } = worked.value;
        let last = worked.chain.last();
        if last.is_some_and(|expr| expr.cancels_to(value)) {
            return Some(self.words.cancelled());
        }
        let digits = self.digits + worked.more_digits;
        let others = redone::others(chain, value, digits, self.words);
        if others.is_empty() {
            return None;
        }
        let given: Vec<String> = others.iter().map(|other| other.given.clone()).collect();
        if self.explained {
            let short = self.words.other_digits(&given);
            return Some(match columns(&short) < TIED_REMARK {
                true => short.replace(' ', &TIED.to_string()),
                false => short,
            });
        }
        self.explained = true;
        let right: Vec<String> = others.into_iter().map(|other| other.right).collect();
        Some(self.words.other_digits_first(&given, &right))
    }
}

/// Shorter remarks stay on one line.
const TIED_REMARK: usize = 38;

/// Columns of the room for a line's calculation, at least.
const LEAST_ROOM: usize = 12;

/// `(7) label = ______`, filled up to a width.
pub(crate) fn blank(blank: &Blank, width: usize) -> String {
    let line = format!("({}) {} = ", blank.number, blank.label);
    let room = width.saturating_sub(columns(&line)).max(LEAST_ROOM);
    format!("{line}{}", "_".repeat(room))
}
