//! Weights and output of a run under a mistake: what [`Model`] makes of the wrong recipe.

use crate::Mistake;
use crate::model::{Model, Shared};
use crate::problem::{Base, Problem};
use crate::recipe::{Axis, Recipe};
use qkv::{Attention, Block, StepName, Steps, Tensor};

/// What a run would have given under a mistake.
#[derive(Clone, Debug, PartialEq)]
pub struct Recomputed {
    /// The mistake.
    pub mistake: Mistake,
    /// The factor on q·k.
    pub factor: f64,
    /// What enters the softmax, −∞ where a key is dropped, `[B, H, L_q, L_k]`.
    pub logits: Tensor<f64>,
    /// The weights before dropout, `[B, H, L_q, L_k]`.
    pub weights: Tensor<f64>,
    /// Σ weight·v for each head, `[B, H, L_q, d_v]`.
    pub output: Tensor<f64>,
    /// Largest difference of a weight to the right one.
    pub max_weight_error: f64,
    /// Largest difference of an output to the right one.
    pub max_abs_error: f64,
}

impl Recomputed {
    /// Whether a weight differs by more than the rounding of the sums it is made of.
    pub fn differs(&self) -> bool {
        let terms = self.weights.shape().iter().rev().take(2).product::<usize>();
        // A weight is a quotient with a sum of at most `terms` numbers, computed twice.
        self.max_weight_error > 4.0 * (terms as f64 + 2.0) * f64::EPSILON
    }
}

/// What the usual mistakes would have given; `None` unless `steps` are a run of `attention`.
pub fn contrast(
    attention: &Attention<'_>,
    steps: &Steps,
    model_width: usize,
) -> Option<Vec<Recomputed>> {
    Mistake::usual(model_width)
        .into_iter()
        .map(|mistake| recompute(mistake, attention, steps))
        .collect()
}

/// Works weights and output out again from the scores of a run, with one thing done wrong.
///
/// ```text
/// s[i,j] = softcap(factor·(q_i·k_j)) + bias[i,j] − slope·|P(i) − j|     factor: wrong for `Scale`
/// kept   = as in the run                                             its opposite for `MaskPolarity`
/// w[i,j] = exp(s[i,j] − m) / (Σ exp(s − m) + sinks)                   over the kept keys of row i
///                                     over all i of column j for `SoftmaxOverQueries`
///                                     over all i and j of a head for `SoftmaxJoint`
/// o[i,c] = Σ_j dropout(w[i,j])·v[j,c]
/// ```
///
/// A sink is a column of its own beside the keys: it joins the sum of a row once, that of a whole
/// matrix once for each row, that of a column never. What sums over no key is 0. `None` unless
/// `steps` are a run of `attention`.
pub fn recompute(mistake: Mistake, attention: &Attention<'_>, steps: &Steps) -> Option<Recomputed> {
    let last = |names: [StepName; 3]| names.into_iter().find_map(|name| steps.get(name));
    let q = last([StepName::QRotated, StepName::QNormed, StepName::Q])?;
    let k = last([StepName::KRotated, StepName::KNormed, StepName::K])?;
    let v = steps.get(StepName::V)?;
    let block = Block {
        attention: attention.clone(),
        ..Block::default()
    };
    let problem = Problem::Given {
        block: &block,
        q,
        k,
        v,
        past: None,
    };
    let base = Base::new(problem).ok()?;
    let mut recipe = Recipe::new(&base);
    let head_dim = *q.shape().last()?;
    recipe.scale = mistake.factor(attention, head_dim);
    match mistake {
        Mistake::SoftmaxOverQueries => recipe.axis = Axis::Queries,
        Mistake::SoftmaxJoint => recipe.axis = Axis::Joint,
        Mistake::Scale(_) => {}
        Mistake::MaskPolarity => recipe.inverted = steps.get(StepName::Masked).is_some(),
    }
    let shared = Shared::default();
    let model = Model::new(&base, &shared, &recipe, false)?;
    let &[batch, heads, queries, keys] = steps.get(StepName::Scores)?.shape() else {
        return None;
    };
    let whole = |step, width: usize| {
        let mut data = Vec::with_capacity(batch * heads * queries * width);
        for at in 0..batch * heads * queries {
            let index = [at / (heads * queries), at / queries % heads, at % queries];
            data.extend(model.step(step, &index)?.values);
        }
        Tensor::new(&[batch, heads, queries, width], data).ok()
    };
    let weights = whole(StepName::Weights, keys)?;
    let output = whole(StepName::Output, *v.shape().last()?)?;
    Some(Recomputed {
        mistake,
        factor: recipe.scale,
        logits: whole(StepName::Masked, keys)?,
        max_weight_error: largest_difference(&weights, steps.get(StepName::Weights)?),
        max_abs_error: largest_difference(&output, steps.get(StepName::Output)?),
        weights,
        output,
    })
}

/// max |a − b|; what is equal, or NaN in both, does not differ, and NaN against a number does
/// without end.
pub(crate) fn largest_difference(a: &Tensor<f64>, b: &Tensor<f64>) -> f64 {
    let pairs = a.data().iter().zip(b.data());
    pairs.map(|(a, b)| difference(*a, *b)).fold(0.0, f64::max)
}

pub(crate) fn difference(a: f64, b: f64) -> f64 {
    if a == b || a.is_nan() && b.is_nan() {
        0.0
    } else if a.is_nan() || b.is_nan() {
        f64::INFINITY
    } else {
        (a - b).abs()
    }
}
