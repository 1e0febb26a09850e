//! One block of queries against its keys.
//!
//! For each chunk of keys and each block of a chunk: scores, softmax, values. The state of a row
//! is its running maximum, 16 running sums and the weighted sum of values; chunks begin with a
//! fresh state, and states are merged in order.

use super::ahead::Ahead;
use super::call::Call;
use super::exponentials::{Exponents, edit};
use super::packed::{Head, Packed, pack, widened};
use super::queries::{Row, in_place};
use super::real::{Float, Real, Stored};
use super::simd::{
    Aligned, BLOCK, Edit, FEW, Rows, STRIDE, Scores, Softmax, Span, Start, Stream, Unpacked,
    Values, sums_stride,
};
use super::state::State;
use super::weigh::How;
use std::ops::Range;

/// Queries of a block at most. The more, the less often packed keys and values pass through the
/// first cache; a block's scores stay in the second.
pub(super) const MOST_QUERIES: usize = 264;

/// The same where masks or biases have to be in the second cache besides.
pub(super) const MASKED_QUERIES: usize = 144;

/// The same where each query sees other keys, of which a block packs and skips those of all, or
/// where larger blocks would leave threads idle.
pub(super) const FEWER_QUERIES: usize = 96;

/// Keys from which on few queries take them as they lie: two groups, since a part of one takes
/// as long.
const MANY_KEYS: usize = 128;

/// A whole number of tiles of 4 and of 6 queries.
pub(super) const TILES: usize = 12;

/// Keys of a chunk: what decoding shares out over threads. A multiple of [`BLOCK`].
pub(super) const CHUNK: usize = 2048;

/// Memory that a thread works in.
pub struct Scratch<T: Stored> {
    pub(super) rows: Vec<Row>,
    /// What any of the rows sees.
    pub(super) seen: Range<usize>,
    /// Whether all rows see the same.
    pub(super) alike: bool,
    pub(super) factors: Vec<T::Real>,
    pub(super) lse: Vec<f64>,
    pub(super) max: Vec<f64>,
    pub(super) spans: Vec<Span>,
    pub(super) corrections: Vec<T::Real>,
    pub(super) chunk: State<T::Real>,
    pub(super) total: State<T::Real>,
    pub(super) q: Aligned<T::Real>,
    pub(super) k: Aligned<T::Real>,
    /// Values of a block, where they need conversion.
    pub(super) v: Aligned<T::Real>,
    pub(super) x: Aligned<T::Real>,
    /// Where the rows' parts of a plain mask or bias begin.
    pub(super) beside: Vec<usize>,
    pub(super) bias: Vec<T::Real>,
    pub(super) mask: Vec<bool>,
    pub(super) spare: Vec<T>,
    /// Which keys each row keeps, where values are not finite.
    pub(super) kept: Vec<[bool; BLOCK]>,
    /// The sums of one row of a block, where values are not finite.
    pub(super) weighed: Aligned<T::Real>,
}

impl<T: Stored> Default for Scratch<T> {
    fn default() -> Self {
        Scratch {
            rows: Vec::new(),
            seen: 0..0,
            alike: false,
            factors: Vec::new(),
            lse: Vec::new(),
            max: Vec::new(),
            spans: Vec::new(),
            corrections: Vec::new(),
            chunk: State::default(),
            total: State::default(),
            q: Aligned::default(),
            k: Aligned::default(),
            v: Aligned::default(),
            x: Aligned::default(),
            beside: Vec::new(),
            bias: Vec::new(),
            mask: Vec::new(),
            spare: Vec::new(),
            kept: Vec::new(),
            weighed: Aligned::default(),
        }
    }
}

impl<T: Stored> Scratch<T> {
    /// Bytes of what grows with the call.
    pub(super) fn bytes(&self) -> usize {
        self.q.bytes()
            + self.k.bytes()
            + self.v.bytes()
            + self.x.bytes()
            + self.chunk.sums.bytes()
            + self.total.sums.bytes()
            + self.spare.capacity() * size_of::<T>()
    }
}

impl<T: Float> Scratch<T> {
    /// First key and end of what the block's queries see.
    pub(super) fn seen(&self) -> Range<usize> {
        self.seen.clone()
    }

    /// The state of all rows over all keys, in `total`. Without `weigh`, values are left alone.
    /// Meanwhile the memory of `ahead` is asked for.
    pub(super) fn run(
        &mut self,
        call: &Call<'_, T>,
        head: Head<'_>,
        packed: Option<Packed<'_, T::Real>>,
        weigh: bool,
        ahead: &mut Ahead,
    ) {
        if weigh && self.run_at_once(call, head, packed, ahead) {
            return;
        }
        let seen = self.seen();
        let chunks = seen.start / CHUNK..seen.end.div_ceil(CHUNK).max(seen.start / CHUNK + 1);
        for chunk in chunks.clone() {
            self.run_chunk(call, head, packed, chunk, weigh, ahead);
            if chunk == chunks.start {
                // Merging into nothing would change no bit.
                std::mem::swap(&mut self.chunk, &mut self.total);
            } else {
                let width = if weigh { call.v().width() } else { 0 };
                self.total.merge(call, &mut self.chunk, width);
            }
        }
    }

    /// [`Scratch::run`] in the case of most short calls: all rows see the same keys, of one block,
    /// nothing comes between the stages, and they are not taken as they lie. `false` in any other case.
    fn run_at_once(
        &mut self,
        call: &Call<'_, T>,
        head: Head<'_>,
        packed: Option<Packed<'_, T::Real>>,
        ahead: &mut Ahead,
    ) -> bool {
        let Range { start, end } = self.seen;
        if call.by_dots || !self.alike || start >= end || end > BLOCK || !call.is_plain() {
            return false;
        }
        if packed.is_none() && self.stream(call).is_some() {
            return false;
        }
        let first = head.stretch.keys.start;
        let keys = first + start..first + end;
        let width = call.slots();
        let v = match call.v().one_piece(head.batch, head.kv_head, keys) {
            Some(rows) => match T::as_real(rows) {
                Some(rows) => rows,
                None => {
                    let packed = self.widen(call, head, packed, start..end);
                    widened(call, packed, &mut self.v, start..end)
                }
            },
            None => return false,
        };
        let k = match packed {
            Some(packed) => packed.tiles,
            None => {
                let k = self.k.get(BLOCK * width);
                pack(call, head, 0..end, &mut self.spare, k);
                k
            }
        };
        let count = self.rows.len();
        let q = in_place(call, head, &self.rows).unwrap_or_else(|| {
            Rows::new(self.q.get(count * width), 0, width as isize, count, width)
        });
        let stride = sums_stride(v.width());
        self.total.clear(count);
        self.corrections.resize(count, T::Real::ONE);
        self.spans.clear();
        let keys = Span {
            from: start,
            to: end,
        };
        self.spans.resize(count, keys);
        let sums = self.total.sums.get(count * stride);
        let x = self.x.get(count * STRIDE);
        let spans = &self.spans[..];
        let begun = (call.kernels.scores)(&Scores { q, spans, k }, x);
        let softmax = &mut Softmax {
            spans,
            x,
            max: &mut self.total.max,
            sums: &mut self.total.lanes,
            c: call.c,
        };
        let corrections = &mut self.corrections;
        (call.kernels.maxima)(softmax, Edit::None, begun, corrections);
        let values = Values {
            p: &[],
            spans,
            keys,
            v,
            start: Start::Zero,
        };
        (call.kernels.exponentials_and_values)(softmax, &values, sums, ahead.step(true));
        true
    }

    /// The state of all rows over one chunk of keys, in `chunk`; see [`Scratch::run`].
    pub(super) fn run_chunk(
        &mut self,
        call: &Call<'_, T>,
        head: Head<'_>,
        packed: Option<Packed<'_, T::Real>>,
        chunk: usize,
        weigh: bool,
        ahead: &mut Ahead,
    ) {
        let seen = self.seen();
        let rows = self.rows.len();
        self.chunk.clear(rows);
        let stride = sums_stride(call.v().width());
        let from = seen.start.max(chunk * CHUNK);
        let to = seen.end.min((chunk + 1) * CHUNK);
        if from >= to {
            self.chunk.sums.get(rows * stride).fill(T::Real::ZERO);
            return;
        }
        if call.bends() && call.direct().is_none() {
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
            self.open(call, head, packed, block);
            let first = block == from / BLOCK;
            let guarded = weigh && !self.values_are_finite(call, head, packed, block);
            let stream = self
                .stream(call)
                .filter(|_| weigh && !guarded && packed.is_none());
            let mut wide = None;
            if weigh && stream.is_none() {
                let keys = Span::union(&self.spans);
                let start = block * BLOCK;
                wide = self.widen(call, head, packed, start + keys.from..start + keys.to);
            }
            let meanwhile =
                weigh && !guarded && stream.is_none() && call.attention.dropout.is_none();
            let apart = call.bends() && (guarded || call.direct().is_none());
            let begun = self.score(call, head, packed, block, !apart);
            let how = Exponents {
                guarded,
                apart,
                begun,
                meanwhile,
            };
            self.exponentiate(call, head, block, how);
            if let Some(stream) = stream {
                self.weigh_unwidened(call, head, stream, block, first);
            } else if weigh {
                let how = How {
                    first,
                    guarded,
                    meanwhile,
                    asks: ahead.step(seen.end <= (block + 1) * BLOCK),
                };
                self.weigh(call, head, wide, block, how);
            }
        }
    }

    /// Goes on to a block of keys: what each row sees of it, and its packed keys.
    pub(super) fn open(
        &mut self,
        call: &Call<'_, T>,
        head: Head<'_>,
        packed: Option<Packed<'_, T::Real>>,
        block: usize,
    ) {
        let first = block * BLOCK;
        self.look(block);
        self.corrections.resize(self.rows.len(), T::Real::ONE);
        if packed.is_none() && !call.by_dots && self.stream(call).is_none() {
            let end = Span::union(&self.spans).to;
            let k = self.k.get(BLOCK * call.slots());
            pack(call, head, first..first + end, &mut self.spare, k);
        }
    }

    /// What takes keys and values as they lie, if nobody has packed them before: where queries are
    /// few, each is used so seldom that what counts is its way from memory.
    pub(super) fn stream<'s>(&self, call: &Call<'s, T>) -> Option<&'s Stream<T>> {
        let few = self.rows.len() <= FEW && self.seen.len() >= MANY_KEYS;
        few.then_some(&call.storage.stream)
    }

    /// What each row sees of a block.
    pub(super) fn look(&mut self, block: usize) {
        let first = block * BLOCK;
        let within = |key: usize| key.clamp(first, first + BLOCK) - first;
        self.spans.clear();
        if self.alike {
            let span = Span {
                from: within(self.seen.start),
                to: within(self.seen.end),
            };
            self.spans.resize(self.rows.len(), span);
        } else {
            self.spans.extend(self.rows.iter().map(|row| Span {
                from: within(row.sight.from),
                to: within(row.sight.to),
            }));
        }
    }

    /// Scores of the block that is open. With `begin`, the maxima may begin: of so many keys as are
    /// returned.
    pub(super) fn score(
        &mut self,
        call: &Call<'_, T>,
        head: Head<'_>,
        packed: Option<Packed<'_, T::Real>>,
        block: usize,
        begin: bool,
    ) -> usize {
        let width = call.slots();
        let count = self.rows.len();
        let unpacked = match packed {
            _ if call.by_dots => Some(call.storage.dots),
            None => self.stream(call).map(|stream| stream.scores),
            Some(_) => None,
        };
        let q = in_place(call, head, &self.rows).unwrap_or_else(|| {
            let q = &*self.q.get(count * width); // gathered by `take_rows`
            Rows::new(q, 0, width as isize, count, width)
        });
        let spans = &self.spans[..];
        let x = self.x.get(count * STRIDE);
        if let Some(unpacked) = unpacked {
            let keys = Span::union(spans);
            let start = head.stretch.keys.start + block * BLOCK;
            let range = start + keys.from..start + keys.to;
            let each = |k: Rows<'_, T>, skipped| {
                let from = keys.from + skipped;
                let to = from + k.count();
                let keys = Span { from, to };
                unpacked(&Unpacked { q, spans, keys, k }, x);
            };
            let (batch, kv_head) = (head.batch, head.kv_head);
            call.k().rows(batch, kv_head, range, &mut self.spare, each);
            return 0;
        }
        let k = match packed {
            Some(packed) => &packed.tiles[block * BLOCK * width..],
            None => self.k.get(BLOCK * width),
        };
        let edit = edit(call, head, block, &self.beside);
        let scores = &Scores { q, spans, k };
        match edit {
            Edit::None => {
                let begun = (call.kernels.scores)(scores, x);
                if begin { begun } else { 0 }
            }
            edit => (call.kernels.edited_scores)(scores, edit, begin, x),
        }
    }
}
