//! What the backward pass needs to know of each row before it begins.

use super::super::call::{Call, neighbours};
use super::super::real::Real;
use super::super::simd::RowFactors;
use super::Saved;
use crate::view::View;

/// Fills in the rows of one batch entry's key and value head: all queries of its first head, then
/// of the next.
pub(super) fn fill<T: Real>(
    call: &Call<'_, T>,
    saved: Saved<'_, T>,
    grad: View<'_, T>,
    group: usize,
    rows: &mut [RowFactors<T>],
) {
    let [_, heads, queries, _] = call.inputs.scores_shape();
    let first = group * rows.len();
    for (at, row) in rows.iter_mut().enumerate() {
        let index = first + at;
        let (b, h, i) = (
            index / queries / heads,
            index / queries % heads,
            index % queries,
        );
        *row = factors(call, saved.lse[index], call.sink(h), || {
            product(saved.output, grad, [b, h, i])
        });
    }
}

/// Of a row that keeps no key: it has no gradient.
pub(super) fn nothing<T: Real>() -> RowFactors<T> {
    RowFactors {
        shift: T::ZERO,
        factor: T::ZERO,
        delta: T::ZERO,
    }
}

fn factors<T: Real>(
    call: &Call<'_, T>,
    lse: f64,
    sink: Option<f64>,
    delta: impl FnOnce() -> f64,
) -> RowFactors<T> {
    if lse == f64::NEG_INFINITY {
        return nothing();
    }
    let (shift, left) = if call.natural == 0.0 {
        (T::ZERO, -lse)
    } else {
        let shift = T::from_f64(lse / call.natural);
        // What rounding left; more than 1 only where scores themselves are that coarse.
        let left = shift.to_f64() * call.natural - lse;
        (shift, left.clamp(-1.0, 1.0))
    };
    let share = sink.map_or(1.0, |sink| 1.0 / (1.0 + (sink - lse).exp()));
    RowFactors {
        shift,
        factor: T::from_f64(exp(left) * share),
        delta: T::from_f64(delta()),
    }
}

/// exp(x); nearly always x is what rounding left, and three terms of the series are enough.
fn exp(x: f64) -> f64 {
    if x.abs() < 1e-5 {
        1.0 + x * (1.0 + 0.5 * x)
    } else {
        x.exp()
    }
}

/// Lanes of a product's sum.
const LANES: usize = 8;

/// a · b of one row, in `f64`.
fn product<T: Real>(a: View<'_, T>, b: View<'_, T>, [batch, head, i]: [usize; 3]) -> f64 {
    let width = a.shape()[3];
    let mut sums = [0.0; LANES];
    if let Some(a) = neighbours(&a, batch, head, i..i + 1)
        && let Some(b) = neighbours(&b, batch, head, i..i + 1)
    {
        for (a, b) in a.row(0).chunks(LANES).zip(b.row(0).chunks(LANES)) {
            for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
                *sum += a.to_f64() * b.to_f64();
            }
        }
    } else {
        for c in 0..width {
            let at = [batch, head, i, c];
            sums[c % LANES] += a.get(at).to_f64() * b.get(at).to_f64();
        }
    }
    sums.iter().sum()
}

/// The gradient of each sink, −Σ (weight of the sink)·delta over the rows of its head, to `give`.
pub(super) fn sinks<T: Real>(
    call: &Call<'_, T>,
    lse: &[f64],
    rows: &[RowFactors<T>],
    mut give: impl FnMut(usize, f64),
) {
    let [batch, heads, queries, _] = call.inputs.scores_shape();
    for h in 0..heads {
        let Some(sink) = call.sink(h) else { continue };
        let mut sum = 0.0;
        for b in 0..batch {
            let first = (b * heads + h) * queries;
            for at in first..first + queries {
                if lse[at] != f64::NEG_INFINITY {
                    let weight = 1.0 / (1.0 + (lse[at] - sink).exp());
                    sum -= weight * rows[at].delta.to_f64();
                }
            }
        }
        give(h, sum);
    }
}
