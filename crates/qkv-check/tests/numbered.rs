//! Faults that people met, by number, as far as they are about rounding.

use half::bf16;
use qkv::{Attention, Block, Causal, DType, StepName, Tensor};
use qkv_check::{Claim, Problem, Verdict, check};

/// Causal attention of one head, the last query first in nobody's order: step by step, each query with
/// the keys that there are by then, every number stored by `round`.
fn step_by_step(q: &[f64], k: &[f64], v: &[f64], d: usize, round: fn(f32) -> f32) -> Vec<f64> {
    let low = |x: &[f64]| -> Vec<f32> { x.iter().map(|x| round(*x as f32)).collect() };
    let (q, k, v) = (low(q), low(k), low(v));
    let mut out = Vec::new();
    for (i, q) in q.chunks(d).enumerate() {
        let dot = |k: &[f32]| q.iter().zip(k).map(|(q, k)| q * k).sum::<f32>();
        let scores = k
            .chunks(d)
            .take(i + 1)
            .map(|k| round(round(dot(k)) / (d as f32).sqrt()));
        let scores: Vec<f32> = scores.collect();
        let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let exps: Vec<f32> = scores.iter().map(|s| round((s - max).exp())).collect();
        let sum: f32 = exps.iter().sum();
        for c in 0..d {
            let weighed = exps
                .iter()
                .zip(v.chunks(d))
                .map(|(e, v)| round(e / sum) * v[c]);
            out.push(f64::from(round(weighed.sum())));
        }
    }
    out
}

#[test]
fn b096_step_by_step_in_half_precision_is_rounding() {
    const LEN: usize = 9;
    const D: usize = 8;
    let numbers = |seed: f64| -> Vec<f64> {
        let each = (0..LEN * D).map(|n| (seed + 1.7 * n as f64).sin() + (seed * n as f64).cos());
        each.map(|x| f64::from(bf16::from_f64(x))).collect()
    };
    let [q, k, v] = [0.3, 1.1, 2.9].map(numbers);
    let tensor = |x: &[f64]| Tensor::new(&[1, 1, LEN, D], x.to_vec()).expect("the shape");
    let attention = Attention {
        causal: Some(Causal::Square),
        ..Attention::default()
    };
    let block = Block {
        attention,
        ..Block::default()
    };
    let (tq, tk, tv) = (tensor(&q), tensor(&k), tensor(&v));
    let problem = Problem::Given {
        block: &block,
        q: &tq,
        k: &tk,
        v: &tv,
        past: None,
    };
    let single = |x: f32| x;
    let half = |x: f32| bf16::from_f32(x).to_f32();
    for (round, verdict, rounding) in [
        (single as fn(f32) -> f32, Verdict::Equal, None),
        (half, Verdict::Rounding, Some(DType::Bf16)),
    ] {
        let theirs = tensor(&step_by_step(&q, &k, &v, D, round));
        let claim = Claim::new(StepName::Output, theirs, DType::F32);
        let report = check(&problem, &[claim]).expect("a report");
        assert_eq!(
            (report.verdict, report.rounding, report.causes.len()),
            (verdict, rounding, 0),
            "{report:?}"
        );
    }
}
