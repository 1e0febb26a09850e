//! Third stage of a block: the weighted sums of values.

use super::block::Scratch;
use super::call::Call;
use super::packed::{Head, Packed, values_finite, widened};
use super::real::{Float, Real};
use super::simd::{Asks, BLOCK, Rows, STRIDE, Softmax, Span, Start, Stream, Values, sums_stride};

/// How the values of a block are weighed.
pub(super) struct How {
    /// There are no sums yet.
    pub(super) first: bool,
    /// Values of dropped keys may not be finite.
    pub(super) guarded: bool,
    /// The exponentials are still to be computed.
    pub(super) meanwhile: bool,
    /// What is asked for.
    pub(super) asks: Asks,
}

impl<T: Float> Scratch<T> {
    /// Whether no dropped key of the block can have a value that is infinite or NaN.
    pub(super) fn values_are_finite(
        &mut self,
        call: &Call<'_, T>,
        head: Head<'_>,
        packed: Option<Packed<'_, T::Real>>,
        block: usize,
    ) -> bool {
        if self.alike && !call.drops_single_keys() {
            return true; // no key is dropped
        }
        let union = Span::union(&self.spans);
        if !call.drops_single_keys() && self.spans.iter().all(|span| *span == union) {
            return true;
        }
        match packed.and_then(|packed| packed.finite.get(block)) {
            Some(&finite) => finite,
            None => {
                let keys = block * BLOCK + union.from..block * BLOCK + union.to;
                values_finite(call, head, keys, &mut self.spare)
            }
        }
    }

    /// Adds the weighted values of the block that is open, whose weights are known, for all rows:
    /// the same sums as those of [`Scratch::weigh`], from values as they lie.
    pub(super) fn weigh_unwidened(
        &mut self,
        call: &Call<'_, T>,
        head: Head<'_>,
        stream: &Stream<T>,
        block: usize,
        first: bool,
    ) {
        let (rows, stride) = (self.rows.len(), sums_stride(call.v().width()));
        let x = self.x.get(rows * STRIDE);
        let sums = self.chunk.sums.get(rows * stride);
        let unfinished = self.weighed.get(rows * stride);
        let union = Span::union(&self.spans);
        if union.is_empty() {
            if first {
                sums.fill(T::Real::ZERO);
            }
            return;
        }
        if !self.alike {
            // The maxima have done so in their tiles, which are of other queries.
            for (span, x) in self.spans.iter().zip(x.chunks_exact_mut(STRIDE)) {
                let kept = span.tiles().within(union.from, union.to);
                x[union.from..kept.from].fill(T::Real::ZERO);
                x[kept.to..union.to].fill(T::Real::ZERO);
            }
        }
        (call.kernels.round)(&self.spans, x);
        let start = if first {
            Start::Zero
        } else {
            Start::Times(&self.corrections)
        };
        let spans = &self.spans;
        let first = head.stretch.keys.start + block * BLOCK;
        let range = first + union.from..first + union.to;
        let (b, g) = (head.batch, head.kv_head);
        call.v().one_run(b, g, range, &mut self.spare, |v| {
            let values = Values {
                p: x,
                spans,
                keys: union,
                v,
                start,
            };
            (stream.values)(&values, unfinished, sums);
        });
    }

    /// Adds the weighted values of the block that is open.
    pub(super) fn weigh(
        &mut self,
        call: &Call<'_, T>,
        head: Head<'_>,
        packed: Option<Packed<'_, T::Real>>,
        block: usize,
        how: How,
    ) {
        let How {
            first,
            guarded,
            meanwhile,
            mut asks,
        } = how;
        if !meanwhile {
            asks.ask(usize::MAX);
        }
        let rows = self.rows.len();
        let x = self.x.get(rows * STRIDE);
        let stride = sums_stride(call.v().width());
        let sums = self.chunk.sums.get(rows * stride);
        let spans = &self.spans[..];
        let union = Span::union(spans);
        let start = head.stretch.keys.start + block * BLOCK;
        let begin = if first {
            Start::Zero
        } else {
            Start::Times(&self.corrections)
        };
        if union.is_empty() {
            if first {
                sums.fill(T::Real::ZERO);
            }
            return;
        }
        let depth = call.storage.depth;
        let keys = Span {
            from: union.from / depth * depth,
            to: union.to,
        };
        if guarded && depth > 1 {
            (call.kernels.round)(spans, x);
            let width = call.v().width();
            let range = start + union.from..start + union.to;
            for (i, sums) in sums.chunks_exact_mut(stride.max(1)).enumerate() {
                // The values of dropped keys are taken as 0, as what comes before the first is.
                let kept = &self.kept[i];
                let spare = &mut self.spare;
                spare.clear();
                spare.resize((union.from - keys.from) * width, T::default());
                call.v()
                    .copy(head.batch, head.kv_head, range.clone(), spare);
                for (j, row) in (keys.from..).zip(spare.chunks_exact_mut(width.max(1))) {
                    if !kept[j] {
                        row.fill(T::default());
                    }
                }
                let count = keys.len().div_ceil(depth);
                let v = self.v.get(count * width);
                (call.storage.values)(Rows::new(spare, 0, width as isize, keys.len(), width), v);
                let values = Values {
                    p: &x[i * STRIDE..],
                    spans: &spans[i..=i],
                    keys,
                    v: Rows::new(v, 0, width as isize, count, width),
                    start: match begin {
                        Start::Times(factors) => Start::Times(&factors[i..]),
                        start => start,
                    },
                };
                (call.kernels.values)(&values, sums);
            }
            return;
        }
        let (kept, weighed) = (&self.kept, self.weighed.get(stride));
        let mut weigh = |v: Rows<'_, T::Real>| {
            if guarded {
                for (i, sums) in sums.chunks_exact_mut(stride.max(1)).enumerate() {
                    let mut factor = match begin {
                        Start::Times(factors) => Some(factors[i]),
                        _ => None,
                    };
                    for keys in union.chains() {
                        let v = v.part(keys.from - union.from..keys.to - union.from);
                        let kept = &kept[i];
                        weigh_kept(call, &x[i * STRIDE..], kept, keys, v, weighed);
                        match factor {
                            Some(factor) => (call.kernels.add)(sums, factor, weighed, T::Real::ONE),
                            None => sums.copy_from_slice(weighed),
                        }
                        factor = Some(T::Real::ONE);
                    }
                }
            } else if meanwhile {
                (call.kernels.exponentials_and_values)(
                    &mut Softmax {
                        spans,
                        x,
                        max: &mut self.chunk.max,
                        sums: &mut self.chunk.lanes,
                        c: call.c,
                    },
                    &Values {
                        p: &[],
                        spans,
                        keys,
                        v,
                        start: begin,
                    },
                    sums,
                    asks,
                );
            } else {
                (call.kernels.round)(spans, x);
                (call.kernels.values)(
                    &Values {
                        p: x,
                        spans,
                        keys,
                        v,
                        start: begin,
                    },
                    sums,
                );
            }
        };
        if T::IS_REAL {
            // One run, since a chain must not be broken.
            let range = start + union.from..start + union.to;
            call.v()
                .one_run(head.batch, head.kv_head, range, &mut self.spare, |rows| {
                    if let Some(v) = T::as_real(rows) {
                        weigh(v);
                    }
                });
        } else {
            let keys = block * BLOCK + union.from..block * BLOCK + union.to;
            weigh(widened(call, packed, &mut self.v, keys));
        }
    }
}

/// Weighs the kept keys of one row and chain only, in runs of neighbours: the same sums as where
/// dropped keys have p = 0, but their values are not read.
fn weigh_kept<T: Float>(
    call: &Call<'_, T>,
    p: &[T::Real],
    kept: &[bool; BLOCK],
    keys: Span,
    v: Rows<'_, T::Real>,
    sums: &mut [T::Real],
) {
    let mut start = Start::Zero;
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
