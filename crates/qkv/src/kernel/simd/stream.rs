//! Few queries, which take keys and values as they lie in memory.
//!
//! The same numbers as those of `scores` and `values`, by the same chains. But where a key and its
//! value are used by few queries, what counts is their way from memory into registers: keys are
//! turned some columns at a time, while those before are multiplied, and values are widened in
//! registers.

use super::super::real::Stored;
use super::convert::Holds;
use super::pack::TILE;
use super::vector::Vector;
use half::{bf16, f16};

pub(super) mod keys;
pub(super) mod values;

/// Queries at most.
pub const FEW: usize = 8;

/// Columns of keys that are turned at once, at most.
pub(super) const COLUMNS: usize = 32;

/// Numbers of a line of memory: as many columns of keys are turned at once.
const fn line<E>() -> usize {
    64 / size_of::<E>()
}

/// A register that is filled from numbers that are not laid out for it.
///
/// `unsafe` as the methods of [`Vector`] are.
pub(super) trait Streams<E: Stored<Real = Self::T>>: Holds<E> {
    /// What a turned number is.
    type Turned: Copy + Default;
    /// Turns the first columns, at most a line, of [`TILE`] rows.
    unsafe fn turn_few(from: *const E, stride: isize, columns: usize, to: *mut Self::Turned);
    /// The place of a column, which is [`DEPTH`](Vector::DEPTH) columns of the rows,
    /// of `LANES` of these rows from `lane` on.
    unsafe fn turned(from: *const Self::Turned, column: usize, lane: usize) -> Self;
    /// Copies the first `n` columns of a row, at most a line, with zeros behind them.
    unsafe fn copy_first(from: *const E, n: usize, to: &mut [E; COLUMNS]);
    /// `LANES` columns of the first [`DEPTH`](Vector::DEPTH) of the rows, as a factor
    /// for weights.
    unsafe fn values(rows: [*const E; 2]) -> Self;
    /// The first `n ≤ LANES` columns, zeros behind them; the rest of memory is not touched.
    unsafe fn values_first(rows: [*const E; 2], n: usize) -> Self;
}

/// Registers whose turned numbers are as wide as their own.
macro_rules! widened {
    ($v:ty, $e:ty, $t:ty) => {
        impl Streams<$e> for $v {
            type Turned = $t;
            #[inline(always)]
            unsafe fn turn_few(from: *const $e, stride: isize, columns: usize, to: *mut $t) {
                for lane in (0..TILE).step_by(Self::LANES) {
                    for d in (0..line::<$e>()).step_by(Self::LANES) {
                        let columns = if columns == line::<$e>() {
                            Self::LANES
                        } else {
                            columns.saturating_sub(d).min(Self::LANES)
                        };
                        if columns > 0 {
                            unsafe {
                                let from = from.offset(lane as isize * stride + d as isize);
                                let to = to.add(d * TILE + lane);
                                <$v as Holds<$e>>::turn_wide(from, stride, columns, to);
                            }
                        }
                    }
                }
            }
            #[inline(always)]
            unsafe fn turned(from: *const $t, column: usize, lane: usize) -> Self {
                unsafe { Self::load(from.add(column * TILE + lane)) }
            }
            #[inline(always)]
            unsafe fn copy_first(from: *const $e, n: usize, to: &mut [$e; COLUMNS]) {
                // Without a call, around which sums would have to leave their registers.
                for d in (0..line::<$e>()).step_by(Self::LANES) {
                    let n = n.saturating_sub(d).min(Self::LANES);
                    unsafe {
                        let numbers = <$v as Holds<$e>>::widen_first(from.wrapping_add(d), n);
                        <$v as Holds<$e>>::narrow(numbers, to.as_mut_ptr().add(d));
                    }
                }
            }
            #[inline(always)]
            unsafe fn values(rows: [*const $e; 2]) -> Self {
                unsafe { Self::widen(rows[0]) }
            }
            #[inline(always)]
            unsafe fn values_first(rows: [*const $e; 2], n: usize) -> Self {
                unsafe { Self::widen_first(rows[0], n) }
            }
        }
    };
}
widened!(super::portable::Four<f32>, f16, f32);
widened!(super::portable::Four<f32>, bf16, f32);
widened!(super::portable::Four<f32>, f32, f32);
widened!(super::portable::Four<f64>, f64, f64);
#[cfg(target_arch = "x86_64")]
widened!(super::avx2::F32x8, f16, f32);
#[cfg(target_arch = "x86_64")]
widened!(super::avx2::F32x8, bf16, f32);
#[cfg(target_arch = "x86_64")]
widened!(super::avx2::F32x8, f32, f32);
#[cfg(target_arch = "x86_64")]
widened!(super::avx2::F64x4, f64, f64);
#[cfg(target_arch = "x86_64")]
widened!(super::avx512::F32x16, f32, f32);
#[cfg(target_arch = "x86_64")]
widened!(super::avx512::F64x8, f64, f64);

/// Registers whose turned numbers stay as short as they were.
#[cfg(target_arch = "x86_64")]
macro_rules! halves {
    ($e:ty, $widen:ident) => {
        impl Streams<$e> for super::avx512::F32x16 {
            type Turned = u16;
            #[inline(always)]
            unsafe fn turn_few(from: *const $e, stride: isize, columns: usize, to: *mut u16) {
                unsafe { super::avx512::turn_halves(from.cast(), stride, columns, to) }
            }
            #[inline(always)]
            unsafe fn copy_first(from: *const $e, n: usize, to: &mut [$e; COLUMNS]) {
                unsafe { super::avx512::copy_halves(from.cast(), n, to.as_mut_ptr().cast()) }
            }
            #[inline(always)]
            unsafe fn turned(from: *const u16, column: usize, _: usize) -> Self {
                let at = column / 16 * 256 + column % 8 * 32 + column % 16 / 8 * 16;
                unsafe { Self::$widen(from.add(at)) }
            }
            #[inline(always)]
            unsafe fn values(rows: [*const $e; 2]) -> Self {
                unsafe { <Self as Holds<$e>>::widen(rows[0]) }
            }
            #[inline(always)]
            unsafe fn values_first(rows: [*const $e; 2], n: usize) -> Self {
                unsafe { <Self as Holds<$e>>::widen_first(rows[0], n) }
            }
        }
    };
}
#[cfg(target_arch = "x86_64")]
halves!(f16, widen_f16);
#[cfg(target_arch = "x86_64")]
halves!(bf16, widen_bf16);
