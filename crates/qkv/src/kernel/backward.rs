//! The derivative of attention, fast.
//!
//! With w the weights before dropout, m the dropout factor (0 or 1/(1−p)), g the gradient of the
//! output, for row i and kept keys j:
//!
//! ```text
//! x_j      = the scores again, as in the forward pass           stage `scores`
//! w_j      = exp(x_j − lse), the sink in lse                    stage `gradient`
//! dw_j     = m_j·(g · v[j])                                     stage `weights`
//! delta    = Σ_j w_j·dw_j = g · output                          once a row
//! dx_j     = w_j·(dw_j − delta), ·(1 − tanh²) with a softcap    stage `gradient`
//! dv[j]   += m_j·w_j·g      one chain over heads and queries, ascending
//! dk[j]   += dx_j·q         the same, times scale at the end
//! dq      += dx_j·k[j]      one chain over keys, ascending, times scale at the end
//! dbias   += dx_j           before the softcap's factor; `bias`
//! dsink   += −(exp(sink − lse))·delta
//! ```
//!
//! Nothing of the size queries × keys is kept: blocks of 256 keys meet blocks of 48 queries. Every
//! sum is one chain in an order of its own, so the number of threads and the batch change no bit.

mod bias;
mod block;
mod bound;
mod rows;
mod share;

use super::call::Call;
use super::options::Options;
use super::real::Float;
use crate::attention::{Attention, Bias, Inputs};
use crate::definition::{Gradients, Output};
use crate::error::{Error, Result};
use crate::view::{Tensor, View};
use block::Problem;
pub use bound::{GradientBound, GradientSizes, gradient_bound};

/// What the forward pass left for the backward pass.
#[derive(Clone, Copy, Debug)]
pub struct Saved<'a, T> {
    /// `[batch, heads, queries, value_dim]`.
    pub output: View<'a, T>,
    /// One number a row in the order `[batch, heads, queries]`, without the sink.
    pub lse: &'a [f64],
}

impl<'a, T: Float> Saved<'a, T> {
    /// From what [`forward`](crate::forward) returns.
    ///
    /// # Errors
    /// None for what it returned.
    pub fn new(output: &'a Output<T>) -> Result<Self> {
        Ok(Saved {
            output: output.output.view()?,
            lse: output.lse.data(),
        })
    }
}

/// dQ, dK, dV, d(bias) and d(sinks) of Σ output·grad_output, fast.
///
/// ```text
/// w      = softmax(scale·q·kᵀ + mask)           from lse
/// delta  = grad_output · output                 one number a row
/// dv     = wᵀ·grad_output
/// ds     = w ∘ (grad_output·vᵀ − delta)         also the gradient of the bias
/// dq     = scale·ds·k
/// dk     = scale·dsᵀ·q
/// dsinks = −Σ exp(sink − lse)·delta             lse with the sink
/// ```
///
/// (with a softcap and dropout, their factors besides, as in
/// [`definition::backward`](crate::definition::backward())).
///
/// Shapes: `grad_output` `[batch, heads, queries, value_dim]`; of the results q `[batch, heads,
/// queries, head_dim]`, k `[batch, kv_heads, keys, head_dim]` and v `[batch, kv_heads, keys,
/// value_dim]` with the cached keys first, bias as it was given (with leading ones, summed over
/// the axes that it repeats), sinks `[heads]`. A row that keeps no key adds nothing to any
/// gradient, and a dropped key is never read. `saved` is what [`forward`](crate::forward) gave for
/// the same attention and inputs.
///
/// It equals [`definition::backward`](crate::definition::backward()) within
/// [`gradient_bound`](crate::gradient_bound), with the same bits for any number of threads and any
/// batch. Working memory grows with the queries and keys, not with their product.
///
/// # Errors
/// Those of [`Attention::check`] and [`Options::isa`], and [`Error::Mismatch`] if `saved` or
/// `grad_output` has another shape than the output.
///
/// ```
/// use qkv::{Attention, Inputs, Options, Saved, View, backward, forward};
/// let q = [1.0_f32, 0.0, 0.0, 1.0];
/// let v = [1.0_f32, 2.0];
/// let inputs = Inputs::new(View::new(&q, &[2, 2])?, View::new(&q, &[2, 2])?, View::new(&v, &[2, 1])?)?;
/// let attention = Attention::default();
/// let output = forward(&attention, &inputs)?;
/// let grad_output = View::new(&[1.0_f32, 0.0], &[2, 1])?;
/// let saved = Saved::new(&output)?;
/// let gradients = backward(&attention, &inputs, saved, grad_output, &Options::default())?;
/// assert!((gradients.v.data()[0] - 0.6698).abs() < 1e-4);
/// # Ok::<(), qkv::Error>(())
/// ```
pub fn backward<T: Float>(
    attention: &Attention<'_>,
    inputs: &Inputs<'_, T>,
    saved: Saved<'_, T>,
    grad_output: View<'_, T>,
    options: &Options,
) -> Result<Gradients<T>> {
    attention.check(inputs)?;
    let zeros = |shape: &[usize]| Tensor::filled(shape, T::ZERO);
    let [q, k, v] = shapes(inputs);
    let mut gradients = Gradients {
        q: zeros(&q),
        k: zeros(&k),
        v: zeros(&v),
        bias: attention.bias.map(|Bias(view)| zeros(&view.shape())),
        sinks: attention.sinks.as_ref().map(|_| zeros(&[inputs.heads()])),
    };
    backward_into(
        attention,
        inputs,
        saved,
        grad_output,
        options,
        &mut gradients,
    )?;
    Ok(gradients)
}

/// As [`backward`], added to gradients that the caller has already: over several batches, say. A
/// gradient of the bias or of the sinks that is `None` is not computed.
///
/// # Errors
/// As [`backward`], and [`Error::Mismatch`] if one of `gradients` has another shape than its
/// argument. Nothing is added then.
pub fn backward_into<T: Float>(
    attention: &Attention<'_>,
    inputs: &Inputs<'_, T>,
    saved: Saved<'_, T>,
    grad_output: View<'_, T>,
    options: &Options,
    gradients: &mut Gradients<T>,
) -> Result<()> {
    attention.check(inputs)?;
    check(attention, inputs, saved, grad_output, gradients)?;
    let call = Call::new(attention, *inputs, options.isa()?, true);
    let rows = rows::factors(&call, saved, grad_output, options);
    if let Some(sinks) = &mut gradients.sinks {
        rows::sinks(&call, saved.lse, &rows, sinks.data_mut());
    }
    let problem = Problem {
        call: &call,
        grad: grad_output,
        rows: &rows,
    };
    share::run(
        &problem,
        options,
        [
            gradients.q.data_mut(),
            gradients.k.data_mut(),
            gradients.v.data_mut(),
        ],
    );
    if let (Some(to), Some(Bias(view))) = (&mut gradients.bias, attention.bias) {
        bias::run(&problem, options, view.shape(), to.data_mut());
    }
    Ok(())
}

fn shapes<T: Float>(inputs: &Inputs<'_, T>) -> [[usize; 4]; 3] {
    let [batch, heads, queries, keys] = inputs.scores_shape();
    let kv_heads = inputs.kv_heads();
    [
        [batch, heads, queries, inputs.head_dim()],
        [batch, kv_heads, keys, inputs.head_dim()],
        [batch, kv_heads, keys, inputs.value_dim()],
    ]
}

fn check<T: Float>(
    attention: &Attention<'_>,
    inputs: &Inputs<'_, T>,
    saved: Saved<'_, T>,
    grad_output: View<'_, T>,
    gradients: &Gradients<T>,
) -> Result<()> {
    let [q, k, v] = shapes(inputs);
    let [batch, heads, queries, _] = q;
    let output = [batch, heads, queries, inputs.value_dim()];
    agree(
        "the saved output",
        saved.output.shape(),
        "the output",
        output,
    )?;
    agree("grad_output", grad_output.shape(), "the output", output)?;
    let lse = [batch, heads, queries, 1];
    if saved.lse.len() != batch * heads * queries {
        return agree("the saved lse", [1, 1, 1, saved.lse.len()], "lse", lse);
    }
    let four = |shape: &[usize]| {
        let mut four = [1; 4];
        let count = shape.len().min(4);
        four[4 - count..].copy_from_slice(&shape[shape.len() - count..]);
        four
    };
    agree("the gradient of q", four(gradients.q.shape()), "q", q)?;
    agree("the gradient of k", four(gradients.k.shape()), "k", k)?;
    agree("the gradient of v", four(gradients.v.shape()), "v", v)?;
    if let (Some(found), Some(Bias(view))) = (&gradients.bias, attention.bias) {
        let found = four(found.shape());
        agree("the gradient of the bias", found, "the bias", view.shape())?;
    }
    if let (Some(found), Some(_)) = (&gradients.sinks, &attention.sinks) {
        let found = four(found.shape());
        agree(
            "the gradient of the sinks",
            found,
            "the sinks",
            [1, 1, 1, heads],
        )?;
    }
    Ok(())
}

fn agree(
    left: &'static str,
    found: [usize; 4],
    right: &'static str,
    wanted: [usize; 4],
) -> Result<()> {
    let axes = ["axis 0", "axis 1", "axis 2", "axis 3"];
    match (0..4).find(|&axis| found[axis] != wanted[axis]) {
        None => Ok(()),
        Some(axis) => Err(Error::Mismatch {
            axis: axes[axis],
            left,
            left_size: found[axis],
            left_shape: found.into(),
            right,
            right_size: wanted[axis],
            right_shape: wanted.into(),
            remedy: "a gradient has the shape of what it is the gradient of",
        }),
    }
}
