//! Redoing a worked line from the digits that it shows, link by link, as a reader would.

use crate::expr::{Expr, TIED, joined};
use crate::number::{self, Shown, shown};
use crate::words::Words;

/// Beyond this many decimals `f64` itself is too coarse to tell a rounded display from a fault.
const MOST_DIGITS: usize = 12;

/// What the shown digits give somewhere in a line, where something else is printed.
pub(crate) struct Other {
    /// `0.6697`, or `4.2426 − 8.4853 = −4.2427` in a line of several formulas.
    pub given: String,
    /// What is printed, which is right.
    pub right: String,
}

/// Whether two formulas that follow one another are equal as they are printed.
pub(crate) fn equal(before: &Expr, expr: &Expr, digits: usize) -> bool {
    if digits > MOST_DIGITS {
        return !rounds(before, expr, digits);
    }
    let [a, b] = [before, expr].map(|expr| expr.value_from_print(digits));
    same(a, b)
}

/// Whether a formula gives exactly the number that is printed for it.
pub(crate) fn gives(expr: &Expr, value: &Shown, digits: usize) -> bool {
    expr.exact(digits) || same(expr.value_from_print(digits), value.value)
}

/// Equal but for what `f64` leaves of sums of decimals.
fn same(a: f64, b: f64) -> bool {
    a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= 1e-14 * a.abs().max(b.abs())
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

/// Every place of a line where redoing it from its digits gives something else: from formula to
/// formula, and from the last to the value.
pub(crate) fn others(
    chain: &[(&Expr, String)],
    value: f64,
    digits: usize,
    words: &dyn Words,
) -> Vec<Other> {
    let named = |expr: &Expr, redone: Shown| {
        let exactly = same(redone.value, expr.value_from_print(digits));
        let sign = if exactly { '=' } else { '≈' };
        let formula = joined(&expr.tokens(digits, words));
        format!("{formula}{TIED}{sign}{TIED}{}", redone.text)
    };
    let mut others = Vec::new();
    for pair in chain.windows(2) {
        if let Some((expr, number, redone)) = link(pair[0].0, pair[1].0, digits) {
            others.push(Other {
                given: named(expr, redone),
                right: shown(number, digits).text,
            });
        }
    }
    if let Some((last, _)) = chain.last()
        && let Some(redone) = other_digits(last, value, digits)
    {
        others.push(Other {
            given: match chain.len() {
                1 => redone.text,
                _ => named(last, redone),
            },
            right: shown(value, digits).text,
        });
    }
    others
}

/// The part of a formula that stands as a number in the next one, if its shown digits give
/// another.
fn link<'a>(before: &'a Expr, next: &Expr, digits: usize) -> Option<(&'a Expr, f64, Shown)> {
    match (before, next) {
        (Expr::Num(_), Expr::Num(_)) => None,
        (expr, Expr::Num(number)) => {
            let redone = other_digits(expr, number.value, digits)?;
            Some((expr, number.value, redone))
        }
        (Expr::Call(f, a), Expr::Call(g, b)) if f == g => link(a, b, digits),
        (Expr::Quotient(a, b), Expr::Quotient(c, d)) => {
            link(a, c, digits).or_else(|| link(b, d, digits))
        }
        (Expr::Sum(a), Expr::Sum(b)) if a.len() == b.len() => {
            a.iter().zip(b).find_map(|(a, b)| link(a, b, digits))
        }
        _ => None,
    }
}

/// What a formula gives from its printed digits, if that is not what is printed for `value`.
///
/// Half way between two printed numbers either is right, so that none is another.
fn other_digits(expr: &Expr, value: f64, digits: usize) -> Option<Shown> {
    if digits > MOST_DIGITS || !value.is_finite() {
        return None;
    }
    let redone = expr.value_from_print(digits);
    if !redone.is_finite() {
        return None;
    }
    let own = shown(value, digits);
    let half = number::half_unit(&own, digits);
    let beside = (redone - own.value).abs() - half;
    if beside.abs() <= 1e-9 * half + 1e-14 * own.value.abs() {
        return None;
    }
    let redone = number::rounded_like(redone, &own, digits);
    (redone.value != own.value).then(|| number::padded_like(redone, &own))
}
