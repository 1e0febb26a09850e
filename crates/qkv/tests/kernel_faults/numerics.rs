//! Numbers at the ends of the range, sinks, sums over several chunks, partial results.

use super::support::{Array, Call, Expected, Layout, Random, isas, options, times};
use super::{assert_near, column, everywhere, in_double, matrix};
use qkv::{
    Attention, EmptyRows, Error, Inputs, Mask, Part, Scale, Sinks, View, definition, forward,
    merge, scores, weights,
};

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
    for found in in_double(&attention, &q, &column([1e-30, 0.0, -1.0]), &v) {
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

/// Merged parts equal the whole within the bound.
#[test]
fn merged_parts_equal_the_whole() {
    let mut random = Random::new(31);
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

/// Weights and scores are those of the definition.
#[test]
fn weights_and_scores_on_demand() {
    let mut random = Random::new(41);
    let mut done = 0;
    while done < times(50) {
        let mut call = Call::random(&mut random);
        call.empty_rows = EmptyRows::Zero;
        if !call.is_finite() {
            continue;
        }
        done += 1;
        let typed = call.typed::<f64>([Layout::Plain; 3]);
        let (attention, inputs) = (call.attention(&typed), typed.inputs());
        let all = Part::all(&inputs);
        let expected = Expected::of(&call);
        for isa in isas() {
            let options = options(isa, 1);
            let weights = weights(&attention, &inputs, &options, &all).unwrap();
            let scores = scores(&attention, &inputs, &options, &all).unwrap();
            let mut n = 0;
            definition::for_each_row(&attention, &inputs, |b, h, i, row| {
                let most = expected.share::<f64>(&call, n);
                n += 1;
                let found = weights.row(&[b, h, i]).iter().zip(&row.weights);
                for (x, y) in found {
                    assert!((x - y).abs() <= most, "weight {x} {y} {}", call.describe());
                }
                for (x, y) in scores.row(&[b, h, i]).iter().zip(&row.masked) {
                    // Where the bound is cut off at 2, it says nothing about scores.
                    let near = x == y || (x - y).abs() <= most || most == 2.0 && x.is_finite();
                    assert!(near, "score {x} {y} {}", call.describe());
                }
            })
            .unwrap();
        }
    }
}
