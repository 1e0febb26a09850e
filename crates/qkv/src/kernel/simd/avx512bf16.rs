//! AVX-512 with dot products of bf16: two of them, of neighbouring columns of q and k or of the
//! values of neighbouring keys, lie in the place of one `f32`, the first in its lower half.
//!
//! `vdpbf16ps` adds the product of the upper halves, then that of the lower ones, each as a fused
//! multiply-add that rounds to nearest; it takes subnormal numbers as 0 and returns none.

use super::super::real::Stored;
use super::avx512::{F32x16, copy_halves, first_halves};
use super::convert::{Holds, ROWS_AHEAD, ask};
use super::pack::TILE;
use super::rows::Rows;
use super::softmax::clear_weights;
use super::stream::Streams;
use super::vector::Vector;
use super::{BLOCK, STRIDE, Span};
use half::bf16;
use std::arch::x86_64::*;

/// Sixteen `f32`, or as many pairs of bf16 where it is a factor of [`Vector::fma`].
#[derive(Clone, Copy)]
pub(super) struct Pairs(F32x16);

impl Pairs {
    #[inline(always)]
    unsafe fn as_factor(self) -> __m512bh {
        // SAFETY: registers of the same size, of which every pattern of bits is one.
        unsafe { std::mem::transmute(self.0.0) }
    }
}

impl Vector for Pairs {
    type T = f32;
    const LANES: usize = 16;
    const TILES_AT_ONCE: usize = 1;
    const DEPTH: usize = 2;
    const EXP2: &'static [f32] = F32x16::EXP2;

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        unsafe { Pairs(F32x16::splat(x)) }
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        unsafe { Pairs(F32x16::load(from)) }
    }
    #[inline(always)]
    unsafe fn load_first(from: *const f32, n: usize) -> Self {
        unsafe { Pairs(F32x16::load_first(from, n)) }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        unsafe { self.0.store(to) }
    }
    #[inline(always)]
    unsafe fn store_first(self, to: *mut f32, n: usize) {
        unsafe { self.0.store_first(to, n) }
    }
    #[inline(always)]
    unsafe fn load_halves(a: *const f32, b: *const f32, n: usize) -> Self {
        unsafe { Pairs(F32x16::load_halves(a, b, n)) }
    }
    #[inline(always)]
    unsafe fn store_halves(self, a: *mut f32, b: *mut f32) {
        unsafe { self.0.store_halves(a, b) }
    }
    #[inline(always)]
    unsafe fn halves(self, other: Self) -> Self {
        unsafe { Pairs(self.0.halves(other.0)) }
    }
    #[inline(always)]
    unsafe fn before(self, n: usize, other: Self) -> Self {
        unsafe { Pairs(self.0.before(n, other.0)) }
    }
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        unsafe { Pairs(self.0.add(other.0)) }
    }
    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        unsafe { Pairs(self.0.sub(other.0)) }
    }
    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        unsafe { Pairs(self.0.mul(other.0)) }
    }
    #[inline(always)]
    unsafe fn div(self, other: Self) -> Self {
        unsafe { Pairs(self.0.div(other.0)) }
    }
    #[inline(always)]
    unsafe fn fma(self, b: Self, c: Self) -> Self {
        unsafe {
            let sum = _mm512_dpbf16_ps(c.0.0, self.as_factor(), b.as_factor());
            Pairs(F32x16(sum))
        }
    }
    #[inline(always)]
    unsafe fn max(self, other: Self) -> Self {
        unsafe { Pairs(self.0.max(other.0)) }
    }
    #[inline(always)]
    unsafe fn min(self, other: Self) -> Self {
        unsafe { Pairs(self.0.min(other.0)) }
    }
    #[inline(always)]
    unsafe fn abs(self) -> Self {
        unsafe { Pairs(self.0.abs()) }
    }
    #[inline(always)]
    unsafe fn copy_sign(self, sign: Self) -> Self {
        unsafe { Pairs(self.0.copy_sign(sign.0)) }
    }
    #[inline(always)]
    unsafe fn only(self, from: usize, to: usize) -> Self {
        unsafe { Pairs(self.0.only(from, to)) }
    }
    #[inline(always)]
    unsafe fn dropped_where_neg_inf(self, bias: Self) -> Self {
        unsafe { Pairs(self.0.dropped_where_neg_inf(bias.0)) }
    }
    #[inline(always)]
    unsafe fn dropped_unless(self, from: *const bool, n: usize, kept: bool) -> Self {
        unsafe { Pairs(self.0.dropped_unless(from, n, kept)) }
    }
    #[inline(always)]
    unsafe fn fraction(self) -> Self {
        unsafe { Pairs(self.0.fraction()) }
    }
    #[inline(always)]
    unsafe fn scale(self, exponent: Self) -> Self {
        unsafe { Pairs(self.0.scale(exponent.0)) }
    }
    #[inline(always)]
    unsafe fn exp2(self, constants: *const f32) -> Self {
        unsafe { Pairs(self.0.exp2(constants)) }
    }
    /// Two bytes a key, from the beginning of the row on.
    #[inline(always)]
    unsafe fn store_weights(self, to: *mut f32, at: usize) {
        unsafe {
            let rounded: __m256i = std::mem::transmute(_mm512_cvtneps_pbh(self.0.0));
            _mm256_storeu_si256(to.cast::<u16>().add(at).cast(), rounded);
        }
    }
    #[inline(always)]
    unsafe fn centred_fraction(self) -> Self {
        unsafe { Pairs(self.0.centred_fraction()) }
    }
    #[inline(always)]
    unsafe fn prefetch(at: *const f32) {
        unsafe { F32x16::prefetch(at) }
    }
    #[inline(always)]
    unsafe fn turn(from: *const f32, stride: isize, columns: usize, to: *mut f32) {
        unsafe { F32x16::turn(from, stride, columns, to) }
    }
}

/// The first `n ≤ 32` numbers, zeros behind them.
#[inline(always)]
unsafe fn first(from: *const bf16, n: usize) -> __m512i {
    unsafe {
        if n >= 32 {
            _mm512_loadu_si512(from.cast())
        } else {
            _mm512_maskz_loadu_epi16((1 << n) - 1, from.cast())
        }
    }
}

/// Pairs of neighbouring columns, without a change of value: 32 numbers a register.
impl Holds<bf16> for Pairs {
    #[inline(always)]
    unsafe fn widen(from: *const bf16) -> Self {
        unsafe { Self::widen_first(from, 32) }
    }
    #[inline(always)]
    unsafe fn widen_first(from: *const bf16, n: usize) -> Self {
        unsafe { Pairs(F32x16(_mm512_castsi512_ps(first(from, n)))) }
    }
    #[inline(always)]
    unsafe fn narrow(self, to: *mut bf16) {
        unsafe { self.narrow_first(to, 32) }
    }
    #[inline(always)]
    unsafe fn narrow_first(self, to: *mut bf16, n: usize) {
        unsafe {
            let these = if n >= 32 { u32::MAX } else { (1 << n) - 1 };
            _mm512_mask_storeu_epi16(to.cast(), these, _mm512_castps_si512(self.0.0));
        }
    }
    #[inline(always)]
    unsafe fn turn_wide(from: *const bf16, stride: isize, columns: usize, to: *mut f32) {
        unsafe {
            let eight = |row: usize, h: usize| {
                let from = from.offset(row as isize * stride).wrapping_add(16 * h);
                let numbers = if columns == 32 {
                    _mm256_loadu_si256(from.cast())
                } else {
                    first_halves(from.cast(), columns.saturating_sub(16 * h).min(16))
                };
                _mm256_castsi256_ps(numbers)
            };
            F32x16::turn_eights(eight, columns.div_ceil(2), to);
        }
    }
}

impl Streams<bf16> for Pairs {
    type Turned = f32;
    #[inline(always)]
    unsafe fn turn_few(from: *const bf16, stride: isize, columns: usize, to: *mut f32) {
        unsafe { Self::turn_wide(from, stride, columns, to) }
    }
    #[inline(always)]
    unsafe fn copy_first(from: *const bf16, n: usize, to: &mut [bf16; 32]) {
        unsafe { copy_halves(from.cast(), n, to.as_mut_ptr().cast()) }
    }
    #[inline(always)]
    unsafe fn turned(from: *const f32, column: usize, _: usize) -> Self {
        unsafe { Self::load(from.add(column * TILE)) }
    }
    #[inline(always)]
    unsafe fn values(rows: [*const bf16; 2]) -> Self {
        unsafe {
            let [a, b] = rows.map(|row| _mm256_loadu_si256(row.cast()));
            side_by_side(a, b)
        }
    }
    #[inline(always)]
    unsafe fn values_first(rows: [*const bf16; 2], n: usize) -> Self {
        unsafe {
            let [a, b] = rows.map(|row| first_halves(row.cast(), n));
            side_by_side(a, b)
        }
    }
}

/// Numbers of the one by turns with those of the other.
#[inline(always)]
unsafe fn side_by_side(a: __m256i, b: __m256i) -> Pairs {
    unsafe {
        let order = _mm512_set_epi16(
            47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6, 37, 5, 36,
            4, 35, 3, 34, 2, 33, 1, 32, 0,
        );
        let (a, b) = (_mm512_castsi256_si512(a), _mm512_castsi256_si512(b));
        let pairs = _mm512_permutex2var_epi16(a, order, b);
        Pairs(F32x16(_mm512_castsi512_ps(pairs)))
    }
}

/// Pairs of columns where they lie, if each begins where an `f32` could.
pub(super) fn in_place(rows: Rows<'_, bf16>) -> Option<Rows<'_, f32>> {
    let (start, stride, width) = (rows.start(), rows.stride(), rows.width());
    if width % 2 != 0 || stride % 2 != 0 || start % 2 != 0 {
        return None;
    }
    // SAFETY: two numbers of 16 bits are one of 32, of which every pattern is an f32.
    let (before, pairs, _) = unsafe { rows.data().align_to::<f32>() };
    before
        .is_empty()
        .then(|| Rows::new(pairs, start / 2, stride / 2, rows.count(), width / 2))
}

/// Queries: rows of pairs of columns, one after the other, times `factor`, which is 1, −1 or 0.
///
/// # Panics
/// If `out` is shorter than the rows.
#[inline(always)]
pub(super) unsafe fn queries(rows: Rows<'_, bf16>, factor: f32, out: &mut [f32]) {
    let (width, slots) = (rows.width(), rows.width().div_ceil(2));
    assert!(out.len() >= rows.count() * slots);
    for i in 0..rows.count() {
        let row = rows.row(i);
        // SAFETY: every load lies in a row, every store in row i of `out`.
        unsafe {
            let to = out.as_mut_ptr().add(i * slots);
            for at in (0..width).step_by(32) {
                let n = (width - at).min(32);
                let to = to.add(at / 2);
                if factor == 1.0 {
                    let pairs = Pairs::widen_first(row.as_ptr().add(at), n);
                    pairs.store_first(to, n.div_ceil(2));
                } else {
                    let mut some = [bf16::ZERO; 32];
                    for (some, x) in some.iter_mut().zip(&row[at..at + n]) {
                        *some = bf16::narrow(x.widen() * factor);
                    }
                    Pairs::widen(some.as_ptr()).store_first(to, n.div_ceil(2));
                }
            }
        }
    }
}

/// Values: in row n, column c those of keys 2·n and 2·n + 1, of which the last may be missing.
///
/// # Panics
/// If `out` is shorter than the rows.
#[inline(always)]
pub(super) unsafe fn values(rows: Rows<'_, bf16>, out: &mut [f32]) {
    let width = rows.width();
    let pairs = rows.count() / 2;
    assert!(out.len() >= rows.count().div_ceil(2) * width);
    let mut even = rows.pointer();
    // SAFETY: rows 2·n and 2·n + 1 exist for n < pairs, and row 2·pairs where it is asked for; row n
    // of `out` does.
    unsafe {
        for n in 0..pairs {
            let odd = even.wrapping_offset(rows.stride());
            for row in [even, odd] {
                ask::<Pairs, bf16>(row.wrapping_offset(ROWS_AHEAD * rows.stride()), width);
            }
            pair(even, Some(odd), width, out.as_mut_ptr().add(n * width));
            even = odd.wrapping_offset(rows.stride());
        }
        if rows.count() % 2 == 1 {
            pair(even, None, width, out.as_mut_ptr().add(pairs * width));
        }
    }
}

/// Columns of two rows side by side, zeros for a missing one.
#[inline(always)]
unsafe fn pair(even: *const bf16, odd: Option<*const bf16>, width: usize, to: *mut f32) {
    unsafe {
        let lower = _mm512_set_epi16(
            47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6, 37, 5, 36,
            4, 35, 3, 34, 2, 33, 1, 32, 0,
        );
        let upper = _mm512_add_epi16(lower, _mm512_set1_epi16(16));
        for at in (0..width).step_by(32) {
            let columns = (width - at).min(32);
            let a = first(even.add(at), columns);
            let b = match odd {
                Some(odd) => first(odd.add(at), columns),
                None => _mm512_setzero_si512(),
            };
            let [low, high] = [lower, upper]
                .map(|order| F32x16(_mm512_castsi512_ps(_mm512_permutex2var_epi16(a, order, b))));
            if columns == 32 {
                low.store(to.add(at));
                high.store(to.add(at + 16));
            } else {
                low.store_first(to.add(at), columns.min(16));
                high.store_first(to.add(at + columns.min(16)), columns.saturating_sub(16));
            }
        }
    }
}

/// Rounds weights in place, in the form that the products take: see [`Vector::store_weights`].
///
/// # Panics
/// If a row is missing.
#[inline(always)]
pub(super) unsafe fn round(spans: &[Span], x: &mut [f32]) {
    assert!(x.len() >= spans.len() * STRIDE && spans.iter().all(|span| span.to <= BLOCK));
    for (span, x) in spans.iter().zip(x.chunks_exact_mut(STRIDE)) {
        // SAFETY: a block's weights lie in a row, and what is written is behind what is read.
        unsafe {
            let x = x.as_mut_ptr();
            let tiles = span.tiles();
            for at in (tiles.from..tiles.to).step_by(TILE) {
                Pairs::load(x.add(at)).store_weights(x, at);
            }
            clear_weights::<Pairs>(x, tiles);
        }
    }
}
