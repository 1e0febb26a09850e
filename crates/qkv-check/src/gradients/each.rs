//! How far rounding in single or double precision may move each number of the gradients.
//!
//! [`qkv::gradient_bound`] is one number for all, made of the largest score, product and sum of weights
//! that there are; it may be larger than a gradient. Here each number has its own bound, as those of
//! an output have in `bound.rs`. In units of the roundoff u, with ε_j what a weight may be off by,
//! dw_j = g·v_j, G_j = Σ_c |g_c·v_jc|, delta = Σ_j w_j·dw_j, L keys, and n rows that share a key:
//!
//! ```text
//! delta  Σ_j ε_j·|dw_j − delta| + (L + d_v + 80)·Σ_j w_j·G_j          and |delta|·Σ_j ε_j with a sink
//! dx_j   ε_j·|dw_j − delta| + (w_j + u·ε_j)·((d_v + 16)·G_j + 8·Σ w·G + what delta is off by)
//! dQ     Σ_j |scale·k_j|·(dx_j's, and (L + 16)·|dx_j|)
//! dK     Σ_i |scale·q_i|·(dx_j's, and (n + 16)·|dx_j|)
//! dV     Σ_i |g_i|·(ε_j + (n + 8)·w_j)
//! dbias  Σ dx_j's, and (n' + 8)·|dx_j| of n' terms
//! dsink  Σ_i w_sink·(what delta is off by, and (max_j ε_j/w_j + 8·|sink| + r + 136)·|delta|) of r rows
//! ```
//!
//! Σ (w' − w)·dw_j is Σ (w' − w)·(dw_j − delta), but for what the weights' sum is off by: hence delta's
//! first line. A softcap's 1 − tanh² is off by 4·(d_k + 8)·(S/cap + 1). Where ε is not small it is taken
//! as e^ε − 1, and a tenth is added for products of errors.

use super::backward::{Gradients, Kept, Row, sink_weight};
use super::repeated::Repeated;
use crate::bound::roundoff;
use crate::model::{Model, Shared};
use crate::problem::Base;
use crate::recipe::Recipe;
use qkv::{DType, GradientName, Tensor};

/// What each number may be off by, in units of the roundoff.
pub(super) struct Each(Gradients);

/// For products of errors.
const MORE: f64 = 1.1;

impl Each {
    /// `None` where columns are mixed after attention, as by rotary positions and norms.
    pub fn new(
        base: &Base<'_>,
        shared: &Shared,
        right: &Recipe,
        grad: &Tensor<f64>,
    ) -> Option<Each> {
        let block = base.problem.block();
        if block.q_norm.is_some() || block.k_norm.is_some() || right.rotary.rotary.is_some() {
            return None;
        }
        let model = Model::new(base, shared, right, true)?;
        let sizes = base.sizes;
        let repeated = Repeated::of(base);
        let mut out = Each(Gradients {
            q: vec![0.0; sizes.batch * sizes.heads * sizes.queries * sizes.head_dim],
            k: vec![0.0; sizes.batch * sizes.kv_heads * sizes.keys * sizes.head_dim],
            v: vec![0.0; sizes.batch * sizes.kv_heads * sizes.keys * sizes.value_dim],
            bias: vec![0.0; repeated.as_ref().map_or(0, Repeated::len)],
            sinks: vec![0.0; sizes.heads],
        });
        for at in 0..sizes.batch * sizes.heads {
            let (b, h) = (at / sizes.heads, at % sizes.heads);
            let kept = Kept::new(&model, [b, h]);
            for i in 0..sizes.queries {
                if let Some(row) = kept.row(&model, i) {
                    out.add(&model, &kept, [b, h, i], &row, grad, repeated.as_ref());
                }
            }
        }
        Some(out)
    }

    /// What the roundings of a row do.
    fn add(
        &mut self,
        model: &Model<'_>,
        kept: &Kept,
        at @ [b, h, i]: [usize; 3],
        row: &Row,
        grad: &Tensor<f64>,
        repeated: Option<&Repeated>,
    ) {
        let (sizes, recipe) = (model.sizes(), model.recipe);
        let (d, dv) = (sizes.head_dim, sizes.value_dim);
        let group = sizes.heads / sizes.kv_heads.max(1);
        let (keys, rows) = (sizes.keys as f64, (sizes.queries * group) as f64);
        let (q, g) = (&kept.q[i], grad.row(&at));
        let single = roundoff(DType::F32);
        let sum = |a: &[f64], b: &[f64]| -> f64 { a.iter().zip(b).map(|(a, b)| a * b).sum() };
        let size =
            |a: &[f64], b: &[f64]| -> f64 { a.iter().zip(b).map(|(a, b)| (a * b).abs()).sum() };
        let used: Vec<usize> = (0..sizes.keys).filter(|j| row.weights[*j] != 0.0).collect();
        let dw = |j: usize| row.shares[j] * sum(g, &kept.v[j]);
        let off = |j: usize| {
            let weight = row.weights[j].abs();
            weight * (row.worst[j] / weight * single).exp_m1() / single
        };
        let delta: f64 = used.iter().map(|&j| row.weights[j] * dw(j)).sum();
        let around = |j: &usize| row.weights[*j].abs() * row.shares[*j] * size(g, &kept.v[*j]);
        let around: f64 = used.iter().map(around).sum();
        let mut of_delta = (keys + dv as f64 + 80.0) * around;
        for &j in &used {
            of_delta += off(j) * (dw(j) - delta).abs();
            if recipe.sinks.is_some() {
                of_delta += off(j) * delta.abs();
            }
        }
        let group_at = b * sizes.kv_heads + model.group_of(h);
        for &j in &used {
            let (weight, off) = (row.weights[j].abs(), off(j));
            let product = row.shares[j] * size(g, &kept.v[j]);
            let apart = (dw(j) - delta).abs();
            let of_sums = (dv as f64 + 16.0) * product + 8.0 * around + of_delta;
            let dx = weight * apart;
            let of_dx = off * apart + (weight + single * off) * of_sums;
            if let Some(repeated) = repeated {
                self.0.bias[repeated.at([b, h, i, j])] +=
                    MORE * (of_dx + (repeated.terms() as f64 + 8.0) * dx);
            }
            let (slope, of_slope) = match recipe.softcap {
                Some(cap) => {
                    let score = recipe.scale.abs() * size(q, &kept.k[j]);
                    (
                        1.0 - (row.scaled[j] / cap).tanh().powi(2),
                        4.0 * (d as f64 + 8.0) * (score / cap + 1.0),
                    )
                }
                None => (1.0, 0.0),
            };
            let scale = MORE * recipe.scale.abs();
            let of_ds = scale * (slope * of_dx + of_slope * (dx + single * of_dx));
            let ds = scale * slope * dx;
            let (to_q, to_k) = (of_ds + (keys + 16.0) * ds, of_ds + (rows + 16.0) * ds);
            let first = ((b * sizes.heads + h) * sizes.queries + i) * d;
            for (out, k) in self.0.q[first..first + d].iter_mut().zip(&kept.k[j]) {
                *out += k.abs() * to_q;
            }
            let first = (group_at * sizes.keys + j) * d;
            for (out, q) in self.0.k[first..first + d].iter_mut().zip(q) {
                *out += q.abs() * to_k;
            }
            let to_v = MORE * row.shares[j] * (off + (rows + 8.0) * weight);
            let first = (group_at * sizes.keys + j) * dv;
            for (out, g) in self.0.v[first..first + dv].iter_mut().zip(g) {
                *out += g.abs() * to_v;
            }
        }
        if let Some(sinks) = &recipe.sinks {
            let weight = sink_weight(model, h, &row.logits, &row.weights);
            let share = |j: &usize| off(*j) / row.weights[*j].abs();
            let most = used.iter().map(share).fold(0.0, f64::max);
            let terms = (sizes.batch * sizes.queries) as f64;
            let own = most + 8.0 * sinks[h].abs() + terms + 136.0;
            self.0.sinks[h] += MORE * weight * (of_delta + own * (delta.abs() + single * of_delta));
        }
    }

    pub fn of(&self, name: GradientName) -> &[f64] {
        self.0.of(name)
    }
}
