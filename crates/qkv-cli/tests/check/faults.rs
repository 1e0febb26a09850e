//! Faults that people met, by number: each is named.

use super::{agrees, check, differs, ids};
use serde_json::json;

const FIVE: &str = "--q '0;0' --k '0;0;0;0;0' --v '1;2;3;4;5'";

#[test]
fn b001_b005_each_alignment_is_named() {
    let (top_left, bottom_right) = ("--output '1;1.5'", "--output '2.5;3'");
    agrees(&format!("{FIVE} --causal top-left {top_left}"));
    agrees(&format!("{FIVE} --causal bottom-right {bottom_right}"));
    differs(
        &format!("{FIVE} --causal top-left {bottom_right}"),
        "causal-bottom-right",
    );
    let json = differs(
        &format!("{FIVE} --causal bottom-right {top_left}"),
        "causal-top-left",
    );
    assert_eq!(json["rounding"], json!(null));
}

#[test]
fn b010_an_inverted_mask() {
    let three = "--q '1 0;0 1;1 1' --k '1 0;0 1;1 1' --v '1;10;100'";
    let mask = "--keep '1 0 0;1 1 0;1 1 1'";
    agrees(&format!("{three} {mask} --output '1;7.027854;53.07979'"));
    let inverted = format!("{three} {mask} --output '70.278539;100;0'");
    differs(&inverted, "mask-polarity");
    let causal = format!("{three} --causal --output '70.278539;100;0'");
    differs(&causal, "mask-polarity");
}

#[test]
fn b014_a_weak_fill() {
    let line = "--q 1 --k '2;1;3' --v '1;10;100' --scale 1 --drop '0 0 1'";
    agrees(&format!("{line} --weights '.731059 .268941 0'"));
    let (code, json) = check(&format!("{line} --weights '.665241 .244728 .090031'"));
    assert_eq!(code, 1);
    assert!(ids(&json).contains(&"mask-fill-weak"), "{json}");
    assert_eq!(
        json["indistinguishable"],
        json!([["mask-multiplied", "mask-fill-weak"]])
    );
}
