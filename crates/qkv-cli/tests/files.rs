//! Files in and out, standard input, colours, pipes.

mod common;

use common::{command, json_in, npy, npy_f32, qkv, run_with, step, words};
use serde_json::Value;
use std::fs;
use std::io::Read;
use std::process::Stdio;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

#[test]
fn output_files_of_each_kind() {
    let folder = folder();
    let run = |line: &str| {
        let ran = run_with(folder.path(), &words(line), b"");
        assert_eq!(
            (ran.code, ran.out.as_str(), ran.err.as_str()),
            (0, "", ""),
            "{line}"
        );
    };
    run("explain --lang en -o a.txt");
    let text = fs::read_to_string(folder.path().join("a.txt")).expect("text");
    assert_eq!(text, qkv("explain --lang en").out);
    run("explain -o a.json");
    let json = fs::read_to_string(folder.path().join("a.json")).expect("json");
    assert_eq!(json, qkv("explain --json").out);
    run("explain -o a.JSON --json");
    run("explain -o b --format json");
    assert_eq!(
        fs::read_to_string(folder.path().join("b")).expect("json"),
        json
    );
    run("explain -o a.md");
    let markdown = fs::read_to_string(folder.path().join("a.md")).expect("markdown");
    assert_eq!(markdown, qkv("explain --format markdown").out);
    assert!(markdown.starts_with("# "), "{markdown}");
    run("explain -o a.markdown --format markdown");
    run("explain -o a.tex");
    let latex = fs::read_to_string(folder.path().join("a.tex")).expect("latex");
    assert_eq!(latex, qkv("explain --format latex").out);
    assert!(latex.starts_with("% Compile it with: pdflatex"), "{latex}");
    run("explain -o a.html --lang zh");
    let html = fs::read_to_string(folder.path().join("a.html")).expect("html");
    assert_eq!(html, qkv("explain --format html --lang zh").out);
    assert!(html.starts_with("<!DOCTYPE html>\n<html lang=\"zh-CN\">"));
    run("explain --output a.txt");
    // Nothing else is left.
    let mut names: Vec<_> = fs::read_dir(folder.path())
        .expect("a folder")
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .into_string()
                .expect("UTF-8")
        })
        .collect();
    names.sort();
    assert_eq!(
        names,
        [
            "a.JSON",
            "a.html",
            "a.json",
            "a.markdown",
            "a.md",
            "a.tex",
            "a.txt",
            "b"
        ]
    );
}

#[test]
fn minus_is_standard_output() {
    assert_eq!(qkv("explain --json -o -").out, qkv("explain --json").out);
}

#[test]
fn steps_as_safetensors() {
    let folder = folder();
    let line = "explain --x '1 2;3 4' --init xavier --heads 2 --causal -o steps.safetensors";
    let ran = run_with(folder.path(), &words(line), b"");
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (0, "", ""));
    let whole = json_in(
        folder.path(),
        "--x '1 2;3 4' --init xavier --heads 2 --causal",
    );
    // Each step is there under its name, in full precision.
    for name in common::names(&whole) {
        let array = qkv_io::read_file(&folder.path().join("steps.safetensors"), Some(name))
            .expect("the step");
        assert_eq!(array.dtype(), "f64");
        // The test's own parser of JSON is not exact to the last bit.
        let numbers = array.to_f64().expect("numbers");
        assert!(
            common::close(&numbers, &step(&whole, name), 1e-14),
            "{name}"
        );
        let shape: Vec<u64> = array.shape.iter().map(|&n| n as u64).collect();
        assert_eq!(shape, common::shape(&whole, name), "{name}");
    }
    // And can be read back as input.
    let back = "--q steps.safetensors:q --k steps.safetensors:k --v steps.safetensors:v --causal";
    assert_eq!(
        step(&json_in(folder.path(), back), "weights"),
        step(&whole, "weights")
    );
    let bytes = fs::read(folder.path().join("steps.safetensors")).expect("a file");
    let header = String::from_utf8_lossy(&bytes[8..200]).into_owned();
    assert!(
        header.contains("made_by") && header.contains("qkv "),
        "{header}"
    );
}

#[test]
fn files_of_every_format() {
    let folder = folder();
    let write = |name: &str, bytes: &[u8]| {
        fs::write(folder.path().join(name), bytes).expect("written");
    };
    write("q.npy", &npy_f32("(2, 2)", &[1.0, 0.0, 0.0, 1.0]));
    write("k.csv", b"1,0\n0,1\n");
    write("v.json", b"[[2, 0], [0, 4]]");
    write("keep.npy", &npy("|b1", "(2, 2)", &[1, 0, 1, 1]));
    let found = json_in(
        folder.path(),
        "--q q.npy --k k.csv --v v.json --keep keep.npy",
    );
    assert_eq!(step(&found, "output")[..2], [2.0, 0.0]);
    // Half precision is widened.
    write("half.npy", &npy("<f2", "(1, 2)", &[0x00, 0x3c, 0x00, 0xc0]));
    let found = json_in(folder.path(), "--q half.npy --k half.npy --v half.npy");
    assert_eq!(step(&found, "q"), [1.0, -2.0]);
    write("int.npy", &npy("<i4", "(1, 1)", &[7, 0, 0, 0]));
    assert_eq!(
        step(
            &json_in(folder.path(), "--q int.npy --k int.npy --v int.npy"),
            "v"
        ),
        [7.0]
    );
}

#[test]
fn standard_input() {
    let folder = folder();
    let line = words("explain --q - --k '1 0;0 1' --v '2 0;0 4' --json");
    let expected = qkv("explain --json").out;
    for input in [
        &b"1 0; 0 1"[..],
        b"[[1,0],[0,1]]\n",
        b"1,0\n0,1\n",
        &npy_f32("(2, 2)", &[1.0, 0.0, 0.0, 1.0]),
    ] {
        let ran = run_with(folder.path(), &line, input);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""));
        assert_eq!(ran.out, expected);
    }
}

#[test]
fn an_input_is_never_overwritten() {
    let folder = folder();
    fs::write(
        folder.path().join("a.json"),
        b"{\"q\": [[1, 0]], \"k\": [[1, 0]]}",
    )
    .expect("written");
    for file in ["a.json", "./a.json", "../a.json"] {
        fs::create_dir_all(folder.path().join("in")).expect("a folder");
        let (here, input) = match file {
            "../a.json" => (folder.path().join("in"), "../a.json"),
            _ => (folder.path().to_owned(), "a.json"),
        };
        let line = format!("explain --q {input}:q --k '1 0' --v '1' -o {file}");
        let ran = run_with(&here, &words(&line), b"");
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{line}");
        assert!(
            ran.err.contains("-o:") && ran.err.contains("--q"),
            "{}",
            ran.err
        );
        let kept = fs::read(folder.path().join("a.json")).expect("the input");
        assert!(kept.starts_with(b"{\"q\""));
    }
}

#[test]
fn a_failed_run_leaves_the_old_file() {
    let folder = folder();
    fs::write(folder.path().join("a.txt"), b"old").expect("written");
    let ran = run_with(
        folder.path(),
        &words("explain --q 1 --k '1 2' --v 1 -o a.txt"),
        b"",
    );
    assert_eq!(ran.code, 2);
    assert_eq!(
        fs::read(folder.path().join("a.txt")).expect("the file"),
        b"old"
    );
}

#[test]
fn no_colour_in_pipes_and_files() {
    let folder = folder();
    let text = |args: &str, variables: &[(&str, &str)]| {
        let output = command(folder.path())
            .args(words(args))
            .envs(variables.iter().copied())
            .output()
            .expect("runs");
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let plain = text("explain --lang en", &[]);
    assert!(!plain.contains('\x1b'));
    assert_eq!(
        text(
            "explain --lang en --color never",
            &[("CLICOLOR_FORCE", "1")]
        ),
        plain
    );
    assert_eq!(
        text(
            "explain --lang en",
            &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]
        ),
        plain
    );
    assert_eq!(text("explain --lang en", &[("NO_COLOR", "1")]), plain);
    assert_eq!(text("explain --lang en", &[("CLICOLOR", "1")]), plain);
    // Forced, it is coloured.
    let forced = text("explain --lang en --color always", &[("NO_COLOR", "1")]);
    assert!(forced.contains('\x1b'));
    assert_eq!(
        text("explain --lang en", &[("CLICOLOR_FORCE", "1")]),
        forced
    );
    assert!(!text("explain --json --color always", &[]).contains('\x1b'));
    assert!(!text("--help", &[]).contains('\x1b'));
    assert!(!text("explain --help", &[("CLICOLOR_FORCE", "0")]).contains('\x1b'));
    let ran = qkv("explain --q 1");
    assert!(!ran.err.contains('\x1b'));
}

/// `qkv explain … | head`: the reader leaves, the command ends in silence.
#[test]
fn a_closed_pipe_is_no_error() {
    let folder = folder();
    let tokens: Vec<String> = (0..200).map(|i| format!("{i} 1")).collect();
    let tokens = tokens.join(";");
    for format in ["text", "json"] {
        let mut child = command(folder.path())
            .args([
                "explain", "--q", &tokens, "--k", &tokens, "--v", &tokens, "--format", format,
            ])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts");
        let mut out = child.stdout.take().expect("standard output");
        let mut some = [0; 10];
        out.read_exact(&mut some).expect("the first bytes");
        drop(out);
        let output = child.wait_with_output().expect("ends");
        assert_eq!(output.status.code(), Some(0), "{format}");
        assert_eq!(output.stderr, b"", "{format}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_an_error() {
    let full = fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .expect("/dev/full");
    let output = command(&std::env::temp_dir())
        .arg("explain")
        .stdout(full)
        .output()
        .expect("runs");
    assert_eq!(output.status.code(), Some(2));
    let err = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(
        err.starts_with("qkv: could not write to standard output"),
        "{err}"
    );
}

#[test]
fn json_ends_in_a_line_end_and_is_one_line() {
    let out = qkv("explain --json").out;
    assert_eq!(out.matches('\n').count(), 1);
    assert!(serde_json::from_str::<Value>(&out).is_ok());
}
