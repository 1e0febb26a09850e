//! What the backward pass needs to know of each row before it begins.

use super::super::call::{Call, neighbours};
use super::super::forward::{lock, share};
use super::super::options::Options;
use super::super::real::Float;
use super::super::simd::RowFactors;
use super::Saved;
use crate::view::View;
use std::sync::Mutex;

/// One of each row of `[batch, heads, queries]`.
pub(super) fn factors<T: Float>(
    call: &Call<'_, T>,
    saved: Saved<'_, T>,
    grad: View<'_, T>,
    options: &Options,
) -> Vec<RowFactors<T>> {
    let [batch, heads, queries, _] = call.inputs.scores_shape();
    let zero = RowFactors {
        shift: T::ZERO,
        factor: T::ZERO,
        delta: T::ZERO,
    };
    let mut rows = vec![zero; batch * heads * queries];
    if rows.is_empty() {
        return rows;
    }
    let threads = options.threads().min(batch * heads);
    let parts: Vec<_> = rows.chunks_mut(queries).enumerate().collect();
    let parts = Mutex::new(parts.into_iter());
    share(threads, || {
        loop {
            let Some((index, rows)) = lock(&parts).next() else {
                break;
            };
            let (b, h) = (index / heads, index % heads);
            for (i, row) in rows.iter_mut().enumerate() {
                let lse = saved.lse[index * queries + i];
                if lse == f64::NEG_INFINITY {
                    continue; // no key, so no gradient
                }
                let shift = if call.natural == 0.0 {
                    T::ZERO
                } else {
                    T::from_f64(lse / call.natural)
                };
                // What rounding left; more than 1 only where scores themselves are that coarse.
                let left = (shift.to_f64() * call.natural - lse).clamp(-1.0, 1.0);
                let left = if call.natural == 0.0 { -lse } else { left };
                let share = call
                    .sink(h)
                    .map_or(1.0, |sink| 1.0 / (1.0 + (sink - lse).exp()));
                *row = RowFactors {
                    shift,
                    factor: T::from_f64(left.exp() * share),
                    delta: T::from_f64(product(saved.output, grad, [b, h, i])),
                };
            }
        }
    });
    rows
}

/// Lanes of a product's sum.
const LANES: usize = 8;

/// a · b of one row, in `f64`.
fn product<T: Float>(a: View<'_, T>, b: View<'_, T>, [batch, head, i]: [usize; 3]) -> f64 {
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

/// Adds the gradient of the sinks: −weight of the sink · delta over the rows of its head.
pub(super) fn sinks<T: Float>(
    call: &Call<'_, T>,
    lse: &[f64],
    rows: &[RowFactors<T>],
    to: &mut [T],
) {
    let [batch, heads, queries, _] = call.inputs.scores_shape();
    for (h, to) in to.iter_mut().enumerate() {
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
        *to = *to + T::from_f64(sum);
    }
}
