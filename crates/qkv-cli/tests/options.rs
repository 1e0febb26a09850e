//! Every option once, against a value worked out by hand.

mod common;

use common::{check, json, names, step};
use serde_json::json;

/// Scores 0 and values 1 to n: each output is the mean of the values that are kept.
fn zeros(queries: usize, keys: usize) -> String {
    let column = |n: usize, value: &dyn Fn(usize) -> usize| {
        let items: Vec<String> = (0..n).map(|i| value(i).to_string()).collect();
        items.join(";")
    };
    format!(
        "--q '{}' --k '{}' --v '{}'",
        column(queries, &|_| 0),
        column(keys, &|_| 0),
        column(keys, &|i| i + 1)
    )
}

const TWO: &str = "--q '1' --k '2;0' --v '1;0'";

#[test]
fn scale() {
    check(
        &format!("{TWO} --scale 1"),
        "weights",
        &[0.880_797, 0.119_203],
    );
    check(
        &format!("{TWO} --scale 0.125"),
        "weights",
        &[0.562_177, 0.437_823],
    );
    check(&format!("{TWO} --scale -1"), "scaled", &[-2.0, 0.0]);
    check(
        &format!("{TWO} --scale=-1e0"),
        "weights",
        &[0.119_203, 0.880_797],
    );
    check("--q '1 0 0 0' --k '2 0 0 0' --v '1'", "scaled", &[1.0]);
}

#[test]
fn softcap() {
    let line = "--q '1' --k '0;5' --v '1;2' --scale 1 --softcap 1 --keep '1 0'";
    check(line, "capped", &[0.0, 5_f64.tanh()]);
    check(line, "weights", &[1.0, 0.0]);
}

#[test]
fn causal() {
    check(
        &format!("{} --causal", zeros(3, 3)),
        "output",
        &[1.0, 1.5, 2.0],
    );
    check(
        &format!("{} --causal top-left", zeros(2, 5)),
        "output",
        &[1.0, 1.5],
    );
    check(
        &format!("{} --causal bottom-right", zeros(2, 5)),
        "output",
        &[2.5, 3.0],
    );
    check(
        &format!("{} --causal 1", zeros(2, 5)),
        "output",
        &[1.5, 2.0],
    );
    check(
        &format!("{} --causal=-1", zeros(2, 5)),
        "output",
        &[0.0, 1.0],
    );
    check(
        &format!("{} --causal -1", zeros(2, 5)),
        "output",
        &[0.0, 1.0],
    );
    assert_eq!(
        json("--causal bottom-right")["options"]["causal"],
        "bottom-right"
    );
}

#[test]
fn window() {
    check(
        &format!("{} --window 1,0", zeros(3, 3)),
        "output",
        &[1.0, 1.5, 2.5],
    );
    check(
        &format!("{} --window 0,1", zeros(3, 3)),
        "output",
        &[1.5, 2.5, 3.0],
    );
    check(
        &format!("{} --window inf,0", zeros(3, 3)),
        "output",
        &[1.0, 1.5, 2.0],
    );
    check(
        &format!("{} --window 0,inf", zeros(3, 3)),
        "output",
        &[2.0, 2.5, 3.0],
    );
}

#[test]
fn key_lengths() {
    let line = "--q '[[[[0]]],[[[0]]]]' --k '[[[[0],[0],[0],[0]]],[[[0],[0],[0],[0]]]]' \
                --v '[[[[1],[3],[0],[0]]],[[[1],[3],[0],[0]]]]' --kv-lengths 2,4";
    check(line, "output", &[2.0, 1.0]);
}

#[test]
fn documents() {
    let line = format!("{} --causal --documents 2,3", zeros(5, 5));
    check(&line, "output", &[1.0, 1.5, 3.0, 3.5, 4.0]);
    check(
        &format!("{} --documents 1:3,1:5", zeros(2, 8)),
        "output",
        &[2.0, 6.0],
    );
    // No query has the first document's keys.
    check(
        &format!("{} --documents 0:3,2:5", zeros(2, 8)),
        "output",
        &[6.0, 6.0],
    );
}

#[test]
fn masks() {
    check(&format!("{} --keep '1 0 1'", zeros(1, 3)), "output", &[2.0]);
    check(
        &format!("{} --keep '[true,false,true]'", zeros(1, 3)),
        "output",
        &[2.0],
    );
    check(&format!("{} --drop '1 0 1'", zeros(1, 3)), "output", &[2.0]);
    check(
        &format!("{} --keep '1 1 0' --drop '1 0 0'", zeros(1, 3)),
        "output",
        &[2.0],
    );
    check(
        &format!("{} --keep '1 0 0; 0 0 1'", zeros(2, 3)),
        "output",
        &[1.0, 3.0],
    );
    // Three axes are heads, queries, keys.
    let heads = "--q '[[[0]],[[0]]]' --k '[[[0],[0]],[[0],[0]]]' --v '[[[1],[2]],[[3],[4]]]'";
    check(
        &format!("{heads} --keep '[[[1,0]],[[0,1]]]'"),
        "output",
        &[1.0, 4.0],
    );
}

#[test]
fn bias() {
    let line = format!("{} --bias '1.0986122886681098 0'", zeros(1, 2));
    check(&line, "weights", &[0.75, 0.25]);
    check(
        &format!("{} --bias '-1 0; 0 -1'", zeros(2, 2)),
        "biased",
        &[-1.0, 0.0, 0.0, -1.0],
    );
    check(
        &format!("{} --bias '-inf 0'", zeros(1, 2)),
        "weights",
        &[0.0, 1.0],
    );
    check(
        &format!("{} --bias '-1e30 -1e30'", zeros(1, 2)),
        "weights",
        &[0.5, 0.5],
    );
}

#[test]
fn alibi() {
    let line = format!("{} --alibi 0.5 --causal", zeros(3, 3));
    let last = &step(&json(&line), "weights")[6..];
    assert!(
        common::close(last, &[0.186_324, 0.307_196, 0.506_48], 1e-6),
        "{last:?}"
    );
    let heads = "--q '[[[0]],[[0]]]' --k '[[[0],[0]],[[0],[0]]]' --v '[[[1],[2]],[[3],[4]]]'";
    // The usual slopes of two heads are 1/16 and 1/256; the one query stands at the last key.
    check(
        &format!("{heads} --alibi"),
        "biased",
        &[-0.0625, 0.0, -0.003_906_25, 0.0],
    );
    check(
        &format!("{heads} --alibi '1 2'"),
        "biased",
        &[-1.0, 0.0, -2.0, 0.0],
    );
    check(
        &format!("{heads} --alibi --causal bottom-right"),
        "biased",
        &[-0.0625, 0.0, -0.003_906_25, 0.0],
    );
}

#[test]
fn sinks() {
    let third = 1.0 / 3.0;
    let line = format!("{} --sinks 0", zeros(1, 2));
    check(&line, "weights", &[third, third]);
    check(&line, "sum", &[3.0]);
    check(&line, "lse", &[2_f64.ln()]);
    check(
        &format!("{} --sinks -inf", zeros(1, 2)),
        "weights",
        &[0.5, 0.5],
    );
}

#[test]
fn cached_keys() {
    let line = "--q '0;0' --k '0;0' --v '4;5' --past-k '0;0;0' --past-v '1;2;3'";
    check(
        &format!("{line} --causal bottom-right"),
        "output",
        &[2.5, 3.0],
    );
    check(&format!("{line} --causal 3"), "output", &[2.5, 3.0]);
    assert_eq!(json(line)["options"]["past"], 3);
    check(
        "--past-k '1 1' --past-v '6 6'",
        "k",
        &[1.0, 1.0, 1.0, 0.0, 0.0, 1.0],
    );
}

#[test]
fn norms() {
    let rms = 12.5_f64.sqrt();
    let line = "--q '3 4' --k '4 3' --v '1' --q-norm '1 2' --k-norm '1 1'";
    check(line, "q_normed", &[3.0 / rms, 8.0 / rms]);
    check(line, "k_normed", &[4.0 / rms, 3.0 / rms]);
    check(line, "scores", &[36.0 / 12.5]);
}

#[test]
fn rotary() {
    let line = "--q '1 2 3 4' --k '1 2 3 4' --v '1' --position-offset 1";
    check(
        &format!("{line} --position rotary"),
        "q_rotated",
        &[-1.984_111, 1.959_901, 2.462_378, 4.0198],
    );
    check(
        &format!("{line} --position rotary-interleaved"),
        "k_rotated",
        &[-1.14264, 1.922_076, 2.959_851, 4.0298],
    );
    // Of four columns the first two turn, by one radian.
    let (sin, cos) = 1_f64.sin_cos();
    check(
        &format!("{line} --position rotary --rotary-dim 2"),
        "q_rotated",
        &[cos - 2.0 * sin, sin + 2.0 * cos, 3.0, 4.0],
    );
    // Base 16: the second pair turns by 1/4.
    let (sin, cos) = 0.25_f64.sin_cos();
    let rotated = step(
        &json(&format!("{line} --position rotary --rotary-base 16")),
        "q_rotated",
    );
    assert!(common::close(
        &[rotated[1], rotated[3]],
        &[2.0 * cos - 4.0 * sin, 2.0 * sin + 4.0 * cos],
        1e-12
    ));
    // Position 4 at a quarter of the speed is position 1.
    check(
        "--q '1 2 3 4' --k '1 2 3 4' --v '1' --position-offset 4 --position rotary \
         --rotary-scaling linear:4",
        "q_rotated",
        &[-1.984_111, 1.959_901, 2.462_378, 4.0198],
    );
    let scaled = json(&format!(
        "{line} --position rotary --rotary-scaling llama3:8,1,4,8192"
    ));
    assert_eq!(
        scaled["options"]["rotary_scaling"],
        json!({"kind": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_length": 8192.0})
    );
    // Only distances remain in the scores.
    let moved = |offset: i64| {
        step(
            &json(&format!("--position rotary --position-offset {offset}")),
            "scores",
        )
    };
    assert!(common::close(&moved(0), &moved(-5), 1e-12));
}

#[test]
fn sinusoidal() {
    let line = "--x '0 0 0 0; 0 0 0 0' --init normal:1 --position sinusoidal";
    let (fast, slow) = (1_f64, 0.01_f64);
    check(
        line,
        "x_positioned",
        &[
            0.0,
            1.0,
            0.0,
            1.0,
            fast.sin(),
            fast.cos(),
            slow.sin(),
            slow.cos(),
        ],
    );
    let first = &step(
        &json(&format!("{line} --position-offset 1")),
        "x_positioned",
    )[..2];
    assert!(common::close(first, &[fast.sin(), fast.cos()], 1e-12));
}

#[test]
fn dropout() {
    let line = format!("{} --dropout 0.5", zeros(4, 4));
    let (first, again) = (json(&line), json(&line));
    assert_eq!(first, again);
    let dropped = step(&first, "dropped");
    assert!(dropped.iter().all(|&w| w == 0.0 || w == 0.5), "{dropped:?}");
    let other = step(&json(&format!("{line} --seed 1")), "dropped");
    assert_ne!(dropped, other);
    check(
        &format!("{} --dropout 0", zeros(2, 2)),
        "dropped",
        &[0.5; 4],
    );
}

#[test]
fn empty_rows() {
    let line = format!("{} --keep '1 1 1; 0 0 0; 1 1 1'", zeros(3, 3));
    let found = json(&format!("{line} --empty-rows zero"));
    assert_eq!(found["empty_rows"], json!([[0, 0, 1]]));
    check(&line, "output", &[2.0, 0.0, 2.0]);
    check(&line, "lse", &[3_f64.ln(), f64::NEG_INFINITY, 3_f64.ln()]);
}

#[test]
fn heads_and_groups() {
    // Two tokens, two heads of two columns.
    let q = "--q '0 1 2 3; 4 5 6 7' --k '0 1 2 3; 4 5 6 7' --v '0 1 2 3; 4 5 6 7' --heads 2";
    check(q, "q", &[0.0, 1.0, 4.0, 5.0, 2.0, 3.0, 6.0, 7.0]);
    let grouped = "--q '0 0 0 0' --k '0 0' --v '10 20' --heads 4 --kv-heads 2";
    check(grouped, "output", &[10.0, 10.0, 20.0, 20.0]);
    assert_eq!(json(grouped)["options"]["kv_heads"], 2);
    // Three axes are a batch when heads are split.
    let batch =
        json("--q '[[[1,2]],[[3,4]]]' --k '[[[1,2]],[[3,4]]]' --v '[[[1,2]],[[3,4]]]' --heads 2");
    assert_eq!(batch["shapes"]["q"], json!([2, 2, 1, 1]));
    // Grouped heads also where the arrays have an axis of heads.
    let axis = "--q '[[[0]],[[0]]]' --k '[[[0]]]' --v '[[[7]]]'";
    check(axis, "output", &[7.0, 7.0]);
}

#[test]
fn layout() {
    // [L, H, d] = two tokens, two heads of one column.
    let line =
        "--q '[[[1],[2]],[[3],[4]]]' --k '[[[1],[2]],[[3],[4]]]' --v '[[[1],[2]],[[3],[4]]]'";
    check(&format!("{line} --layout blhd"), "q", &[1.0, 3.0, 2.0, 4.0]);
    check(&format!("{line} --layout bhld"), "q", &[1.0, 2.0, 3.0, 4.0]);
    let four =
        "--q '[[[[1],[2]],[[3],[4]]]]' --k '[[[[1],[2]],[[3],[4]]]]' --v '[[[[1],[2]],[[3],[4]]]]'";
    check(&format!("{four} --layout blhd"), "q", &[1.0, 3.0, 2.0, 4.0]);
    check(
        &format!("{four} --layout blhd --heads 2"),
        "q",
        &[1.0, 3.0, 2.0, 4.0],
    );
    // The same numbers either way.
    let split = "--q '1 2; 3 4' --k '1 2; 3 4' --v '1 2; 3 4' --heads 2 --causal";
    assert_eq!(
        step(&json(split), "concatenated"),
        step(
            &json(&format!("{line} --layout blhd --causal")),
            "concatenated"
        )
    );
    let past = "--past-k '[[[5],[6]]]' --past-v '[[[5],[6]]]'";
    check(
        &format!("{line} --layout blhd {past}"),
        "k",
        &[5.0, 1.0, 3.0, 6.0, 2.0, 4.0],
    );
}

#[test]
fn output_weight_without_tokens() {
    let line = "--q '0' --k '0' --v '2 3' --wo '1 10; 100 1000' --bo '0.5 0.25'";
    let found = json(line);
    assert_eq!(
        names(&found)[names(&found).len() - 2..],
        ["concatenated", "projected"]
    );
    check(line, "projected", &[302.5, 3020.25]);
}
