//! Attention of a few queries over a few keys, in one go.
//!
//! What the stages do, number by number in the same order, without the memory that they exchange:
//! setting that up would take longer than the arithmetic.

use super::super::real::{Real, Stored};
use super::convert::Holds;
use super::pack::TILE;
use super::rows::Rows;
use super::shared::RowsMut;
use crate::view::Element;

/// What to compute.
pub struct Few<'a, T: Stored> {
    /// The queries.
    pub q: Rows<'a, T>,
    /// The keys, at most [`TILE`], of which each query sees all.
    pub k: Rows<'a, T>,
    /// The values.
    pub v: Rows<'a, T>,
    /// The exponent is (q·k − max)·c.
    pub c: T::Real,
}

/// Writes the rows of the output, and the maximum and sum of each.
///
/// # Panics
/// If numbers of rows or columns do not fit.
#[inline(always)]
pub(super) unsafe fn run<V: Holds<E>, E: Stored<Real = V::T>>(
    args: &Few<'_, E>,
    out: RowsMut<'_, E>,
    maxima: &mut [V::T],
    sums: &mut [f64],
) {
    let (queries, keys) = (args.q.count(), args.k.count());
    let (head_dim, width) = (args.q.width(), args.v.width());
    assert!(keys <= TILE && args.v.count() == keys && args.k.width() == head_dim);
    assert!(out.count() == queries && out.width() == width);
    let rows = maxima[..queries].iter_mut().zip(&mut sums[..queries]);
    for (row, (max_of_row, sum)) in rows.enumerate() {
        let mut p = [V::T::ZERO; TILE];
        // SAFETY: rows and columns are those that the views have, and a register that begins at
        // one of the first 16 numbers ends within them.
        unsafe {
            let q = at(&args.q, row);
            let (mut max, mut lane) = (V::splat(V::T::NEG_INFINITY), 0);
            while lane < keys {
                let here = V::LANES.min(keys - lane);
                let mut x = max;
                for key in 0..here {
                    let k = at(&args.k, lane + key);
                    let mut score = V::splat(V::T::ZERO);
                    for d in 0..head_dim {
                        let (q, k) = ((*q.add(d)).widen(), (*k.add(d)).widen());
                        score = V::splat(q).fma(V::splat(k), score);
                    }
                    max = score.max(max);
                    x = x.before(key, score);
                }
                x.only(0, here).store(p.as_mut_ptr().add(lane));
                lane += V::LANES;
            }
            max.store_first(max_of_row, 1);
            let shift = V::splat(-V::T::MAX).max(max);
            lane = 0;
            while lane < keys {
                let y = V::load(p.as_ptr().add(lane)).sub(shift);
                let y = y.mul(V::splat(args.c)).exp2(V::EXP2.as_ptr());
                y.store(p.as_mut_ptr().add(lane));
                lane += V::LANES;
            }
        }
        let total = total(&p, keys);
        *sum = match total == V::T::ZERO {
            true => f64::NAN, // all scores are −∞: 0/0
            false => total.to_f64(),
        };
        // SAFETY: as above.
        unsafe {
            let factor = V::splat(V::T::from_f64(1.0 / *sum));
            let out = out.pointer(row);
            let mut column = 0;
            while column < width {
                let n = V::LANES.min(width - column);
                let mut new = V::splat(V::T::ZERO);
                for (key, &p) in p.iter().enumerate().take(keys) {
                    let v = V::widen_first(at(&args.v, key).add(column), n);
                    new = V::splat(p).fma(v, new);
                }
                // +0 for −0, as everywhere.
                let new = new.mul(factor).add(V::splat(V::T::ZERO));
                new.narrow_first(out.add(column), n);
                column += V::LANES;
            }
        }
    }
}

/// Where a row begins, which must be there if it is read.
#[inline(always)]
fn at<E>(rows: &Rows<'_, E>, index: usize) -> *const E {
    rows.pointer()
        .wrapping_offset(index as isize * rows.stride())
}

/// The sum of a row's 16 weights, of which those behind the keys are 0: 8 sums of n and n + 8, then
/// 4, 2, 1. Sums with nothing but 0 are left out.
#[inline(always)]
fn total<T: Real>(p: &[T; TILE], keys: usize) -> T {
    let [a, b, c, d, ..] = *p;
    match keys {
        ..=1 => a,
        2 => a + b,
        3..=4 => (a + c) + (b + d),
        _ => {
            let mut sums = *p;
            for half in [8, 4, 2, 1] {
                for lane in 0..half {
                    sums[lane] = sums[lane] + sums[lane + half];
                }
            }
            sums[0]
        }
    }
}
