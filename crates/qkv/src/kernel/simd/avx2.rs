//! AVX2 with FMA: 8 `f32` or 4 `f64` a register, 16 registers.

use super::vector::Vector;
use std::arch::x86_64::*;

#[derive(Clone, Copy)]
pub(super) struct F32x8(__m256);

#[derive(Clone, Copy)]
pub(super) struct F64x4(__m256d);

/// Where eight numbers of 16 bits are readable, of which the first `n ≤ 8` are those at `from` and
/// others 0: there, or copied to `some`, which holds zeros.
#[inline(always)]
unsafe fn first_halves(some: &mut [u16; 8], from: *const u16, n: usize) -> *const u16 {
    if n == 8 {
        return from;
    }
    unsafe { std::ptr::copy_nonoverlapping(from, some.as_mut_ptr(), n) };
    some.as_ptr()
}

impl F32x8 {
    /// 2 to this power is already taken as 0.
    const LOWEST: f32 = -127.0;

    #[inline(always)]
    pub(super) unsafe fn widen_f16(from: *const u16) -> Self {
        unsafe { F32x8(_mm256_cvtph_ps(_mm_loadu_si128(from.cast()))) }
    }
    /// The first `n ≤ 8`, zeros behind them; the rest of memory is not touched.
    #[inline(always)]
    pub(super) unsafe fn widen_first_f16(from: *const u16, n: usize) -> Self {
        unsafe { Self::widen_f16(first_halves(&mut [0; 8], from, n)) }
    }
    #[inline(always)]
    pub(super) unsafe fn narrow_f16(self, to: *mut u16) {
        unsafe {
            let rounded = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(self.0);
            _mm_storeu_si128(to.cast(), rounded);
        }
    }
    #[inline(always)]
    pub(super) unsafe fn widen_bf16(from: *const u16) -> Self {
        unsafe {
            let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast()));
            F32x8(_mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide)))
        }
    }
    /// As [`F32x8::widen_first_f16`].
    #[inline(always)]
    pub(super) unsafe fn widen_first_bf16(from: *const u16, n: usize) -> Self {
        unsafe { Self::widen_bf16(first_halves(&mut [0; 8], from, n)) }
    }
    #[inline(always)]
    pub(super) unsafe fn narrow_bf16(self, to: *mut u16) {
        unsafe {
            let bits = _mm256_castps_si256(self.0);
            let upper = _mm256_srli_epi32::<16>(bits);
            let odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
            let half = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
            let rounded = _mm256_srli_epi32::<16>(_mm256_add_epi32(bits, half));
            let nan = _mm256_cmp_ps::<_CMP_UNORD_Q>(self.0, self.0);
            let quiet = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
            let rounded = _mm256_blendv_epi8(rounded, quiet, _mm256_castps_si256(nan));
            // The two quarters of each half, then the halves side by side.
            let packed = _mm256_packus_epi32(rounded, rounded);
            let packed = _mm256_permute4x64_epi64::<0b1000>(packed);
            _mm_storeu_si128(to.cast(), _mm256_castsi256_si128(packed));
        }
    }

    /// All bits set in the lanes from ≤ lane < to.
    #[inline(always)]
    unsafe fn lanes(from: usize, to: usize) -> __m256i {
        unsafe {
            let lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
            let below = _mm256_cmpgt_epi32(_mm256_set1_epi32(to as i32), lane);
            let before = _mm256_cmpgt_epi32(_mm256_set1_epi32(from as i32), lane);
            _mm256_andnot_si256(before, below)
        }
    }
}

impl F64x4 {
    /// 2 to this power is already taken as 0.
    const LOWEST: f64 = -1023.0;

    /// All bits set in the lanes from ≤ lane < to.
    #[inline(always)]
    unsafe fn lanes(from: usize, to: usize) -> __m256i {
        unsafe {
            let lane = _mm256_setr_epi64x(0, 1, 2, 3);
            let below = _mm256_cmpgt_epi64(_mm256_set1_epi64x(to as i64), lane);
            let before = _mm256_cmpgt_epi64(_mm256_set1_epi64x(from as i64), lane);
            _mm256_andnot_si256(before, below)
        }
    }
}

impl Vector for F32x8 {
    type T = f32;
    const LANES: usize = 8;

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        unsafe { F32x8(_mm256_set1_ps(x)) }
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        unsafe { F32x8(_mm256_loadu_ps(from)) }
    }
    #[inline(always)]
    unsafe fn load_first(from: *const f32, n: usize) -> Self {
        unsafe { F32x8(_mm256_maskload_ps(from, F32x8::lanes(0, n))) }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        unsafe { _mm256_storeu_ps(to, self.0) }
    }
    #[inline(always)]
    unsafe fn store_first(self, to: *mut f32, n: usize) {
        unsafe { _mm256_maskstore_ps(to, F32x8::lanes(0, n), self.0) }
    }
    #[inline(always)]
    unsafe fn load_halves(a: *const f32, b: *const f32, n: usize) -> Self {
        unsafe {
            let n = _mm256_castsi256_si128(F32x8::lanes(0, n));
            let (a, b) = (_mm_maskload_ps(a, n), _mm_maskload_ps(b, n));
            F32x8(_mm256_insertf128_ps::<1>(_mm256_castps128_ps256(a), b))
        }
    }
    #[inline(always)]
    unsafe fn store_halves(self, a: *mut f32, b: *mut f32) {
        unsafe {
            _mm_storeu_ps(a, _mm256_castps256_ps128(self.0));
            _mm_storeu_ps(b, _mm256_extractf128_ps::<1>(self.0));
        }
    }
    #[inline(always)]
    unsafe fn halves(self, other: Self) -> Self {
        unsafe { F32x8(_mm256_blend_ps::<0xf0>(self.0, other.0)) }
    }
    #[inline(always)]
    unsafe fn before(self, n: usize, other: Self) -> Self {
        unsafe {
            let lanes = _mm256_castsi256_ps(F32x8::lanes(0, n));
            F32x8(_mm256_blendv_ps(other.0, self.0, lanes))
        }
    }
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        unsafe { F32x8(_mm256_add_ps(self.0, other.0)) }
    }
    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        unsafe { F32x8(_mm256_sub_ps(self.0, other.0)) }
    }
    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        unsafe { F32x8(_mm256_mul_ps(self.0, other.0)) }
    }
    #[inline(always)]
    unsafe fn div(self, other: Self) -> Self {
        unsafe { F32x8(_mm256_div_ps(self.0, other.0)) }
    }
    #[inline(always)]
    unsafe fn fma(self, b: Self, c: Self) -> Self {
        unsafe { F32x8(_mm256_fmadd_ps(self.0, b.0, c.0)) }
    }
    #[inline(always)]
    unsafe fn max(self, other: Self) -> Self {
        unsafe { F32x8(_mm256_max_ps(self.0, other.0)) }
    }
    #[inline(always)]
    unsafe fn min(self, other: Self) -> Self {
        unsafe { F32x8(_mm256_min_ps(self.0, other.0)) }
    }
    #[inline(always)]
    unsafe fn abs(self) -> Self {
        unsafe { F32x8(_mm256_andnot_ps(_mm256_set1_ps(-0.0), self.0)) }
    }
    #[inline(always)]
    unsafe fn copy_sign(self, sign: Self) -> Self {
        unsafe {
            let minus = _mm256_and_ps(sign.0, _mm256_set1_ps(-0.0));
            F32x8(_mm256_or_ps(self.abs().0, minus))
        }
    }
    #[inline(always)]
    unsafe fn only(self, from: usize, to: usize) -> Self {
        unsafe {
            let nothing = _mm256_set1_ps(f32::NEG_INFINITY);
            let lanes = _mm256_castsi256_ps(F32x8::lanes(from, to));
            F32x8(_mm256_blendv_ps(nothing, self.0, lanes))
        }
    }
    #[inline(always)]
    unsafe fn dropped_where_neg_inf(self, bias: Self) -> Self {
        unsafe {
            let nothing = _mm256_set1_ps(f32::NEG_INFINITY);
            let dropped = _mm256_cmp_ps::<_CMP_EQ_OQ>(bias.0, nothing);
            F32x8(_mm256_blendv_ps(self.0, nothing, dropped))
        }
    }
    #[inline(always)]
    unsafe fn dropped_unless(self, from: *const bool, n: usize, kept: bool) -> Self {
        unsafe {
            let mut lanes = [f32::NEG_INFINITY; 8];
            for (i, lane) in lanes.iter_mut().enumerate().take(n) {
                if *from.add(i) == kept {
                    *lane = 0.0;
                }
            }
            // Not added: NaN must not come through.
            let nothing = _mm256_loadu_ps(lanes.as_ptr());
            F32x8(_mm256_blendv_ps(self.0, nothing, nothing))
        }
    }
    #[inline(always)]
    unsafe fn fraction(self) -> Self {
        unsafe {
            let x = _mm256_max_ps(_mm256_set1_ps(F32x8::LOWEST), self.0);
            F32x8(_mm256_sub_ps(x, _mm256_floor_ps(x)))
        }
    }
    #[inline(always)]
    unsafe fn scale(self, exponent: Self) -> Self {
        unsafe {
            let x = _mm256_max_ps(_mm256_set1_ps(F32x8::LOWEST), exponent.0);
            let whole = _mm256_cvtps_epi32(_mm256_floor_ps(x));
            let biased = _mm256_add_epi32(whole, _mm256_set1_epi32(127));
            let power = _mm256_castsi256_ps(_mm256_slli_epi32::<23>(biased));
            F32x8(_mm256_mul_ps(self.0, power))
        }
    }
    #[inline(always)]
    unsafe fn centred_fraction(self) -> Self {
        unsafe {
            let whole =
                _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(self.0);
            F32x8(_mm256_sub_ps(self.0, whole))
        }
    }
    #[inline(always)]
    unsafe fn prefetch(at: *const f32) {
        unsafe { _mm_prefetch::<_MM_HINT_T1>(at.cast()) }
    }
    #[inline(always)]
    unsafe fn turn(from: *const f32, stride: isize, columns: usize, to: *mut f32) {
        unsafe {
            let mut r = [_mm256_setzero_ps(); 8];
            for (i, row) in r.iter_mut().enumerate() {
                *row = F32x8::load_first(from.offset(i as isize * stride), columns).0;
            }
            let mut a = [_mm256_setzero_pd(); 8];
            for i in 0..4 {
                a[2 * i] = _mm256_castps_pd(_mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]));
                a[2 * i + 1] = _mm256_castps_pd(_mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]));
            }
            let mut out = [_mm256_setzero_ps(); 8];
            for c in 0..4 {
                // Columns c and 4 + c of rows 0 to 3, and of rows 4 to 7.
                let halves = [0, 4].map(|first| {
                    let (low, high) = (a[first + c / 2], a[first + 2 + c / 2]);
                    _mm256_castpd_ps(if c % 2 == 0 {
                        _mm256_unpacklo_pd(low, high)
                    } else {
                        _mm256_unpackhi_pd(low, high)
                    })
                });
                out[c] = _mm256_permute2f128_ps::<0x20>(halves[0], halves[1]);
                out[4 + c] = _mm256_permute2f128_ps::<0x31>(halves[0], halves[1]);
            }
            for (c, column) in out.iter().enumerate().take(columns) {
                _mm256_storeu_ps(to.add(16 * c), *column);
            }
        }
    }
}

impl Vector for F64x4 {
    type T = f64;
    const LANES: usize = 4;

    #[inline(always)]
    unsafe fn splat(x: f64) -> Self {
        unsafe { F64x4(_mm256_set1_pd(x)) }
    }
    #[inline(always)]
    unsafe fn load(from: *const f64) -> Self {
        unsafe { F64x4(_mm256_loadu_pd(from)) }
    }
    #[inline(always)]
    unsafe fn load_first(from: *const f64, n: usize) -> Self {
        unsafe { F64x4(_mm256_maskload_pd(from, F64x4::lanes(0, n))) }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f64) {
        unsafe { _mm256_storeu_pd(to, self.0) }
    }
    #[inline(always)]
    unsafe fn store_first(self, to: *mut f64, n: usize) {
        unsafe { _mm256_maskstore_pd(to, F64x4::lanes(0, n), self.0) }
    }
    #[inline(always)]
    unsafe fn load_halves(a: *const f64, b: *const f64, n: usize) -> Self {
        unsafe {
            let n = _mm256_castsi256_si128(F64x4::lanes(0, n));
            let (a, b) = (_mm_maskload_pd(a, n), _mm_maskload_pd(b, n));
            F64x4(_mm256_insertf128_pd::<1>(_mm256_castpd128_pd256(a), b))
        }
    }
    #[inline(always)]
    unsafe fn store_halves(self, a: *mut f64, b: *mut f64) {
        unsafe {
            _mm_storeu_pd(a, _mm256_castpd256_pd128(self.0));
            _mm_storeu_pd(b, _mm256_extractf128_pd::<1>(self.0));
        }
    }
    #[inline(always)]
    unsafe fn halves(self, other: Self) -> Self {
        unsafe { F64x4(_mm256_blend_pd::<0b1100>(self.0, other.0)) }
    }
    #[inline(always)]
    unsafe fn before(self, n: usize, other: Self) -> Self {
        unsafe {
            let lanes = _mm256_castsi256_pd(F64x4::lanes(0, n));
            F64x4(_mm256_blendv_pd(other.0, self.0, lanes))
        }
    }
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        unsafe { F64x4(_mm256_add_pd(self.0, other.0)) }
    }
    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        unsafe { F64x4(_mm256_sub_pd(self.0, other.0)) }
    }
    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        unsafe { F64x4(_mm256_mul_pd(self.0, other.0)) }
    }
    #[inline(always)]
    unsafe fn div(self, other: Self) -> Self {
        unsafe { F64x4(_mm256_div_pd(self.0, other.0)) }
    }
    #[inline(always)]
    unsafe fn fma(self, b: Self, c: Self) -> Self {
        unsafe { F64x4(_mm256_fmadd_pd(self.0, b.0, c.0)) }
    }
    #[inline(always)]
    unsafe fn max(self, other: Self) -> Self {
        unsafe { F64x4(_mm256_max_pd(self.0, other.0)) }
    }
    #[inline(always)]
    unsafe fn min(self, other: Self) -> Self {
        unsafe { F64x4(_mm256_min_pd(self.0, other.0)) }
    }
    #[inline(always)]
    unsafe fn abs(self) -> Self {
        unsafe { F64x4(_mm256_andnot_pd(_mm256_set1_pd(-0.0), self.0)) }
    }
    #[inline(always)]
    unsafe fn copy_sign(self, sign: Self) -> Self {
        unsafe {
            let minus = _mm256_and_pd(sign.0, _mm256_set1_pd(-0.0));
            F64x4(_mm256_or_pd(self.abs().0, minus))
        }
    }
    #[inline(always)]
    unsafe fn only(self, from: usize, to: usize) -> Self {
        unsafe {
            let nothing = _mm256_set1_pd(f64::NEG_INFINITY);
            let lanes = _mm256_castsi256_pd(F64x4::lanes(from, to));
            F64x4(_mm256_blendv_pd(nothing, self.0, lanes))
        }
    }
    #[inline(always)]
    unsafe fn dropped_where_neg_inf(self, bias: Self) -> Self {
        unsafe {
            let nothing = _mm256_set1_pd(f64::NEG_INFINITY);
            let dropped = _mm256_cmp_pd::<_CMP_EQ_OQ>(bias.0, nothing);
            F64x4(_mm256_blendv_pd(self.0, nothing, dropped))
        }
    }
    #[inline(always)]
    unsafe fn dropped_unless(self, from: *const bool, n: usize, kept: bool) -> Self {
        unsafe {
            let mut lanes = [f64::NEG_INFINITY; 4];
            for (i, lane) in lanes.iter_mut().enumerate().take(n) {
                if *from.add(i) == kept {
                    *lane = 0.0;
                }
            }
            // Not added: NaN must not come through.
            let nothing = _mm256_loadu_pd(lanes.as_ptr());
            F64x4(_mm256_blendv_pd(self.0, nothing, nothing))
        }
    }
    #[inline(always)]
    unsafe fn fraction(self) -> Self {
        unsafe {
            let x = _mm256_max_pd(_mm256_set1_pd(F64x4::LOWEST), self.0);
            F64x4(_mm256_sub_pd(x, _mm256_floor_pd(x)))
        }
    }
    #[inline(always)]
    unsafe fn scale(self, exponent: Self) -> Self {
        unsafe {
            let x = _mm256_max_pd(_mm256_set1_pd(F64x4::LOWEST), exponent.0);
            let whole = _mm256_cvtepi32_epi64(_mm256_cvtpd_epi32(_mm256_floor_pd(x)));
            let biased = _mm256_add_epi64(whole, _mm256_set1_epi64x(1023));
            let power = _mm256_castsi256_pd(_mm256_slli_epi64::<52>(biased));
            F64x4(_mm256_mul_pd(self.0, power))
        }
    }
    #[inline(always)]
    unsafe fn centred_fraction(self) -> Self {
        unsafe {
            let whole =
                _mm256_round_pd::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(self.0);
            F64x4(_mm256_sub_pd(self.0, whole))
        }
    }
    #[inline(always)]
    unsafe fn prefetch(at: *const f64) {
        unsafe { _mm_prefetch::<_MM_HINT_T1>(at.cast()) }
    }
    #[inline(always)]
    unsafe fn turn(from: *const f64, stride: isize, columns: usize, to: *mut f64) {
        unsafe {
            let mut r = [_mm256_setzero_pd(); 4];
            for (i, row) in r.iter_mut().enumerate() {
                *row = F64x4::load_first(from.offset(i as isize * stride), columns).0;
            }
            let even = [
                _mm256_unpacklo_pd(r[0], r[1]),
                _mm256_unpacklo_pd(r[2], r[3]),
            ];
            let odd = [
                _mm256_unpackhi_pd(r[0], r[1]),
                _mm256_unpackhi_pd(r[2], r[3]),
            ];
            let out = [
                _mm256_permute2f128_pd::<0x20>(even[0], even[1]),
                _mm256_permute2f128_pd::<0x20>(odd[0], odd[1]),
                _mm256_permute2f128_pd::<0x31>(even[0], even[1]),
                _mm256_permute2f128_pd::<0x31>(odd[0], odd[1]),
            ];
            for (c, column) in out.iter().enumerate().take(columns) {
                _mm256_storeu_pd(to.add(16 * c), *column);
            }
        }
    }
}
