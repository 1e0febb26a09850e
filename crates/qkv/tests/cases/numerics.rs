//! Overflow, NaN, blocks that are wholly masked, phantom keys.

use crate::common::*;
use half::f16;
use qkv::{
    AnyView, Attention, Bias, Dropout, Inputs, Mask, Result, Scale, Sinks, StepName, View,
    definition, steps,
};

/// Dao-AILab/flash-attention#2082
#[test]
fn b021_a_masked_block_and_very_low_scores() -> Result<()> {
    let keep: Vec<bool> = (0..256).map(|j| j < 128).collect();
    let v: Vec<f64> = (0..256).map(f64::from).collect();
    let reversed: Vec<f64> = v.iter().rev().copied().collect();
    let keep_last: Vec<bool> = keep.iter().rev().copied().collect();
    for low in [-200.0, -3.4e38, -1e300] {
        let k = tensor(&[256, 1], &[low; 256]);
        let q = tensor(&[1, 1], &[1.0]);
        for (keep, v) in [(&keep, &v), (&keep_last, &reversed)] {
            let attention = Attention {
                masks: vec![Mask::keep(View::new(keep, &[256])?)],
                ..Attention::default()
            };
            let found = attend(&attention, &q, &k, &tensor(&[256, 1], v))?;
            // weights are 1/128 exactly, and so are all products and sums
            assert_eq!(found.output.data(), [63.5], "{low}");
            assert_near(found.lse.data(), &[low + 128_f64.ln()], 300.0 * U, &low);
        }
    }
    Ok(())
}

/// pytorch/pytorch#141128
#[test]
fn b022_nan_in_a_query_stays_nan() -> Result<()> {
    let mut rng = Rng(22);
    let (mut q, k, v) = (rng.reals(3 * 2), rng.reals(4 * 2), rng.reals(4 * 3));
    let run = |q: &[f64], attention: &Attention<'_>| {
        let q = tensor(&[3, 2], q);
        attend(attention, &q, &tensor(&[4, 2], &k), &tensor(&[4, 3], &v))
    };
    let mask = [true, true, false, true];
    let masked = Attention {
        masks: vec![Mask::keep(View::new(&mask, &[4])?)],
        ..Attention::default()
    };
    let clean = [run(&q, &Attention::default())?, run(&q, &masked)?];
    q[2] = f64::NAN;
    for (attention, clean) in [Attention::default(), masked].iter().zip(clean) {
        let poisoned = run(&q, attention)?;
        assert!(poisoned.output.row(&[0, 0, 1]).iter().all(|x| x.is_nan()));
        assert!(poisoned.lse.at(&[0, 0, 1]).is_nan());
        assert!(poisoned.empty_rows.is_empty());
        for i in [0, 2] {
            let at = [0, 0, i];
            assert_bits(poisoned.output.row(&at), clean.output.row(&at), &i);
        }
    }
    // A key that a row drops has weight 0 in it even so.
    let q = tensor(&[3, 2], &q);
    let (k, v) = (tensor(&[4, 2], &k), tensor(&[4, 3], &v));
    let inputs = Inputs::new(q.view()?, k.view()?, v.view()?)?;
    let mask = [true, true, false, true];
    let attention = Attention {
        masks: vec![Mask::keep(View::new(&mask, &[4])?)],
        dropout: Some(Dropout { p: 0.5, seed: 1 }),
        ..Attention::default()
    };
    let all = steps(&attention, &inputs)?;
    for name in [StepName::Exp, StepName::Weights, StepName::Dropped] {
        let row = all.get(name).unwrap().row(&[0, 0, 1]);
        assert_eq!(row[2], 0.0, "{name}");
        assert!(row[0].is_nan(), "{name}");
    }
    // NaN in one kept key shows in every step of each row that keeps it, the largest score too.
    let mut one_nan = k.data().to_vec();
    one_nan[0] = f64::NAN;
    let one_nan = tensor(&[4, 2], &one_nan);
    let inputs = Inputs::new(q.view()?, one_nan.view()?, v.view()?)?;
    let all = steps(&Attention::default(), &inputs)?;
    for name in [
        StepName::Max,
        StepName::Sum,
        StepName::Lse,
        StepName::Output,
    ] {
        let numbers = all.get(name).unwrap().data();
        assert!(numbers.iter().all(|x| x.is_nan()), "{name}");
    }
    // Inf in a kept value goes to its column only.
    let mut v = v.data().to_vec();
    v[1] = f64::INFINITY;
    let found = attend(
        &Attention::default(),
        &tensor(&[1, 2], &[0.1, 0.2]),
        &k,
        &tensor(&[4, 3], &v),
    )?;
    let finite: Vec<bool> = found.output.data().iter().map(|x| x.is_finite()).collect();
    assert_eq!(finite, [true, false, true]);
    Ok(())
}

/// intel/sycl-tla PR 489, flashinfer PR 5090, 66RING/tiny-flash-attention#12
#[test]
fn b024_no_phantom_keys_in_the_tail() -> Result<()> {
    let q = tensor(&[1, 1], &[1.0]);
    let run = |keys: &[f64], v: &[f64]| {
        let (k, v) = (tensor(&[keys.len(), 1], keys), tensor(&[v.len(), 1], v));
        attend(&Attention::default(), &q, &k, &v)
    };
    let found = run(&[-1.0; 65], &[1.0; 65])?;
    assert_near(found.output.data(), &[1.0], 140.0 * U, &"65 keys");
    // The fault: 63 keys and values of zeros fill the second block up.
    let mut phantom = ([0.0; 128], [0.0; 128]);
    phantom.0[..65].fill(-1.0);
    phantom.1[..65].fill(1.0);
    let faulty = run(&phantom.0, &phantom.1)?;
    assert_near(faulty.output.data(), &[0.27513], 5e-6, &"phantom keys");
    Ok(())
}

/// ultralytics PR 24990, XGLM transformers PR 18057, pytorch PR 60940
#[test]
fn b025_a_dot_product_beyond_half_precision() -> Result<()> {
    let q = [f16::from_f64(256.0); 128];
    let mut k = [f16::from_f64(256.0); 256];
    k[128..].fill(f16::from_f64(0.999 * 256.0));
    let v = [f16::ONE, f16::NEG_ONE];
    let inputs = Inputs::new(
        View::new(&q, &[1, 128])?,
        View::new(&k, &[2, 128])?,
        View::new(&v, &[2, 1])?,
    )?;
    let all = steps(&Attention::default(), &inputs)?;
    assert_eq!(all.get(StepName::Scores).unwrap().data()[0], 8388608.0);
    let scaled = all.get(StepName::Scaled).unwrap().data();
    assert_near(&scaled[..1], &[741455.2], 5e-4, &"scaled");
    assert!(scaled[0] > 65504.0);
    let weights = all.get(StepName::Weights).unwrap().data();
    assert_eq!(weights[0], 1.0);
    assert!(weights[1] < 1e-300);
    assert_eq!(all.get(StepName::Output).unwrap().data(), [1.0]);
    Ok(())
}

/// TransformerLensOrg/TransformerLens#693, #223
#[test]
fn b094_a_constant_on_all_scores_is_invisible() -> Result<()> {
    let plain = Attention {
        scale: Scale::Factor(1.0),
        ..Attention::default()
    };
    let right = [0.090031, 0.244728, 0.665241];
    for scores in [[1.0, 2.0, 3.0], [0.0, 1.0, 2.0], [-1001.0, -1000.0, -999.0]] {
        let weights = weights_of(&tensor(&[1, 3], &scores), &plain)?;
        assert_near(weights.data(), &right, 5e-7, &scores);
    }
    Ok(())
}

/// PriorLabs/TabPFN#800
#[test]
fn b097_the_same_bits_alone_and_in_a_batch() -> Result<()> {
    let mut rng = Rng(97);
    let (lq, lk, d) = (2, 5, 3);
    let (q, k, v) = (
        rng.reals(64 * lq * d),
        rng.reals(64 * lk * d),
        rng.reals(64 * lk * d),
    );
    let run = |batch: usize| {
        let inputs = Inputs::new(
            View::new(&q[..batch * lq * d], &[batch, 1, lq, d])?,
            View::new(&k[..batch * lk * d], &[batch, 1, lk, d])?,
            View::new(&v[..batch * lk * d], &[batch, 1, lk, d])?,
        )?;
        definition::forward(&Attention::default(), &inputs)
    };
    let alone = run(1)?;
    for batch in [2, 3, 7, 64] {
        let found = run(batch)?;
        assert_bits(&found.output.data()[..lq * d], alone.output.data(), &batch);
        assert_bits(&found.lse.data()[..lq], alone.lse.data(), &batch);
    }
    Ok(())
}

/// Scores of any size: the softmax subtracts the largest, in both directions.
#[test]
fn extreme_scores_are_exact() -> Result<()> {
    let plain = Attention {
        scale: Scale::Factor(1.0),
        ..Attention::default()
    };
    for (scores, expected) in [
        ([3e38, 3e38], [0.5, 0.5]),
        ([3e38, -3e38], [1.0, 0.0]),
        ([-3e38, -3e38], [0.5, 0.5]),
        ([-3.4e38, 0.0], [0.0, 1.0]),
        ([f64::MAX, f64::MIN], [1.0, 0.0]),
        ([f64::MIN, f64::MIN], [0.5, 0.5]),
    ] {
        let weights = weights_of(&tensor(&[1, 2], &scores), &plain)?;
        assert_eq!(weights.data(), expected, "{scores:?}");
    }
    // −3.4e38 twice in a bias, once in f32 already beyond its range
    for twice in [-6.8e38, f64::from(-3.4e38_f32) * 2.0] {
        let bias = [twice, twice, twice];
        let attention = Attention {
            bias: Some(Bias(AnyView::from(View::new(&bias, &[3])?))),
            ..Attention::default()
        };
        let mean = uniform(1, &[1.0, 2.0, 6.0], &attention)?;
        assert_near(&mean, &[3.0], 16.0 * U, &twice);
    }
    Ok(())
}

/// A sink far above every score takes all the weight; far below it takes none.
#[test]
fn extreme_sinks_are_exact() -> Result<()> {
    let (q, k, v) = ([1.0, -0.5], [-2.0, -3.0], [4.0, 5.0]);
    let inputs = Inputs::new(
        View::new(&q, &[2, 1])?,
        View::new(&k, &[2, 1])?,
        View::new(&v, &[2, 1])?,
    )?;
    let run = |sink: f64, low: f64| {
        let bias = [low];
        let attention = Attention {
            sinks: Some(Sinks(vec![sink])),
            bias: Some(Bias(AnyView::from(View::new(&bias, &[1])?))),
            ..Attention::default()
        };
        let output = definition::forward(&attention, &inputs)?;
        let gradients =
            definition::backward(&attention, &inputs, View::new(&[1.0, 1.0], &[2, 1])?)?;
        Ok::<_, qkv::Error>((output, gradients))
    };
    for (sink, low) in [
        (800.0, 0.0),
        (1e300, 0.0),
        (0.0, -3.4e38),
        (f64::MAX, -1e308),
    ] {
        let (output, gradients) = run(sink, low)?;
        assert_eq!(output.output.data(), [0.0, 0.0], "{sink}");
        assert!(output.lse.data().iter().all(|lse| lse.is_finite()));
        assert_eq!(gradients.sinks.unwrap().data(), [0.0], "{sink}");
        assert!(gradients.q.data().iter().all(|x| *x == 0.0), "{sink}");
    }
    let without = definition::forward(&Attention::default(), &inputs)?;
    for sink in [-1e300, f64::NEG_INFINITY] {
        let (output, gradients) = run(sink, 0.0)?;
        assert_results_same(&output, &without, &sink);
        assert_eq!(gradients.sinks.unwrap().data(), [0.0], "{sink}");
    }
    Ok(())
}

/// The nearest value, ties to even: also where `f32` in between would round twice.
#[test]
fn numbers_are_rounded_once() {
    use half::bf16;
    use qkv::Element;
    let tiny = 2.0_f64.powi(-40);
    let half_ulp = 2.0_f64.powi(-11); // of f16 just above 1
    let above = f16::from_f32(1.0 + 2.0_f32.powi(-10));
    assert_eq!(<f16 as Element>::from_f64(1.0 + half_ulp), f16::ONE); // a tie, to even
    assert_eq!(<f16 as Element>::from_f64(1.0 + half_ulp + tiny), above);
    assert_eq!(<f16 as Element>::from_f64(1.0 + half_ulp - tiny), f16::ONE);
    assert_eq!(<f16 as Element>::from_f64(-1.0 - half_ulp - tiny), -above);
    assert_eq!(<f16 as Element>::from_f64(65520.0), f16::INFINITY);
    assert_eq!(<f16 as Element>::from_f64(65520.0 - tiny * 256.0), f16::MAX);
    assert_eq!(<f16 as Element>::from_f64(1e300), f16::INFINITY);
    assert_eq!(<f16 as Element>::from_f64(2.0_f64.powi(-25)), f16::ZERO);
    let smallest = f16::from_bits(1);
    assert_eq!(
        <f16 as Element>::from_f64(2.0_f64.powi(-25) * (1.0 + tiny)),
        smallest
    );
    assert!(<f16 as Element>::from_f64(f64::NAN).is_nan());
    let minus_zero = <f16 as Element>::from_f64(-0.0);
    assert_eq!(minus_zero.to_bits(), f16::NEG_ZERO.to_bits());

    let half_ulp = 2.0_f64.powi(-8); // of bf16 just above 1
    let above = bf16::from_f32(1.0 + 2.0_f32.powi(-7));
    assert_eq!(<bf16 as Element>::from_f64(1.0 + half_ulp), bf16::ONE);
    assert_eq!(<bf16 as Element>::from_f64(1.0 + half_ulp + tiny), above);
    assert_eq!(
        <bf16 as Element>::from_f64(1.0 + half_ulp - tiny),
        bf16::ONE
    );
    assert_eq!(<bf16 as Element>::from_f64(f64::MIN), bf16::NEG_INFINITY);

    // Every f16 and bf16 comes back from f64 as it was.
    for bits in 0..=u16::MAX {
        let (half, brain) = (f16::from_bits(bits), bf16::from_bits(bits));
        if !half.is_nan() {
            assert_eq!(
                <f16 as Element>::from_f64(Element::to_f64(half)).to_bits(),
                bits
            );
        }
        if !brain.is_nan() {
            assert_eq!(
                <bf16 as Element>::from_f64(Element::to_f64(brain)).to_bits(),
                bits
            );
        }
    }
    // Random numbers: no neighbour is nearer.
    let mut rng = Rng(2);
    for _ in 0..20_000 {
        let x = rng.real() * 2.0_f64.powi(rng.below(30) as i32 - 20);
        let found = <f16 as Element>::from_f64(x);
        let away = (Element::to_f64(found) - x).abs();
        for bits in [found.to_bits() + 1, found.to_bits().wrapping_sub(1)] {
            let other = Element::to_f64(f16::from_bits(bits));
            assert!(other.is_nan() || away <= (other - x).abs(), "{x}");
        }
    }
}
