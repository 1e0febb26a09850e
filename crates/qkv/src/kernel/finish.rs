//! From running sums to what the caller gets.

use super::block::Scratch;
use super::call::Call;
use super::packed::Head;
use super::queries::Row;
use super::real::{Float, Real};
use super::simd::{BLOCK, Claim, Edit, STRIDE, Settle, Softmax, TILE, sums_stride};
use crate::view::Element;
use std::ops::Range;

impl<T: Float> Scratch<T> {
    /// Writes the rows of `total` to the output, and adds those that keep no key to `empty`.
    pub(super) fn write(
        &mut self,
        call: &Call<'_, T>,
        head: Head<'_>,
        claim: &mut Claim<'_, T>,
        empty: &mut Vec<[usize; 3]>,
    ) {
        let width = call.v().width();
        let stride = sums_stride(width);
        let sums = self.total.sums.get(self.rows.len() * stride);
        let kept_share = call.attention.dropout.map_or(T::Real::ONE, |dropout| {
            T::Real::from_f64(1.0 / (1.0 - dropout.p))
        });
        let rows = self.rows.len();
        self.factors.resize(rows, T::Real::ZERO);
        if call.attention.sinks.is_none() && self.total.max.iter().all(|&max| max > -T::Real::MAX) {
            // As `finish_row`, all rows at once.
            self.lse.resize(rows, 0.0);
            let settle = &Settle {
                lanes: &self.total.lanes,
                max: &self.total.max,
                natural: call.natural,
                share: kept_share,
            };
            (call.kernels.settle)(settle, &mut self.factors, &mut self.lse);
        } else {
            (call.kernels.totals)(&self.total.lanes, &mut self.factors);
            self.lse.clear();
            self.max.clear();
            for (i, (row, factor)) in self.rows.iter().zip(&mut self.factors).enumerate() {
                let finished = finish_row(call, head, row, self.total.max[i], *factor);
                if finished.sum == 0.0 {
                    empty.push([head.batch, row.head, row.query]);
                }
                *factor = finished.inverse * kept_share;
                self.lse.push(finished.sum);
                self.max.push(finished.max);
            }
            (call.kernels.logarithms)(&mut self.lse);
            for (lse, max) in self.lse.iter_mut().zip(&self.max) {
                *lse += max;
            }
        }
        // All queries of one head, then of the next.
        let mut from = 0;
        while let Some(Row { head: h, query, .. }) = self.rows.get(from).copied() {
            let rows = self.rows[from..].iter();
            let count = rows.take_while(|row| row.head == h).count();
            let to = from + count;
            claim.write_lse(h, query, &self.lse[from..to]);
            let (sums, factors) = (&sums[from * stride..], &self.factors[from..to]);
            if let Some(out) = claim.rows(h, query..query + count) {
                (call.storage.finish)(sums, factors, out);
            } else {
                for (i, &factor) in factors.iter().enumerate() {
                    let sums = &sums[i * stride..][..width];
                    self.spare.clear();
                    // +0 for −0, as the kernel does.
                    self.spare
                        .extend(sums.iter().map(|&x| T::narrow(x * factor + T::Real::ZERO)));
                    claim.write_row(h, query + i, &self.spare);
                }
            }
            from = to;
        }
    }

    /// Recomputes numbers of the rows for some keys of the stretch and hands them to
    /// `visit(row, first key, numbers)`, for the keys that the row sees: scores in natural units,
    /// or weights by the maximum and sum that [`Scratch::run`] left.
    pub(super) fn each_row(
        &mut self,
        call: &Call<'_, T>,
        head: Head<'_>,
        keys: Range<usize>,
        weights: bool,
        mut visit: impl FnMut(&Row, usize, &[T::Real]),
    ) {
        if keys.is_empty() {
            return;
        }
        let rows = self.rows.len();
        if weights {
            self.factors.resize(rows, T::Real::ZERO);
            (call.kernels.totals)(&self.total.lanes, &mut self.factors);
        }
        for block in keys.start / BLOCK..keys.end.div_ceil(BLOCK) {
            self.open(call, head, None, block);
            self.score(call, head, None, block, false);
            self.bend(call, head, block, 0..rows);
            let x = self.x.get(rows * STRIDE);
            if weights {
                let softmax = &mut Softmax {
                    spans: &self.spans,
                    x,
                    max: &mut self.total.max,
                    sums: &mut vec![[T::Real::ZERO; TILE]; rows],
                    c: call.c,
                };
                // The maximum is the final one already, so it stays.
                (call.kernels.maxima)(softmax, Edit::None, 0, &mut self.corrections);
                (call.kernels.exponentials)(softmax);
            }
            let first = block * BLOCK;
            for ((i, row), x) in self.rows.iter().enumerate().zip(x.chunks_exact_mut(STRIDE)) {
                let from = self.spans[i].from.max(keys.start.saturating_sub(first));
                let to = self.spans[i].to.min(keys.end - first);
                if from >= to {
                    continue;
                }
                let x = &mut x[from..to];
                if weights {
                    let (max, sum) = (self.total.max[i], self.factors[i]);
                    let finished = finish_row(call, head, row, max, sum);
                    x.iter_mut().for_each(|x| *x = *x * finished.inverse);
                    if finished.inverse.to_f64().is_nan() {
                        let key = head.stretch.keys.start + first + from;
                        for (j, x) in (key..).zip(&mut *x) {
                            if !call.keeps([head.batch, row.head, row.query, j]) {
                                *x = T::Real::ZERO;
                            }
                        }
                    }
                } else if call.natural != 1.0 {
                    // Scale 0 has made the products 0 already.
                    let natural = T::Real::from_f64(call.natural);
                    for x in x.iter_mut().filter(|x| **x != T::Real::NEG_INFINITY) {
                        *x = *x * natural;
                    }
                }
                visit(row, first + from, x);
            }
        }
    }
}

/// What comes of a row's maximum and sums; lse = max + ln sum.
struct Finished<T> {
    /// 1/sum, the sink included; 0 for an empty row.
    inverse: T,
    /// In natural units; 0 for an empty row.
    max: f64,
    /// Without the sink; 0 for an empty row and for no other.
    sum: f64,
}

impl<T: Real> Finished<T> {
    /// A row without a weight: 0, or NaN.
    fn of_nothing(sum: f64) -> Self {
        Finished {
            inverse: T::from_f64(sum),
            max: 0.0,
            sum,
        }
    }
}

#[inline]
fn finish_row<T: Float>(
    call: &Call<'_, T>,
    head: Head<'_>,
    row: &Row,
    max: T::Real,
    sum: T::Real,
) -> Finished<T::Real> {
    let sum = sum.to_f64();
    if max == T::Real::NEG_INFINITY && sum == 0.0 {
        return finish_empty(call, head, row);
    }
    if max == -T::Real::MAX && call.bends() && has_infinite_scores_only(call, head, row) {
        return Finished::of_nothing(f64::NAN);
    }
    let max = max.to_f64() * call.natural;
    let with_sink = match call.sink(row.head) {
        Some(sink) => sum + (sink - max).exp(),
        None => sum,
    };
    Finished {
        inverse: T::Real::from_f64(1.0 / with_sink),
        max,
        sum,
    }
}

/// Of a row without a weight.
#[cold]
fn finish_empty<T: Float>(call: &Call<'_, T>, head: Head<'_>, row: &Row) -> Finished<T::Real> {
    let first = head.stretch.keys.start;
    let keeps_one = (first + row.sight.from..first + row.sight.to)
        .any(|j| call.keeps([head.batch, row.head, row.query, j]));
    // A kept row whose scores are all −∞ is 0/0.
    Finished::of_nothing(if keeps_one { f64::NAN } else { 0.0 })
}

/// Whether q·k, scaled, is −∞ for all kept keys because q or k is infinite: the arithmetic that
/// follows has made the lowest number of it, as of sums beyond the range, which do count.
#[cold]
fn has_infinite_scores_only<T: Float>(call: &Call<'_, T>, head: Head<'_>, row: &Row) -> bool {
    let (b, h, i) = (head.batch, row.head, row.query);
    let q = call.inputs.q();
    let scale = call.attention.scale.factor(call.inputs.head_dim());
    let score = |j: usize| {
        let columns = 0..call.inputs.head_dim();
        let products = columns.map(|c| {
            let (q, k) = (q.get([b, h, i, c]), call.k().get([b, head.kv_head, j, c]));
            q.to_f64() * k.to_f64()
        });
        products.sum::<f64>() * scale
    };
    let first = head.stretch.keys.start;
    call.attention.softcap.is_none() // which makes any score finite
        && (first + row.sight.from..first + row.sight.to)
            .filter(|&j| call.keeps([b, h, i, j]))
            .all(|j| score(j) == f64::NEG_INFINITY)
}
