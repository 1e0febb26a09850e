//! The fast path equals the definition within the derived bound, on every instruction set.
#![allow(clippy::unwrap_used)]

mod support;

use qkv::{DType, Float, Isa, Options, bound, definition, forward_with};
use support::{Call, LAYOUTS, Layout, Random, Typed};

/// The largest Σ of magnitudes that goes into a score, and the largest |v| with dropout's factor.
fn sizes(call: &Call, typed: &Typed<f64>) -> (f64, f64) {
    let inputs = typed.inputs();
    let scale = call.scale.factor(inputs.head_dim()).abs();
    let largest = |arrays: &[Option<&support::Array<f64>>]| {
        let all = arrays.iter().flatten().flat_map(|array| &array.data);
        all.filter(|x| x.is_finite())
            .fold(0.0, |a: f64, x| a.max(x.abs()))
    };
    let past = call.past.as_ref();
    let q = largest(&[Some(&call.q)]);
    let k = largest(&[Some(&call.k), past.map(|(k, _)| k)]);
    let v = largest(&[Some(&call.v), past.map(|(_, v)| v)]);
    let mut score = scale * q * k * inputs.head_dim() as f64;
    score += largest(&[call.bias.as_ref()]);
    if let Some(slopes) = &call.alibi {
        let slope = slopes.iter().fold(0.0, |a: f64, x| a.max(x.abs()));
        score += slope * (2 * inputs.keys() + inputs.queries() + 20) as f64;
    }
    (
        score,
        v / (1.0 - call.dropout.map_or(0.0, |dropout| dropout.p)),
    )
}

/// Compares one call in one type on all instruction sets; returns the largest error over the bound.
fn compare<T: Float>(call: &Call, expected: &definition::Output<f64>, layouts: [Layout; 3]) -> f64 {
    let exact = call.typed::<f64>([Layout::Plain; 3]);
    let (score, v) = sizes(call, &exact);
    let typed = call.typed::<T>(layouts);
    let (attention, inputs) = (call.attention(&typed), typed.inputs());
    let share = bound(T::DTYPE, inputs.head_dim(), inputs.keys(), score);
    let mut worst = 0.0_f64;
    for isa in Isa::ALL.into_iter().filter(|isa| isa.available()) {
        let options = Options {
            isa: Some(isa),
            ..Options::default()
        };
        let found = forward_with(&attention, &inputs, &options).unwrap();
        let context = || format!("{isa:?} {:?} {layouts:?} {}", T::DTYPE, call.describe());
        assert_eq!(found.empty_rows, expected.empty_rows, "{}", context());
        let pairs = found.output.data().iter().zip(expected.output.data());
        for (at, (x, y)) in pairs.enumerate() {
            let error = (x.to_f64() - y).abs();
            assert!(
                error <= share * v,
                "output[{at}] {x:?} for {y}, bound {}: {}",
                share * v,
                context()
            );
            worst = worst.max(if v > 0.0 { error / (share * v) } else { 0.0 });
        }
        for (at, (x, y)) in found.lse.data().iter().zip(expected.lse.data()).enumerate() {
            let same = x == y || (x - y).abs() <= share.max(y.abs() * 1e-15);
            assert!(same, "lse[{at}] {x} for {y}, bound {share}: {}", context());
        }
    }
    worst
}

fn compare_many(seed: u64, count: usize) {
    let mut random = Random(seed);
    let mut worst = [0.0_f64; 2];
    for _ in 0..count {
        let call = Call::random(&mut random);
        let exact = call.typed::<f64>([Layout::Plain; 3]);
        let expected = definition::forward(&call.attention(&exact), &exact.inputs()).unwrap();
        let layouts = std::array::from_fn(|_| random.pick(&LAYOUTS));
        worst[0] = worst[0].max(compare::<f32>(&call, &expected, layouts));
        worst[1] = worst[1].max(compare::<f64>(&call, &expected, layouts));
    }
    println!(
        "largest error over bound: f32 {:.3}, f64 {:.3}",
        worst[0], worst[1]
    );
}

#[test]
fn random_calls_equal_the_definition_1() {
    compare_many(1, 250);
}

#[test]
fn random_calls_equal_the_definition_2() {
    compare_many(2, 250);
}

#[test]
fn every_length_equals_the_definition() {
    let mut random = Random(3);
    for queries in support::LENGTHS {
        for keys in support::LENGTHS {
            let mut call = Call::random(&mut random);
            call.q = support::Array::new([2, 6, queries, 7], Layout::Plain, |_| random.normal());
            call.k = support::Array::new([2, 3, keys, 7], Layout::Plain, |_| random.normal());
            call.v = support::Array::new([2, 3, keys, 5], Layout::Plain, |_| random.normal());
            call.past = None;
            call.bias = None;
            call.masks.clear();
            call.lengths = None;
            call.documents = None;
            call.alibi = None;
            call.sinks = None;
            let exact = call.typed::<f64>([Layout::Plain; 3]);
            let expected = definition::forward(&call.attention(&exact), &exact.inputs()).unwrap();
            compare::<f32>(&call, &expected, [Layout::Plain; 3]);
            compare::<f64>(&call, &expected, [Layout::Plain; 3]);
        }
    }
}

#[test]
fn bound_grows_with_what_is_rounded() {
    assert!(bound(DType::F32, 64, 100, 3.0) < bound(DType::F32, 128, 100, 3.0));
    assert!(bound(DType::F32, 64, 100, 3.0) < bound(DType::F32, 64, 1000, 3.0));
    assert!(bound(DType::F64, 64, 100, 3.0) < 1e-8 * bound(DType::F32, 64, 100, 3.0));
    assert_eq!(bound(DType::F32, 64, 100, 1e38), 2.0);
}
