//! One register of numbers: what every instruction set offers to the kernels.

use super::super::real::Real;
use crate::view::Element;

/// What begins at a multiple of 64 bytes, so that no register of it lies in two lines of the cache:
/// read back soon after it was written, such a one would be waited for.
#[repr(align(64))]
pub(super) struct OnLines<T>(pub(super) T);

/// A register. Every method is `unsafe` for one reason: the processor must have the instructions,
/// so it may only be called, inlined, from a function that enables them.
///
/// Pointers need no alignment.
pub(super) trait Vector: Copy {
    /// The number in a lane.
    type T: Real;
    /// Lanes; divides 16.
    const LANES: usize;
    /// Products that [`Vector::fma`] sums in a lane. Where it is not 1, what is multiplied are not
    /// numbers but as many shorter ones in the place of one.
    const DEPTH: usize = 1;

    /// Tiles of exponentials between multiply-adds: one, where there are registers for both.
    const TILES_AT_ONCE: usize = 4;

    /// `x` in every lane.
    unsafe fn splat(x: Self::T) -> Self;
    /// `LANES` numbers from `from`, which must be readable.
    unsafe fn load(from: *const Self::T) -> Self;
    /// The first `n ≤ LANES` numbers, zeros behind them; the rest of memory is not touched.
    unsafe fn load_first(from: *const Self::T, n: usize) -> Self;
    /// Writes all lanes to `to`, which must be writable.
    unsafe fn store(self, to: *mut Self::T);
    /// Writes the first `n ≤ LANES` lanes only.
    unsafe fn store_first(self, to: *mut Self::T, n: usize);
    /// The first `n ≤ LANES/2` numbers from `a` in the lower half, those from `b` in the upper
    /// half, zeros behind each; the rest of memory is not touched.
    unsafe fn load_halves(a: *const Self::T, b: *const Self::T, n: usize) -> Self;
    /// Writes the lower half to `a` and the upper half to `b`.
    unsafe fn store_halves(self, a: *mut Self::T, b: *mut Self::T);
    /// The lower half of self and the upper half of `other`.
    unsafe fn halves(self, other: Self) -> Self;
    /// The first `n ≤ LANES` lanes of self, and behind them those of `other`.
    unsafe fn before(self, n: usize, other: Self) -> Self;
    /// self + other
    unsafe fn add(self, other: Self) -> Self;
    /// self − other
    unsafe fn sub(self, other: Self) -> Self;
    /// self·other
    unsafe fn mul(self, other: Self) -> Self;
    /// self / other
    unsafe fn div(self, other: Self) -> Self;
    /// self·b + c, rounded once; where [`Vector::DEPTH`] is more, once for each product.
    unsafe fn fma(self, b: Self, c: Self) -> Self;
    /// The larger; `other` where either is NaN.
    unsafe fn max(self, other: Self) -> Self;
    /// The smaller; `other` where either is NaN.
    unsafe fn min(self, other: Self) -> Self;
    /// |self|
    unsafe fn abs(self) -> Self;
    /// |self| with the sign of `sign`.
    unsafe fn copy_sign(self, sign: Self) -> Self;
    /// The lanes from ≤ lane < to, −∞ elsewhere.
    unsafe fn only(self, from: usize, to: usize) -> Self;
    /// −∞ in the lanes where `bias` is −∞.
    unsafe fn dropped_where_neg_inf(self, bias: Self) -> Self;
    /// −∞ in lane i unless i < n and `from[i] == kept`; reads n bytes.
    unsafe fn dropped_unless(self, from: *const bool, n: usize, kept: bool) -> Self;
    /// self − ⌊self⌋ in [0, 1), and what [`Vector::scale`] needs; of −∞ what that makes 0 of.
    unsafe fn fraction(self) -> Self;
    /// self·2^⌊exponent⌋ for self in [1, 2] and exponent ≤ 1; 0 for −∞ with what came of
    /// [`Vector::fraction`], NaN where the exponent is NaN. Subnormal results may be 0.
    unsafe fn scale(self, exponent: Self) -> Self;
    /// What [`Vector::exp2`] takes.
    const EXP2: &'static [Self::T] = <Self::T as Real>::EXP2;
    /// 2^self for self ≤ 1 within 1.5 ulp; 0 for −∞, NaN for NaN, perhaps 0 for subnormal results.
    /// `constants` are [`Vector::EXP2`], wherever they are.
    #[inline(always)]
    unsafe fn exp2(self, constants: *const Self::T) -> Self {
        unsafe { exp2_by_polynomial(self, constants) }
    }
    /// Puts weights of the keys from `at` on into the row `to`, as [`Vector::fma`] takes them.
    #[inline(always)]
    unsafe fn store_weights(self, to: *mut Self::T, at: usize) {
        unsafe { self.store(to.add(at)) }
    }
    /// self − round(self), in [−½, ½], for |self| below 2¹⁶.
    unsafe fn centred_fraction(self) -> Self;
    /// Asks for the line of memory at `at`, which may be any address, in the second cache: the first
    /// has no room for what is read only after some thousands of bytes, and fewer requests at a time.
    unsafe fn prefetch(at: *const Self::T);
    /// Turns `LANES` rows of up to `LANES` columns: `to[c·16 + r] = from[r·stride + c]` for
    /// r < LANES and c < columns. All rows must be readable for `columns` numbers.
    unsafe fn turn(from: *const Self::T, stride: isize, columns: usize, to: *mut Self::T);
}

/// 2^x of each, by [`Vector::exp2`].
#[inline(always)]
pub(super) unsafe fn exp2<V: Vector, const N: usize>(x: [V; N]) -> [V; N] {
    let mut p = x;
    for p in &mut p {
        *p = unsafe { p.exp2(V::EXP2.as_ptr()) };
    }
    p
}

/// 2^x = 2^⌊x⌋·(1 + f·q(f)) with f = x − ⌊x⌋ and 1 + f·q(f) a minimax polynomial (relative error
/// 2.0e-9 for `f32`, 3.2e-18 for `f64`), so that 2^0 is exactly 1.
#[inline(always)]
pub(super) unsafe fn exp2_by_polynomial<V: Vector>(x: V, coefficients: *const V::T) -> V {
    unsafe {
        let f = x.fraction();
        let last = <V::T as Real>::EXP2.len() - 1;
        let mut p = V::splat(*coefficients.add(last));
        for degree in (0..last).rev() {
            p = p.fma(f, V::splat(*coefficients.add(degree)));
        }
        p.scale(x)
    }
}

/// tanh(x), by e = exp(−2|x|) − 1 and tanh|x| = −e / (e + 2).
///
/// e = 2ⁿ·r·q(r) + (2ⁿ − 1) with n the nearest whole number and r what is left, so small x keep
/// their relative precision.
#[inline(always)]
pub(super) unsafe fn tanh<V: Vector>(x: V) -> V {
    unsafe {
        let one = V::splat(V::T::ONE);
        let lowest = V::splat(V::T::from_f64(-120.0));
        let y = x
            .abs()
            .mul(V::splat(V::T::from_f64(-2.0 * std::f64::consts::LOG2_E)));
        let y = lowest.max(y); // NaN stays
        let r = y.centred_fraction();
        let power = one.scale(y.sub(r));
        let e = horner(<V::T as Real>::EXPM1, r)
            .mul(r)
            .fma(power, power.sub(one));
        V::splat(V::T::ZERO)
            .sub(e)
            .div(e.add(V::splat(V::T::from_f64(2.0))))
            .copy_sign(x)
    }
}

/// c₀ + x·(c₁ + x·(…))
#[inline(always)]
unsafe fn horner<V: Vector>(coefficients: &[V::T], x: V) -> V {
    unsafe {
        let mut sum = V::splat(coefficients[coefficients.len() - 1]);
        for &c in coefficients.iter().rev().skip(1) {
            sum = sum.fma(x, V::splat(c));
        }
        sum
    }
}
