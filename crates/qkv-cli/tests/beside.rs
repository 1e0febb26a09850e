//! What can be shown beside the calculation.

mod common;

use common::{close, json, qkv};
use serde_json::Value;

const THREE: &str = "--q '1 0; 0 1; 1 1' --k '1 0; 0 1; 1 1' --v '1; 10; 100'";

fn numbers(value: &Value) -> Vec<f64> {
    match value {
        Value::Array(list) => list.iter().flat_map(numbers).collect(),
        value => value.as_f64().into_iter().collect(),
    }
}

#[test]
fn b010_contrast_in_json_beside_what_is_there_anyway() {
    let plain = json(&format!("{THREE} --causal"));
    let with = json(&format!("{THREE} --causal --contrast"));
    let contrast = with["contrast"].as_array().expect("a list");
    let ids: Vec<&Value> = contrast.iter().map(|wrong| &wrong["id"]).collect();
    let expected = [
        "softmax-over-queries",
        "softmax-joint",
        "scale",
        "scale",
        "mask-polarity",
    ];
    assert_eq!(ids, expected);
    let inverted = numbers(&contrast[4]["output"]);
    assert!(
        close(&inverted, &[70.278_539, 100.0, 0.0], 1e-6),
        "{inverted:?}"
    );
    for key in ["shapes", "options", "steps", "empty_rows"] {
        assert_eq!(with[key], plain[key]);
    }
    assert!(plain.get("contrast").is_none());
}

#[test]
fn b038_the_width_of_the_model_is_that_of_all_heads_or_of_x() {
    let heads =
        json("--heads 4 --q '1 0 0 1 2 0 1 0' --k '1 0 0 1 2 0 1 0' --v '1 2 3 4' --contrast");
    let parameters = |json: &Value| json["contrast"][3]["parameters"].clone();
    assert_eq!(parameters(&heads)["model_width"], 8);
    assert_eq!(parameters(&heads)["scale"], 1.0 / 8_f64.sqrt());
    let x = json("--x '1 0 2; 0 1 1' --init xavier --heads 2 --dk 4 --contrast");
    assert_eq!(parameters(&x)["model_width"], 3);
    let text =
        qkv("explain --lang en --x '1 0 2; 0 1 1' --init xavier --heads 2 --dk 4 --contrast").out;
    assert!(text.contains("the width of x, 3"), "{text}");
}
