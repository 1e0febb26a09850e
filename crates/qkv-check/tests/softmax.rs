//! The softmax of a row that is right: its weights where the row has NaN, and what rounding may make of
//! its lse where a sink takes nearly all of the weight.

use qkv::{Attention, Block, Causal, DType, Sinks, StepName, Tensor};
use qkv_check::{Claim, Problem, Verdict, check};

const QUERIES: usize = 20;
const KEYS: usize = 5;
const WIDTH: usize = 129;

fn tensor(shape: &[usize], data: &[f64]) -> Tensor<f64> {
    Tensor::new(shape, data.to_vec()).expect("the shape")
}

/// Numbers of single precision that look random.
fn numbers(count: usize, seed: f64, size: f64) -> Vec<f64> {
    let each = (0..count).map(|n| (seed + 1.7 * n as f64).sin() + (seed * n as f64).cos());
    each.map(|x| f64::from((size * x) as f32)).collect()
}

/// ln Σ exp(q·k/√d) of each query, in single precision, one term after the other.
fn lse(q: &[f64], k: &[f64]) -> Vec<f64> {
    let scores = |q: &[f64]| -> Vec<f32> {
        let dots = k.chunks(WIDTH).map(|k| {
            let terms = q.iter().zip(k).map(|(q, k)| *q as f32 * *k as f32);
            terms.sum::<f32>() / (WIDTH as f32).sqrt()
        });
        dots.collect()
    };
    let of_row = |q| {
        let scores = scores(q);
        let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f32 = scores.iter().map(|s| (s - max).exp()).sum();
        f64::from(max + sum.ln())
    };
    q.chunks(WIDTH).map(of_row).collect()
}

#[test]
fn what_is_allowed_of_lse_does_not_depend_on_the_sink() {
    let (q, k) = (
        numbers(QUERIES * WIDTH, 0.3, 10.0),
        numbers(KEYS * WIDTH, 1.1, 1.0),
    );
    let (tq, tk) = (
        tensor(&[1, 1, QUERIES, WIDTH], &q),
        tensor(&[1, 1, KEYS, WIDTH], &k),
    );
    let theirs = lse(&q, &k);
    let checked = |sink: Option<f64>, moved: f64| {
        let attention = Attention {
            sinks: sink.map(|sink| Sinks(vec![sink])),
            ..Attention::default()
        };
        let block = Block {
            attention,
            ..Block::default()
        };
        let problem = Problem::Given {
            block: &block,
            q: &tq,
            k: &tk,
            v: &tk,
            past: None,
        };
        let values: Vec<f64> = theirs.iter().map(|x| x + moved).collect();
        let claim = Claim::new(StepName::Lse, tensor(&[1, 1, QUERIES], &values), DType::F32);
        check(&problem, &[claim]).expect("a report")
    };
    let sinks = [-60.0, 0.0, 60.0, 600.0, 6000.0];
    for sink in sinks {
        let report = checked(Some(sink), 0.0);
        assert_eq!(report.verdict, Verdict::Equal, "{sink}: {report:?}");
    }
    // Neither more is allowed nor less, right or wrong.
    let mut verdicts = Vec::new();
    for power in [-14, -12, -10, -7, 0] {
        let moved = 2f64.powi(power);
        let without = checked(None, moved).verdict;
        verdicts.push(without);
        for sink in sinks {
            assert_eq!(
                checked(Some(sink), moved).verdict,
                without,
                "{sink} {moved}"
            );
        }
    }
    let both = verdicts.contains(&Verdict::Equal) && verdicts.contains(&Verdict::Different);
    assert!(both, "{verdicts:?}");
}

#[test]
fn dropped_keys_weigh_nothing_beside_nan() {
    let attention = Attention {
        causal: Some(Causal::Square),
        ..Attention::default()
    };
    let block = Block {
        attention,
        ..Block::default()
    };
    let (q, k, v) = (
        tensor(&[1, 1, 2, 1], &[f64::NAN, 1.0]),
        tensor(&[1, 1, 2, 1], &[0.0, 0.0]),
        tensor(&[1, 1, 2, 1], &[1.0, 2.0]),
    );
    let problem = Problem::Given {
        block: &block,
        q: &q,
        k: &k,
        v: &v,
        past: None,
    };
    let verdict = |first: [f64; 2]| {
        let values = tensor(&[1, 1, 2, 2], &[first[0], first[1], 0.5, 0.5]);
        let claim = Claim::new(StepName::Weights, values, DType::F64);
        check(&problem, &[claim]).expect("a report").verdict
    };
    assert_eq!(verdict([f64::NAN, 0.0]), Verdict::Equal);
    for wrong in [[f64::NAN; 2], [0.0, f64::NAN], [0.0, 0.0], [1.0, 0.0]] {
        assert_ne!(verdict(wrong), Verdict::Equal, "{wrong:?}");
    }
}
