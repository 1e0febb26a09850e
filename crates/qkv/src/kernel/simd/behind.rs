//! What is done while scores are computed, on what the processor has besides units for
//! multiply-adds: the scores before are edited and their maxima begun, and memory of masks is asked
//! for.

use super::super::real::Real;
use super::edit::{Biased, Edit, EditRegister, Masked};
use super::vector::Vector;
use super::{BLOCK, STRIDE, Span};
use std::ops::Range;

/// Scores that are there already, spread over the columns of those of the next tile.
pub(super) struct Behind<'a, T> {
    /// Row i, key j at `x[i·STRIDE + j]`.
    pub(super) x: *mut T,
    /// The rows that are left.
    pub(super) rows: Range<usize>,
    /// Their keys, whole tiles; none, if the maxima shall not begin.
    pub(super) keys: Span,
    /// Rows whose masks are asked for, and for which keys.
    pub(super) asks: Range<usize>,
    pub(super) next: Span,
    pub(super) edit: Edit<'a, T>,
    /// Rows that are done at a look.
    pub(super) at_once: usize,
}

impl<T: Real> Behind<'_, T> {
    /// The rows exist.
    #[inline(always)]
    pub(super) unsafe fn look<V: Vector<T = T>>(&mut self) {
        for _ in 0..self.at_once {
            unsafe { self.one::<V>() };
        }
    }

    /// All that is left.
    #[inline(always)]
    pub(super) unsafe fn finish<V: Vector<T = T>>(&mut self) {
        while !self.rows.is_empty() || !self.asks.is_empty() {
            unsafe { self.one::<V>() };
        }
    }

    #[inline(always)]
    unsafe fn one<V: Vector<T = T>>(&mut self) {
        if let Some(row) = self.asks.next() {
            self.edit.ask(row..row + 1, self.next);
        }
        if let Some(row) = self.rows.next() {
            unsafe { begin::<V>(self.x.add(row * STRIDE), row, self.keys, &self.edit) };
        }
    }
}

/// Edits whole tiles of a row and puts the largest of its numbers so far behind it, lane by lane:
/// those of keys from 0 on belong together.
#[inline(always)]
unsafe fn begin<V: Vector>(x: *mut V::T, row: usize, keys: Span, edit: &Edit<'_, V::T>) {
    if keys.is_empty() {
        return;
    }
    unsafe {
        match *edit {
            Edit::None => {}
            Edit::Mask(mask, kept) => begin_with::<V>(x, row, keys, &Masked { mask, kept }),
            Edit::Bias(bias, factor) => begin_with::<V>(x, row, keys, &Biased { bias, factor }),
        }
    }
}

#[inline(always)]
unsafe fn begin_with<V: Vector>(x: *mut V::T, row: usize, keys: Span, edit: &impl EditRegister<V>) {
    unsafe {
        let behind = x.add(BLOCK);
        let mut largest = V::splat(V::T::NEG_INFINITY);
        if keys.from > 0 {
            largest = V::load(behind);
        }
        let row = edit.row(row);
        let mut at = keys.from;
        while at < keys.to {
            let y = edit.edit(row, at, V::LANES, V::load(x.add(at)));
            y.store(x.add(at));
            largest = y.max(largest);
            at += V::LANES;
        }
        largest.store(behind);
    }
}
