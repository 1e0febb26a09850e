//! Weights and output of a run under a mistake, in plain loops.

use crate::Mistake;
use qkv::{AnyView, Attention, Dropout, Inputs, Sinks, StepName, Steps, Tensor, definition};

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
    let scores = steps.get(StepName::Scores)?;
    let values = steps.get(StepName::V)?;
    let &[batch, heads, queries, keys] = scores.shape() else {
        return None;
    };
    let &[_, kv_heads, _, width] = values.shape() else {
        return None;
    };
    let run = Run::new(attention, steps)?;
    let head_dim = *steps.get(StepName::Q)?.shape().last()?;
    let factor = mistake.factor(attention, head_dim);
    let mut logits = Vec::with_capacity(scores.data().len());
    let mut weights = vec![0.0; scores.data().len()];
    let mut output = Vec::new();
    for b in 0..batch {
        for h in 0..heads {
            let first = logits.len();
            for i in 0..queries {
                for j in 0..keys {
                    let at = [b, h, i, j];
                    let kept = run.keeps(at, mistake == Mistake::MaskPolarity);
                    let logit = run.biased(factor * scores.at(&at), at);
                    logits.push(if kept { logit } else { f64::NEG_INFINITY });
                }
            }
            let own = &logits[first..];
            let weights = &mut weights[first..first + own.len()];
            let sink = attention.sinks.as_ref().map(|Sinks(sinks)| sinks[h]);
            for (members, sinks) in sums(mistake, queries, keys) {
                softmax(own, &members, sink.map(|sink| (sink, sinks)), weights);
            }
            let kv_head = h / (heads / kv_heads.max(1)).max(1);
            for i in 0..queries {
                for c in 0..width {
                    let mut sum = 0.0;
                    for j in 0..keys {
                        if own[i * keys + j] != f64::NEG_INFINITY {
                            let share = weights[i * keys + j] * run.dropout([b, h, i, j]);
                            sum += share * values.at(&[b, kv_head, j, c]);
                        }
                    }
                    output.push(sum);
                }
            }
        }
    }
    let shape = scores.shape();
    let weights = Tensor::new(shape, weights).ok()?;
    let output = Tensor::new(&[batch, heads, queries, width], output).ok()?;
    Some(Recomputed {
        mistake,
        factor,
        logits: Tensor::new(shape, logits).ok()?,
        max_weight_error: largest_difference(&weights, steps.get(StepName::Weights)?),
        max_abs_error: largest_difference(&output, steps.get(StepName::Output)?),
        weights,
        output,
    })
}

/// The entries of a `[queries, keys]` matrix that share a sum, and how many sinks join it.
fn sums(mistake: Mistake, queries: usize, keys: usize) -> Vec<(Vec<usize>, usize)> {
    match mistake {
        Mistake::SoftmaxOverQueries => (0..keys)
            .map(|j| ((0..queries).map(|i| i * keys + j).collect(), 0))
            .collect(),
        Mistake::SoftmaxJoint => vec![((0..queries * keys).collect(), queries)],
        _ => (0..queries)
            .map(|i| ((i * keys..(i + 1) * keys).collect(), 1))
            .collect(),
    }
}

/// exp(logit − max) / sum for the members, over those that are not −∞.
fn softmax(logits: &[f64], members: &[usize], sinks: Option<(f64, usize)>, weights: &mut [f64]) {
    let kept: Vec<usize> = members
        .iter()
        .copied()
        .filter(|&at| logits[at] != f64::NEG_INFINITY)
        .collect();
    let mut max = f64::NEG_INFINITY;
    for &at in &kept {
        if logits[at] > max || logits[at].is_nan() {
            max = logits[at];
        }
    }
    let mut sum = 0.0;
    for &at in &kept {
        sum += (logits[at] - max).exp();
    }
    if let Some((sink, count)) = sinks {
        sum += count as f64 * (sink - max).exp();
    }
    for &at in &kept {
        weights[at] = (logits[at] - max).exp() / sum;
    }
}

/// What a run's options add to each score, and which keys it keeps.
struct Run<'a> {
    attention: &'a Attention<'a>,
    bias: Option<AnyView<'a>>,
    masked: Option<&'a Tensor<f64>>,
    places: definition::Places,
    /// First key of each query's document.
    starts: Vec<usize>,
}

impl<'a> Run<'a> {
    fn new(attention: &'a Attention<'a>, steps: &'a Steps) -> Option<Self> {
        let step = |name| steps.get(name)?.view().ok();
        let inputs = Inputs::new(step(StepName::Q)?, step(StepName::K)?, step(StepName::V)?);
        let inputs = inputs.ok()?;
        let bias = match attention.bias {
            Some(bias) => Some(bias.0.broadcast(inputs.scores_shape())?),
            None => None,
        };
        let mut starts = Vec::new();
        if let Some(documents) = &attention.documents {
            let mut start = 0;
            for (&queries, &keys) in documents.queries().iter().zip(documents.keys()) {
                starts.extend(std::iter::repeat_n(start, queries));
                start += keys;
            }
        }
        starts.resize(inputs.queries(), 0);
        Some(Run {
            attention,
            bias,
            masked: steps.get(StepName::Masked),
            places: definition::places(attention, &inputs).ok()?,
            starts,
        })
    }

    /// P(i), the index of the key that stands where query i stands.
    fn position(&self, b: usize, i: usize) -> i64 {
        self.places.queries[b][i].saturating_add(self.starts[i] as i64)
    }

    /// Softcap, bias and ALiBi on a scaled score.
    fn biased(&self, scaled: f64, at: [usize; 4]) -> f64 {
        let [b, h, i, j] = at;
        let mut score = match self.attention.softcap {
            Some(cap) => cap * (scaled / cap).tanh(),
            None => scaled,
        };
        if let Some(bias) = &self.bias {
            score += bias.get(at);
        }
        if let Some(alibi) = &self.attention.alibi {
            let distance = (i128::from(self.position(b, i)) - j as i128).unsigned_abs();
            score -= alibi.slopes[h] * distance as f64;
        }
        score
    }

    fn keeps(&self, at: [usize; 4], inverted: bool) -> bool {
        let by_bias = self
            .bias
            .is_none_or(|bias| bias.get(at) != f64::NEG_INFINITY);
        let by_mask = self
            .masked
            .is_none_or(|masked| (masked.at(&at) != f64::NEG_INFINITY) != inverted);
        by_bias && by_mask
    }

    /// What dropout multiplies a weight by.
    fn dropout(&self, [b, h, i, j]: [usize; 4]) -> f64 {
        match self.attention.dropout {
            None => 1.0,
            Some(dropout @ Dropout { p, .. }) => {
                match definition::drops(dropout, b, h, self.position(b, i), j) {
                    true => 0.0,
                    false => 1.0 / (1.0 - p),
                }
            }
        }
    }
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
