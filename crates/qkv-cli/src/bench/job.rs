//! What is run, again and again: the forward pass, or the backward pass after it.

use super::data::Data;
use crate::args::Mode;
use crate::suite::Case;
use qkv::{
    AnyView, Float, GradientsMut, Options, Result, Saved, Store, View, ViewMut, backward_into,
    forward_into,
};

/// A case's results.
pub struct Job<T> {
    output: Vec<T>,
    /// For the backward pass: what the forward pass left, and room for what it computes.
    backward: Option<(Vec<f64>, Vec<T>)>,
}

impl<T: Float> Job<T>
where
    for<'a> AnyView<'a>: From<View<'a, T>>,
{
    /// Takes the memory; for the backward pass, the forward pass is run once.
    pub fn new(case: &Case, data: &Data<T>, mode: Mode, options: &Options) -> Result<Job<T>> {
        // Written to, so that it is in memory already.
        let ones = |count| vec![T::from_f64(1.0); count];
        let mut job = Job {
            output: ones(case.output().iter().product()),
            backward: None,
        };
        if mode == Mode::Backward {
            let lse = job.forward(case, data, options)?;
            job.backward = Some((lse, ones(sizes(case).iter().sum())));
        }
        Ok(job)
    }

    /// Runs it once.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn once(&mut self, case: &Case, data: &Data<T>, options: &Options) -> Result<()> {
        let Some((lse, gradients)) = &mut self.backward else {
            return self.forward(case, data, options).map(|_| ());
        };
        let grad = View::new(&data.grad, &case.output())?;
        let saved = Saved {
            output: View::new(&self.output, &case.output())?,
            lse,
        };
        let [q, k, _] = sizes(case);
        let (q, rest) = gradients.split_at_mut(q);
        let (k, v) = rest.split_at_mut(k);
        let to = GradientsMut {
            q: ViewMut::new(q, &case.q())?,
            k: ViewMut::new(k, &case.k())?,
            v: ViewMut::new(v, &case.v())?,
            bias: None,
            sinks: None,
            store: Store::Replace,
        };
        let attention = case.attention(data)?;
        backward_into(&attention, &data.inputs(case)?, saved, grad, options, to)
    }

    fn forward(&mut self, case: &Case, data: &Data<T>, options: &Options) -> Result<Vec<f64>> {
        let attention = case.attention(data)?;
        let inputs = data.inputs(case)?;
        let view = ViewMut::new(&mut self.output, &case.output())?;
        let rows = forward_into(&attention, &inputs, options, view)?;
        Ok(rows.lse.into_data())
    }

    /// The output; or the gradients of q, k and v, one after the other.
    pub fn result(&self) -> &[T] {
        match &self.backward {
            Some((_, gradients)) => gradients,
            None => &self.output,
        }
    }

    /// The largest sum of weights that a key gets: what comes to its value from a gradient of ones.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn most_weight(&self, case: &Case, data: &Data<T>, options: &Options) -> Result<f64> {
        let Some((lse, _)) = &self.backward else {
            return Ok(0.0);
        };
        let one = [T::from_f64(1.0)];
        let ones = View::strided(&one, 0, case.output(), [0; 4])?;
        let saved = Saved {
            output: View::new(&self.output, &case.output())?,
            lse,
        };
        let attention = case.attention(data)?;
        let found = qkv::backward(&attention, &data.inputs(case)?, saved, ones, options)?;
        let sums = found.v.data().iter().map(|x| x.to_f64());
        Ok(sums.fold(0.0, f64::max))
    }
}

/// Numbers of q, k and v.
pub fn sizes(case: &Case) -> [usize; 3] {
    [case.q(), case.k(), case.v()].map(|shape| shape.iter().product())
}
