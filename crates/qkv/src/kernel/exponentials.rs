//! Second stage of a block: what comes between scores and softmax, and the softmax.

use super::block::{Head, Scratch};
use super::call::Call;
use super::call::piece;
use super::real::Float;
use super::simd::{BLOCK, Bend, STRIDE, Softmax};
use std::ops::Range;

/// Queries of a tile of any instruction set at most.
const MOST_TILE_ROWS: usize = 6;

impl<T: Float> Scratch<T> {
    /// What comes between scores and softmax, for some of the rows; `origin` is the row whose
    /// scores are first in memory.
    pub(super) fn bend(
        &mut self,
        call: &Call<'_, T>,
        head: Head<'_>,
        block: usize,
        rows: Range<usize>,
        origin: usize,
    ) {
        if !call.bends() {
            return;
        }
        let x = self.x.get((rows.end - origin) * STRIDE);
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
            (call.kernels.bend)(&bend, &mut x[(i - origin) * STRIDE..][..STRIDE]);
        }
    }

    /// Exponentials in place of scores.
    pub(super) fn exponentiate(
        &mut self,
        call: &Call<'_, T>,
        head: Head<'_>,
        block: usize,
        rows: Range<usize>,
        guarded: bool,
    ) {
        let origin = rows.start;
        let step = if call.bends() {
            call.kernels.tile_rows // the softmax follows while the row is at hand
        } else {
            rows.len()
        };
        for first in rows.clone().step_by(step) {
            let tile = first..(first + step).min(rows.end);
            // A plain mask needs no pass of its own.
            let direct = call.direct_mask().filter(|_| !guarded);
            let mut masks: [&[bool]; MOST_TILE_ROWS] = [&[]; MOST_TILE_ROWS];
            let mut known = 0;
            if let Some((mask, _)) = direct {
                let keys = head.stretch.keys.start + block * BLOCK;
                for (i, to) in tile.clone().zip(&mut masks) {
                    let row = &self.rows[i];
                    let at = [head.batch, row.head, row.query];
                    let end = head.stretch.keys.start + row.sight.to;
                    call.prefetch_rows(at, keys + BLOCK..(keys + 2 * BLOCK).min(end));
                    *to = piece(&mask, at, keys..keys + self.spans[i].to).unwrap_or_default();
                    known += 1;
                }
            } else {
                self.bend(call, head, block, tile.clone(), origin);
            }
            let x = self.x.get((tile.end - origin) * STRIDE);
            let x = &mut x[(first - origin) * STRIDE..];
            if guarded {
                self.kept.resize(self.rows.len(), [false; BLOCK]);
                for (i, x) in tile.clone().zip(x.chunks_exact(STRIDE)) {
                    let span = self.spans[i];
                    self.kept[i].fill(false);
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
                masks: &masks[..known],
                kept: direct.is_some_and(|(_, kept)| kept),
            });
        }
        if let Some(dropout) = call.attention.dropout {
            let x = self.x.get(rows.len() * STRIDE);
            let start = head.stretch.keys.start;
            for (i, x) in rows.zip(x.chunks_exact_mut(STRIDE)) {
                let (row, span) = (&self.rows[i], self.spans[i]);
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
}
