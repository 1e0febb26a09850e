//! Products of rows with rows, in `f64`.

use super::super::real::Real;
use super::rows::Rows;
use crate::view::Element;

/// Lanes of a product's sum.
const LANES: usize = 16;

/// `to[i] = a[i] · b[i]`, summed in lanes of `f64`. Plain Rust that the compiler turns into registers
/// of whatever instruction set calls it.
///
/// `unsafe` only to be called as the other kernels are.
///
/// # Panics
/// If there are fewer rows than results, or the widths differ.
#[inline(always)]
pub(super) unsafe fn run<T: Real>(a: Rows<'_, T>, b: Rows<'_, T>, to: &mut [f64]) {
    assert!(a.width() == b.width());
    for (i, to) in to.iter_mut().enumerate() {
        let (a, b) = (a.row(i).chunks_exact(LANES), b.row(i).chunks_exact(LANES));
        let left = a.remainder().iter().zip(b.remainder());
        let mut sums = [0.0; LANES];
        for (sum, (x, y)) in sums.iter_mut().zip(left) {
            *sum = Element::to_f64(*x) * Element::to_f64(*y);
        }
        for (a, b) in a.zip(b) {
            for n in 0..LANES {
                sums[n] += Element::to_f64(a[n]) * Element::to_f64(b[n]);
            }
        }
        let mut half = LANES / 2;
        while half > 0 {
            for n in 0..half {
                sums[n] += sums[n + half];
            }
            half /= 2;
        }
        *to = sums[0];
    }
}
