//! The derivative of attention, by definition.
//!
//! With w the weights before dropout, m the dropout factor (0 or 1/(1−p)), g the gradient of the
//! output, for row i and kept keys j:
//!
//! ```text
//! dv[j]      += m_j·w_j·g                                 over the rows and heads that use v[j]
//! ddropped_j  = g · v[j]
//! dweight_j   = m_j·ddropped_j
//! delta       = Σ_j w_j·dweight_j
//! dmasked_j   = w_j·(dweight_j − delta)                    0 for dropped keys
//! dbias      += dmasked_j                                  over the axes that the bias repeats
//! dsink      += −(exp(sink − max)/sum)·delta               over the rows of the head
//! dscaled_j   = dmasked_j·(1 − tanh²(scaled_j / softcap))  if there is a softcap
//! dscore_j    = scale·dscaled_j
//! dq         += dscore_j·k[j]
//! dk[j]      += dscore_j·q
//! ```
//!
//! A row that keeps no key adds nothing to any gradient.

use super::visible::Visibility;
use super::{Attention, Bias, Inputs, Row, Sinks, dropout_factor, for_each_row, key, value};
use crate::error::{Error, Result};
use crate::view::{Element, Tensor, View};

/// Gradients of Σ output·grad_output.
#[derive(Clone, Debug, PartialEq)]
pub struct Gradients<T = f64> {
    /// `[batch, heads, queries, head_dim]`.
    pub q: Tensor<T>,
    /// `[batch, kv_heads, keys, head_dim]`, the cached keys first.
    pub k: Tensor<T>,
    /// `[batch, kv_heads, keys, value_dim]`, the cached values first.
    pub v: Tensor<T>,
    /// The shape of the bias as given (with leading ones), if there is one.
    pub bias: Option<Tensor<T>>,
    /// `[heads]`, if there are sinks.
    pub sinks: Option<Tensor<T>>,
}

/// Everything that leads from the gradient of one row to those of q, k and v. 0 for dropped keys.
#[derive(Clone, Debug, PartialEq)]
pub struct RowGradient {
    /// Of the weights after dropout: grad_output·v.
    pub dropped: Vec<f64>,
    /// Of the weights.
    pub weights: Vec<f64>,
    /// Σ weight·dweight.
    pub delta: f64,
    /// Of the masked (and the biased, and the capped) scores.
    pub masked: Vec<f64>,
    /// Of the scaled scores, before the softcap.
    pub scaled: Vec<f64>,
    /// Of q·k.
    pub scores: Vec<f64>,
}

/// dQ, dK, dV, d(bias) and d(sinks) by definition, in `f64`.
///
/// `grad_output` has the shape of the output, `[batch, heads, queries, value_dim]`.
///
/// # Errors
/// Those of [`forward`](super::forward), and [`Error::Mismatch`] if `grad_output` has another
/// shape than the output.
pub fn backward<T: Element>(
    attention: &Attention<'_>,
    inputs: &Inputs<'_, T>,
    grad_output: View<'_, T>,
) -> Result<Gradients> {
    backward_by_row(attention, inputs, grad_output, |_, _, _, _| {})
}

/// As [`backward`], and hands what leads to it to `visit(batch, head, query, row)`.
///
/// # Errors
/// Those of [`backward`].
pub fn backward_by_row<T: Element>(
    attention: &Attention<'_>,
    inputs: &Inputs<'_, T>,
    grad_output: View<'_, T>,
    mut visit: impl FnMut(usize, usize, usize, RowGradient),
) -> Result<Gradients> {
    attention.check(inputs)?;
    check_grad_output(inputs, grad_output)?;
    let [batch, heads, queries, keys] = inputs.scores_shape();
    let (kv_heads, head_dim) = (inputs.kv_heads(), inputs.head_dim());
    let visibility = Visibility::new(attention, inputs);
    let bias_shape = attention.bias.map(|Bias(view)| view.shape());

    let mut q = Tensor::filled(&[batch, heads, queries, head_dim], 0.0);
    let mut k = Tensor::filled(&[batch, kv_heads, keys, head_dim], 0.0);
    let mut v = Tensor::filled(&[batch, kv_heads, keys, inputs.value_dim()], 0.0);
    let mut bias = bias_shape.map(|shape| Tensor::filled(&shape, 0.0));
    let mut sinks = attention
        .sinks
        .as_ref()
        .map(|_| Tensor::filled(&[heads], 0.0));

    for_each_row(attention, inputs, |b, h, i, row| {
        let g = inputs.kv_head(h);
        let position = visibility.position(b, i);
        let factors: Vec<f64> = (0..keys)
            .map(|j| dropout_factor(attention, b, h, position, j))
            .collect();
        let grad: Vec<f64> = (0..inputs.value_dim())
            .map(|c| grad_output.get([b, h, i, c]).to_f64())
            .collect();
        let gradient = row_gradient(attention, inputs, [b, h], &row, &factors, &grad);
        for j in kept(&row) {
            for (c, grad) in grad.iter().enumerate() {
                *v.at_mut(&[b, g, j, c]) += factors[j] * row.weights[j] * grad;
            }
            if let (Some(bias), Some(shape)) = (&mut bias, bias_shape) {
                *bias.at_mut(&unbroadcast([b, h, i, j], shape)) += gradient.masked[j];
            }
            for c in 0..head_dim {
                let (query, key) = (inputs.q().get([b, h, i, c]), key(inputs, b, h, j, c));
                *q.at_mut(&[b, h, i, c]) += gradient.scores[j] * key;
                *k.at_mut(&[b, g, j, c]) += gradient.scores[j] * query.to_f64();
            }
        }
        if let (Some(sum), Some(Sinks(sinks))) = (&mut sinks, &attention.sinks)
            && !row.is_empty()
        {
            // The sink's weight, exp(sink − max)/sum, written so that a high sink cannot overflow.
            let weight = 1.0 / (1.0 + (row.lse - sinks[h]).exp());
            *sum.at_mut(&[h]) -= weight * gradient.delta;
        }
        visit(b, h, i, gradient);
    })?;
    Ok(Gradients {
        q,
        k,
        v,
        bias,
        sinks,
    })
}

/// The gradients of one row's intermediates, from the gradient of its output.
fn row_gradient<T: Element>(
    attention: &Attention<'_>,
    inputs: &Inputs<'_, T>,
    [b, h]: [usize; 2],
    row: &Row,
    factors: &[f64],
    grad: &[f64],
) -> RowGradient {
    let where_kept = |of: &dyn Fn(usize) -> f64| -> Vec<f64> {
        (0..row.kept.len())
            .map(|j| if row.kept[j] { of(j) } else { 0.0 })
            .collect()
    };
    let scale = attention.scale.factor(inputs.head_dim());
    let dropped = where_kept(&|j| {
        grad.iter()
            .enumerate()
            .map(|(c, grad)| grad * value(inputs, b, h, j, c))
            .sum()
    });
    let weights = where_kept(&|j| factors[j] * dropped[j]);
    let delta: f64 = kept(row).map(|j| row.weights[j] * weights[j]).sum();
    let masked = where_kept(&|j| row.weights[j] * (weights[j] - delta));
    let scaled = where_kept(&|j| match attention.softcap {
        Some(cap) => masked[j] * (1.0 - (row.scaled[j] / cap).tanh().powi(2)),
        None => masked[j],
    });
    let scores = where_kept(&|j| scale * scaled[j]);
    RowGradient {
        dropped,
        weights,
        delta,
        masked,
        scaled,
        scores,
    }
}

fn kept(row: &Row) -> impl Iterator<Item = usize> + '_ {
    (0..row.kept.len()).filter(|&j| row.kept[j])
}

/// The index in an array that is repeated along its axes of length 1.
fn unbroadcast(index: [usize; 4], shape: [usize; 4]) -> [usize; 4] {
    std::array::from_fn(|axis| if shape[axis] == 1 { 0 } else { index[axis] })
}

fn check_grad_output<T: Element>(inputs: &Inputs<'_, T>, grad_output: View<'_, T>) -> Result<()> {
    let [batch, heads, queries, _] = inputs.scores_shape();
    let wanted = [batch, heads, queries, inputs.value_dim()];
    let found = grad_output.shape();
    let axes = ["batch", "heads", "queries", "value_dim"];
    match (0..4).find(|&axis| found[axis] != wanted[axis]) {
        None => Ok(()),
        Some(axis) => Err(Error::Mismatch {
            axis: axes[axis],
            left: "grad_output",
            left_size: found[axis],
            left_shape: found.into(),
            right: "the output",
            right_size: wanted[axis],
            right_shape: wanted.into(),
            remedy: "the gradient of the output has the output's shape",
        }),
    }
}
