//! The derivative of the layer, by definition.
//!
//! ```text
//! dW_O = Oᵀ·dY,  db_O = Σ dY,  dO = dY·W_Oᵀ                 O the heads side by side
//! attention's own gradients: see definition::backward
//! rotary: the gradient turns back, dq = R(−place)·dq'
//! RMS norm, r = 1/√(mean(q²) + eps), q' = q·r·gain:
//!   dgain = Σ dq'·q·r,  dq = r·gain·dq' − q·r³/d_k·Σ_c dq'_c·gain_c·q_c
//! dW_Q = Xᵀ·dQ,  db_Q = Σ dQ,  dX += dQ·W_Qᵀ                and so for K and V, from the context
//! ```
//!
//! Sums run over batch entries and tokens.

use super::{Block, Layer, Linear, RmsNorm, four_axes, merge_heads, split_heads, three_axes};
use crate::attention::Inputs;
use crate::definition::{self, RowGradient};
use crate::error::{Error, Result};
use crate::position::Positions;
use crate::steps::{GradientName, StepName, Steps};
use crate::view::Tensor;
use std::ops::Range;

/// Gradients by name, in order.
pub type GradientSteps = Steps<GradientName>;

impl Block<'_> {
    /// Every gradient from the last step back to q, k and v.
    ///
    /// `steps` is what [`Block::steps`] gave for inputs with `past_len` cached keys; `grad` has the
    /// shape of its last step: `projected`, `concatenated`, or `output`.
    ///
    /// # Errors
    /// [`Error::Mismatch`] if `grad` has another shape than the last step, and those of
    /// [`definition::backward`].
    pub fn gradients(
        &self,
        steps: &Steps,
        past_len: usize,
        grad: &Tensor<f64>,
    ) -> Result<GradientSteps> {
        let mut gradients = GradientSteps::default();
        self.push_gradients(steps, past_len, false, grad, &mut gradients)?;
        Ok(gradients)
    }

    fn push_gradients(
        &self,
        steps: &Steps,
        past_len: usize,
        same_tokens: bool,
        grad: &Tensor<f64>,
        out: &mut GradientSteps,
    ) -> Result<()> {
        let output = needed(steps, StepName::Output)?;
        let last = steps
            .get(StepName::Projected)
            .or(steps.get(StepName::Concatenated))
            .unwrap_or(output);
        same_shape(grad, last)?;

        let mut grad = grad.clone();
        if let Some(linear) = &self.output {
            let concatenated = needed(steps, StepName::Concatenated)?;
            out.push(GradientName::GradProjected, grad.clone());
            grad = linear.gradients(
                concatenated,
                grad,
                GradientName::GradWo,
                GradientName::GradBo,
                out,
            )?;
        }
        if steps.get(StepName::Concatenated).is_some() {
            out.push(GradientName::GradConcatenated, grad.clone());
            grad = match output.shape()[1] {
                0 => output.clone(),
                heads => split_heads(&grad, heads, "grad_output")?,
            };
        }
        out.push(GradientName::GradOutput, grad.clone());

        let normed_q = steps
            .get(StepName::QNormed)
            .map_or_else(|| needed(steps, StepName::Q), Ok)?;
        let normed_k = steps
            .get(StepName::KNormed)
            .map_or_else(|| needed(steps, StepName::K), Ok)?;
        let q = steps.get(StepName::QRotated).unwrap_or(normed_q);
        let k = steps.get(StepName::KRotated).unwrap_or(normed_k);
        let v = needed(steps, StepName::V)?;
        let inputs = Inputs::new(q.view()?, k.view()?, v.view()?)?;
        let (mut grad_q, mut grad_k) = self.push_attention(&inputs, &grad, out)?;

        if let Some(rotary) = &self.rotary {
            out.push(GradientName::GradQRotated, grad_q.clone());
            out.push(GradientName::GradKRotated, grad_k.clone());
            let places = self.places(&inputs, past_len, same_tokens)?;
            let back = |places: &[Vec<i64>]| -> Vec<Vec<i64>> {
                let negative = |at: &Vec<i64>| at.iter().map(|p| -p).collect();
                places.iter().map(negative).collect()
            };
            let (queries, keys) = (back(&places.queries), back(&places.keys));
            grad_q = rotary.apply(grad_q.view()?, &Positions::Each(&queries))?;
            grad_k = new_rows(&grad_k, past_len, |new| {
                rotary.apply(new.view()?, &Positions::Each(&keys))
            })?;
        }
        if self.q_norm.is_some() {
            out.push(GradientName::GradQNormed, grad_q.clone());
        }
        if self.k_norm.is_some() {
            out.push(GradientName::GradKNormed, grad_k.clone());
        }
        if let Some(norm) = &self.q_norm {
            let (x, gain) = norm.gradients(needed(steps, StepName::Q)?, &grad_q, 0)?;
            grad_q = x;
            out.push(GradientName::GradQNorm, gain);
        }
        if let Some(norm) = &self.k_norm {
            let (x, gain) = norm.gradients(needed(steps, StepName::K)?, &grad_k, past_len)?;
            grad_k = x;
            out.push(GradientName::GradKNorm, gain);
        }
        out.push(GradientName::GradQ, grad_q);
        out.push(GradientName::GradK, grad_k);
        Ok(())
    }

    /// Pushes the gradients from `grad_v` to `grad_scores`; returns those of attention's q and k.
    fn push_attention(
        &self,
        inputs: &Inputs<'_, f64>,
        grad: &Tensor<f64>,
        out: &mut GradientSteps,
    ) -> Result<(Tensor<f64>, Tensor<f64>)> {
        type Part = fn(&RowGradient) -> &[f64];
        let parts: [(GradientName, bool, Part); 6] = [
            (
                GradientName::GradDropped,
                self.attention.dropout.is_some(),
                |row| &row.dropped,
            ),
            (GradientName::GradWeights, true, |row| &row.weights),
            (GradientName::Delta, true, |row| {
                std::slice::from_ref(&row.delta)
            }),
            (GradientName::GradMasked, true, |row| &row.masked),
            (
                GradientName::GradScaled,
                self.attention.softcap.is_some(),
                |row| &row.scaled,
            ),
            (GradientName::GradScores, true, |row| &row.scores),
        ];
        let mut columns: Vec<Vec<f64>> = vec![Vec::new(); parts.len()];
        let collected =
            definition::backward_by_row(&self.attention, inputs, grad.view()?, |_, _, _, row| {
                for (column, (_, in_force, part)) in columns.iter_mut().zip(&parts) {
                    if *in_force {
                        column.extend_from_slice(part(&row));
                    }
                }
            })?;
        out.push(GradientName::GradV, collected.v);
        let [batch, heads, queries, keys] = inputs.scores_shape();
        let mut of_bias = collected.bias;
        let mut of_sinks = collected.sinks;
        for (data, (name, in_force, _)) in columns.into_iter().zip(parts) {
            if !in_force {
                continue;
            }
            let shape: &[usize] = match name {
                GradientName::Delta => &[batch, heads, queries],
                _ => &[batch, heads, queries, keys],
            };
            out.push(name, Tensor::new(shape, data)?);
            if name == GradientName::GradMasked {
                if let Some(sinks) = of_sinks.take() {
                    out.push(GradientName::GradSinks, sinks);
                }
                if let Some(bias) = of_bias.take() {
                    out.push(GradientName::GradBias, bias);
                }
            }
        }
        Ok((collected.q, collected.k))
    }
}

impl Layer<'_> {
    /// Every gradient from the last step back to x (and the context) and all weights.
    ///
    /// `steps` is what [`Layer::steps`] gave for the same x, context and `past_len` cached keys;
    /// `grad` has the shape of its last step.
    ///
    /// # Errors
    /// As [`Block::gradients`].
    pub fn gradients(
        &self,
        steps: &Steps,
        x: &Tensor<f64>,
        context: Option<&Tensor<f64>>,
        past_len: usize,
        grad: &Tensor<f64>,
    ) -> Result<GradientSteps> {
        let mut out = GradientSteps::default();
        if self.residual {
            same_shape(grad, needed(steps, StepName::Residual)?)?;
            out.push(GradientName::GradResidual, grad.clone());
        }
        self.block
            .push_gradients(steps, past_len, context.is_none(), grad, &mut out)?;

        let x_in = steps.get(StepName::XPositioned).unwrap_or(x);
        let source = match context {
            Some(context) => steps.get(StepName::ContextPositioned).unwrap_or(context),
            None => x_in,
        };
        let own = |name, past| -> Result<Tensor<f64>> {
            let heads = out.get(name).ok_or(missing("grad_output"))?;
            merge_heads(&without_past(heads, past)?)
        };
        let (grad_q, grad_k, grad_v) = (
            own(GradientName::GradQ, 0)?,
            own(GradientName::GradK, past_len)?,
            own(GradientName::GradV, past_len)?,
        );
        let (wq, bq) = (GradientName::GradWq, GradientName::GradBq);
        let (wk, bk) = (GradientName::GradWk, GradientName::GradBk);
        let (wv, bv) = (GradientName::GradWv, GradientName::GradBv);
        let mut grad_x = self.q.gradients(x_in, grad_q, wq, bq, &mut out)?;
        let from_k = self.k.gradients(source, grad_k, wk, bk, &mut out)?;
        let from_v = self.v.gradients(source, grad_v, wv, bv, &mut out)?;
        let grad_source = add(&from_k, &from_v)?;
        if self.residual {
            grad_x = add(&grad_x, grad)?;
        }
        match context {
            Some(_) => {
                out.push(GradientName::GradX, grad_x);
                out.push(GradientName::GradContext, grad_source);
            }
            None => out.push(GradientName::GradX, add(&grad_x, &grad_source)?),
        }
        Ok(out)
    }
}

impl Linear {
    /// Pushes xᵀ·grad and Σ grad; returns grad·Wᵀ.
    fn gradients(
        &self,
        x: &Tensor<f64>,
        grad: Tensor<f64>,
        of_weight: GradientName,
        of_bias: GradientName,
        out: &mut GradientSteps,
    ) -> Result<Tensor<f64>> {
        let [batch, len, width] = three_axes(x, "x")?;
        let mut weight = Tensor::filled(&[width, self.out_width()], 0.0);
        let mut bias = Tensor::filled(&[self.out_width()], 0.0);
        let mut grad_x = Tensor::filled(&[batch, len, width], 0.0);
        for b in 0..batch {
            for t in 0..len {
                for o in 0..self.out_width() {
                    let grad = grad.at(&[b, t, o]);
                    *bias.at_mut(&[o]) += grad;
                    for c in 0..width {
                        *weight.at_mut(&[c, o]) += x.at(&[b, t, c]) * grad;
                        *grad_x.at_mut(&[b, t, c]) += grad * self.weight.at(&[c, o]);
                    }
                }
            }
        }
        out.push(of_weight, weight);
        if self.bias.is_some() {
            out.push(of_bias, bias);
        }
        Ok(grad_x)
    }
}

impl RmsNorm {
    /// Gradients of what went in and of the gain. The first `past_len` rows were not normed here.
    fn gradients(
        &self,
        x: &Tensor<f64>,
        grad: &Tensor<f64>,
        past_len: usize,
    ) -> Result<(Tensor<f64>, Tensor<f64>)> {
        let [batch, heads, len, width] = four_axes(x, "norm")?;
        let mut grad_x = grad.clone();
        let mut grad_gain = Tensor::filled(&[width], 0.0);
        for b in 0..batch {
            for h in 0..heads {
                for t in past_len..len {
                    let (row, grad) = (x.row(&[b, h, t]), grad.row(&[b, h, t]));
                    let mean_square = row.iter().map(|v| v * v).sum::<f64>() / width as f64;
                    let r = 1.0 / (mean_square + self.eps).sqrt();
                    let along: f64 = (0..width).map(|c| grad[c] * self.gain[c] * row[c]).sum();
                    for c in 0..width {
                        *grad_x.at_mut(&[b, h, t, c]) =
                            r * self.gain[c] * grad[c] - row[c] * r.powi(3) / width as f64 * along;
                        *grad_gain.at_mut(&[c]) += grad[c] * row[c] * r;
                    }
                }
            }
        }
        Ok((grad_x, grad_gain))
    }
}

/// Some rows of `[B, H, L, d]`.
pub(super) fn rows(x: &Tensor<f64>, range: Range<usize>) -> Result<Tensor<f64>> {
    let [batch, heads, len, width] = four_axes(x, "keys")?;
    let range = range.start.min(len)..range.end.min(len);
    let mut data = Vec::new();
    for b in 0..batch {
        for h in 0..heads {
            for t in range.clone() {
                data.extend_from_slice(x.row(&[b, h, t]));
            }
        }
    }
    Tensor::new(&[batch, heads, range.len(), width], data)
}

/// `[B, H, P + L, d]` without its first P rows.
fn without_past(x: &Tensor<f64>, past_len: usize) -> Result<Tensor<f64>> {
    rows(x, past_len..usize::MAX)
}

/// Changes the rows after the first `past_len`.
fn new_rows(
    x: &Tensor<f64>,
    past_len: usize,
    change: impl Fn(&Tensor<f64>) -> Result<Tensor<f64>>,
) -> Result<Tensor<f64>> {
    let [batch, heads, len, width] = four_axes(x, "keys")?;
    let changed = change(&without_past(x, past_len)?)?;
    let mut all = x.clone();
    for b in 0..batch {
        for h in 0..heads {
            for t in past_len..len {
                for c in 0..width {
                    *all.at_mut(&[b, h, t, c]) = changed.at(&[b, h, t - past_len, c]);
                }
            }
        }
    }
    Ok(all)
}

fn add(a: &Tensor<f64>, b: &Tensor<f64>) -> Result<Tensor<f64>> {
    let sum = a.data().iter().zip(b.data()).map(|(a, b)| a + b).collect();
    Tensor::new(a.shape(), sum)
}

fn missing(step: &'static str) -> Error {
    Error::Option {
        option: "steps",
        value: format!("a run without {step}"),
        remedy: "give the steps of the run whose gradients are wanted",
    }
}

fn needed(steps: &Steps, name: StepName) -> Result<&Tensor<f64>> {
    steps.get(name).ok_or(missing(name.as_str()))
}

fn same_shape(grad: &Tensor<f64>, last: &Tensor<f64>) -> Result<()> {
    if grad.shape() == last.shape() {
        return Ok(());
    }
    let size = |of: &Tensor<f64>| of.data().len();
    Err(Error::Mismatch {
        axis: "numbers",
        left: "grad_output",
        left_size: size(grad),
        left_shape: grad.shape().into(),
        right: "the last step",
        right_size: size(last),
        right_shape: last.shape().into(),
        remedy: "the gradient has the shape of what the run ends with",
    })
}
