//! Damage to valid files is an error or another array, never a panic.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{bytes, fixtures, tensor, zip};
use qkv_io::{Array, Error, parse_literal, read_bytes};

fn try_all(file: &[u8]) -> [Result<Array, Error>; 2] {
    let results = [
        read_bytes(file, None, "t"),
        read_bytes(file, Some("q"), "t"),
    ];
    for error in results.iter().filter_map(|r| r.as_ref().err()) {
        assert!(!error.to_string().is_empty());
    }
    for array in results.iter().flatten() {
        assert_eq!(array.shape.iter().product::<usize>(), array.len());
        assert!(
            array
                .decimals
                .as_ref()
                .is_none_or(|d| d.len() == array.len())
        );
    }
    results
}

fn subjects() -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<(String, Vec<u8>)> = fixtures()
        .into_iter()
        .map(|name| (name.clone(), bytes(&name)))
        .collect();
    for (name, text) in [
        ("rows", "1 0.5; 0 1"),
        ("lists", "[[1,0],[\"nan\",1e3]]"),
        ("csv", "a,b\n1,0\n0,1\n"),
        ("semicolons", "1;0\n0;1\n"),
        (
            "json",
            "{\"q\": [[1, 2]], \"s\": [{\"name\": \"k\", \"values\": [3]}]}",
        ),
    ] {
        files.push((name.to_owned(), text.as_bytes().to_vec()));
    }
    files.push((
        "safetensors".to_owned(),
        tensor("BF16", &[2], &[0x80, 0x3F, 0xC0, 0x3F]),
    ));
    files.push(("bool".to_owned(), tensor("BOOL", &[2], &[1, 0])));
    files.push((
        "torch".to_owned(),
        zip(&[("archive/data.pkl", b"\x80\x02.")], false),
    ));
    files
}

#[test]
fn every_truncation() {
    for (name, file) in subjects() {
        let binary = !std::str::from_utf8(&file).is_ok_and(|t| !t.contains('\0'));
        for end in 0..file.len() {
            for result in try_all(&file[..end]) {
                // One byte alone may be a digit.
                assert!(
                    !binary || end < 2 || result.is_err(),
                    "{name} cut at {end} was read"
                );
            }
        }
    }
}

#[test]
fn every_corrupted_byte() {
    for (_, file) in subjects() {
        for at in 0..file.len() {
            let mut damaged = file.clone();
            for value in [
                0,
                1,
                b'9',
                b'[',
                0x7f,
                0x80,
                0xff,
                file[at] ^ 1,
                file[at] ^ 0x20,
            ] {
                damaged[at] = value;
                let _ = try_all(&damaged);
                if let Ok(text) = std::str::from_utf8(&damaged) {
                    let _ = parse_literal(text);
                }
            }
        }
    }
}

#[test]
fn every_appended_byte_on_binary_files_is_noticed() {
    for (name, mut file) in subjects() {
        if name.ends_with(".npy") || name == "safetensors" {
            file.push(b' ');
            assert!(read_bytes(&file, None, "t").is_err(), "{name}");
        }
    }
}
