//! What the bound on gradients is derived from.

use super::backward::Kept;
use super::repeated::Repeated;
use crate::model::{Model, Shared};
use crate::problem::Base;
use crate::recipe::Recipe;
use qkv::{GradientSizes, Tensor};

/// What the bound is derived from, in this problem's own numbers.
pub(super) fn sizes(
    base: &Base<'_>,
    shared: &Shared,
    right: &Recipe,
    grad: &Tensor<f64>,
) -> GradientSizes {
    let sizes = base.sizes;
    let repeated = Repeated::of(base);
    let group = sizes.heads / sizes.kv_heads.max(1);
    let mut out = GradientSizes {
        head_dim: sizes.head_dim,
        value_dim: sizes.value_dim,
        keys: sizes.keys,
        rows: sizes.queries * group,
        weight: 0.0,
        bias_terms: repeated.as_ref().map_or(0, Repeated::terms),
        bias_weight: 0.0,
        sink_terms: match base.problem.attention().sinks {
            Some(_) => sizes.batch * sizes.queries,
            None => 0,
        },
        largest_score: 0.0,
        scale: right.scale.abs(),
        softcap: right.softcap,
        dropout: right.dropout.map_or(0.0, |dropout| dropout.p),
        q: 0.0,
        k: 0.0,
        grad: largest(grad.data()),
        product: 0.0,
    };
    let Some(model) = Model::new(base, shared, right, false) else {
        return out;
    };
    let mut of_bias = vec![0.0; repeated.as_ref().map_or(0, Repeated::len)];
    for at in 0..sizes.batch * sizes.kv_heads {
        let (b, g) = (at / sizes.kv_heads, at % sizes.kv_heads);
        let mut weight = vec![0.0; sizes.keys];
        for h in g * group..(g + 1) * group {
            let kept = Kept::new(&model, [b, h]);
            out.q = out
                .q
                .max(kept.q.iter().map(|row| largest(row)).fold(0.0, f64::max));
            out.k = out
                .k
                .max(kept.k.iter().map(|row| largest(row)).fold(0.0, f64::max));
            for i in 0..sizes.queries {
                let Some(row) = kept.row(&model, i) else {
                    continue;
                };
                for j in (0..sizes.keys).filter(|j| row.weights[*j] != 0.0) {
                    weight[j] += row.weights[j];
                    if let Some(repeated) = &repeated {
                        of_bias[repeated.at([b, h, i, j])] += row.weights[j];
                    }
                    let of = |a: &[f64], b: &[f64]| -> f64 {
                        a.iter().zip(b).map(|(a, b)| (a * b).abs()).sum()
                    };
                    let score = right.scale.abs() * of(&kept.q[i], &kept.k[j]);
                    let added = (row.logits[j] - row.scaled[j]).abs();
                    let added = if added.is_finite() { added } else { 0.0 };
                    out.largest_score = out.largest_score.max(score + added);
                    let product = of(grad.row(&[b, h, i]), &kept.v[j]);
                    out.product = out.product.max(product);
                }
            }
        }
        out.weight = out.weight.max(weight.into_iter().fold(0.0, f64::max));
    }
    out.bias_weight = of_bias.into_iter().fold(0.0, f64::max);
    out
}

/// What may be lost below the least normal number: of a weight, of each of its products, of sums.
pub(super) fn lost(least: f64, sizes: &GradientSizes) -> f64 {
    let terms = sizes
        .keys
        .max(sizes.rows)
        .max(sizes.bias_terms)
        .max(sizes.sink_terms) as f64;
    let most = sizes.q.max(sizes.k).max(sizes.grad).max(1.0) * (1.0 + sizes.scale);
    let share = 1.0 / (1.0 - sizes.dropout);
    least * (2.0 + terms) * (1.0 + most) * (1.0 + 2.0 * share * sizes.product.max(1.0))
}

pub(super) fn largest(numbers: &[f64]) -> f64 {
    numbers.iter().fold(0.0, |a, x| a.max(x.abs()))
}
