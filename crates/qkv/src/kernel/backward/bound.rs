//! How far the fast backward pass may be from the definition.

use super::super::bound::bound;
use crate::view::DType;

/// What a bound on gradients is derived from.
#[derive(Clone, Copy, Debug)]
pub struct GradientSizes {
    /// Columns of queries and keys.
    pub head_dim: usize,
    /// Columns of values.
    pub value_dim: usize,
    /// Keys.
    pub keys: usize,
    /// Rows that share a key: queries · (heads/kv_heads).
    pub rows: usize,
    /// The largest sum of weights that one key gets from its rows; never more than `rows`.
    pub weight: f64,
    /// Rows · keys that share a number of the bias; 0 without one.
    pub bias_terms: usize,
    /// The largest sum of weights that share a number of the bias; never more than `bias_terms`.
    pub bias_weight: f64,
    /// Rows that share a sink: batch · queries.
    pub sink_terms: usize,
    /// The largest S of [`bound`](crate::bound), over the kept keys.
    pub largest_score: f64,
    /// |scale|.
    pub scale: f64,
    /// The softcap.
    pub softcap: Option<f64>,
    /// The share dropped.
    pub dropout: f64,
    /// The largest |number| of q.
    pub q: f64,
    /// Of k.
    pub k: f64,
    /// Of the gradient of the output.
    pub grad: f64,
    /// The largest Σ_c |grad_c·v_c| of a row and a key that it keeps; never more than the product
    /// of their lengths.
    pub product: f64,
}

/// Largest difference that rounding can make in a number of each gradient.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GradientBound {
    /// Of dQ.
    pub q: f64,
    /// Of dK.
    pub k: f64,
    /// Of dV.
    pub v: f64,
    /// Of d(bias).
    pub bias: f64,
    /// Of d(sinks).
    pub sinks: f64,
}

/// Largest differences that rounding can make between the fast backward pass and exact arithmetic.
///
/// With u the unit roundoff, ε = [`bound`](crate::bound), which is the relative error of a forward
/// weight and the absolute error of lse, m = 1/(1−p), and G = m·`product` ≥ |dw|, |delta|:
///
/// - a weight made from lse is off by a share of 2·ε;
/// - dw by (d_v + 2)·u·G; delta by ε·G from the output and 2·u·G of its own;
/// - dx = w·(dw − delta), where |dw − delta| ≤ 2·G, by w·G·E with E = 5·ε + (d_v + 16)·u, and with
///   a softcap 1 − tanh² adds 4·u·(d_k + 8)·(S/cap + 1);
/// - a chain of n sums rounds each of its partial sums, which are below Σ|terms|: n·u·2·G·Σ w more.
///
/// Σ w is at most 1 along a row, W over the n rows of a key, and W' over the n' terms of a number
/// of the bias. So
///
/// ```text
/// dQ    |scale|·|k|·G·(E + 2·(L + 4)·u)
/// dK    |scale|·|q|·G·W·(E + 2·(n + 4)·u)
/// dV    m·|g|·W·(2·ε + (n + 4)·u)
/// dbias G·W'·(E + 2·(n' + 4)·u)
/// dsink G·r·(3·ε + (r + 8)·u)                 r rows share a sink
/// ```
///
/// each times 1 + E for products of errors. What is below t = 2⁻¹²⁶ (2⁻¹⁰²² for `f64`) may be lost:
/// t in each weight, so t·(1 + 2·G) in dx, t more in each term and in the scale, and t at the end. For `f64` the definition rounds as much itself, which
/// doubles them. Half precision computes in `f32` from the output that it has rounded, so that of
/// the ε the one of delta is that of its own `bound`, and rounds each gradient once: with h = 2⁻¹¹
/// (`f16`) or 2⁻⁸ (`bf16`) a share of h of its size and of its error more, where sizes are at most
/// 2·|scale|·|k|·G, 2·|scale|·|q|·G·W, m·|g|·W, 2·G·W' and G·r, and 2⁻²⁵ where that is subnormal in
/// `f16`. It holds where [`bound`](crate::bound) does and is below 2, and no product of these
/// overflows.
pub fn gradient_bound(dtype: DType, sizes: &GradientSizes) -> GradientBound {
    let (u, roundings) = match dtype {
        DType::F64 => (2f64.powi(-53), 2.0),
        _ => (2f64.powi(-24), 1.0),
    };
    let bound = |dtype| bound(dtype, sizes.head_dim, sizes.keys, sizes.largest_score);
    let of_output = bound(dtype);
    let (e, h, least) = match dtype {
        DType::F16 => (bound(DType::F32), 2f64.powi(-11), 2f64.powi(-25)),
        DType::Bf16 => (bound(DType::F32), 2f64.powi(-8), 2f64.powi(-134)),
        DType::F32 | DType::F64 => (of_output, 0.0, 0.0),
    };
    let share = 1.0 / (1.0 - sizes.dropout);
    let g = share * sizes.product;
    let capped = sizes.softcap.map_or(0.0, |cap| {
        4.0 * u * (sizes.head_dim as f64 + 8.0) * (sizes.largest_score / cap + 1.0)
    });
    let each = 4.0 * e + of_output + (sizes.value_dim as f64 + 16.0) * u + capped;
    let all = roundings * (1.0 + each);
    let chain = |n: f64| each + 2.0 * (n + 4.0) * u;
    let tiny = match dtype {
        DType::F64 => f64::MIN_POSITIVE,
        _ => f64::from(f32::MIN_POSITIVE),
    };
    // n terms, each a factor times dx, times a factor for all.
    let lost = |n: f64, term: f64, sum: f64| {
        tiny * (1.0 + (n * sum + 1.0) * (1.0 + term * (1.0 + 2.0 * g)))
    };
    let (keys, rows) = (sizes.keys as f64, sizes.rows as f64);
    let (bias, sinks) = (sizes.bias_terms as f64, sizes.sink_terms as f64);
    // `most` is how many times `size` the gradient may be.
    let rounded = |most: f64, size: f64, share: f64, lost: f64| {
        let error = all * size * share + lost;
        error + h * (most * size + error) + least
    };
    let (scale, weight, grad) = (sizes.scale, sizes.weight, share * sizes.grad);
    GradientBound {
        q: rounded(
            2.0,
            scale * sizes.k * g,
            chain(keys),
            lost(keys, sizes.k, scale),
        ),
        k: rounded(
            2.0,
            scale * sizes.q * g * weight,
            chain(rows),
            lost(rows, sizes.q, scale) * weight.max(1.0),
        ),
        v: rounded(
            1.0,
            grad * weight,
            2.0 * e + (rows + 4.0) * u,
            tiny * (1.0 + rows * (1.0 + grad)),
        ),
        bias: rounded(
            2.0,
            g * sizes.bias_weight,
            chain(bias),
            lost(bias, 1.0, 1.0),
        ),
        sinks: rounded(
            1.0,
            g * sinks,
            2.0 * e + of_output + (sinks + 8.0) * u,
            lost(sinks, 1.0, 1.0),
        ),
    }
}
