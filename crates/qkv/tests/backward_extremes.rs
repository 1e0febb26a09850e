//! The backward pass on adversarial input: right, or a clear error.
#![allow(clippy::unwrap_used)]

mod support;

use qkv::definition::{self, Gradients};
use qkv::{
    Attention, Bias, Causal, DType, Error, GradientBound, GradientSizes, GradientsMut, Inputs,
    KeyLengths, Options, Saved, Scale, Sinks, Store, Tensor, View, ViewMut, backward,
    backward_into, forward_with, gradient_bound,
};
use support::{isas, options};

fn numbers(count: usize, of: impl Fn(usize) -> f32) -> Vec<f32> {
    (0..count).map(of).collect()
}

/// Some numbers of both signs, below 1.
fn usual(n: usize) -> f32 {
    ((n * 37 + 11) % 64) as f32 / 32.0 - 1.0
}

/// Gradients on every instruction set, and the definition's.
fn both(
    attention: &Attention<'_>,
    inputs: &Inputs<'_, f32>,
    grad: View<'_, f32>,
) -> (Vec<Gradients<f32>>, Gradients) {
    let all = isas().map(|isa| {
        let options = options(isa, 2);
        let output = forward_with(attention, inputs, &options).unwrap();
        backward(
            attention,
            inputs,
            Saved::new(&output).unwrap(),
            grad,
            &options,
        )
        .unwrap()
    });
    (
        all.collect(),
        definition::backward(attention, inputs, grad).unwrap(),
    )
}

/// What rounding may do where no number is above 1: sizes are rows, keys, d_k and d_v.
fn bound([rows, keys, d_k, d_v]: [usize; 4], scale: f64) -> GradientBound {
    gradient_bound(
        DType::F32,
        &GradientSizes {
            head_dim: d_k,
            value_dim: d_v,
            keys,
            rows,
            weight: rows as f64,
            bias_terms: rows * keys,
            bias_weight: rows as f64,
            sink_terms: rows,
            largest_score: scale * d_k as f64 + 1.0,
            scale,
            softcap: None,
            dropout: 0.0,
            q: 1.0,
            k: 1.0,
            grad: 1.0,
            product: d_v as f64,
        },
    )
}

fn assert_close(found: &Tensor<f32>, expected: &Tensor<f64>, most: f64, what: &str) {
    assert_eq!(found.shape(), expected.shape(), "{what}");
    for (at, (x, y)) in found.data().iter().zip(expected.data()).enumerate() {
        let error = (f64::from(*x) - y).abs();
        assert!(error <= most, "{what}[{at}]: {x} for {y}");
    }
}

/// Scores near ±3e38: each row has one weight of 1, and no gradient comes through softmax.
#[test]
fn scores_as_large_as_the_format_has() {
    let (queries, keys) = (5, 300);
    let q = numbers(queries * 2, |n| if n % 2 == 0 { 1.8e19 } else { usual(n) });
    let k = numbers(keys * 2, |n| match n % 2 {
        0 if n / 2 == 77 => 1.8e19,
        0 => -1.8e19,
        _ => usual(n),
    });
    let v = numbers(keys * 3, usual);
    let g = numbers(queries * 3, usual);
    let inputs = Inputs::new(
        View::new(&q, &[queries, 2]).unwrap(),
        View::new(&k, &[keys, 2]).unwrap(),
        View::new(&v, &[keys, 3]).unwrap(),
    )
    .unwrap();
    for scale in [1.0, -1.0] {
        let attention = Attention {
            scale: Scale::Factor(scale),
            ..Attention::default()
        };
        let grad = View::new(&g, &[queries, 3]).unwrap();
        let (all, expected) = both(&attention, &inputs, grad);
        for found in all {
            for (at, x) in found.q.data().iter().chain(found.k.data()).enumerate() {
                assert!(x.is_finite() || scale < 0.0, "{at}: {x}");
            }
            if scale > 0.0 {
                // Weights are 1 and 0 exactly; five terms of at most 1.
                assert_close(&found.v, &expected.v, 5.0 * 5.0 * 6e-8, "dv");
            }
        }
    }
}

/// −∞ in a bias over whole blocks, rows and everything: dropped, as by definition.
#[test]
fn blocks_of_minus_infinity() {
    let (queries, keys) = (70, 600);
    let q = numbers(queries * 4, usual);
    let k = numbers(keys * 4, |n| usual(n + 5));
    let v = numbers(keys * 3, |n| usual(n + 9));
    let g = numbers(queries * 3, |n| usual(n + 2));
    let inputs = Inputs::new(
        View::new(&q, &[queries, 4]).unwrap(),
        View::new(&k, &[keys, 4]).unwrap(),
        View::new(&v, &[keys, 3]).unwrap(),
    )
    .unwrap();
    let grad = View::new(&g, &[queries, 3]).unwrap();
    for dropped in [0..256, 256..512, 0..600, 3..599] {
        let bias = numbers(queries * keys, |n| {
            if dropped.contains(&(n % keys)) || n / keys == 9 {
                f32::NEG_INFINITY
            } else {
                usual(n)
            }
        });
        let attention = Attention {
            bias: Some(Bias(View::new(&bias, &[queries, keys]).unwrap().into())),
            ..Attention::default()
        };
        let (all, expected) = both(&attention, &inputs, grad);
        let most = bound([queries, keys, 4, 3], 0.5);
        for found in all {
            assert_close(&found.q, &expected.q, most.q, "dq");
            assert_close(&found.k, &expected.k, most.k, "dk");
            assert_close(&found.v, &expected.v, most.v, "dv");
            let (found, expected) = (found.bias.unwrap(), expected.bias.as_ref().unwrap());
            assert_close(&found, expected, most.bias, "dbias");
            for (x, b) in found.data().iter().zip(&bias) {
                assert!(*x == 0.0 || b.is_finite());
            }
        }
    }
}

/// A finite bias never drops: where it is the lowest number for all keys of a row, scores are all the
/// same, and the weights are even. (Their sum is lost in lse, which is the lowest number too.)
#[test]
fn rows_of_the_lowest_number_are_even() {
    let (queries, keys) = (130, 300);
    let q = numbers(queries * 4, usual);
    let v = numbers(keys * 4, |n| usual(n + 9));
    let g = numbers(queries * 4, |n| usual(n + 2));
    let of_q = View::new(&q, &[queries, 4]).unwrap();
    let of_v = View::new(&v, &[keys, 4]).unwrap();
    let inputs = Inputs::new(of_q, of_v, of_v).unwrap();
    let grad = View::new(&g, &[queries, 4]).unwrap();
    let most = bound([queries, keys, 4, 4], 0.5);
    for lowest in [f32::MIN, -1e30] {
        // A sink takes all, or as much as a key.
        for sinks in [None, Some(-1.0), Some(f64::from(lowest))] {
            let bias = numbers(queries, |i| if i % 3 == 1 { lowest } else { 0.0 });
            let attention = Attention {
                bias: Some(Bias(View::new(&bias, &[queries, 1]).unwrap().into())),
                sinks: sinks.map(|sink| Sinks(vec![sink])),
                ..Attention::default()
            };
            let (all, expected) = both(&attention, &inputs, grad);
            for found in all {
                assert_close(&found.v, &expected.v, most.v, "dv");
                assert_close(&found.k, &expected.k, most.k, "dk");
                assert_close(&found.q, &expected.q, most.q, "dq");
            }
        }
    }
}

/// Subnormal inputs and gradients give finite gradients near the definition's.
#[test]
fn subnormal_numbers() {
    let tiny = |n: usize| usual(n) * 1e-39;
    let (queries, keys) = (7, 40);
    let q = numbers(queries * 3, tiny);
    let k = numbers(keys * 3, tiny);
    let v = numbers(keys * 2, tiny);
    let g = numbers(queries * 2, tiny);
    let inputs = Inputs::new(
        View::new(&q, &[queries, 3]).unwrap(),
        View::new(&k, &[keys, 3]).unwrap(),
        View::new(&v, &[keys, 2]).unwrap(),
    )
    .unwrap();
    let (all, expected) = both(
        &Attention::default(),
        &inputs,
        View::new(&g, &[queries, 2]).unwrap(),
    );
    for found in all {
        // Products vanish; only the sums of gradients over rows are left, each number of which may
        // lose what is below the smallest normal number.
        assert_close(&found.q, &expected.q, f64::from(f32::MIN_POSITIVE), "dq");
        assert_close(&found.k, &expected.k, f64::from(f32::MIN_POSITIVE), "dk");
        assert_close(
            &found.v,
            &expected.v,
            8.0 * f64::from(f32::MIN_POSITIVE),
            "dv",
        );
    }
}

/// Many queries of several heads are not one long chain, whose rounding errors would add up: with one
/// key every weight is 1, and its dV is the sum of the gradients, in chains of 96 at most, of which
/// there are 11 a head.
#[test]
fn sums_over_many_queries_are_of_short_chains() {
    let (heads, queries) = (4, 1024);
    let width = 7;
    let column = |c: usize| [0.1, 0.3, 0.7, 1.1, 1.3, 1.9, 0.9][c];
    let q = numbers(heads * queries, usual);
    let g = numbers(heads * queries * width, |n| column(n % width));
    let v = numbers(width, usual);
    let inputs = Inputs::new(
        View::new(&q, &[1, heads, queries, 1]).unwrap(),
        View::new(&[0.5], &[1, 1, 1, 1]).unwrap(),
        View::new(&v, &[1, 1, 1, width]).unwrap(),
    )
    .unwrap();
    let grad = View::new(&g, &[1, heads, queries, width]).unwrap();
    let (all, _) = both(&Attention::default(), &inputs, grad);
    let longest = (96 + 11 * heads) as f64 * 2f64.powi(-24);
    for found in all {
        for (c, x) in found.v.data().iter().enumerate() {
            let sum = (heads * queries) as f64 * f64::from(column(c));
            let error = (f64::from(*x) - sum).abs();
            assert!(error <= longest * sum, "{x} for {sum}");
        }
    }
}

/// No queries, no keys, no heads, no columns, and one of each.
#[test]
fn sizes_of_nothing_and_one() {
    for [b, h, l_q, l_k, d_k, d_v] in [
        [1, 1, 0, 3, 2, 2],
        [1, 1, 3, 0, 2, 2],
        [0, 2, 3, 3, 2, 2],
        [2, 0, 3, 3, 2, 2],
        [1, 1, 3, 3, 0, 2],
        [1, 1, 3, 3, 2, 0],
        [0, 0, 0, 0, 0, 0],
        [1, 1, 1, 1, 1, 1],
    ] {
        let q = numbers(b * h * l_q * d_k, usual);
        let k = numbers(b * h * l_k * d_k, usual);
        let v = numbers(b * h * l_k * d_v, usual);
        let g = numbers(b * h * l_q * d_v, usual);
        let inputs = Inputs::new(
            View::new(&q, &[b, h, l_q, d_k]).unwrap(),
            View::new(&k, &[b, h, l_k, d_k]).unwrap(),
            View::new(&v, &[b, h, l_k, d_v]).unwrap(),
        );
        let Ok(inputs) = inputs else { continue };
        let bias = [0.5_f32];
        let attention = Attention {
            scale: Scale::Factor(0.5),
            bias: Some(Bias(View::new(&bias, &[1, 1]).unwrap().into())),
            sinks: Some(Sinks(vec![0.25; h])),
            ..Attention::default()
        };
        let grad = View::new(&g, &[b, h, l_q, d_v]).unwrap();
        let (all, expected) = both(&attention, &inputs, grad);
        for mut found in all {
            let what = format!("{:?}", [b, h, l_q, l_k, d_k, d_v]);
            let most = bound([l_q, l_k, d_k, d_v], 0.5);
            assert_close(&found.q, &expected.q, most.q, &what);
            assert_close(&found.k, &expected.k, most.k, &what);
            assert_close(&found.v, &expected.v, most.v, &what);
            assert_close(
                found.bias.as_ref().unwrap(),
                expected.bias.as_ref().unwrap(),
                most.bias,
                &what,
            );
            // What is replaced is so even where there is nothing to compute.
            for tensor in [&mut found.q, &mut found.k, &mut found.v] {
                tensor.data_mut().fill(f32::NAN);
            }
            found.bias.as_mut().unwrap().data_mut().fill(f32::NAN);
            found.sinks.as_mut().unwrap().data_mut().fill(f32::NAN);
            let output = forward_with(&attention, &inputs, &Options::default()).unwrap();
            let saved = Saved::new(&output).unwrap();
            let to = GradientsMut::new(&mut found, Store::Replace).unwrap();
            backward_into(&attention, &inputs, saved, grad, &Options::default(), to).unwrap();
            let sinks = found.sinks.as_ref().unwrap();
            let tensors = [
                &found.q,
                &found.k,
                &found.v,
                found.bias.as_ref().unwrap(),
                sinks,
            ];
            let mut all = tensors.iter().flat_map(|tensor| tensor.data());
            assert!(all.all(|x| x.is_finite()), "{what}");
        }
    }
}

/// Keys beyond every length, and queries before every key, have gradients of zero.
#[test]
fn what_nobody_sees_has_no_gradient() {
    let (queries, keys) = (300, 700);
    let q = numbers(2 * queries * 4, usual);
    let k = numbers(2 * keys * 4, usual);
    let g = numbers(2 * queries * 4, |n| usual(n + 1));
    let of_q = View::new(&q, &[2, 1, queries, 4]).unwrap();
    let of_k = View::new(&k, &[2, 1, keys, 4]).unwrap();
    let inputs = Inputs::new(of_q, of_k, of_k).unwrap();
    let grad = View::new(&g, &[2, 1, queries, 4]).unwrap();
    let attention = Attention {
        causal: Some(Causal::Offset(-200)),
        lengths: Some(KeyLengths(vec![40, 0])),
        ..Attention::default()
    };
    for isa in isas() {
        let options = options(isa, 1);
        let output = forward_with(&attention, &inputs, &options).unwrap();
        let saved = Saved::new(&output).unwrap();
        let mut found = backward(&attention, &inputs, saved, grad, &options).unwrap();
        for tensor in [&mut found.q, &mut found.k, &mut found.v] {
            tensor.data_mut().fill(f32::NAN);
        }
        let to = GradientsMut::new(&mut found, Store::Replace).unwrap();
        backward_into(&attention, &inputs, saved, grad, &options, to).unwrap();
        assert!(found.q.data()[..200 * 4].iter().all(|&x| x == 0.0));
        assert!(
            found.q.data()[201 * 4..queries * 4]
                .iter()
                .any(|&x| x != 0.0)
        );
        assert!(found.q.data()[queries * 4..].iter().all(|&x| x == 0.0));
        for tensor in [&found.k, &found.v] {
            assert!(tensor.data()[40 * 4..].iter().all(|&x| x == 0.0));
            assert!(tensor.data()[..40 * 4].iter().any(|&x| x != 0.0));
        }
    }
}

/// One element for all, and rows far apart in memory.
#[test]
fn strides_of_nothing_and_huge_ones() {
    let one = [0.5_f32];
    let shape = [2, 3, 50, 8];
    let same = View::strided(&one, 0, shape, [0; 4]).unwrap();
    let whole = numbers(shape.iter().product(), |_| 0.5);
    let plain = View::new(&whole, &shape).unwrap();
    let far = numbers(1 << 20, |_| 0.5);
    let apart = View::strided(&far, 0, shape, [400_000, 130_000, 2_000, 16]).unwrap();
    let attention = Attention::default();
    let of = |view| {
        let inputs = Inputs::new(view, view, view).unwrap();
        let options = Options::default();
        let output = forward_with(&attention, &inputs, &options).unwrap();
        backward(
            &attention,
            &inputs,
            Saved::new(&output).unwrap(),
            view,
            &options,
        )
        .unwrap()
    };
    let expected = of(plain);
    assert_eq!(of(same), expected);
    assert_eq!(of(apart), expected);
}

/// What is refused, and that nothing is written then.
#[test]
fn refused_arguments() {
    let q = numbers(6, usual);
    let view = View::new(&q, &[3, 2]).unwrap();
    let inputs = Inputs::new(view, view, view).unwrap();
    let (attention, options) = (Attention::default(), Options::default());
    let output = forward_with(&attention, &inputs, &options).unwrap();
    let saved = Saved::new(&output).unwrap();
    let refused = |saved: Saved<'_, f32>,
                   grad: View<'_, f32>,
                   change: &dyn Fn(&mut Gradients<f32>),
                   words: &[&str]| {
        let mut gradients =
            backward(&attention, &inputs, saved_of(&output), view, &options).unwrap();
        for tensor in [&mut gradients.q, &mut gradients.k, &mut gradients.v] {
            tensor.data_mut().fill(7.0);
        }
        change(&mut gradients);
        let to = GradientsMut::new(&mut gradients, Store::Add).unwrap();
        let error = backward_into(&attention, &inputs, saved, grad, &options, to).unwrap_err();
        let said = error.to_string();
        for word in words {
            assert!(said.contains(word), "{word}: {said}");
        }
        for tensor in [&gradients.q, &gradients.k, &gradients.v] {
            assert!(tensor.data().iter().all(|&x| x == 7.0));
        }
    };
    let short = View::new(&q[..4], &[2, 2]).unwrap();
    let nothing = |_: &mut Gradients<f32>| {};
    refused(
        saved,
        short,
        &nothing,
        &["grad_output", "[1, 1, 2, 2]", "[1, 1, 3, 2]"],
    );
    let other = Saved {
        output: short,
        ..saved
    };
    refused(other, view, &nothing, &["the saved output", "[1, 1, 2, 2]"]);
    let other = Saved {
        lse: &saved.lse[..2],
        ..saved
    };
    refused(other, view, &nothing, &["the saved lse", "2", "3"]);
    let of = |count: usize| Tensor::new(&[1, 1, count / 2, 2], vec![7.0_f32; count]).unwrap();
    refused(
        saved,
        view,
        &|to| to.q = of(4),
        &["the gradient of q", "[1, 1, 2, 2]"],
    );
    refused(
        saved,
        view,
        &|to| to.k = of(8),
        &["the gradient of k", "[1, 1, 4, 2]"],
    );
    refused(
        saved,
        view,
        &|to| to.v = of(8),
        &["the gradient of v", "[1, 1, 4, 2]"],
    );
    refused(
        saved,
        view,
        &|to| to.bias = Some(of(2)),
        &["bias", "leave the gradient out"],
    );
    refused(
        saved,
        view,
        &|to| to.sinks = Some(of(2)),
        &["sinks", "leave the gradient out"],
    );
    // Elements that are each other's cannot be written to.
    let mut data = [0.0_f32; 6];
    let error = ViewMut::strided(&mut data, 0, [1, 1, 3, 2], [6, 6, 0, 1]).unwrap_err();
    assert!(matches!(error, Error::Overlap { .. }));
}

fn saved_of(output: &qkv::Output<f32>) -> Saved<'_, f32> {
    Saved::new(output).unwrap()
}

/// A kept key whose score is −∞ weighs 0, and what of it is NaN makes the same gradients NaN as by
/// definition, beside a causal mask or bias as without.
#[test]
fn nan_in_a_kept_key_of_infinite_score_stays() {
    let (q, k, v) = (
        [1.0_f32, 1.0],
        [0.5, f32::NEG_INFINITY, 0.25],
        [1.0, f32::NAN, 3.0],
    );
    let inputs = Inputs::new(
        View::new(&q, &[2, 1]).unwrap(),
        View::new(&k, &[3, 1]).unwrap(),
        View::new(&v, &[3, 1]).unwrap(),
    )
    .unwrap();
    let plain = Attention::default();
    let bias = [0.0_f32, 0.0, 1.0];
    for attention in [
        Attention {
            causal: Some(Causal::BottomRight),
            ..plain.clone()
        },
        Attention {
            bias: Some(Bias(View::new(&bias, &[1, 3]).unwrap().into())),
            ..plain.clone()
        },
        plain,
    ] {
        let (all, expected) = both(
            &attention,
            &inputs,
            View::new(&[1.0, 2.0], &[2, 1]).unwrap(),
        );
        for found in all {
            for (found, expected) in [
                (&found.q, &expected.q),
                (&found.k, &expected.k),
                (&found.v, &expected.v),
            ] {
                let nan = |x: f64| x.is_nan();
                let found = found.data().iter().map(|&x| nan(f64::from(x)));
                let expected = expected.data().iter().map(|&x| nan(x));
                assert!(found.eq(expected), "{attention:?}");
            }
        }
    }
}
