//! What relates one array to another, as far as the numbers alone tell.

use crate::recompute::difference;
use crate::report::{Parameters, Value};
use crate::shape::is_score;
use qkv::{StepName, Tensor};
use std::borrow::Cow;

/// A convention of the table that the numbers show.
pub(super) struct Relation {
    pub id: &'static str,
    pub parameters: Parameters,
}

impl Relation {
    fn new(id: &'static str) -> Relation {
        Relation {
            id,
            parameters: Parameters::new(),
        }
    }

    fn with(mut self, name: &'static str, value: Value) -> Relation {
        self.parameters.insert(name, value);
        self
    }
}

/// Their numbers in the order of the other's, if one is only a reading of the other: leading axes of
/// length 1, or heads side by side instead of apart.
pub(super) fn same_shape<'a>(a: &Tensor<f64>, b: &'a Tensor<f64>) -> Option<Cow<'a, [f64]>> {
    let (first, second) = (stripped(a.shape()), stripped(b.shape()));
    if first == second {
        return Some(Cow::Borrowed(b.data()));
    }
    let full = |shape: &[usize], rank: usize| {
        let mut full = vec![1; rank.saturating_sub(shape.len())];
        full.extend_from_slice(shape);
        full
    };
    if let (&[batch, heads, tokens, width], &[b2, t2, all]) =
        (&full(first, 4)[..], &full(second, 3)[..])
        && (batch, tokens, heads * width) == (b2, t2, all)
    {
        let at = |n: usize| {
            let (n, c) = (n / width, n % width);
            let (n, t) = (n / tokens, n % tokens);
            let (b, h) = (n / heads, n % heads);
            ((b * tokens + t) * heads + h) * width + c
        };
        let data = b.data();
        return Some(Cow::Owned((0..data.len()).map(|n| data[at(n)]).collect()));
    }
    if let (&[b2, t2, all], &[batch, heads, tokens, width]) =
        (&full(first, 3)[..], &full(second, 4)[..])
        && (batch, tokens, heads * width) == (b2, t2, all)
    {
        let at = |n: usize| {
            let (n, column) = (n / all, n % all);
            let (b, t) = (n / tokens, n % tokens);
            let (h, c) = (column / width, column % width);
            ((b * heads + h) * tokens + t) * width + c
        };
        let data = b.data();
        return Some(Cow::Owned((0..data.len()).map(|n| data[at(n)]).collect()));
    }
    None
}

fn stripped(shape: &[usize]) -> &[usize] {
    let ones = shape.iter().take_while(|n| **n == 1).count();
    &shape[ones..]
}

/// Between two arrays of one shape that differ; `allowed` is what rounding may do.
pub(super) fn between(
    step: Option<StepName>,
    a: &Tensor<f64>,
    theirs: &[f64],
    allowed: f64,
) -> Option<Relation> {
    let width = a.shape().last().copied().unwrap_or(1).max(1);
    let near = |a: f64, b: f64| difference(a, b) <= 2.0 * allowed;
    let score = step.is_none_or(is_score);
    if score
        && width > 1
        && let Some(shift) = shift(a.data(), theirs, width, &near)
    {
        return Some(Relation::new("row-shift").with("shift", Value::Number(shift)));
    }
    if step == Some(StepName::Lse) {
        let base_2 = a.data().iter().zip(theirs);
        let base_2 = base_2.map(|(a, b)| (a / std::f64::consts::LN_2, *b));
        if base_2.into_iter().all(|(a, b)| near(a, b)) {
            return Some(Relation::new("lse-base-2"));
        }
    }
    let square = match a.shape() {
        &[.., x, y, _] => x == y,
        _ => false,
    };
    (square && swapped(a, theirs, &near)).then(|| Relation::new("layout-swapped"))
}

/// The shift of the first row that is shifted, if every row is by one number.
fn shift(a: &[f64], b: &[f64], width: usize, near: &impl Fn(f64, f64) -> bool) -> Option<f64> {
    let mut first = None;
    for (a, b) in a.chunks(width).zip(b.chunks(width)) {
        let shift = row_shift(a, b, near)?.unwrap_or(0.0);
        if !near(shift, 0.0) {
            first.get_or_insert(shift);
        }
    }
    first
}

/// theirs − right of a row, if it is one number; `Some(None)` for a row without a finite number.
fn row_shift(a: &[f64], b: &[f64], near: &impl Fn(f64, f64) -> bool) -> Option<Option<f64>> {
    let mut shift = None;
    for (a, b) in a.iter().zip(b) {
        if !a.is_finite() || !b.is_finite() {
            if a.to_bits() != b.to_bits() {
                return None;
            }
            continue;
        }
        let known = *shift.get_or_insert(b - a);
        if !near(b - a, known) {
            return None;
        }
    }
    Some(shift)
}

/// Whether theirs are the same with heads and tokens exchanged.
fn swapped(a: &Tensor<f64>, theirs: &[f64], near: &impl Fn(f64, f64) -> bool) -> bool {
    let &[.., x, y, width] = a.shape() else {
        return false;
    };
    let block = x * y * width;
    (0..theirs.len()).all(|n| {
        let (lead, rest) = (n / block, n % block);
        let (i, j, c) = (rest / (y * width), rest / width % y, rest % width);
        near(a.data()[n], theirs[lead * block + (j * x + i) * width + c])
    })
}

/// Between two arrays of different shapes.
pub(super) fn of_shapes(
    step: Option<StepName>,
    a: &Tensor<f64>,
    b: &Tensor<f64>,
) -> Option<Relation> {
    // As many roundings as there may be in the same numbers of another format.
    let near = |a: f64, b: f64| difference(a, b) <= 2f64.powi(-8) * a.abs();
    let keys = step.is_some_and(is_score);
    for (id, short, long) in [("position-extra", a, b), ("position-missing", b, a)] {
        if without_first(short.shape(), long.shape(), keys)
            && rest_is_near(short, long, keys, &near)
        {
            return Some(Relation::new(id));
        }
    }
    if let (&[batch, x, y, width], &[b2, y2, x2, w2]) = (a.shape(), b.shape())
        && (batch, x, y, width) == (b2, x2, y2, w2)
        && swapped(a, b.data(), &near)
    {
        return Some(Relation::new("layout-swapped"));
    }
    averaged(a, b, &near).then(|| Relation::new("heads-averaged"))
}

/// Whether one shape has one token more than the other.
fn without_first(short: &[usize], long: &[usize], keys: bool) -> bool {
    let rank = long.len();
    short.len() == rank
        && rank >= 2
        && (0..rank).all(|at| {
            let more = at == rank - 2 || keys && at == rank - 1;
            long[at] == short[at] + usize::from(more)
        })
}

fn rest_is_near(
    short: &Tensor<f64>,
    long: &Tensor<f64>,
    keys: bool,
    near: &impl Fn(f64, f64) -> bool,
) -> bool {
    let (&[.., rows, width], &[.., long_rows, long_width]) = (short.shape(), long.shape()) else {
        return false;
    };
    let skip = usize::from(keys);
    short.data().iter().enumerate().all(|(n, a)| {
        let (lead, row, c) = (n / (rows * width), n / width % rows, n % width);
        let at = (lead * long_rows + row + 1) * long_width + c + skip;
        long.data().get(at).is_some_and(|b| near(*a, *b))
    })
}

/// Whether b is the mean of a over its heads.
fn averaged(a: &Tensor<f64>, b: &Tensor<f64>, near: &impl Fn(f64, f64) -> bool) -> bool {
    let &[batch, heads, queries, keys] = a.shape() else {
        return false;
    };
    if stripped(b.shape()) != stripped(&[batch, queries, keys]) || heads < 2 {
        return false;
    }
    b.data().iter().enumerate().all(|(n, b)| {
        let (lead, rest) = (n / (queries * keys), n % (queries * keys));
        let each = (0..heads).map(|h| a.data()[(lead * heads + h) * queries * keys + rest]);
        near(each.sum::<f64>() / heads as f64, *b)
    })
}
