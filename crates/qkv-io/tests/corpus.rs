//! Replays what fuzzing kept: every input that reached new code.
//!
//! The corpus lies outside this crate; where it is absent there is nothing to replay.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::PathBuf;

/// The inputs of one fuzz target.
fn inputs(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(target);
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .map(|path| (path.clone(), std::fs::read(path).unwrap()))
        .collect()
}

#[test]
fn literals() {
    for (path, input) in inputs("literal") {
        let Ok(text) = std::str::from_utf8(&input) else {
            continue;
        };
        if let Ok(array) = qkv_io::parse_literal(text) {
            assert_eq!(
                array.shape.iter().product::<usize>(),
                array.len(),
                "{path:?}"
            );
        }
    }
}

#[test]
fn files() {
    for (path, input) in inputs("bytes").into_iter().chain(inputs("json_csv")) {
        for name in [None, Some("q")] {
            match qkv_io::read_bytes(&input, name, "corpus") {
                Ok(array) => {
                    assert_eq!(
                        array.shape.iter().product::<usize>(),
                        array.len(),
                        "{path:?}"
                    );
                }
                Err(error) => assert!(!error.to_string().is_empty(), "{path:?}"),
            }
        }
    }
}
