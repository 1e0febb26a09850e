//! What every format prints of a worked line and of a matrix.

use crate::entry::Number;
use crate::explanation::{Blank, Cell, Matrix, Worked};
use crate::expr::{Expr, TIED, Token, joined, other_digits};
use crate::number::{shown, shown_fixed};
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
const ROOM: &str = "_______";

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
        let mut before: Option<(&Expr, String)> = None;
        for expr in &worked.chain {
            let tokens = expr.tokens(digits, self.words);
            let text = joined(&tokens);
            if before.as_ref().is_some_and(|(_, before)| *before == text) || text == value.text {
                continue;
            }
            let sign = match &before {
                Some((before, _)) if rounds(before, expr, digits) => '≈',
                _ => '=',
            };
            pieces.push((sign, tokens));
            before = Some((expr, text));
        }
        let exact = value.exact && worked.chain.last().is_none_or(|expr| expr.exact(digits));
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
            remark: self.remark(worked),
        }
    }

    fn remark(&mut self, worked: &Worked) -> Option<String> {
        let Number { value, .. } = worked.value;
        let last = worked.chain.last();
        if last.is_some_and(|expr| expr.cancels_to(value)) {
            return Some(self.words.cancelled());
        }
        let digits = self.digits + worked.more_digits;
        let redone = |expr: &Expr| other_digits(expr, value, digits);
        let redone = worked.chain.iter().rev().find_map(redone)?.text;
        if self.explained {
            let short = self.words.other_digits(&redone);
            return Some(short.replace(' ', &TIED.to_string()));
        }
        self.explained = true;
        let own = shown(value, digits).text;
        Some(self.words.other_digits_first(&redone, &own))
    }
}

/// Whether a formula shows a rounded number that the one before it did not.
fn rounds(before: &Expr, expr: &Expr, digits: usize) -> bool {
    let mut seen = Vec::new();
    before.leaves(&mut |leaf| seen.push(shown(leaf.abs(), digits).text));
    let mut rounds = false;
    expr.leaves(&mut |leaf| {
        let leaf = shown(leaf.abs(), digits);
        rounds |= !leaf.exact && !seen.contains(&leaf.text);
    });
    rounds
}

/// Columns of the room for a line's calculation, at least.
const LEAST_ROOM: usize = 12;

/// `(7) label = ______`, filled up to a width.
pub(crate) fn blank(blank: &Blank, width: usize) -> String {
    let line = format!("({}) {} = ", blank.number, blank.label);
    let room = width.saturating_sub(columns(&line)).max(LEAST_ROOM);
    format!("{line}{}", "_".repeat(room))
}
