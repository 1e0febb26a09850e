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
///   L/256 + L/2048; each correction is a product and a sum more, of both sums: L/32 in all;
/// - a sum of weights has L/16 roundings a lane;
/// - the weighted sum of the values of half a block has at most 128, and one more joins it to the
///   other: L/256.
///
/// Together δ = u·((d_k + 28)·S + min(L, 128) + L/8 + 64) in each weight, relative, and twice
/// e^δ − 1 after the division by the sum. Outputs are means of v, so no two differ by more than
/// 2·max |v|; where the bound is cut off there, it says nothing about lse. For `f64` the definition
/// rounds as well, in chains of L: with δ' = u·((d_k + 28)·S + L + 64) its share is added.
///
/// Half precision is computed in `f32` and rounded at the end, a share of h = 2⁻¹¹ for `f16` and 2⁻⁸
/// for `bf16`; the dot products of `bf16` also round each weight to `bf16`, once. With E the bound
/// of `f32` that makes (1 + E)·(1 + h) − 1 and (1 + E)·(1 + h)² − 1. None of this touches lse, which
/// is as near as that of `f32`.
///
/// It holds as long as neither a score nor L·max |v| overflows and max |v| is not subnormal; with
/// the dot products of `bf16`, subnormal numbers of q, k and v
/// count as 0.
pub fn bound(dtype: DType, head_dim: usize, keys: usize, largest: f64) -> f64 {
    let (keys, scores) = (keys as f64, (head_dim as f64 + 28.0) * largest);
    let share = |u: f64, roundings: f64| 2.0 * (u * (scores + roundings + 64.0)).exp_m1();
    let fast = keys.min(128.0) + keys / 8.0;
    let both = match dtype {
        DType::F64 => share(2f64.powi(-53), fast) + share(2f64.powi(-53), keys),
        DType::F32 => share(2f64.powi(-24), fast),
        DType::F16 => {
            let single = share(2f64.powi(-24), fast);
            single + (1.0 + single) * 2f64.powi(-11)
        }
        DType::Bf16 => {
            let single = share(2f64.powi(-24), fast);
            let rounded = 2.0 * 2f64.powi(-8) + 2f64.powi(-16);
            single + (1.0 + single) * rounded
        }
    };
    both.min(2.0)
}
