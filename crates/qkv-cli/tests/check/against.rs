//! What systems would give.

use super::{agrees, check};
use crate::common::{qkv, refusals};
use serde_json::{Value, json};

const FIVE: &str = "--q '0;0' --k '0;0;0;0;0' --v '1;2;3;4;5'";

fn names(json: &Value, list: &str) -> Vec<String> {
    let list = json["against"][list].as_array().expect("a list");
    list.iter()
        .map(|name| name.as_str().expect("a name").to_owned())
        .collect()
}

#[test]
fn b005_an_output_is_what_one_system_gives_and_not_another() {
    let top_left = format!("{FIVE} --causal --output '1;1.5' --against torch-sdpa");
    agrees(&top_left);
    let (_, json) = check(&top_left);
    let (give, others) = (names(&json, "give"), names(&json, "others"));
    assert!(
        give.contains(&"torch-sdpa".into()) && give.contains(&"jax".into()),
        "{json}"
    );
    assert!(
        others.contains(&"flash-attn".into()) && others.contains(&"mlx".into()),
        "{json}"
    );
    assert_eq!(json["against"]["conventions"], json!(["causal-top-left"]));
    let said = qkv(&format!("check {top_left}")).out;
    let first = said.lines().next().unwrap_or_default();
    let expected =
        "These numbers are what torch-sdpa would give, but not flash-attn, mlx, hf-eager";
    assert!(first.starts_with(expected), "{said}");
    let (code, json) = check(&top_left.replace("torch-sdpa", "flash-attn"));
    assert_eq!(
        (code, &json["causes"][0]["id"]),
        (1, &json!("causal-top-left"))
    );
    let zh = qkv(&format!("check {top_left} --lang zh")).out;
    assert!(
        zh.starts_with("这些数正是torch-sdpa会给出的，但flash-attn"),
        "{zh}"
    );
}

#[test]
fn rows_without_a_key_tell_systems_apart() {
    let line = "--q '0;0;0' --k '0;0;0' --v '1;2;6' --drop '0 0 0;1 1 1;0 0 0'";
    for (row, yes, no) in [
        ("0", "torch-sdpa", "jax"),
        ("3", "jax", "torch-sdpa"),
        ("nan", "openvino", "onnxruntime"),
    ] {
        let line = format!("{line} --output '3;{row};3' --against {yes}");
        agrees(&line);
        assert!(
            names(&check(&line).1, "others").contains(&no.into()),
            "{line}"
        );
    }
    // −10,000 added to every score of a row changes nothing.
    let line =
        "--q '1;1' --k '1;-1' --v '1;5' --drop '0 0;1 1' --scale 1 --against onnxruntime-mha";
    agrees(&format!("{line} --output '1.476812;1.476812'"));
}

#[test]
fn caps_groups_and_scales() {
    let capped = "--q 5 --k '0;1' --v '1;2' --scale 1 --softcap 1 --drop '0 1'";
    agrees(&format!("{capped} --output 1 --against onnx-25"));
    // exp(0) against exp(−1).
    agrees(&format!("{capped} --output 1.268941 --against onnx-1.18"));
    let groups = "--q '[[[0]],[[0]],[[0]],[[0]]]' --k '[[[0]],[[0]]]' --v '[[[10]],[[20]]]'";
    agrees(&format!(
        "{groups} --output '[[[10]],[[20]],[[10]],[[20]]]' --against onnx-1.18"
    ));
    agrees(&format!(
        "{groups} --output '[[[10]],[[10]],[[20]],[[20]]]' --against onnxruntime"
    ));
    let scaled = "--q '2 0 0 0' --k '1 0 0 0;0 0 0 0' --v '1;2' --against cudnn";
    agrees(&format!("{scaled} --output 1.119203"));
    agrees(&format!("{scaled} --scale .5 --output 1.268941"));
}

#[test]
fn unknown_systems_are_refused() {
    let line = format!("{FIVE} --output '1;1.5'");
    refusals(
        "check",
        &std::env::temp_dir(),
        &[
            (
                format!("{line} --against pytorch"),
                &["pytorch", "torch-sdpa", "burn"][..],
            ),
            (
                format!("{FIVE} --grad-output '1;1' --dq '0;0' --against jax"),
                &["--against"],
            ),
            ("a.npz b.npz --against jax".into(), &["--against"]),
        ],
    );
}

#[test]
fn b010_what_true_in_a_mask_means_is_the_systems() {
    // q = k = [[1,0],[0,1],[1,1]], a lower triangle of ones.
    let line = "--q '1 0;0 1;1 1' --k '1 0;0 1;1 1' --v '1;10;100' --mask '1 0 0;1 1 0;1 1 1'";
    let kept = format!("{line} --output '1;7.027854;53.07979'");
    agrees(&format!("{kept} --against torch-sdpa"));
    let (_, json) = check(&format!("{kept} --against torch-sdpa"));
    assert!(names(&json, "give").contains(&"jax".into()), "{json}");
    assert!(
        names(&json, "others").contains(&"torch-mha".into()),
        "{json}"
    );
    // The same array drops what it kept.
    let dropped = format!("{line} --output '70.278539;100;nan'");
    agrees(&format!("{dropped} --against torch-mha"));
    let (code, json) = check(&format!("{kept} --against torch-mha"));
    assert_eq!(
        (code, &json["causes"][0]["id"]),
        (1, &json!("mask-polarity")),
        "{json}"
    );
    let folder = std::env::temp_dir();
    let given = "--q 1 --k 1 --v 1 --output 1 --mask 1";
    refusals(
        "check",
        &folder,
        &[
            (given.to_owned(), &["--mask", "--against"] as &[&str]),
            (
                format!("{given} --keep 1 --against jax"),
                &["--mask", "--keep"],
            ),
        ],
    );
}
