//! `--backward`: the gradients of what was given, in the same slices as the output.

use super::Run;
use super::progress::Progress;
use super::slices::{self, Before, Gradients, Rows, WORK};
use crate::args::RunGradientArgs;
use crate::arrays::{Axes, Number, Reader, Stored};
use crate::error::{Error, Names, Result};
use crate::{interrupt, memory};
use qkv::{Attention, Bias, DType, Inputs, View};
use std::borrow::Cow;

const BACKWARD: &str = "--backward";
const GRAD_OUTPUT: &str = "--grad-output";

/// How many times the arithmetic of the forward pass.
const BACKWARD_WORK: f64 = 2.5;

/// The gradient of the output, if it is given.
pub fn grad_output(
    args: &RunGradientArgs,
    reader: &mut Reader<'_>,
    axes: Axes,
) -> Result<Option<Stored>> {
    match &args.grad_output {
        None => Ok(None),
        Some(_) if !args.backward => Err(Error::Alone {
            argument: GRAD_OUTPUT,
            needed: BACKWARD,
            remedy: "it is the gradient that the others are computed from: add --backward",
        }),
        Some(text) => reader.stored(GRAD_OUTPUT, text, axes).map(Some),
    }
}

/// What is to be computed, and the memory for it.
pub struct Backward<'a, T: Number> {
    run: &'a Run<'a>,
    attention: &'a Attention<'a>,
    grad: Option<Cow<'a, [T]>>,
    to: Gradients<T>,
}

impl Run<'_> {
    /// What --backward asks for; refuses what does not fit.
    pub fn backward<'a, T: Number>(
        &'a self,
        attention: &'a Attention<'a>,
        inputs: &Inputs<'_, T>,
        dtype: DType,
    ) -> Result<Option<Backward<'a, T>>> {
        if !self.args.gradient.backward {
            return Ok(None);
        }
        self.refuse_turned()?;
        let arrays = &self.arrays;
        let [batch, heads, queries, keys] = inputs.scores_shape();
        let (kv_heads, d_k, d_v) = (inputs.kv_heads(), inputs.head_dim(), inputs.value_dim());
        let grad = match &arrays.grad {
            None => None,
            Some(grad) => {
                let numbers = grad.numbers::<T>(dtype)?;
                let shape = grad.seen.view(GRAD_OUTPUT, &numbers)?.shape();
                let output = [batch, heads, queries, d_v];
                if shape != output {
                    return Err(Error::Shapes {
                        argument: GRAD_OUTPUT,
                        shape: shape.to_vec(),
                        other: "the output".into(),
                        other_shape: output.to_vec(),
                        remedy: "the gradient has one number for each number of the output".into(),
                    });
                }
                Some(numbers)
            }
        };
        let bias = attention.bias.map(|Bias(bias)| bias.shape());
        if let Some(shape) = bias {
            let bytes = shape.iter().map(|&size| size as u128).product::<u128>();
            let what = format!("the gradient of the bias of shape {shape:?}");
            memory::check_room("--bias", what, bytes * size_of::<T>() as u128)?;
        }
        let (of_keys, of_values) = ([batch, kv_heads, keys, d_k], [batch, kv_heads, keys, d_v]);
        Ok(Some(Backward {
            run: self,
            attention,
            grad,
            to: Gradients {
                q: (zeros("--q", inputs.q().shape())?, arrays.q.seen.swapped),
                k: (zeros("--k", of_keys)?, arrays.k.seen.swapped),
                v: (zeros("--v", of_values)?, arrays.v.seen.swapped),
                bias: bias.map(|shape| zeros("--bias", shape)).transpose()?,
                sinks: match attention.sinks {
                    Some(_) => Some(zeros("--sinks", [1, 1, 1, heads])?),
                    None => None,
                },
            },
        }))
    }

    /// Norms and rotation lie before what the fast path computes.
    fn refuse_turned(&self) -> Result<()> {
        let given = [
            ("--q-norm", self.args.norms.q_norm.is_some()),
            ("--k-norm", self.args.norms.k_norm.is_some()),
            ("--position", self.args.position.position.is_some()),
        ];
        match given.iter().find(|(_, given)| *given) {
            None => Ok(()),
            Some((argument, _)) => Err(Error::Conflict {
                argument,
                other: BACKWARD.into(),
                remedy: "give q and k as they are after it: qkv explain --backward goes back \
                         through it",
            }),
        }
    }

    /// Bytes that gradients take.
    pub fn bytes_of_gradients<T: Number>(&self) -> u128 {
        if !self.args.gradient.backward {
            return 0;
        }
        let arrays = &self.arrays;
        let mut like = vec![&arrays.q, &arrays.k, &arrays.v];
        like.extend(arrays.past.iter().flat_map(|(k, v)| [k, v]));
        let numbers = like.iter().map(|array| {
            let sizes = array.shape.iter().map(|&size| size as u128);
            sizes.fold(1, u128::saturating_mul)
        });
        let numbers = numbers.fold(0, u128::saturating_add);
        numbers.saturating_mul(size_of::<T>() as u128)
    }
}

impl<T: Number> Backward<'_, T> {
    /// Computes them from what was computed forward.
    pub fn run(
        mut self,
        inputs: &Inputs<'_, T>,
        output: &[T],
        rows: &Rows,
    ) -> Result<Gradients<T>> {
        let engine = Error::engine(Names::Given);
        let arrays = &self.run.arrays;
        let one = [T::from_f64(1.0)];
        let grad = match (&arrays.grad, &self.grad) {
            (Some(array), Some(numbers)) => array.seen.view(GRAD_OUTPUT, numbers)?,
            _ => {
                let [batch, heads, queries, _] = inputs.scores_shape();
                let shape = [batch, heads, queries, inputs.value_dim()];
                View::strided(&one, 0, shape, [0; 4]).map_err(&engine)?
            }
        };
        let before = Before {
            output,
            swapped: arrays.q.seen.swapped,
            lse: &rows.lse,
            grad,
        };
        let slices = slices::plan(self.attention, inputs, WORK / BACKWARD_WORK);
        let weights = slices
            .iter()
            .map(|slice| slice.weight(self.attention, inputs));
        let shown = self.run.shows_progress(slices.len());
        let progress = Progress::new(weights.sum(), "gradients", shown);
        for slice in &slices {
            interrupt::check()?;
            let workers = self.run.workers;
            let done = slice.backward(self.attention, inputs, workers, before, &mut self.to);
            done.map_err(&engine)?;
            progress.add(slice.weight(self.attention, inputs));
        }
        Ok(self.to)
    }
}

fn zeros<T: Number>(argument: &'static str, shape: [usize; 4]) -> Result<Vec<T>> {
    super::room(argument, shape, "the gradients")
}
