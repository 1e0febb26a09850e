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
    maxima_and_sums: &mut [[V::T; 2]],
) {
    let (queries, keys) = (args.q.count(), args.k.count());
    assert!(keys <= TILE && args.v.count() == keys && args.k.width() == args.q.width());
    assert!(out.count() == queries && out.width() == args.v.width());
    for (row, to) in maxima_and_sums[..queries].iter_mut().enumerate() {
        // SAFETY: rows and columns are those that the views have, and a register that begins at
        // one of the first 16 numbers ends within 32.
        unsafe {
            let mut x = [V::T::NEG_INFINITY; 2 * TILE];
            let mut max = V::T::NEG_INFINITY;
            for key in 0..keys {
                let mut sum = V::splat(V::T::ZERO);
                for (q, k) in args.q.row(row).iter().zip(args.k.row(key)) {
                    sum = V::splat(q.widen()).fma(V::splat(k.widen()), sum);
                }
                let mut lanes = [V::T::ZERO; TILE];
                sum.store(lanes.as_mut_ptr());
                x[key] = lanes[0];
                if x[key] > max {
                    max = x[key];
                }
            }
            let shift = V::splat(-V::T::MAX).max(V::splat(max));
            let mut p = [V::T::ZERO; TILE];
            let mut lane = 0;
            while lane < keys {
                let y = V::load(x.as_ptr().add(lane)).sub(shift);
                let y = y.mul(V::splat(args.c)).exp2(V::EXP2.as_ptr());
                y.store(p.as_mut_ptr().add(lane));
                lane += V::LANES;
            }
            let mut sums = p;
            let mut half = TILE / 2;
            while half > 0 {
                for lane in 0..half {
                    sums[lane] = sums[lane] + sums[lane + half];
                }
                half /= 2;
            }
            let sum = match sums[0] == V::T::ZERO {
                true => V::T::from_f64(f64::NAN), // all scores are −∞: 0/0
                false => sums[0],
            };
            *to = [max, sum];
            let factor = V::splat(V::T::from_f64(1.0 / sum.to_f64()));
            let (width, out) = (args.v.width(), out.pointer(row));
            let mut at = 0;
            while at < width {
                let n = V::LANES.min(width - at);
                let mut new = V::splat(V::T::ZERO);
                for key in 0..keys {
                    let v = V::widen_first(args.v.row(key).as_ptr().add(at), n);
                    new = V::splat(p[key]).fma(v, new);
                }
                // +0 for −0, as everywhere.
                let new = new.mul(factor).add(V::splat(V::T::ZERO));
                new.narrow_first(out.add(at), n);
                at += V::LANES;
            }
        }
    }
}
