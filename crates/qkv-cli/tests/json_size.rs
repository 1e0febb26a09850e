//! JSON of a large run is written as it goes, not built in memory first.
#![cfg(target_os = "linux")]

mod common;

use common::npy_f32;
use std::process::Command;

/// The steps take 4·1500² numbers, 72 MB; a tree of JSON values would take twenty times that.
#[test]
fn a_large_run_fits_into_little_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let numbers: Vec<f32> = (0..3000).map(|n| (n % 17) as f32 / 8.0).collect();
    let path = folder.path().join("q.npy");
    std::fs::write(&path, npy_f32("(1500, 2)", &numbers)).expect("written");
    let script = format!(
        "ulimit -v 400000; '{}' explain --q q.npy --k q.npy --v q.npy -o run.json",
        env!("CARGO_BIN_EXE_qkv")
    );
    let ran = Command::new("bash")
        .args(["-c", &script])
        .current_dir(folder.path())
        .output()
        .expect("bash");
    let err = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert_eq!((ran.status.code(), err.as_str()), (Some(0), ""));
    let json = std::fs::read(folder.path().join("run.json")).expect("a file");
    assert!(json.len() > 50_000_000, "{}", json.len());
    assert!(json.ends_with(b"\"empty_rows\":[]}\n"));
}
