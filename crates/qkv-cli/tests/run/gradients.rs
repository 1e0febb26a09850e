//! `--backward`.

use crate::common::{gradient, json_in, npy, npy_f32, run_with, words};
use crate::{ARRAYS, close, f32s, folder, output, run, write, write_arrays, write_f32};
use qkv::{DType, GradientSizes, gradient_bound};
use qkv_io::Array;
use std::fs;
use std::path::Path;

/// What rounding may do to numbers made of ones of at most 1, for the sizes of `write_arrays`.
fn bound(largest_score: f64, scale: f64) -> f64 {
    let bound = gradient_bound(
        DType::F32,
        &GradientSizes {
            head_dim: 6,
            value_dim: 7,
            keys: 8,
            rows: 6,
            weight: 6.0,
            bias_terms: 120,
            bias_weight: 120.0,
            sink_terms: 6,
            largest_score,
            scale,
            softcap: Some(0.75),
            dropout: 0.25,
            q: 1.0,
            k: 1.0,
            grad: 1.0,
            product: 7.0,
        },
    );
    let all = [bound.q, bound.k, bound.v, bound.bias, bound.sinks];
    all.into_iter().fold(0.0, f64::max)
}

/// [B, H, L, d] as [B, L, H·d].
fn heads_side_by_side(numbers: &[f32], [batch, heads, length, d]: [usize; 4]) -> Vec<f32> {
    let mut rows = Vec::new();
    for b in 0..batch {
        for i in 0..length {
            for h in 0..heads {
                let at = ((b * heads + h) * length + i) * d;
                rows.extend_from_slice(&numbers[at..at + d]);
            }
        }
    }
    rows
}

fn arrays(folder: &Path) {
    write_arrays(folder);
    let g = f32s(8, 2 * 4 * 3 * 7);
    write(folder, "g.npy", &npy_f32("(2, 4, 3, 7)", &g));
    write(
        folder,
        "rows.npy",
        &npy_f32("(2, 3, 28)", &heads_side_by_side(&g, [2, 4, 3, 7])),
    );
    write_f32(folder, "pk.npy", &[2, 2, 3, 6], 4);
    write_f32(folder, "pv.npy", &[2, 2, 3, 7], 5);
    write_f32(folder, "bias.npy", &[4, 1, 5], 6);
    let keep = [1, 0, 1, 1, 1, 0, 0, 1, 1, 0, 1, 1, 1, 0, 1];
    write(folder, "keep.npy", &npy("|b1", "(3, 5)", &keep));
}

/// Every option, against the worked calculation.
#[test]
fn each_option_is_as_in_explain() {
    let folder = folder();
    let folder = folder.path();
    arrays(folder);
    // As for the output: scores are at most 6·2.5 and 2 more.
    let bound = bound(17.0, 2.5);
    for options in [
        "",
        "--scale 2.5",
        "--scale=-0.5 --softcap 0.75",
        "--causal bottom-right --window 2,0",
        "--causal 1 --alibi --empty-rows zero",
        "--kv-lengths 5,3 --window 2,1",
        "--documents 1:2,2:3 --causal bottom-right",
        "--keep keep.npy",
        "--drop keep.npy --bias bias.npy",
        "--sinks '0 1 -1 0.5' --bias bias.npy",
        "--dropout 0.25 --seed 7",
        "--past-k pk.npy --past-v pv.npy --causal bottom-right",
        "--keep '0 0 0 0 0'",
    ] {
        let line = format!("{ARRAYS} {options} --backward --grad-output g.npy");
        run(folder, &format!("{line} --lse -o out.safetensors"));
        // There the heads are put side by side.
        let right = format!("{ARRAYS} {options} --backward --grad-output rows.npy");
        let right = json_in(folder, &right);
        for name in ["grad_q", "grad_k", "grad_v", "grad_bias", "grad_sinks"] {
            let option = name.replace("grad_", "--");
            if ["--bias", "--sinks"].contains(&&option[..]) && !options.contains(&option) {
                continue;
            }
            let found = output(folder, "out.safetensors", name);
            assert_eq!(found.dtype(), "f32", "{options}");
            let expected = gradient(&right, name);
            let found = found.to_f64().expect("numbers");
            close(&found, &expected, bound, &format!("{options} {name}"));
        }
    }
}

/// Heads apart, heads side by side, either layout: the same numbers where they belong.
#[test]
fn every_layout() {
    let folder = folder();
    let folder = folder.path();
    arrays(folder);
    let shapes = [
        ("q", [2, 4, 3, 6]),
        ("k", [2, 2, 5, 6]),
        ("v", [2, 2, 5, 7]),
        ("g", [2, 4, 3, 7]),
        ("pk", [2, 2, 3, 6]),
        ("pv", [2, 2, 3, 7]),
    ];
    let numbers = |file: &str, name: Option<&str>| -> Array {
        qkv_io::read_file(&folder.join(file), name).expect("an array")
    };
    for (name, [b, h, l, d]) in shapes {
        let found = numbers(&format!("{name}.npy"), None)
            .to_f64()
            .expect("numbers");
        let found: Vec<f32> = found.iter().map(|&x| x as f32).collect();
        let rows = heads_side_by_side(&found, [b, h, l, d]);
        let blhd = npy_f32(&format!("({b}, {l}, {h}, {d})"), &rows);
        write(folder, &format!("{name}.blhd.npy"), &blhd);
        let split = npy_f32(&format!("({b}, {l}, {})", h * d), &rows);
        write(folder, &format!("{name}.split.npy"), &split);
    }
    let rest = "--causal bottom-right --backward -o";
    let line = |kind: &str, options: &str| {
        format!(
            "--q q{kind}.npy --k k{kind}.npy --v v{kind}.npy --past-k pk{kind}.npy \
             --past-v pv{kind}.npy --grad-output g{kind}.npy {options} {rest}"
        )
    };
    run(folder, &format!("{} plain.safetensors", line("", "")));
    for (kind, options) in [
        (".blhd", "--layout blhd"),
        (".split", "--heads 4 --kv-heads 2"),
    ] {
        run(folder, &format!("{} other.npz", line(kind, options)));
        for (name, shape) in [
            ("grad_q", [2, 4, 3, 6]),
            ("grad_k", [2, 2, 8, 6]),
            ("grad_v", [2, 2, 8, 7]),
        ] {
            let plain = output(folder, "plain.safetensors", name);
            assert_eq!(plain.shape, shape, "{name}");
            let plain = plain.to_f64().expect("numbers");
            let plain: Vec<f32> = plain.iter().map(|&x| x as f32).collect();
            let [b, h, l, d] = shape;
            let other = output(folder, "other.npz", name);
            let wanted = match kind {
                ".blhd" => vec![b, l, h, d],
                _ => vec![b, l, h * d],
            };
            assert_eq!(other.shape, wanted, "{kind} {name}");
            let right = heads_side_by_side(&plain, shape);
            assert_eq!(other.values, right.into(), "{kind} {name}");
        }
    }
    // Fewer axes than four.
    let line = "--q '1 0; 0 1' --k '1 0; 0 1; 1 1' --v '2;3;4' --past-k '1 1' --past-v 5";
    run(
        folder,
        &format!("{line} --backward --bias '0 0 0 1' --sinks 0 -o small.json"),
    );
    for (name, shape) in [
        ("grad_q", vec![2, 2]),
        ("grad_k", vec![4, 2]),
        ("grad_v", vec![4, 1]),
        ("grad_bias", vec![1, 4]),
        ("grad_sinks", vec![1]),
    ] {
        assert_eq!(output(folder, "small.json", name).shape, shape, "{name}");
    }
}

/// Half precision is computed in f32 and rounded, f64 as such; 1 is the gradient where none is given.
#[test]
fn number_formats() {
    let folder = folder();
    let folder = folder.path();
    let line = "--q '1 0; 0 1' --k '1 0; 0 1' --v '2 0; 0 4' --backward";
    run(folder, &format!("{line} -o right.safetensors"));
    let right = output(folder, "right.safetensors", "grad_k");
    assert_eq!(right.dtype(), "f64");
    let explained = json_in(folder, line);
    let expected = gradient(&explained, "grad_k");
    // f64 rounds to 2^-53 instead of 2^-24.
    close(
        &right.to_f64().expect("numbers"),
        &expected,
        bound(2.0, 1.0) * 4.0 * 0.5_f64.powi(29),
        "f64",
    );
    let ones = format!("{line} --grad-output '1 1; 1 1' -o ones.safetensors");
    run(folder, &ones);
    assert_eq!(output(folder, "ones.safetensors", "grad_k"), right);
    let half = |x: f64| qkv_io::half::f16::from_f64(x).to_le_bytes();
    let bytes: Vec<u8> = [1.0, 0.0, 0.0, 1.0].into_iter().flat_map(half).collect();
    write(folder, "half.npy", &npy("<f2", "(2, 2)", &bytes));
    run(
        folder,
        "--q half.npy --k half.npy --v '2 0; 0 4' --backward -o half.safetensors",
    );
    let found = output(folder, "half.safetensors", "grad_k");
    assert_eq!(found.dtype(), "f16");
    // One rounding of numbers below 1 to 11 binary digits.
    close(
        &found.to_f64().expect("numbers"),
        &expected,
        4.0 * bound(2.0, 1.0) + 0.5_f64.powi(11),
        "f16",
    );
}

#[test]
fn a_summary_has_shapes_and_ranges() {
    let folder = folder();
    let line = "run --q '1 0; 0 1' --k '1 0; 0 1' --v '2 0; 0 4' --backward";
    let out = run_with(folder.path(), &words(line), b"").out;
    assert!(
        out.contains("grad_q     [2, 2], from -0.3128 to 0.3128\n"),
        "{out}"
    );
    let out = run_with(folder.path(), &words(&format!("{line} --lang zh")), b"").out;
    assert!(
        out.contains("grad_q     [2, 2]，从-0.3128到0.3128\n"),
        "{out}"
    );
    let out = run_with(folder.path(), &words(&line.replace(" --backward", "")), b"").out;
    assert!(!out.contains("grad"), "{out}");
}

/// A failed run leaves nothing, and never half a file.
#[test]
fn nothing_is_left_of_a_failed_run() {
    let folder = folder();
    let line = "run --q '1 0; 0 1' --k '1 0; 0 1' --v '2 0; 0 4' --backward --drop '1 1' \
                --empty-rows error -o out.safetensors";
    assert_eq!(run_with(folder.path(), &words(line), b"").code, 2);
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
}
