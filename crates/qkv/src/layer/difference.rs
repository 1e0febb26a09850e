//! The derivative checked by what it says: change one number a little and see what the loss does.
//!
//! ```text
//! L(t) = Σ output·grad_output                                 the run's last step, with x set to t
//! dL/dx ≈ (L(x + h) − L(x − h)) / (2h)
//! ```

use super::backward::rows;
use super::{Block, GradientSteps, Layer};
use crate::attention::Inputs;
use crate::error::Result;
use crate::steps::{GradientName, Steps, with_past};
use crate::view::Tensor;

/// A central difference of the loss Σ output·grad_output by one number.
#[derive(Clone, Debug, PartialEq)]
pub struct FiniteDifference {
    /// The gradient that it checks.
    pub of: GradientName,
    /// Which entry.
    pub index: Vec<usize>,
    /// The number that is changed.
    pub value: f64,
    /// By how much, each way: 0.001, or more where the number is too large to notice that.
    pub step: f64,
    /// The loss with value + step.
    pub plus: f64,
    /// The loss with value − step.
    pub minus: f64,
    /// (plus − minus) / (2·step).
    pub quotient: f64,
    /// The entry of the gradient.
    pub gradient: f64,
}

impl Block<'_> {
    /// The check of one entry of `gradients`: the largest of q's, or of k's or v's if those before
    /// are all 0. `None` if there is no entry.
    ///
    /// `inputs` and `grad` are those that `gradients` were worked out from.
    ///
    /// # Errors
    /// Those of [`Block::steps`].
    pub fn finite_difference(
        &self,
        inputs: &Inputs<'_, f64>,
        grad: &Tensor<f64>,
        gradients: &GradientSteps,
    ) -> Result<Option<FiniteDifference>> {
        let past = inputs.past_len();
        let candidates = [
            GradientName::GradQ,
            GradientName::GradK,
            GradientName::GradV,
        ];
        let Some((of, index)) = largest(gradients, &candidates) else {
            return Ok(None);
        };
        let (past_k, past_v) = (inputs.past().map(|past| past.0), inputs.past().map(|p| p.1));
        let mut q = with_past(None, inputs.q());
        let mut k = with_past(past_k, inputs.k());
        let mut v = with_past(past_v, inputs.v());
        let value = match of {
            GradientName::GradQ => q.at(&index),
            GradientName::GradK => k.at(&index),
            _ => v.at(&index),
        };
        central(of, index.clone(), value, gradients, |t| {
            match of {
                GradientName::GradQ => *q.at_mut(&index) = t,
                GradientName::GradK => *k.at_mut(&index) = t,
                _ => *v.at_mut(&index) = t,
            }
            let (old_k, new_k) = split(&k, past)?;
            let (old_v, new_v) = split(&v, past)?;
            let mut changed = Inputs::new(q.view()?, new_k.view()?, new_v.view()?)?;
            if past > 0 {
                changed = changed.with_past(old_k.view()?, old_v.view()?)?;
            }
            Ok(loss(&self.steps(&changed)?, grad))
        })
        .map(Some)
    }
}

impl Layer<'_> {
    /// The check of one entry of `gradients`: the largest of W_Q's, or of W_K's, W_V's or x's if
    /// those before are all 0. `None` if there is no entry.
    ///
    /// The other arguments are those that `gradients` were worked out from.
    ///
    /// # Errors
    /// Those of [`Layer::steps`].
    pub fn finite_difference(
        &self,
        x: &Tensor<f64>,
        context: Option<&Tensor<f64>>,
        past: Option<(&Tensor<f64>, &Tensor<f64>)>,
        grad: &Tensor<f64>,
        gradients: &GradientSteps,
    ) -> Result<Option<FiniteDifference>> {
        let candidates = [
            GradientName::GradWq,
            GradientName::GradWk,
            GradientName::GradWv,
            GradientName::GradX,
        ];
        let Some((of, index)) = largest(gradients, &candidates) else {
            return Ok(None);
        };
        let (mut layer, mut x) = (self.clone(), x.clone());
        let value = *entry(&mut layer, &mut x, of, &index);
        central(of, index.clone(), value, gradients, |t| {
            *entry(&mut layer, &mut x, of, &index) = t;
            Ok(loss(&layer.steps(&x, context, past)?, grad))
        })
        .map(Some)
    }
}

/// The number that a gradient's entry belongs to.
fn entry<'a>(
    layer: &'a mut Layer<'_>,
    x: &'a mut Tensor<f64>,
    of: GradientName,
    index: &[usize],
) -> &'a mut f64 {
    match of {
        GradientName::GradWq => layer.q.weight.at_mut(index),
        GradientName::GradWk => layer.k.weight.at_mut(index),
        GradientName::GradWv => layer.v.weight.at_mut(index),
        _ => x.at_mut(index),
    }
}

/// The largest entry of the first of these gradients that has one that is not 0 (nor NaN nor
/// infinite); an entry that is 0 if there is no other.
fn largest(
    gradients: &GradientSteps,
    candidates: &[GradientName],
) -> Option<(GradientName, Vec<usize>)> {
    let mut found: Option<(GradientName, Vec<usize>, f64)> = None;
    for &name in candidates {
        let Some(gradient) = gradients.get(name) else {
            continue;
        };
        if found.as_ref().is_some_and(|(_, _, size)| *size > 0.0) {
            break;
        }
        for (at, value) in gradient.data().iter().enumerate() {
            let larger = found
                .as_ref()
                .is_none_or(|(_, _, size)| value.abs() > *size);
            if value.is_finite() && larger {
                found = Some((name, index(gradient.shape(), at), value.abs()));
            }
        }
    }
    found.map(|(name, index, _)| (name, index))
}

/// The index of element `at`, row-major.
fn index(shape: &[usize], mut at: usize) -> Vec<usize> {
    let mut index = vec![0; shape.len()];
    for (axis, &size) in shape.iter().enumerate().rev() {
        index[axis] = at % size;
        at /= size;
    }
    index
}

/// Steps that a pencil likes, from the one that is taken if nothing speaks against it.
const STEPS: [f64; 5] = [1e-3, 1e-4, 1e-5, 1e-6, 1e-7];
/// As near as this to the gradient, and no smaller step is tried.
const NEAR: f64 = 1e-4;

/// The difference at 0.001, or at a smaller step where the loss bends too much for that.
fn central(
    of: GradientName,
    index: Vec<usize>,
    value: f64,
    gradients: &GradientSteps,
    mut loss: impl FnMut(f64) -> Result<f64>,
) -> Result<FiniteDifference> {
    let gradient = gradients.get(of).map_or(f64::NAN, |of| of.at(&index));
    let unit = noticed(value);
    let mut at = |step: f64| -> Result<FiniteDifference> {
        let (plus, minus) = (loss(value + step)?, loss(value - step)?);
        Ok(FiniteDifference {
            of,
            index: index.clone(),
            value,
            step,
            plus,
            minus,
            quotient: (plus - minus) / (2.0 * step),
            gradient,
        })
    };
    let error = |found: &FiniteDifference| (found.quotient - gradient).abs();
    let mut best = at(STEPS[0] * unit)?;
    for step in &STEPS[1..] {
        if error(&best) <= NEAR * gradient.abs() || !value.is_finite() {
            break;
        }
        let next = at(step * unit)?;
        if error(&next) < error(&best) || error(&best).is_nan() {
            best = next;
        }
    }
    Ok(best)
}

/// Part of a number below which a step would be lost in its rounding.
const NOTICED: f64 = 1e-9;

/// The power of ten, 1 or more, by which a step has to grow for this number to notice it.
fn noticed(value: f64) -> f64 {
    let mut unit = 1.0;
    while value.is_finite() && STEPS[0] * unit < NOTICED * value.abs() {
        unit *= 10.0;
    }
    unit
}

/// Σ of the last step times its gradient.
fn loss(steps: &Steps, grad: &Tensor<f64>) -> f64 {
    let data = steps.result().map_or(&[][..], |(_, last)| last.data());
    data.iter().zip(grad.data()).map(|(y, g)| y * g).sum()
}

/// Rows before the first `past_len`, and those after.
fn split(x: &Tensor<f64>, past_len: usize) -> Result<(Tensor<f64>, Tensor<f64>)> {
    Ok((rows(x, 0..past_len)?, rows(x, past_len..x.shape()[2])?))
}
