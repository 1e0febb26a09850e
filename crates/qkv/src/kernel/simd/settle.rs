//! From the maxima and running sums of rows to their lse, and to what their sums of values are
//! multiplied by.

use super::super::real::Real;
use super::logarithm;
use super::pack::TILE;
use super::softmax::totals;
use super::vector::Vector;
use crate::view::Element;

/// What to compute; row i is at `[i]`.
pub struct Settle<'a, T> {
    /// The running sums.
    pub lanes: &'a [[T; TILE]],
    /// The maxima.
    pub max: &'a [T],
    /// max·natural is in natural units.
    pub natural: f64,
    /// What each factor is multiplied by.
    pub share: T,
}

/// factor = share/sum and lse = max·natural + ln sum.
///
/// # Panics
/// If there are not as many of each.
#[inline(always)]
pub(super) unsafe fn run<V: Vector>(
    args: &Settle<'_, V::T>,
    factors: &mut [V::T],
    lse: &mut [f64],
) {
    let rows = args.lanes.len();
    assert!(args.max.len() == rows && factors.len() == rows && lse.len() == rows);
    // SAFETY: each register lies in `factors`, as far as it is used.
    unsafe {
        totals::<V>(args.lanes, factors);
        for (lse, sum) in lse.iter_mut().zip(&*factors) {
            *lse = sum.to_f64();
        }
        logarithm::run(lse);
        for (lse, max) in lse.iter_mut().zip(args.max) {
            *lse += max.to_f64() * args.natural;
        }
        let (one, share) = (V::splat(V::T::ONE), V::splat(args.share));
        for factors in factors.chunks_mut(V::LANES) {
            let sums = V::load_first(factors.as_ptr(), factors.len());
            let result = one.div(sums).mul(share);
            result.store_first(factors.as_mut_ptr(), factors.len());
        }
    }
}
