//! `qkv bench`: what it prints has the fields and sane values. No test judges a time.

mod common;

use common::{command, npy_f32, qkv, refusals, run_with, words};
use serde_json::Value;
use std::fs;
use std::path::Path;

const FIELDS: [&str; 14] = [
    "case",
    "dtype",
    "mode",
    "mask",
    "threads",
    "cores",
    "path",
    "ms",
    "cpu_ms",
    "gflops",
    "share",
    "limit",
    "extra_bytes",
    "peers",
];

fn check(line: &str) -> Value {
    let value: Value = serde_json::from_str(line).expect("an object");
    let object = value.as_object().expect("an object");
    let names: Vec<&str> = object.keys().map(String::as_str).collect();
    assert_eq!(names, FIELDS, "{line}");
    for positive in ["ms", "cpu_ms", "gflops"] {
        let number = value[positive].as_f64().expect("a number");
        assert!(number.is_finite() && number > 0.0, "{positive}: {line}");
    }
    let limit = value["limit"].as_str().expect("a limit");
    assert!(["fma", "bandwidth", "none"].contains(&limit), "{line}");
    assert_eq!(value["share"].is_null(), limit == "none", "{line}");
    if cfg!(target_os = "linux") {
        assert!(value["extra_bytes"].is_u64(), "{line}");
    }
    value
}

#[test]
fn one_object_a_line_with_every_field() {
    let ran = qkv("bench --case tiny-2 --repeat 5 --json");
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    assert_eq!(ran.out.lines().count(), 1);
    let value = check(&ran.out);
    assert_eq!(value["case"], "tiny-2");
    assert_eq!(value["dtype"], "f32");
    assert_eq!(value["mode"], "forward");
    assert_eq!(value["mask"], "none");
    assert_eq!(value["threads"], 1);
    assert_eq!(value["limit"], "none");
    assert_eq!(value["peers"], serde_json::json!({}));
}

/// How many cores this test, and the command, may use.
fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// What is said of so many threads.
fn few_cores(threads: usize) -> String {
    if threads <= cores() {
        return String::new();
    }
    format!(
        "qkv: warning: --threads: {threads} threads share {} and wait for each other: their figures \
         are not those of {threads} cores; give no more threads than cores\n",
        qkv_io::many(cores() as u64, "core")
    )
}

#[test]
fn more_threads_than_cores() {
    for threads in [cores() + 1, cores(), 1] {
        let line = format!("bench --case tiny-2 --threads {threads},1 --repeat 5 --json");
        let ran = qkv(&line);
        assert_eq!((ran.code, ran.err), (0, few_cores(threads)), "{line}");
        let value = check(ran.out.lines().next().expect("a line"));
        assert_eq!(value["threads"], threads);
        assert_eq!(value["cores"], cores());
    }
    assert!(few_cores(cores() + 1).contains("warning"));
    // Where nobody can read it, it is no failure.
    #[cfg(target_os = "linux")]
    {
        let line = format!(
            "bench --case tiny-2 --threads {} --repeat 5 --json",
            cores() + 1
        );
        let full = fs::OpenOptions::new()
            .write(true)
            .open("/dev/full")
            .expect("a device");
        let status = command(Path::new("."))
            .args(words(&line))
            .stdout(std::process::Stdio::null())
            .stderr(full)
            .status();
        assert_eq!(status.expect("runs").code(), Some(0));
    }
}

/// Whatever `--case` takes is in the help.
#[test]
fn every_case_is_in_the_help() {
    let says = qkv("bench --case x").err;
    let (_, cases) = says.split_once("give one of ").expect("a list");
    let help = qkv("bench --help").out;
    let words: Vec<&str> = help
        .split(|c: char| c.is_whitespace() || ",:;".contains(c))
        .collect();
    for case in cases.trim().split(", ") {
        assert!(words.contains(&case), "{case} is not in the help");
    }
    assert!(cases.contains("faults-"));
}

#[test]
fn each_combination_once() {
    let line = "bench --case tiny-16,tiny-2,tiny-16 --mask none,float --threads 1,2 --dtype f64 \
                --isa portable --repeat 5 --json";
    let ran = qkv(line);
    assert_eq!((ran.code, ran.err), (0, few_cores(2)));
    let found: Vec<_> = ran
        .out
        .lines()
        .map(|line| {
            let value = check(line);
            assert_eq!(value["dtype"], "f64");
            assert_eq!(value["path"], "portable");
            let text = |name: &str| value[name].as_str().expect("a word").to_owned();
            (text("case"), text("mask"), value["threads"].as_u64())
        })
        .collect();
    let mut expected = Vec::new();
    for case in ["tiny-16", "tiny-2"] {
        for mask in ["none", "float"] {
            for threads in [1, 2] {
                expected.push((case.to_owned(), mask.to_owned(), Some(threads)));
            }
        }
    }
    assert_eq!(found, expected);
}

/// The operations that count are those of the suite: 2·B·H·L_q·L_k·(d_k + d_v).
#[test]
fn operations_by_time() {
    let value = check(&qkv("bench --case tiny-16 --repeat 5 --json").out);
    let flops = 2.0 * 4.0 * 16.0 * 16.0 * 64.0;
    let found = value["gflops"].as_f64().expect("a number") * 1e9;
    let expected = flops / (value["cpu_ms"].as_f64().expect("a number") * 1e-3);
    // Both are printed with six digits.
    assert!((found / expected - 1.0).abs() < 2e-5, "{found} {expected}");
}

/// Five products of matrices instead of two; and decoding has no backward pass.
#[test]
fn the_backward_pass() {
    let line = "bench --mode backward --case tiny-16 --mask none,bool,float --repeat 5 --json";
    let ran = qkv(line);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    assert_eq!(ran.out.lines().count(), 3);
    for line in ran.out.lines() {
        let value = check(line);
        assert_eq!(value["mode"], "backward");
        let flops = 2.5 * 2.0 * 4.0 * 16.0 * 16.0 * 64.0;
        let found = value["gflops"].as_f64().expect("a number") * 1e9;
        let expected = flops / (value["cpu_ms"].as_f64().expect("a number") * 1e-3);
        assert!((found / expected - 1.0).abs() < 2e-5, "{found} {expected}");
    }
    let ran = qkv("bench --mode backward --case tiny-2 --repeat 5");
    assert!(ran.out.contains(", backward, f32, on "), "{}", ran.out);
}

#[test]
fn a_table_for_people() {
    let ran = qkv("bench --case tiny-2,tiny-16 --mask bool --threads 1,2 --repeat 5");
    assert_eq!((ran.code, ran.err), (0, few_cores(2)));
    let lines: Vec<&str> = ran.out.lines().collect();
    assert!(
        lines.iter().all(|line| line.chars().count() <= 100),
        "{}",
        ran.out
    );
    let head = lines
        .iter()
        .position(|line| line.starts_with("case"))
        .expect("the columns' names");
    let widths: Vec<usize> = lines[head..head + 5]
        .iter()
        .map(|line| line.len())
        .collect();
    assert!(
        widths.iter().all(|width| *width == widths[0]),
        "{}",
        ran.out
    );
    assert!(lines[head + 1].starts_with("tiny-2 "), "{}", ran.out);
    assert!(ran.out.contains("T: threads"));
}

#[test]
fn raw_results_say_where_they_are_from() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = |line: &str| {
        let ran = run_with(folder.path(), &words(line), b"");
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{line}");
        ran.out
    };
    let printed = run("bench --case tiny-2 --repeat 5 --json -o raw.jsonl");
    let raw = fs::read_to_string(folder.path().join("raw.jsonl")).expect("the file");
    let (first, rest) = raw.split_once('\n').expect("lines");
    assert_eq!(rest, printed);
    let first: Value = serde_json::from_str(first).expect("an object");
    for field in ["date", "cpu", "os"] {
        assert!(
            first[field].as_str().is_some_and(|text| !text.is_empty()),
            "{first}"
        );
    }
    assert!(
        first["cores"].as_u64().is_some_and(|cores| cores > 0),
        "{first}"
    );
    assert_eq!(first["versions"]["qkv"], env!("CARGO_PKG_VERSION"));
    // In a folder the file has a name of its own, by the second, and leaves those that are there.
    fs::create_dir(folder.path().join("runs")).expect("a folder");
    for _ in 0..3 {
        run("bench --case tiny-2 --repeat 5 -o runs");
    }
    let names: Vec<_> = fs::read_dir(folder.path().join("runs"))
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name().into_string())
        .collect();
    assert_eq!(names.len(), 3, "{names:?}");
    for name in names {
        let name = name.expect("UTF-8");
        let time = name.split('-').nth(3).expect("a time");
        assert_eq!(time.len(), "hhmmss".len(), "{name}");
        assert!(name.starts_with("20") && name.ends_with(".jsonl"), "{name}");
        let text = fs::read_to_string(folder.path().join("runs").join(&name)).expect("text");
        assert_eq!(text.lines().count(), 2, "{name}");
    }
}

/// Runs with a Python that is a shell script.
#[cfg(unix)]
fn with_python(script: &str, line: &str) -> (Option<i32>, String, String) {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a folder");
    let python = folder.path().join("python");
    fs::write(&python, format!("#!/bin/sh\n{script}\n")).expect("written");
    fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).expect("executable");
    let output = command(folder.path())
        .args(words(line))
        .env("PYTHON", &python)
        .output()
        .expect("runs");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (
        output.status.code(),
        text(output.stdout),
        text(output.stderr),
    )
}

#[cfg(unix)]
#[test]
fn others_that_are_not_there() {
    let line = "bench --case tiny-2 --repeat 5 --against onnxruntime";
    let (code, out, err) = with_python("echo '{\"missing\": \"onnx\", \"says\": \"\"}'", line);
    assert_eq!((code, out.as_str()), (Some(2), ""));
    for word in [
        "--against",
        "onnx is not installed",
        "pip install numpy onnx onnxruntime",
    ] {
        assert!(err.contains(word), "{word:?} is missing in {err}");
    }
    let (code, _, err) = with_python("exit 1", line);
    assert_eq!(code, Some(2));
    assert!(err.contains("it ended at once"), "{err}");
    let here = std::env::temp_dir();
    let here = here.to_str().expect("UTF-8");
    for (python, says) in [
        ("/nowhere/python", "there is no such program"),
        ("nowhere-python", "there is no such program"),
        (here, "that is no program, or you may not run it"),
    ] {
        let output = command(Path::new(here))
            .args(words(line))
            .env("PYTHON", python)
            .output()
            .expect("runs");
        assert_eq!(output.status.code(), Some(2));
        let err = String::from_utf8(output.stderr).expect("UTF-8");
        let says = format!(
            "qkv: --against: onnxruntime with {python} is not possible; {says}: install Python, or \
             name one that is there in the variable PYTHON\n"
        );
        assert_eq!(err, says);
    }
}

/// What others read is written to the system's folder for such files, which is looked at first.
#[cfg(unix)]
#[test]
fn no_folder_for_what_others_read() {
    let output = command(Path::new("."))
        .args(words("bench --case tiny-2 --repeat 5 --against torch"))
        .env("TMPDIR", "/nowhere")
        .env("PYTHON", "/nowhere/python")
        .output()
        .expect("runs");
    assert_eq!(output.status.code(), Some(2));
    let err = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(
        err.starts_with("qkv: TMPDIR: could not make a folder in /nowhere: there is no such file"),
        "{err}"
    );
}

/// A result that differs is no peer's, and one that is equal is; this one is the mean of both
/// values, where the queries ask for something else.
#[cfg(unix)]
#[test]
fn what_computes_something_else_is_left_out() {
    let script = r#"
echo '{"version": "1.2.3"}'
while read -r line; do
  case "$line" in
    *'"load"'*)
      folder=$(printf '%s' "$line" | sed 's/.*"folder":"\([^"]*\)".*/\1/')
      { head -c 128 "$folder/q.npy"; head -c 16 /dev/zero; } > "$folder/zero.npy"
      echo "{\"operators\": [{\"name\": \"zeros\", \"file\": \"$folder/zero.npy\"},
                             {\"name\": \"none\", \"error\": \"no such operator\"}]}" | tr -d '\n'
      echo ;;
    *) echo '{"cpu": [1.0, 1.0]}' ;;
  esac
done"#;
    let line = "bench --case tiny-2 --repeat 5 --against torch";
    let (code, out, err) = with_python(script, line);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert!(
        out.contains("tiny-2, mask none, T 1: torch zeros: computes something else"),
        "{out}"
    );
    assert!(out.contains("torch none: no such operator"), "{out}");
    let (_, out, _) = with_python(script, &format!("{line} --json"));
    assert_eq!(check(&out)["peers"], serde_json::json!({}));
    // An equal result is timed: two seconds against microseconds.
    let (code, out, _) = with_python(&equal(script), &format!("{line} --json"));
    assert_eq!(code, Some(0));
    let torch = &check(&out)["peers"]["torch"];
    assert_eq!(torch["cpu_ms"], 1000.0, "{out}");
    assert!(
        torch["ratio"].as_f64().is_some_and(|ratio| ratio > 1000.0),
        "{out}"
    );
}

/// Gradients are compared, too.
#[cfg(unix)]
#[test]
fn gradients_that_are_others() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("zeros.npy");
    fs::write(&file, npy_f32("(12,)", &[0.0; 12])).expect("written");
    let script = format!(
        "echo '{{\"version\": \"1\"}}'
while read -r line; do
  case \"$line\" in
    *'\"grad\"'*) echo '{{\"operators\": [{{\"name\": \"zeros\", \"file\": \"{}\"}}]}}' ;;
    *) echo '{{\"cpu\": [1.0]}}' ;;
  esac
done",
        file.display()
    );
    let line = "bench --mode backward --case tiny-2 --repeat 5 --against torch";
    let (code, out, err) = with_python(&script, line);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert!(
        out.contains("torch zeros: computes something else") && out.contains("of the gradient of"),
        "{out}"
    );
}

/// The same other, which gives qkv's own result of the arrays it finds.
#[cfg(unix)]
fn equal(script: &str) -> String {
    let own = format!(
        "'{}' run --q \"$folder/q.npy\" --k \"$folder/k.npy\" --v \"$folder/v.npy\" \
         -o \"$folder/zero.npy\"",
        env!("CARGO_BIN_EXE_qkv")
    );
    let (before, after) = script.split_once("{ head").expect("the line");
    let (_, after) = after.split_once('\n').expect("its end");
    format!("{before}{own}\n{after}")
}

#[rustfmt::skip] // one line for each
const REFUSED: &[(&str, &[&str])] = &[
    ("--case tiny", &["--case", "\"tiny\"", "give one of encoder-long", "tiny-16"]),
    ("--case tiny-2,", &["--case", "\"\"", "give one of"]),
    ("--mask sparse", &["--mask", "\"sparse\"", "none, bool, float"]),
    ("--dtype f8", &["--dtype", "\"f8\"", "f32"]),
    ("--mode backward --against openvino", &["--against", "openvino", "no gradients", "torch"]),
    ("--threads 0", &["--threads", "\"0\"", "from 1 to 1024"]),
    ("--threads 1,two", &["--threads", "\"two\"", "from 1"]),
    ("--isa sse", &["--isa", "\"sse\"", "avx512bf16, avx512, avx2, portable"]),
    ("--repeat 0", &["--repeat", "\"0\"", "from 1"]),
    ("--against jax", &["--against", "\"jax\"", "torch, onnxruntime, openvino"]),
    ("--case tiny-2 -o -", &["-o", "standard output", "--json prints the lines there"]),
    ("--case tiny-2 --repeat 5 --json=1", &["--json", "takes no value"]),
    ("--q 1", &["--q", "no such option"]),
    ("tiny-2", &["\"tiny-2\": nothing takes this; --help says what is possible"]),
];

#[test]
fn bad_words_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    refusals("bench", folder.path(), REFUSED);
}
