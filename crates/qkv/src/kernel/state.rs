//! The running sums of a block of queries, and how those of two chunks of keys are merged.

use super::call::Call;
use super::real::{Real, Stored};
use super::simd::{Aligned, TILE, sums_stride};

/// The running sums of some queries.
#[derive(Default)]
pub(super) struct State<T> {
    pub(super) max: Vec<T>,
    pub(super) lanes: Vec<[T; TILE]>,
    pub(super) sums: Aligned<T>,
}

impl<T: Real> State<T> {
    /// Nothing summed; `sums` are of any value and taken as 0 by the first block.
    pub(super) fn clear(&mut self, rows: usize) {
        self.max.clear();
        self.max.resize(rows, T::NEG_INFINITY);
        self.lanes.clear();
        self.lanes.resize(rows, [T::ZERO; TILE]);
    }

    /// Numbers that [`State::save`] writes.
    pub(super) fn saved_len(rows: usize, width: usize) -> usize {
        rows * (1 + TILE + sums_stride(width))
    }

    /// Writes the state to memory.
    pub(super) fn save(&mut self, width: usize, to: &mut [T]) {
        let rows = self.max.len();
        let (max, rest) = to.split_at_mut(rows);
        let (lanes, sums) = rest.split_at_mut(rows * TILE);
        max.copy_from_slice(&self.max);
        lanes.copy_from_slice(self.lanes.as_flattened());
        sums.copy_from_slice(self.sums.get(rows * sums_stride(width)));
    }

    /// Reads a saved state.
    pub(super) fn load(&mut self, rows: usize, width: usize, from: &[T]) {
        self.clear(rows);
        let (max, rest) = from.split_at(rows);
        let (lanes, sums) = rest.split_at(rows * TILE);
        self.max.copy_from_slice(max);
        self.lanes.as_flattened_mut().copy_from_slice(lanes);
        self.sums.get(sums.len()).copy_from_slice(sums);
        debug_assert_eq!(sums.len(), rows * sums_stride(width));
    }

    /// Adds the state of later keys.
    pub(super) fn merge<E: Stored<Real = T>>(
        &mut self,
        call: &Call<'_, E>,
        later: &mut State<T>,
        width: usize,
    ) {
        let rows = self.max.len();
        let stride = sums_stride(width);
        let sums = self.sums.get(rows * stride);
        let later_sums = later.sums.get(rows * stride);
        for i in 0..rows {
            let (old, new) = (self.max[i], later.max[i]);
            let max = if new > old { new } else { old };
            let a = (call.kernels.correction)(old, max, call.c);
            let b = (call.kernels.correction)(new, max, call.c);
            self.max[i] = max;
            for (lane, later) in self.lanes[i].iter_mut().zip(&later.lanes[i]) {
                *lane = *lane * a + *later * b;
            }
            let row = i * stride..(i + 1) * stride;
            (call.kernels.add)(&mut sums[row.clone()], a, &later_sums[row], b);
        }
    }
}
