//! Replays what fuzzing the fast path kept: every input that reached new code.
//!
//! The corpus lies outside this crate; where it is absent there is nothing to replay.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::path::PathBuf;

#[test]
fn calls() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/kernel");
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    for path in entries.map(|entry| entry.unwrap().path()) {
        let bytes = std::fs::read(&path).unwrap();
        support::check_bytes(&bytes).unwrap_or_else(|what| panic!("{path:?}: {what}"));
    }
}
