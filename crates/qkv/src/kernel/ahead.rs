//! Memory that is needed next, asked for while there is work.

use super::call::{Call, neighbours};
use super::packed::Head;
use super::real::Float;
use super::simd::{Rows, prefetch_for_later};
use std::ops::Range;

/// Larger heads are long enough to find their own memory in time, and would fill the cache.
const MOST_BYTES: usize = 256 << 10;

/// What comes next of queries, keys and values.
pub(super) struct Ahead<'a, T> {
    left: [&'a [T]; 3],
    /// Numbers asked for at once.
    at_once: usize,
}

impl<'a, T: Float> Ahead<'a, T> {
    pub(super) fn nothing() -> Self {
        Ahead {
            left: [&[]; 3],
            at_once: 0,
        }
    }

    /// The memory of a head, as far as it is in one piece and not large, in so many steps.
    pub(super) fn head(call: &Call<'a, T>, head: Head<'_>, steps: usize) -> Self {
        let keys = head.stretch.keys.clone();
        let first_head = head.kv_head * call.group;
        let queries = head.stretch.queries.clone();
        let q = (first_head..first_head + call.group)
            .map(|h| flat(neighbours(&call.inputs.q(), head.batch, h, queries.clone())));
        let left = [
            flat(call.k().one_piece(head.batch, head.kv_head, keys.clone())),
            flat(call.v().one_piece(head.batch, head.kv_head, keys)),
            q.last().unwrap_or_default(),
        ];
        let bytes: usize = left.iter().map(|part| size_of_val(*part)).sum();
        if bytes > MOST_BYTES {
            return Ahead::nothing();
        }
        Ahead::in_steps(left, steps)
    }

    /// Some queries of a head, as far as they are in one piece, in so many steps.
    pub(super) fn queries(
        call: &Call<'a, T>,
        head: Head<'_>,
        h: usize,
        queries: Range<usize>,
        steps: usize,
    ) -> Self {
        let q = flat(neighbours(&call.inputs.q(), head.batch, h, queries));
        Ahead::in_steps([q, &[], &[]], steps)
    }

    fn in_steps(left: [&'a [T]; 3], steps: usize) -> Self {
        let count: usize = left.iter().map(|part| part.len()).sum();
        Ahead {
            left,
            at_once: count.div_ceil(steps.max(1)),
        }
    }

    /// Whether all of it has been asked for.
    pub(super) fn is_done(&self) -> bool {
        self.left.iter().all(|part| part.is_empty())
    }

    /// Asks for some more of it.
    pub(super) fn step(&mut self) {
        let mut count = self.at_once;
        for part in &mut self.left {
            let (now, later) = part.split_at(count.min(part.len()));
            prefetch_for_later(now);
            *part = later;
            count -= now.len();
        }
    }
}

fn flat<'a, T>(rows: Option<Rows<'a, T>>) -> &'a [T] {
    rows.and_then(|rows| rows.flat()).unwrap_or_default()
}
