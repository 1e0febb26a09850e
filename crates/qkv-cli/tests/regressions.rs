//! Faults that people had elsewhere, through the command line; numbers as in the engine's tests.

mod common;

use common::{check, json, qkv, step};
use serde_json::json;

/// "Causal" is two masks once the numbers of queries and keys differ.
#[test]
fn b001_causal_must_be_named() {
    let line = "--q '0;0' --k '0;0;0;0;0' --v '1;2;3;4;5'";
    check(&format!("{line} --causal top-left"), "output", &[1.0, 1.5]);
    check(
        &format!("{line} --causal bottom-right"),
        "output",
        &[2.5, 3.0],
    );
    let ran = qkv(&format!("explain {line} --causal"));
    assert_eq!(ran.code, 2);
    for words in [
        "--causal",
        "top-left",
        "bottom-right",
        "2 queries",
        "5 keys",
    ] {
        assert!(ran.err.contains(words), "{}", ran.err);
    }
    let named = json(&format!("{line} --causal top-left"));
    assert_eq!(named["options"]["causal"], "top-left");
}

/// More queries than keys, bottom-right: rows that see nothing are zero and reported.
#[test]
fn b003_rows_before_the_first_key() {
    let line = "--q '0;0;0;0;0' --k '0;0' --v '10;20'";
    let found = json(&format!("{line} --causal bottom-right"));
    assert_eq!(step(&found, "output"), [0.0, 0.0, 0.0, 10.0, 15.0]);
    assert_eq!(
        found["empty_rows"],
        json!([[0, 0, 0], [0, 0, 1], [0, 0, 2]])
    );
    check(
        &format!("{line} --causal top-left"),
        "output",
        &[10.0, 15.0, 15.0, 15.0, 15.0],
    );
}

/// True keeps in one system and drops in its sibling.
#[test]
fn b010_keep_and_drop() {
    let line = "--q '1 0;0 1;1 1' --k '1 0;0 1;1 1' --v '1;10;100'";
    let lower = "'1 0 0; 1 1 0; 1 1 1'";
    check(
        &format!("{line} --keep {lower}"),
        "output",
        &[1.0, 7.027_854, 53.079_79],
    );
    let inverted = json(&format!("{line} --drop {lower}"));
    let output = step(&inverted, "output");
    assert!(
        common::close(&output, &[70.278_539, 100.0, 0.0], 1e-6),
        "{output:?}"
    );
    assert_eq!(inverted["empty_rows"], json!([[0, 0, 2]]));
}

/// A NaN in a dropped key or value stays there.
#[test]
fn b012_nan_in_a_dropped_key() {
    let line = "--q '0 1 2 3;4 5 6 7' --k '0 1 2 3;nan 5 6 7' --v '0 1 2 3;nan 5 6 7' --drop '0 1'";
    check(line, "output", &[0.0, 1.0, 2.0, 3.0, 0.0, 1.0, 2.0, 3.0]);
}

/// Masks of the lowest finite number drop nothing, which the text says; −∞ drops as a mask does.
#[test]
fn b017_finite_minimum_masks() {
    let line = "--q '0;0;0' --k '0;0;0' --v '1;2;6' \
                --bias '-65504 -65504 -65504; 0 -65504 -65504; -inf -inf -inf'";
    check(line, "output", &[3.0, 1.0, 0.0]);
    let text = qkv(&format!("explain {line} --lang en"))
        .out
        .replace('\n', " ");
    assert!(
        text.contains("row 0 keeps no key whose bias is above −65504"),
        "{text}"
    );
    assert!(!text.contains("row 1 keeps no key"), "{text}");
    assert!(text.contains("row 2 keeps no key (fully masked)"), "{text}");
}

/// A row with every key dropped is zero, reported, or an error.
#[test]
fn b018_empty_row() {
    let line = "--q '0;0;0' --k '0;0;0' --v '1;2;6' --drop '0 0 0; 1 1 1; 0 0 0'";
    let found = json(line);
    assert_eq!(step(&found, "output"), [3.0, 0.0, 3.0]);
    assert_eq!(step(&found, "weights")[3..6], [0.0; 3]);
    assert_eq!(found["empty_rows"], json!([[0, 0, 1]]));
    let ran = qkv(&format!("explain {line} --empty-rows error"));
    assert_eq!(ran.code, 2);
    assert!(
        ran.err.contains("--empty-rows") && ran.err.contains("[0, 0, 1]"),
        "{}",
        ran.err
    );
}

/// Heads are put side by side token by token.
#[test]
fn b044_merging_heads() {
    let line = "--q '[[[0],[0]],[[0],[0]]]' --k '[[[0],[0]],[[0],[0]]]' \
                --v '[[[1,2],[3,4]],[[5,6],[7,8]]]' --keep '1 0; 0 1'";
    check(
        line,
        "concatenated",
        &[1.0, 2.0, 5.0, 6.0, 3.0, 4.0, 7.0, 8.0],
    );
}

/// Columns are split into heads, not rows.
#[test]
fn b045_splitting_heads() {
    let line = "--q '0 1 2 3;4 5 6 7' --k '0 1 2 3;4 5 6 7' --v '0 1 2 3;4 5 6 7' --heads 2";
    check(line, "v", &[0.0, 1.0, 4.0, 5.0, 2.0, 3.0, 6.0, 7.0]);
    // A page whose first matrices are those of heads says that they were columns of one.
    for (option, says) in [
        (
            "--lang en",
            "columns of V are split: head 0 takes columns 0 to 1, head 1",
        ),
        ("--lang zh", "V的各列分给各头：头0取第0到1列，头1取第2到3列"),
    ] {
        let page = qkv(&format!("explain {line} {option} --width 1000")).out;
        assert!(page.contains(says), "{page}");
        let given = line.strip_suffix(" --heads 2").expect("heads");
        let one = qkv(&format!("explain {given} --heads 1 {option} --width 1000"));
        assert!(!one.out.contains("are split") && !one.out.contains("分给各头"));
    }
}

/// Grouped heads repeat each key head, they do not tile.
#[test]
fn b047_grouped_heads() {
    let line = "--q '[[[0]],[[0]],[[0]],[[0]]]' --k '[[[0]],[[0]]]' --v '[[[10]],[[20]]]'";
    check(line, "output", &[10.0, 10.0, 20.0, 20.0]);
}

/// A window of W keys and a window of W back plus the own key both have a name.
#[test]
fn b060_window() {
    let line = "--q '0;0;0;0;0' --k '0;0;0;0;0' --v '1;2;3;4;5' --causal";
    check(
        &format!("{line} --window 1,0"),
        "output",
        &[1.0, 1.5, 2.5, 3.5, 4.5],
    );
    check(
        &format!("{line} --window 2,0"),
        "output",
        &[1.0, 1.5, 2.0, 3.0, 4.0],
    );
}

/// A page's hand example.
#[test]
fn b103_hand_example() {
    let line = "--x '1 0;0 2;1 1' --wq '1 0;0 1' --wk '1 1;0 1' --wv '1 0;0 1'";
    check(line, "k", &[1.0, 1.0, 0.0, 2.0, 1.0, 2.0]);
    let weights = [
        0.401_112, 0.197_776, 0.401_112, 0.108_383, 0.445_808, 0.445_808, 0.248_255, 0.248_255,
        0.503_49,
    ];
    check(line, "weights", &weights);
    check(
        line,
        "output",
        &[0.802_224, 0.796_664, 0.554_192, 1.337_425, 0.751_745, 1.0],
    );
}

/// A reader's loop without projections.
#[test]
fn b105_no_projections() {
    let x = "'1 0 0 1;0 1 0 0;0 1 1 1'";
    let line = format!("--q {x} --k {x} --v {x}");
    let weights = [
        0.506_48, 0.186_324, 0.307_196, 0.232_697, 0.383_652, 0.383_652, 0.211_942, 0.211_942,
        0.576_117,
    ];
    check(&line, "weights", &weights);
    let output = step(&json(&line), "output");
    assert!(common::close(
        &output[..4],
        &[0.506_48, 0.493_52, 0.307_196, 0.813_676],
        1e-6
    ));
}

/// One new token after a prompt of three: one query row, keys grow from 3 to 4.
#[test]
fn b108_generation_step() {
    let all = "'1 0;0 1;1 1;2 1'";
    let whole = json(&format!("--q {all} --k {all} --v {all} --causal"));
    let new = json(
        "--q '2 1' --k '2 1' --v '2 1' --past-k '1 0;0 1;1 1' --past-v '1 0;0 1;1 1' \
         --causal bottom-right",
    );
    assert_eq!(new["shapes"]["q"], json!([1, 1, 1, 2]));
    assert_eq!(new["shapes"]["k"], json!([1, 1, 4, 2]));
    assert_eq!(step(&new, "output"), step(&whole, "output")[6..]);
}
