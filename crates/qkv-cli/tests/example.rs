//! The built-in example, and the exact form of JSON.

mod common;

use common::{check, json, names, qkv, run_with, shape, step, words};
use serde_json::json;

#[test]
fn text_shows_the_figures() {
    let ran = qkv("explain --lang en");
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    for figure in [
        "0.7071", "0.6698", "0.3302", "1.3395", "1.3210", "0.6605", "2.6790",
    ] {
        assert!(
            ran.out.contains(figure),
            "{figure} is missing in\n{}",
            ran.out
        );
    }
    assert!(ran.out.ends_with('\n'));
}

#[test]
fn json_is_the_contract() {
    let ran = qkv("explain --json");
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let found: serde_json::Value = serde_json::from_str(&ran.out).expect("JSON");
    let keys: Vec<&String> = found.as_object().expect("an object").keys().collect();
    assert_eq!(keys, ["shapes", "options", "steps", "empty_rows"]);
    assert_eq!(
        found["shapes"],
        json!({"q": [1, 1, 2, 2], "k": [1, 1, 2, 2], "v": [1, 1, 2, 2], "output": [1, 1, 2, 2]})
    );
    let order = [
        "q", "k", "v", "scores", "scaled", "max", "exp", "sum", "weights", "output", "lse",
    ];
    assert_eq!(names(&found), order);
    assert_eq!(found["empty_rows"], json!([]));
    assert_eq!(
        found["steps"][0],
        json!({"name": "q", "shape": [1, 1, 2, 2], "values": [[[[1.0, 0.0], [0.0, 1.0]]]]})
    );
    assert_eq!(shape(&found, "max"), [1, 1, 2]);
    assert_eq!(shape(&found, "lse"), [1, 1, 2]);
    // In full precision.
    assert_eq!(step(&found, "scaled")[0], 1.0 / 2_f64.sqrt());
    let e = (-1.0 / 2_f64.sqrt()).exp();
    assert_eq!(
        step(&found, "weights")[..2],
        [1.0 / (1.0 + e), e / (1.0 + e)]
    );
}

#[test]
fn every_step_stands_in_its_place() {
    let all = json(
        "--x '1 0 2 0; 0 1 0 2' --init xavier --heads 2 --residual --position rotary \
         --q-norm '1 1' --k-norm '1 1' --softcap 5 --bias '0 1' --causal --dropout 0.5",
    );
    let order = [
        "q",
        "k",
        "v",
        "q_normed",
        "k_normed",
        "q_rotated",
        "k_rotated",
        "scores",
        "scaled",
        "capped",
        "biased",
        "masked",
        "max",
        "exp",
        "sum",
        "weights",
        "dropped",
        "output",
        "lse",
        "concatenated",
        "projected",
        "residual",
    ];
    assert_eq!(names(&all), order);
    assert_eq!(shape(&all, "q"), [1, 2, 2, 2]);
    assert_eq!(shape(&all, "weights"), [1, 2, 2, 2]);
    for name in ["concatenated", "projected", "residual"] {
        assert_eq!(shape(&all, name), [1, 2, 4], "{name}");
    }
}

#[test]
fn what_is_not_finite_is_a_string() {
    let found = json("--q '0' --k '0;0' --v '1;2' --drop '1 1' --softcap 1");
    let masked = found["steps"]
        .as_array()
        .and_then(|steps| steps.iter().find(|step| step["name"] == "masked"))
        .map(|step| &step["values"]);
    assert_eq!(masked, Some(&json!([[[["-inf", "-inf"]]]])));
    assert_eq!(found["empty_rows"], json!([[0, 0, 0]]));
    let found = json("--q 'nan inf' --k '1 0; 0 1' --v '1;2'");
    assert_eq!(found["steps"][0]["values"], json!([[[["nan", "inf"]]]]));
}

#[test]
fn options_apply_to_the_example() {
    let found = json("--causal");
    assert!(names(&found).contains(&"masked"));
    check("--causal", "output", &[2.0, 0.0, 0.660_476_9, 2.679_046_2]);
    check(
        "--heads 2",
        "concatenated",
        &[1.462_117_2, 2.0, 1.0, 2.924_234_3],
    );
    assert!(!names(&json("")).contains(&"concatenated"));
    assert!(names(&json("--heads 1")).contains(&"concatenated"));
}

#[test]
fn digits_change_the_text_only() {
    let long = qkv("explain --lang en --digits 6").out;
    assert!(long.contains("0.669762"), "{long}");
    assert_eq!(
        qkv("explain --json --digits 0").out,
        qkv("explain --json").out
    );
    assert_eq!(
        qkv("explain --json --lang zh --width 40").out,
        qkv("explain --json").out
    );
}

#[test]
fn language_comes_from_the_option_or_the_environment() {
    let folder = std::env::temp_dir();
    let text = |args: &str, variables: &[(&str, &str)]| {
        let mut command = common::command(&folder);
        command
            .env_remove("LC_ALL")
            .env_remove("LC_MESSAGES")
            .env_remove("LANG");
        command.args(words(args)).envs(variables.iter().copied());
        String::from_utf8(command.output().expect("runs").stdout).expect("UTF-8")
    };
    let (en, zh) = (
        text("explain --lang en", &[]),
        text("explain --lang zh", &[]),
    );
    assert_eq!(text("explain", &[]), en);
    assert_eq!(text("explain", &[("LANG", "zh_CN.UTF-8")]), zh);
    assert_eq!(
        text("explain", &[("LANG", "zh_CN.UTF-8"), ("LC_ALL", "C")]),
        en
    );
    assert_eq!(
        text("explain", &[("LANG", "C"), ("LC_MESSAGES", "zh_TW")]),
        zh
    );
    assert_eq!(text("explain --lang en", &[("LANG", "zh_CN.UTF-8")]), en);
}

#[test]
fn rows_can_be_chosen() {
    for args in [
        "explain --row 1",
        "explain --row 0,1",
        "explain --row 0 --row 1",
    ] {
        assert_eq!(qkv(args).code, 0, "{args}");
    }
    // JSON holds every row.
    let line = |args| run_with(&std::env::temp_dir(), &words(args), b"").out;
    assert_eq!(line("explain --json --row 1"), line("explain --json"));
}
