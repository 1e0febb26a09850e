//! Runs the command as a user would, without a shell.

#![allow(dead_code)] // each test file uses its part
#![allow(missing_docs, clippy::panic)]

use serde_json::Value;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

/// Words between blanks; single quotes keep blanks.
pub fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted) = (Vec::new(), None::<String>, false);
    for c in line.chars() {
        match c {
            '\'' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            c if c.is_whitespace() && !quoted => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

pub fn command(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_qkv"));
    command.current_dir(folder).env("LC_ALL", "C");
    // No test asks a network.
    command.env("HF_HUB_OFFLINE", "1");
    for name in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "TERM"] {
        command.env_remove(name);
    }
    command
}

pub fn run_with(folder: &Path, args: &[String], stdin: &[u8]) -> Ran {
    let mut child = command(folder)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    let mut pipe = child.stdin.take().expect("its standard input");
    // A command that reads nothing closes its end.
    let _ = pipe.write_all(stdin);
    drop(pipe);
    let output = child.wait_with_output().expect("the command ends");
    Ran {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).expect("UTF-8"),
        err: String::from_utf8(output.stderr).expect("UTF-8"),
    }
}

pub fn qkv(line: &str) -> Ran {
    run_with(&std::env::temp_dir(), &words(line), b"")
}

/// Each line after the command ends with status 2, prints nothing but one message, and the words
/// are in that.
pub fn refusals(command: &str, folder: &Path, cases: &[(impl AsRef<str>, &[&str])]) {
    let mut faults = Vec::new();
    for (line, expected) in cases {
        let line = line.as_ref();
        let ran = run_with(folder, &words(&format!("{command} {line}")), b"");
        let mut wrong = Vec::new();
        if ran.code != 2 {
            wrong.push(format!("exit {}", ran.code));
        }
        if !ran.out.is_empty() {
            wrong.push("something on standard output".into());
        }
        if !ran.err.starts_with("qkv: ") {
            wrong.push("does not start with \"qkv: \"".into());
        }
        for word in expected.iter().filter(|word| !ran.err.contains(**word)) {
            wrong.push(format!("{word:?} is missing"));
        }
        for word in [
            "panicked",
            "RUST_BACKTRACE",
            "Error {",
            "Some(",
            "\\u{",
            "os error",
            "--output",
            "1 heads",
            "1 queries",
            "1 numbers",
        ] {
            if ran.err.contains(word) {
                wrong.push(format!("{word:?} is there"));
            }
        }
        if !wrong.is_empty() {
            faults.push(format!(
                "qkv {command} {line}\n  {}\n  says: {}",
                wrong.join("; "),
                ran.err
            ));
        }
    }
    assert!(
        faults.is_empty(),
        "{} of {}:\n{}",
        faults.len(),
        cases.len(),
        faults.join("\n")
    );
}

/// What `qkv explain LINE --json` prints.
pub fn json(line: &str) -> Value {
    json_in(&std::env::temp_dir(), line)
}

pub fn json_in(folder: &Path, line: &str) -> Value {
    let ran = run_with(folder, &words(&format!("explain {line} --json")), b"");
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{line}");
    serde_json::from_str(&ran.out).expect("JSON")
}

pub fn names(json: &Value) -> Vec<&str> {
    names_in(json, "steps")
}

/// The names in a list of arrays: "steps" or "gradients".
pub fn names_in<'a>(json: &'a Value, list: &str) -> Vec<&'a str> {
    let arrays = json[list].as_array().expect("a list of arrays");
    arrays
        .iter()
        .map(|array| array["name"].as_str().expect("a name"))
        .collect()
}

fn find<'a>(json: &'a Value, list: &str, name: &str) -> &'a Value {
    let arrays = json[list].as_array().expect("a list of arrays");
    arrays
        .iter()
        .find(|array| array["name"] == name)
        .unwrap_or_else(|| panic!("no {name} in {:?}", names_in(json, list)))
}

pub fn shape(json: &Value, name: &str) -> Vec<u64> {
    let shape = find(json, "steps", name)["shape"]
        .as_array()
        .expect("a shape");
    shape.iter().map(|n| n.as_u64().expect("a size")).collect()
}

/// The numbers of a step, row-major.
pub fn step(json: &Value, name: &str) -> Vec<f64> {
    numbers(json, "steps", name)
}

/// The numbers of a gradient, row-major.
pub fn gradient(json: &Value, name: &str) -> Vec<f64> {
    numbers(json, "gradients", name)
}

fn numbers(json: &Value, list: &str, name: &str) -> Vec<f64> {
    fn collect(value: &Value, into: &mut Vec<f64>) {
        match value {
            Value::Array(list) => list.iter().for_each(|value| collect(value, into)),
            Value::Number(number) => into.push(number.as_f64().expect("a number")),
            Value::String(text) => into.push(text.parse().expect("inf or nan")),
            other => panic!("{other} among numbers"),
        }
    }
    let mut numbers = Vec::new();
    collect(&find(json, list, name)["values"], &mut numbers);
    numbers
}

pub fn close(found: &[f64], expected: &[f64], tolerance: f64) -> bool {
    found.len() == expected.len()
        && found
            .iter()
            .zip(expected)
            .all(|(found, expected)| found == expected || (found - expected).abs() <= tolerance)
}

/// A step of `qkv explain LINE` has these numbers, to six digits.
#[track_caller]
pub fn check(line: &str, name: &str, expected: &[f64]) {
    let found = step(&json(line), name);
    assert!(
        close(
            &found,
            expected,
            6e-7 * (1.0
                + expected.iter().fold(0.0, |m: f64, x| {
                    if x.is_finite() { m.max(x.abs()) } else { m }
                }))
        ),
        "{line}\n{name}: {found:?}\nexpected: {expected:?}"
    );
}

/// An npy file.
pub fn npy(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let mut header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
    while !(10 + header.len() + 1).is_multiple_of(64) {
        header.push(' ');
    }
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    bytes
}

pub fn npy_f32(shape: &str, numbers: &[f32]) -> Vec<u8> {
    let data: Vec<u8> = numbers
        .iter()
        .flat_map(|number| number.to_le_bytes())
        .collect();
    npy("<f4", shape, &data)
}
