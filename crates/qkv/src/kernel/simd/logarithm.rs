//! Natural logarithms of many numbers.

/// ln x = e·ln 2 + 2·artanh((m − 1)/(m + 1)) for x = 2ᵉ·m with m in [√½, √2), within 2 ulp. Plain
/// Rust that the compiler turns into registers of whatever instruction set calls it.
///
/// The series in s² has |s| ≤ 0.172, so its terms after the eleventh are below 2⁻⁵³.
///
/// `unsafe` only to be called as the other kernels are.
#[inline(always)]
pub(super) unsafe fn run(numbers: &mut [f64]) {
    for numbers in numbers.chunks_mut(64) {
        let mut given = [0.0; 64];
        given[..numbers.len()].copy_from_slice(numbers);
        for x in &mut *numbers {
            *x = usual(*x);
        }
        for (to, x) in numbers.iter_mut().zip(given) {
            if !(f64::MIN_POSITIVE..f64::INFINITY).contains(&x) {
                *to = x.ln();
            }
        }
    }
}

/// Of a positive number that is neither subnormal nor infinite.
#[inline(always)]
fn usual(x: f64) -> f64 {
    // √½, to the upper half of its bits.
    const ROOT: u64 = 0x3fe6_a09e_0000_0000;
    let bits = x.to_bits();
    let exponent = (bits.wrapping_sub(ROOT) as i64) >> 52;
    let m = f64::from_bits(bits.wrapping_sub((exponent as u64) << 52));
    let s = (m - 1.0) / (m + 1.0);
    let z = s * s;
    let mut series = 2.0 / 23.0;
    for odd in [21.0, 19.0, 17.0, 15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0] {
        series = series * z + 2.0 / odd;
    }
    exponent as f64 * std::f64::consts::LN_2 + (2.0 * s + s * z * series)
}
