//! Memory that is needed next, asked for while there is work.

use super::block::Head;
use super::call::Call;
use super::real::Float;
use super::simd::prefetch;

/// Larger heads are long enough to find their own memory in time, and would fill the cache.
const MOST_BYTES: usize = 256 << 10;

/// Bytes asked for at once.
const STEP_BYTES: usize = 16 << 10;

/// Queries, keys and values of the head that comes next.
pub(super) struct Ahead<'a, T> {
    left: [&'a [T]; 3],
}

impl<'a, T: Float> Ahead<'a, T> {
    pub(super) fn nothing() -> Self {
        Ahead { left: [&[]; 3] }
    }

    /// The memory of a head, as far as it is in one piece and not large.
    pub(super) fn of(call: &Call<'a, T>, head: Head<'_>) -> Self {
        let keys = head.stretch.keys.clone();
        let flat = |rows: Option<super::simd::Rows<'a, T>>| {
            rows.and_then(|rows| rows.flat()).unwrap_or_default()
        };
        let first_head = head.kv_head * call.group;
        let queries = head.stretch.queries.clone();
        let q = (0..call.group).map(|h| {
            let q = call.inputs.q();
            flat(super::call::neighbours(
                &q,
                head.batch,
                first_head + h,
                queries.clone(),
            ))
        });
        let left = [
            flat(call.k().one_piece(head.batch, head.kv_head, keys.clone())),
            flat(call.v().one_piece(head.batch, head.kv_head, keys)),
            q.last().unwrap_or_default(),
        ];
        let bytes: usize = left.iter().map(|part| size_of_val(*part)).sum();
        if bytes > MOST_BYTES {
            return Ahead::nothing();
        }
        Ahead { left }
    }

    /// Asks for some more of it.
    pub(super) fn step(&mut self) {
        let mut count = STEP_BYTES / size_of::<T>();
        for part in &mut self.left {
            let (now, later) = part.split_at(count.min(part.len()));
            prefetch(now);
            *part = later;
            count -= now.len();
        }
    }
}
