//! Numbered faults that people met, with the right and the wrong values.
#![allow(missing_docs, clippy::unwrap_used)]

use qkv::{
    Alibi, Attention, Bias, Causal, Dropout, Inputs, Mask, Scale, Sinks, StepName, Steps, View,
    Window, steps,
};
use qkv_check::{Mistake, Recomputed, WrongScale, contrast, recompute};

const MISSING: Mistake = Mistake::Scale(WrongScale::Missing);

fn run(attention: &Attention<'_>, q: &[f64], k: &[f64], v: &[f64], shapes: [&[usize]; 3]) -> Steps {
    let inputs = Inputs::new(
        View::new(q, shapes[0]).unwrap(),
        View::new(k, shapes[1]).unwrap(),
        View::new(v, shapes[2]).unwrap(),
    );
    steps(attention, &inputs.unwrap()).unwrap()
}

fn under(mistake: Mistake, attention: &Attention<'_>, right: &Steps) -> Recomputed {
    recompute(mistake, attention, right).unwrap()
}

#[track_caller]
fn close(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        let tolerance = 6e-7 * expected.abs().max(1.0); // six digits are printed
        assert!((found - expected).abs() <= tolerance, "{found} {expected}");
    }
}

#[test]
fn b010_mask_polarity() {
    let keep = [true, false, false, true, true, false, true, true, true];
    let attention = Attention {
        masks: vec![Mask::keep(View::new(&keep, &[3, 3]).unwrap())],
        ..Attention::default()
    };
    let q = [1.0, 0.0, 0.0, 1.0, 1.0, 1.0];
    let right = run(
        &attention,
        &q,
        &q,
        &[1.0, 10.0, 100.0],
        [&[3, 2], &[3, 2], &[3, 1]],
    );
    let output = right.get(StepName::Output).unwrap();
    close(output.data(), &[1.0, 7.027854, 53.07979]);
    let wrong = under(Mistake::MaskPolarity, &attention, &right);
    close(wrong.output.data(), &[70.278539, 100.0, 0.0]);
    assert_eq!(wrong.weights.row(&[0, 0, 2]), [0.0; 3]);
    close(&[wrong.max_abs_error], &[100.0 - 7.027854]);
    // The causal mask is the same triangle, and inverted it is the same.
    let causal = Attention {
        causal: Some(Causal::Square),
        ..Attention::default()
    };
    let right = run(
        &causal,
        &q,
        &q,
        &[1.0, 10.0, 100.0],
        [&[3, 2], &[3, 2], &[3, 1]],
    );
    let same = under(Mistake::MaskPolarity, &causal, &right);
    assert_eq!(same.output, wrong.output);
}

#[test]
fn b035_softmax_over_queries() {
    // q = the scores, k = 1, scale 1.
    let attention = Attention {
        scale: Scale::Factor(1.0),
        ..Attention::default()
    };
    let identity = [1.0, 0.0, 0.0, 1.0];
    let right = run(
        &attention,
        &[1.0, 2.0, 3.0, 5.0],
        &identity,
        &[2.0, 4.0],
        [&[2, 2], &[2, 2], &[2, 1]],
    );
    let weights = right.get(StepName::Weights).unwrap();
    close(weights.data(), &[0.268941, 0.731059, 0.119203, 0.880797]);
    let wrong = under(Mistake::SoftmaxOverQueries, &attention, &right);
    close(
        wrong.weights.data(),
        &[0.119203, 0.047426, 0.880797, 0.952574],
    );
    close(wrong.output.data(), &[0.428109, 5.571891]);
    let joint = under(Mistake::SoftmaxJoint, &attention, &right);
    // e¹, e², e³, e⁵ over their sum 178.6060.
    close(
        joint.weights.data(),
        &[0.015219, 0.041371, 0.112457, 0.830953],
    );
    close(&[joint.weights.data().iter().sum()], &[1.0]);
    assert!(wrong.differs() && joint.differs());
    assert!(!under(MISSING, &attention, &right).differs());
    assert!(!under(Mistake::MaskPolarity, &attention, &right).differs());
}

#[test]
fn b038_scaled_by_the_model_width() {
    // 4 heads of 16 columns; q·k is 4 and 0 in each.
    let (mut q, mut k) = (vec![0.0; 4 * 16], vec![0.0; 4 * 2 * 16]);
    for h in 0..4 {
        q[h * 16] = 4.0;
        k[h * 32] = 1.0;
    }
    let attention = Attention::default();
    let right = run(
        &attention,
        &q,
        &k,
        &[1.0; 8],
        [&[4, 1, 16], &[4, 2, 16], &[4, 2, 1]],
    );
    let weights = right.get(StepName::Weights).unwrap();
    close(weights.row(&[0, 3, 0]), &[0.731059, 0.268941]);
    let model_width = Mistake::Scale(WrongScale::ModelWidth(64));
    assert_eq!(model_width.factor(&attention, 16), 0.125);
    let wrong = under(model_width, &attention, &right);
    close(wrong.weights.row(&[0, 3, 0]), &[0.622459, 0.377541]);
}

#[test]
fn b040_scale_missing() {
    let (mut q, mut k) = (vec![0.0; 64], vec![0.0; 128]);
    (q[5], k[5]) = (2.0, 4.0);
    let attention = Attention::default();
    let right = run(
        &attention,
        &q,
        &k,
        &[1.0, 0.0],
        [&[1, 64], &[2, 64], &[2, 1]],
    );
    close(
        right.get(StepName::Weights).unwrap().data(),
        &[0.731059, 0.268941],
    );
    let wrong = under(MISSING, &attention, &right);
    close(wrong.weights.data(), &[0.999665, 0.000335]);
    close(&[wrong.max_weight_error], &[0.999665 - 0.731059]);
}

/// With a mistake that is none, every option gives the run's own bits.
#[test]
fn without_a_mistake_it_is_the_run() {
    let number = |n: usize| ((n * 37 + 11) % 23) as f64 / 7.0 - 1.5;
    let numbers = |n: usize, from: usize| (from..from + n).map(number).collect::<Vec<f64>>();
    let bias = [0.5, f64::NEG_INFINITY, -1.0, 0.25, 0.75];
    let drop = [false, false, true, false, false];
    let attention = Attention {
        scale: Scale::Factor(1.0),
        softcap: Some(2.0),
        bias: Some(Bias(View::new(&bias, &[5]).unwrap().into())),
        alibi: Some(Alibi {
            slopes: vec![0.5, 0.25, 0.125, 0.0625],
        }),
        masks: vec![Mask::drop(View::new(&drop, &[5]).unwrap())],
        causal: Some(Causal::BottomRight),
        window: Some(Window {
            back: Some(3),
            forward: None,
        }),
        sinks: Some(Sinks(vec![0.1, -0.3, 0.7, 0.0])),
        dropout: Some(Dropout { p: 0.25, seed: 3 }),
        ..Attention::default()
    };
    let (q, k, v) = (numbers(48, 0), numbers(40, 100), numbers(60, 200));
    let shapes: [&[usize]; 3] = [&[2, 4, 3, 2], &[2, 2, 5, 2], &[2, 2, 5, 3]];
    let right = run(&attention, &q, &k, &v, shapes);
    let same = under(MISSING, &attention, &right);
    assert_eq!(same.weights, *right.get(StepName::Weights).unwrap());
    assert_eq!(same.output, *right.get(StepName::Output).unwrap());
    assert_eq!((same.max_abs_error, same.differs()), (0.0, false));
}

#[test]
fn ids_and_sums() {
    let q = [1.0, -1.0, 0.5, 2.0, 0.0, 1.0];
    let k = [0.5, 1.0, -1.0, 2.0];
    let attention = Attention {
        sinks: Some(Sinks(vec![0.5])),
        ..Attention::default()
    };
    let right = run(&attention, &q, &k, &[1.0, 2.0], [&[3, 2], &[2, 2], &[2, 1]]);
    let all = contrast(&attention, &right, 8).unwrap();
    let ids: Vec<&str> = all.iter().map(|wrong| wrong.mistake.id()).collect();
    assert_eq!(
        ids,
        [
            "softmax-over-queries",
            "softmax-joint",
            "scale",
            "scale",
            "mask-polarity"
        ]
    );
    // A sink has no column of keys to join; of the whole matrix it takes its share.
    for j in 0..2 {
        let column: f64 = (0..3).map(|i| all[0].weights.at(&[0, 0, i, j])).sum();
        close(&[column], &[1.0]);
    }
    let logits = all[1].logits.data();
    let exps: f64 = logits.iter().map(|s| s.exp()).sum();
    let share = exps / (exps + 3.0 * 0.5_f64.exp());
    close(&[all[1].weights.data().iter().sum()], &[share]);
    assert_eq!(recompute(MISSING, &attention, &Steps::default()), None);
}
