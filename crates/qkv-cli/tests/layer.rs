//! Tokens and weights: given and drawn, heads, context, residual, batch.

mod common;

use common::{check, close, json, names, qkv, shape, step};
use serde_json::json;

const TOKENS: &str = "--x '1 0.5 -0.2 0.1; 0.3 -0.4 0.8 1.2'";

#[test]
fn weights_given() {
    let line =
        "--x '1 2; 3 4' --wq '1 0; 0 1' --wk '0 1; 1 0' --wv '1; 1' --bq '1 1' --bk '0 5' --bv 10";
    check(line, "q", &[2.0, 3.0, 4.0, 5.0]);
    check(line, "k", &[2.0, 6.0, 4.0, 8.0]);
    check(line, "v", &[13.0, 17.0]);
    assert!(names(&json(line)).contains(&"concatenated"));
    assert!(!names(&json(line)).contains(&"projected"));
}

#[test]
fn weights_drawn_from_a_seed() {
    let found = json(&format!(
        "{TOKENS} --init normal:0.02 --seed 7 --dk 4 --dv 4"
    ));
    assert_eq!(found["shapes"]["q"], json!([1, 1, 2, 4]));
    let (q, k, v) = (step(&found, "q"), step(&found, "k"), step(&found, "v"));
    assert!(
        q.iter()
            .chain(&k)
            .chain(&v)
            .all(|x| x.abs() < 0.2 && *x != 0.0)
    );
    let other = json(&format!(
        "{TOKENS} --init normal:0.02 --seed 8 --dk 4 --dv 4"
    ));
    assert_ne!(q, step(&other, "q"));
}

/// From an independent program; x is the identity, so q is W_Q and so on.
#[test]
fn drawn_weights_never_change() {
    let line = "--x '1 0; 0 1' --residual --init normal:0.02 --seed 7";
    let found = json(line);
    let expected = [
        (
            "q",
            [
                0.02622207843235794,
                0.017721958809009633,
                0.020738075569227427,
                0.043780431918894136,
            ],
        ),
        (
            "k",
            [
                0.0012015836619669888,
                0.033143294796582234,
                -0.04325009710516703,
                -0.0010887143190761292,
            ],
        ),
        (
            "v",
            [
                0.002186595516229889,
                0.009037007196105092,
                -0.026786740159872213,
                -0.01737782579319508,
            ],
        ),
    ];
    for (name, numbers) in expected {
        assert!(close(&step(&found, name), &numbers, 1e-17), "{name}");
    }
    // W_O: a single query and key with v = x·W_V = the identity.
    let line =
        "--x '1 0' --wq '1;0' --wk '1;0' --wv '1 0; 0 1' --residual --init normal:0.02 --seed 7";
    check(
        line,
        "projected",
        &[0.014782853258380631, -0.021718406707167057],
    );
    let uniform = [
        0.6645245418149107,
        0.44911300940536714,
        0.14812297475797176,
        0.3127044161049436,
    ];
    let found = step(&json("--x '1 0; 0 1' --init uniform:1.5 --seed 7"), "q");
    assert!(close(&found, &uniform, 1e-16), "{found:?}");
    let xavier = [
        0.5425820163344383,
        0.3666992366296439,
        0.1209419024467278,
        0.2553220865906874,
    ];
    let found = step(&json("--x '1 0; 0 1' --init xavier --seed 7"), "q");
    assert!(close(&found, &xavier, 1e-16), "{found:?}");
}

#[test]
fn a_drawn_weight_does_not_depend_on_the_others() {
    let all = json("--x '1 0; 0 1' --init xavier --seed 3");
    let some = json("--x '1 0; 0 1' --wq '1 0; 0 1' --init xavier --seed 3");
    assert_eq!(step(&all, "k"), step(&some, "k"));
    assert_eq!(step(&all, "v"), step(&some, "v"));
}

#[test]
fn widths_of_drawn_weights() {
    let of = |args: &str| {
        let found = json(&format!("--x '1 2 3 4' --init xavier {args}"));
        (found["shapes"]["q"].clone(), found["shapes"]["v"].clone())
    };
    assert_eq!(of(""), (json!([1, 1, 1, 4]), json!([1, 1, 1, 4])));
    assert_eq!(of("--heads 2"), (json!([1, 2, 1, 2]), json!([1, 2, 1, 2])));
    assert_eq!(
        of("--heads 3 --dk 5"),
        (json!([1, 3, 1, 5]), json!([1, 3, 1, 5]))
    );
    assert_eq!(
        of("--dk 2 --dv 7"),
        (json!([1, 1, 1, 2]), json!([1, 1, 1, 7]))
    );
    assert_eq!(
        of("--wq '1 2;3 4;5 6;7 8'"),
        (json!([1, 1, 1, 2]), json!([1, 1, 1, 2]))
    );
    assert_eq!(
        of("--wo '1 2 3 4;1 2 3 4'"),
        (json!([1, 1, 1, 4]), json!([1, 1, 1, 2]))
    );
}

#[test]
fn output_weight_is_drawn_for_several_heads_or_a_residual() {
    let drawn =
        |args: &str| names(&json(&format!("{TOKENS} --init xavier {args}"))).contains(&"projected");
    assert!(!drawn(""));
    assert!(drawn("--heads 2"));
    assert!(drawn("--residual"));
}

#[test]
fn heads_groups_and_residual() {
    let line = format!("{TOKENS} --init xavier --heads 4 --kv-heads 2 --residual");
    let found = json(&line);
    assert_eq!(found["shapes"]["q"], json!([1, 4, 2, 1]));
    assert_eq!(found["shapes"]["k"], json!([1, 2, 2, 1]));
    let x = [1.0, 0.5, -0.2, 0.1, 0.3, -0.4, 0.8, 1.2];
    let sum: Vec<f64> = step(&found, "projected")
        .iter()
        .zip(x)
        .map(|(y, x)| x + y)
        .collect();
    assert!(close(&step(&found, "residual"), &sum, 1e-15));
}

#[test]
fn residual_without_an_output_weight_where_widths_agree() {
    let line = "--x '1 2' --wq '1;1' --wk '1;1' --wv '1 0; 0 1' --residual";
    check(line, "residual", &[2.0, 4.0]);
}

#[test]
fn a_batch_is_its_entries() {
    let weights = "--wq '1 0;0 1' --wk '1 1;0 1' --wv '2 0;0 3' --causal";
    let both = step(
        &json(&format!("--x '[[[1,2],[3,4]],[[5,6],[7,8]]]' {weights}")),
        "concatenated",
    );
    let first = step(&json(&format!("--x '1 2; 3 4' {weights}")), "concatenated");
    let second = step(&json(&format!("--x '5 6; 7 8' {weights}")), "concatenated");
    assert_eq!(both, [first, second].concat());
}

#[test]
fn cross_attention() {
    let line = "--x '1 0' --context '1 2 3; 4 5 6' --wq '1;0' --wk '0;0;0' --wv '1;1;1'";
    let found = json(line);
    assert_eq!(shape(&found, "scores"), [1, 1, 1, 2]);
    check(line, "output", &[10.5]);
    let drawn = json("--x '1 0; 0 1' --context '1 2 3' --init xavier --heads 2");
    assert_eq!(shape(&drawn, "projected"), [1, 2, 2]);
}

/// Generation: one new token against three cached ones is the last row of the whole run.
#[test]
fn cached_equals_whole() {
    let weights = "--wq '1 2;3 4' --wk '0.5 0;0 0.25' --wv '1 0;0 1' --position rotary --heads 1";
    let whole = json(&format!("--x '1 0;0 1;1 1;2 -1' {weights} --causal"));
    let rows = |name: &str, n: usize| {
        let numbers = step(&whole, name);
        let rows: Vec<String> = numbers
            .chunks(2)
            .take(n)
            .map(|row| format!("{} {}", row[0], row[1]))
            .collect();
        rows.join("; ")
    };
    let new = json(&format!(
        "--x '2 -1' {weights} --causal bottom-right --past-k '{}' --past-v '{}'",
        rows("k_rotated", 3),
        rows("v", 3)
    ));
    assert_eq!(shape(&new, "q"), [1, 1, 1, 2]);
    assert_eq!(shape(&new, "k"), [1, 1, 4, 2]);
    assert!(close(
        &step(&new, "concatenated"),
        &step(&whole, "concatenated")[6..],
        1e-12
    ));
}

#[test]
fn drawn_weights_are_said() {
    let ran = qkv(&format!(
        "explain {TOKENS} --init normal:0.02 --seed 7 --lang en"
    ));
    assert_eq!(ran.code, 0, "{}", ran.err);
    let text: String = ran.out.split_whitespace().collect::<Vec<_>>().join(" ");
    for words in ["drawn at random", "standard deviation 0.02", "seed 7"] {
        assert!(text.contains(words), "{words}\n{}", ran.out);
    }
    let ran = qkv(&format!(
        "explain {TOKENS} --init xavier --heads 2 --lang zh"
    ));
    assert!(
        ran.out.contains("随机抽取") && ran.out.contains("W_O"),
        "{}",
        ran.out
    );
}

/// The residual carries the positions that were added to the tokens, as in the Transformer's paper.
#[test]
fn residual_has_sinusoidal_positions() {
    let zero = "'0 0; 0 0'";
    let line = format!(
        "--x '1 2; 3 4' --wq {zero} --wk {zero} --wv {zero} --position sinusoidal --residual"
    );
    let (sin, cos) = 1_f64.sin_cos();
    check(&line, "residual", &[1.0, 3.0, 3.0 + sin, 4.0 + cos]);
}
