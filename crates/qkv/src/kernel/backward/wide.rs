//! Half precision: the backward pass computes in `f32`, from copies, and rounds at the end.

use super::super::call::with_neighbours;
use super::super::options::Options;
use super::super::real::{Float, Real};
use super::super::simd::{Give, Isa, Piece, sums_stride};
use super::{GradientsMut, Saved, Store};
use crate::attention::{Attention, Inputs};
use crate::error::Result;
use crate::view::{Tensor, View};
use crate::view_mut::ViewMut;

/// A view of numbers to compute with.
pub(super) enum Wide<'a, T: Float> {
    /// That need no conversion.
    AsGiven(View<'a, T::Real>),
    Converted(Tensor<T::Real>),
}

impl<'a, T: Float> Wide<'a, T> {
    pub(super) fn of(view: View<'a, T>, isa: Isa) -> Self {
        if let Some(view) = T::view_as_real(view) {
            return Wide::AsGiven(view);
        }
        let shape @ [batch, heads, rows, width] = view.shape();
        let mut numbers = Tensor::filled(&shape, T::Real::ZERO);
        let mut spare = Vec::new();
        for at in 0..batch * heads {
            let out = &mut numbers.data_mut()[at * rows * width..];
            with_neighbours(&view, at / heads, at % heads, 0..rows, &mut spare, |rows| {
                (T::storage(isa).widen)(rows, out);
            });
        }
        Wide::Converted(numbers)
    }

    pub(super) fn view(&self) -> Result<View<'_, T::Real>> {
        match self {
            Wide::AsGiven(view) => Ok(*view),
            Wide::Converted(numbers) => numbers.view(),
        }
    }
}

/// Queries, keys and values to compute with.
pub(super) struct WideInputs<'a, T: Float> {
    q: Wide<'a, T>,
    k: Wide<'a, T>,
    v: Wide<'a, T>,
    past: Option<(Wide<'a, T>, Wide<'a, T>)>,
}

impl<'a, T: Float> WideInputs<'a, T> {
    pub(super) fn new(inputs: &Inputs<'a, T>, isa: Isa) -> Self {
        let wide = |view| Wide::of(view, isa);
        WideInputs {
            q: wide(inputs.q()),
            k: wide(inputs.k()),
            v: wide(inputs.v()),
            past: inputs.past().map(|(k, v)| (wide(k), wide(v))),
        }
    }

    pub(super) fn inputs(&self) -> Result<Inputs<'_, T::Real>> {
        let inputs = Inputs::new(self.q.view()?, self.k.view()?, self.v.view()?)?;
        match &self.past {
            Some((k, v)) => inputs.with_past(k.view()?, v.view()?),
            None => Ok(inputs),
        }
    }
}

/// The backward pass of numbers in any format; all has been checked.
pub(in super::super) fn run<T: Float>(
    attention: &Attention<'_>,
    inputs: &Inputs<'_, T>,
    saved: Saved<'_, T>,
    grad_output: View<'_, T>,
    options: &Options,
    gradients: GradientsMut<'_, T>,
) -> Result<()> {
    let isa = options.isa()?;
    let wide = WideInputs::new(inputs, isa);
    let (output, grad) = (Wide::of(saved.output, isa), Wide::of(grad_output, isa));
    let (inputs, grad) = (wide.inputs()?, grad.view()?);
    let saved = Saved {
        output: output.view()?,
        lse: saved.lse,
    };
    let run = |gradients| super::run(attention, &inputs, saved, grad, options, gradients);
    if T::IS_REAL {
        // All of them are.
        return as_real(gradients).map_or(Ok(()), run);
    }
    let GradientsMut {
        q,
        k,
        v,
        bias,
        sinks,
        store,
    } = gradients;
    let [mut of_q, mut of_k, mut of_v] = [&q, &k, &v].map(|to| Sums::new(to.shape()));
    let mut of_bias = bias.as_ref().map(|to| Sums::new(to.shape()));
    let mut of_sinks = sinks.as_ref().map(|to| vec![T::Real::ZERO; to.len()]);
    run(GradientsMut {
        q: of_q.view()?,
        k: of_k.view()?,
        v: of_v.view()?,
        bias: of_bias.as_mut().map(Sums::view).transpose()?,
        sinks: of_sinks.as_deref_mut(),
        store: Store::Replace,
    })?;
    let all = [(of_q, q), (of_k, k), (of_v, v)];
    for (sums, to) in all.into_iter().chain(of_bias.zip(bias)) {
        let give = Give {
            sums: &sums.numbers,
            factor: T::Real::ONE,
            add: store == Store::Add,
        };
        (T::storage(isa).give)(&give, &mut Piece::of(to));
    }
    for (to, sum) in sinks.into_iter().flatten().zip(of_sinks.iter().flatten()) {
        *to = T::narrow(match store {
            Store::Replace => *sum,
            Store::Add => to.widen() + *sum,
        });
    }
    Ok(())
}

fn as_real<T: Float>(gradients: GradientsMut<'_, T>) -> Option<GradientsMut<'_, T::Real>> {
    Some(GradientsMut {
        q: T::view_mut_as_real(gradients.q)?,
        k: T::view_mut_as_real(gradients.k)?,
        v: T::view_mut_as_real(gradients.v)?,
        bias: gradients.bias.and_then(T::view_mut_as_real),
        sinks: gradients.sinks.and_then(T::slice_as_real),
        store: gradients.store,
    })
}

/// A gradient before it is rounded.
struct Sums<T> {
    shape: [usize; 4],
    numbers: Vec<T>,
}

impl<T: Real> Sums<T> {
    fn new(shape: [usize; 4]) -> Self {
        let [batch, heads, length, width] = shape;
        let count = batch * heads * length * sums_stride(width);
        Sums {
            shape,
            numbers: vec![T::ZERO; count],
        }
    }

    fn view(&mut self) -> Result<ViewMut<'_, T>> {
        let [_, heads, length, width] = self.shape;
        let stride = sums_stride(width);
        let strides = [heads * length * stride, length * stride, stride, 1];
        let strides = strides.map(|stride| stride as isize);
        ViewMut::strided(&mut self.numbers, 0, self.shape, strides)
    }
}
