//! Natural logarithms of many numbers.

/// ln x = e·ln 2 + 2·artanh((m − 1)/(m + 1)) for x = 2ᵉ·m with m in [√½, √2), within 2 ulp. Plain
/// Rust that the compiler turns into registers of whatever instruction set calls it.
///
/// The series in s² has |s| ≤ 0.172, so its terms after the eleventh are below 2⁻⁵³.
///
/// `unsafe` only to be called as the other kernels are.
#[inline(always)]
pub(super) unsafe fn run(numbers: &mut [f64]) {
    let is_usual = |x: f64| (f64::MIN_POSITIVE..f64::INFINITY).contains(&x);
    if numbers.iter().fold(true, |all, &x| all & is_usual(x)) {
        for x in numbers {
            *x = usual(*x);
        }
    } else {
        for x in numbers {
            *x = if is_usual(*x) { usual(*x) } else { x.ln() };
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
    // Two halves side by side: few logarithms wait for one another's steps.
    let w = z * z;
    let (mut even, mut odd) = (2.0 / 23.0, 2.0 / 21.0);
    for n in [19.0, 15.0, 11.0, 7.0] {
        even = even * w + 2.0 / n;
        odd = odd * w + 2.0 / (n - 2.0);
    }
    let series = 2.0 / 3.0 + (odd + even * z) * z;
    exponent as f64 * std::f64::consts::LN_2 + (2.0 * s + s * z * series)
}
