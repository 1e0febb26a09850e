//! Numbers in memory that a register takes widened, and gives back rounded.

use super::super::real::{Real, Stored};
use super::pack::TILE;
use super::portable::Four;
use super::rows::Rows;
use super::vector::Vector;
use crate::view::Element;
use half::{bf16, f16};

/// A register of numbers that lie in memory as `E`. Widening is exact, narrowing rounds to nearest,
/// ties to even, subnormal numbers included; NaN stays NaN.
///
/// `unsafe` as the methods of [`Vector`] are.
pub(super) trait Holds<E: Element>: Vector {
    /// `LANES` numbers from `from`, which must be readable.
    unsafe fn widen(from: *const E) -> Self;
    /// The first `n ≤ LANES` numbers, zeros behind them; the rest of memory is not touched.
    unsafe fn widen_first(from: *const E, n: usize) -> Self;
    /// Writes all lanes to `to`, which must be writable.
    unsafe fn narrow(self, to: *mut E);
    /// Writes the first `n ≤ LANES` lanes only.
    unsafe fn narrow_first(self, to: *mut E, n: usize);
    /// [`Vector::turn`] of numbers in memory.
    #[inline(always)]
    unsafe fn turn_wide(from: *const E, stride: isize, columns: usize, to: *mut Self::T) {
        unsafe {
            let mut rows = [Self::T::default(); TILE * TILE];
            for r in 0..Self::LANES {
                let from = from.offset(r as isize * stride);
                let row = if columns == Self::LANES {
                    Self::widen(from)
                } else {
                    Self::widen_first(from, columns)
                };
                row.store(rows.as_mut_ptr().add(r * TILE));
            }
            Self::turn(rows.as_ptr(), TILE as isize, columns, to);
        }
    }
}

impl<V: Vector> Holds<V::T> for V {
    #[inline(always)]
    unsafe fn widen(from: *const V::T) -> V {
        unsafe { V::load(from) }
    }
    #[inline(always)]
    unsafe fn widen_first(from: *const V::T, n: usize) -> V {
        unsafe { V::load_first(from, n) }
    }
    #[inline(always)]
    unsafe fn narrow(self, to: *mut V::T) {
        unsafe { self.store(to) }
    }
    #[inline(always)]
    unsafe fn narrow_first(self, to: *mut V::T, n: usize) {
        unsafe { self.store_first(to, n) }
    }
    #[inline(always)]
    unsafe fn turn_wide(from: *const V::T, stride: isize, columns: usize, to: *mut V::T) {
        unsafe { V::turn(from, stride, columns, to) }
    }
}

macro_rules! portable {
    ($e:ty) => {
        impl Holds<$e> for Four<f32> {
            #[inline(always)]
            unsafe fn widen(from: *const $e) -> Self {
                unsafe { Self::widen_first(from, 4) }
            }
            #[inline(always)]
            unsafe fn widen_first(from: *const $e, n: usize) -> Self {
                let mut lanes = [0.0; 4];
                for (i, lane) in lanes.iter_mut().enumerate().take(n) {
                    *lane = unsafe { *from.add(i) }.widen();
                }
                unsafe { Self::load(lanes.as_ptr()) }
            }
            #[inline(always)]
            unsafe fn narrow(self, to: *mut $e) {
                unsafe { self.narrow_first(to, 4) }
            }
            #[inline(always)]
            unsafe fn narrow_first(self, to: *mut $e, n: usize) {
                let mut lanes = [0.0; 4];
                unsafe { self.store(lanes.as_mut_ptr()) };
                for (i, lane) in lanes.into_iter().enumerate().take(n) {
                    unsafe { *to.add(i) = <$e>::narrow(lane) };
                }
            }
        }
    };
}
portable!(f16);
portable!(bf16);

/// Registers that convert eight or sixteen numbers at once.
#[cfg(target_arch = "x86_64")]
macro_rules! x86 {
    ($v:ty, $e:ty, $lanes:literal, $widen:ident, $widen_first:ident, $narrow:ident) => {
        impl Holds<$e> for $v {
            #[inline(always)]
            unsafe fn widen(from: *const $e) -> Self {
                unsafe { Self::$widen(from.cast()) }
            }
            #[inline(always)]
            unsafe fn widen_first(from: *const $e, n: usize) -> Self {
                unsafe { Self::$widen_first(from.cast(), n) }
            }
            #[inline(always)]
            unsafe fn narrow(self, to: *mut $e) {
                unsafe { self.$narrow(to.cast()) }
            }
            #[inline(always)]
            unsafe fn narrow_first(self, to: *mut $e, n: usize) {
                unsafe {
                    let mut some = [0_u16; $lanes];
                    self.$narrow(some.as_mut_ptr());
                    std::ptr::copy_nonoverlapping(some.as_ptr(), to.cast(), n);
                }
            }
        }
    };
}
#[cfg(target_arch = "x86_64")]
x86!(
    super::avx2::F32x8,
    f16,
    8,
    widen_f16,
    widen_first_f16,
    narrow_f16
);
#[cfg(target_arch = "x86_64")]
x86!(
    super::avx2::F32x8,
    bf16,
    8,
    widen_bf16,
    widen_first_bf16,
    narrow_bf16
);
#[cfg(target_arch = "x86_64")]
x86!(
    super::avx512::F32x16,
    f16,
    16,
    widen_f16,
    widen_first_f16,
    narrow_f16
);
#[cfg(target_arch = "x86_64")]
x86!(
    super::avx512::F32x16,
    bf16,
    16,
    widen_bf16,
    widen_first_bf16,
    narrow_bf16
);

/// Widens all rows, one after the other.
///
/// # Panics
/// If `out` is shorter than the rows.
#[inline(always)]
pub(super) unsafe fn widen<V: Holds<E>, E: Stored<Real = V::T>>(
    rows: Rows<'_, E>,
    out: &mut [V::T],
) {
    unsafe { times::<V, E>(rows, V::T::ONE, out) }
}

/// Rows that memory is asked for ahead of those being converted: the values of long caches are read
/// at the speed of memory only so.
pub(super) const ROWS_AHEAD: isize = 32;

/// Asks for the lines of a row of `width` numbers at `row`, which may be any address.
#[inline(always)]
pub(super) unsafe fn ask<V: Vector, E>(row: *const E, width: usize) {
    for at in (0..width).step_by(64 / size_of::<E>()) {
        unsafe { V::prefetch(row.wrapping_add(at).cast()) };
    }
}

/// Widens all rows, times `factor`, one after the other.
///
/// # Panics
/// If `out` is shorter than the rows.
#[inline(always)]
pub(super) unsafe fn times<V: Holds<E>, E: Stored<Real = V::T>>(
    rows: Rows<'_, E>,
    factor: V::T,
    out: &mut [V::T],
) {
    let width = rows.width();
    assert!(out.len() >= rows.count() * width);
    let mut from = rows.pointer();
    for i in 0..rows.count() {
        // SAFETY: every load lies in row i of `rows`, every store in row i of `out`.
        unsafe {
            let to = out.as_mut_ptr().add(i * width);
            let factor = V::splat(factor);
            ask::<V, E>(from.wrapping_offset(ROWS_AHEAD * rows.stride()), width);
            let mut at = 0;
            while at + V::LANES <= width {
                V::widen(from.add(at)).mul(factor).store(to.add(at));
                at += V::LANES;
            }
            if at < width {
                let x = V::widen_first(from.add(at), width - at).mul(factor);
                x.store_first(to.add(at), width - at);
            }
        }
        from = from.wrapping_offset(rows.stride());
    }
}
