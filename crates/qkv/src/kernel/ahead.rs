//! Memory that is needed next, asked for while there is work.

use super::call::{Call, neighbours};
use super::packed::Head;
use super::real::Float;
use super::simd::{Asks, Claim, Rows};
use std::ops::Range;

/// Larger heads are long enough to find their own memory in time, and would fill the cache.
const MOST_BYTES: usize = 256 << 10;

/// Memory to be asked for in steps.
#[derive(Default)]
pub(super) struct Ahead {
    /// What the next head needs, and how many lines of it a step takes.
    head: (Asks, usize),
    /// What is needed when the queries at hand are done, in the step of their last block of keys.
    last: Asks,
}

impl Ahead {
    /// The memory of a head, as far as it is in one piece and not large, in so many steps.
    pub(super) fn head<T: Float>(call: &Call<'_, T>, head: Head<'_>, steps: usize) -> Self {
        let keys = head.stretch.keys.clone();
        let queries = head.stretch.queries.clone();
        let last_head = (head.kv_head + 1) * call.group - 1;
        let q = neighbours(&call.inputs.q(), head.batch, last_head, queries);
        let parts = [
            flat(call.k().one_piece(head.batch, head.kv_head, keys.clone())),
            flat(call.v().one_piece(head.batch, head.kv_head, keys)),
            flat(q),
        ];
        let bytes: usize = parts.iter().map(|part| size_of_val(*part)).sum();
        let mut ahead = Ahead::default();
        if bytes <= MOST_BYTES {
            for part in parts {
                ahead.head.0.add(part.as_ptr(), part.len(), 1, 0);
            }
            ahead.head.1 = ahead.head.0.lines().div_ceil(steps.max(1));
        }
        ahead
    }

    /// Where some queries leave their output, and the queries of a head that are next, as far as
    /// they are in one piece.
    pub(super) fn queries<T: Float>(
        &mut self,
        call: &Call<'_, T>,
        head: Head<'_>,
        claim: &Claim<'_, T>,
        (heads, queries): (Range<usize>, Range<usize>),
        next: Option<(usize, Range<usize>)>,
    ) {
        self.last = Asks::default();
        if let Some((h, queries)) = next {
            let q = flat(neighbours(&call.inputs.q(), head.batch, h, queries));
            self.last.add(q.as_ptr(), q.len(), 1, 0);
        }
        heads.for_each(|h| claim.add_to(&mut self.last, h, queries.clone()));
    }

    /// What is to be asked for now.
    pub(super) fn step(&mut self, last: bool) -> Asks {
        let mut now = Asks::default();
        if last {
            now = std::mem::take(&mut self.last);
        }
        self.head.0.hand_over(self.head.1, &mut now);
        now
    }
}

fn flat<'a, T>(rows: Option<Rows<'a, T>>) -> &'a [T] {
    rows.and_then(|rows| rows.flat()).unwrap_or_default()
}
