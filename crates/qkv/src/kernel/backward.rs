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
//! dv[j]   += m_j·w_j·g      one chain from 0 over each block of queries; blocks ascending, heads too
//! dk[j]   += dx_j·q         the same, times scale at the end
//! dq      += dx_j·k[j]      one chain over keys, ascending, times scale at the end
//! dbias   += dx_j           before the softcap's factor; `bias`
//! dsink   += −(exp(sink − lse))·delta
//! ```
//!
//! Nothing of the size queries × keys is kept: blocks of 256 keys meet blocks of 96 queries at most,
//! as equal as may be. Every sum has an order of its own, which goes by the places of queries and keys
//! and by how many queries there are, so the number of threads and the batch change no bit.

mod bias;
mod block;
mod bound;
mod rows;
mod share;
pub(super) mod wide;

use super::call::{Call, check_scale};
use super::options::Options;
use super::real::{Float, Real};
use super::simd::Piece;
use crate::attention::{Attention, Bias, Inputs};
use crate::definition::{Gradients, Output};
use crate::error::{Error, Result};
use crate::view::{Tensor, View};
use crate::view_mut::ViewMut;
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

/// Where gradients go: views of the caller's with any strides, of which what lies between the
/// elements is left alone.
#[derive(Debug)]
pub struct GradientsMut<'a, T> {
    /// `[batch, heads, queries, head_dim]`.
    pub q: ViewMut<'a, T>,
    /// `[batch, kv_heads, keys, head_dim]`, the cached keys first.
    pub k: ViewMut<'a, T>,
    /// `[batch, kv_heads, keys, value_dim]`, the cached values first.
    pub v: ViewMut<'a, T>,
    /// The shape of the bias as given (with leading ones). Left out, it is not computed.
    pub bias: Option<ViewMut<'a, T>>,
    /// One number a head. Left out, they are not computed.
    pub sinks: Option<&'a mut [T]>,
    /// What becomes of the numbers that are there.
    pub store: Store,
}

/// What becomes of the numbers where a gradient goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Store {
    /// The gradient takes their place, whatever they are.
    #[default]
    Replace,
    /// The gradient is added to them: over several batches, say.
    Add,
}

impl<'a, T: Float> GradientsMut<'a, T> {
    /// All gradients of a set of arrays.
    ///
    /// # Errors
    /// None for what [`backward`] returned.
    pub fn new(gradients: &'a mut Gradients<T>, store: Store) -> Result<Self> {
        fn view<T: Copy>(tensor: &mut Tensor<T>) -> Result<ViewMut<'_, T>> {
            let shape = tensor.shape().to_vec();
            ViewMut::new(tensor.data_mut(), &shape)
        }
        Ok(GradientsMut {
            q: view(&mut gradients.q)?,
            k: view(&mut gradients.k)?,
            v: view(&mut gradients.v)?,
            bias: gradients.bias.as_mut().map(view).transpose()?,
            sinks: gradients.sinks.as_mut().map(Tensor::data_mut),
            store,
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
/// Those of [`forward`](crate::forward) but for empty rows, and [`Error::Mismatch`] if `saved` or
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
    let zeros = |shape: &[usize]| Tensor::filled(shape, T::default());
    let [q, k, v] = shapes(inputs);
    let mut gradients = Gradients {
        q: zeros(&q),
        k: zeros(&k),
        v: zeros(&v),
        bias: attention.bias.map(|Bias(view)| zeros(&view.shape())),
        sinks: attention.sinks.as_ref().map(|_| zeros(&[inputs.heads()])),
    };
    let to = GradientsMut::new(&mut gradients, Store::Replace)?;
    backward_into(attention, inputs, saved, grad_output, options, to)?;
    Ok(gradients)
}

/// As [`backward`], written to arrays of the caller's, or added to what they hold.
///
/// # Errors
/// As [`backward`], [`Error::Mismatch`] if one of `gradients` has another shape than its argument,
/// and [`Error::Option`] for a gradient of what `attention` does not have. Nothing is written then.
///
/// ```
/// use qkv::{
///     Attention, GradientsMut, Inputs, Options, Saved, Store, View, backward, backward_into, forward,
/// };
/// let q = [1.0_f32, 0.0, 0.0, 1.0];
/// let v = [1.0_f32, 2.0];
/// let inputs = Inputs::new(View::new(&q, &[2, 2])?, View::new(&q, &[2, 2])?, View::new(&v, &[2, 1])?)?;
/// let (attention, options) = (Attention::default(), Options::default());
/// let output = forward(&attention, &inputs)?;
/// let saved = Saved::new(&output)?;
/// let grad_output = View::new(&[1.0_f32, 0.0], &[2, 1])?;
/// let mut sum = backward(&attention, &inputs, saved, grad_output, &options)?;
/// let to = GradientsMut::new(&mut sum, Store::Add)?;
/// backward_into(&attention, &inputs, saved, grad_output, &options, to)?;
/// assert!((sum.v.data()[0] - 2.0 * 0.6698).abs() < 2e-4);
/// # Ok::<(), qkv::Error>(())
/// ```
pub fn backward_into<T: Float>(
    attention: &Attention<'_>,
    inputs: &Inputs<'_, T>,
    saved: Saved<'_, T>,
    grad_output: View<'_, T>,
    options: &Options,
    gradients: GradientsMut<'_, T>,
) -> Result<()> {
    attention.check(inputs)?;
    check_scale::<T>(attention)?;
    check(attention, inputs, saved, grad_output, &gradients)?;
    T::backward(attention, inputs, saved, grad_output, options, gradients)
}

/// [`backward_into`] of numbers that are computed in, once all has been checked.
fn run<T: Real>(
    attention: &Attention<'_>,
    inputs: &Inputs<'_, T>,
    saved: Saved<'_, T>,
    grad_output: View<'_, T>,
    options: &Options,
    gradients: GradientsMut<'_, T>,
) -> Result<()> {
    let call = Call::new(attention, inputs, options.isa()?, true);
    let problem = Problem {
        call: &call,
        saved,
        grad: grad_output,
        add: gradients.store == Store::Add,
    };
    let mut rows = vec![rows::nothing(); saved.lse.len()];
    let out = [gradients.q, gradients.k, gradients.v].map(Piece::of);
    share::run(&problem, options, &mut rows, out);
    if let Some(to) = gradients.sinks {
        rows::sinks(&call, saved.lse, &rows, |head, sum| {
            let before = if problem.add { to[head] } else { T::ZERO };
            to[head] = before + T::from_f64(sum);
        });
    }
    if let Some(to) = gradients.bias {
        bias::run(&problem, options, &rows, Piece::of(to));
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
    gradients: &GradientsMut<'_, T>,
) -> Result<()> {
    let [q, k, v] = shapes(inputs);
    let [batch, heads, queries, _] = q;
    let output = [batch, heads, queries, inputs.value_dim()];
    let of_rows = ["batch", "heads", "queries", "value_dim"];
    agree(
        of_rows,
        ("the saved output", saved.output.shape()),
        ("the output", output),
        "give what the forward pass gave for the same inputs",
    )?;
    agree(
        of_rows,
        ("grad_output", grad_output.shape()),
        ("the output", output),
        "the gradient of the output has the output's shape",
    )?;
    agree(
        ["rows"; 4],
        ("the saved lse", [1, 1, 1, saved.lse.len()]),
        ("lse", [1, 1, 1, batch * heads * queries]),
        "give what the forward pass gave for the same inputs",
    )?;
    let remedy = "a gradient has the shape of what it is the gradient of";
    let of_keys = ["batch", "kv_heads", "keys", "head_dim"];
    let found = ("the gradient of q", gradients.q.shape());
    agree(
        ["batch", "heads", "queries", "head_dim"],
        found,
        ("q", q),
        remedy,
    )?;
    let found = ("the gradient of k", gradients.k.shape());
    agree(of_keys, found, ("k, cached keys first", k), remedy)?;
    let found = ("the gradient of v", gradients.v.shape());
    let of_values = ["batch", "kv_heads", "keys", "value_dim"];
    agree(of_values, found, ("v, cached values first", v), remedy)?;
    let absent = |option| Error::Option {
        option,
        value: "a place for its gradient, but none itself".into(),
        remedy: "leave the gradient out",
    };
    if let Some(found) = &gradients.bias {
        let Bias(bias) = attention.bias.ok_or(absent("bias"))?;
        let found = ("the gradient of the bias", found.shape());
        let axes = ["batch", "heads", "queries", "keys"];
        agree(axes, found, ("the bias", bias.shape()), remedy)?;
    }
    if let Some(found) = &gradients.sinks {
        attention.sinks.as_ref().ok_or(absent("sinks"))?;
        let found = ("the gradient of the sinks", [1, 1, 1, found.len()]);
        agree(["heads"; 4], found, ("the sinks", [1, 1, 1, heads]), remedy)?;
    }
    Ok(())
}

fn agree(
    axes: [&'static str; 4],
    (left, found): (&'static str, [usize; 4]),
    (right, wanted): (&'static str, [usize; 4]),
    remedy: &'static str,
) -> Result<()> {
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
            remedy,
        }),
    }
}
