//! One block of queries against its keys.
//!
//! For each chunk of keys and each block of a chunk: scores, softmax, values. The state of a row
//! is its running maximum, 16 running sums and the weighted sum of values; chunks begin with a
//! fresh state, and states are merged in order.

use super::call::Call;
use super::real::{Float, Real};
use super::simd::{
    Aligned, BLOCK, Bend, Claim, MaskedSoftmax, Rows, STRIDE, Scores, Softmax, Span, Start, TILE,
    Values, packed_len, sums_stride,
};
use super::visible::{Sight, Stretch};
use std::ops::Range;

/// Queries of a block at most.
pub(super) const BLOCK_QUERIES: usize = 96;

/// Keys of a chunk: what decoding shares out over threads. A multiple of [`BLOCK`].
pub(super) const CHUNK: usize = 2048;

/// A query of a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) head: usize,
    pub(super) query: usize,
    pub(super) sight: Sight,
}

/// Memory that a thread works in.
#[derive(Default)]
pub struct Scratch<T> {
    rows: Vec<Row>,
    spans: Vec<Span>,
    corrections: Vec<T>,
    pub(super) chunk: State<T>,
    pub(super) total: State<T>,
    q: Aligned<T>,
    pub(super) k: Aligned<T>,
    x: Aligned<T>,
    bias: Vec<T>,
    mask: Vec<bool>,
    spare: Vec<T>,
    /// Which keys each row keeps, where values are not finite.
    kept: Vec<[bool; BLOCK]>,
}

impl<T: Real> Scratch<T> {
    /// Bytes of what grows with the call.
    pub(super) fn bytes(&self) -> usize {
        self.q.bytes()
            + self.k.bytes()
            + self.x.bytes()
            + self.chunk.sums.bytes()
            + self.total.sums.bytes()
            + self.spare.capacity() * size_of::<T>()
    }
}

/// The running sums of some queries.
#[derive(Default)]
pub(super) struct State<T> {
    pub(super) max: Vec<T>,
    pub(super) lanes: Vec<[T; TILE]>,
    pub(super) sums: Aligned<T>,
}

impl<T: Float> State<T> {
    /// Nothing summed; `sums` are of any value and taken as 0 by the first block.
    fn clear(&mut self, rows: usize) {
        self.max.clear();
        self.max.resize(rows, T::NEG_INFINITY);
        self.lanes.clear();
        self.lanes.resize(rows, [T::ZERO; TILE]);
    }

    /// Numbers that [`State::save`] writes.
    pub(super) fn saved_len(rows: usize, width: usize) -> usize {
        rows * (1 + TILE + sums_stride(width))
    }

    /// Writes the state to memory.
    pub(super) fn save(&mut self, width: usize, to: &mut [T]) {
        let rows = self.max.len();
        let (max, rest) = to.split_at_mut(rows);
        let (lanes, sums) = rest.split_at_mut(rows * TILE);
        max.copy_from_slice(&self.max);
        lanes.copy_from_slice(self.lanes.as_flattened());
        sums.copy_from_slice(self.sums.get(rows * sums_stride(width)));
    }

    /// Reads a saved state.
    pub(super) fn load(&mut self, rows: usize, width: usize, from: &[T]) {
        self.clear(rows);
        let (max, rest) = from.split_at(rows);
        let (lanes, sums) = rest.split_at(rows * TILE);
        self.max.copy_from_slice(max);
        self.lanes.as_flattened_mut().copy_from_slice(lanes);
        self.sums.get(sums.len()).copy_from_slice(sums);
        debug_assert_eq!(sums.len(), rows * sums_stride(width));
    }

    /// Adds the state of later keys.
    pub(super) fn merge(&mut self, call: &Call<'_, T>, later: &mut State<T>, width: usize) {
        let rows = self.max.len();
        let stride = sums_stride(width);
        let sums = self.sums.get(rows * stride);
        let later_sums = later.sums.get(rows * stride);
        for i in 0..rows {
            let (old, new) = (self.max[i], later.max[i]);
            let max = if new > old { new } else { old };
            let a = (call.kernels.correction)(old, max, call.c);
            let b = (call.kernels.correction)(new, max, call.c);
            self.max[i] = max;
            for (lane, later) in self.lanes[i].iter_mut().zip(&later.lanes[i]) {
                *lane = *lane * a + *later * b;
            }
            let row = i * stride..(i + 1) * stride;
            (call.kernels.add)(&mut sums[row.clone()], a, &later_sums[row], b);
        }
    }
}

/// The keys of one key and value head.
#[derive(Clone, Copy)]
pub(super) struct Head<'s> {
    pub(super) batch: usize,
    pub(super) kv_head: usize,
    pub(super) stretch: &'s Stretch,
}

/// Keys packed before the block of queries came.
#[derive(Clone, Copy)]
pub(super) struct Packed<'k, T> {
    /// Tiles from the first key of the stretch on.
    pub(super) tiles: &'k [T],
    /// Whether the values of each block are finite; empty where that does not matter.
    pub(super) finite: &'k [bool],
}

/// Packs the keys `from..to` of a head's stretch; `from` is a multiple of [`BLOCK`].
pub(super) fn pack<T: Float>(
    call: &Call<'_, T>,
    head: Head<'_>,
    keys: Range<usize>,
    spare: &mut Vec<T>,
    out: &mut [T],
) {
    let first = head.stretch.keys.start;
    let range = first + keys.start..first + keys.end;
    call.k()
        .one_run(head.batch, head.kv_head, range, spare, |rows| {
            (call.kernels.pack)(rows, out);
        });
}

/// Whether the values of some keys of a head's stretch are all finite.
pub(super) fn values_finite<T: Float>(
    call: &Call<'_, T>,
    head: Head<'_>,
    keys: Range<usize>,
    spare: &mut Vec<T>,
) -> bool {
    let first = head.stretch.keys.start;
    let range = first + keys.start..first + keys.end;
    let mut finite = true;
    call.v()
        .rows(head.batch, head.kv_head, range, spare, |rows, _| {
            finite &= (call.kernels.all_finite)(rows);
        });
    finite
}

impl<T: Float> Scratch<T> {
    /// Takes a block of queries of one key and value head: all pairs of head and query.
    pub(super) fn take_rows(
        &mut self,
        call: &Call<'_, T>,
        head: Head<'_>,
        heads: Range<usize>,
        queries: Range<usize>,
    ) {
        self.rows.clear();
        for h in heads {
            self.rows.extend(queries.clone().map(|query| Row {
                head: h,
                query,
                sight: call.visible.sight(head.batch, head.stretch, query),
            }));
        }
        if in_place(call, head, &self.rows).is_none() {
            let q = self.q.get(self.rows.len() * call.inputs.head_dim());
            gather(call, head, &self.rows, q);
        }
    }

    /// First key and end of what the block's queries see.
    pub(super) fn seen(&self) -> Range<usize> {
        let rows = || {
            self.rows
                .iter()
                .map(|row| row.sight)
                .filter(|sight| sight.from < sight.to)
        };
        let from = rows().map(|sight| sight.from).min().unwrap_or(0);
        let to = rows().map(|sight| sight.to).max().unwrap_or(0);
        from..to
    }

    /// The state of all rows over all keys, in `total`.
    pub(super) fn run(
        &mut self,
        call: &Call<'_, T>,
        head: Head<'_>,
        packed: Option<Packed<'_, T>>,
        weigh: bool,
    ) {
        let seen = self.seen();
        let chunks = seen.start / CHUNK..seen.end.div_ceil(CHUNK).max(seen.start / CHUNK + 1);
        for chunk in chunks.clone() {
            self.run_chunk(call, head, packed, chunk, weigh);
            if chunk == chunks.start {
                // Merging into nothing would change no bit.
                std::mem::swap(&mut self.chunk, &mut self.total);
            } else {
                let width = if weigh { call.v().width() } else { 0 };
                self.total.merge(call, &mut self.chunk, width);
            }
        }
    }

    /// The state of all rows over one chunk of keys, in `chunk`. Without `weigh`, values are left
    /// alone.
    pub(super) fn run_chunk(
        &mut self,
        call: &Call<'_, T>,
        head: Head<'_>,
        packed: Option<Packed<'_, T>>,
        chunk: usize,
        weigh: bool,
    ) {
        let seen = self.seen();
        let rows = self.rows.len();
        self.chunk.clear(rows);
        let stride = sums_stride(call.v().width());
        let from = seen.start.max(chunk * CHUNK);
        let to = seen.end.min((chunk + 1) * CHUNK);
        if from >= to {
            self.chunk.sums.get(rows * stride).fill(T::ZERO);
            return;
        }
        if call.bends() {
            // `bend` asks for the blocks that follow.
            let first = from / BLOCK * BLOCK;
            for row in &self.rows {
                let keys = first..row.sight.to.min(first + BLOCK).max(first);
                let start = head.stretch.keys.start;
                call.prefetch_rows(
                    [head.batch, row.head, row.query],
                    start + keys.start..start + keys.end,
                );
            }
        }
        for block in from / BLOCK..to.div_ceil(BLOCK) {
            self.score(call, head, packed, block);
            let first = block == from / BLOCK;
            let guarded = weigh && !self.values_are_finite(call, head, packed, block);
            self.exponentiate(call, head, block, guarded);
            if weigh {
                self.weigh(call, head, block, first, guarded);
            }
        }
    }

    /// Scores of a block of keys.
    pub(super) fn score(
        &mut self,
        call: &Call<'_, T>,
        head: Head<'_>,
        packed: Option<Packed<'_, T>>,
        block: usize,
    ) {
        let first = block * BLOCK;
        let within = |key: usize| key.clamp(first, first + BLOCK) - first;
        self.spans.clear();
        self.spans.extend(self.rows.iter().map(|row| Span {
            from: within(row.sight.from),
            to: within(row.sight.to),
        }));
        let end = Span::union(&self.spans).to;
        let width = call.inputs.head_dim();
        let tiles = packed_len(end, width);
        let k = match packed {
            Some(packed) => &packed.tiles[first * width..][..tiles],
            None => {
                let k = self.k.get(BLOCK * width);
                pack(call, head, first..first + end, &mut self.spare, k);
                &k[..tiles]
            }
        };
        let x = self.x.get(self.rows.len() * STRIDE);
        let q = in_place(call, head, &self.rows).unwrap_or_else(|| {
            let count = self.rows.len();
            let q = &*self.q.get(count * width); // gathered by `take_rows`
            Rows::new(q, 0, width as isize, count, width)
        });
        (call.kernels.scores)(
            &Scores {
                q,
                spans: &self.spans,
                k,
            },
            x,
        );
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
        mut visit: impl FnMut(&Row, usize, &[T]),
    ) {
        if keys.is_empty() {
            return;
        }
        let rows = self.rows.len();
        for block in keys.start / BLOCK..keys.end.div_ceil(BLOCK) {
            self.score(call, head, None, block);
            self.bend(call, head, block, 0..rows);
            let x = self.x.get(rows * STRIDE);
            if weights {
                self.corrections.resize(rows, T::ONE);
                // The maximum is the final one already, so it stays.
                (call.kernels.softmax)(&mut Softmax {
                    spans: &self.spans,
                    x,
                    max: &mut self.total.max,
                    sums: &mut vec![[T::ZERO; TILE]; rows],
                    corrections: &mut self.corrections,
                    c: call.c,
                });
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
                    let (max, lanes) = (self.total.max[i], &self.total.lanes[i]);
                    let finished = finish_row(call, head, row, max, lanes);
                    x.iter_mut().for_each(|x| *x = *x * finished.inverse);
                } else if call.natural != 1.0 {
                    // Scale 0 has made the products 0 already.
                    let natural = T::from_f64(call.natural);
                    for x in x.iter_mut().filter(|x| **x != T::NEG_INFINITY) {
                        *x = *x * natural;
                    }
                }
                visit(row, first + from, x);
            }
        }
    }

    /// Whether no dropped key of the block can have a value that is infinite or NaN.
    fn values_are_finite(
        &mut self,
        call: &Call<'_, T>,
        head: Head<'_>,
        packed: Option<Packed<'_, T>>,
        block: usize,
    ) -> bool {
        let union = Span::union(&self.spans);
        let all_alike = !call.drops_single_keys() && self.spans.iter().all(|span| *span == union);
        if all_alike {
            return true; // no key is dropped
        }
        match packed.and_then(|packed| packed.finite.get(block)) {
            Some(&finite) => finite,
            None => {
                let keys = block * BLOCK + union.from..block * BLOCK + union.to;
                values_finite(call, head, keys, &mut self.spare)
            }
        }
    }

    /// What comes between scores and softmax, for some of the rows.
    pub(super) fn bend(
        &mut self,
        call: &Call<'_, T>,
        head: Head<'_>,
        block: usize,
        rows: Range<usize>,
    ) {
        if !call.bends() {
            return;
        }
        let x = self.x.get(self.rows.len() * STRIDE);
        let keys = head.stretch.keys.start + block * BLOCK;
        for i in rows {
            let (row, span) = (&self.rows[i], self.spans[i]);
            let at = [head.batch, row.head, row.query];
            let range = keys..keys + span.to;
            let next = keys + BLOCK..(keys + 2 * BLOCK).min(head.stretch.keys.start + row.sight.to);
            call.prefetch_rows(at, next);
            let bend = Bend {
                span,
                arithmetic: call.arithmetic(
                    at,
                    head.stretch,
                    range.clone(),
                    row.sight,
                    &mut self.bias,
                ),
                mask: call.mask_row(at, range, &mut self.mask),
            };
            (call.kernels.bend)(&bend, &mut x[i * STRIDE..][..STRIDE]);
        }
    }

    /// The softmax of a tile of rows that differ from q·k by masks alone, without writing the
    /// masked scores.
    fn exponentiate_masked(
        &mut self,
        call: &Call<'_, T>,
        head: Head<'_>,
        block: usize,
        tile: Range<usize>,
    ) {
        let x = self.x.get(self.rows.len() * STRIDE);
        let union = Span::union(&self.spans[tile.clone()]);
        let keys = head.stretch.keys.start + block * BLOCK;
        for i in tile {
            let (row, span) = (&self.rows[i], self.spans[i]);
            let at = [head.batch, row.head, row.query];
            let next = keys + BLOCK..(keys + 2 * BLOCK).min(head.stretch.keys.start + row.sight.to);
            call.prefetch_rows(at, next);
            let Some(mask) = call.mask_row(at, keys..keys + span.to, &mut self.mask) else {
                continue;
            };
            self.corrections[i] = (call.kernels.masked)(&mut MaskedSoftmax {
                span,
                union,
                x: &mut x[i * STRIDE..][..STRIDE],
                max: &mut self.chunk.max[i],
                sums: &mut self.chunk.lanes[i],
                c: call.c,
                mask,
            });
        }
    }

    fn exponentiate(&mut self, call: &Call<'_, T>, head: Head<'_>, block: usize, guarded: bool) {
        let rows = self.rows.len();
        self.corrections.resize(rows, T::ONE);
        if guarded {
            self.kept.clear();
            self.kept.resize(rows, [false; BLOCK]);
        }
        let step = if call.bends() || guarded {
            call.kernels.tile_rows // while they are in the first cache
        } else {
            rows.max(1)
        };
        for first in (0..rows).step_by(step) {
            let tile = first..(first + step).min(rows);
            if !guarded && call.only_masks() {
                self.exponentiate_masked(call, head, block, tile);
                continue;
            }
            self.bend(call, head, block, tile.clone());
            let x = &mut self.x.get(rows * STRIDE)[first * STRIDE..tile.end * STRIDE];
            if guarded {
                for (i, x) in tile.clone().zip(x.chunks_exact(STRIDE)) {
                    let span = self.spans[i];
                    for j in span.from..span.to {
                        self.kept[i][j] = x[j] != T::NEG_INFINITY;
                    }
                }
            }
            (call.kernels.softmax)(&mut Softmax {
                spans: &self.spans[tile.clone()],
                x,
                max: &mut self.chunk.max[tile.clone()],
                sums: &mut self.chunk.lanes[tile.clone()],
                corrections: &mut self.corrections[tile],
                c: call.c,
            });
        }
        let x = self.x.get(rows * STRIDE);
        if let Some(dropout) = call.attention.dropout {
            let start = head.stretch.keys.start;
            for ((row, span), x) in self
                .rows
                .iter()
                .zip(&self.spans)
                .zip(x.chunks_exact_mut(STRIDE))
            {
                let position = (start as i64).saturating_add(row.sight.position);
                for j in span.from..span.to {
                    let key = start + block * BLOCK + j;
                    if crate::definition::drops(dropout, head.batch, row.head, position, key) {
                        x[j] = T::ZERO;
                    }
                }
            }
        }
    }

    fn weigh(
        &mut self,
        call: &Call<'_, T>,
        head: Head<'_>,
        block: usize,
        first: bool,
        guarded: bool,
    ) {
        let rows = self.rows.len();
        let x = self.x.get(rows * STRIDE);
        let stride = sums_stride(call.v().width());
        let sums = self.chunk.sums.get(rows * stride);
        let union = Span::union(&self.spans);
        let start = head.stretch.keys.start + block * BLOCK;
        let mut begin = if first {
            Start::Zero
        } else {
            Start::Times(&self.corrections)
        };
        if union.is_empty() {
            if first {
                sums.fill(T::ZERO);
            }
            return;
        }
        let range = start + union.from..start + union.to;
        call.v().rows(
            head.batch,
            head.kv_head,
            range,
            &mut self.spare,
            |v, skipped| {
                let from = union.from + skipped;
                let keys = Span {
                    from,
                    to: from + v.count(),
                };
                if guarded {
                    for i in 0..rows {
                        weigh_kept(
                            call,
                            &x[i * STRIDE..],
                            &self.kept[i],
                            keys,
                            v,
                            match begin {
                                Start::Times(factors) => Start::Times(&factors[i..]),
                                other => other,
                            },
                            &mut sums[i * stride..],
                        );
                    }
                } else {
                    (call.kernels.values)(
                        &Values {
                            p: x,
                            spans: &self.spans,
                            keys,
                            v,
                            start: begin,
                        },
                        sums,
                    );
                }
                begin = Start::AsTheyAre;
            },
        );
    }

    /// Writes the rows of `total` to the output; returns the rows that keep no key.
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
        self.spare.resize(width.max(self.spare.len()), T::ZERO);
        for (i, row) in self.rows.iter().enumerate() {
            let finished = finish_row(call, head, row, self.total.max[i], &self.total.lanes[i]);
            if finished.is_empty {
                empty.push([head.batch, row.head, row.query]);
            }
            let factor = match call.attention.dropout {
                Some(dropout) => finished.inverse * T::from_f64(1.0 / (1.0 - dropout.p)),
                None => finished.inverse,
            };
            let sums = &sums[i * stride..][..stride];
            claim.write(row.head, row.query, finished.lse, &mut self.spare, |out| {
                (call.kernels.finish)(sums, factor, out);
            });
        }
    }
}

/// What comes of a row's maximum and sums.
struct Finished<T> {
    /// 1/sum, the sink included; 0 for an empty row.
    inverse: T,
    lse: f64,
    is_empty: bool,
}

fn finish_row<T: Float>(
    call: &Call<'_, T>,
    head: Head<'_>,
    row: &Row,
    max: T,
    lanes: &[T; TILE],
) -> Finished<T> {
    let sum = sum_of_lanes(lanes).to_f64();
    if max == T::NEG_INFINITY && sum == 0.0 {
        let first = head.stretch.keys.start;
        let keeps_one = (first + row.sight.from..first + row.sight.to)
            .any(|j| call.keeps([head.batch, row.head, row.query, j]));
        // A kept row whose scores are all −∞ is 0/0.
        return Finished {
            inverse: T::from_f64(if keeps_one { f64::NAN } else { 0.0 }),
            lse: if keeps_one { f64::NAN } else { max.to_f64() },
            is_empty: !keeps_one,
        };
    }
    let max = max.to_f64() * call.natural;
    let with_sink = match call.sink(row.head) {
        Some(sink) => sum + (sink - max).exp(),
        None => sum,
    };
    Finished {
        inverse: T::from_f64(1.0 / with_sink),
        lse: max + sum.ln(),
        is_empty: false,
    }
}

/// The sum of the 16 lanes, always by the same tree.
fn sum_of_lanes<T: Real>(lanes: &[T; TILE]) -> T {
    let mut sums = *lanes;
    let mut half = TILE / 2;
    while half > 0 {
        for i in 0..half {
            sums[i] = sums[i] + sums[i + half];
        }
        half /= 2;
    }
    sums[0]
}

/// Weighs the kept keys of one row only, in runs of neighbours: the same sums as where dropped
/// keys have p = 0, but their values are not read.
fn weigh_kept<T: Float>(
    call: &Call<'_, T>,
    p: &[T],
    kept: &[bool; BLOCK],
    keys: Span,
    v: Rows<'_, T>,
    mut start: Start<'_, T>,
    sums: &mut [T],
) {
    let mut from = keys.from;
    loop {
        let to = (from..keys.to)
            .find(|&j| kept[j] != kept[from])
            .unwrap_or(keys.to);
        let span = if kept[from] {
            Span { from, to }
        } else {
            Span { from, to: from }
        };
        (call.kernels.values)(
            &Values {
                p: &p[..STRIDE],
                spans: &[span],
                keys: span,
                v: v.part(span.from - keys.from..span.to - keys.from),
                start,
            },
            sums,
        );
        start = Start::AsTheyAre;
        if to >= keys.to {
            return;
        }
        from = to;
    }
}

/// The queries where they are, if they are of one head, regular and need no change of sign.
fn in_place<'a, T: Float>(call: &Call<'a, T>, head: Head<'_>, rows: &[Row]) -> Option<Rows<'a, T>> {
    let (first, last) = (rows.first()?, rows.last()?);
    if call.sign != T::ONE || first.head != last.head {
        return None;
    }
    let queries = first.query..last.query + 1;
    super::call::neighbours(&call.inputs.q(), head.batch, first.head, queries)
}

/// The queries times the sign, one after the other.
fn gather<T: Float>(call: &Call<'_, T>, head: Head<'_>, rows: &[Row], to: &mut [T]) {
    let q = call.inputs.q();
    let (data, offset) = q.raw();
    let strides = q.strides();
    for (row, to) in rows.iter().zip(to.chunks_exact_mut(q.shape()[3])) {
        let at = offset as isize
            + head.batch as isize * strides[0]
            + row.head as isize * strides[1]
            + row.query as isize * strides[2];
        for (c, x) in to.iter_mut().enumerate() {
            *x = call.sign * data[(at + c as isize * strides[3]) as usize];
        }
    }
}
