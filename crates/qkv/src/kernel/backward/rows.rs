//! What the backward pass needs to know of each row before it begins.

use super::super::ahead::Ahead;
use super::super::block::Scratch;
use super::super::call::{Call, neighbours};
use super::super::packed::Head;
use super::super::real::Real;
use super::super::simd::{RowFactors, Rows};
use super::Saved;
use crate::view::View;

/// From this |lse| on the 53 bits of lse are too coarse for the sum in it: where a bias is so low
/// that all scores of a row are the same, say. The row's maximum and sum are computed again then.
const COARSE: f64 = 1_048_576.0;

/// Fills in the rows of one batch entry's key and value head: all queries of its first head, then
/// of the next.
pub(super) fn fill<T: Real>(
    call: &Call<'_, T>,
    saved: Saved<'_, T>,
    grad: View<'_, T>,
    group: usize,
    rows: &mut [RowFactors<T>],
    scratch: &mut Scratch<T>,
) {
    let [_, heads, queries, width] = grad.shape();
    let mut deltas = vec![0.0; queries];
    let mut copies = [Vec::new(), Vec::new()];
    let first = group * (rows.len() / queries.max(1));
    for (index, rows) in (first..).zip(rows.chunks_mut(queries.max(1))) {
        let (b, h) = (index / heads, index % heads);
        let [of_output, of_grad] = &mut copies;
        let output = rows_of(&saved.output, [b, h], of_output, width);
        let grad = rows_of(&grad, [b, h], of_grad, width);
        (call.kernels.products)(output, grad, &mut deltas);
        let lse = &saved.lse[index * queries..];
        for ((row, &lse), &delta) in rows.iter_mut().zip(lse).zip(&deltas) {
            *row = factors(call, lse, call.sink(h), delta);
        }
        for (i, row) in rows.iter_mut().enumerate() {
            if lse[i].is_finite() && lse[i].abs() > COARSE {
                anew(call, [b, h, i], scratch, row);
            }
        }
    }
}

/// Shift and factor of a row from its maximum and sum, as the forward pass computes them.
fn anew<T: Real>(
    call: &Call<'_, T>,
    [b, h, i]: [usize; 3],
    scratch: &mut Scratch<T>,
    row: &mut RowFactors<T>,
) {
    let mut stretches = (0..call.visible.stretches()).map(|index| call.visible.stretch(index));
    let Some(stretch) = stretches.find(|stretch| stretch.queries.contains(&i)) else {
        return;
    };
    let head = Head {
        batch: b,
        kv_head: h / call.group,
        stretch: &stretch,
    };
    scratch.take_rows(call, head, h..h + 1, i..i + 1);
    scratch.run(call, head, None, false, &mut Ahead::default());
    let mut sum = [T::ZERO];
    (call.kernels.totals)(&scratch.total.lanes, &mut sum);
    let (max, sum) = (scratch.total.max[0], sum[0].to_f64());
    if sum > 0.0 {
        let of_sink = call
            .sink(h)
            .map_or(0.0, |sink| (sink - max.to_f64() * call.natural).exp());
        row.shift = max;
        row.factor = T::from_f64(1.0 / (sum + of_sink));
    }
}

/// All rows of a head, copied where their columns are apart.
fn rows_of<'r, T: Real>(
    view: &View<'r, T>,
    [b, h]: [usize; 2],
    copy: &'r mut Vec<T>,
    width: usize,
) -> Rows<'r, T> {
    let queries = view.shape()[2];
    if let Some(rows) = neighbours(view, b, h, 0..queries) {
        return rows;
    }
    copy.clear();
    for i in 0..queries {
        copy.extend((0..width).map(|c| view.get([b, h, i, c])));
    }
    Rows::new(copy, 0, width as isize, queries, width)
}

/// Of a row that keeps no key: it has no gradient.
pub(super) fn nothing<T: Real>() -> RowFactors<T> {
    RowFactors {
        shift: T::ZERO,
        factor: T::ZERO,
        delta: T::ZERO,
    }
}

fn factors<T: Real>(call: &Call<'_, T>, lse: f64, sink: Option<f64>, delta: f64) -> RowFactors<T> {
    if lse == f64::NEG_INFINITY {
        return nothing();
    }
    let (shift, left) = if call.natural == 0.0 {
        (T::ZERO, -lse)
    } else {
        let shift = T::from_f64(lse / call.natural);
        // What rounding left; more than 1 only where it is made anew.
        let left = shift.to_f64() * call.natural - lse;
        (shift, left.clamp(-1.0, 1.0))
    };
    let share = sink.map_or(1.0, |sink| 1.0 / (1.0 + (sink - lse).exp()));
    RowFactors {
        shift,
        factor: T::from_f64(exp(left) * share),
        delta: T::from_f64(delta),
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
