//! The derivative of a recipe, with or without mistakes, row by row:
//!
//! ```text
//! dP[i,j] = g_i·v_j,   dS[i,j] = P[i,j]·(dP[i,j] − Σ_j P·dP)·(1 − tanh²),
//! dQ_i = scale·Σ_j dS[i,j]·k_j,   dK_j = scale·Σ_i dS[i,j]·q_i,   dV_j = Σ_i P'[i,j]·g_i,
//! d(bias) = Σ dS without 1 − tanh²,   d(sink) = −Σ_i P[i,sink]·Σ_j P·dP
//! ```

use super::repeated::Repeated;
use crate::model::{Kind, Model, RowOut};
use crate::problem::Base;
use crate::recipe::{Arrangement, Axis, Cap, DroppedRule, Merge, Recipe, Shown, Split, Swap};
use qkv::{GradientName, StepName, Tensor};

/// What the backward pass gets wrong; the default is nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Mistake {
    /// How often the scale is multiplied.
    pub scales: i32,
    pub row_term: bool,
    pub softmax: bool,
    pub mask: Masked,
    pub groups: Groups,
    pub swapped: bool,
    pub softcap: bool,
    pub dropout: bool,
    pub turned_back: bool,
    pub turned_on: bool,
    pub sign: f64,
    /// The scale, and the derivative of the softcap, in the gradient of the bias too.
    pub bias_scaled: bool,
    pub bias_capped: bool,
    /// What becomes of the gradients of scores that share a number of the bias.
    pub bias: Groups,
    pub sinks_sign: f64,
}

/// What becomes of the gradients of a group's heads, or of others that are to be summed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Groups {
    Sum,
    First,
    Last,
    Mean,
    /// Summed over the query heads that tiling would give a key and value head.
    Tiled,
}

/// Whether weights are masked when the backward pass makes them again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Masked {
    Yes,
    /// Not masked, with the sum over the kept keys.
    No,
    /// Not masked, with the sum over all keys.
    Renormed,
}

impl Default for Mistake {
    fn default() -> Mistake {
        Mistake {
            scales: 1,
            row_term: true,
            softmax: true,
            mask: Masked::Yes,
            groups: Groups::Sum,
            swapped: false,
            softcap: true,
            dropout: true,
            turned_back: true,
            turned_on: false,
            sign: 1.0,
            bias_scaled: false,
            bias_capped: false,
            bias: Groups::Sum,
            sinks_sign: 1.0,
        }
    }
}

impl Mistake {
    /// Whether it can change anything in this problem.
    pub fn means_something(&self, base: &Base<'_>, recipe: &Recipe) -> bool {
        let sizes = base.sizes;
        let same_shape = sizes.queries == sizes.keys && sizes.heads == sizes.kv_heads;
        (self.groups == Groups::Sum || sizes.heads > sizes.kv_heads)
            && (!self.swapped || same_shape)
            && (self.softcap || recipe.softcap.is_some())
            && (self.dropout || recipe.dropout.is_some())
            && (self.turned_back && !self.turned_on || recipe.rotary.rotary.is_some())
            && (self.row_term || self.softmax)
            && (!self.bias_scaled && !self.bias_capped || base.bias.is_some())
            && (!self.bias_capped || recipe.softcap.is_some())
            && (self.bias == Groups::Sum || Repeated::of(base).is_some_and(|one| one.terms() > 1))
            && (self.sinks_sign == 1.0 || recipe.sinks.is_some())
    }
}

/// Whether the derivative of a recipe is the one above.
pub(super) fn is_known(recipe: &Recipe, right: &Recipe) -> bool {
    recipe.arrangement == Arrangement::Tokens
        && recipe.split == Split::Usual
        && recipe.merge == Merge::Usual
        && recipe.shown == Shown::Plain
        && recipe.swap == Swap::None
        && recipe.axis == Axis::Keys
        && recipe.dropped == DroppedRule::Left
        && recipe.cap == Cap::Usual
        && recipe.projection == right.projection
        && recipe.norm == right.norm
        && recipe.scale_after == 1.0
        && !recipe.distance.before_scale
        && !recipe.rotary.values
        && recipe.lse_base_2 == right.lse_base_2
}

/// Rows of a query head and of what it sees.
pub(super) struct Kept {
    at: [usize; 2],
    pub q: Vec<Vec<f64>>,
    pub k: Vec<Vec<f64>>,
    pub v: Vec<Vec<f64>>,
}

/// A row on its way to weights.
pub(super) struct Row {
    pub scaled: Vec<f64>,
    /// Capped, with bias and ALiBi.
    pub biased: Vec<f64>,
    /// −∞ where dropped.
    pub logits: Vec<f64>,
    pub weights: Vec<f64>,
    /// What rounding may make of each weight, in units of the roundoff, where bounds are asked for.
    pub worst: Vec<f64>,
    /// The same as roundings usually add up, where each intermediate is stored.
    pub usual: Vec<f64>,
    /// What dropout multiplies each weight by.
    pub shares: Vec<f64>,
}

impl Kept {
    pub fn new(model: &Model<'_>, at @ [b, h]: [usize; 2]) -> Kept {
        let sizes = model.sizes();
        let g = model.group_of(h);
        let rows = |kind: Kind, h: usize, count: usize| -> Vec<Vec<f64>> {
            (0..count)
                .map(|t| model.ready(kind, [b, h, t]).row)
                .collect()
        };
        Kept {
            at,
            q: rows(Kind::Q, h, sizes.queries),
            k: rows(Kind::K, g, sizes.keys),
            v: rows(Kind::V, g, sizes.keys),
        }
    }

    pub fn row(&self, model: &Model<'_>, i: usize) -> Option<Row> {
        let at = [self.at[0], self.at[1], i];
        let step = |step| model.step(step, &at).map(|row| row.values);
        let RowOut {
            values: weights,
            worst,
            usual,
        } = model.step(StepName::Weights, &at)?;
        let shares = match model.recipe.dropout {
            None => vec![1.0; weights.len()],
            Some(_) => (0..weights.len())
                .map(|j| model.kept_share(at, j))
                .collect(),
        };
        Some(Row {
            scaled: step(StepName::Scaled)?,
            biased: step(StepName::Biased)?,
            logits: step(StepName::Masked)?,
            weights,
            worst,
            usual,
            shares,
        })
    }
}

/// Gradients of queries, keys and values, of the bias and of sinks.
pub(super) struct Gradients {
    pub q: Vec<f64>,
    pub k: Vec<f64>,
    pub v: Vec<f64>,
    pub bias: Vec<f64>,
    pub sinks: Vec<f64>,
}

impl Gradients {
    pub fn of(&self, name: GradientName) -> &[f64] {
        match name {
            GradientName::GradQ => &self.q,
            GradientName::GradK => &self.k,
            GradientName::GradBias => &self.bias,
            GradientName::GradSinks => &self.sinks,
            _ => &self.v,
        }
    }

    pub fn new(
        model: &Model<'_>,
        base: &Base<'_>,
        grad: &Tensor<f64>,
        mistake: Mistake,
    ) -> Option<Gradients> {
        let sizes = base.sizes;
        let repeated = Repeated::of(base);
        let (d, dv) = (sizes.head_dim, sizes.value_dim);
        let mut out = Gradients {
            q: vec![0.0; sizes.batch * sizes.heads * sizes.queries * d],
            k: vec![0.0; sizes.batch * sizes.kv_heads * sizes.keys * d],
            v: vec![0.0; sizes.batch * sizes.kv_heads * sizes.keys * dv],
            bias: vec![0.0; repeated.as_ref().map_or(0, Repeated::len)],
            sinks: vec![0.0; sizes.heads],
        };
        let group = sizes.heads / sizes.kv_heads.max(1);
        for at in 0..sizes.batch * sizes.heads {
            let (b, h) = (at / sizes.heads, at % sizes.heads);
            let kept = Kept::new(model, [b, h]);
            let head = Head::new(model, &kept, grad, mistake)?;
            let start = at * sizes.queries * d;
            out.q[start..start + head.q.len()].copy_from_slice(&head.q);
            let g = match mistake.groups {
                Groups::Tiled => h % sizes.kv_heads,
                _ => model.group_of(h),
            };
            let share = match mistake.groups {
                Groups::Sum | Groups::Tiled => 1.0,
                Groups::First => f64::from(u8::from(h % group == 0)),
                Groups::Last => f64::from(u8::from(h % group == group - 1)),
                Groups::Mean => 1.0 / group as f64,
            };
            let add = |to: &mut [f64], from: &[f64]| {
                let start = (b * sizes.kv_heads + g) * from.len();
                for (to, from) in to[start..].iter_mut().zip(from) {
                    *to += share * from;
                }
            };
            add(&mut out.k, &head.k);
            add(&mut out.v, &head.v);
            out.sinks[h] += mistake.sinks_sign * head.sink;
            if let Some(repeated) = &repeated {
                out.add_bias(repeated, &head.masked, [b, h], model, mistake);
            }
        }
        out.turn_back(model, base, mistake);
        let Gradients {
            q,
            k,
            v,
            bias,
            sinks,
        } = &mut out;
        for numbers in [q, k, v, bias, sinks] {
            numbers.iter_mut().for_each(|x| *x *= mistake.sign);
        }
        if mistake.swapped {
            std::mem::swap(&mut out.q, &mut out.k);
        }
        Some(out)
    }

    /// What the scores of a head give the numbers of the bias.
    fn add_bias(
        &mut self,
        repeated: &Repeated,
        masked: &[f64],
        [b, h]: [usize; 2],
        model: &Model<'_>,
        mistake: Mistake,
    ) {
        let keys = model.sizes().keys.max(1);
        let scale = if mistake.bias_scaled {
            model.recipe.scale
        } else {
            1.0
        };
        let factor = scale * model.recipe.bias_factor;
        for (at, ds) in masked.iter().enumerate() {
            let to = &mut self.bias[repeated.at([b, h, at / keys, at % keys])];
            match mistake.bias {
                Groups::Sum => *to += factor * ds,
                Groups::Mean => *to += factor * ds / repeated.terms() as f64,
                // The first batch entry's alone.
                Groups::First if b == 0 => *to += factor * ds,
                Groups::Last if b + 1 == model.sizes().batch => *to += factor * ds,
                Groups::First | Groups::Last | Groups::Tiled => {}
            }
        }
    }

    /// From rotated queries and keys to those before; cached keys are as they were cached.
    fn turn_back(&mut self, model: &Model<'_>, base: &Base<'_>, mistake: Mistake) {
        if !mistake.turned_back || model.recipe.rotary.rotary.is_none() {
            return;
        }
        let sizes = base.sizes;
        let each = [
            (Kind::Q, &mut self.q, sizes.heads, sizes.queries, 0),
            (Kind::K, &mut self.k, sizes.kv_heads, sizes.keys, sizes.past),
        ];
        for (kind, numbers, heads, tokens, from) in each {
            for (at, row) in numbers.chunks_mut(sizes.head_dim.max(1)).enumerate() {
                let (b, t) = (at / (heads * tokens), at % tokens);
                if t >= from {
                    let turned = model.turned_by(kind, row, [b, t], mistake.turned_on);
                    row.copy_from_slice(&turned);
                }
            }
        }
    }
}

/// Gradients of one query head.
struct Head {
    q: Vec<f64>,
    k: Vec<f64>,
    v: Vec<f64>,
    /// Of the scores with their bias, row by row.
    masked: Vec<f64>,
    sink: f64,
}

impl Head {
    fn new(model: &Model<'_>, kept: &Kept, grad: &Tensor<f64>, mistake: Mistake) -> Option<Head> {
        let [b, h] = kept.at;
        let width = |rows: &[Vec<f64>]| rows.first().map_or(0, Vec::len);
        let (d, dv) = (width(&kept.k), width(&kept.v));
        let mut out = Head {
            q: vec![0.0; kept.q.len() * width(&kept.q)],
            k: vec![0.0; kept.k.len() * d],
            v: vec![0.0; kept.v.len() * dv],
            masked: vec![0.0; kept.q.len() * kept.k.len()],
            sink: 0.0,
        };
        let scale = model.recipe.scale.powi(mistake.scales);
        for i in 0..kept.q.len() {
            let Row {
                scaled,
                biased,
                logits,
                mut weights,
                mut shares,
                worst: _,
                usual: _,
            } = kept.row(model, i)?;
            if !mistake.dropout {
                shares.fill(1.0);
            }
            if mistake.mask != Masked::Yes {
                unmasked(&biased, &logits, &mut weights);
            }
            if mistake.mask == Masked::Renormed {
                // What the kept keys and the sink have is 1.
                let dropped = |j: &usize| logits[*j] == f64::NEG_INFINITY;
                let more: f64 = (0..weights.len()).filter(dropped).map(|j| weights[j]).sum();
                weights.iter_mut().for_each(|weight| *weight /= 1.0 + more);
            }
            let g = grad.row(&[b, h, i]);
            let used: Vec<usize> = (0..weights.len()).filter(|j| weights[*j] != 0.0).collect();
            let dp: Vec<f64> = used
                .iter()
                .map(|&j| shares[j] * g.iter().zip(&kept.v[j]).map(|(g, v)| g * v).sum::<f64>())
                .collect();
            let sum: f64 = used.iter().zip(&dp).map(|(j, dp)| weights[*j] * dp).sum();
            let row_term = if mistake.row_term { sum } else { 0.0 };
            out.sink -= sink_weight(model, h, &logits, &weights) * row_term;
            for (&j, dp) in used.iter().zip(&dp) {
                let mut ds = match mistake.softmax {
                    true => weights[j] * (dp - row_term),
                    false => *dp,
                };
                let slope = match model.recipe.softcap {
                    Some(cap) => 1.0 - (scaled[j] / cap).tanh().powi(2),
                    None => 1.0,
                };
                let at = i * kept.k.len() + j;
                out.masked[at] = if mistake.bias_capped { slope * ds } else { ds };
                if mistake.softcap {
                    ds *= slope;
                }
                ds *= scale;
                for c in 0..d {
                    out.q[i * d + c] += ds * kept.k[j][c];
                    out.k[j * d + c] += ds * kept.q[i][c];
                }
                for (c, g) in g.iter().enumerate() {
                    out.v[j * dv + c] += weights[j] * shares[j] * g;
                }
            }
        }
        Some(out)
    }
}

/// The weight of a head's sink: that of a key, and how much more the sink's logit is.
pub(super) fn sink_weight(model: &Model<'_>, h: usize, logits: &[f64], weights: &[f64]) -> f64 {
    let Some(sinks) = &model.recipe.sinks else {
        return 0.0;
    };
    // A key that a mistake keeps has no logit.
    let pairs = weights.iter().zip(logits).filter(|(_, l)| l.is_finite());
    let largest = pairs.max_by(|a, b| a.0.total_cmp(b.0));
    largest.map_or(0.0, |(weight, logit)| match *weight > 0.0 {
        true => weight * (sinks[h] - logit).exp(),
        false => 0.0,
    })
}

/// Weights that a backward pass makes again without the mask, from the lse of the kept keys.
fn unmasked(biased: &[f64], logits: &[f64], weights: &mut [f64]) {
    let Some(known) = (0..weights.len()).find(|j| weights[*j] > 0.0) else {
        return;
    };
    let lse = logits[known] - weights[known].ln();
    for (j, weight) in weights.iter_mut().enumerate() {
        if logits[j] == f64::NEG_INFINITY {
            *weight = (biased[j] - lse).exp();
        }
    }
}
