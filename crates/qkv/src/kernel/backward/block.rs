//! One block of queries of a head against one block of keys.

use super::super::block::Scratch;
use super::super::call::{Call, neighbours};
use super::super::packed::{Head, pack};
use super::super::queries::{Row, in_place};
use super::super::real::Real;
use super::super::simd::{
    Across, Aligned, BLOCK, Piece, RowFactors, Rows, STRIDE, ScoreGradient, Scores, Span, Start,
    Values, packed_len, sums_stride,
};
use super::Saved;
use crate::view::View;
use std::ops::Range;

/// Queries of a block at most: many share what the sums of keys cost to load and store.
const QUERIES: usize = 96;

/// A whole number of tiles.
const TILE_QUERIES: usize = 6;

/// Queries in blocks of about equal size.
pub(super) fn query_blocks(queries: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let blocks = queries.len().div_ceil(QUERIES).max(1);
    let step = queries
        .len()
        .div_ceil(blocks)
        .next_multiple_of(TILE_QUERIES);
    let end = queries.end;
    let starts = queries.step_by(step.max(1));
    starts.map(move |start| start..(start + step).min(end))
}

/// What stays the same during a call.
pub(super) struct Problem<'a, T: Real> {
    pub(super) call: &'a Call<'a, T>,
    pub(super) saved: Saved<'a, T>,
    pub(super) grad: View<'a, T>,
    /// Whether gradients are added to what is there.
    pub(super) add: bool,
}

/// Memory that a thread works in, besides the scratch of the forward pass.
pub(super) struct Workspace<T> {
    /// Packed keys and values of the block that is open.
    k: Aligned<T>,
    v: Aligned<T>,
    /// The gradient of weights, then of scores.
    dx: Aligned<T>,
    /// Scores before a softcap.
    raw: Aligned<T>,
    /// What is summed for the keys of the block that is open.
    k_sums: Aligned<T>,
    v_sums: Aligned<T>,
    /// What a block of queries brings to one of them, where numbers are not finite.
    chains: Aligned<T>,
    /// Rows of the gradient of the output whose columns are apart.
    grad: Vec<T>,
    spare: Vec<T>,
    /// Which keys each row keeps, where numbers are not finite.
    kept: Vec<[bool; BLOCK]>,
    /// Keys of the block that is open.
    keys: usize,
    /// Whether keys and values of the block that is open are finite.
    finite: bool,
}

impl<T: Real> Workspace<T> {
    pub(super) fn new() -> Self {
        Workspace {
            k: Aligned::default(),
            v: Aligned::default(),
            dx: Aligned::default(),
            raw: Aligned::default(),
            k_sums: Aligned::default(),
            v_sums: Aligned::default(),
            chains: Aligned::default(),
            grad: Vec::new(),
            spare: Vec::new(),
            kept: Vec::new(),
            keys: 0,
            finite: true,
        }
    }

    /// Goes on to a block of keys: packs keys and values, and sets the sums to 0.
    pub(super) fn open(&mut self, call: &Call<'_, T>, head: Head<'_>, keys: Range<usize>) {
        let (d_k, d_v) = (call.inputs.head_dim(), call.inputs.value_dim());
        let k = self.k.get(packed_len(keys.len(), d_k));
        pack(call, head, keys.clone(), &mut self.spare, k);
        let v = self.v.get(packed_len(keys.len(), d_v));
        let first = head.stretch.keys.start;
        let range = first + keys.start..first + keys.end;
        let mut finite = true;
        call.v().one_run(
            head.batch,
            head.kv_head,
            range.clone(),
            &mut self.spare,
            |rows| {
                if d_v > 0 {
                    (call.storage.pack)(rows, v);
                }
                finite &= (call.storage.all_finite)(rows);
            },
        );
        call.k().rows(
            head.batch,
            head.kv_head,
            range,
            &mut self.spare,
            |rows, _| {
                finite &= (call.storage.all_finite)(rows);
            },
        );
        (self.keys, self.finite) = (keys.len(), finite);
        let sums = keys.len() * sums_stride(d_k);
        self.k_sums.get(sums).fill(T::ZERO);
        let sums = keys.len() * sums_stride(d_v);
        self.v_sums.get(sums).fill(T::ZERO);
    }

    /// Adds the sums of the block that is open to the gradients of k and v.
    pub(super) fn close(&mut self, problem: &Problem<'_, T>, [k, v]: [&mut Piece<'_, T>; 2]) {
        let (call, keys) = (problem.call, self.keys);
        let (d_k, d_v) = (call.inputs.head_dim(), call.inputs.value_dim());
        // The queries have been multiplied by the sign already.
        let scale = T::from_f64(call.attention.scale.factor(d_k)) * call.sign;
        problem.give(self.k_sums.get(keys * sums_stride(d_k)), scale, k);
        problem.give(self.v_sums.get(keys * sums_stride(d_v)), T::ONE, v);
    }

    /// Weights (with dropout) in the scratch's x, and the gradient of scores in dx, of the rows
    /// that the scratch has taken; `true` if both are to be used key by key, since something is
    /// not finite. With `masked`, dx is before the softcap's factor.
    pub(super) fn gradient(
        &mut self,
        problem: &Problem<'_, T>,
        rows_of_group: &[RowFactors<T>],
        scratch: &mut Scratch<T>,
        head: Head<'_>,
        block: usize,
        masked: bool,
    ) -> bool {
        let call = problem.call;
        let rows = scratch.rows.len();
        scratch.look(block);
        let union = Span::union(&scratch.spans);
        let (d_k, d_v) = (call.inputs.head_dim(), call.inputs.value_dim());
        // Scores, as in the forward pass.
        let x = scratch.x.get(rows * STRIDE);
        let q = match in_place(call, head, &scratch.rows) {
            Some(q) => q,
            None => Rows::new(scratch.q.get(rows * d_k), 0, d_k as isize, rows, d_k),
        };
        // What is not finite stays with the keys that are kept, unless some rows drop others.
        let drops = call.drops_single_keys() || scratch.spans.iter().any(|span| *span != union);
        let mut finite = !drops || self.finite && (call.storage.all_finite)(q);
        let k = self.k.get(packed_len(self.keys, d_k));
        let spans = &scratch.spans;
        (call.kernels.scores)(&Scores { q, spans, k }, x);
        let inner = call.softcap_inner().filter(|_| !masked);
        if inner.is_some() {
            self.raw.get(rows * STRIDE).copy_from_slice(x);
        }
        scratch.bend(call, head, block, 0..rows);
        // The gradient of weights: g · v.
        let dx = self.dx.get(rows * STRIDE);
        let grad = grad_rows(problem, head, &scratch.rows, &mut self.grad);
        finite &= !drops || (call.storage.all_finite)(grad);
        let (v, spans) = (&*self.v.get(packed_len(self.keys, d_v)), &scratch.spans);
        (call.kernels.scores)(
            &Scores {
                q: grad,
                spans,
                k: v,
            },
            dx,
        );
        dropout(call, head, (&scratch.rows, spans), block, dx);
        let queries = call.inputs.queries();
        let (first, last) = (&scratch.rows[0], scratch.rows[rows - 1]);
        let at = (first.head - head.kv_head * call.group) * queries;
        let factors = &rows_of_group[at + first.query..at + last.query + 1];
        let whole = |x: &T| x.to_f64().is_finite();
        finite &= !drops
            || factors
                .iter()
                .all(|row| whole(&row.shift) && whole(&row.factor) && whole(&row.delta));
        let x = scratch.x.get(rows * STRIDE);
        if !finite {
            self.kept.resize(rows, [false; BLOCK]);
            let first = head.stretch.keys.start + block * BLOCK;
            for (i, row) in scratch.rows.iter().enumerate() {
                let at = [head.batch, row.head, row.query];
                call.mark_kept(at, first, scratch.spans[i], &mut self.kept[i]);
            }
        }
        let raw = &*self
            .raw
            .get(if inner.is_some() { rows * STRIDE } else { 0 });
        (call.kernels.gradient)(&mut ScoreGradient {
            spans: &scratch.spans,
            union,
            x,
            dx,
            rows: factors,
            c: call.c,
            capped: inner.map(|inner| (inner, raw)),
        });
        dropout(
            call,
            head,
            (&scratch.rows, &scratch.spans),
            block,
            scratch.x.get(rows * STRIDE),
        );
        if !finite {
            // The bias takes them all; what goes key by key reads only what is kept.
            for (kept, dx) in self.kept.iter().zip(dx.chunks_mut(STRIDE)) {
                for j in (union.from..union.to).filter(|&j| !kept[j]) {
                    dx[j] = T::ZERO;
                }
            }
        }
        !finite
    }

    /// Adds what the rows bring to the sums of the keys, and to those of the rows themselves.
    pub(super) fn add(
        &mut self,
        problem: &Problem<'_, T>,
        scratch: &mut Scratch<T>,
        head: Head<'_>,
        block: usize,
        by_key: bool,
        (q_sums, begin): (&mut [T], bool),
    ) {
        let call = problem.call;
        let rows = scratch.rows.len();
        let union = Span::union(&scratch.spans);
        let d_k = call.inputs.head_dim();
        let x = &*scratch.x.get(rows * STRIDE);
        let dx = &*self.dx.get(rows * STRIDE);
        let grad = grad_rows(problem, head, &scratch.rows, &mut self.grad);
        let q = match in_place(call, head, &scratch.rows) {
            Some(q) => q,
            None => Rows::new(scratch.q.get(rows * d_k), 0, d_k as isize, rows, d_k),
        };
        let (of_v, of_k) = (sums_stride(call.inputs.value_dim()), sums_stride(d_k));
        let v_sums = self.v_sums.get(union.to * of_v);
        let k_sums = self.k_sums.get(union.to * of_k);
        let spans = &scratch.spans;
        if by_key {
            // One chain over the rows that keep a key, as if the others' weights were 0.
            for (p, rows, stride, sums) in [(x, grad, of_v, v_sums), (dx, q, of_k, k_sums)] {
                let chains = self.chains.get(union.to * stride);
                chains.fill(T::ZERO);
                for i in 0..rows.count() {
                    for keys in runs(&self.kept[i], union) {
                        let across = Across {
                            p: &p[i * STRIDE..(i + 1) * STRIDE],
                            spans: &[keys],
                            keys,
                            rows: rows.part(i..i + 1),
                            chained: true,
                        };
                        (call.kernels.across)(&across, chains);
                    }
                }
                (call.kernels.add)(sums, T::ONE, chains, T::ONE);
            }
        } else {
            for (p, rows, sums) in [(x, grad, v_sums), (dx, q, k_sums)] {
                let across = Across {
                    p,
                    spans,
                    keys: union,
                    rows,
                    chained: false,
                };
                (call.kernels.across)(&across, sums);
            }
        }
        let start = head.stretch.keys.start + block * BLOCK;
        let range = start + union.from..start + union.to;
        let stride = sums_stride(d_k);
        if begin {
            q_sums.fill(T::ZERO);
        }
        call.k().rows(
            head.batch,
            head.kv_head,
            range,
            &mut self.spare,
            |k, skipped| {
                let from = union.from + skipped;
                let keys = Span {
                    from,
                    to: from + k.count(),
                };
                if by_key {
                    for i in 0..rows {
                        for keys in runs(&self.kept[i], keys) {
                            let values = Values {
                                p: &dx[i * STRIDE..(i + 1) * STRIDE],
                                spans: &[keys],
                                keys,
                                v: k.part(keys.from - from..keys.to - from),
                                start: Start::AsTheyAre,
                            };
                            (call.kernels.values)(
                                &values,
                                &mut q_sums[i * stride..(i + 1) * stride],
                            );
                        }
                    }
                } else {
                    let values = Values {
                        p: dx,
                        spans,
                        keys,
                        v: k,
                        start: Start::AsTheyAre,
                    };
                    (call.kernels.values)(&values, q_sums);
                }
            },
        );
    }

    /// The gradient of scores of one row, from key 0 of the block.
    pub(super) fn dx(&mut self, rows: usize) -> &[T] {
        self.dx.get(rows * STRIDE)
    }
}

/// Runs of neighbouring kept keys.
fn runs(kept: &[bool; BLOCK], within: Span) -> impl Iterator<Item = Span> {
    let mut at = within.from;
    std::iter::from_fn(move || {
        let from = (at..within.to).find(|&j| kept[j])?;
        let to = (from..within.to).find(|&j| !kept[j]).unwrap_or(within.to);
        at = to;
        Some(Span { from, to })
    })
}

/// The gradient of the output of the rows that the scratch has taken.
fn grad_rows<'g, T: Real>(
    problem: &Problem<'g, T>,
    head: Head<'_>,
    rows: &[Row],
    spare: &'g mut Vec<T>,
) -> Rows<'g, T> {
    let (first, last) = (rows[0], rows[rows.len() - 1]);
    let queries = first.query..last.query + 1;
    if let Some(found) = neighbours(&problem.grad, head.batch, first.head, queries.clone()) {
        return found;
    }
    let width = problem.grad.shape()[3];
    spare.clear();
    for i in queries {
        spare.extend((0..width).map(|c| problem.grad.get([head.batch, first.head, i, c])));
    }
    Rows::new(spare, 0, width as isize, rows.len(), width)
}

/// Multiplies by dropout's factors.
fn dropout<T: Real>(
    call: &Call<'_, T>,
    head: Head<'_>,
    (rows, spans): (&[Row], &[Span]),
    block: usize,
    numbers: &mut [T],
) {
    let Some(dropout) = call.attention.dropout else {
        return;
    };
    let share = T::from_f64(1.0 / (1.0 - dropout.p));
    let start = head.stretch.keys.start;
    for ((row, span), numbers) in rows.iter().zip(spans).zip(numbers.chunks_exact_mut(STRIDE)) {
        let position = (start as i64).saturating_add(row.sight.position);
        for j in span.from..span.to {
            let key = start + block * BLOCK + j;
            let drops = crate::definition::drops(dropout, head.batch, row.head, position, key);
            // A product, so that NaN stays.
            numbers[j] = numbers[j] * if drops { T::ZERO } else { share };
        }
    }
}
