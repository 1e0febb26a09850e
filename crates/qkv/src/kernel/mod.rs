//! The fast path: attention in tiles, with a running maximum and sum.
//!
//! For each query, over blocks of 256 keys counted from the start of its document:
//!
//! ```text
//! s_j   = q·k_j                              one chain of fused multiply-adds, ascending in d
//! x_j   = s_j, or scale·s_j with softcap, bias and ALiBi; −∞ where key j is dropped
//! m'    = max(m, x_j)                        over the block
//! p_j   = 2^((x_j − m')·c)                   c = scale·log2(e), or log2(e)
//! l[a]  = l[a]·2^((m − m')·c) + Σ p_j        16 sums, a = j mod 16, ascending in j
//! w[h]  = fma(p_j, v_j, w[h])                one chain from 0 over each half, ascending in j
//! o     = (o·2^((m − m')·c) + w[0]) + w[1]
//! ```
//!
//! and at the end `output = o / (Σ l + sink)`, `lse = m + ln Σ l`. Every 2048 keys (m, l, o) start
//! afresh; the parts are merged in order.
//!
//! Numbers of 16 bits are widened to `f32` first, and the output is rounded once. With
//! [`Isa::Avx512Bf16`] the chains of `bf16` go by pairs instead, of neighbouring columns for s and of
//! neighbouring keys for w, where p is rounded to `bf16`: in each pair the second product is added
//! first. A key without a partner has one with p = 0.
//!
//! **Which numbers are added in which order depends on the key's place alone**, not on tiles,
//! threads, batch, strides or how many queries there are, and a dropped key changes nothing: so
//! for one instruction set a row always has the same bits. Decoding a token equals the row of a
//! prefill, chunked prefill equals one shot. Left padding moves keys, and dropout goes by the
//! batch entry, so both are outside this promise. [`Options::reproducible`] can give it up.
//!
//! Working memory is one packed copy of some heads' keys, of their values too where these are
//! converted, and the scores of 264 queries × 256 keys
//! a thread.

mod ahead;
mod backward;
mod block;
mod bound;
mod call;
mod exponentials;
mod few;
mod finish;
mod forward;
mod merge;
mod options;
mod packed;
mod queries;
mod real;
mod simd;
mod state;
mod visible;
mod weigh;
mod weights;

pub use backward::{
    GradientBound, GradientSizes, GradientsMut, Saved, Store, backward, backward_into,
    gradient_bound,
};
pub use bound::bound;
pub use merge::merge;
pub use options::Options;
pub use real::Float;
pub use simd::Isa;
pub(crate) use simd::Pages;
pub use weights::{Part, scores, weights};

use crate::attention::{Attention, Inputs};
use crate::definition::Output;
use crate::error::{Error, Result};
use crate::mask::EmptyRows;
use crate::view::{Tensor, element_count};
use crate::view_mut::ViewMut;
use call::{Call, check_scale};

/// `softmax(scale·q·kᵀ + mask)·v`, fast.
///
/// Shapes as in [`Inputs`]; output `[batch, heads, queries, value_dim]`, lse `[batch, heads,
/// queries]`. A row that keeps no key is zero, has lse = −∞ and is listed. It equals
/// [`definition::forward`](crate::definition::forward) within [`bound`](crate::bound), as long as
/// sums do not overflow: values are summed with weights of up to 1 each before they are divided by
/// the sum of the weights, so values near the largest number of the type (of `f32` for half
/// precision) become infinite where several keys weigh much. With [`Isa::Avx512Bf16`] subnormal
/// `bf16` numbers of q, k and v count as 0. Biases in `f64` beyond the range of `f32`, such as
/// −1.797e308, count as the end of that range unless q, k and v are `f64`, too: no key is dropped,
/// but two such biases are the same.
///
/// # Errors
/// Those of [`Attention::check`], [`Error::Option`] for a scale that the type computed in does not
/// hold (see [`Scale::Factor`](crate::Scale::Factor)), [`Error::EmptyRows`] where the caller asked for
/// it, and those of [`Options::isa`].
///
/// ```
/// use qkv::{Attention, Inputs, View, forward};
/// let q = [1.0_f32, 0.0, 0.0, 1.0];
/// let v = [1.0_f32, 2.0];
/// let inputs = Inputs::new(View::new(&q, &[2, 2])?, View::new(&q, &[2, 2])?, View::new(&v, &[2, 1])?)?;
/// let result = forward(&Attention::default(), &inputs)?;
/// assert!((result.output.data()[0] - 1.3302).abs() < 1e-4);
/// # Ok::<(), qkv::Error>(())
/// ```
pub fn forward<T: Float>(attention: &Attention<'_>, inputs: &Inputs<'_, T>) -> Result<Output<T>> {
    forward_with(attention, inputs, &Options::default())
}

/// As [`forward`], with options.
///
/// # Errors
/// As [`forward`].
pub fn forward_with<T: Float>(
    attention: &Attention<'_>,
    inputs: &Inputs<'_, T>,
    options: &Options,
) -> Result<Output<T>> {
    let [batch, heads, queries, _] = inputs.scores_shape();
    let mut output = Tensor::filled(&[batch, heads, queries, inputs.value_dim()], T::default());
    let shape = [batch, heads, queries, inputs.value_dim()];
    let rows = forward_into(
        attention,
        inputs,
        options,
        ViewMut::new(output.data_mut(), &shape)?,
    )?;
    Ok(Output {
        output,
        lse: rows.lse,
        empty_rows: rows.empty_rows,
    })
}

/// What there is to know about the rows of an output besides the output.
#[derive(Clone, Debug, PartialEq)]
pub struct Rows {
    /// ln Σ exp(s) over the kept keys, without the sink, `[batch, heads, queries]`; −∞ where a
    /// row keeps no key.
    pub lse: Tensor<f64>,
    /// Rows that keep no key, as `[batch, head, query]`.
    pub empty_rows: Vec<[usize; 3]>,
}

/// As [`forward`], written into a view of the caller's, `[batch, heads, queries, value_dim]` with
/// any strides: what lies between its elements is left alone.
///
/// # Errors
/// As [`forward`], and [`Error::Mismatch`] if the output has another shape. With
/// [`Error::EmptyRows`] the output has been written.
pub fn forward_into<T: Float>(
    attention: &Attention<'_>,
    inputs: &Inputs<'_, T>,
    options: &Options,
    mut output: ViewMut<'_, T>,
) -> Result<Rows> {
    attention.check(inputs)?;
    check_scale::<T>(attention)?;
    let [batch, heads, queries, _] = inputs.scores_shape();
    let width = inputs.value_dim();
    let [a, b, c, d] = output.shape();
    if a != batch || b != heads || c != queries || d != width {
        let shape = [batch, heads, queries, width];
        return Err(*other_shape(shape, [a, b, c, d]));
    }
    let isa = options.isa()?;
    let rows = element_count(&[batch, heads, queries]).unwrap_or(usize::MAX);
    let mut lse = vec![f64::NEG_INFINITY; rows];
    let mut empty_rows = Vec::new();
    if !T::few(attention, inputs, options, isa, &mut output, &mut lse) {
        let call = Call::new(attention, inputs, isa, options.reproducible);
        empty_rows = T::forward(&call, output, &mut lse, options);
    }
    match empty_rows.first() {
        Some(&first) if attention.empty_rows == EmptyRows::Error => Err(Error::EmptyRows {
            rows,
            first,
            empty: empty_rows,
        }),
        _ => Ok(Rows {
            lse: Tensor::of([batch, heads, queries], lse),
            empty_rows,
        }),
    }
}

/// What is wrong with an output of another shape than the result; boxed, as the errors of views.
#[cold]
fn other_shape(result: [usize; 4], output: [usize; 4]) -> Box<Error> {
    let axes = ["batch", "heads", "queries", "value_dim"];
    let axis = (0..3).find(|&axis| result[axis] != output[axis]);
    let axis = axis.unwrap_or(3);
    Box::new(Error::Mismatch {
        axis: axes[axis],
        left: "the result",
        left_size: result[axis],
        left_shape: result.into(),
        right: "output",
        right_size: output[axis],
        right_shape: output.into(),
        remedy: "give an output of the result's shape",
    })
}

/// Runs nothing but fused multiply-adds of an instruction set, `rounds` in each of a dozen
/// registers, and returns the number of floating-point operations: the limit to hold a speed
/// against. Of `bf16` with [`Isa::Avx512Bf16`] they are dot products of pairs, of twice as many
/// operations.
///
/// # Errors
/// Those of [`Options::isa`].
pub fn fma_burst<T: Float>(options: &Options, rounds: usize) -> Result<u64> {
    Ok((T::storage(options.isa()?).kernels.burn)(rounds))
}
