//! `qkv check` as a user runs it.

#[path = "../common/mod.rs"]
mod common;

mod against;
mod apart;
mod dumps;
mod faults;
mod format;
mod gradients;
mod hand;
mod lint;
mod sheet;

use common::{Ran, qkv};
use serde_json::Value;

/// What `qkv check LINE --json` prints, and its exit status.
fn check(line: &str) -> (i32, Value) {
    let Ran { code, out, err } = qkv(&format!("check {line} --json"));
    assert_eq!(err, "", "{line}");
    (code, serde_json::from_str(&out).expect("JSON"))
}

/// The ids of the causes, in order.
fn ids(json: &Value) -> Vec<&str> {
    let causes = json["causes"].as_array().expect("a list");
    causes
        .iter()
        .map(|cause| cause["id"].as_str().expect("an id"))
        .collect()
}

/// The numbers differ, and this is the first cause named.
#[track_caller]
fn differs(line: &str, id: &str) -> Value {
    let (code, json) = check(line);
    assert_eq!(
        (code, json["verdict"].as_str(), ids(&json).first().copied()),
        (1, Some("different"), Some(id)),
        "{line}\n{json}"
    );
    json
}

/// The numbers agree, and nothing is named.
#[track_caller]
fn agrees(line: &str) {
    let (code, json) = check(line);
    assert_eq!(
        (code, json["verdict"].as_str(), ids(&json).len()),
        (0, Some("equal"), 0),
        "{line}\n{json}"
    );
}

#[test]
fn digits_typed_decide() {
    let two = "--q '1 0; 0 1' --k '1 0; 0 1' --v '2 0; 0 4'";
    agrees(&format!("{two} --weights '0.67 0.33; 0.33 0.67'"));
    let json = differs(&format!("{two} --weights '0.73 0.27; 0.27 0.73'"), "scale");
    assert_eq!(json["first_difference"]["step"], "weights");
    assert_eq!(
        json["first_difference"]["index"],
        serde_json::json!([0, 0, 0, 0])
    );
}
