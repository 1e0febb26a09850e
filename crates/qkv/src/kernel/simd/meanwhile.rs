//! What is done while values are weighed, on what the processor has besides units for
//! multiply-adds.

use super::super::real::Real;
use super::asks::Asks;
use super::softmax::Left;
use super::vector::Vector;

/// Keys between two requests for memory, where there are no exponentials.
pub(super) const KEYS_AT_ONCE: usize = 8;

/// Exponentials of the next tile of queries, and memory to ask for, spread over the keys of this
/// one.
pub(super) struct Meanwhile<'a, T> {
    left: Option<Left<T>>,
    asks: &'a mut Asks,
    /// Lines that are asked for in the time of `KEYS_AT_ONCE` keys.
    at_once: usize,
}

impl<'a, T: Real> Meanwhile<'a, T> {
    pub(super) fn new(left: Option<Left<T>>, asks: &'a mut Asks, at_once: usize) -> Self {
        Meanwhile {
            left,
            asks,
            at_once,
        }
    }

    /// Exponentials of a row, if there are any, and how many tiles of it are left.
    #[inline(always)]
    pub(super) fn row(&mut self) -> Option<(&mut Left<T>, usize)> {
        let left = self.left.as_mut()?;
        let tiles = left.tiles_of_row();
        (tiles > 0).then_some((left, tiles))
    }

    /// Asks for as much memory as so many keys leave time for.
    #[inline(always)]
    pub(super) fn ask(&mut self, keys: usize) {
        self.asks.ask(self.at_once * keys.div_ceil(KEYS_AT_ONCE));
    }

    #[inline(always)]
    pub(super) unsafe fn finish<V: Vector<T = T>>(&mut self) {
        if let Some(left) = &mut self.left {
            unsafe { left.all::<V>() };
        }
    }
}
