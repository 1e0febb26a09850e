//! Attention of a head of few queries over one tile of keys, in one go.
//!
//! What the stages do, number by number in the same order: each of them looks at its arguments
//! anew, which would take as long as the arithmetic.

use super::super::real::{Real, Stored};
use super::few::Head;
use super::pack::TILE;
use super::softmax::across;
use super::vector::{OnLines, Vector};
use std::mem::MaybeUninit;

/// Columns of queries and keys at most.
pub const MOST_COLUMNS: usize = 64;

/// Room for turned keys: `[column·16 + key]`.
pub(super) type Turned<T> = MaybeUninit<[T; TILE * MOST_COLUMNS]>;

/// Whether numbers need no conversion, and registers are wide enough for it to be worthwhile.
pub(super) const fn suit<V: Vector, E: Stored>() -> bool {
    E::IS_REAL && 2 * V::LANES >= TILE
}

impl<T: Real> Head<T> {
    /// Turns the keys, of up to [`MOST_COLUMNS`] columns, with zeros behind the last.
    #[inline(always)]
    pub(super) unsafe fn turn<V: Vector<T = T>>(&self, to: &mut Turned<T>) {
        // SAFETY: each register is written within its 16 numbers; rows are read that exist.
        unsafe {
            let to = to.as_mut_ptr().cast::<T>();
            if self.keys < TILE {
                to.write_bytes(0, self.head_dim * TILE);
                for key in 0..self.keys {
                    let from = self.k.offset(key as isize * self.k_stride);
                    for column in 0..self.head_dim {
                        *to.add(column * TILE + key) = *from.add(column);
                    }
                }
                return;
            }
            for column in (0..self.head_dim).step_by(V::LANES) {
                let columns = V::LANES.min(self.head_dim - column);
                for key in (0..TILE).step_by(V::LANES) {
                    let from = self.k.offset(key as isize * self.k_stride).add(column);
                    V::turn(from, self.k_stride, columns, to.add(column * TILE + key));
                }
            }
        }
    }

    /// Writes the rows of the output, and the maximum and sum of each.
    #[inline(always)]
    pub(super) unsafe fn by_tiles<V: Vector<T = T>>(
        &self,
        k: &Turned<T>,
        maxima: &mut [T; TILE],
        sums: &mut [f64],
    ) {
        // As many rows at a time as keep the units for multiply-adds busy.
        unsafe {
            match TILE / V::LANES {
                1 => self.compute::<V, 8, 1>(k, maxima, sums),
                _ => self.compute::<V, 4, 2>(k, maxima, sums),
            }
        }
    }

    #[inline(always)]
    unsafe fn compute<V: Vector<T = T>, const R: usize, const N: usize>(
        &self,
        k: &Turned<T>,
        maxima: &mut [T; TILE],
        sums: &mut [f64],
    ) {
        let p = &mut OnLines([[T::ZERO; TILE]; TILE]).0;
        let largest = &mut OnLines([[T::ZERO; TILE]; TILE]).0;
        let totals = &mut OnLines([T::ZERO; TILE]).0;
        // SAFETY: rows and columns are those that the caller has, and registers are written
        // within the 16 numbers of a row.
        unsafe {
            for row in (0..self.queries).step_by(R) {
                self.scores::<V, R, N>(k, self.rows(row), p, largest);
            }
            for row in (0..self.queries).step_by(V::LANES) {
                let from = largest[row..].as_flattened().as_ptr();
                let all = across(from, TILE, V::LANES, V::LANES, |a: V, b| a.max(b));
                all.store(maxima.as_mut_ptr().add(row));
            }
            for (p, max) in p.iter_mut().zip(maxima).take(self.queries) {
                // −∞ stays −∞ where there is no other score.
                let shift = V::splat(if *max > -T::MAX { *max } else { -T::MAX });
                for n in 0..N {
                    let at = p.as_mut_ptr().add(n * V::LANES);
                    let x = V::load(at).sub(shift).mul(V::splat(self.c));
                    x.exp2(V::EXP2.as_ptr()).store(at);
                }
            }
            for row in (0..self.queries).step_by(V::LANES) {
                let from = p[row..].as_flattened().as_ptr();
                let all = across(from, TILE, V::LANES, TILE, |a: V, b| a.add(b));
                all.store(totals.as_mut_ptr().add(row));
            }
            for (sum, total) in sums.iter_mut().zip(&mut *totals) {
                if *total == T::ZERO {
                    *total = T::from_f64(f64::NAN); // all scores are −∞: 0/0
                }
                *sum = total.to_f64();
            }
            let factors = totals;
            for factors in factors.chunks_exact_mut(V::LANES) {
                let x = V::splat(T::ONE).div(V::load(factors.as_ptr()));
                x.store(factors.as_mut_ptr());
            }
            for row in (0..self.queries).step_by(R) {
                let rows = self.rows::<R>(row);
                let mut column = 0;
                while column + 2 * V::LANES <= self.width {
                    self.weigh::<V, R, 2>(p, factors, rows, column, V::LANES);
                    column += 2 * V::LANES;
                }
                while column < self.width {
                    let n = V::LANES.min(self.width - column);
                    self.weigh::<V, R, 1>(p, factors, rows, column, n);
                    column += V::LANES;
                }
            }
        }
    }

    /// Some rows from one on; the last, again and again, in the place of what follows it, so that
    /// there is one kind of tile.
    #[inline(always)]
    fn rows<const R: usize>(&self, first: usize) -> [usize; R] {
        std::array::from_fn(|r| (first + r).min(self.queries - 1))
    }

    #[inline(always)]
    unsafe fn scores<V: Vector<T = T>, const R: usize, const N: usize>(
        &self,
        k: &Turned<T>,
        rows: [usize; R],
        x: &mut [[T; TILE]; TILE],
        largest: &mut [[T; TILE]; TILE],
    ) {
        unsafe {
            let q = rows.map(|row| self.q.offset(row as isize * self.q_stride));
            let mut sums = [[V::splat(T::ZERO); N]; R];
            for d in 0..self.head_dim {
                let mut keys = [V::splat(T::ZERO); N];
                for n in 0..N {
                    keys[n] = V::load(k.as_ptr().cast::<T>().add(d * TILE + n * V::LANES));
                }
                for r in 0..R {
                    let q = V::splat(*q[r].add(d));
                    for n in 0..N {
                        sums[r][n] = q.fma(keys[n], sums[r][n]);
                    }
                }
            }
            for r in 0..R {
                let mut max = V::splat(T::NEG_INFINITY);
                for n in 0..N {
                    let keys = self.keys.saturating_sub(n * V::LANES).min(V::LANES);
                    let score = sums[r][n].only(0, keys);
                    score.store(x[rows[r]].as_mut_ptr().add(n * V::LANES));
                    max = score.max(max);
                }
                max.store(largest[rows[r]].as_mut_ptr());
            }
        }
    }

    #[inline(always)]
    unsafe fn weigh<V: Vector<T = T>, const R: usize, const N: usize>(
        &self,
        p: &[[T; TILE]; TILE],
        factors: &[T; TILE],
        rows: [usize; R],
        column: usize,
        last: usize,
    ) {
        unsafe {
            let weights = rows.map(|row| p[row].as_ptr());
            let mut sums = [[V::splat(T::ZERO); N]; R];
            let mut v = self.v.add(column);
            for key in 0..self.keys {
                let mut values = [V::splat(T::ZERO); N];
                for n in 0..N - 1 {
                    values[n] = V::load(v.add(n * V::LANES));
                }
                values[N - 1] = V::load_first(v.add((N - 1) * V::LANES), last);
                v = v.wrapping_offset(self.v_stride);
                for r in 0..R {
                    let p = V::splat(*weights[r].add(key));
                    for n in 0..N {
                        sums[r][n] = p.fma(values[n], sums[r][n]);
                    }
                }
            }
            for r in 0..R {
                let factor = V::splat(factors[rows[r]]);
                let to = self.to.offset(rows[r] as isize * self.to_stride);
                let to = to.add(column);
                for n in 0..N {
                    // +0 for −0, as everywhere.
                    let x = sums[r][n].mul(factor).add(V::splat(T::ZERO));
                    if n < N - 1 {
                        x.store(to.add(n * V::LANES));
                    } else {
                        x.store_first(to.add(n * V::LANES), last);
                    }
                }
            }
        }
    }
}
