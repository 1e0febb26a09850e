//! Masks, padding, empty rows.

use crate::causal::causal;
use crate::common::*;
use half::f16;
use qkv::{
    AnyView, Attention, Bias, Causal, EmptyRows, Inputs, KeyLengths, Mask, Result, Scale, View,
    definition,
};

fn keep<'a>(mask: &'a [bool], shape: &[usize]) -> Result<Attention<'a>> {
    Ok(Attention {
        masks: vec![Mask::keep(View::new(mask, shape)?)],
        ..Attention::default()
    })
}

/// pytorch/pytorch PR 170415, rasbt/LLMs-from-scratch#1061, pytorch#21518
#[test]
fn b010_true_keeps_or_true_drops() -> Result<()> {
    let qk = tensor(&[3, 2], &[1.0, 0.0, 0.0, 1.0, 1.0, 1.0]);
    let v = tensor(&[3, 1], &[1.0, 10.0, 100.0]);
    let lower = [true, false, false, true, true, false, true, true, true];
    let upper = lower.map(|kept| !kept);
    let run = |mask: Mask<'_>| {
        let attention = Attention {
            masks: vec![mask],
            ..Attention::default()
        };
        attend(&attention, &qk, &qk, &v)
    };
    let right = [1.0, 7.027854, 53.07979];
    let kept = run(Mask::keep(View::new(&lower, &[3, 3])?))?;
    assert_near(kept.output.data(), &right, 5e-6, &"keep");
    let dropped = run(Mask::drop(View::new(&upper, &[3, 3])?))?;
    assert_results_same(&dropped, &kept, &"drop");

    // The fault: the same array with the other meaning.
    let inverted = run(Mask::drop(View::new(&lower, &[3, 3])?))?;
    assert_near(
        inverted.output.data(),
        &[70.278539, 100.0, 0.0],
        5e-7,
        &"inverted",
    );
    assert_eq!(inverted.empty_rows, [[0, 0, 2]]);
    Ok(())
}

/// pytorch/pytorch#101967
#[test]
fn b012_nothing_leaks_from_a_dropped_key() -> Result<()> {
    let clean = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0];
    let q = tensor(&[2, 4], &clean);
    let (mask, bias) = ([true, false], [0.0, f64::NEG_INFINITY]);
    let by_bias = Attention {
        bias: Some(Bias(AnyView::from(View::new(&bias, &[1, 2])?))),
        ..Attention::default()
    };
    let by_length = Attention {
        lengths: Some(KeyLengths(vec![1])),
        ..Attention::default()
    };
    for attention in [keep(&mask, &[1, 2])?, by_bias, by_length] {
        for poison in [0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let mut data = clean;
            data[4] = poison;
            let poisoned = tensor(&[2, 4], &data);
            let output = attend(&attention, &q, &poisoned, &poisoned)?;
            let expected = [0.0, 1.0, 2.0, 3.0, 0.0, 1.0, 2.0, 3.0];
            assert_eq!(output.output.data(), expected, "{poison}");
            assert!(output.lse.data().iter().all(|lse| lse.is_finite()));
            let weights = weights_and_output(&attention, &q, &poisoned)?;
            assert_eq!(weights, [1.0, 0.0, 1.0, 0.0]);
        }
    }
    Ok(())
}

fn weights_and_output(
    attention: &Attention<'_>,
    q: &qkv::Tensor<f64>,
    kv: &qkv::Tensor<f64>,
) -> Result<Vec<f64>> {
    let inputs = Inputs::new(q.view()?, kv.view()?, kv.view()?)?;
    let steps = qkv::steps(attention, &inputs)?;
    Ok(steps.get(qkv::StepName::Weights).unwrap().data().to_vec())
}

/// hyunwoongko/transformer#10
#[test]
fn b014_a_tiny_number_is_no_mask() -> Result<()> {
    let scores = tensor(&[1, 3], &[2.0, 1.0, 3.0]);
    let plain = Scale::Factor(1.0);
    let mask = [true, true, false];
    let right = Attention {
        scale: plain,
        ..keep(&mask, &[3])?
    };
    let right = weights_of(&scores, &right)?;
    assert_near(right.data(), &[0.731059, 0.268941, 0.0], 5e-7, &"masked");
    assert_eq!(right.data()[2], 0.0);

    // The fault: the third score replaced by −1e-12.
    let filled = Attention {
        scale: plain,
        ..Attention::default()
    };
    let filled = weights_of(&tensor(&[1, 3], &[2.0, 1.0, -1e-12]), &filled)?;
    assert_near(
        filled.data(),
        &[0.665241, 0.244728, 0.090031],
        5e-7,
        &"filled",
    );

    // Added as a bias it stays arithmetic: only −∞ drops.
    let bias = [0.0, 0.0, -1e-12];
    let biased = Attention {
        scale: plain,
        bias: Some(Bias(AnyView::from(View::new(&bias, &[3])?))),
        ..Attention::default()
    };
    let biased = weights_of(&scores, &biased)?;
    assert_near(
        biased.data(),
        &[0.244728, 0.090031, 0.665241],
        5e-7,
        &"biased",
    );
    Ok(())
}

/// huggingface/transformers PR 27114, NVIDIA-NeMo/Automodel PR 2658
#[test]
fn b017_two_masks_of_the_lowest_number() -> Result<()> {
    let real = [false, false, false, true, true];
    let (q, k) = (
        tensor(&[5, 1], &[0.3, -0.4, 1.1, 0.7, -0.9]),
        tensor(&[5, 1], &[1.3, 0.2, -0.5, -1.4, 0.6]),
    );
    let v = tensor(&[5, 1], &[1.0, 2.0, 4.0, 8.0, 16.0]);

    let boolean = Attention {
        causal: Some(Causal::Square),
        ..keep(&real, &[5])?
    };
    let boolean = attend(&boolean, &q, &k, &v)?;
    assert_eq!(boolean.output.data()[..4], [0.0, 0.0, 0.0, 8.0]);
    assert_eq!(boolean.empty_rows, [[0, 0, 0], [0, 0, 1], [0, 0, 2]]);
    assert!(boolean.output.data()[4] > 8.0 && boolean.output.data()[4] < 16.0);

    // Which keys the two masks fill once, and which twice.
    let fills = |i: usize, j: usize| usize::from(j > i) + usize::from(!real[j]);
    let sums = |once: f64, twice: f64| -> Vec<f64> {
        places([1, 1, 5, 5])
            .map(|[_, _, i, j]| [0.0, once, twice][fills(i, j)])
            .collect()
    };
    let low = f64::from(f32::MIN);
    let half = f64::from(f16::MIN);
    let cases = [
        (low, 2.0 * low, "f32 added in f64"),
        (low, f64::from(f32::MIN + f32::MIN), "f32 overflows to -inf"),
        (half, 2.0 * half, "f16 added in f64"),
        (half, f64::NEG_INFINITY, "f16 overflows to -inf"),
    ];
    for (once, twice, what) in cases {
        let sum = sums(once, twice);
        let attention = Attention {
            bias: Some(Bias(AnyView::from(View::new(&sum, &[5, 5])?))),
            ..Attention::default()
        };
        let output = attend(&attention, &q, &k, &v)?;
        assert!(output.output.data().iter().all(|x| x.is_finite()), "{what}");
        assert!(output.empty_rows.is_empty(), "{what}");
        for i in 0..3 {
            // No key without a fill: the softmax runs over those filled once. Beside 3.4e38 the
            // scores themselves vanish; beside 65504 they do not.
            let kept: Vec<usize> = (0..5).filter(|&j| fills(i, j) == 1).collect();
            let score = |j: usize| {
                let s = q.data()[i] * k.data()[j];
                if once == low { 0.0 } else { s }
            };
            let sum: f64 = kept.iter().map(|&j| score(j).exp()).sum();
            let mean = kept
                .iter()
                .map(|&j| score(j).exp() * v.data()[j])
                .sum::<f64>()
                / sum;
            // A score added to 65504 is rounded to 65504·U.
            let bound = 16.0 * (4.0 * half.abs() * U + 20.0 * U);
            assert_near(&[output.output.data()[i]], &[mean], bound, &(what, i));
        }
        // Rows with a real key do not see any of it.
        for i in 3..5 {
            let (found, expected) = (output.output.data()[i], boolean.output.data()[i]);
            assert_near(&[found], &[expected], 0.0, &(what, i));
        }
    }
    Ok(())
}

/// pytorch/pytorch#103749, rten PR 1321, mlx PR 2608, burn PR 4697 and more
#[test]
fn b018_a_row_with_every_key_dropped() -> Result<()> {
    let mask = [true, true, true, false, false, false, true, true, true];
    let attention = keep(&mask, &[3, 3])?;
    let v = [1.0, 2.0, 6.0];
    let third = 1.0 / 3.0;
    let weights = weights_of(&tensor(&[3, 3], &[0.0; 9]), &attention)?;
    let expected = [third, third, third, 0.0, 0.0, 0.0, third, third, third];
    assert_eq!(weights.data(), expected);

    let zeros = tensor(&[3, 1], &[0.0; 3]);
    let output = attend(&attention, &zeros, &zeros, &tensor(&[3, 1], &v))?;
    assert_near(output.output.data(), &[3.0, 0.0, 3.0], 16.0 * U, &"output");
    assert_eq!(output.output.data()[1].to_bits(), 0.0_f64.to_bits());
    assert_eq!(output.empty_rows, [[0, 0, 1]]);
    assert_eq!(output.lse.data()[1], f64::NEG_INFINITY);

    let strict = Attention {
        empty_rows: EmptyRows::Error,
        ..attention
    };
    let message = uniform(3, &v, &strict).unwrap_err().to_string();
    assert!(
        message.contains("1 of 3 rows") && message.contains("[0, 0, 1]"),
        "{message}"
    );

    // The two faults: a lowest finite number instead gives the mean (here by hand as a bias).
    let low = [0.0, 0.0, 0.0, -1e9, -1e9, -1e9, 0.0, 0.0, 0.0];
    let filled = Attention {
        bias: Some(Bias(AnyView::from(View::new(&low, &[3, 3])?))),
        ..Attention::default()
    };
    assert_near(&uniform(3, &v, &filled)?, &[3.0; 3], 16.0 * U, &"mean");
    Ok(())
}

/// huggingface/candle#1798, IndicBERT#20, swift-embeddings PR 20
#[test]
fn b058_padding_keys_of_an_encoder() -> Result<()> {
    let v = [1.0, 3.0, 0.0, 0.0];
    let mask = [true, true, false, false];
    assert_eq!(uniform(1, &v, &keep(&mask, &[4])?)?, [2.0]);
    let length = Attention {
        lengths: Some(KeyLengths(vec![2])),
        ..Attention::default()
    };
    assert_eq!(uniform(1, &v, &length)?, [2.0]);
    assert_eq!(uniform(1, &v, &Attention::default())?, [1.0]); // the fault
    Ok(())
}

/// onnx/onnx#7865, flash-attention PR 1025
#[test]
fn b064_the_cap_comes_before_the_mask() -> Result<()> {
    let scores = tensor(&[1, 2], &[0.0, 5.0]);
    let mask = [true, false];
    let attention = Attention {
        scale: Scale::Factor(1.0),
        softcap: Some(1.0),
        ..keep(&mask, &[2])?
    };
    assert_eq!(weights_of(&scores, &attention)?.data(), [1.0, 0.0]);
    // The fault: −∞ capped is −1, which a bias of −1 on the key expresses.
    let after = tensor(&[1, 2], &[0.0, -1.0]);
    let after = weights_of(
        &after,
        &Attention {
            scale: Scale::Factor(1.0),
            ..Attention::default()
        },
    )?;
    assert_near(after.data(), &[0.731059, 0.268941], 5e-7, &"cap after mask");
    // A bias is added after the cap: it is not capped itself.
    let bias = [0.0, -40.0];
    let biased = Attention {
        scale: Scale::Factor(1.0),
        softcap: Some(1.0),
        bias: Some(Bias(AnyView::from(View::new(&bias, &[2])?))),
        ..Attention::default()
    };
    let weights = weights_of(&scores, &biased)?;
    let expected = (5.0_f64.tanh() - 40.0).exp();
    assert_near(
        &[weights.data()[1] / expected],
        &[1.0],
        64.0 * 40.0 * U,
        &"bias",
    );
    Ok(())
}

/// A mask beside `causal`, whatever its rank; and the causal rule itself as a mask.
#[test]
fn masks_combine_by_and() -> Result<()> {
    let lower = [true, false, false, true, true, false, true, true, true];
    let columns = [true, false, true];
    let mut attention = keep(&lower, &[3, 3])?;
    attention.masks.push(Mask::drop(View::new(&columns, &[3])?));
    let both = uniform(3, &[1.0, 2.0, 6.0], &attention)?;
    assert_eq!(both, [0.0, 2.0, 2.0]);
    let by_causal = Attention {
        masks: vec![Mask::drop(View::new(&columns, &[3])?)],
        ..causal(Causal::Square)
    };
    assert_eq!(uniform(3, &[1.0, 2.0, 6.0], &by_causal)?, both);
    let inputs = [0.0; 3];
    let view = View::new(&inputs, &[3, 1])?;
    let found = definition::forward(&attention, &Inputs::new(view, view, view)?)?;
    assert_eq!(found.empty_rows, [[0, 0, 0]]);
    Ok(())
}
