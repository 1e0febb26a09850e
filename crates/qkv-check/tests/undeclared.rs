//! What the other side has and the options do not: a newcomer's first try gives no option at all.

use qkv::{Attention, Block, Causal, DType, StepName, Tensor};
use qkv_check::report::Value;
use qkv_check::{Claim, Problem, Report, check};

const HEADS: usize = 3;
const WIDTH: usize = 4;

/// Numbers that look random.
fn numbers(count: usize, seed: f64) -> Vec<f64> {
    let each = (0..count).map(|n| (seed + 1.7 * n as f64).sin() + (seed * n as f64).cos());
    each.collect()
}

/// Queries, keys and values of one batch entry, and what attention gives whose logits are changed.
struct Case {
    queries: usize,
    keys: usize,
    q: Vec<f64>,
    k: Vec<f64>,
    v: Vec<f64>,
}

impl Case {
    fn new(queries: usize, keys: usize) -> Case {
        Case {
            queries,
            keys,
            q: numbers(HEADS * queries * WIDTH, 0.3),
            k: numbers(HEADS * keys * WIDTH, 1.1),
            v: numbers(HEADS * keys * WIDTH, 2.9),
        }
    }

    /// `added(h, i, j)` comes to each score, and `sink(h)` to each denominator.
    fn output(
        &self,
        added: impl Fn(usize, usize, usize) -> f64,
        sink: impl Fn(usize) -> f64,
    ) -> Vec<f64> {
        let mut out = Vec::new();
        for h in 0..HEADS {
            for i in 0..self.queries {
                let q = &self.q[(h * self.queries + i) * WIDTH..][..WIDTH];
                let exps: Vec<f64> = (0..self.keys)
                    .map(|j| {
                        let k = &self.k[(h * self.keys + j) * WIDTH..][..WIDTH];
                        let dot: f64 = q.iter().zip(k).map(|(q, k)| q * k).sum();
                        (dot / 2.0 + added(h, i, j)).exp()
                    })
                    .collect();
                let sum = exps.iter().sum::<f64>() + sink(h);
                for c in 0..WIDTH {
                    let v = |j: usize| self.v[(h * self.keys + j) * WIDTH + c];
                    out.push((0..self.keys).map(|j| exps[j] / sum * v(j)).sum());
                }
            }
        }
        out
    }

    /// What `check` says of such an output.
    fn checked(&self, causal: Option<Causal>, output: Vec<f64>) -> Report {
        let tensor = |len: usize, data: &[f64]| {
            Tensor::new(&[1, HEADS, len, WIDTH], data.to_vec()).expect("the shape")
        };
        let attention = Attention {
            causal,
            ..Attention::default()
        };
        let block = Block {
            attention,
            ..Block::default()
        };
        let problem = Problem::Given {
            block: &block,
            q: &tensor(self.queries, &self.q),
            k: &tensor(self.keys, &self.k),
            v: &tensor(self.keys, &self.v),
            past: None,
        };
        let claim = Claim::new(StepName::Output, tensor(self.queries, &output), DType::F64);
        check(&problem, &[claim]).expect("a report")
    }
}

/// 0 where a key is kept, −∞ where it is not.
fn kept(keep: bool) -> f64 {
    if keep { 0.0 } else { f64::NEG_INFINITY }
}

fn none(_: usize) -> f64 {
    0.0
}

fn ids(report: &Report) -> Vec<String> {
    report.causes.iter().map(|cause| cause.id()).collect()
}

#[test]
fn a_causal_mask_that_nobody_declared() {
    let square = Case::new(5, 5);
    let report = square.checked(None, square.output(|_, i, j| kept(j <= i), none));
    let both = ["causal-top-left", "causal-bottom-right"];
    assert_eq!(ids(&report), both);
    assert_eq!(report.indistinguishable, [both]);
    let wide = Case::new(4, 7);
    let report = wide.checked(None, wide.output(|_, i, j| kept(j <= i), none));
    assert_eq!(ids(&report), ["causal-top-left"]);
    let report = wide.checked(None, wide.output(|_, i, j| kept(j <= i + 3), none));
    assert_eq!(ids(&report), ["causal-bottom-right"]);
}

#[test]
fn a_window_that_nobody_declared() {
    // Of few keys any window, of many those that people choose; beside a causal mask the side behind.
    let short = Case::new(6, 9);
    let long = Case::new(40, 40);
    let seen = |case: &Case, causal, keep: &dyn Fn(usize, usize) -> bool| {
        let report = case.checked(causal, case.output(|_, i, j| kept(keep(i, j)), none));
        assert_eq!(ids(&report), ["window-undeclared"], "{report:?}");
        let parameters = &report.causes[0].parameters;
        ["back", "forward"].map(|side| parameters[side].clone())
    };
    let whole = |n: i64| Value::Whole(n);
    let end = || Value::Name("inf");
    // Queries stand at the end of the keys, or at their beginning.
    let at_the_end = seen(&short, None, &|i, j| j + 2 >= i + 3 && j <= i + 4);
    assert_eq!(at_the_end, [whole(2), whole(1)]);
    let at_the_start = seen(&short, None, &|i, j| j + 3 >= i && j <= i + 2);
    assert_eq!(at_the_start, [whole(3), whole(2)]);
    let local = seen(&long, None, &|i, j| j + 17 >= i && j <= i);
    assert_eq!(local, [whole(17), whole(0)]);
    let both = seen(&long, None, &|i, j| j + 5 >= i && j <= i + 5);
    assert_eq!(both, [whole(5), whole(5)]);
    let causal = Some(Causal::Square);
    let behind = seen(&long, causal, &|i, j| j + 9 >= i && j <= i);
    assert_eq!(behind, [whole(9), end()]);
}

#[test]
fn alibi_and_sinks_that_nobody_declared() {
    let case = Case::new(5, 5);
    // Three heads: two slopes of two heads, and the first of four.
    let slopes = [1.0 / 16.0, 1.0 / 256.0, 1.0 / 4.0];
    let alibi = |h: usize, i: usize, j: usize| -slopes[h] * i.abs_diff(j) as f64;
    let report = case.checked(None, case.output(alibi, none));
    assert_eq!(ids(&report), ["alibi-undeclared"]);
    let with_mask = |h: usize, i: usize, j: usize| alibi(h, i, j) + kept(j <= i);
    let report = case.checked(None, case.output(with_mask, none));
    assert_eq!(ids(&report)[0], "causal-top-left+alibi-undeclared");
    let logits = [0.5_f64, -1.0, 1.75];
    let report = case.checked(None, case.output(|_, _, _| 0.0, |h| logits[h].exp()));
    assert_eq!(ids(&report), ["sinks-undeclared"]);
    let found = match &report.causes[0].parameters["logits"] {
        Value::Numbers(found) => &found[..],
        _ => &[],
    };
    let near = |(a, b): (&f64, f64)| (a - b).abs() < 1e-9;
    assert!(
        found.len() == HEADS && found.iter().zip(logits).all(near),
        "{found:?}"
    );
}

/// A head of which there is one row may be multiplied by anything: no sink is told from that.
#[test]
fn one_row_of_each_head_tells_no_sink_of_its_own() {
    let case = Case::new(1, 4);
    let output = case.output(|_, _, _| 0.0, |h| 0.3 + h as f64);
    let report = case.checked(None, output);
    assert!(report.causes.is_empty(), "{report:?}");
}
