//! Masks and biases that the maxima take along, on registers.

use super::bend::with_bias;
use super::vector::Vector;
use super::{Span, prefetch_at, prefetch_line};
use std::ops::Range;

/// What is done to the scores on the way to the maxima.
#[derive(Clone, Copy)]
pub enum Edit<'a, T> {
    /// Nothing.
    None,
    /// A mask, and what its value is for kept keys.
    Mask(Beside<'a, bool>, bool),
    /// A bias, and the scale: as [`Arithmetic`](super::Arithmetic) with nothing else.
    Bias(Beside<'a, T>, T),
}

/// Rows of a mask or bias that lie beside those of the scores.
#[derive(Clone, Copy)]
pub struct Beside<'a, U> {
    /// The whole mask or bias.
    pub data: &'a [U],
    /// Where in it each row begins.
    pub rows: &'a [usize],
    /// How far from there key 0 of the block is.
    pub first: usize,
}

impl<U> Beside<'_, U> {
    /// Whether there are enough rows and each is as long as its span needs.
    fn reaches(&self, spans: &[Span]) -> bool {
        let room = self.data.len().saturating_sub(self.first);
        self.rows.len() >= spans.len()
            && self.rows.iter().zip(spans).all(|(&row, span)| {
                span.is_empty() || room.checked_sub(row).is_some_and(|room| span.to <= room)
            })
    }

    /// Key 0 of the block of a row.
    #[inline(always)]
    unsafe fn row(&self, row: usize) -> *const U {
        let at = unsafe { self.rows.get_unchecked(row) };
        self.data.as_ptr().wrapping_add(at + self.first)
    }

    /// Asks for one line of each of some rows.
    fn find(&self, rows: Range<usize>, key: usize) {
        for row in &self.rows[rows] {
            let at = self.data.as_ptr().wrapping_add(row + self.first + key);
            prefetch_line(at.cast());
        }
    }

    /// Asks for some keys of some rows.
    fn ask(&self, rows: Range<usize>, keys: Span) {
        for row in &self.rows[rows] {
            let at = self
                .data
                .as_ptr()
                .wrapping_add(row + self.first + keys.from);
            // Each line by its last byte: of a row that begins within a line, the keys before have
            // asked for the first.
            prefetch_at(
                at.cast::<u8>().wrapping_add(63),
                keys.len() * size_of::<U>(),
            );
        }
    }
}

impl<T> Edit<'_, T> {
    /// Whether there are enough rows and each is as long as its span needs.
    pub(super) fn reaches(&self, spans: &[Span]) -> bool {
        match self {
            Edit::None => true,
            Edit::Mask(mask, _) => mask.reaches(spans),
            Edit::Bias(bias, _) => bias.reaches(spans),
        }
    }

    /// Has the processor look for the pages on which some rows lie, side by side: each of them alone
    /// would keep those that follow waiting.
    #[inline(always)]
    pub(super) fn find(&self, rows: Range<usize>, key: usize) {
        match self {
            Edit::None => {}
            Edit::Mask(mask, _) => mask.find(rows, key),
            Edit::Bias(bias, _) => bias.find(rows, key),
        }
    }

    /// Asks for what is beside some keys of some rows.
    #[inline(always)]
    pub(super) fn ask(&self, rows: Range<usize>, keys: Span) {
        match self {
            Edit::None => {}
            Edit::Mask(mask, _) => mask.ask(rows, keys),
            Edit::Bias(bias, _) => bias.ask(rows, keys),
        }
    }
}

/// An [`Edit`] of registers. Not a closure, since those are compiled for themselves first and
/// lack the instructions then.
pub(super) trait EditRegister<V: Vector> {
    /// What lies beside a row.
    type Row: Copy;

    unsafe fn row(&self, row: usize) -> Self::Row;

    /// `y` of key `at` of a row on, of which n numbers count.
    unsafe fn edit(&self, row: Self::Row, at: usize, n: usize, y: V) -> V;
}

pub(super) struct Plain;

impl<V: Vector> EditRegister<V> for Plain {
    type Row = ();

    #[inline(always)]
    unsafe fn row(&self, _: usize) {}

    #[inline(always)]
    unsafe fn edit(&self, (): (), _: usize, _: usize, y: V) -> V {
        y
    }
}

pub(super) struct Masked<'a> {
    pub(super) mask: Beside<'a, bool>,
    pub(super) kept: bool,
}

impl<V: Vector> EditRegister<V> for Masked<'_> {
    type Row = *const bool;

    #[inline(always)]
    unsafe fn row(&self, row: usize) -> *const bool {
        unsafe { self.mask.row(row) }
    }

    #[inline(always)]
    unsafe fn edit(&self, row: *const bool, at: usize, n: usize, y: V) -> V {
        unsafe {
            let mask = row.wrapping_add(at);
            y.dropped_unless(mask, n, self.kept)
        }
    }
}

pub(super) struct Biased<'a, T> {
    pub(super) bias: Beside<'a, T>,
    pub(super) factor: T,
}

impl<V: Vector> EditRegister<V> for Biased<'_, V::T> {
    type Row = *const V::T;

    #[inline(always)]
    unsafe fn row(&self, row: usize) -> *const V::T {
        unsafe { self.bias.row(row) }
    }

    #[inline(always)]
    unsafe fn edit(&self, row: *const V::T, at: usize, n: usize, y: V) -> V {
        unsafe {
            let bias = row.wrapping_add(at);
            with_bias(y, bias, n, self.factor)
        }
    }
}
