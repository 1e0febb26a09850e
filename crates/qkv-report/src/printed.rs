//! What every format prints of a worked line and of a matrix.

use crate::entry::Number;
use crate::explanation::{Matrix, Worked};
use crate::expr::{Expr, TIED, Token, joined, other_digits};
use crate::number::{shown, shown_fixed};
use crate::words::Words;

/// Beside numbers so much larger, a number is as good as 0 and needs no power of ten.
const NOTHING: f64 = 1e-9;

/// The numbers of a matrix as they are printed.
pub(crate) fn cells(matrix: &Matrix, digits: usize) -> Vec<Vec<String>> {
    let values = matrix.values.iter().flatten().map(|number| number.value);
    let finite = values.filter(|value| value.is_finite());
    let largest = finite.fold(0.0_f64, |largest, value| largest.max(value.abs()));
    let print = |number: &Number| match number.value.abs() < NOTHING * largest {
        true => shown_fixed(number.value, digits).text,
        false => shown(number.value, digits).text,
    };
    let rows = matrix.values.iter();
    rows.map(|row| row.iter().map(print).collect()).collect()
}

/// `label = formula ≈ formula ≈ value [remark]`.
pub(crate) struct Line<'a> {
    pub label: &'a str,
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
            label: &worked.label,
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
