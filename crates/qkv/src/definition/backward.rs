//! The derivative of attention, by definition.
//!
//! With w the weights before dropout, m the dropout factor (0 or 1/(1−p)), g the gradient of the
//! output, for row i and kept keys j:
//!
//! ```text
//! dv[j]     += m_j·w_j·g                                  over the rows and heads that use v[j]
//! dw_j       = m_j·(g · v[j])
//! delta      = Σ_j w_j·dw_j
//! ds_j       = w_j·(dw_j − delta)                          0 for dropped keys
//! dbias     += ds_j                                        over the axes that the bias repeats
//! dsink     += −(exp(sink − max)/sum)·delta                over the rows of the head
//! dscaled_j  = ds_j·(1 − tanh²(scaled_j / softcap))        if there is a softcap
//! dq        += scale·dscaled_j·k[j]
//! dk[j]     += scale·dscaled_j·q
//! ```
//!
//! A row that keeps no key adds nothing to any gradient.

use super::{Attention, Bias, Inputs, Row, Sinks, dropout_factor, for_each_row, key, value};
use super::{bias_view, visible::Visibility};
use crate::error::{Error, Result};
use crate::view::{Element, Tensor, View};

/// Gradients of Σ output·grad_output.
#[derive(Clone, Debug, PartialEq)]
pub struct Gradients {
    /// `[batch, heads, queries, head_dim]`.
    pub q: Tensor<f64>,
    /// `[batch, kv_heads, keys, head_dim]`, the cached keys first.
    pub k: Tensor<f64>,
    /// `[batch, kv_heads, keys, value_dim]`, the cached values first.
    pub v: Tensor<f64>,
    /// The shape of the bias as given (with leading ones), if there is one.
    pub bias: Option<Tensor<f64>>,
    /// `[heads]`, if there are sinks.
    pub sinks: Option<Tensor<f64>>,
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
    attention.check(inputs)?;
    check_grad_output(inputs, grad_output)?;
    let [batch, heads, queries, keys] = inputs.scores_shape();
    let (kv_heads, head_dim) = (inputs.kv_heads(), inputs.head_dim());
    let scale = attention.scale.factor(head_dim);
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
    debug_assert_eq!(bias.is_some(), bias_view(attention, inputs).is_some());

    for_each_row(attention, inputs, |b, h, i, row| {
        let g = inputs.kv_head(h);
        let position = visibility.position(b, i);
        let grad = |c| grad_output.get([b, h, i, c]).to_f64();

        let mut dw = vec![0.0; keys];
        for j in kept(&row) {
            let factor = dropout_factor(attention, b, h, position, j);
            for c in 0..inputs.value_dim() {
                *v.at_mut(&[b, g, j, c]) += factor * row.weights[j] * grad(c);
                dw[j] += factor * grad(c) * value(inputs, b, h, j, c);
            }
        }
        let delta: f64 = kept(&row).map(|j| row.weights[j] * dw[j]).sum();
        for j in kept(&row) {
            let ds = row.weights[j] * (dw[j] - delta);
            if let (Some(bias), Some(shape)) = (&mut bias, bias_shape) {
                *bias.at_mut(&unbroadcast([b, h, i, j], shape)) += ds;
            }
            let dscaled = match attention.softcap {
                Some(cap) => ds * (1.0 - (row.scaled[j] / cap).tanh().powi(2)),
                None => ds,
            };
            for c in 0..head_dim {
                *q.at_mut(&[b, h, i, c]) += scale * dscaled * key(inputs, b, h, j, c);
                *k.at_mut(&[b, g, j, c]) += scale * dscaled * inputs.q().get([b, h, i, c]).to_f64();
            }
        }
        if let (Some(gradient), Some(Sinks(logits))) = (&mut sinks, &attention.sinks)
            && !row.is_empty()
        {
            *gradient.at_mut(&[h]) -= (logits[h] - row.max).exp() / row.sum * delta;
        }
    })?;
    Ok(Gradients {
        q,
        k,
        v,
        bias,
        sinks,
    })
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
