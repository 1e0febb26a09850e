//! Two files of intermediates: the first that differs, and what is equal before it.

use crate::common::{Ran, refusals, run_with, words};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

fn compare(folder: &Path, line: &str) -> (i32, Value) {
    let Ran { code, out, err } = run_with(folder, &words(&format!("check {line} --json")), b"");
    assert_eq!(err, "", "{line}");
    (code, serde_json::from_str(&out).expect("JSON"))
}

fn list<'a>(json: &'a Value, name: &str) -> Vec<&'a str> {
    let list = json[name].as_array().expect("a list");
    list.iter()
        .map(|name| name.as_str().expect("a name"))
        .collect()
}

/// Numbers of both signs, the same each time.
fn numbers(seed: u32, count: usize) -> Vec<f64> {
    let mut state = seed.wrapping_mul(2_654_435_769).wrapping_add(12345);
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f64::from(state >> 8) / f64::from(1 << 23) - 1.0
    };
    (0..count).map(|_| next()).collect()
}

type Arrays = Vec<(String, Vec<usize>, Vec<f64>)>;

fn write(path: &Path, arrays: &Arrays) {
    let arrays: Vec<(&str, &[usize], &[f64])> = arrays
        .iter()
        .map(|(name, shape, data)| (&name[..], &shape[..], &data[..]))
        .collect();
    qkv_io::write_safetensors(path, &arrays, &[]).expect("a file");
}

/// Four layers as a trace has them: q, k, v, pattern and z of 2 heads of 3 tokens of width 4.
fn trace() -> Arrays {
    let mut arrays = Arrays::new();
    for layer in 0..4 {
        let mut add = |name: &str, shape: [usize; 4], data: Vec<f64>| {
            let name = format!("blocks.{layer}.attn.hook_{name}");
            arrays.push((name, shape.to_vec(), data));
        };
        let [q, k, v] = [1, 2, 3].map(|kind| numbers(10 * layer + kind, 24));
        let (mut scores, mut pattern, mut z) = (Vec::new(), Vec::new(), Vec::new());
        for h in 0..2 {
            for i in 0..3 {
                let row: Vec<f64> = (0..3)
                    .map(|j| {
                        let at = |x: usize, c: usize| (h * 3 + x) * 4 + c;
                        (0..4).map(|c| q[at(i, c)] * k[at(j, c)]).sum::<f64>() / 2.0
                    })
                    .collect();
                let sum: f64 = row.iter().map(|s| s.exp()).sum();
                let weights: Vec<f64> = row.iter().map(|s| s.exp() / sum).collect();
                z.extend((0..4).map(|c| {
                    let term = |(j, w): (usize, &f64)| w * v[(h * 3 + j) * 4 + c];
                    weights.iter().enumerate().map(term).sum::<f64>()
                }));
                scores.extend(row);
                pattern.extend(weights);
            }
        }
        add("q", [1, 2, 3, 4], q);
        add("k", [1, 2, 3, 4], k);
        add("v", [1, 2, 3, 4], v);
        add("attn_scores", [1, 2, 3, 3], scores);
        add("pattern", [1, 2, 3, 3], pattern);
        add("z", [1, 2, 3, 4], z);
    }
    arrays
}

fn change(arrays: &mut Arrays, name: &str, change: impl Fn(usize, &mut f64)) {
    let found = arrays.iter_mut().find(|(known, ..)| known == name);
    let (.., data) = found.expect("an array of this name");
    data.iter_mut()
        .enumerate()
        .for_each(|(at, x)| change(at, x));
}

#[test]
fn b101_the_first_layer_and_step() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    write(&path("a.safetensors"), &trace());
    // From layer 2 on everything after the weights is off; in layer 10 of another order of names.
    for (at, by) in [(None, 0.05), (Some(4), 0.05), (Some(4), -0.05)] {
        let mut other = trace();
        let perturb = |n: usize, x: &mut f64| {
            if at.is_none_or(|at| at == n) {
                *x += by;
            }
        };
        change(&mut other, "blocks.2.attn.hook_pattern", perturb);
        change(&mut other, "blocks.3.attn.hook_q", |_, x| *x += 0.3);
        write(&path("b.safetensors"), &other);
        let (code, json) = compare(folder.path(), "a.safetensors b.safetensors");
        let first = &json["first_difference"];
        assert_eq!((code, &json["verdict"]), (1, &json!("different")));
        assert_eq!(
            (&first["layer"], &first["step"]),
            (&json!(2), &json!("weights")),
            "{json}"
        );
        assert_eq!(
            first["index"],
            json!([
                0,
                at.map_or(0, |_| 0),
                at.map_or(0, |_| 1),
                at.map_or(0, |_| 1)
            ])
        );
        assert_eq!(first["equal_inputs"], json!(["q", "k", "v", "masked"]));
        assert_eq!(json["causes"], json!([]));
        let differing = ["blocks.2.attn.hook_pattern", "blocks.3.attn.hook_q"];
        assert_eq!(list(&json, "differing"), differing);
        assert_eq!(list(&json, "equal").len(), 22);
    }
    let ran = run_with(
        folder.path(),
        &words("check a.safetensors b.safetensors"),
        b"",
    );
    let line = "First difference: layer 2, weights; inputs q, k, v, masked equal.";
    assert!(ran.out.contains(line), "{}", ran.out);
    let zh = run_with(
        folder.path(),
        &words("check a.safetensors b.safetensors --lang zh"),
        b"",
    );
    assert!(zh.out.contains("第2层，weights"), "{}", zh.out);
}

#[test]
fn layers_are_in_order_of_their_numbers() {
    let folder = tempfile::tempdir().expect("a folder");
    let arrays = |by: f64| -> Arrays {
        let one = |name: &str, by: f64| (name.to_owned(), vec![2], vec![1.0 + by, 2.0]);
        vec![
            one("model.layers.10.mlp", by),
            one("model.layers.9.mlp", by),
            one("embed", 0.0),
        ]
    };
    write(&folder.path().join("a.safetensors"), &arrays(0.0));
    write(&folder.path().join("b.safetensors"), &arrays(0.5));
    let (_, json) = compare(folder.path(), "a.safetensors b.safetensors");
    assert_eq!(json["first_difference"]["layer"], 9, "{json}");
    assert_eq!(list(&json, "equal"), ["embed"]);
}

#[test]
fn the_same_in_other_formats_is_equal() {
    let folder = tempfile::tempdir().expect("a folder");
    let options = "--causal --softcap 5 --heads 2 --q '1 2 .5 -1;0 1 .25 3' --k '1 0 2 1;2 1 -1 0' \
                   --v '1 2 3 4;5 6 7 8'";
    for file in ["a.safetensors", "a.json"] {
        let line = format!("explain {options} -o {file}");
        assert_eq!(run_with(folder.path(), &words(&line), b"").code, 0);
    }
    let (code, json) = compare(folder.path(), "a.safetensors a.json");
    assert_eq!((code, &json["verdict"]), (0, &json!("equal")), "{json}");
    assert_eq!((&json["missing"], &json["extra"]), (&json!([]), &json!([])));
    assert_eq!(json["first_difference"], Value::Null);
    // Without the causal mask it is the masked scores that differ first.
    let line = format!(
        "explain {} -o b.json",
        options.replace("--causal", "--drop '0 0;0 0'")
    );
    assert_eq!(run_with(folder.path(), &words(&line), b"").code, 0);
    let (code, json) = compare(folder.path(), "a.json b.json");
    assert_eq!(
        (code, &json["first_difference"]["step"]),
        (1, &json!("masked")),
        "{json}"
    );
}

#[test]
fn rounding_to_a_coarser_format_is_named_and_a_shift_of_that_size_is_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    write(&path("a.safetensors"), &trace());
    let rounded = |round: &dyn Fn(f64) -> f64| -> Arrays {
        let mut arrays = trace();
        for (.., data) in &mut arrays {
            data.iter_mut().for_each(|x| *x = round(*x));
        }
        arrays
    };
    let single = rounded(&|x| f64::from(x as f32));
    write(&path("f32.safetensors"), &single);
    let (code, json) = compare(folder.path(), "a.safetensors f32.safetensors");
    assert_eq!(
        (code, &json["rounding"]["dtype"]),
        (0, &json!("f32")),
        "{json}"
    );
    let half = rounded(&|x| qkv_io::half::bf16::from_f64(x).to_f64());
    write(&path("bf16.safetensors"), &half);
    let (code, json) = compare(folder.path(), "a.safetensors bf16.safetensors");
    assert_eq!(
        (code, &json["rounding"]["dtype"]),
        (0, &json!("bf16")),
        "{json}"
    );
    // As large, but of one sign.
    let biased = rounded(&|x| x + 0.003);
    write(&path("c.safetensors"), &biased);
    let (code, json) = compare(folder.path(), "a.safetensors c.safetensors");
    assert_eq!(
        (code, &json["first_difference"]["step"]),
        (1, &json!("q")),
        "{json}"
    );
}

#[test]
fn b094_shifts_and_positions() {
    let folder = std::env::temp_dir();
    let (code, json) = compare(&folder, "'1 2 3' '0 1 2'");
    assert_eq!(
        (code, &json["causes"][0]["id"]),
        (1, &json!("row-shift")),
        "{json}"
    );
    assert_eq!(json["causes"][0]["parameters"]["shift"], -1.0);
    let (_, json) = compare(&folder, "'1 2;3 4' '9 9;1 2;3 4'");
    assert_eq!(json["causes"][0]["id"], "position-extra", "{json}");
    assert_eq!(json["first_difference"]["shapes"], json!([[2, 2], [3, 2]]));
    let (_, json) = compare(&folder, "'1 2;3 4' '3 4'");
    assert_eq!(json["causes"][0]["id"], "position-missing", "{json}");
    let heads = "'[[[1,2,3],[4,5,6]]]' '[[[1,2,3],[4,5,6]]]'";
    assert_eq!(compare(&folder, heads).0, 0);
    let swapped = "'[[[[1,2],[3,4],[5,6]],[[7,8],[9,10],[11,12]]]]' \
                   '[[[[1,2],[7,8]],[[3,4],[9,10]],[[5,6],[11,12]]]]'";
    assert_eq!(
        compare(&folder, swapped).1["causes"][0]["id"],
        "layout-swapped"
    );
    let beside = "'[[[[1,2],[3,4],[5,6]],[[7,8],[9,10],[11,12]]]]' '1 2 7 8;3 4 9 10;5 6 11 12'";
    assert_eq!(compare(&folder, beside).0, 0);
    let averaged = "'[[[[1,2]],[[3,6]]]]' '[[[2,4]]]'";
    assert_eq!(
        compare(&folder, averaged).1["causes"][0]["id"],
        "heads-averaged"
    );
}

#[test]
fn b099_nan_on_the_right_side_is_never_equal() {
    let folder = std::env::temp_dir();
    let (code, json) = compare(&folder, "'nan 1' '0 1'");
    assert_eq!((code, &json["verdict"]), (1, &json!("different")), "{json}");
    assert_eq!(json["first_difference"]["index"], json!([0, 0]));
    assert_eq!(json["lint"][0]["id"], "reference-is-nan");
    let (code, json) = compare(&folder, "'nan 1' 'nan 1'");
    assert_eq!((code, &json["verdict"]), (1, &json!("undecided")), "{json}");
    let (code, json) = compare(&folder, "'2 1' '2 nan'");
    assert_eq!((code, &json["verdict"]), (1, &json!("different")), "{json}");
}

#[test]
fn names_on_one_side_only_are_listed() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(
        folder.path().join("a.json"),
        r#"{"q": [[1, 2]], "weights": [[1, 0]], "lse": [[1]]}"#,
    )
    .expect("a file");
    fs::write(
        folder.path().join("b.json"),
        r#"{"q": [[1, 2]], "attn_probs": [[1, 0]], "x": [[3]]}"#,
    )
    .expect("a file");
    let (code, json) = compare(folder.path(), "a.json b.json");
    assert_eq!(code, 0, "{json}");
    assert_eq!(list(&json, "equal"), ["q", "weights"]);
    assert_eq!(
        (list(&json, "missing"), list(&json, "extra")),
        (vec!["lse"], vec!["x"])
    );
    fs::write(
        folder.path().join("c.json"),
        r#"{"other": [[1, 2]], "y": [[1]]}"#,
    )
    .expect("a file");
    refusals(
        "check",
        folder.path(),
        &[
            ("a.json c.json", &["lse", "other", "the same names"]),
            ("a.json", &["second file"]),
            (
                "a.json b.json c.json",
                &["\"c.json\": nothing takes this; leave it out"],
            ),
            ("a.json nowhere.json", &["nowhere.json"]),
            ("a.json b.json --q 1", &["--q", "two files"]),
        ],
    );
}
