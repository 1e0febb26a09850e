//! Attention by definition: plain `f64` loops, one row at a time, nothing clever.
//!
//! This is what every faster path has to equal. It shares no code with them.
//!
//! For query i of head h, with key and value head g = ⌊h / (heads/kv_heads)⌋:
//!
//! ```text
//! score_j  = Σ_c q[i,c]·k[j,c]
//! scaled_j = scale·score_j
//! capped_j = softcap·tanh(scaled_j / softcap)                        if there is a softcap
//! biased_j = capped_j + bias[i,j] − slope·|P(i) − j|                  if there are biases
//! masked_j = biased_j where key j is kept, −∞ where it is dropped
//! max      = max_j masked_j
//! exp_j    = exp(masked_j − max)                                      0 for dropped keys
//! sum      = Σ_j exp_j + exp(sink − max)                              the sink if there is one
//! weight_j = exp_j / sum
//! output   = Σ_j dropout(weight_j)·v[j]                               over kept keys only
//! lse      = max + ln Σ_j exp_j                                       natural, without the sink
//! ```
//!
//! P(i), the position of query i among the keys, is i + offset (see [`Causal`](crate::Causal)); with packed
//! documents it is counted from the first key of the query's own document. A row that keeps no key
//! has zero weights, a zero output and lse = −∞.

mod backward;
mod dropout;
mod merge;
mod visible;

pub use backward::{Gradients, RowGradient, backward, backward_by_row};
pub use dropout::drops;
pub use merge::merge;
pub use visible::{Places, places};

use crate::attention::{Attention, Bias, Inputs, Sinks};
use crate::error::{Error, Result};
use crate::mask::EmptyRows;
use crate::view::{Element, Tensor, View};
use visible::Visibility;

/// What attention gives.
#[derive(Clone, Debug, PartialEq)]
pub struct Output<T> {
    /// `[batch, heads, queries, value_dim]`.
    pub output: Tensor<T>,
    /// ln Σ exp(s) over the kept keys, without the sink, `[batch, heads, queries]`; −∞ where a
    /// row keeps no key.
    pub lse: Tensor<f64>,
    /// Rows that keep no key, as `[batch, head, query]`.
    pub empty_rows: Vec<[usize; 3]>,
}

/// Everything that leads to one row of the output. Keys the row drops have score and weight too:
/// `score` as it comes, `masked` −∞, `weight` 0.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// q·k.
    pub scores: Vec<f64>,
    /// Times the scale.
    pub scaled: Vec<f64>,
    /// After the softcap.
    pub capped: Vec<f64>,
    /// After bias and ALiBi.
    pub biased: Vec<f64>,
    /// −∞ where the key is dropped.
    pub masked: Vec<f64>,
    /// The largest of `masked`; −∞ for an empty row.
    pub max: f64,
    /// exp(masked − max); 0 where dropped.
    pub exp: Vec<f64>,
    /// Σ exp, and exp(sink − max) if there is a sink; 0 for an empty row.
    pub sum: f64,
    /// exp / sum.
    pub weights: Vec<f64>,
    /// The weights after dropout.
    pub dropped: Vec<f64>,
    /// Σ weight·v over the kept keys.
    pub output: Vec<f64>,
    /// max + ln Σ exp, without the sink.
    pub lse: f64,
    /// Which keys the row keeps.
    pub kept: Vec<bool>,
}

impl Row {
    /// Whether the row keeps no key.
    pub fn is_empty(&self) -> bool {
        !self.kept.contains(&true)
    }
}

/// `softmax(scale·q·kᵀ + mask)·v` by definition, in `f64`.
///
/// Shapes as in [`Inputs`]; output `[batch, heads, queries, value_dim]`.
///
/// # Errors
/// Those of [`Attention::check`], and [`Error::EmptyRows`] where the caller asked for it.
pub fn forward<T: Element>(
    attention: &Attention<'_>,
    inputs: &Inputs<'_, T>,
) -> Result<Output<f64>> {
    attention.check(inputs)?;
    let [batch, heads, queries, _] = inputs.scores_shape();
    let mut output = Tensor::filled(&[batch, heads, queries, inputs.value_dim()], 0.0);
    let mut lse = Tensor::filled(&[batch, heads, queries], 0.0);
    let empty_rows = for_each_row(attention, inputs, |b, h, i, row| {
        for (c, &value) in row.output.iter().enumerate() {
            *output.at_mut(&[b, h, i, c]) = value;
        }
        *lse.at_mut(&[b, h, i]) = row.lse;
    })?;
    Ok(Output {
        output,
        lse,
        empty_rows,
    })
}

/// Works out every row in order and hands it to `visit(batch, head, query, row)`. Returns the
/// rows that keep no key.
///
/// # Errors
/// Those of [`Attention::check`], and [`Error::EmptyRows`] where the caller asked for it.
pub fn for_each_row<T: Element>(
    attention: &Attention<'_>,
    inputs: &Inputs<'_, T>,
    mut visit: impl FnMut(usize, usize, usize, Row),
) -> Result<Vec<[usize; 3]>> {
    attention.check(inputs)?;
    let visibility = Visibility::new(attention, inputs);
    let [batch, heads, queries, _] = inputs.scores_shape();
    let mut empty = Vec::new();
    if queries == 0 {
        return Ok(empty); // without walking through any number of batch entries and heads
    }
    for b in 0..batch {
        for h in 0..heads {
            for i in 0..queries {
                let row = row(attention, inputs, &visibility, [b, h, i]);
                if row.is_empty() {
                    empty.push([b, h, i]);
                }
                visit(b, h, i, row);
            }
        }
    }
    match empty.first() {
        Some(&first) if attention.empty_rows == EmptyRows::Error => Err(Error::EmptyRows {
            rows: batch * heads * queries,
            first,
            empty,
        }),
        _ => Ok(empty),
    }
}

/// Row `[batch, head, query]`, with everything that leads to it.
fn row<T: Element>(
    attention: &Attention<'_>,
    inputs: &Inputs<'_, T>,
    visibility: &Visibility<'_>,
    [b, h, i]: [usize; 3],
) -> Row {
    let keys = inputs.keys();
    let scale = attention.scale.factor(inputs.head_dim());
    let position = visibility.position(b, i);
    let bias = bias_view(attention, inputs);

    let scores: Vec<f64> = (0..keys)
        .map(|j| {
            (0..inputs.head_dim())
                .map(|c| inputs.q().get([b, h, i, c]).to_f64() * key(inputs, b, h, j, c))
                .sum()
        })
        .collect();
    let scaled: Vec<f64> = scores.iter().map(|s| scale * s).collect();
    let capped: Vec<f64> = match attention.softcap {
        Some(cap) => scaled.iter().map(|s| cap * (s / cap).tanh()).collect(),
        None => scaled.clone(),
    };
    let biased: Vec<f64> = (0..keys)
        .map(|j| {
            let mut s = capped[j];
            if let Some(bias) = &bias {
                s += bias.get([b, h, i, j]);
            }
            if let Some(alibi) = &attention.alibi {
                let distance = (i128::from(position) - j as i128).unsigned_abs();
                s -= alibi.slopes[h] * distance as f64;
            }
            s
        })
        .collect();
    let kept: Vec<bool> = (0..keys)
        .map(|j| {
            let dropped_by_bias = bias
                .as_ref()
                .is_some_and(|bias| bias.get([b, h, i, j]) == f64::NEG_INFINITY);
            !dropped_by_bias && visibility.keeps([b, h, i, j])
        })
        .collect();
    let masked: Vec<f64> = (0..keys)
        .map(|j| {
            if kept[j] {
                biased[j]
            } else {
                f64::NEG_INFINITY
            }
        })
        .collect();

    if !kept.contains(&true) {
        let zeros = vec![0.0; keys];
        return Row {
            scores,
            scaled,
            capped,
            biased,
            masked,
            max: f64::NEG_INFINITY,
            exp: zeros.clone(),
            sum: 0.0,
            weights: zeros.clone(),
            dropped: zeros,
            output: vec![0.0; inputs.value_dim()],
            lse: f64::NEG_INFINITY,
            kept,
        };
    }

    let max = masked.iter().copied().fold(f64::NEG_INFINITY, larger);
    let exp: Vec<f64> = (0..keys)
        .map(|j| {
            if kept[j] {
                (masked[j] - max).exp()
            } else {
                0.0
            }
        })
        .collect();
    let keys_sum: f64 = exp.iter().sum();
    let sum = match &attention.sinks {
        Some(Sinks(sinks)) => keys_sum + (sinks[h] - max).exp(),
        None => keys_sum,
    };
    // Not exp / sum where a key is dropped: the sum may be NaN, and the weight is 0 even so.
    let weights: Vec<f64> = (0..keys)
        .map(|j| if kept[j] { exp[j] / sum } else { 0.0 })
        .collect();
    let dropped: Vec<f64> = (0..keys)
        .map(|j| weights[j] * dropout_factor(attention, b, h, position, j))
        .collect();
    let mut output = vec![0.0; inputs.value_dim()];
    for (c, out) in output.iter_mut().enumerate() {
        for j in (0..keys).filter(|&j| kept[j]) {
            *out += dropped[j] * value(inputs, b, h, j, c);
        }
    }
    Row {
        scores,
        scaled,
        capped,
        biased,
        masked,
        max,
        exp,
        sum,
        weights,
        dropped,
        output,
        lse: max + keys_sum.ln(),
        kept,
    }
}

/// Key j of a query head, column c; cached keys come first.
fn key<T: Element>(inputs: &Inputs<'_, T>, b: usize, head: usize, j: usize, c: usize) -> f64 {
    cached_or_new(
        inputs.past().map(|(k, _)| k),
        inputs.k(),
        [b, inputs.kv_head(head), j, c],
    )
}

/// Value j of a query head, column c; cached values come first.
fn value<T: Element>(inputs: &Inputs<'_, T>, b: usize, head: usize, j: usize, c: usize) -> f64 {
    cached_or_new(
        inputs.past().map(|(_, v)| v),
        inputs.v(),
        [b, inputs.kv_head(head), j, c],
    )
}

fn cached_or_new<T: Element>(
    past: Option<View<'_, T>>,
    new: View<'_, T>,
    [b, g, j, c]: [usize; 4],
) -> f64 {
    let past_len = past.map_or(0, |past| past.shape()[2]);
    match past {
        Some(past) if j < past_len => past.get([b, g, j, c]),
        _ => new.get([b, g, j - past_len, c]),
    }
    .to_f64()
}

fn bias_view<'a, T: Element>(
    attention: &Attention<'a>,
    inputs: &Inputs<'_, T>,
) -> Option<crate::view::AnyView<'a>> {
    // `check` has made sure that it fits.
    attention
        .bias
        .and_then(|Bias(view)| view.broadcast(inputs.scores_shape()))
}

/// 1 without dropout, else 0 or 1/(1−p).
fn dropout_factor(attention: &Attention<'_>, b: usize, h: usize, position: i64, j: usize) -> f64 {
    match attention.dropout {
        Some(dropout) if drops(dropout, b, h, position, j) => 0.0,
        Some(dropout) => 1.0 / (1.0 - dropout.p),
        None => 1.0,
    }
}

/// The larger number; NaN if one of them is.
fn larger(a: f64, b: f64) -> f64 {
    if a.is_nan() || a > b { a } else { b }
}
