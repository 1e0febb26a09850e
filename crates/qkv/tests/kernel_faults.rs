//! Faults that people met in attention, and input made to break it, on every instruction set.
#![allow(clippy::unwrap_used)]

mod support;

use qkv::{
    AnyView, Attention, Bias, Cache, Causal, Documents, EmptyRows, Error, Float, Inputs, Isa,
    KeyLengths, Mask, Options, Output, Part, Scale, Sinks, View, ViewMut, Window, definition,
    forward, forward_into, forward_with, merge, scores, weights,
};
use std::num::NonZeroUsize;
use support::{Array, Call, Layout, Random, same_bits};

/// Results of both number types on all instruction sets, as `f64`.
fn everywhere(attention: &Attention<'_>, q: &Matrix, k: &Matrix, v: &Matrix) -> Vec<Output<f64>> {
    let mut found = Vec::new();
    for isa in Isa::ALL.into_iter().filter(|isa| isa.available()) {
        let options = Options {
            isa: Some(isa),
            threads: NonZeroUsize::new(1),
        };
        let single = [q, k, v].map(|m| m.data.iter().map(|&x| x as f32).collect::<Vec<_>>());
        let inputs = Inputs::new(
            View::new(&single[0], &q.shape).unwrap(),
            View::new(&single[1], &k.shape).unwrap(),
            View::new(&single[2], &v.shape).unwrap(),
        )
        .unwrap();
        let output = forward_with(attention, &inputs, &options).unwrap();
        found.push(Output {
            output: qkv::Tensor::new(
                output.output.shape(),
                output.output.data().iter().map(|&x| f64::from(x)).collect(),
            )
            .unwrap(),
            lse: output.lse,
            empty_rows: output.empty_rows,
        });
        let inputs = Inputs::new(q.view(), k.view(), v.view()).unwrap();
        found.push(forward_with(attention, &inputs, &options).unwrap());
    }
    found
}

struct Matrix {
    data: Vec<f64>,
    shape: [usize; 2],
}

impl Matrix {
    fn view(&self) -> View<'_, f64> {
        View::new(&self.data, &self.shape).unwrap()
    }
}

fn matrix(rows: usize, data: &[f64]) -> Matrix {
    Matrix {
        data: data.to_vec(),
        shape: [rows, data.len() / rows.max(1)],
    }
}

fn column(data: impl IntoIterator<Item = f64>) -> Matrix {
    let data: Vec<f64> = data.into_iter().collect();
    Matrix {
        shape: [data.len(), 1],
        data,
    }
}

/// Scores 0: values are averaged over the kept keys.
fn zeros(count: usize) -> Matrix {
    column(std::iter::repeat_n(0.0, count))
}

fn assert_near(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (x, y) in found.iter().zip(expected) {
        let near = (x - y).abs() <= 2e-6 * y.abs().max(1.0) || (x.is_nan() && y.is_nan());
        assert!(near, "{found:?} for {expected:?}");
    }
}

fn causal(causal: Causal) -> Attention<'static> {
    Attention {
        causal: Some(causal),
        ..Attention::default()
    }
}

#[test]
fn b001_top_left_and_bottom_right() {
    let v = column((1..=5).map(f64::from));
    for found in everywhere(&causal(Causal::TopLeft), &zeros(2), &zeros(5), &v) {
        assert_near(found.output.data(), &[1.0, 1.5]);
    }
    for found in everywhere(&causal(Causal::BottomRight), &zeros(2), &zeros(5), &v) {
        assert_near(found.output.data(), &[2.5, 3.0]);
    }
}

#[test]
fn b003_more_queries_than_keys() {
    let v = column([10.0, 20.0]);
    for found in everywhere(&causal(Causal::BottomRight), &zeros(5), &zeros(2), &v) {
        assert_near(found.output.data(), &[0.0, 0.0, 0.0, 10.0, 15.0]);
        assert_eq!(found.empty_rows, [[0, 0, 0], [0, 0, 1], [0, 0, 2]]);
        assert_eq!(found.lse.data()[0], f64::NEG_INFINITY);
    }
}

#[test]
fn b012_nan_in_a_dropped_key_does_not_leak() {
    let q = matrix(2, &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let mut k = matrix(2, &q.data);
        k.data[4] = bad;
        let keep = [true, false, true, false];
        let attention = Attention {
            masks: vec![Mask::keep(View::new(&keep, &[2, 2]).unwrap())],
            ..Attention::default()
        };
        let minus = [0.0_f32, f32::NEG_INFINITY];
        let biased = Attention {
            bias: Some(Bias(View::new(&minus, &[1, 2]).unwrap().into())),
            ..Attention::default()
        };
        let short = Attention {
            lengths: Some(KeyLengths(vec![1])),
            ..Attention::default()
        };
        for attention in [attention, biased, short] {
            for found in everywhere(&attention, &q, &k, &k) {
                assert_near(
                    found.output.data(),
                    &[0.0, 1.0, 2.0, 3.0, 0.0, 1.0, 2.0, 3.0],
                );
            }
        }
        // Causal: the first row must not read the second key, the second row does.
        for found in everywhere(&causal(Causal::Square), &q, &q, &k) {
            assert_near(&found.output.data()[..4], &[0.0, 1.0, 2.0, 3.0]);
            assert!(!found.output.data()[4].is_finite());
        }
    }
}

/// The same in the middle of large blocks, row by row, against the definition.
#[test]
fn b012_nan_scattered_over_dropped_keys() {
    let mut random = Random(21);
    let (queries, keys, width) = (130, 300, 20);
    let q = Array::new([1, 2, queries, width], Layout::Plain, |_| random.normal());
    let mut k = Array::new([1, 1, keys, width], Layout::Plain, |_| random.normal());
    let mut v = Array::new([1, 1, keys, width], Layout::Plain, |_| random.normal());
    let keep = Array::new([1, 1, queries, keys], Layout::Plain, |[_, _, i, j]| {
        j % 7 != 3 && i * j % 5 != 4
    });
    for j in (3..keys).step_by(7) {
        k.data[j * width + j % width] = f64::NAN;
        v.data[j * width + (j + 5) % width] = [f64::NAN, f64::INFINITY][j % 2];
    }
    let attention = Attention {
        masks: vec![Mask::keep(keep.view())],
        causal: Some(Causal::BottomRight),
        window: Some(Window {
            back: Some(170),
            forward: None,
        }),
        ..Attention::default()
    };
    let inputs = Inputs::new(q.view(), k.view(), v.view()).unwrap();
    let expected = definition::forward(&attention, &inputs).unwrap();
    for isa in Isa::ALL.into_iter().filter(|isa| isa.available()) {
        let options = Options {
            isa: Some(isa),
            ..Options::default()
        };
        let found = forward_with(&attention, &inputs, &options).unwrap();
        for (x, y) in found.output.data().iter().zip(expected.output.data()) {
            assert!(y.is_finite() && (x - y).abs() < 1e-12, "{isa:?} {x} {y}");
        }
    }
}

#[test]
fn b017_finite_minimum_biases_do_not_drop() {
    let minimum = f64::from(f32::MIN);
    let bias: Vec<f64> = (0..25)
        .map(|n| {
            if n % 5 > n / 5 || n % 5 < 3 {
                minimum
            } else {
                0.0
            }
        })
        .collect();
    let attention = Attention {
        bias: Some(Bias(View::new(&bias, &[5, 5]).unwrap().into())),
        ..Attention::default()
    };
    let v = column((1..=5).map(f64::from));
    for found in everywhere(&attention, &zeros(5), &zeros(5), &v) {
        // Rows 0 to 2 have the minimum everywhere: an equal softmax, no NaN.
        assert_near(found.output.data(), &[3.0, 3.0, 3.0, 4.0, 4.5]);
        assert!(found.empty_rows.is_empty());
    }
    // Booleans combine as booleans: the same rows are empty.
    let keep: Vec<bool> = bias.iter().map(|&b| b == 0.0).collect();
    let attention = Attention {
        masks: vec![Mask::keep(View::new(&keep, &[5, 5]).unwrap())],
        ..Attention::default()
    };
    for found in everywhere(&attention, &zeros(5), &zeros(5), &v) {
        assert_near(found.output.data(), &[0.0, 0.0, 0.0, 4.0, 4.5]);
        assert_eq!(found.empty_rows.len(), 3);
    }
}

#[test]
fn b018_a_row_without_keys_is_zero_or_an_error() {
    let drop = [false, false, false, true, true, true, false, false, false];
    let mut attention = Attention {
        masks: vec![Mask::drop(View::new(&drop, &[3, 3]).unwrap())],
        ..Attention::default()
    };
    let v = column([1.0, 2.0, 6.0]);
    for found in everywhere(&attention, &zeros(3), &zeros(3), &v) {
        assert_near(found.output.data(), &[3.0, 0.0, 3.0]);
        assert_eq!(found.empty_rows, [[0, 0, 1]]);
    }
    attention.empty_rows = EmptyRows::Error;
    let (z, v) = ([0.0_f32; 3], [1.0_f32, 2.0, 6.0]);
    let view = |data| View::new(data, &[3, 1]).unwrap();
    let inputs = Inputs::new(view(&z), view(&z), view(&v)).unwrap();
    let error = forward(&attention, &inputs).unwrap_err();
    assert!(
        matches!(
            error,
            Error::EmptyRows {
                first: [0, 0, 1],
                rows: 3,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn b021_very_negative_scores_before_a_dropped_block() {
    let q = column([1.0]);
    let k = column((0..256).map(|_| -200.0));
    let v = column((0..256).map(f64::from));
    let keep: Vec<bool> = (0..256).map(|j| j < 128).collect();
    for last_first in [false, true] {
        // The dropped block first, too.
        let keep: Vec<bool> = keep.iter().map(|&kept| kept != last_first).collect();
        let attention = Attention {
            masks: vec![Mask::keep(View::new(&keep, &[1, 256]).unwrap())],
            ..Attention::default()
        };
        for found in everywhere(&attention, &q, &k, &v) {
            assert_near(
                found.output.data(),
                &[if last_first { 191.5 } else { 63.5 }],
            );
        }
    }
}

#[test]
fn b022_nan_in_a_query_stays_in_its_row() {
    let q = matrix(3, &[1.0, 2.0, f64::NAN, 1.0, 0.0, 1.0]);
    let k = matrix(2, &[1.0, 0.0, 0.0, 1.0]);
    for found in everywhere(&Attention::default(), &q, &k, &k) {
        let nan: Vec<bool> = found.output.data().iter().map(|x| x.is_nan()).collect();
        assert_eq!(nan, [false, false, true, true, false, false]);
        assert!(found.lse.data()[1].is_nan() && found.empty_rows.is_empty());
    }
}

#[test]
fn b024_the_tail_of_a_block_has_no_phantom_keys() {
    for keys in [1, 15, 17, 65, 255, 257] {
        let (q, k) = (column([1.0]), column((0..keys).map(|_| -1.0)));
        let v = column((0..keys).map(|_| 1.0));
        for found in everywhere(&Attention::default(), &q, &k, &v) {
            assert_near(found.output.data(), &[1.0]);
            assert_near(found.lse.data(), &[f64::from(keys).ln() - 1.0]);
        }
    }
}

#[test]
fn b060_a_window_counts_both_ends() {
    let v = column((1..=5).map(f64::from));
    for (back, expected) in [
        (1, [1.0, 1.5, 2.5, 3.5, 4.5]),
        (2, [1.0, 1.5, 2.0, 3.0, 4.0]),
    ] {
        let attention = Attention {
            window: Some(Window {
                back: Some(back),
                forward: None,
            }),
            ..causal(Causal::Square)
        };
        for found in everywhere(&attention, &zeros(5), &zeros(5), &v) {
            assert_near(found.output.data(), &expected);
        }
    }
}

#[test]
fn b064_softcap_before_the_mask() {
    let attention = Attention {
        scale: Scale::Factor(1.0),
        softcap: Some(1.0),
        masks: vec![Mask::keep(View::new(&[true, false], &[1, 2]).unwrap())],
        ..Attention::default()
    };
    let (q, k, v) = (column([1.0]), column([0.0, 5.0]), column([1.0, 2.0]));
    for found in everywhere(&attention, &q, &k, &v) {
        assert_near(found.output.data(), &[1.0]);
    }
}

#[test]
fn b067_and_b068_documents_even_empty_ones() {
    let attention = Attention {
        documents: Some(Documents::new(vec![2, 3])),
        ..causal(Causal::Square)
    };
    let v = column((1..=5).map(f64::from));
    for found in everywhere(&attention, &zeros(5), &zeros(5), &v) {
        assert_near(found.output.data(), &[1.0, 1.5, 3.0, 3.5, 4.0]);
    }
    let documents = Documents::with_key_lengths(vec![0, 1, 0, 1], vec![0, 3, 0, 5]).unwrap();
    let attention = Attention {
        documents: Some(documents),
        ..Attention::default()
    };
    let v = column((1..=8).map(f64::from));
    for found in everywhere(&attention, &zeros(2), &zeros(8), &v) {
        assert_near(found.output.data(), &[2.0, 6.0]);
    }
}

#[test]
fn scores_at_the_end_of_the_range() {
    let huge = 3e38;
    let (q, v) = (column([1.0]), column([1.0, 5.0, 9.0]));
    for (k, expected) in [
        ([huge, -huge, 0.0], 1.0),
        ([-huge, -huge, -huge], 5.0),
        ([-huge, huge, huge], 7.0),
        ([-huge, -1e38, -2e38], 5.0),
    ] {
        for found in everywhere(&Attention::default(), &q, &column(k), &v) {
            assert_near(found.output.data(), &[expected]);
        }
    }
    // Denormal scores and values.
    for found in everywhere(&Attention::default(), &q, &column([1e-40, -1e-40, 0.0]), &v) {
        assert_near(found.output.data(), &[5.0]);
    }
    // A scale that no f32 holds.
    let attention = Attention {
        scale: Scale::Factor(1e300),
        ..Attention::default()
    };
    for found in everywhere(&attention, &q, &column([1e-30, 0.0, -1.0]), &v) {
        assert_near(found.output.data(), &[1.0]);
    }
}

#[test]
fn sinks_take_their_share_once_over_several_chunks() {
    let keys = 5000;
    let attention = Attention {
        sinks: Some(Sinks(vec![f64::from(keys).ln()])),
        ..Attention::default()
    };
    let ones = column((0..keys).map(|_| 1.0));
    for found in everywhere(&attention, &column([0.0]), &ones, &ones) {
        assert_near(found.output.data(), &[0.5]);
        assert_near(found.lse.data(), &[f64::from(keys).ln()]);
    }
}

#[test]
fn sizes_of_zero() {
    let nothing: [f32; 0] = [];
    let v = [1.0_f32; 6];
    let attention = Attention::default();
    let view = |data: &'static [f32], shape: [usize; 4]| View::new(data, &shape).unwrap();
    let compute =
        |q, k, v: View<'_, f32>| forward(&attention, &Inputs::new(q, k, v).unwrap()).unwrap();
    let some: &'static [f32] = &[1.0; 6];
    // No keys, no queries, no batch, no heads, no value columns.
    let found = compute(
        view(some, [1, 2, 1, 3]),
        view(&[], [1, 2, 0, 3]),
        View::new(&nothing, &[1, 2, 0, 2]).unwrap(),
    );
    assert_eq!(found.output.data(), [0.0; 4]);
    assert_eq!(found.empty_rows, [[0, 0, 0], [0, 1, 0]]);
    let found = compute(
        view(&[], [1, 2, 0, 3]),
        view(some, [1, 2, 1, 3]),
        View::new(&v, &[1, 2, 1, 3]).unwrap(),
    );
    assert!(found.output.data().is_empty());
    for shape in [[0, 2, 1, 3], [1, 0, 1, 3]] {
        let found = compute(view(&[], shape), view(&[], shape), view(&[], shape));
        assert!(found.output.data().is_empty());
    }
    let found = compute(
        view(some, [1, 2, 1, 3]),
        view(some, [1, 2, 1, 3]),
        View::new(&nothing, &[1, 2, 1, 0]).unwrap(),
    );
    assert_eq!((found.output.data().len(), found.lse.data().len()), (0, 2));
}

#[test]
fn outputs_that_do_not_fit_are_refused() {
    let x = [0.0_f32; 6];
    let view = View::new(&x, &[2, 3]).unwrap();
    let inputs = Inputs::new(view, view, view).unwrap();
    let mut out = [0.0_f32; 8];
    let wrong = ViewMut::new(&mut out, &[2, 4]).unwrap();
    let error = forward_into(&Attention::default(), &inputs, &Options::default(), wrong);
    assert!(matches!(
        error,
        Err(Error::Mismatch {
            axis: "value_dim",
            ..
        })
    ));
    let twice = ViewMut::strided(&mut out, 0, [1, 1, 2, 3], [0, 0, 2, 1]);
    assert!(matches!(twice, Err(Error::Overlap { .. })));
    let outside = ViewMut::strided(&mut out, 3, [1, 1, 2, 3], [0, 0, 3, 1]);
    assert!(matches!(outside, Err(Error::OutOfBounds { .. })));
    let backwards = ViewMut::strided(&mut out, 3, [1, 1, 2, 3], [0, 0, -3, 1]).unwrap();
    assert_eq!(backwards.strides(), [0, 0, -3, 1]);
}

/// Merged parts equal the whole within the bound.
#[test]
fn merged_parts_equal_the_whole() {
    let mut random = Random(31);
    let (keys, cut) = (500, 123);
    let q = Array::new([2, 4, 9, 16], Layout::Plain, |_| random.normal() as f32);
    let k = Array::new([2, 2, keys, 16], Layout::Plain, |_| random.normal() as f32);
    let v = Array::new([2, 2, keys, 8], Layout::Plain, |_| random.normal() as f32);
    let sinks = Sinks(vec![0.5, -1.0, 2.0, 0.0]);
    let part = |array: &Array<f32>, from: usize, to: usize| {
        let [b, h, _, d] = array.shape;
        Array::new([b, h, to - from, d], Layout::Plain, |[b, h, j, c]| {
            array.get([b, h, from + j, c])
        })
    };
    let compute = |attention: &Attention<'_>, from, to| {
        let (k, v) = (part(&k, from, to), part(&v, from, to));
        forward(
            attention,
            &Inputs::new(q.view(), k.view(), v.view()).unwrap(),
        )
        .unwrap()
    };
    let plain = Attention::default();
    let with_sinks = Attention {
        sinks: Some(sinks.clone()),
        ..Attention::default()
    };
    let whole = compute(&with_sinks, 0, keys);
    let parts = [
        compute(&plain, 0, cut),
        compute(&plain, cut, cut),
        compute(&plain, cut, keys),
    ];
    let merged = merge(&parts, Some(&sinks)).unwrap();
    for (x, y) in merged.output.data().iter().zip(whole.output.data()) {
        assert!((x - y).abs() < 1e-5);
    }
    for (x, y) in merged.lse.data().iter().zip(whole.lse.data()) {
        assert!((x - y).abs() < 1e-5);
    }
    assert!(merged.empty_rows.is_empty());
    assert!(matches!(
        merge::<f32>(&[], None),
        Err(Error::ListLength { .. })
    ));
}

/// Weights and scores of any part: those of the definition, the bits of the whole.
#[test]
fn weights_and_scores_on_demand() {
    let mut random = Random(41);
    for _ in 0..150 {
        let call = Call::random(&mut random);
        let typed = call.typed::<f64>([Layout::Plain; 3]);
        let (attention, inputs) = (call.attention(&typed), typed.inputs());
        let all = Part::all(&inputs);
        let mut within = |size: usize| {
            let from = random.below(size + 1);
            from..from + random.below(size - from + 1)
        };
        let [b, h, i, j] = inputs.scores_shape();
        let some = Part {
            batch: within(b),
            heads: within(h),
            queries: within(i),
            keys: within(j),
        };
        let options = Options::default();
        let all_weights = weights(&attention, &inputs, &options, &all).unwrap();
        let all_scores = scores(&attention, &inputs, &options, &all).unwrap();
        let some_weights = weights(&attention, &inputs, &options, &some).unwrap();
        let some_scores = scores(&attention, &inputs, &options, &some).unwrap();
        definition::for_each_row(&attention, &inputs, |b, h, i, row| {
            for j in 0..row.weights.len() {
                let found = all_weights.at(&[b, h, i, j]);
                let expected = row.weights[j];
                assert!(
                    (found - expected).abs() < 1e-9,
                    "{found} {expected} {}",
                    call.describe()
                );
                let (found, expected) = (all_scores.at(&[b, h, i, j]), row.masked[j]);
                let near = found == expected || (found - expected).abs() < 1e-9;
                let lowest = expected < -3e38 && (found - expected).abs() <= 1e-9 * expected.abs();
                assert!(near || lowest, "{found} {expected} {}", call.describe());
            }
        })
        .unwrap();
        for b in some.batch.clone() {
            for h in some.heads.clone() {
                for i in some.queries.clone() {
                    for j in some.keys.clone() {
                        let at = [
                            b - some.batch.start,
                            h - some.heads.start,
                            i - some.queries.start,
                            j - some.keys.start,
                        ];
                        for (part, whole) in
                            [(&some_weights, &all_weights), (&some_scores, &all_scores)]
                        {
                            assert!(same_bits(&[part.at(&at)], &[whole.at(&[b, h, i, j])]));
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn a_cache_refuses_what_does_not_fit() {
    let mut cache = Cache::<f32>::new(1, 2, 3, 2);
    let (k, v) = ([0.0; 12], [0.0; 8]);
    let k = View::new(&k, &[1, 2, 2, 3]).unwrap();
    let v = View::new(&v, &[1, 2, 2, 2]).unwrap();
    assert!(matches!(cache.append(v, k), Err(Error::Mismatch { .. })));
    assert!(cache.is_empty());
    cache.append(k, v).unwrap();
    cache.reserve(100);
    assert_eq!((cache.len(), cache.capacity()), (2, 100));
    cache.truncate(1);
    assert_eq!(cache.k().unwrap().shape(), [1, 2, 1, 3]);
}

#[test]
fn an_instruction_set_that_is_not_there_is_an_error() {
    for isa in Isa::ALL {
        let options = Options {
            isa: Some(isa),
            ..Options::default()
        };
        assert_eq!(options.isa().is_ok(), isa.available());
    }
}

/// A bias of any dtype gives the bits of the same numbers in the own dtype.
#[test]
fn biases_of_any_dtype() {
    fn check<T: Float>(x: &[T], bias: [AnyView<'_>; 2]) {
        let view = View::new(x, &[4, 2]).unwrap();
        let inputs = Inputs::new(view, view, view).unwrap();
        let [a, b] = bias.map(|bias| {
            let attention = Attention {
                bias: Some(Bias(bias)),
                ..Attention::default()
            };
            forward(&attention, &inputs).unwrap()
        });
        assert!(same_bits(a.output.data(), b.output.data()));
    }
    let single: Vec<f32> = (0..16).map(|n| n as f32 / 8.0 - 1.0).collect();
    let double: Vec<f64> = single.iter().map(|&x| f64::from(x)).collect();
    let views = [
        View::new(&single, &[4, 4]).unwrap().into(),
        View::new(&double, &[4, 4]).unwrap().into(),
    ];
    check(&single[..8], views);
    check(&double[..8], views);
}
