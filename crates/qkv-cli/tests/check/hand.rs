//! Slips of hand calculations: one row off, numbers typed with few digits.

use super::{agrees, differs};
use crate::common::qkv;
use serde_json::json;

const THREE: &str = "--q '2 0 0 0;0 2 0 0;2 2 0 0' --k '1 0 0 0;0 1 0 0;2 1 0 0' --v '1;2;3'";
const RIGHT: &str = ".2447 .0900 .6652;.1554 .4223 .4223;.1065 .1065 .7870";

fn with_row_2(row: &str) -> String {
    let (first, _) = RIGHT.rsplit_once(';').expect("three rows");
    format!("{THREE} --weights '{first};{row}'")
}

#[test]
fn a_row_scaled_otherwise() {
    agrees(&with_row_2(".1065 .1065 .7870"));
    let line = with_row_2(".2119 .2119 .5761");
    let json = differs(&line, "row-divided-by-d");
    assert_eq!(
        json["causes"][0]["parameters"],
        json!({"row": 2, "d": 4.0, "root": 2.0})
    );
    let said = qkv(&format!("check {line}")).out;
    assert!(
        said.contains("Row 2: divided by d = 4 instead of √d = 2."),
        "{said}"
    );
    let zh = qkv(&format!("check {line} --lang zh")).out;
    assert!(zh.contains("第2行：除以了d = 4，而应除以√d = 2。"), "{zh}");
    differs(&with_row_2(".0177 .0177 .9647"), "row-not-divided");
}

/// Of an output too, whose other rows are right.
#[test]
fn a_row_of_an_output_scaled_otherwise() {
    let line = |row: &str| {
        let (q, k) = ("2 0 0 0;0 2 0 0;2 2 0 0", "1 0 0 0;0 1 0 0;2 1 0 0");
        let output = format!("2.42 3.42;2.27 2.53;{row}");
        format!("--q '{q}' --k '{k}' --v '1 0;2 1;3 5' --output '{output}'")
    };
    agrees(&line("2.68 4.04"));
    let json = differs(&line("2.36 3.09"), "row-divided-by-d");
    assert_eq!(json["causes"][0]["parameters"]["row"], json!(2));
    differs(&line("2.95 4.84"), "row-not-divided");
    let said = qkv(&format!("check {} --json", line("2.10 3.80"))).out;
    let json: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!(json["causes"], json!([]));
}

#[test]
fn one_exponential_off() {
    // 0.5 instead of 1 for the third.
    let json = differs(&with_row_2(".1756 .1756 .6488"), "exp-off");
    assert_eq!(json["causes"][0]["parameters"], json!({"row": 2, "key": 2}));
    differs(&with_row_2(".1353 .1353 1.0000"), "row-not-normalised");
    // Without the maximum taken off.
    differs(&with_row_2("2.7183 2.7183 20.0855"), "row-not-normalised");
}

#[test]
fn what_has_no_reason_gets_none() {
    let said = qkv(&format!("check {} --json", with_row_2(".2000 .3000 .5000"))).out;
    let json: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!(
        (&json["verdict"], &json["causes"]),
        (&json!("different"), &json!([]))
    );
    assert_eq!(json["first_difference"]["index"], json!([0, 0, 2, 0]));
}
