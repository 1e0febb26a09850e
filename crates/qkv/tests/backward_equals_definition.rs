//! The fast backward pass equals the definition's derivative within the derived bound, on every
//! instruction set.
#![allow(clippy::unwrap_used)]

mod support;

use half::{bf16, f16};
use qkv::definition::{self, Gradients};
use qkv::{
    DType, EmptyRows, Float, GradientBound, GradientSizes, Saved, Tensor, backward, forward_with,
    gradient_bound,
};
use support::{Array, Call, Gap, LAYOUTS, Layout, Random, Typed, isas, options, times};

/// What the bound is derived from.
fn sizes(call: &Call, typed: &Typed<f64>, grad: &Array<f64>) -> GradientSizes {
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

/// The largest error over the bound.
fn error<T: Float>(found: &Tensor<T>, expected: &Tensor<f64>, bound: f64, what: &str) -> f64 {
    assert_eq!(found.shape(), expected.shape(), "{what}");
    let mut worst = 0.0_f64;
    for (at, (x, y)) in found.data().iter().zip(expected.data()).enumerate() {
        let error = (x.to_f64() - y).abs();
        if !y.is_finite() {
            assert!(!x.to_f64().is_finite(), "{what}[{at}] {x:?} for {y}");
            continue;
        }
        assert!(error <= bound, "{what}[{at}] {x:?} for {y}, bound {bound}");
        worst = worst.max(if bound > 0.0 { error / bound } else { 0.0 });
    }
    worst
}

fn compare<T: Float + Gap>(
    call: &Call,
    grad: &Array<f64>,
    (expected, bound): (&Gradients, GradientBound),
    layouts: [Layout; 3],
) -> [f64; 5] {
    let typed = call.typed::<T>(layouts);
    let (attention, inputs) = (call.attention(&typed), typed.inputs());
    let grad = grad.map(layouts[0], T::from_f64);
    let mut worst = [0.0_f64; 5];
    for isa in isas() {
        let options = options(isa, 2);
        let output = forward_with(&attention, &inputs, &options).unwrap();
        let saved = Saved::new(&output).unwrap();
        let found = backward(&attention, &inputs, saved, grad.view(), &options).unwrap();
        let what = |name: &str| {
            format!(
                "{name} {isa:?} {:?} {layouts:?} {}",
                T::DTYPE,
                call.describe()
            )
        };
        let mut errors = [
            error(&found.q, &expected.q, bound.q, &what("dq")),
            error(&found.k, &expected.k, bound.k, &what("dk")),
            error(&found.v, &expected.v, bound.v, &what("dv")),
            0.0,
            0.0,
        ];
        assert_eq!(found.bias.is_some(), expected.bias.is_some());
        if let (Some(found), Some(expected)) = (&found.bias, &expected.bias) {
            errors[3] = error(found, expected, bound.bias, &what("dbias"));
        }
        assert_eq!(found.sinks.is_some(), expected.sinks.is_some());
        if let (Some(found), Some(expected)) = (&found.sinks, &expected.sinks) {
            errors[4] = error(found, expected, bound.sinks, &what("dsinks"));
        }
        for (worst, error) in worst.iter_mut().zip(errors) {
            *worst = worst.max(error);
        }
    }
    worst
}

/// How the numbers of a call are rounded, and which formats are compared then.
type Compare = fn(&Call, &Array<f64>, &Gradients, &GradientSizes, [Layout; 3]) -> [[f64; 5]; 2];

fn single_and_double(
    call: &Call,
    grad: &Array<f64>,
    expected: &Gradients,
    sizes: &GradientSizes,
    layouts: [Layout; 3],
) -> [[f64; 5]; 2] {
    let [single, double] = [DType::F32, DType::F64].map(|dtype| gradient_bound(dtype, sizes));
    [
        compare::<f32>(call, grad, (expected, single), layouts),
        compare::<f64>(call, grad, (expected, double), layouts),
    ]
}

fn half<T: Float + Gap>(
    call: &Call,
    grad: &Array<f64>,
    expected: &Gradients,
    sizes: &GradientSizes,
    layouts: [Layout; 3],
) -> [[f64; 5]; 2] {
    let bound = gradient_bound(T::DTYPE, sizes);
    [compare::<T>(call, grad, (expected, bound), layouts); 2]
}

fn compare_many(seed: u64, count: usize, round: fn(Call) -> Call, compare: Compare) {
    let mut random = Random::new(seed);
    let mut worst = [[0.0_f64; 5]; 2];
    let mut compared = 0;
    for _ in 0..count {
        let mut call = round(Call::random(&mut random));
        call.empty_rows = EmptyRows::Zero;
        let past_k = call.past.as_ref().map(|(k, _)| k);
        let scored = [Some(&call.q), Some(&call.k), past_k];
        if (scored.iter().flatten()).any(|array| array.data.iter().any(|x| x.is_infinite())) {
            continue; // a kept key whose score is −∞ is as one dropped
        }
        if let Some(bias) = &mut call.bias {
            // The bound follows the largest number, and would allow anything.
            let low = |x: &mut f64| {
                if *x < -1e30 && x.is_finite() {
                    *x = -40.0;
                }
            };
            bias.data.iter_mut().for_each(low);
        }
        let exact = call.typed::<f64>([Layout::Plain; 3]);
        let [batch, heads, queries, _] = exact.inputs().scores_shape();
        let shape = [batch, heads, queries, exact.inputs().value_dim()];
        // Exact in every format.
        let grad = Array::new(shape, Layout::Plain, |_| {
            (random.normal() * 32.0).round() / 32.0
        });
        let expected =
            definition::backward(&call.attention(&exact), &exact.inputs(), grad.view()).unwrap();
        let layouts = std::array::from_fn(|_| random.pick(&LAYOUTS));
        let sizes = sizes(&call, &exact, &grad);
        let bound = gradient_bound(DType::F32, &sizes);
        let bounds = [bound.q, bound.k, bound.v, bound.bias, bound.sinks];
        let e = qkv::bound(DType::F32, sizes.head_dim, sizes.keys, sizes.largest_score);
        if e >= 2.0 || !bounds.iter().all(|&x| x < f64::from(f32::MAX)) {
            continue; // numbers too large for any promise
        }
        compared += 1;
        let errors = compare(&call, &grad, &expected, &sizes, layouts);
        for (worst, errors) in worst.iter_mut().zip(errors) {
            for (worst, error) in worst.iter_mut().zip(errors) {
                *worst = worst.max(error);
            }
        }
    }
    println!(
        "{compared} calls, largest error over bound (q, k, v, bias, sinks): {:.5?} {:.5?}",
        worst[0], worst[1]
    );
    assert!(compared > count / 2);
}

#[test]
fn random_calls_in_half_precision_equal_the_definition() {
    compare_many(12, times(60), |call| call.rounded::<f16>(), half::<f16>);
    compare_many(13, times(60), |call| call.rounded::<bf16>(), half::<bf16>);
}

#[test]
fn random_calls_equal_the_definition() {
    compare_many(11, times(200), |call| call, single_and_double);
}
