//! Whatever a file or an argument holds: messages are short, in plain words, and safe to print.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{bytes, npy, safetensors, zip};
use qkv_io::{read_argument, read_bytes};

/// What a terminal would act on, by name and as it could be hidden in a text.
const ACTING: &str = "\u{1b}[31mred\u{202e}\u{9b}2J\u{2066}\n\r\t\u{7f}\u{200b}";

#[track_caller]
fn fit(case: &str, message: &str) {
    assert!(message.len() <= 2500, "{case}: {} bytes", message.len());
    let acting = |c: char| {
        c.is_control()
            || ('\u{202a}'..='\u{202e}').contains(&c)
            || ('\u{2066}'..='\u{2069}').contains(&c)
            || c == '\u{200b}'
    };
    assert!(!message.chars().any(acting), "{case}: {message:?}");
    for word in [
        "\\u{",
        "\\'",
        "zip::",
        "Zip32",
        "expected usize",
        "variant",
        "os error",
        " at line ",
        "EOF while",
        "serde",
        "Some(",
        "Utf8Error",
        "column 0",
    ] {
        assert!(!message.contains(word), "{case}: {word}: {message}");
    }
}

/// Names, values and whole files that are made of `text`.
fn files(text: &str) -> Vec<(&'static str, Vec<u8>)> {
    let quoted = serde_json::to_string(text).unwrap();
    let tensor = |name: &str, dtype: &str, shape: &str, end: usize| {
        format!(r#"{name}:{{"dtype":{dtype},"shape":{shape},"data_offsets":[0,{end}]}}"#)
    };
    let header =
        |inside: String, data: usize| safetensors(&format!("{{{inside}}}"), &vec![0; data]);
    let two = format!(
        "{},{}",
        tensor(&quoted, "\"U8\"", "[1]", 1),
        r#""other":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}"#
    );
    let good = bytes("f4_le_c.npy");
    let dictionary =
        |descr: &str| format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': (1,), }}");
    let member = format!("{text}.npy");
    let list = vec!["1"; text.chars().count()].join(",");
    let axes = format!("{{'descr': '<f8', 'fortran_order': False, 'shape': ({list},), }}");
    let mut all = vec![
        ("word", text.as_bytes().to_vec()),
        ("csv", format!("1,2\n3,\"{text}\"\n").into_bytes()),
        ("heading", format!("\"{text}\",b\nc,d\n").into_bytes()),
        ("list", format!("[[1, {text}]]").into_bytes()),
        ("quoted", format!("[[1, \"{text}\"]]").into_bytes()),
        ("after", format!("[1] {text}").into_bytes()),
        (
            "overflow",
            format!("1 {}", "9".repeat(text.len() + 400)).into_bytes(),
        ),
        (
            "json names",
            format!("{{{quoted}: [1], \"b\": [2]}}").into_bytes(),
        ),
        (
            "json twice",
            format!("{{{quoted}: [1], {quoted}: [2]}}").into_bytes(),
        ),
        ("json value", format!("{{\"a\": [{quoted}]}}").into_bytes()),
        ("json cut", format!("{{{quoted}: [1").into_bytes()),
        ("tensor names", header(two, 2)),
        (
            "tensor shape",
            header(tensor(&quoted, "\"U8\"", "[-2]", 1), 1),
        ),
        ("tensor type", header(tensor("\"x\"", &quoted, "[1]", 1), 1)),
        (
            "tensor size",
            header(tensor(&quoted, "\"U8\"", "[3]", 1), 1),
        ),
        (
            "tensor axes",
            header(tensor(&quoted, "\"U8\"", &format!("[{list}]"), 2), 2),
        ),
        ("members", zip(&[(&member, &good), ("b.npy", &good)], true)),
        ("member", zip(&[(&member, b"hello world")], true)),
    ];
    if text.len() < 60_000 {
        all.push(("npy type", npy(&dictionary(text), &[0; 8])));
        all.push(("npy key", npy(&format!("{{'{text}': 1}}"), &[0; 8])));
        if axes.len() < 65_000 {
            all.push(("npy axes", npy(&axes, &[0; 4])));
            all.push((
                "npy axes overflow",
                npy(&axes.replace("1,", "9999,"), &[0; 4]),
            ));
        }
    }
    all
}

#[test]
fn nothing_in_a_file_acts_on_the_terminal_or_floods_it() {
    for text in [
        ACTING,
        &"x".repeat(30_000),
        &"\u{1b}".repeat(3000),
        &"é".repeat(4000),
    ] {
        for (case, file) in files(text) {
            for name in [None, Some("absent"), Some(text)] {
                for origin in ["q.npy", text] {
                    match read_bytes(&file, name, origin) {
                        Ok(array) => assert!(!array.is_empty() || case == "npy axes"),
                        Err(error) => fit(case, &error.to_string()),
                    }
                }
            }
        }
    }
}

#[test]
fn nothing_in_an_argument_does() {
    for text in [
        ACTING,
        &"x".repeat(120_000),
        &"1/3 ".repeat(30_000),
        &"[".repeat(100_000),
    ] {
        for argument in [
            text.to_owned(),
            format!("1 0; 0 {text}"),
            format!("[{text}]"),
            format!("{text}.npz:q"),
        ] {
            let error = read_argument(&argument, &mut std::io::empty()).unwrap_err();
            fit(&argument[..8], &error.to_string());
        }
    }
}

/// Every byte of the fixtures changed and every length of them cut.
#[test]
fn damage_is_said_in_plain_words() {
    let tensors = safetensors(
        r#"{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#,
        &[0; 8],
    );
    let fixtures = [
        bytes("f4_le_c.npy"),
        bytes("stored.npz"),
        bytes("deflated.npz"),
        tensors,
        b"{\"a\": [[1, 2], [3, 4]]}".to_vec(),
    ];
    for file in fixtures {
        for at in 0..file.len() {
            let mut changed = file.clone();
            for byte in [0, b'"', b'x', 0xff] {
                changed[at] = byte;
                for name in [None, Some("a")] {
                    if let Err(error) = read_bytes(&changed, name, "f") {
                        fit("changed", &error.to_string());
                    }
                }
            }
            if let Err(error) = read_bytes(&file[..at], None, "f") {
                fit("cut", &error.to_string());
            }
        }
    }
}

#[test]
fn small_numbers_are_not_rows_of_zeros() {
    let array = read_argument("1e-300 1; 0 1", &mut std::io::empty()).unwrap();
    let error = array.to_bools().unwrap_err().to_string();
    assert!(
        error.starts_with("the value 1e-300 at [0, 0] is neither"),
        "{error}"
    );
}
