//! The definition's gradients of a call, and how far others may be from them.

use super::array::{Array, Gap, Layout};
use super::call::Call;
use super::random::Random;
use super::{isas, options};
use qkv::definition::{self, Gradients};
use qkv::{
    DType, EmptyRows, Float, GradientSizes, Isa, Saved, Tensor, backward, bound, forward_with,
    gradient_bound,
};

/// The definition's result.
pub struct ExpectedGradients {
    /// Of the output.
    pub grad: Array<f64>,
    result: Gradients,
    sizes: GradientSizes,
}

/// Names of gradients, in the order of [`Worst`].
const NAMES: [&str; 5] = ["dq", "dk", "dv", "dbias", "dsinks"];

/// The largest error over the bound of each gradient.
#[derive(Clone, Copy, Debug, Default)]
pub struct Worst(pub [f64; 5]);

impl std::fmt::Display for Worst {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (name, worst) in NAMES.iter().zip(self.0) {
            write!(f, " {name} {worst:.5}")?;
        }
        Ok(())
    }
}

/// A gradient of a call's output, exact in every number format.
pub fn grad_output(call: &Call, random: &mut Random) -> Array<f64> {
    let [b, h, l, _] = call.q.shape;
    let mut number = || (random.normal() * 32.0).round() / 32.0;
    Array::new([b, h, l, call.v.shape[3]], Layout::Plain, |_| number())
}

impl ExpectedGradients {
    /// Of a random gradient of the output; rows without a key are no error.
    pub fn of(call: &mut Call, random: &mut Random) -> ExpectedGradients {
        call.empty_rows = EmptyRows::Zero;
        let grad = grad_output(call, random);
        let typed = call.typed::<f64>([Layout::Plain; 3]);
        let (attention, inputs) = (call.attention(&typed), typed.inputs());
        let result = definition::backward(&attention, &inputs, grad.view()).unwrap();
        let sizes = sizes(call, &grad);
        ExpectedGradients {
            grad,
            result,
            sizes,
        }
    }

    /// Whether anything is promised: not if numbers are too large, nor if a kept key has a score
    /// of −∞, which is as if it were dropped.
    pub fn is_promised(&self, call: &Call) -> bool {
        let past_k = call.past.as_ref().map(|(k, _)| k);
        let scored = [Some(&call.q), Some(&call.k), past_k];
        let infinite = |array: &&Array<f64>| array.data.iter().any(|x| x.is_infinite());
        let sizes = &self.sizes;
        let of_weights = bound(DType::F32, sizes.head_dim, sizes.keys, sizes.largest_score);
        let of_all = gradient_bound(DType::F32, sizes);
        let each = [of_all.q, of_all.k, of_all.v, of_all.bias, of_all.sinks];
        let fits = each.iter().all(|&x| x < f64::from(f32::MAX));
        fits && of_weights < 2.0 && !scored.iter().flatten().any(infinite)
    }

    /// Whether the fast path gives this for every instruction set, as far as it is promised.
    ///
    /// # Errors
    /// Says where not.
    pub fn compare<T: Float + Gap>(
        &self,
        call: &Call,
        layouts: [Layout; 3],
        threads: usize,
        worst: &mut Worst,
    ) -> Result<(), String> {
        let typed = call.typed::<T>(layouts);
        let (attention, inputs) = (call.attention(&typed), typed.inputs());
        let grad = self.grad.map(layouts[0], T::from_f64);
        for isa in isas() {
            let options = options(isa, threads);
            let output = forward_with(&attention, &inputs, &options).unwrap();
            let saved = Saved::new(&output).unwrap();
            let found = backward(&attention, &inputs, saved, grad.view(), &options).unwrap();
            if !self.is_promised(call) {
                continue;
            }
            self.difference(&found, worst).map_err(|what| {
                let (dtype, call) = (T::DTYPE, call.describe());
                format!("{isa:?} {dtype:?} {layouts:?} {what}: {call}")
            })?;
        }
        Ok(())
    }

    fn difference<T: Float>(&self, found: &Gradients<T>, worst: &mut Worst) -> Result<(), String> {
        let bound = gradient_bound(T::DTYPE, &self.sizes);
        let Gradients { q, k, v, .. } = &self.result;
        let pairs = [
            (Some(&found.q), Some(q), bound.q),
            (Some(&found.k), Some(k), bound.k),
            (Some(&found.v), Some(v), bound.v),
            (found.bias.as_ref(), self.result.bias.as_ref(), bound.bias),
            (
                found.sinks.as_ref(),
                self.result.sinks.as_ref(),
                bound.sinks,
            ),
        ];
        for ((name, worst), (found, expected, bound)) in NAMES.iter().zip(&mut worst.0).zip(pairs) {
            match (found, expected) {
                (Some(found), Some(expected)) => {
                    let error = error(found, expected, bound);
                    *worst = worst.max(error.map_err(|what| format!("{name}{what}"))?);
                }
                (None, None) => {}
                _ => return Err(format!("{name} is there or not")),
            }
        }
        Ok(())
    }
}

/// The largest error over the bound.
fn error<T: Float>(found: &Tensor<T>, expected: &Tensor<f64>, bound: f64) -> Result<f64, String> {
    if found.shape() != expected.shape() {
        return Err(format!(" {:?} not {:?}", found.shape(), expected.shape()));
    }
    let mut worst = 0.0_f64;
    for (at, (x, &y)) in found.data().iter().zip(expected.data()).enumerate() {
        let error = (x.to_f64() - y).abs();
        if !y.is_finite() && !x.to_f64().is_finite() {
            continue;
        }
        if y.is_nan() || error.is_nan() || error > bound {
            return Err(format!("[{at}] {x:?} for {y}, bound {bound}"));
        }
        worst = worst.max(if bound > 0.0 { error / bound } else { 0.0 });
    }
    Ok(worst)
}

/// What the bound is derived from.
fn sizes(call: &Call, grad: &Array<f64>) -> GradientSizes {
    let typed = &call.typed::<f64>([Layout::Plain; 3]);
    let inputs = typed.inputs();
    let largest = |arrays: &[Option<&Array<f64>>]| {
        let all = arrays.iter().flatten().flat_map(|array| &array.data);
        all.filter(|x| x.is_finite())
            .fold(0.0, |a: f64, x| a.max(x.abs()))
    };
    let past = call.past.as_ref();
    let q = largest(&[Some(&call.q)]);
    let k = largest(&[Some(&call.k), past.map(|(k, _)| k)]);
    let scale = call.scale.factor(inputs.head_dim()).abs();
    let mut score = scale * q * k * inputs.head_dim() as f64;
    score += largest(&[call.bias.as_ref()]);
    if let Some(slopes) = &call.alibi {
        let slope = slopes.iter().fold(0.0, |a: f64, x| a.max(x.abs()));
        let places = definition::places(&call.attention(typed), &inputs).unwrap();
        let far = |places: &[Vec<i64>]| {
            let all = places.iter().flatten();
            all.fold(0.0, |far: f64, &place| far.max((place as f64).abs()))
        };
        score += slope * (far(&places.queries) + far(&places.keys));
    }
    let [batch, heads, queries, keys] = inputs.scores_shape();
    // What each key, and each number of the bias, gets of all weights, and the largest product of
    // a row and a key that it keeps.
    let bias_shape = call.bias.as_ref().map(|bias| bias.shape);
    let mut of_keys = vec![0.0; batch * inputs.kv_heads() * keys];
    let mut of_bias = vec![0.0; bias_shape.map_or(0, |shape| shape.iter().product())];
    let mut product = 0.0_f64;
    let value = |b: usize, g: usize, j: usize, c: usize| match past {
        Some((_, v)) if j < v.shape[2] => v.get([b, g, j, c]),
        Some((_, v)) => call.v.get([b, g, j - v.shape[2], c]),
        None => call.v.get([b, g, j, c]),
    };
    definition::for_each_row(&call.attention(typed), &inputs, |b, h, i, row| {
        let g = inputs.kv_head(h);
        for j in (0..keys).filter(|&j| row.kept[j]) {
            of_keys[(b * inputs.kv_heads() + g) * keys + j] += row.weights[j];
            if let Some(shape) = bias_shape {
                let index = [b, h, i, j].into_iter().zip(shape);
                let at = index.fold(0, |at, (n, size)| at * size + if size == 1 { 0 } else { n });
                of_bias[at] += row.weights[j];
            }
            let terms = (0..inputs.value_dim()).map(|c| grad.get([b, h, i, c]) * value(b, g, j, c));
            let sum: f64 = terms.map(f64::abs).filter(|x| x.is_finite()).sum();
            product = product.max(sum);
        }
    })
    .unwrap();
    let most = |sums: &[f64]| sums.iter().fold(0.0, |a: f64, &x| a.max(x));
    let terms =
        |shape: [usize; 4]| batch * heads * queries * keys / shape.iter().product::<usize>().max(1);
    GradientSizes {
        head_dim: inputs.head_dim(),
        value_dim: inputs.value_dim(),
        keys,
        rows: queries * heads / inputs.kv_heads(),
        weight: most(&of_keys),
        bias_terms: call.bias.as_ref().map_or(0, |bias| terms(bias.shape)),
        bias_weight: most(&of_bias),
        sink_terms: batch * queries,
        largest_score: score,
        scale,
        softcap: call.softcap,
        dropout: call.dropout.map_or(0.0, |dropout| dropout.p),
        q,
        k,
        grad: largest(&[Some(grad)]),
        product,
    }
}
