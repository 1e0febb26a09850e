//! What probably happened where a number is wrong: other formulas that give it.

use super::Marker;
use crate::entry::Entry;
use crate::explanation::Worked;
use crate::expr::{Expr, Function, call, minus, num, over, sum};
use crate::number::shown;
use qkv::StepName;

/// A likely cause.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Slip {
    /// Divided by d instead of its root.
    NotTheRoot { d: f64, root: f64 },
    /// Not divided by this.
    NotDivided { by: f64 },
    /// Multiplied by what divides.
    Multiplied { by: f64 },
    /// Numerator and denominator exchanged.
    Inverted,
    /// The maximum was not subtracted.
    MaxKept,
    /// a − b the wrong way round.
    Reversed,
    /// Added instead of subtracted.
    Added,
    /// The sign of the result.
    Sign,
    /// A term of a sum is missing.
    TermMissing { term: f64 },
    /// A term has the wrong sign.
    TermSign { term: f64 },
    /// Not weighted: the mean of the values.
    Mean,
    /// Divided by the sum of another row.
    OtherSum { row: usize },
    /// The number of another place.
    OtherPlace { label: String },
    /// The decimal point.
    Point,
    /// Two digits exchanged.
    Digits,
    /// Cut off or rounded the wrong way.
    LastDigit,
}

impl Slip {
    /// The name in JSON.
    pub fn id(&self) -> &'static str {
        match self {
            Slip::NotTheRoot { .. } => "divided-by-d",
            Slip::NotDivided { .. } => "not-divided",
            Slip::Multiplied { .. } => "multiplied",
            Slip::Inverted => "inverted",
            Slip::MaxKept => "max-not-subtracted",
            Slip::Reversed => "difference-reversed",
            Slip::Added => "added",
            Slip::Sign => "sign",
            Slip::TermMissing { .. } => "term-missing",
            Slip::TermSign { .. } => "sign-of-term",
            Slip::Mean => "not-weighted",
            Slip::OtherSum { .. } => "other-row-sum",
            Slip::OtherPlace { .. } => "other-place",
            Slip::Point => "decimal-point",
            Slip::Digits => "digits-exchanged",
            Slip::LastDigit => "last-digit",
        }
    }
}

/// The first formula that gives the number that was written in blank `at`, with half a unit of its
/// last decimal.
pub(super) fn find(
    marker: &Marker<'_>,
    at: usize,
    worked: &Worked,
    (value, half): (f64, f64),
) -> Option<Slip> {
    let right = worked.value.value;
    let unit = 10f64.powi(-(marker.digits as i32));
    let near = |expr: &Expr| {
        let range = marker.redone(at, expr);
        range.low.is_finite() && range.high.is_finite() && {
            let range = range.widened(half.max(0.5 * unit));
            range.holds(value)
        }
    };
    let formulas = worked
        .chain
        .first()
        .map_or(Vec::new(), |expr| others(marker, at, expr));
    if let Some((slip, _)) = formulas.into_iter().find(|(_, expr)| near(expr)) {
        return Some(slip);
    }
    if right != 0.0 && (value + right).abs() <= half.max(unit) {
        return Some(Slip::Sign);
    }
    if (value - right).abs() < unit.max(2.0 * half) * 1.5 && half > 0.0 {
        return Some(Slip::LastDigit);
    }
    if let Some(label) = other_place(marker, at, value, half) {
        return Some(Slip::OtherPlace { label });
    }
    let tens = [10.0, 100.0, 0.1, 0.01];
    if right != 0.0
        && tens
            .iter()
            .any(|ten| (value - ten * right).abs() <= half + 1e-9)
    {
        return Some(Slip::Point);
    }
    exchanged(right, value, marker.digits).then_some(Slip::Digits)
}

/// Formulas that people take for this one, the likeliest first.
fn others(marker: &Marker<'_>, at: usize, expr: &Expr) -> Vec<(Slip, Expr)> {
    let mut all = Vec::new();
    match expr {
        Expr::Quotient(above, below) => {
            if let Expr::Call(Function::Sqrt, d) = &**below {
                let (d, root) = (d.value(), below.value());
                all.push((
                    Slip::NotTheRoot { d, root },
                    over((**above).clone(), num(d)),
                ));
            }
            let by = below.value();
            all.push((Slip::NotDivided { by }, (**above).clone()));
            let product = Expr::Product(vec![(**above).clone(), (**below).clone()]);
            all.push((Slip::Multiplied { by }, product));
            all.push((Slip::Inverted, over((**below).clone(), (**above).clone())));
            all.extend(other_sums(marker, at, above));
        }
        Expr::Product(factors) if factors.len() == 2 => {
            let by = factors[1].value();
            all.push((Slip::NotDivided { by }, factors[0].clone()));
        }
        Expr::Call(function, of) => {
            if let Expr::Difference(a, b) = &**of {
                let reversed = minus((**b).clone(), (**a).clone());
                all.push((Slip::MaxKept, call(*function, (**a).clone())));
                all.push((Slip::Reversed, call(*function, reversed)));
                let added = sum(vec![(**a).clone(), (**b).clone()]);
                all.push((Slip::Added, call(*function, added)));
            }
        }
        Expr::Difference(a, b) => {
            all.push((Slip::Reversed, minus((**b).clone(), (**a).clone())));
            all.push((Slip::Added, sum(vec![(**a).clone(), (**b).clone()])));
        }
        Expr::Sum(terms) => {
            for (n, term) in terms.iter().enumerate() {
                let value = term.value();
                if value == 0.0 {
                    continue;
                }
                let mut rest = terms.clone();
                rest.remove(n);
                let without = Expr::Sum(rest);
                let other_sign = minus(without.clone(), term.clone());
                all.push((Slip::TermMissing { term: value }, without));
                all.push((Slip::TermSign { term: value }, other_sign));
            }
            all.extend(mean(marker, at, terms));
        }
        _ => {}
    }
    all
}

fn is(entry: Option<&Entry>, step: StepName) -> bool {
    entry.is_some_and(|entry| entry.of == step.as_str())
}

/// The mean of the values instead of their weighted sum.
fn mean(marker: &Marker<'_>, at: usize, terms: &[Expr]) -> Option<(Slip, Expr)> {
    if !is(marker.entry(at), StepName::Output) {
        return None;
    }
    let value = |term: &Expr| match term {
        Expr::Product(factors) => factors.last().cloned(),
        _ => None,
    };
    let values: Vec<Expr> = terms.iter().map(value).collect::<Option<_>>()?;
    let count = values.len() as f64;
    Some((Slip::Mean, over(Expr::Sum(values), num(count))))
}

/// A weight divided by the sum of another row.
fn other_sums(marker: &Marker<'_>, at: usize, above: &Expr) -> Vec<(Slip, Expr)> {
    if !is(marker.entry(at), StepName::Weights) {
        return Vec::new();
    }
    let sums = (0..at).filter_map(|other| {
        let entry = marker.entry(other)?;
        let row = *entry.index.last()?;
        if !is(Some(entry), StepName::Sum) || marker.entry(at)?.index.get(2) == Some(&row) {
            return None;
        }
        let total = marker.right(other)?;
        Some((Slip::OtherSum { row }, over(above.clone(), num(total))))
    });
    sums.collect()
}

/// Another blank of the same step whose answer this is.
fn other_place(marker: &Marker<'_>, at: usize, value: f64, half: f64) -> Option<String> {
    let own = marker.entry(at)?;
    let other = (0..marker.questions.len()).find(|&other| {
        let same_step = marker.entry(other).is_some_and(|entry| entry.of == own.of);
        let right = marker.right(other);
        other != at && same_step && right.is_some_and(|right| (right - value).abs() <= half)
    });
    let exact = value != 0.0;
    other
        .filter(|_| exact)
        .map(|other| marker.questions[other].label.clone())
}

/// Whether two neighbouring digits of the right number are exchanged.
fn exchanged(right: f64, value: f64, digits: usize) -> bool {
    let text = shown(right, digits).text.replace('−', "-");
    let characters: Vec<char> = text.chars().collect();
    (1..characters.len()).any(|at| {
        let mut other = characters.clone();
        other.swap(at - 1, at);
        let both = other[at - 1].is_ascii_digit() && other[at].is_ascii_digit();
        let number: Option<f64> = other.iter().collect::<String>().parse().ok();
        both && other != characters && number == Some(value)
    })
}
