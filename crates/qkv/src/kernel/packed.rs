//! The keys and values of a head in the form that the kernels take.

use super::block::Scratch;
use super::call::Call;
use super::real::Float;
use super::simd::{Aligned, Rows};
use super::visible::Stretch;
use std::ops::Range;

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
    /// Rows of values from the first key of the stretch on, if they need conversion.
    pub(super) values: &'k [T],
    /// Whether the values of each block are finite; empty where that does not matter.
    pub(super) finite: &'k [bool],
}

/// Packs the keys `from..to` of a head's stretch; `from` is a multiple of [`BLOCK`].
pub(super) fn pack<T: Float>(
    call: &Call<'_, T>,
    head: Head<'_>,
    keys: Range<usize>,
    spare: &mut Vec<T>,
    out: &mut [T::Real],
) {
    let first = head.stretch.keys.start;
    let range = first + keys.start..first + keys.end;
    call.k()
        .one_run(head.batch, head.kv_head, range, spare, |rows| {
            (call.storage.pack)(rows, out);
        });
}

/// Numbers that the values of so many keys take besides, if they need conversion.
pub(super) fn widened_len<T: Float>(call: &Call<'_, T>, keys: usize) -> usize {
    if T::IS_REAL {
        0
    } else {
        keys.div_ceil(call.storage.depth) * call.v().width()
    }
}

/// Converts the values of some keys of a head's stretch, if they need it.
pub(super) fn widen_values<T: Float>(
    call: &Call<'_, T>,
    head: Head<'_>,
    keys: Range<usize>,
    spare: &mut Vec<T>,
    out: &mut [T::Real],
) {
    if T::IS_REAL {
        return;
    }
    let first = head.stretch.keys.start;
    let range = first + keys.start..first + keys.end;
    let (b, g) = (head.batch, head.kv_head);
    let (width, depth) = (call.v().width(), call.storage.depth);
    if depth == 1 {
        call.v().rows(b, g, range, spare, |rows, skipped| {
            (call.storage.values)(rows, &mut out[skipped * width..]);
        });
    } else if keys.start.is_multiple_of(depth) {
        call.v().one_run(b, g, range, spare, |rows| {
            (call.storage.values)(rows, out);
        });
    } else {
        // Zeros in the place of what comes before.
        spare.clear();
        spare.resize(keys.start % depth * width, T::default());
        call.v().copy(b, g, range, spare);
        let rows = spare.len() / width.max(1);
        (call.storage.values)(Rows::new(spare, 0, width as isize, rows, width), out);
    }
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
            finite &= (call.storage.all_finite)(rows);
        });
    finite
}

/// The values that [`Scratch::widen`] has converted, or somebody before: rows of values, or of as
/// many neighbouring ones as lie in one place.
pub(super) fn widened<'r, T: Float>(
    call: &Call<'_, T>,
    packed: Option<Packed<'r, T::Real>>,
    v: &'r mut Aligned<T::Real>,
    keys: Range<usize>,
) -> Rows<'r, T::Real> {
    let (width, depth) = (call.v().width(), call.storage.depth);
    let first = keys.start / depth;
    let count = keys.end.div_ceil(depth) - first;
    let (data, start) = match packed {
        Some(packed) => (packed.values, first * width),
        None => (&*v.get(count * width), 0),
    };
    Rows::new(data, start, width as isize, count, width)
}

impl<'k, T> Packed<'k, T> {
    /// Itself, if no value of keys outside lies in one place with one of `keys`: their weights are
    /// 0, but they may be NaN.
    fn apart<E: Float<Real = T>>(
        self,
        call: &Call<'_, E>,
        head: Head<'_>,
        keys: Range<usize>,
    ) -> Option<Self> {
        let depth = call.storage.depth;
        let end = keys.end.is_multiple_of(depth) || keys.end == head.stretch.keys.len();
        (keys.start.is_multiple_of(depth) && end).then_some(self)
    }
}

impl<T: Float> Scratch<T> {
    /// Converts the values of some keys of a head's stretch, if they need it and have not been
    /// converted before; returns where that is to be looked for.
    pub(super) fn widen<'k>(
        &mut self,
        call: &Call<'_, T>,
        head: Head<'_>,
        packed: Option<Packed<'k, T::Real>>,
        keys: Range<usize>,
    ) -> Option<Packed<'k, T::Real>> {
        let packed = packed.and_then(|packed| packed.apart(call, head, keys.clone()));
        if packed.is_none() {
            let from = keys.start / call.storage.depth * call.storage.depth;
            let v = self.v.get(widened_len(call, keys.end - from));
            widen_values(call, head, keys, &mut self.spare, v);
        }
        packed
    }
}
