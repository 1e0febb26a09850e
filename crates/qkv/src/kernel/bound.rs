//! How far the fast path may be from the definition.

use crate::view::DType;

/// Largest difference that rounding can make between the fast path and exact arithmetic, as a
/// share of the largest |v| (with dropout, of |v|/(1−p)); also the largest difference of lse.
///
/// `largest` is the largest S = |scale|·Σ_c |q_c·k_c| + |bias| + slope·distance over the kept keys.
///
/// With u the unit roundoff (2⁻²⁴ for `f32`, 2⁻⁵³ for `f64`) and L keys:
///
/// - a score is a chain of d_k roundings, and scale, softcap, bias, ALiBi, the difference from the
///   maximum and its product with log₂e are at most 28 more, each at most u·S: (d_k + 28)·u·S in
///   the exponent. The corrections of all blocks telescope to differences of at most 2·S, which is
///   among the 28;
/// - exp has 4·u, once for the weight and once for each correction, of which there are at most
///   L/256 + L/2048;
/// - a sum of weights has L/16 roundings a lane and one for each correction, the weighted sum of
///   values L and one for each correction.
///
/// Together δ = u·((d_k + 28)·S + 1.25·L + 64) in each weight, relative, and twice e^δ − 1 after the
/// division by the sum. Outputs are means of v, so no two differ by more than 2·max |v|. For `f64`
/// the definition rounds as much itself, which doubles the difference.
///
/// It holds as long as neither a score nor L·max |v| overflows and max |v| is not subnormal.
pub fn bound(dtype: DType, head_dim: usize, keys: usize, largest: f64) -> f64 {
    let (u, roundings) = match dtype {
        DType::F64 => (2f64.powi(-53), 2.0),
        _ => (2f64.powi(-24), 1.0), // what is stored shorter is computed in f32
    };
    let delta = u * ((head_dim as f64 + 28.0) * largest + 1.25 * keys as f64 + 64.0);
    (2.0 * roundings * delta.exp_m1()).min(2.0)
}
