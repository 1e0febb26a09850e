//! `--tell-apart`: an input for which explanations give different numbers.

use super::{check, ids};
use crate::common::{refusals, run_with, words};
use serde_json::Value;
use std::path::Path;

/// Checks the same with the input of the file, whose options the report says, and these numbers.
fn again(folder: &Path, options: &str, file: &str, json: &Value, output: &str) -> Value {
    let read = json["tell_apart_options"].as_str().expect("options");
    let line = format!("check {options} {read} --output {file}:{output} --json");
    let ran = run_with(folder, &words(&line), b"");
    assert_eq!(ran.err, "", "{line}");
    serde_json::from_str(&ran.out).expect("JSON")
}

/// What the numbers of each explanation for the new input are said to be: that one, and its partners
/// no longer; and the right numbers are right.
fn separates(inputs: &str, options: &str, file: &str, group: &[&str]) {
    let folder = tempfile::tempdir().expect("a folder");
    let line = format!("check {inputs} {options} --tell-apart {file} --json");
    let ran = run_with(folder.path(), &words(&line), b"");
    assert_eq!((ran.code, ran.err.as_str()), (1, ""), "{line}");
    let json: Value = serde_json::from_str(&ran.out).expect("JSON");
    assert_eq!(
        json["indistinguishable"],
        serde_json::json!([group]),
        "{json}"
    );
    assert_eq!(json["tell_apart"], file);
    assert_eq!(json["tell_apart_together"], serde_json::json!([]), "{json}");
    let right = again(folder.path(), options, file, &json, "output");
    assert_eq!(right["verdict"], "equal", "{right}");
    for id in group {
        let found = again(folder.path(), options, file, &json, &format!("output.{id}"));
        let causes = ids(&found);
        assert!(causes.contains(id), "{id}: {found}");
        for other in group.iter().filter(|other| *other != id) {
            assert!(!causes.contains(other), "{id}, {other}: {found}");
        }
    }
}

#[test]
fn a_causal_mask_is_told_from_the_mask_of_its_window() {
    // Three tokens: a window of two keys back lacks one key of one row.
    separates(
        "--q '0;0;0' --k '0;0;0' --v '1;2;6' --output '1;1.5;3'",
        "--causal --window 1,inf",
        "a.safetensors",
        &["window-off-by-one", "window-ignored"],
    );
}

#[test]
fn masks_lengths_and_weights_of_the_file_are_read() {
    // Two of three tokens are real: one more, or all of them, is the same.
    separates(
        "--x '1 0;0 1;1 1' --kv-lengths 2 \
         --output '1 2;2.3395230986533138 -0.00928464797997064;3.0069796869691077 0.7517449217422769'",
        "--wq '1 0;0 1' --wk '1 0;0 1' --wv '1 2;3 -1' --causal",
        "a.npz",
        &["padding-ignored", "lengths-off-by-one"],
    );
}

#[test]
fn nothing_is_written_where_there_is_nothing_to_tell() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("a.npz");
    let line = format!(
        "--q 1 --k '1;2' --v '1;5' --output 2 --tell-apart {}",
        file.display()
    );
    let (_, json) = check(&line);
    assert!(
        ids(&json).len() < 2 && json["tell_apart"].is_null(),
        "{json}"
    );
    assert!(!file.exists());
}

#[test]
fn refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let two = "--q 1 --k 1 --v 1";
    refusals(
        "check",
        folder.path(),
        &[
            (
                format!("{two} --output 1 --tell-apart a.txt"),
                &["--tell-apart", ".safetensors or .npz"] as &[&str],
            ),
            (
                format!("{two} --grad-output 1 --dq 1 --tell-apart a.npz"),
                &["--grad-output", "--tell-apart"],
            ),
            (
                "--sheet s.md --tell-apart a.npz".to_owned(),
                &["--tell-apart", "--sheet"],
            ),
        ],
    );
}
