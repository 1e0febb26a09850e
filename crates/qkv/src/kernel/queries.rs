//! The queries of a block: what each sees, and where its numbers are.

use super::block::Scratch;
use super::call::{Call, neighbours, with_neighbours};
use super::packed::Head;
use super::real::{Float, Real};
use super::simd::Rows;
use super::visible::Sight;
use std::ops::Range;

/// A query of a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) head: usize,
    pub(super) query: usize,
    pub(super) sight: Sight,
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
        let viewer = call.visible.viewer(head.batch, head.stretch);
        self.alike = !call.visible.moves();
        if self.alike {
            let first = viewer.sight(queries.start);
            self.seen = first.from..first.to;
            for head in heads {
                self.rows.extend(
                    queries
                        .clone()
                        .zip(first.position..)
                        .map(|(query, position)| Row {
                            head,
                            query,
                            sight: Sight { position, ..first },
                        }),
                );
            }
        } else {
            let seen = queries.clone().map(|query| viewer.sight(query));
            let seen = seen.filter(|sight| sight.from < sight.to);
            self.seen = seen
                .map(|sight| sight.from..sight.to)
                .reduce(|a, b| a.start.min(b.start)..a.end.max(b.end))
                .unwrap_or_default();
            for head in heads {
                self.rows.extend(queries.clone().map(|query| Row {
                    head,
                    query,
                    sight: viewer.sight(query),
                }));
            }
        }
        self.beside.clear();
        if call.direct().is_some() {
            let rows = self.rows.iter();
            self.beside
                .extend(rows.map(|row| call.direct_row([head.batch, row.head, row.query])));
        }
        if in_place(call, head, &self.rows).is_none() {
            let q = self.q.get(self.rows.len() * call.slots());
            gather(call, head, &self.rows, &mut self.spare, q);
        }
    }
}

/// The queries where they are, if they are of one head, regular and need no change.
pub(super) fn in_place<'a, T: Float>(
    call: &Call<'a, T>,
    head: Head<'_>,
    rows: &[Row],
) -> Option<Rows<'a, T::Real>> {
    let (first, last) = (rows.first()?, rows.last()?);
    if call.sign != T::Real::ONE || first.head != last.head {
        return None;
    }
    let queries = first.query..last.query + 1;
    let rows = neighbours(&call.inputs.q(), head.batch, first.head, queries)?;
    if T::IS_REAL {
        T::as_real(rows)
    } else {
        (call.storage.in_place)(rows)
    }
}

/// The queries times the sign, one after the other.
fn gather<T: Float>(
    call: &Call<'_, T>,
    head: Head<'_>,
    rows: &[Row],
    spare: &mut Vec<T>,
    mut to: &mut [T::Real],
) {
    let q = call.inputs.q();
    let width = call.slots();
    for rows in rows.chunk_by(|a, b| a.head == b.head) {
        let (h, first) = (rows[0].head, rows[0].query);
        let (out, rest) = to.split_at_mut(rows.len() * width);
        to = rest;
        let queries = first..first + rows.len();
        with_neighbours(&q, head.batch, h, queries, spare, |rows| {
            (call.storage.queries)(rows, call.sign, out);
        });
    }
}
