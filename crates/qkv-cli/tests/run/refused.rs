//! Bad input and too little of everything.

use crate::common::{command, npy, npy_f32, refusals};
use crate::{folder, write};
use qkv_io::half::bf16;
use qkv_io::{Encoded, Encoding, encode};
use std::fs;

#[rustfmt::skip] // one line for each
const REFUSED: &[(&str, &[&str])] = &[
    ("", &["--q, --k, --v", "missing", "give all of --q, --k and --v"]),
    ("--q 1", &["--k, --v", "missing"]),
    ("{OK} --x 1", &["--x", "no such option"]),
    ("--q f32.npy --k f64.npy --v f32.npy", &["--k", "f64 beside f32 of --q", "astype('float32')"]),
    ("--q 1 --k f32.npy --v f16.npy", &["--v", "f16 beside f32 of --k"]),
    ("--q 1e39 --k f32.npy --v 1", &["--q", "1e39 in f32", "too large for the number format"]),
    ("--q 70000 --k f16.npy --v 1", &["--q", "7e4 in f16"]),
    ("{OK} -o out.txt", &["-o", "the ending of out.txt", ".safetensors, .npy, .npz or .json"]),
    ("{OK} -o out", &["-o", "without an ending", "--format"]),
    ("{OK} -o out.npy --lse", &["--lse", "npy, which holds the output alone", ".safetensors or .npz"]),
    ("{OK} -o out.npy --weights", &["--weights", "npy"]),
    ("{OK} -o out.npy --backward", &["--backward", "npy, which holds the output alone"]),
    ("{OK} --grad-output 1", &["--grad-output", "no meaning without --backward"]),
    ("{OK} --backward --grad-output '1 2 3'", &["--grad-output", "[1, 1, 1, 3]", "the output", "[1, 1, 2, 2]"]),
    ("{OK} --backward --grad-output '[true]'", &["--grad-output", "truth values"]),
    ("{OK} --backward --grad-output a", &["--grad-output"]),
    ("--q f32.npy --k f32.npy --v f32.npy --backward --grad-output f64.npy", &["--grad-output", "f64 beside f32 of --q"]),
    ("{OK} --backward --q-norm '1 1'", &["--q-norm", "--backward", "qkv explain"]),
    ("{OK} --backward --position rotary", &["--position", "--backward", "qkv explain"]),
    ("{OK} -o out.npy --format npz", &["-o", "out.npy with --format npz"]),
    ("{OK} -o out.npz --json", &["-o", "out.npz with --format json"]),
    ("{OK} --format npy --json", &["--json", "--format"]),
    ("{OK} --weights", &["--weights", "has no meaning without -o or --format"]),
    ("--q bf16.safetensors --k 1 --v 1 -o out.npy", &["-o", "bf16 in npy", ".safetensors"]),
    ("{OK} -o nowhere/out.npy", &["-o", "nowhere/out.npy", "make the folder first"]),
    ("{OK} -o /dev/full --format json", &["-o", "/dev/full", "full", "free some space"]),
    ("{OK} -o folder.npy", &["-o", "folder.npy is a folder"]),
    ("{OK} --threads 0", &["--threads", "\"0\"", "from 1 to 1024"]),
    ("{OK} --threads 1025", &["--threads", "\"1025\"", "from 1 to 1024"]),
    ("{OK} --isa neon", &["--isa", "\"neon\"", "avx512bf16, avx512, avx2, portable"]),
    ("{OK} --digits 18", &["--digits", "\"18\""]),
    ("{OK} --seed 1", &["--seed", "no meaning without --dropout"]),
    ("{OK} --position sinusoidal", &["--position sinusoidal", "--x"]),
    ("{OK} --kv-heads 1", &["--kv-heads", "--heads"]),
    ("{OK} --heads 3", &["--q", "2 columns", "3 heads"]),
    ("{OK} --causal --documents 1,2", &["--documents", "add up"]),
    ("{OK} --keep '1 1 1'", &["--keep", "[1, 1, 1, 3]"]),
    ("{OK} --bias '1 1 1'", &["--bias", "[1, 1, 1, 3]"]),
    ("{OK} --bias '[true, false]'", &["--bias", "truth values"]),
    ("{OK} --sinks '1 2'", &["--sinks", "2 values", "1 needed"]),
    ("{OK} --q-norm 1", &["--q-norm", "1 value given", "2 needed"]),
    ("{OK} --drop '1 1' --empty-rows error", &["--empty-rows", "2 of 2 rows", "[0, 0, 0]"]),
    ("{OK} --scale nan", &["--scale", "NaN", "finite"]),
    (
        "--q f32.npy --k f32.npy --v f32.npy --scale 1e39",
        &["--scale", "1e39 in single precision (f32)", "multiply q by the rest"],
    ),
    ("--q '1 0' --k '1 0 0' --v 1", &["--k", "head_dim 2", "[1, 1, 1, 3]"]),
    ("--q 1 --k '1;2' --v '1;2' --causal", &["--causal", "1 query against 2 keys"]),
    ("--q short.npy --k 1 --v 1", &["--q", "short.npy", "short"]),
    ("--q '[true]' --k 1 --v 1", &["--q", "truth values"]),
];

#[test]
fn bad_input_is_refused() {
    let folder = folder();
    let folder = folder.path();
    write(folder, "f32.npy", &npy_f32("(1, 1)", &[1.0]));
    write(
        folder,
        "f64.npy",
        &npy("<f8", "(1, 1)", &1.0_f64.to_le_bytes()),
    );
    write(folder, "f16.npy", &npy("<f2", "(1, 1)", &[0, 0x3c]));
    write(folder, "short.npy", &npy_f32("(2, 2)", &[1.0]));
    let one = [bf16::ONE];
    let mut bytes = Vec::new();
    encode(
        &mut bytes,
        Encoding::Safetensors,
        vec![Encoded::whole("q", &[1, 1], &one[..])],
        &[],
    )
    .expect("encoded");
    write(folder, "bf16.safetensors", &bytes);
    fs::create_dir(folder.join("folder.npy")).expect("a folder");
    let cases: Vec<(String, &[&str])> = REFUSED
        .iter()
        .map(|(line, words)| {
            (
                line.replace("{OK}", "--q '1 0;0 1' --k '1 0;0 1' --v '2 0;0 4'"),
                *words,
            )
        })
        .collect();
    refusals("run", folder, &cases);
    let files = fs::read_dir(folder).expect("a folder").count();
    assert_eq!(files, 6, "a refused run left a file");
}

/// What needs more memory than there is ends in words.
#[cfg(target_os = "linux")]
#[test]
fn too_little_memory() {
    let folder = folder();
    write(
        folder.path(),
        "q.npy",
        &npy_f32("(1000000, 1)", &[0.0; 1_000_000]),
    );
    write(folder.path(), "v.npy", &npy_f32("(1, 1000)", &[0.0; 1000]));
    let script = format!(
        "ulimit -v 2000000; exec '{}' run --q q.npy --k 1 --v v.npy --threads 1",
        env!("CARGO_BIN_EXE_qkv")
    );
    let output = std::process::Command::new("bash")
        .args(["-c", &script])
        .current_dir(folder.path())
        .output()
        .expect("bash");
    let err = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(2), "{err}");
    for word in ["--q", "[1000000, 1]", "MiB", "fewer queries"] {
        assert!(err.contains(word), "{word:?} is missing in {err}");
    }
}

/// The environment names the instruction set too, and is named where it is wrong.
#[test]
fn a_wrong_environment() {
    let output = command(folder().path())
        .args(["run", "--q", "1", "--k", "1", "--v", "1"])
        .env("QKV_ISA", "sse")
        .output()
        .expect("runs");
    let err = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(2), "{err}");
    assert!(
        err.starts_with("qkv: QKV_ISA: sse is not possible; choose avx512"),
        "{err}"
    );
}
