//! `qkv run` against the definition, which `qkv explain` prints: every input format, number format,
//! layout and option, and what it writes.

#[path = "../common/mod.rs"]
mod common;

mod computed;
mod files;
mod gradients;
mod refused;

use common::{npy_f32, run_with, words};
use qkv::{DType, bound};
use qkv_io::{Array, read_file};
use std::fs;
use std::path::Path;

pub(crate) fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

/// Numbers between −1 and 1 that fill every bit of a format.
pub(crate) fn numbers(seed: u64, count: usize) -> Vec<f64> {
    let mut state = seed;
    (0..count)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
        })
        .collect()
}

pub(crate) fn f32s(seed: u64, count: usize) -> Vec<f32> {
    numbers(seed, count).iter().map(|&x| x as f32).collect()
}

pub(crate) fn write(folder: &Path, name: &str, bytes: &[u8]) {
    fs::write(folder.join(name), bytes).expect("written");
}

pub(crate) fn shape_text(shape: &[usize]) -> String {
    let axes: Vec<String> = shape.iter().map(usize::to_string).collect();
    format!("({},)", axes.join(", "))
}

pub(crate) fn write_f32(folder: &Path, name: &str, shape: &[usize], seed: u64) {
    let count = shape.iter().product();
    let bytes = npy_f32(&shape_text(shape), &f32s(seed, count));
    write(folder, name, &bytes);
}

/// q, k and v of different sizes: B 2, H 4, H_kv 2, L_q 3, L_k 5, d_k 6, d_v 7.
pub(crate) fn write_arrays(folder: &Path) {
    write_f32(folder, "q.npy", &[2, 4, 3, 6], 1);
    write_f32(folder, "k.npy", &[2, 2, 5, 6], 2);
    write_f32(folder, "v.npy", &[2, 2, 5, 7], 3);
}

pub(crate) const ARRAYS: &str = "--q q.npy --k k.npy --v v.npy";

#[track_caller]
pub(crate) fn run(folder: &Path, line: &str) {
    let ran = run_with(folder, &words(&format!("run {line}")), b"");
    assert_eq!(
        (ran.code, ran.out.as_str(), ran.err.as_str()),
        (0, "", ""),
        "{line}"
    );
}

#[track_caller]
pub(crate) fn output(folder: &Path, file: &str, name: &str) -> Array {
    read_file(&folder.join(file), Some(name)).expect("the array")
}

/// How far results may be from the definition's, as `qkv::bound` says it for values of at most 1 and
/// scores of at most `largest`; the output may be rounded once more, to `digits` binary digits.
pub(crate) fn tolerance(dtype: DType, largest: f64, digits: i32) -> f64 {
    bound(dtype, 6, 8, largest) + 0.5_f64.powi(digits)
}

#[track_caller]
pub(crate) fn close(found: &[f64], expected: &[f64], tolerance: f64, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!(
            found == expected || (found - expected).abs() <= tolerance,
            "{what} {at}: {found} for {expected}"
        );
    }
}
