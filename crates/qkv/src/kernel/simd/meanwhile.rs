//! What is done while values are weighed, on what the processor has besides units for
//! multiply-adds.

use super::super::real::Real;
use super::asks::Asks;
use super::softmax::Left;
use super::vector::Vector;

/// Keys between two looks at what else is to be done.
pub(super) const KEYS_AT_ONCE: usize = 8;

/// Exponentials of the next tile of queries, and memory to ask for, spread over the keys of this
/// one.
pub(super) struct Meanwhile<'a, T> {
    left: Option<Left<T>>,
    /// How often there is something to do, and how often it may be done.
    count: usize,
    looks: usize,
    due: usize,
    asks: &'a mut Asks,
    /// Lines that are asked for at once.
    at_once: usize,
}

impl<'a, T: Real> Meanwhile<'a, T> {
    #[inline(always)]
    pub(super) unsafe fn new(
        left: Option<Left<T>>,
        keys: usize,
        asks: &'a mut Asks,
        at_once: usize,
    ) -> Self {
        Meanwhile {
            asks,
            at_once,
            count: left.map_or(0, |left| unsafe { left.count() }),
            left,
            looks: keys.div_ceil(KEYS_AT_ONCE),
            due: 0,
        }
    }

    #[inline(always)]
    pub(super) unsafe fn look<V: Vector<T = T>>(&mut self) {
        self.asks.ask(self.at_once);
        self.due += self.count;
        while self.due >= self.looks {
            self.due -= self.looks;
            if let Some(left) = &mut self.left {
                unsafe { left.some::<V>() };
            }
        }
    }

    #[inline(always)]
    pub(super) unsafe fn finish<V: Vector<T = T>>(&mut self) {
        if let Some(left) = &mut self.left {
            unsafe { left.all::<V>() };
        }
    }
}
