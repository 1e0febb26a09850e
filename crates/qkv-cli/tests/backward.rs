//! `--backward`: the gradient on the command line, in JSON and in files.

mod common;

use common::{close, gradient, json, names_in, qkv};

#[track_caller]
fn check(line: &str, name: &str, expected: &[f64]) {
    let found = gradient(&json(&format!("{line} --backward")), name);
    assert!(close(&found, expected, 5e-7), "{line}\n{name}: {found:?}");
}

/// Worked out by hand in qkv-report's tests.
#[test]
fn the_built_in_example() {
    let d = 0.312_797_19;
    check("", "grad_q", &[-d, d, -d, d]);
    check("", "grad_k", &[-d, -d, d, d]);
    check("", "grad_v", &[1.0; 4]);
    let one = "--grad-output '1 0; 0 0'";
    check(one, "grad_q", &[d, -d, 0.0, 0.0]);
    check(one, "grad_k", &[d, 0.0, -d, 0.0]);
    check(one, "grad_v", &[0.669_761_5, 0.0, 0.330_238_5, 0.0]);
    let read = json("--backward");
    assert_eq!(
        names_in(&read, "gradients"),
        [
            "grad_output",
            "grad_v",
            "grad_weights",
            "delta",
            "grad_masked",
            "grad_scores",
            "grad_q",
            "grad_k"
        ]
    );
    let difference = &read["finite_difference"];
    assert_eq!(difference["of"], "grad_q");
    assert_eq!(difference["step"], 0.001);
    let quotient = difference["quotient"].as_f64().expect("a number");
    assert!((quotient + d).abs() < 1e-7);
}

#[test]
fn without_it_nothing_changes() {
    let (plain, mut whole) = (json("--causal"), json("--causal --backward"));
    assert!(plain.get("gradients").is_none());
    let object = whole.as_object_mut().expect("an object");
    assert!(object.remove("gradients").is_some());
    assert!(object.remove("finite_difference").is_some());
    assert_eq!(plain, whole);
    let text = qkv("explain --lang en").out;
    assert!(qkv("explain --lang en --backward").out.starts_with(&text));
}

#[test]
fn both_languages() {
    for (lang, words) in [
        (
            "en",
            ["The gradient: where it starts", "Checked by a finite"],
        ),
        ("zh", ["梯度：从哪里开始", "用有限差分检验"]),
    ] {
        let out = qkv(&format!("explain --backward --lang {lang}")).out;
        for words in words
            .into_iter()
            .chain(["dq[0,1] = (−0.3128)·0 + 0.3128·1"])
        {
            assert!(out.contains(words), "{words}\n{out}");
        }
    }
}

/// The gradient's axes are those of the result.
#[test]
fn grad_output_has_the_axes_of_the_result() {
    // One head of a 4-axis array, [B,H,L,d] and [B,L,H,d].
    let qkv4 = "--q [[[[1],[2],[3]]]] --k [[[[1],[2],[3]]]] --v [[[[1],[5],[2]]]]";
    let grad = [1.0, 2.0, 3.0];
    check(
        &format!("{qkv4} --grad-output [[[[1],[2],[3]]]]"),
        "grad_output",
        &grad,
    );
    check(
        &format!("{qkv4} --grad-output [[1],[2],[3]]"),
        "grad_output",
        &grad,
    );
    let blhd =
        "--layout blhd --q [[[1]],[[2]],[[3]]] --k [[[1]],[[2]],[[3]]] --v [[[1]],[[5]],[[2]]]";
    check(
        &format!("{blhd} --grad-output [[[1]],[[2]],[[3]]]"),
        "grad_output",
        &grad,
    );
    // Two heads are put side by side: [L,D] or [B,L,D], and each gets its columns.
    let heads = "--heads 2 --q '1 0; 0 1' --k '1 0; 0 1' --v '1 2; 3 4'";
    for grad in ["'1 2; 3 4'", "[[[1,2],[3,4]]]"] {
        let line = format!("{heads} --grad-output {grad}");
        check(&line, "grad_concatenated", &[1.0, 2.0, 3.0, 4.0]);
        check(&line, "grad_output", &[1.0, 3.0, 2.0, 4.0]);
    }
}

#[test]
fn refusals_name_both_shapes() {
    for (line, words) in [
        (
            "--grad-output '1 0; 0 0'",
            vec!["--grad-output: has no meaning without --backward"],
        ),
        (
            "--backward --grad-output '1 2 3'",
            vec!["--grad-output:", "[1, 1, 1, 3]", "[1, 1, 2, 2]", "(output)"],
        ),
        (
            "--backward --heads 2 --grad-output '1 2 3'",
            vec!["--grad-output:", "[1, 1, 3]", "[1, 2, 2]", "(concatenated)"],
        ),
        (
            "--backward --heads 2 --grad-output '[[[[1,2]]]]'",
            vec!["--grad-output:", "[1, 1, 1, 2]", "[B, L, D]"],
        ),
        ("--backward --grad-output 'a'", vec!["--grad-output:"]),
        (
            "--x '1 2' --init normal:0.5 --residual --backward --grad-output '1;2'",
            vec!["--grad-output:", "[1, 2, 1]", "[1, 1, 2]", "(residual)"],
        ),
    ] {
        let ran = qkv(&format!("explain {line}"));
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{line}");
        for words in words {
            assert!(ran.err.contains(words), "{line}\n{words}\n{}", ran.err);
        }
        assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
    }
}

#[test]
fn what_is_not_finite_is_shown() {
    for line in [
        "--backward --grad-output 'nan 0; 0 inf'",
        "--backward --q 'inf 0; 0 1' --k '1 0; 0 1' --v '1 0; 0 1'",
        "--backward --q 'nan 0; 0 1' --k '1 0; 0 1' --v '1 0; 0 1'",
        "--backward --v '1e308 1e308; 1e308 1e308' --q '1 0; 0 1' --k '1 0; 0 1'",
    ] {
        let ran = qkv(&format!("explain {line}"));
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{line}");
        let read = json(line);
        assert!(gradient(&read, "grad_v").len() == 4, "{line}");
    }
    // Row 0's NaN touches nothing of row 1.
    let read = json("--backward --q 'nan 0; 0 1' --k '1 0; 0 1' --v '1 0; 0 1'");
    let grad = gradient(&read, "grad_q");
    assert!(grad[0].is_nan() && grad[2].is_finite(), "{grad:?}");
}

#[test]
fn a_file_holds_the_gradients_by_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("steps.safetensors");
    let line = format!("explain --backward -o {}", file.display());
    assert_eq!(qkv(&line).code, 0);
    let again = format!(
        "--q {0}:grad_q --k {0}:grad_k --v {0}:grad_v",
        file.display()
    );
    let d = 0.312_797_19;
    let found = common::step(&json(&again), "q");
    assert!(close(&found, &[-d, d, -d, d], 5e-7), "{found:?}");
}

/// Through a layer: one token attends to itself alone, so only W_V and the residual carry on.
#[test]
fn a_layer() {
    let line = "--x '1 0.5' --wq '1 0; 0 1' --wk '1 0; 0 1' --wv '2 0; 0 3' --wo '0 1; 1 0' \
                --bo '1 1' --residual --grad-output '10 1'";
    check(line, "grad_bo", &[10.0, 1.0]);
    check(line, "grad_wo", &[20.0, 2.0, 15.0, 1.5]);
    check(line, "grad_wv", &[1.0, 10.0, 0.5, 5.0]);
    check(line, "grad_wq", &[0.0; 4]);
    check(line, "grad_x", &[12.0, 31.0]);
    let cross = "--x '1 0' --context '1 2; 0 1' --wq '1 0; 0 1' --wk '1 0; 0 1' --wv '1;1'";
    let read = json(&format!("{cross} --backward"));
    assert_eq!(gradient(&read, "grad_context").len(), 4);
}
