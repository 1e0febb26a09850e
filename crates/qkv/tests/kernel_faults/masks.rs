//! Which keys count: causality, masks, windows, documents, biases.

use super::support::{Array, Layout, Random, isas, options, same_bits};
use super::{assert_near, causal, column, everywhere, matrix, zeros};
use qkv::{
    AnyView, Attention, Bias, Causal, Documents, EmptyRows, Error, Float, Inputs, KeyLengths, Mask,
    Part, Scale, View, Window, definition, forward, forward_with, weights,
};

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
/// Masks, biases and edges that drop nothing, or others than the key in question.
fn that_keep_the_middle() -> Vec<Attention<'static>> {
    let plain = Attention::default();
    let keep = View::new(&[true, true, true, false, true, true], &[2, 3]).unwrap();
    let bias = View::new(&[0.0_f32, 0.0, 0.0, f32::NEG_INFINITY, 0.0, 1.0], &[2, 3]).unwrap();
    vec![
        Attention {
            masks: vec![Mask::keep(keep)],
            ..plain.clone()
        },
        Attention {
            bias: Some(Bias(bias.into())),
            ..plain.clone()
        },
        Attention {
            masks: vec![Mask::keep(keep)],
            bias: Some(Bias(bias.into())),
            ..plain.clone()
        },
        Attention {
            window: Some(Window {
                back: Some(1),
                forward: None,
            }),
            ..plain.clone()
        },
        causal(Causal::BottomRight),
        plain,
    ]
}

/// A kept key whose score is −∞, of infinite keys or by overflow, weighs 0, and 0·NaN is NaN: beside
/// masks and edges as without them.
#[test]
fn b012_nan_in_a_kept_key_of_infinite_score_stays() {
    let beyond = 2e38; // its square is beyond the range of f32
    for attention in &that_keep_the_middle() {
        for (q, k) in [
            ([1.0, 1.0], [0.0, f64::NEG_INFINITY, 0.0]),
            ([beyond, beyond], [0.0, -beyond, 0.0]),
        ] {
            for bad in [f64::NAN, f64::INFINITY] {
                let (q, k, v) = (column(q), column(k), column([1.0, bad, 3.0]));
                let inputs = Inputs::new(q.view(), k.view(), v.view()).unwrap();
                let expected = definition::forward(attention, &inputs).unwrap();
                assert!(expected.output.data()[0].is_nan());
                for found in everywhere(attention, &q, &k, &v) {
                    assert_near(found.output.data(), expected.output.data());
                    assert_near(found.lse.data(), expected.lse.data());
                }
            }
        }
    }
}

/// Of a row with NaN the kept keys weigh NaN, and the dropped ones 0.
#[test]
fn b012_dropped_keys_of_a_nan_row_weigh_0() {
    for q in [[f64::NAN, 1.0], [f64::INFINITY, f64::NAN]] {
        for attention in &that_keep_the_middle() {
            let (q, k) = (column(q), column([-1.0, -2.0, -3.0]));
            let inputs = Inputs::new(q.view(), k.view(), k.view()).unwrap();
            let mut expected = Vec::new();
            definition::for_each_row(attention, &inputs, |_, _, _, row| {
                expected.extend(row.weights);
            })
            .unwrap();
            for isa in isas() {
                let all = Part::all(&inputs);
                let found = weights(attention, &inputs, &options(isa, 1), &all).unwrap();
                assert_near(found.data(), &expected);
            }
        }
    }
}

#[test]
fn b012_nan_scattered_over_dropped_keys() {
    let mut random = Random::new(21);
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
    for isa in isas() {
        let options = options(isa, 1);
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
