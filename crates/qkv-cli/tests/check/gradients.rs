//! Somebody else's gradients: worked out here in loops of their own, right and wrong.

use crate::common::{Ran, refusals, run_with, words};
use serde_json::{Value, json};
use std::path::Path;

const Q: [usize; 4] = [2, 4, 3, 5];
const K: [usize; 4] = [2, 2, 6, 5];
const V: [usize; 4] = [2, 2, 6, 2];

/// Numbers of both signs, the same each time.
fn numbers(seed: u32, shape: [usize; 4]) -> Vec<f64> {
    let mut state = seed.wrapping_mul(2_654_435_769).wrapping_add(99);
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f64::from(state >> 8) / f64::from(1 << 22) - 2.0
    };
    (0..shape.iter().product()).map(|_| next()).collect()
}

/// What may go wrong in the loops below.
#[derive(Clone, Copy)]
struct Way {
    scale: f64,
    scale_back: f64,
    row_term: bool,
    group_sum: bool,
    /// Query i keeps keys up to i + offset.
    offset: Option<usize>,
    masked_back: bool,
}

const RIGHT: Way = Way {
    scale: 0.447_213_595_499_957_9, // 1/√5
    scale_back: 0.447_213_595_499_957_9,
    row_term: true,
    group_sum: true,
    offset: Some(3), // bottom-right: 6 keys, 3 queries
    masked_back: true,
};

struct Run {
    q: Vec<f64>,
    k: Vec<f64>,
    v: Vec<f64>,
    grad: Vec<f64>,
}

impl Run {
    fn new() -> Run {
        Run {
            q: numbers(1, Q),
            k: numbers(2, K),
            v: numbers(3, V),
            grad: numbers(4, [2, 4, 3, 2]),
        }
    }

    fn gradients(&self, way: Way) -> [Vec<f64>; 3] {
        let mut out = [
            vec![0.0; self.q.len()],
            vec![0.0; self.k.len()],
            vec![0.0; self.v.len()],
        ];
        for b in 0..2 {
            for h in 0..4 {
                let g = h / 2;
                for i in 0..3 {
                    let q = ((b * 4 + h) * 3 + i) * 5;
                    let at = |j: usize| (b * 2 + g) * 6 + j;
                    let kept = |j: usize| way.offset.is_none_or(|offset| j <= i + offset);
                    let score = |j: usize| -> f64 {
                        (0..5)
                            .map(|c| self.q[q + c] * self.k[at(j) * 5 + c])
                            .sum::<f64>()
                            * way.scale
                    };
                    let sum: f64 = (0..6).filter(|j| kept(*j)).map(|j| score(j).exp()).sum();
                    let weight = |j: usize| match kept(j) || !way.masked_back {
                        true => score(j).exp() / sum,
                        false => 0.0,
                    };
                    let grad = |c: usize| self.grad[((b * 4 + h) * 3 + i) * 2 + c];
                    let dp =
                        |j: usize| -> f64 { (0..2).map(|c| grad(c) * self.v[at(j) * 2 + c]).sum() };
                    let term: f64 = (0..6).map(|j| weight(j) * dp(j)).sum();
                    let counts = way.group_sum || h % 2 == 0;
                    for j in 0..6 {
                        let term = if way.row_term { term } else { 0.0 };
                        let ds = way.scale_back * weight(j) * (dp(j) - term);
                        for c in 0..5 {
                            out[0][q + c] += ds * self.k[at(j) * 5 + c];
                            if counts {
                                out[1][at(j) * 5 + c] += ds * self.q[q + c];
                            }
                        }
                        if counts {
                            for c in 0..2 {
                                out[2][at(j) * 2 + c] += weight(j) * grad(c);
                            }
                        }
                    }
                }
            }
        }
        out
    }

    fn write(&self, folder: &Path, [dq, dk, dv]: &[Vec<f64>; 3]) {
        let shape = [2, 4, 3, 2];
        let arrays: [(&str, &[usize], &[f64]); 7] = [
            ("q", &Q, &self.q),
            ("k", &K, &self.k),
            ("v", &V, &self.v),
            ("g", &shape, &self.grad),
            ("dq", &Q, dq),
            ("dk", &K, dk),
            ("dv", &V, dv),
        ];
        qkv_io::write_safetensors(&folder.join("x.safetensors"), &arrays, &[]).expect("a file");
    }
}

const LINE: &str = "check --q x.safetensors:q --k x.safetensors:k --v x.safetensors:v \
                    --causal bottom-right --grad-output x.safetensors:g";
const ALL: &str = "--dq x.safetensors:dq --dk x.safetensors:dk --dv x.safetensors:dv";

fn check(folder: &Path, line: &str) -> (i32, Value) {
    let Ran { code, out, err } = run_with(folder, &words(&format!("{line} --json")), b"");
    assert_eq!(err, "", "{line}");
    (code, serde_json::from_str(&out).expect("JSON"))
}

#[test]
fn right_gradients_are_equal_and_rounded_ones_rounding() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = Run::new();
    let right = run.gradients(RIGHT);
    run.write(folder.path(), &right);
    let (code, json) = check(folder.path(), &format!("{LINE} {ALL}"));
    assert_eq!((code, &json["verdict"]), (0, &json!("equal")), "{json}");
    assert_eq!(json["equal"], json!(["grad_v", "grad_q", "grad_k"]));
    let rounded = |round: &dyn Fn(f64) -> f64| {
        right
            .clone()
            .map(|numbers| numbers.into_iter().map(round).collect::<Vec<_>>())
    };
    run.write(folder.path(), &rounded(&|x| f64::from(x as f32)));
    let (code, json) = check(folder.path(), &format!("{LINE} {ALL}"));
    assert_eq!(
        (code, &json["rounding"]["dtype"]),
        (0, &json!("f32")),
        "{json}"
    );
    run.write(
        folder.path(),
        &rounded(&|x| qkv_io::half::bf16::from_f64(x).to_f64()),
    );
    let (code, json) = check(folder.path(), &format!("{LINE} {ALL}"));
    assert_eq!(
        (code, &json["rounding"]["dtype"]),
        (0, &json!("bf16")),
        "{json}"
    );
    // A hundredth is no rounding of double or single precision.
    run.write(folder.path(), &rounded(&|x| x * 1.01));
    let (code, json) = check(folder.path(), &format!("{LINE} {ALL}"));
    assert_eq!((code, &json["causes"]), (1, &json!([])), "{json}");
}

/// Of three gradients some are worked out otherwise, and the rest is right: as when one line of a
/// backward pass is wrong.
#[test]
fn a_mistake_of_some_gradients_alone_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = Run::new();
    let unscaled = Way {
        scale_back: 1.0,
        ..RIGHT
    };
    let unmasked = Way {
        offset: None,
        ..RIGHT
    };
    for (id, way, wrong) in [
        ("grad-scale-missing", unscaled, &[0][..]),
        ("grad-scale-missing", unscaled, &[1]),
        ("grad-mask-missing", unmasked, &[0, 1]),
    ] {
        let names = ["grad_q", "grad_k", "grad_v"];
        let (mut theirs, other) = (run.gradients(RIGHT), run.gradients(way));
        for at in wrong {
            theirs[*at] = other[*at].clone();
        }
        run.write(folder.path(), &theirs);
        let (code, json) = check(folder.path(), &format!("{LINE} {ALL}"));
        let cause = &json["causes"][0];
        assert_eq!((code, &cause["id"]), (1, &json!(id)), "{json}");
        let named: Vec<&str> = wrong.iter().map(|at| names[*at]).collect();
        assert_eq!(cause["parameters"]["gradients"], json!(named), "{json}");
    }
}

/// Keys and values get what the heads 0 and 2, or 1 and 3, give: not 0 and 1, or 2 and 3.
#[test]
fn heads_summed_as_if_they_were_tiled_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = Run::new();
    let mut theirs = run.gradients(RIGHT);
    theirs[1].fill(0.0);
    theirs[2].fill(0.0);
    for h in 0..4 {
        // A gradient is linear in that of the output.
        let mut one = Run::new();
        for (at, grad) in one.grad.iter_mut().enumerate() {
            *grad *= f64::from(u8::from(at / 6 % 4 == h));
        }
        let [_, k, v] = one.gradients(RIGHT);
        for (to, from, head) in [(1, k, 30), (2, v, 12)] {
            for (at, x) in from.iter().enumerate() {
                let (b, g) = (at / head / 2, at / head % 2);
                if g == h / 2 {
                    theirs[to][(b * 2 + h % 2) * head + at % head] += x;
                }
            }
        }
    }
    run.write(folder.path(), &theirs);
    let (code, json) = check(folder.path(), &format!("{LINE} {ALL}"));
    let first = (code, &json["causes"][0]["id"]);
    assert_eq!(first, (1, &json!("grad-groups-tiled")), "{json}");
}

#[test]
fn each_mistake_is_named_with_the_first_gradient_that_is_wrong() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = Run::new();
    let ways = [
        (
            "grad-scale-missing",
            Way {
                scale_back: 1.0,
                ..RIGHT
            },
            "grad_q",
        ),
        (
            "grad-scale-twice",
            Way {
                scale_back: 0.2,
                ..RIGHT
            },
            "grad_q",
        ),
        (
            "grad-row-term-missing",
            Way {
                row_term: false,
                ..RIGHT
            },
            "grad_q",
        ),
        (
            "grad-mask-missing",
            Way {
                masked_back: false,
                ..RIGHT
            },
            "grad_v",
        ),
        (
            "grad-groups-not-summed",
            Way {
                group_sum: false,
                ..RIGHT
            },
            "grad_v",
        ),
        (
            "causal-top-left",
            Way {
                offset: Some(0),
                ..RIGHT
            },
            "grad_v",
        ),
        (
            "causal-missing",
            Way {
                offset: None,
                ..RIGHT
            },
            "grad_v",
        ),
        (
            "scale",
            Way {
                scale: 1.0,
                scale_back: 1.0,
                ..RIGHT
            },
            "grad_v",
        ),
        (
            "grad-scale-missing+grad-row-term-missing",
            Way {
                scale_back: 1.0,
                row_term: false,
                ..RIGHT
            },
            "grad_q",
        ),
        (
            "causal-top-left+grad-row-term-missing",
            Way {
                offset: Some(0),
                row_term: false,
                ..RIGHT
            },
            "grad_v",
        ),
    ];
    for (id, way, first) in ways {
        run.write(folder.path(), &run.gradients(way));
        let (code, json) = check(folder.path(), &format!("{LINE} {ALL}"));
        assert_eq!((code, &json["causes"][0]["id"]), (1, &json!(id)), "{json}");
        assert_eq!(json["first_difference"]["step"], first, "{id}");
        assert!(
            !json["causes"][0]["says"]
                .as_str()
                .unwrap_or_default()
                .is_empty()
        );
    }
    run.write(
        folder.path(),
        &run.gradients(Way {
            row_term: false,
            ..RIGHT
        }),
    );
    let ran = run_with(folder.path(), &words(&format!("{LINE} {ALL}")), b"");
    assert!(
        ran.out
            .contains("First difference: grad_q; inputs grad_v equal"),
        "{}",
        ran.out
    );
    // One gradient alone.
    let (_, json) = check(folder.path(), &format!("{LINE} --dk x.safetensors:dk"));
    assert_eq!(json["causes"][0]["id"], "grad-row-term-missing", "{json}");
}

#[test]
fn exchanged_turned_and_capped() {
    let folder = std::env::temp_dir();
    let square = "--q '1 2;0 1' --k '2 -1;1 .5' --v '1 0;0 3' --grad-output '1 -1;.5 2'";
    let gradients = |options: &str, names: [&str; 2]| -> [String; 2] {
        let line = format!("explain {square} {options} --backward --json");
        let ran = run_with(&folder, &words(&line), b"");
        let json: Value = serde_json::from_str(&ran.out).expect("JSON");
        let list = json["gradients"].as_array().expect("a list");
        names.map(|name| {
            let found = list.iter().find(|one| one["name"] == name).expect(name);
            found["values"].to_string()
        })
    };
    let named = |options: &str, [dq, dk]: [String; 2]| {
        let line = format!("check {square} {options} --dq '{dq}' --dk '{dk}'");
        check(&folder, &line).1
    };
    let json = named("", gradients("", ["grad_k", "grad_q"]));
    assert_eq!(json["causes"][0]["id"], "grad-q-k-swapped", "{json}");
    let turned = "--position rotary";
    let json = named(
        turned,
        gradients(turned, ["grad_q_rotated", "grad_k_rotated"]),
    );
    assert_eq!(json["causes"][0]["id"], "grad-rotary-missing", "{json}");
    let json = named(turned, gradients(turned, ["grad_q", "grad_k"]));
    assert_eq!(json["verdict"], "equal", "{json}");
    let json = named("--softcap 2", gradients("", ["grad_q", "grad_k"]));
    assert_eq!(json["causes"][0]["id"], "softcap-missing", "{json}");
    let sinks = "--sinks '0.5' --bias '.5 -1;-inf 0' --dropout .5 --seed 3";
    let json = named(sinks, gradients(sinks, ["grad_q", "grad_k"]));
    assert_eq!(json["verdict"], "equal", "{json}");
    let json = named(
        sinks,
        gradients(
            "--bias '.5 -1;-inf 0' --dropout .5 --seed 3",
            ["grad_q", "grad_k"],
        ),
    );
    assert_eq!(json["causes"][0]["id"], "sinks-ignored", "{json}");
}

#[test]
fn of_the_bias_and_of_sinks() {
    let folder = std::env::temp_dir();
    let line = "--q '1 2;0 1' --k '2 -1;1 .5' --v '1 0;0 3' --grad-output '1 -1;.5 2' \
                --bias '.5 -1;2 0' --sinks '0.5' --scale .7";
    let ran = run_with(
        &folder,
        &words(&format!("explain {line} --backward --json")),
        b"",
    );
    let json: Value = serde_json::from_str(&ran.out).expect("JSON");
    let list = json["gradients"].as_array().expect("a list");
    let right = |name: &str| -> Value {
        let found = list.iter().find(|one| one["name"] == name).expect(name);
        found["values"].clone()
    };
    let (bias, sinks) = (right("grad_bias"), right("grad_sinks"));
    let (code, json) = check(
        &folder,
        &format!("check {line} --dbias '{bias}' --dsinks '{sinks}'"),
    );
    assert_eq!((code, &json["verdict"]), (0, &json!("equal")), "{json}");
    assert_eq!(json["equal"], json!(["grad_sinks", "grad_bias"]));
    // Taken after the scale instead of before it; and the sink's without its minus.
    let scores = right("grad_scores");
    let wrong = format!("check {line} --dbias '{scores}'");
    let (code, json) = check(&folder, &wrong);
    let first = &json["causes"][0]["id"];
    assert_eq!((code, first), (1, &json!("grad-bias-scaled")), "{json}");
    assert_eq!(json["first_difference"]["step"], "grad_bias");
    let minus = -sinks[0].as_f64().expect("a number");
    let (code, json) = check(&folder, &format!("check {line} --dsinks '{minus}'"));
    let says = json["causes"][0]["says"].as_str().unwrap_or_default();
    assert!(code == 1 && says.contains("wrong sign"), "{json}");
}

#[test]
fn what_does_not_fit_is_refused() {
    let folder = std::env::temp_dir();
    let two = "--q '1 2;0 1' --k '2 -1;1 .5' --v '1 0;0 3'";
    refusals(
        "check",
        &folder,
        &[
            (
                format!("{two} --dq '1 2;0 1'"),
                &["--grad-output", "missing"][..],
            ),
            (
                format!("{two} --grad-output '1 0;0 1'"),
                &["--dq, --dk, --dv", "missing"],
            ),
            (
                format!("{two} --grad-output '1 0;0 1' --dbias '1 0;0 1'"),
                &["--bias", "--dbias"],
            ),
            (
                format!("{two} --grad-output '1 0;0 1' --sinks 1 --dsinks '1 2'"),
                &["--dsinks", "[1]"],
            ),
            (
                format!("{two} --grad-output '1 0;0 1' --dq '1 2'"),
                &["--dq", "[1, 1, 2, 2]"],
            ),
            (
                format!("{two} --grad-output '1 0' --dq '1 2;3 4'"),
                &["[1, 1, 2, 2]"],
            ),
            (
                "--x '1 2' --wq 1 --wk 1 --wv 1 --dq 1".into(),
                &["--dq", "--x"],
            ),
            (
                format!("{two} --grad-output '1 0;0 1' --dq '1 2;3 4' --lse '1;2'"),
                &["--lse"],
            ),
        ],
    );
}
