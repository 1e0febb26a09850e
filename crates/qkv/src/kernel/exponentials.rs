//! Second stage of a block: what comes between scores and softmax, and the softmax.

use super::block::Scratch;
use super::call::{Call, Direct};
use super::packed::Head;
use super::real::{Float, Real};
use super::simd::{BLOCK, Bend, Beside, Edit, STRIDE, Softmax};
use std::ops::Range;

/// Queries that masks and biases are applied to at once; a whole number of tiles.
const ROWS_EDITED: usize = 12;

/// How the exponentials of a block come from its scores.
#[derive(Clone, Copy)]
pub(super) struct Exponents {
    /// Values of dropped keys may not be finite.
    pub(super) guarded: bool,
    /// What comes between scores and softmax has a pass of its own.
    pub(super) apart: bool,
    /// Keys whose maxima have begun.
    pub(super) begun: usize,
    /// The exponentials are left to the values.
    pub(super) meanwhile: bool,
}

/// What the maxima of some rows take along: a plain mask or bias needs no pass of its own. They begin
/// at `rows` in it.
pub(super) fn edit<'e, T: Float>(
    call: &Call<'e, T>,
    head: Head<'_>,
    block: usize,
    rows: &'e [usize],
) -> Edit<'e, T::Real> {
    let first = head.stretch.keys.start + block * BLOCK;
    match call.direct() {
        None => Edit::None,
        Some(Direct::Mask(mask, kept)) => {
            let (data, _) = mask.raw();
            Edit::Mask(Beside { data, rows, first }, kept)
        }
        Some(Direct::Bias(bias, factor)) => {
            let (data, _) = bias.raw();
            Edit::Bias(Beside { data, rows, first }, factor)
        }
    }
}

impl<T: Float> Scratch<T> {
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
        let x = self.x.get(rows.end * STRIDE);
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

    /// What comes between scores and softmax, and the maxima; where the values do not meanwhile,
    /// also the exponentials in place of the scores.
    pub(super) fn exponentiate(
        &mut self,
        call: &Call<'_, T>,
        head: Head<'_>,
        block: usize,
        how: Exponents,
    ) {
        let Exponents {
            guarded,
            apart,
            begun,
            meanwhile,
        } = how;
        let rows = self.rows.len();
        if guarded {
            self.kept.resize(rows, [false; BLOCK]);
            let first = head.stretch.keys.start + block * BLOCK;
            for (i, row) in self.rows.iter().enumerate() {
                let at = [head.batch, row.head, row.query];
                call.mark_kept(at, first, self.spans[i], &mut self.kept[i]);
            }
        }
        let step = if apart {
            ROWS_EDITED // the maxima follow while the rows are at hand
        } else {
            rows
        };
        for first in (0..rows).step_by(step) {
            let tile = first..(first + step).min(rows);
            if apart {
                self.bend(call, head, block, tile.clone());
            }
            let x = self.x.get(tile.end * STRIDE);
            let x = &mut x[first * STRIDE..];
            (call.kernels.maxima)(
                &mut Softmax {
                    spans: &self.spans[tile.clone()],
                    x,
                    max: &mut self.chunk.max[tile.clone()],
                    sums: &mut self.chunk.lanes[tile.clone()],
                    c: call.c,
                },
                if apart {
                    Edit::None
                } else {
                    edit(
                        call,
                        head,
                        block,
                        self.beside.get(tile.clone()).unwrap_or_default(),
                    )
                },
                begun,
                &mut self.corrections[tile],
            );
        }
        if meanwhile {
            return;
        }
        (call.kernels.exponentials)(&mut Softmax {
            spans: &self.spans,
            x: self.x.get(rows * STRIDE),
            max: &mut self.chunk.max,
            sums: &mut self.chunk.lanes,
            c: call.c,
        });
        if let Some(dropout) = call.attention.dropout {
            let x = self.x.get(rows * STRIDE);
            let start = head.stretch.keys.start;
            for (i, x) in x.chunks_exact_mut(STRIDE).enumerate() {
                let (row, span) = (&self.rows[i], self.spans[i]);
                let position = (start as i64).saturating_add(row.sight.position);
                for j in span.from..span.to {
                    let key = start + block * BLOCK + j;
                    if crate::definition::drops(dropout, head.batch, row.head, position, key) {
                        x[j] = T::Real::ZERO;
                    }
                }
            }
        }
    }
}
