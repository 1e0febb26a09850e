//! Faults that people met, by number: each is named.

use super::{agrees, check, differs, ids};
use crate::common::{Ran, run_with, words};
use serde_json::{Value, json};

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

/// Numbers in [B,L,H,d] are of the format that they are in, as those in [B,H,L,d] are; and those of one
/// batch entry in [L,H,d].
#[test]
fn the_layout_leaves_the_number_format_as_it_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("x.safetensors");
    // Four tokens, three heads, two columns; all scores are 0, so that a head's output is its mean.
    let v: Vec<f32> = (0..24).map(|n| (0.3 + 1.7 * n as f32).sin()).collect();
    let mean = |at: usize| (0..4).map(|j| v[j * 6 + at % 6]).sum::<f32>() / 4.0;
    let o: Vec<f32> = (0..24).map(mean).collect();
    let zero = vec![0.0; 24];
    for shape in [&[1, 4, 3, 2][..], &[4, 3, 2]] {
        let array = |numbers: &[f32]| qkv_io::Array {
            shape: shape.to_vec(),
            values: numbers.to_vec().into(),
            decimals: None,
        };
        let (q, v, o) = (array(&zero), array(&v), array(&o));
        qkv_io::write_arrays(&file, &[("q", &q), ("v", &v), ("o", &o)], &[]).expect("a file");
        let line = "check --q x.safetensors:q --k x.safetensors:q --v x.safetensors:v \
                    --output x.safetensors:o --layout blhd --json";
        let Ran { code, out, err } = run_with(folder.path(), &words(line), b"");
        assert_eq!((code, err.as_str()), (0, ""), "{shape:?}\n{out}");
        let json: Value = serde_json::from_str(&out).expect("JSON");
        assert_eq!(json["verdict"], json!("equal"), "{shape:?}\n{json}");
        // Half a unit of single precision at least, which is no double's.
        assert!(json["bound"].as_f64() > Some(1e-9), "{json}");
    }
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

#[test]
fn b014_a_weak_fill_that_is_added_and_is_no_usual_number() {
    // −4.3 added to the scores of dropped keys.
    let json = differs(
        "--q '1 .5;-1 2;.5 -1' --k '1 0;.5 1;-1 1;2 -.5' --v '1 2;4 -3;7 5;-2 6' \
         --keep '1 0 1 1;1 1 0 0;0 1 1 0' --output '0.02578311719835269 4.539417389293024;\
         3.671241757542521 -2.0316501572917676;4.750714954251166 0.24134170847046657'",
        "mask-fill-weak",
    );
    let fill = json["causes"][0]["parameters"]["fill"].as_f64();
    assert!(fill.is_some_and(|fill| (fill + 4.3).abs() < 1e-6), "{json}");
}

/// Numbers with a blank between, row by row.
fn rows(rows: &[&[f64]]) -> String {
    let row = |row: &&[f64]| {
        let numbers: Vec<String> = row.iter().map(|x| format!("{x:?}")).collect();
        numbers.join(" ")
    };
    let rows: Vec<String> = rows.iter().map(row).collect();
    format!("'{}'", rows.join(";"))
}

const NONE: &str = "--q '0;0;0;0;0' --k '0;0;0;0;0' --v '1;2;3;4;5'";

#[test]
fn b003_more_queries_than_keys() {
    let line = "--q '0;0;0;0;0' --k '0;0' --v '10;20' --causal bottom-right";
    agrees(&format!("{line} --output '0;0;0;10;15'"));
    differs(
        &format!("{line} --output '10;15;15;15;15'"),
        "causal-top-left",
    );
}

#[test]
fn b009_a_cache_and_the_causal_mask() {
    let line = "--q '0;0' --k '0;0' --v '4;5' --past-k '0;0;0' --past-v '1;2;3'";
    let line = format!("{line} --causal bottom-right");
    agrees(&format!("{line} --output '2.5;3'"));
    let (code, json) = check(&format!("{line} --output '1;1.5'"));
    assert_eq!(code, 1);
    let named = ids(&json);
    assert!(named.contains(&"cache-offset"), "{json}");
    assert!(named.contains(&"causal-top-left"), "{json}");
    let four = "--q '0;0;0;0' --k '0;0;0;0' --v '1;2;3;4' --causal";
    differs(
        &format!("{four} --output '2.5;2.5;2.5;2.5'"),
        "causal-missing",
    );
}

#[test]
fn b012_nan_in_a_dropped_value() {
    let line = "--q '0 1 2 3;4 5 6 7' --k '0 1 2 3;nan 5 6 7' --v '0 1 2 3;nan 5 6 7' --drop '0 1'";
    agrees(&format!("{line} --output '0 1 2 3;0 1 2 3'"));
    let (code, json) = check(&format!(
        "{line} --output 'nan nan nan nan;nan nan nan nan'"
    ));
    assert_eq!(code, 1);
    assert!(ids(&json).contains(&"masked-nan-leak"), "{json}");
}

#[test]
fn b017_two_least_numbers_overflow() {
    let line = format!("{NONE} --causal --keep '0 0 0 1 1'");
    agrees(&format!("{line} --output '0;0;0;4;4.5'"));
    let (code, json) = check(&format!("{line} --output 'nan;nan;nan;4;4.5'"));
    assert_eq!(code, 1);
    assert!(ids(&json).contains(&"mask-fill-overflow"), "{json}");
}

#[test]
fn b018_a_row_without_a_key() {
    let line = "--q '0;0;0' --k '0;0;0' --v '1;2;6' --keep '1 1 1;0 0 0;1 1 1'";
    agrees(&format!("{line} --output '3;0;3'"));
    let json = differs(&format!("{line} --output '3;nan;3'"), "empty-row");
    assert_eq!(json["causes"][0]["parameters"]["gives"], "nan");
    let (code, json) = check(&format!("{line} --output '3;3;3'"));
    assert_eq!(code, 1);
    assert!(ids(&json).contains(&"empty-row"), "{json}");
    assert_eq!(json["first_difference"]["index"], json!([0, 0, 1, 0]));
}

#[test]
fn b022_b099_a_right_answer_that_is_nan() {
    let line = "--q 'nan;0' --k '1;2' --v '1;3'";
    let (code, json) = check(&format!("{line} --output '0;2'"));
    assert_eq!((code, json["verdict"].as_str()), (1, Some("different")));
    assert_eq!(ids(&json), [""; 0]);
    assert_eq!(json["first_difference"]["index"], json!([0, 0, 0, 0]));
    assert_eq!(json["first_difference"]["right"], "nan");
    assert_eq!(json["lint"][0]["id"], "reference-nan");
    let (code, json) = check(&format!("{line} --output 'nan;2'"));
    assert_eq!((code, json["verdict"].as_str()), (0, Some("equal")));
    assert_eq!(json["lint"][0]["id"], "reference-nan");
}

#[test]
fn b024_phantom_keys() {
    let keys = vec!["-1"; 65].join(";");
    let values = vec!["1"; 65].join(";");
    let line = format!("--q 1 --k '{keys}' --v '{values}' --scale 1");
    agrees(&format!("{line} --output 1"));
    let json = differs(&format!("{line} --output 0.27513"), "phantom-keys");
    assert_eq!(json["causes"][0]["parameters"]["count"], 63);
}

#[test]
fn b025_half_precision_overflows() {
    let row = |x: f64| vec![x.to_string(); 128].join(" ");
    let (q, k) = (row(256.0), row(0.999 * 256.0));
    let line = format!("--q '{q}' --k '{q};{k}' --v '1;2'");
    agrees(&format!("{line} --weights '1 0'"));
    differs(&format!("{line} --weights 'nan nan'"), "fp16-overflow");
}

#[test]
fn b027_two_runs_that_differ() {
    let line = "--q '1 0;0 1' --k '1 0;0 1' --v '2 0;0 4'";
    let right = "--output '1.3395 1.321;0.6605 2.679'";
    agrees(&format!("{line} {right} {right}"));
    differs(
        &format!("{line} --output '2.679 0;1.321 5.358' --output '0 2.642;1.321 5.358'"),
        "dropout-on",
    );
}

#[test]
fn b035_softmax_over_the_queries() {
    let line = "--q '1 2;3 5' --k '1 0;0 1' --v '1;2' --scale 1";
    agrees(&format!(
        "{line} --weights '.268941 .731059;.119203 .880797'"
    ));
    differs(
        &format!("{line} --weights '.119203 .047426;.880797 .952574'"),
        "softmax-over-queries",
    );
}

/// A query and two keys of width d, whose products are these.
fn products(d: usize, raw: [f64; 2]) -> String {
    let row = |first: f64| {
        let mut row = vec!["0".to_owned(); d];
        row[0] = first.to_string();
        row.join(" ")
    };
    format!(
        "--q '{}' --k '{};{}' --v '1;2'",
        row(1.0),
        row(raw[0]),
        row(raw[1])
    )
}

#[test]
fn b038_the_width_of_the_model() {
    // Four heads of 16: the same numbers in each.
    let head = |first: f64| {
        let mut row = vec!["0".to_owned(); 16];
        row[0] = first.to_string();
        vec![row.join(" "); 4].join(" ")
    };
    let line = format!(
        "--heads 4 --q '{}' --k '{};{}' --v '1 1 1 1;2 2 2 2'",
        head(1.0),
        head(4.0),
        head(0.0)
    );
    let four = |row: &str| format!("'{}'", vec![format!("[[{row}]]"); 4].join(","));
    let weights = |row| format!("--weights [{}]", four(row).trim_matches('\''));
    agrees(&format!("{line} {}", weights(".731059,.268941")));
    let json = differs(&format!("{line} {}", weights(".622459,.377541")), "scale");
    let parameters = &json["causes"][0]["parameters"];
    assert_eq!(parameters["factor"], 0.5);
    assert!(
        parameters["named"]
            .as_array()
            .expect("names")
            .contains(&json!("model-width")),
        "{json}"
    );
}

#[test]
fn b040_b043_no_scale() {
    let line = products(64, [8.0, 0.0]);
    agrees(&format!("{line} --weights '.731059 .268941'"));
    let json = differs(&format!("{line} --weights '.999665 .000335'"), "scale");
    assert_eq!(json["causes"][0]["parameters"]["named"][0], "missing");
    let t5 = products(64, [2.0, 0.0]);
    agrees(&format!("{t5} --scale 1 --weights '.880797 .119203'"));
    let json = differs(&format!("{t5} --weights '.880797 .119203'"), "scale");
    assert_eq!(json["causes"][0]["parameters"]["factor"], 8.0);
    assert_eq!(json["causes"][0]["parameters"]["named"][0], "missing");
}

#[test]
fn b044_heads_merged_by_reshaping() {
    // Each query sees its own key only.
    let own = "[[[100,0],[0,100]],[[100,0],[0,100]]]";
    let line = format!("--q {own} --k {own} --v [[[1,2],[3,4]],[[5,6],[7,8]]]");
    agrees(&format!("{line} --output '1 2 5 6;3 4 7 8'"));
    agrees(&format!("{line} --output [[[1,2],[3,4]],[[5,6],[7,8]]]"));
    differs(
        &format!("{line} --output '1 2 3 4;5 6 7 8'"),
        "heads-merged-without-transpose",
    );
    let line = "--heads 2 --q '100 0 100 0;0 100 0 100' --k '100 0 100 0;0 100 0 100' \
                --v '1 2 5 6;3 4 7 8'";
    agrees(&format!("{line} --output '1 2 5 6;3 4 7 8'"));
    differs(
        &format!("{line} --output '1 2 3 4;5 6 7 8'"),
        "heads-merged-without-transpose",
    );
}

#[test]
fn b047_tiled_groups() {
    let line = "--q [[[1]],[[2]],[[3]],[[4]]] --k [[[1]],[[2]]] --v [[[10]],[[20]]]";
    agrees(&format!("{line} --output [[[10]],[[10]],[[20]],[[20]]]"));
    differs(
        &format!("{line} --output [[[10]],[[20]],[[10]],[[20]]]"),
        "groups-tiled",
    );
}

#[test]
fn b050_rotary_pairs() {
    let line = "--q '1 2 3 4;4 3 2 1;1 -1 2 -2' --k '2 1 0 1;0 1 1 -1;1 1 2 -1' --v '1;2;4'";
    let weights = |kind: &str| -> String {
        let ran = super::qkv(&format!("explain {line} --position {kind} --json"));
        let json: Value = serde_json::from_str(&ran.out).expect("JSON");
        let steps = json["steps"].as_array().expect("steps");
        let found = steps.iter().find(|step| step["name"] == "weights");
        found.expect("weights")["values"].to_string()
    };
    let (halves, neighbours) = (weights("rotary"), weights("rotary-interleaved"));
    agrees(&format!("{line} --position rotary --weights {halves}"));
    differs(
        &format!("{line} --position rotary --weights {neighbours}"),
        "rotary-pairing",
    );
    let plain = super::qkv(&format!("explain {line} --json")).out;
    let plain: Value = serde_json::from_str(&plain).expect("JSON");
    let steps = plain["steps"].as_array().expect("steps");
    let plain = steps.iter().find(|step| step["name"] == "weights");
    let plain = plain.expect("weights")["values"].to_string();
    differs(
        &format!("{line} --position rotary --weights {plain}"),
        "rotary-missing",
    );
}

#[test]
fn b058_padding_of_an_encoder() {
    let line = "--q 0 --k '0;0;0;0' --v '1;3;0;0' --kv-lengths 2";
    agrees(&format!("{line} --output 2"));
    differs(&format!("{line} --output 1"), "padding-ignored");
    let mask = "--q 0 --k '0;0;0;0' --v '1;3;0;0' --keep '1 1 0 0'";
    differs(&format!("{mask} --output 1"), "padding-ignored");
}

#[test]
fn b060_a_window_of_keys_or_of_keys_before() {
    let (keys, back) = ("'1;1.5;2.5;3.5;4.5'", "'1;1.5;2;3;4'");
    agrees(&format!("{NONE} --causal --window 1,0 --output {keys}"));
    agrees(&format!("{NONE} --causal --window 2,0 --output {back}"));
    for (window, theirs) in [("1,0", back), ("2,0", keys)] {
        differs(
            &format!("{NONE} --causal --window {window} --output {theirs}"),
            "window-off-by-one",
        );
    }
}

#[test]
fn b063_alibi() {
    let line = "--q '0;0;0' --k '0;0;0' --v '1;2;4' --causal --alibi .5";
    let softmax = |logits: &[f64]| -> Vec<f64> {
        let sum: f64 = logits.iter().map(|x| x.exp()).sum();
        logits.iter().map(|x| x.exp() / sum).collect()
    };
    let far = softmax(&[-1.0, -0.5, 0.0]);
    assert!((far[0] - 0.186324).abs() < 1e-6);
    let near = softmax(&[-0.5, 0.0]);
    let right = rows(&[&[1.0, 0.0, 0.0], &[near[0], near[1], 0.0], &far]);
    agrees(&format!("{line} --weights {right}"));
    let wrong = rows(&[
        &[1.0, 0.0, 0.0],
        &[near[1], near[0], 0.0],
        &[far[2], far[1], far[0]],
    ]);
    differs(&format!("{line} --weights {wrong}"), "alibi-sign");
    // Eight heads whose exponents start at 0: each slope is twice what it should be.
    let zeros = format!("[{}]", ["[[0],[0],[0]]"; 8].join(","));
    let eight: Vec<String> = (0..8)
        .map(|h| {
            let slope = 2f64.powi(-h);
            let row = |logits: &[f64]| {
                let mut row = softmax(logits);
                row.resize(3, 0.0);
                format!("{row:?}")
            };
            format!(
                "[{},{},{}]",
                row(&[0.0]),
                row(&[-slope, 0.0]),
                row(&[-2.0 * slope, -slope, 0.0])
            )
        })
        .collect();
    let weights = format!("[{}]", eight.join(",")).replace(' ', "");
    let line = format!("--q {zeros} --k {zeros} --v {zeros} --causal --alibi");
    let json = differs(&format!("{line} --weights {weights}"), "alibi-slopes");
    assert_eq!(json["causes"][0]["parameters"]["kind"], "exponent-from-0");
}

#[test]
fn b064_softcap_after_the_mask() {
    let line = "--q 1 --k '0;5' --v '1;2' --scale 1 --drop '0 1' --softcap 1";
    agrees(&format!("{line} --weights '1 0'"));
    differs(
        &format!("{line} --weights '.731059 .268941'"),
        "softcap-after-mask",
    );
}

#[test]
fn b067_packed_documents() {
    let line = format!("{NONE} --documents 2,3 --causal");
    agrees(&format!("{line} --output '1;1.5;3;3.5;4'"));
    differs(
        &format!("{line} --output '1;1.5;2;2.5;3'"),
        "documents-mixed",
    );
}

#[test]
fn b073_a_fused_array_read_in_another_order() {
    // Two heads of 1; the fused row 1 2 3 4 5 6 is q0 q1 k0 k1 v0 v1, or q0 k0 v0 q1 k1 v1.
    let x = "'1 0;0 1;1 1'";
    let line = format!("--x {x} --heads 2 --wq '1 2;2 -1' --wk '3 4;0 1' --wv '5 6;1 3'");
    let right = output(&line);
    agrees(&format!("{line} --output {right}"));
    let other = format!("--x {x} --heads 2 --wq '1 4;2 1' --wk '2 5;-1 1' --wv '3 6;0 3'");
    let wrong = output(&other);
    differs(&format!("{line} --output {wrong}"), "qkv-fused-layout");
}

/// What a run ends with, as a literal.
fn output(line: &str) -> String {
    let ran = super::qkv(&format!("explain {line} --json"));
    assert_eq!(ran.err, "", "{line}");
    let json: Value = serde_json::from_str(&ran.out).expect("JSON");
    let steps = json["steps"].as_array().expect("steps");
    let found = steps.iter().rev().find(|step| {
        ["output", "concatenated", "projected"]
            .iter()
            .any(|name| step["name"] == *name)
    });
    found.expect("an end")["values"].to_string()
}

#[test]
fn b094_shifted_rows_and_positions() {
    let line = "--q 1 --k '1;2;3' --v '1;2;3' --scale 1";
    let json = differs(&format!("{line} --scores '0 1 2'"), "row-shift");
    assert_eq!(json["causes"][0]["parameters"]["shift"], -1.0);
    let two = "--q '1;2' --k '1;2;3' --v '1.5;2;-3' --scale 1";
    let right = output(two);
    let rows = right.trim_matches(['[', ']']).replace("],[", ";");
    differs(&format!("{two} --output '7;{rows}'"), "position-extra");
    let last = rows.split(';').next_back().expect("a row").to_owned();
    differs(&format!("{two} --output {last}"), "position-missing");
}
