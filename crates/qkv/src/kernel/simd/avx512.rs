//! AVX-512: 16 `f32` or 8 `f64` a register, 32 registers. Needs the subsets F, BW, DQ and VL.

use super::vector::Vector;
use std::arch::x86_64::*;

#[derive(Clone, Copy)]
pub(super) struct F32x16(pub(super) __m512);

#[derive(Clone, Copy)]
pub(super) struct F64x8(__m512d);

/// 2^(i/16), then c₁, c₂, c₃ of 2^f = 1 + c₁·f + c₂·f² + c₃·f³ for |f| ≤ 1/32 (relative error
/// 1.6e-9), and what added to a number leaves its sixteenths in the last bits.
#[repr(align(64))]
struct Exp2([f32; 20]);

#[allow(clippy::approx_constant)] // 2^(1/2) and near ln 2
static EXP2: Exp2 = Exp2([
    1.0,
    1.044_273_7,
    1.090_507_7,
    1.138_788_6,
    1.189_207_1,
    1.241_857_8,
    1.296_839_6,
    1.354_255_6,
    1.414_213_5,
    1.476_826_2,
    1.542_210_8,
    1.610_490_3,
    1.681_792_9,
    1.756_252_2,
    1.834_008_1,
    1.915_206_6,
    0.693_147_2,
    0.240_234_29,
    0.055_502_14,
    786_432.0,
]);

/// Bits from ≤ lane < to.
#[inline(always)]
fn lanes(from: usize, to: usize) -> u32 {
    ((1u32 << to) - 1) & !((1u32 << from) - 1)
}

/// Bit i set if i < n and `from[i] == kept`.
#[inline(always)]
unsafe fn kept_bits(from: *const bool, n: usize, kept: bool) -> u16 {
    unsafe {
        // A bool is one byte, 0 or 1.
        let kept = _mm_set1_epi8(i8::from(kept));
        if n >= 16 {
            return _mm_cmpeq_epi8_mask(_mm_loadu_si128(from.cast()), kept);
        }
        let known = lanes(0, n) as u16;
        _mm_mask_cmpeq_epi8_mask(known, _mm_maskz_loadu_epi8(known, from.cast()), kept)
    }
}

impl F32x16 {
    /// Turns 16 rows, of which `eight(r, h)` gives columns 8h to 8h + 7: columns of 16 numbers, the
    /// first ones. By halves, so that 16 sums beside have room in registers.
    #[inline(always)]
    pub(super) unsafe fn turn_eights(
        eight: impl Fn(usize, usize) -> __m256,
        columns: usize,
        to: *mut f32,
    ) {
        unsafe {
            for h in 0..2 {
                // Rows 0 to 3 and 8 to 11, beside each the row four later.
                let mut r = [_mm512_setzero_ps(); 8];
                for (i, r) in r.iter_mut().enumerate() {
                    let row = i / 4 * 8 + i % 4;
                    let low = _mm512_castps256_ps512(eight(row, h));
                    *r = _mm512_insertf32x8::<1>(low, eight(row + 4, h));
                }
                // fours[4g + c]: columns c and c + 4 of rows 8g to 8g + 3, then of the next four.
                let mut fours = [_mm512_setzero_ps(); 8];
                for g in [0, 4] {
                    let low = [r[g], r[g + 1], r[g + 2], r[g + 3]];
                    let [a, b, c, d] = low;
                    let (ab, cd) = (_mm512_unpacklo_ps(a, b), _mm512_unpacklo_ps(c, d));
                    fours[g] = _mm512_shuffle_ps::<0x44>(ab, cd);
                    fours[g + 1] = _mm512_shuffle_ps::<0xee>(ab, cd);
                    let (ab, cd) = (_mm512_unpackhi_ps(a, b), _mm512_unpackhi_ps(c, d));
                    fours[g + 2] = _mm512_shuffle_ps::<0x44>(ab, cd);
                    fours[g + 3] = _mm512_shuffle_ps::<0xee>(ab, cd);
                }
                for c in 0..4 {
                    let (first, last) = (fours[c], fours[4 + c]);
                    let column = 8 * h + c;
                    if column < columns {
                        let out = _mm512_shuffle_f32x4::<0x88>(first, last);
                        _mm512_storeu_ps(to.add(16 * column), out);
                    }
                    if column + 4 < columns {
                        let out = _mm512_shuffle_f32x4::<0xdd>(first, last);
                        _mm512_storeu_ps(to.add(16 * (column + 4)), out);
                    }
                }
            }
        }
    }

    #[inline(always)]
    pub(super) unsafe fn widen_f16(from: *const u16) -> Self {
        unsafe { Self::of_f16(_mm256_loadu_si256(from.cast())) }
    }
    /// The first `n ≤ 16`, zeros behind them; the rest of memory is not touched.
    #[inline(always)]
    pub(super) unsafe fn widen_first_f16(from: *const u16, n: usize) -> Self {
        unsafe { Self::of_f16(first_halves(from, n)) }
    }
    #[inline(always)]
    unsafe fn of_f16(numbers: __m256i) -> Self {
        unsafe { F32x16(_mm512_cvtph_ps(numbers)) }
    }
    #[inline(always)]
    pub(super) unsafe fn narrow_f16(self, to: *mut u16) {
        unsafe {
            let rounded =
                _mm512_cvtps_ph::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(self.0);
            _mm256_storeu_si256(to.cast(), rounded);
        }
    }
    #[inline(always)]
    pub(super) unsafe fn widen_bf16(from: *const u16) -> Self {
        unsafe { Self::of_bf16(_mm256_loadu_si256(from.cast())) }
    }
    /// As [`F32x16::widen_first_f16`].
    #[inline(always)]
    pub(super) unsafe fn widen_first_bf16(from: *const u16, n: usize) -> Self {
        unsafe { Self::of_bf16(first_halves(from, n)) }
    }
    #[inline(always)]
    unsafe fn of_bf16(numbers: __m256i) -> Self {
        unsafe {
            let wide = _mm512_cvtepu16_epi32(numbers);
            F32x16(_mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide)))
        }
    }
    /// Not by the instruction for it, which makes subnormal numbers 0.
    #[inline(always)]
    pub(super) unsafe fn narrow_bf16(self, to: *mut u16) {
        unsafe {
            let bits = _mm512_castps_si512(self.0);
            let upper = _mm512_srli_epi32::<16>(bits);
            let odd = _mm512_and_si512(upper, _mm512_set1_epi32(1));
            let half = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
            let rounded = _mm512_srli_epi32::<16>(_mm512_add_epi32(bits, half));
            let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(self.0, self.0);
            let quiet = _mm512_or_si512(upper, _mm512_set1_epi32(0x40));
            let rounded = _mm512_mask_mov_epi32(rounded, nan, quiet);
            _mm256_storeu_si256(to.cast(), _mm512_cvtepi32_epi16(rounded));
        }
    }
}

/// The first `n ≤ 16` numbers of 16 bits, zeros behind them; the rest of memory is not touched.
#[inline(always)]
pub(super) unsafe fn first_halves(from: *const u16, n: usize) -> __m256i {
    unsafe { _mm256_maskz_loadu_epi16(lanes(0, n) as u16, from.cast()) }
}

/// Copies the first `n ≤ 32` numbers of 16 bits, with zeros behind them to 32.
#[inline(always)]
pub(super) unsafe fn copy_halves(from: *const u16, n: usize, to: *mut u16) {
    unsafe {
        let these = if n >= 32 { u32::MAX } else { (1 << n) - 1 };
        _mm512_storeu_si512(to.cast(), _mm512_maskz_loadu_epi16(these, from.cast()));
    }
}

/// Turns the first columns, at most 32, of 16 rows, `stride` apart: column c is
/// `to[c/16·256 + c%16/8·16 + c%8·32..][..16]`.
#[inline(always)]
pub(super) unsafe fn turn_halves(from: *const u16, stride: isize, columns: usize, to: *mut u16) {
    unsafe {
        let orders = [
            _mm512_set_epi64(11, 10, 3, 2, 9, 8, 1, 0),
            _mm512_set_epi64(15, 14, 7, 6, 13, 12, 5, 4),
        ];
        let row = |r: usize| {
            let from = from.offset(r as isize * stride);
            if columns == 32 {
                _mm512_loadu_si512(from.cast())
            } else {
                _mm512_maskz_loadu_epi16((1 << columns) - 1, from.cast())
            }
        };
        for (half, order) in orders.into_iter().enumerate() {
            let mut r = [_mm512_setzero_si512(); 8];
            for (i, r) in r.iter_mut().enumerate() {
                *r = _mm512_permutex2var_epi64(row(i), order, row(i + 8));
            }
            let mut a = [_mm512_setzero_si512(); 8];
            for i in 0..4 {
                a[2 * i] = _mm512_unpacklo_epi16(r[2 * i], r[2 * i + 1]);
                a[2 * i + 1] = _mm512_unpackhi_epi16(r[2 * i], r[2 * i + 1]);
            }
            // b[4h + c]: columns 2c and 2c + 1 of rows 4h to 4h + 3
            let mut b = [_mm512_setzero_si512(); 8];
            for h in 0..2 {
                for c in 0..2 {
                    let (low, high) = (a[4 * h + c], a[4 * h + 2 + c]);
                    b[4 * h + 2 * c] = _mm512_unpacklo_epi32(low, high);
                    b[4 * h + 2 * c + 1] = _mm512_unpackhi_epi32(low, high);
                }
            }
            for c in 0..4 {
                let even = _mm512_unpacklo_epi64(b[c], b[4 + c]);
                let odd = _mm512_unpackhi_epi64(b[c], b[4 + c]);
                _mm512_store_si512(to.add(half * 256 + 2 * c * 32).cast(), even);
                _mm512_store_si512(to.add(half * 256 + (2 * c + 1) * 32).cast(), odd);
            }
        }
    }
}

/// Of three bits, the second where the first is set, else the third.
const CHOOSE: i32 = 0xca;

impl Vector for F32x16 {
    type T = f32;
    const LANES: usize = 16;
    const TILES_AT_ONCE: usize = 1;

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        unsafe { F32x16(_mm512_set1_ps(x)) }
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        unsafe { F32x16(_mm512_loadu_ps(from)) }
    }
    #[inline(always)]
    unsafe fn load_first(from: *const f32, n: usize) -> Self {
        unsafe { F32x16(_mm512_maskz_loadu_ps(lanes(0, n) as u16, from)) }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        unsafe { _mm512_storeu_ps(to, self.0) }
    }
    #[inline(always)]
    unsafe fn store_first(self, to: *mut f32, n: usize) {
        unsafe { _mm512_mask_storeu_ps(to, lanes(0, n) as u16, self.0) }
    }
    #[inline(always)]
    unsafe fn load_halves(a: *const f32, b: *const f32, n: usize) -> Self {
        unsafe {
            let n = lanes(0, n) as u8;
            let (a, b) = (_mm256_maskz_loadu_ps(n, a), _mm256_maskz_loadu_ps(n, b));
            F32x16(_mm512_insertf32x8::<1>(_mm512_castps256_ps512(a), b))
        }
    }
    #[inline(always)]
    unsafe fn store_halves(self, a: *mut f32, b: *mut f32) {
        unsafe {
            _mm256_storeu_ps(a, _mm512_castps512_ps256(self.0));
            _mm256_storeu_ps(b, _mm512_extractf32x8_ps::<1>(self.0));
        }
    }
    #[inline(always)]
    unsafe fn halves(self, other: Self) -> Self {
        unsafe { F32x16(_mm512_mask_blend_ps(0xff00, self.0, other.0)) }
    }
    #[inline(always)]
    unsafe fn before(self, n: usize, other: Self) -> Self {
        unsafe { F32x16(_mm512_mask_mov_ps(other.0, lanes(0, n) as u16, self.0)) }
    }
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        unsafe { F32x16(_mm512_add_ps(self.0, other.0)) }
    }
    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        unsafe { F32x16(_mm512_sub_ps(self.0, other.0)) }
    }
    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        unsafe { F32x16(_mm512_mul_ps(self.0, other.0)) }
    }
    #[inline(always)]
    unsafe fn div(self, other: Self) -> Self {
        unsafe { F32x16(_mm512_div_ps(self.0, other.0)) }
    }
    #[inline(always)]
    unsafe fn fma(self, b: Self, c: Self) -> Self {
        unsafe { F32x16(_mm512_fmadd_ps(self.0, b.0, c.0)) }
    }
    #[inline(always)]
    unsafe fn max(self, other: Self) -> Self {
        unsafe { F32x16(_mm512_max_ps(self.0, other.0)) }
    }
    #[inline(always)]
    unsafe fn min(self, other: Self) -> Self {
        unsafe { F32x16(_mm512_min_ps(self.0, other.0)) }
    }
    #[inline(always)]
    unsafe fn abs(self) -> Self {
        unsafe { F32x16(_mm512_abs_ps(self.0)) }
    }
    #[inline(always)]
    unsafe fn copy_sign(self, sign: Self) -> Self {
        unsafe {
            let minus = _mm512_and_ps(sign.0, _mm512_set1_ps(-0.0));
            F32x16(_mm512_or_ps(_mm512_abs_ps(self.0), minus))
        }
    }
    #[inline(always)]
    unsafe fn only(self, from: usize, to: usize) -> Self {
        unsafe {
            let nothing = _mm512_set1_ps(f32::NEG_INFINITY);
            F32x16(_mm512_mask_mov_ps(nothing, lanes(from, to) as u16, self.0))
        }
    }
    #[inline(always)]
    unsafe fn dropped_where_neg_inf(self, bias: Self) -> Self {
        unsafe {
            let nothing = _mm512_set1_ps(f32::NEG_INFINITY);
            // The compiler makes one of this and the instruction that self comes from.
            let kept = _mm512_cmp_ps_mask::<_CMP_NEQ_UQ>(bias.0, nothing);
            F32x16(_mm512_mask_mov_ps(nothing, kept, self.0))
        }
    }
    #[inline(always)]
    unsafe fn dropped_unless(self, from: *const bool, n: usize, kept: bool) -> Self {
        unsafe {
            // Not a blend: stored to where the register came from, the compiler makes it a masked
            // store, which takes several times as long.
            let kept = _mm512_movm_epi32(kept_bits(from, n, kept));
            let nothing = _mm512_castps_si512(_mm512_set1_ps(f32::NEG_INFINITY));
            let bits = _mm512_castps_si512(self.0);
            F32x16(_mm512_castsi512_ps(_mm512_ternarylogic_epi32::<CHOOSE>(
                kept, bits, nothing,
            )))
        }
    }
    #[inline(always)]
    unsafe fn fraction(self) -> Self {
        unsafe {
            F32x16(_mm512_sub_ps(
                self.0,
                _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC }>(self.0),
            ))
        }
    }
    #[inline(always)]
    unsafe fn scale(self, exponent: Self) -> Self {
        unsafe { F32x16(_mm512_scalef_ps(self.0, exponent.0)) }
    }
    const EXP2: &'static [f32] = &EXP2.0;
    /// 2^x = 2^⌊k⌋·2^(i/16)·2^f with k = ⌊k⌋ + i/16 the nearest sixteenth and f = x − k: fewer
    /// operations on the units for multiply-adds than a polynomial alone. Rounding and subtracting
    /// take a third of the time of the one instruction for both; of −∞ they make NaN, from which
    /// the scale −∞ makes 0.
    #[inline(always)]
    unsafe fn exp2(self, constants: *const f32) -> Self {
        unsafe {
            let constant = |i: usize| _mm512_set1_ps(*constants.add(i));
            let sixteenths = _mm512_castps_si512(_mm512_add_ps(self.0, constant(19)));
            let k = _mm512_roundscale_ps::<{ 4 << 4 | _MM_FROUND_NO_EXC }>(self.0);
            let f = _mm512_sub_ps(self.0, k);
            let t = _mm512_permutexvar_ps(sixteenths, _mm512_loadu_ps(constants));
            let q = _mm512_fmadd_ps(constant(18), f, constant(17));
            let r = _mm512_mul_ps(_mm512_fmadd_ps(q, f, constant(16)), f);
            F32x16(_mm512_scalef_ps(_mm512_fmadd_ps(t, r, t), k))
        }
    }
    #[inline(always)]
    unsafe fn centred_fraction(self) -> Self {
        unsafe {
            let nearest = _mm512_roundscale_ps::<_MM_FROUND_NO_EXC>(self.0);
            F32x16(_mm512_sub_ps(self.0, nearest))
        }
    }
    #[inline(always)]
    unsafe fn prefetch(at: *const f32) {
        unsafe { _mm_prefetch::<_MM_HINT_T1>(at.cast()) }
    }
    #[inline(always)]
    unsafe fn turn(from: *const f32, stride: isize, columns: usize, to: *mut f32) {
        unsafe {
            let eight = |row: usize, h: usize| {
                let from = from.offset(row as isize * stride).wrapping_add(8 * h);
                if columns == 16 {
                    _mm256_loadu_ps(from)
                } else {
                    _mm256_maskz_loadu_ps((lanes(0, columns) >> (8 * h)) as u8, from)
                }
            };
            F32x16::turn_eights(eight, columns, to);
        }
    }
}

impl Vector for F64x8 {
    type T = f64;
    const LANES: usize = 8;
    const TILES_AT_ONCE: usize = 1;

    #[inline(always)]
    unsafe fn splat(x: f64) -> Self {
        unsafe { F64x8(_mm512_set1_pd(x)) }
    }
    #[inline(always)]
    unsafe fn load(from: *const f64) -> Self {
        unsafe { F64x8(_mm512_loadu_pd(from)) }
    }
    #[inline(always)]
    unsafe fn load_first(from: *const f64, n: usize) -> Self {
        unsafe { F64x8(_mm512_maskz_loadu_pd(lanes(0, n) as u8, from)) }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f64) {
        unsafe { _mm512_storeu_pd(to, self.0) }
    }
    #[inline(always)]
    unsafe fn store_first(self, to: *mut f64, n: usize) {
        unsafe { _mm512_mask_storeu_pd(to, lanes(0, n) as u8, self.0) }
    }
    #[inline(always)]
    unsafe fn load_halves(a: *const f64, b: *const f64, n: usize) -> Self {
        unsafe {
            let n = lanes(0, n) as u8;
            let (a, b) = (_mm256_maskz_loadu_pd(n, a), _mm256_maskz_loadu_pd(n, b));
            F64x8(_mm512_insertf64x4::<1>(_mm512_castpd256_pd512(a), b))
        }
    }
    #[inline(always)]
    unsafe fn store_halves(self, a: *mut f64, b: *mut f64) {
        unsafe {
            _mm256_storeu_pd(a, _mm512_castpd512_pd256(self.0));
            _mm256_storeu_pd(b, _mm512_extractf64x4_pd::<1>(self.0));
        }
    }
    #[inline(always)]
    unsafe fn halves(self, other: Self) -> Self {
        unsafe { F64x8(_mm512_mask_blend_pd(0xf0, self.0, other.0)) }
    }
    #[inline(always)]
    unsafe fn before(self, n: usize, other: Self) -> Self {
        unsafe { F64x8(_mm512_mask_mov_pd(other.0, lanes(0, n) as u8, self.0)) }
    }
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        unsafe { F64x8(_mm512_add_pd(self.0, other.0)) }
    }
    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        unsafe { F64x8(_mm512_sub_pd(self.0, other.0)) }
    }
    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        unsafe { F64x8(_mm512_mul_pd(self.0, other.0)) }
    }
    #[inline(always)]
    unsafe fn div(self, other: Self) -> Self {
        unsafe { F64x8(_mm512_div_pd(self.0, other.0)) }
    }
    #[inline(always)]
    unsafe fn fma(self, b: Self, c: Self) -> Self {
        unsafe { F64x8(_mm512_fmadd_pd(self.0, b.0, c.0)) }
    }
    #[inline(always)]
    unsafe fn max(self, other: Self) -> Self {
        unsafe { F64x8(_mm512_max_pd(self.0, other.0)) }
    }
    #[inline(always)]
    unsafe fn min(self, other: Self) -> Self {
        unsafe { F64x8(_mm512_min_pd(self.0, other.0)) }
    }
    #[inline(always)]
    unsafe fn abs(self) -> Self {
        unsafe { F64x8(_mm512_abs_pd(self.0)) }
    }
    #[inline(always)]
    unsafe fn copy_sign(self, sign: Self) -> Self {
        unsafe {
            let minus = _mm512_and_pd(sign.0, _mm512_set1_pd(-0.0));
            F64x8(_mm512_or_pd(_mm512_abs_pd(self.0), minus))
        }
    }
    #[inline(always)]
    unsafe fn only(self, from: usize, to: usize) -> Self {
        unsafe {
            let nothing = _mm512_set1_pd(f64::NEG_INFINITY);
            F64x8(_mm512_mask_mov_pd(nothing, lanes(from, to) as u8, self.0))
        }
    }
    #[inline(always)]
    unsafe fn dropped_where_neg_inf(self, bias: Self) -> Self {
        unsafe {
            let nothing = _mm512_set1_pd(f64::NEG_INFINITY);
            // The compiler makes one of this and the instruction that self comes from.
            let kept = _mm512_cmp_pd_mask::<_CMP_NEQ_UQ>(bias.0, nothing);
            F64x8(_mm512_mask_mov_pd(nothing, kept, self.0))
        }
    }
    #[inline(always)]
    unsafe fn dropped_unless(self, from: *const bool, n: usize, kept: bool) -> Self {
        unsafe {
            let kept = _mm512_movm_epi64(kept_bits(from, n, kept) as u8);
            let nothing = _mm512_castpd_si512(_mm512_set1_pd(f64::NEG_INFINITY));
            let bits = _mm512_castpd_si512(self.0);
            F64x8(_mm512_castsi512_pd(_mm512_ternarylogic_epi64::<CHOOSE>(
                kept, bits, nothing,
            )))
        }
    }
    #[inline(always)]
    unsafe fn fraction(self) -> Self {
        unsafe {
            F64x8(_mm512_sub_pd(
                self.0,
                _mm512_roundscale_pd::<{ _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC }>(self.0),
            ))
        }
    }
    #[inline(always)]
    unsafe fn scale(self, exponent: Self) -> Self {
        unsafe { F64x8(_mm512_scalef_pd(self.0, exponent.0)) }
    }
    #[inline(always)]
    unsafe fn centred_fraction(self) -> Self {
        unsafe {
            let nearest = _mm512_roundscale_pd::<_MM_FROUND_NO_EXC>(self.0);
            F64x8(_mm512_sub_pd(self.0, nearest))
        }
    }
    #[inline(always)]
    unsafe fn prefetch(at: *const f64) {
        unsafe { _mm_prefetch::<_MM_HINT_T1>(at.cast()) }
    }
    #[inline(always)]
    unsafe fn turn(from: *const f64, stride: isize, columns: usize, to: *mut f64) {
        unsafe {
            let mut r = [_mm512_setzero_pd(); 8];
            for (i, row) in r.iter_mut().enumerate() {
                *row = F64x8::load_first(from.offset(i as isize * stride), columns).0;
            }
            let mut a = [_mm512_setzero_pd(); 8];
            for i in 0..4 {
                a[2 * i] = _mm512_unpacklo_pd(r[2 * i], r[2 * i + 1]);
                a[2 * i + 1] = _mm512_unpackhi_pd(r[2 * i], r[2 * i + 1]);
            }
            let mut out = [_mm512_setzero_pd(); 8];
            for c in 0..2 {
                let rows_0_3_low = _mm512_shuffle_f64x2::<0x88>(a[c], a[2 + c]);
                let rows_0_3_high = _mm512_shuffle_f64x2::<0xdd>(a[c], a[2 + c]);
                let rows_4_7_low = _mm512_shuffle_f64x2::<0x88>(a[4 + c], a[6 + c]);
                let rows_4_7_high = _mm512_shuffle_f64x2::<0xdd>(a[4 + c], a[6 + c]);
                out[c] = _mm512_shuffle_f64x2::<0x88>(rows_0_3_low, rows_4_7_low);
                out[2 + c] = _mm512_shuffle_f64x2::<0x88>(rows_0_3_high, rows_4_7_high);
                out[4 + c] = _mm512_shuffle_f64x2::<0xdd>(rows_0_3_low, rows_4_7_low);
                out[6 + c] = _mm512_shuffle_f64x2::<0xdd>(rows_0_3_high, rows_4_7_high);
            }
            for (c, column) in out.iter().enumerate().take(columns) {
                _mm512_storeu_pd(to.add(16 * c), *column);
            }
        }
    }
}
