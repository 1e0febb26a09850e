//! Numbers that are shown otherwise than asked for, or of one run with dropout: in the shapes and sizes
//! that people have, beside other numbers that are as asked for.

use half::{bf16, f16};
use qkv::position::Rotary;
use qkv::{Block, DType, StepName, Tensor};
use qkv_check::report::Value;
use qkv_check::{Claim, Problem, Report, Verdict, check};

const HEADS: usize = 3;
const QUERIES: usize = 4;
const WIDTH: usize = 6;

/// Numbers that look random.
fn numbers(count: usize, seed: f64) -> Vec<f64> {
    let each = (0..count).map(|n| (seed + 1.7 * n as f64).sin() + (seed * n as f64).cos());
    each.collect()
}

fn tensor(shape: &[usize], data: &[f64]) -> Tensor<f64> {
    Tensor::new(shape, data.to_vec()).expect("the shape")
}

/// Queries, keys and values of one batch entry.
struct Case {
    keys: usize,
    columns: usize,
    q: Vec<f64>,
    k: Vec<f64>,
    v: Vec<f64>,
}

impl Case {
    fn new(keys: usize, columns: usize) -> Case {
        Case {
            keys,
            columns,
            q: numbers(HEADS * QUERIES * WIDTH, 0.3),
            k: numbers(HEADS * keys * WIDTH, 1.1),
            v: numbers(HEADS * keys * columns, 2.9),
        }
    }

    fn scores(&self) -> Vec<f64> {
        let mut scores = Vec::new();
        for (row, q) in self.q.chunks(WIDTH).enumerate() {
            for j in 0..self.keys {
                let k = &self.k[(row / QUERIES * self.keys + j) * WIDTH..][..WIDTH];
                scores.push(q.iter().zip(k).map(|(q, k)| q * k).sum());
            }
        }
        scores
    }

    fn weights(&self) -> Vec<f64> {
        let scores = self.scores();
        let rows = scores.chunks(self.keys).flat_map(|row| {
            let exps = row.iter().map(|s| (s / (WIDTH as f64).sqrt()).exp());
            let sum: f64 = exps.clone().sum();
            exps.map(move |e| e / sum).collect::<Vec<f64>>()
        });
        rows.collect()
    }

    fn output(&self, weights: &[f64]) -> Vec<f64> {
        let mut output = Vec::new();
        for (row, weights) in weights.chunks(self.keys).enumerate() {
            for c in 0..self.columns {
                let v = |j: usize| self.v[(row / QUERIES * self.keys + j) * self.columns + c];
                output.push((0..self.keys).map(|j| weights[j] * v(j)).sum());
            }
        }
        output
    }

    fn checked(&self, block: &Block<'_>, claims: &[Claim]) -> Report {
        let problem = Problem::Given {
            block,
            q: &tensor(&[1, HEADS, QUERIES, WIDTH], &self.q),
            k: &tensor(&[1, HEADS, self.keys, WIDTH], &self.k),
            v: &tensor(&[1, HEADS, self.keys, self.columns], &self.v),
            past: None,
        };
        check(&problem, claims).expect("a report")
    }
}

fn claim(step: StepName, shape: &[usize], data: &[f64], dtype: DType) -> Claim {
    let stored = data.iter().map(|x| match dtype {
        DType::F32 => f64::from(*x as f32),
        DType::F16 => f16::from_f64(*x).to_f64(),
        DType::Bf16 => bf16::from_f64(*x).to_f64(),
        DType::F64 => *x,
    });
    let stored: Vec<f64> = stored.collect();
    Claim::new(step, tensor(shape, &stored), dtype)
}

#[track_caller]
fn first_is(report: &Report, id: &str) {
    let ids: Vec<String> = report.causes.iter().map(|cause| cause.id()).collect();
    assert_eq!(report.verdict, Verdict::Different, "{ids:?}");
    assert_eq!(ids.first().map(String::as_str), Some(id), "{ids:?}");
}

/// A parameter of the first cause.
fn number(report: &Report, name: &str) -> Option<f64> {
    match report.causes[0].parameters.get(name) {
        Some(Value::Number(number)) => Some(*number),
        _ => None,
    }
}

#[test]
fn averaged_weights_with_the_axis_of_heads_or_beside_a_right_output() {
    let case = Case::new(5, 7);
    let weights = case.weights();
    let head = QUERIES * case.keys;
    let mean = |at: usize| (0..HEADS).map(|h| weights[h * head + at]).sum::<f64>() / HEADS as f64;
    let mean: Vec<f64> = (0..head).map(mean).collect();
    let weights_of = |shape: &[usize]| claim(StepName::Weights, shape, &mean, DType::F32);
    let output = case.output(&weights);
    let shape = [1, HEADS, QUERIES, case.columns];
    let output = claim(StepName::Output, &shape, &output, DType::F32);
    for claims in [
        vec![weights_of(&[1, 1, QUERIES, case.keys])],
        vec![output, weights_of(&[1, QUERIES, case.keys])],
    ] {
        first_is(&case.checked(&Block::default(), &claims), "heads-averaged");
    }
}

#[test]
fn a_position_more_of_queries_alone() {
    let case = Case::new(5, 7);
    let (mut extra, mut missing) = (Vec::new(), Vec::new());
    for head in case.scores().chunks(QUERIES * case.keys) {
        extra.extend(numbers(case.keys, 7.3));
        extra.extend_from_slice(head);
        missing.extend_from_slice(&head[case.keys..]);
    }
    for (queries, data, id) in [
        (QUERIES + 1, extra, "position-extra"),
        (QUERIES - 1, missing, "position-missing"),
    ] {
        let shape = [1, HEADS, queries, case.keys];
        let claim = claim(StepName::Scores, &shape, &data, DType::F32);
        first_is(&case.checked(&Block::default(), &[claim]), id);
    }
}

#[test]
fn rows_shifted_in_half_precision() {
    let case = Case::new(9, 7);
    let right = case.output(&case.weights());
    let shifted: Vec<f64> = right.iter().map(|x| x + 1.0).collect();
    for dtype in [DType::F16, DType::Bf16] {
        let shape = [1, HEADS, QUERIES, case.columns];
        let claim = claim(StepName::Output, &shape, &shifted, dtype);
        first_is(&case.checked(&Block::default(), &[claim]), "row-shift");
    }
}

#[test]
fn scores_rounded_to_half_precision_that_overflow() {
    let mut case = Case::new(5, 7);
    case.q.iter_mut().for_each(|x| *x *= 300.0);
    case.k.iter_mut().for_each(|x| *x *= 300.0);
    let half: Vec<f64> = case
        .scores()
        .iter()
        .map(|s| f16::from_f64(*s).to_f64())
        .collect();
    assert!(half.contains(&f64::INFINITY) && half.iter().any(|s| s.is_finite()));
    let shape = [1, HEADS, QUERIES, case.keys];
    let claim = claim(StepName::Scores, &shape, &half, DType::F32);
    first_is(&case.checked(&Block::default(), &[claim]), "fp16-overflow");
}

/// Every third weight or so is dropped, in an order that looks random.
fn dropped(weights: &[f64], kept: f64) -> Vec<f64> {
    let noise = numbers(weights.len(), 5.7);
    let pairs = weights.iter().zip(noise);
    pairs
        .map(|(w, x)| if x < -0.6 { 0.0 } else { w / kept })
        .collect()
}

/// More columns than keys, fewer, and far fewer; many keys; with weights so small that they do not show.
#[test]
fn dropout_in_one_output_of_many_shapes() {
    for (keys, columns, size) in [(9, 3, 1.0), (16, 6, 1.0), (30, 40, 1.0), (9, 3, 12.0)] {
        let mut case = Case::new(keys, columns);
        case.q.iter_mut().for_each(|x| *x *= size);
        for (kept, id) in [(0.7, "dropout-on"), (1.0, "dropout-unscaled")] {
            let theirs = case.output(&dropped(&case.weights(), kept));
            let shape = [1, HEADS, QUERIES, columns];
            let claim = claim(StepName::Output, &shape, &theirs, DType::F64);
            let report = case.checked(&Block::default(), &[claim]);
            first_is(&report, id);
            let p = number(&report, "p");
            let near = if id == "dropout-on" { 1e-9 } else { 0.2 };
            assert!(p.is_some_and(|p| (p - 0.3).abs() < near), "{p:?}");
        }
    }
}

#[test]
fn a_linear_rotary_scaling_of_any_factor() {
    let case = Case::new(QUERIES, 7);
    let block = Block {
        rotary: Some(Rotary::default()),
        ..Block::default()
    };
    let mut theirs = Case::new(QUERIES, 7);
    for numbers in [&mut theirs.q, &mut theirs.k] {
        for (row, x) in numbers.chunks_mut(WIDTH).enumerate() {
            let place = (row % QUERIES) as f64 / 3.0;
            for c in 0..WIDTH / 2 {
                let angle = place * 10000f64.powf(-2.0 * c as f64 / WIDTH as f64);
                let (a, b) = (x[c], x[c + WIDTH / 2]);
                x[c] = a * angle.cos() - b * angle.sin();
                x[c + WIDTH / 2] = b * angle.cos() + a * angle.sin();
            }
        }
    }
    let theirs = theirs.output(&theirs.weights());
    let shape = [1, HEADS, QUERIES, case.columns];
    let claim = claim(StepName::Output, &shape, &theirs, DType::F32);
    let report = case.checked(&block, &[claim]);
    first_is(&report, "rotary-scaling");
    let factor = number(&report, "factor");
    assert!(
        factor.is_some_and(|factor| (factor - 3.0).abs() < 1e-3),
        "{factor:?}"
    );
}
