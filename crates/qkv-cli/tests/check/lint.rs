//! What is odd about input and numbers is said, and only where it is there.

use super::check;
use crate::common::qkv;
use serde_json::{Value, json};

const TWO: &str = "--q '1 0;0 1' --k '1 0;0 1' --v '2 0;0 4'";

fn finding(line: &str, id: &str) -> Option<Value> {
    let (_, json) = check(line);
    let lint = json["lint"].as_array().expect("a list");
    lint.iter().find(|lint| lint["id"] == id).cloned()
}

#[track_caller]
fn finds(line: &str, id: &str) -> Value {
    let found = finding(line, id).expect(id);
    let says = found["says"].as_str().expect("a text");
    assert!(!says.is_empty() && !says.contains(['{', '?']), "{says}");
    found["parameters"].clone()
}

#[test]
fn nothing_is_said_of_what_is_usual() {
    let lines = [
        format!("{TWO} --weights '.67 .33; .33 .67'"),
        format!("{TWO} --bias '0 -inf; .5 0' --output '2 0; 1 2'"),
        format!("{TWO} --causal --weights '1 0; .33 .67'"),
        format!("{TWO} --bias '.25 -.5; 1 0' --output '2 0; 1 2'"),
    ];
    for line in lines {
        assert_eq!(check(&line).1["lint"], json!([]), "{line}");
    }
}

#[test]
fn a_bias_that_is_a_mask() {
    finds(
        &format!("{TWO} --bias '1 0; 1 1' --output '2 0; 1 2'"),
        "bias-of-0-and-1",
    );
    let weak = finds(
        &format!("{TWO} --bias '0 -1e-12; 0 0' --output '2 0; 1 2'"),
        "bias-fill-weak",
    );
    assert_eq!(weak["fill"], json!(-1e-12));
    assert_eq!(weak["at"], json!([0, 0, 0, 1]));
    assert!(
        (weak["weight"].as_f64().expect("a number") - 0.330_238_6).abs() < 1e-6,
        "{weak}"
    );
    // So low that no score comes near.
    let low = format!("{TWO} --bias '0 -1e9; 0 0' --output '2 0; 1 2'");
    assert_eq!(finding(&low, "bias-fill-weak"), None);
}

#[test]
fn b017_rows_of_finite_minima_have_no_real_key() {
    let line = "--q '0;0;0;0;0' --k '0;0;0;0;0' --v '1;2;3;4;5' --causal \
                --bias '-3.4028235e38 -3.4028235e38 -3.4028235e38 0 0' --output '1;1.5;2;4;4.5'";
    let only = finds(line, "bias-fill-only");
    assert_eq!(only, json!({"count": 3, "at": [0, 0, 0]}));
}

#[test]
fn b018_rows_without_a_key() {
    let line = "--q '0;0;0' --k '0;0;0' --v '1;2;6' --drop '0 0 0;1 1 1;0 0 0' --output '3;0;3'";
    assert_eq!(
        finds(line, "rows-without-key"),
        json!({"count": 1, "at": [0, 0, 1]})
    );
}

#[test]
fn b014_weight_where_a_mask_drops() {
    let line = "--q 1 --k '2;1;3' --v '1;10;100' --scale 1 --drop '0 0 1' \
                --weights '.665241 .244728 .090031'";
    let weight = json!({"weight": 0.090031, "at": [0, 0, 0, 2]});
    assert_eq!(finds(line, "weight-on-dropped"), weight);
    let said = qkv(&format!("check {line}")).out;
    assert!(
        said.contains("masked position carries weight 0.090031"),
        "{said}"
    );
    let padded = line.replace("--drop '0 0 1'", "--kv-lengths 2");
    assert_eq!(finds(&padded, "weight-on-padding"), weight);
    let causal = line.replace("--drop '0 0 1'", "--causal 1");
    assert_eq!(finds(&causal, "weight-above-causal"), weight);
}

#[test]
fn what_sums_to_one() {
    // B035.
    let line = "--q '1;0' --k '0;0' --v '1;2' --weights";
    let id = |weights: &str| {
        let (_, json) = check(&format!("{line} '{weights}'"));
        json["lint"][0]["id"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    assert_eq!(
        id(".119203 .047426; .880797 .952574"),
        "weights-columns-sum-to-1"
    );
    assert_eq!(id(".1 .2; .3 .4"), "weights-sum-to-1-in-all");
    assert_eq!(id(".50 .50; .65 .65"), "weights-do-not-sum-to-1");
    // As far as the digits typed go, and as formats do.
    assert_eq!(id(".3 .3; .5 .5"), "weights-do-not-sum-to-1");
    assert_eq!(id(".46 .55; .5 .5"), "");
    assert_eq!(id(".498 .4995; .5 .5"), "");
}

#[test]
fn nan_and_shapes_and_range() {
    let bias = format!("{TWO} --bias '0 nan; 0 0' --output '2 0; 1 2'");
    assert_eq!(
        finds(&bias, "bias-nan"),
        json!({"count": 1, "at": [0, 0, 0, 1]})
    );
    finds(&bias, "reference-nan");
    let square = "--q '[[[1],[2]],[[3],[4]]]' --k '[[[1],[2]],[[3],[4]]]' --v '[[[1],[2]],[[3],[4]]]' \
                  --output '[[[1],[2]],[[3],[4]]]'";
    assert_eq!(finds(square, "layout-ambiguous"), json!({"size": 2}));
    // B025: 128·256·256, and that over √128.
    let row = |x: f64| vec![x.to_string(); 128].join(" ");
    let line = format!(
        "--q '{}' --k '{};{}' --v '1;2' --output 1",
        row(256.0),
        row(256.0),
        row(255.744)
    );
    let range = finds(&line, "fp16-overflow");
    assert_eq!(range["score"], json!(8388608.0));
    assert!(
        (range["scaled"].as_f64().expect("a number") - 741_455.2).abs() < 0.01,
        "{range}"
    );
    assert_eq!(
        finding(&format!("{TWO} --output '2 0; 1 2'"), "fp16-overflow"),
        None
    );
}
