//! Sizes of 0: nothing to compare, or the numbers that there are; never the end of the process.

use qkv::{
    Attention, Block, Causal, DType, GradientName, Inputs, Layer, Linear, Scale, StepName, Tensor,
    Window,
};
use qkv_check::gradients::{self, GradientClaim};
use qkv_check::presets::{Masks, PRESETS, check_against};
use qkv_check::{Claim, Problem, Verdict, check, dumps, tell_apart};

/// Batch, heads, queries, keys, width of values.
type Sizes = [usize; 5];

/// Every choice of sizes that are 0, the others being different from each other.
fn sizes() -> impl Iterator<Item = Sizes> {
    let all: Sizes = [2, 3, 4, 5, 6];
    (1..1 << all.len()).map(move |zero| {
        let mut sizes = all;
        for (axis, size) in sizes.iter_mut().enumerate() {
            if zero >> axis & 1 == 1 {
                *size = 0;
            }
        }
        sizes
    })
}

fn tensor(shape: &[usize]) -> Tensor<f64> {
    let count: usize = shape.iter().product();
    let values = (0..count).map(|n| (1.3 * n as f64).sin()).collect();
    Tensor::new(shape, values).expect("the shape")
}

fn moved(tensor: &Tensor<f64>) -> Tensor<f64> {
    // lse of no key is −∞.
    let other = |x: &f64| if x.is_finite() { x + 1.0 } else { 0.0 };
    let values = tensor.data().iter().map(other).collect();
    Tensor::new(tensor.shape(), values).expect("the shape")
}

/// Blocks whose options go by places, and one without any.
fn blocks() -> [Block<'static>; 3] {
    let with = |causal, window| Block {
        attention: Attention {
            causal,
            window,
            scale: Scale::InverseSqrt,
            ..Attention::default()
        },
        ..Block::default()
    };
    let window = Window {
        back: Some(1),
        forward: Some(0),
    };
    [
        with(None, None),
        with(Some(Causal::BottomRight), None),
        with(None, Some(window)),
    ]
}

/// What every claim of a step has to come to: agreement if there are numbers, and none without.
fn judged(problem: &Problem<'_>, step: StepName, right: &Tensor<f64>) {
    let shape = right.shape();
    let of = |values: Tensor<f64>| [Claim::new(step, values, DType::F64)];
    let report = check(problem, &of(right.clone())).expect("a report");
    let lint: Vec<&str> = report.lint.iter().map(|lint| lint.id).collect();
    let nothing = lint.contains(&"nothing-to-compare");
    assert!(report.causes.is_empty(), "{step} {shape:?}: {report:?}");
    if right.data().is_empty() {
        let undecided = report.verdict == Verdict::Undecided && nothing;
        assert!(undecided, "{step} {shape:?}: {report:?}");
        return;
    }
    let equal = report.verdict == Verdict::Equal && !nothing;
    assert!(equal, "{step} {shape:?}: {report:?}");
    let claims = of(moved(right));
    let report = check(problem, &claims).expect("a report");
    assert_eq!(report.verdict, Verdict::Different, "{step} {shape:?}");
    tell_apart(problem, &claims, &report);
}

#[test]
fn of_queries_keys_and_values() {
    for [b, h, i, j, dv] in sizes() {
        let (q, k, v) = (
            tensor(&[b, h, i, 4]),
            tensor(&[b, h, j, 4]),
            tensor(&[b, h, j, dv]),
        );
        for block in &blocks() {
            let problem = Problem::Given {
                block,
                q: &q,
                k: &k,
                v: &v,
                past: None,
            };
            let views = [&q, &k, &v].map(|one| one.view().expect("a view"));
            let [vq, vk, vv] = views;
            let inputs = Inputs::new(vq, vk, vv).expect("they fit");
            let steps = block.steps(&inputs).expect("steps");
            for step in [
                StepName::Scores,
                StepName::Scaled,
                StepName::Weights,
                StepName::Output,
                StepName::Lse,
            ] {
                judged(&problem, step, steps.get(step).expect("the step"));
            }
            let output = steps.get(StepName::Output).expect("the output");
            let claims = [Claim::new(StepName::Output, output.clone(), DType::F64)];
            for preset in PRESETS.iter().take(3) {
                check_against(&problem, &claims, preset, Masks::AsPassed).expect("a report");
            }
            differentiated(&problem, &steps, output);
        }
    }
}

/// Gradients, right and wrong.
fn differentiated(problem: &Problem<'_>, steps: &qkv::Steps, output: &Tensor<f64>) {
    let Problem::Given { block, .. } = *problem else {
        return;
    };
    let grad = tensor(output.shape());
    let right = block.gradients(steps, 0, &grad).expect("gradients");
    let claims = |change: fn(&Tensor<f64>) -> Tensor<f64>| {
        [
            GradientName::GradQ,
            GradientName::GradK,
            GradientName::GradV,
        ]
        .map(|name| GradientClaim {
            name,
            values: change(right.get(name).expect("a gradient")),
            dtype: DType::F64,
            half_unit: 0.0,
        })
    };
    let any = claims(Tensor::clone)
        .iter()
        .any(|claim| !claim.values.data().is_empty());
    let check = |claims: &[GradientClaim]| {
        let report = gradients::check(problem, &grad, claims).map_err(|_| "it fits");
        report.expect("a report").verdict
    };
    let [same, other] = match any {
        true => [Verdict::Equal, Verdict::Different],
        false => [Verdict::Undecided; 2],
    };
    assert_eq!(check(&claims(Tensor::clone)), same, "{:?}", grad.shape());
    assert_eq!(check(&claims(moved)), other, "{:?}", grad.shape());
    assert_eq!(check(&[]), Verdict::Undecided);
}

#[test]
fn of_tokens() {
    let linear =
        |inner: usize, out: usize| Linear::new("W", tensor(&[inner, out]), None).expect("a weight");
    for (b, len) in [(0, 3), (2, 0), (0, 0)] {
        for block in blocks() {
            let layer = Layer {
                q: linear(6, 4),
                k: linear(6, 4),
                v: linear(6, 4),
                heads: 2,
                kv_heads: 2,
                sinusoidal: Some(0),
                block: Block {
                    concatenate: true,
                    output: Some(linear(4, 6)),
                    ..block
                },
                residual: true,
            };
            let x = tensor(&[b, len, 6]);
            let problem = Problem::Tokens {
                layer: &layer,
                x: &x,
                context: None,
                past: None,
            };
            let steps = layer.steps(&x, None, None).expect("steps");
            for step in [StepName::Scores, StepName::Weights, StepName::Residual] {
                let claimed = match step {
                    StepName::Residual => StepName::Output,
                    step => step,
                };
                judged(&problem, claimed, steps.get(step).expect("the step"));
            }
        }
    }
}

#[test]
fn of_dumps() {
    let named = |name: &str, values: Tensor<f64>| dumps::Named {
        name: name.into(),
        values,
        dtype: DType::F64,
        half_unit: 0.0,
    };
    for [b, h, i, j, dv] in sizes() {
        let dump = |change: fn(&Tensor<f64>) -> Tensor<f64>| {
            vec![
                named("q", tensor(&[b, h, i, 4])),
                named("scores", change(&tensor(&[b, h, i, j]))),
                named("output", change(&tensor(&[b, h, i, dv]))),
            ]
        };
        let verdict = |other: &[dumps::Named]| {
            let report = dumps::compare(&dump(Tensor::clone), other);
            report.map_err(|_| "names").expect("a report").verdict
        };
        let all = dump(Tensor::clone);
        let some = |dump: &[dumps::Named]| dump.iter().any(|one| !one.values.data().is_empty());
        let same = match some(&all) {
            true => Verdict::Equal,
            false => Verdict::Undecided,
        };
        assert_eq!(verdict(&all), same);
        let other = match some(&all[1..]) {
            true => Verdict::Different,
            false => same,
        };
        assert_eq!(verdict(&dump(moved)), other, "{b} {h} {i} {j} {dv}");
    }
}
