//! What needs too much memory is refused before memory is taken for it.
#![cfg(target_os = "linux")]

mod common;

use common::{npy, npy_f32};
use std::path::Path;
use std::process::{Command, Output};

/// Runs with an address space of so many KiB.
fn limited(folder: &Path, kib: u64, line: &str) -> (Option<i32>, String) {
    let script = format!(
        "ulimit -v {kib}; exec '{}' explain {line}",
        env!("CARGO_BIN_EXE_qkv")
    );
    let Output { status, stderr, .. } = Command::new("bash")
        .args(["-c", &script])
        .current_dir(folder)
        .env("LC_ALL", "C")
        .output()
        .expect("bash");
    (status.code(), String::from_utf8(stderr).expect("UTF-8"))
}

fn refused(folder: &Path, kib: u64, line: &str, words: &[&str]) {
    let (code, err) = limited(folder, kib, line);
    assert_eq!(code, Some(2), "{line}: {err}");
    for word in words {
        assert!(err.contains(word), "{line}: {word} is missing in {err}");
    }
    assert!(
        !err.contains("damaged") && !err.contains("download"),
        "{line}: {err}"
    );
}

/// Widths that need more than 4 GiB name the option that asks for them, and nothing was drawn: the
/// address space is far too small for it.
#[test]
fn widths_of_drawn_weights() {
    let folder = tempfile::tempdir().expect("a folder");
    for (line, words) in [
        (
            "--x '1 2' --init xavier --dk 50000000",
            ["--dk: ", "d_k = 50000000 and d_v = 50000000"],
        ),
        (
            "--x '1 2' --init xavier --dk 100000000",
            ["--dk: ", "narrower ones with --dk and --dv"],
        ),
        (
            "--x '1 2' --init normal:1 --dk 2 --dv 90000000",
            ["--dv: ", "d_v = 90000000"],
        ),
        (
            "--x '1 2' --init xavier --dk 4 --heads 90000000",
            ["--dk: ", "90000000 heads"],
        ),
        (
            "--x '1 2' --init xavier --dk 100000000 --json",
            ["--dk: ", "more than the 4 GiB that are taken"],
        ),
    ] {
        refused(folder.path(), 200_000, line, &words);
    }
}

/// Below 4 GiB, and yet more than there is.
#[test]
fn less_memory_than_is_needed() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, bytes: &[u8]| {
        std::fs::write(folder.path().join(name), bytes).expect("written");
    };
    write("long.npy", &npy_f32("(8000, 1)", &[0.0; 8000]));
    write(
        "wide.npy",
        &npy("|u1", "(1, 60000000)", &vec![1; 60_000_000]),
    );
    write("rows.csv", "1,2\n".repeat(20_000_000).as_bytes());
    for (kib, line, words) in [
        (
            300_000,
            "--x '1 2' --init xavier --dk 3000000",
            ["--dk: ", "there is not so much memory"],
        ),
        (
            300_000,
            "--q long.npy --k long.npy --v long.npy",
            ["--q: ", "[1, 1, 8000, 8000]"],
        ),
        (
            300_000,
            "--q wide.npy --k 1 --v 1",
            ["--q: ", "there is no memory for"],
        ),
        (
            100_000,
            "--q wide.npy --k 1 --v 1",
            ["--q: ", "there is no memory for"],
        ),
        (
            300_000,
            "--q rows.csv --k 1 --v 1",
            ["--q: ", "there is no memory for"],
        ),
    ] {
        refused(folder.path(), kib, line, &words);
    }
}

/// A small file that unpacks to a lot: memory is short, the file is whole.
#[test]
fn a_packed_array_that_does_not_fit() {
    let folder = tempfile::tempdir().expect("a folder");
    let made = Command::new("python3")
        .args([
            "-c",
            "import zipfile\n\
             h=\"{'descr': '|u1', 'fortran_order': False, 'shape': (1, 90000000), }\"\n\
             h+=' '*(-(len(h)+11)%64)+'\\n'\n\
             z=zipfile.ZipFile('big.npz','w',zipfile.ZIP_DEFLATED)\n\
             z.writestr('q.npy', b'\\x93NUMPY\\x01\\0'+len(h).to_bytes(2,'little')+h.encode()+bytes(90000000))",
        ])
        .current_dir(folder.path())
        .status();
    if !made.is_ok_and(|status| status.success()) {
        return; // without Python there is nobody to pack it
    }
    refused(
        folder.path(),
        100_000,
        "--q big.npz --k 1 --v 1",
        &["--q: ", "there is no memory for"],
    );
}

/// Arrays that together are more than is taken are refused by their headers.
#[test]
fn more_values_than_are_taken() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = std::fs::File::create(folder.path().join("huge.npy")).expect("a file");
    let header = npy("<f8", "(1, 200000000)", &[]);
    std::io::Write::write_all(&mut &file, &header).expect("written");
    file.set_len(header.len() as u64 + 1_600_000_000)
        .expect("sparse");
    refused(
        folder.path(),
        200_000,
        "--q huge.npy --k 1 --v 1",
        &[
            "--q: ",
            "has 200000000 values, more than 134217728",
            "give a part of it",
        ],
    );
}

/// Endless standard input ends the reading, not the machine.
#[test]
fn endless_input() {
    let folder = tempfile::tempdir().expect("a folder");
    for (input, words) in [
        ("< /dev/zero", "format is not known"),
        ("< /dev/urandom", ""),
        ("< <(yes 1)", "there is no memory"),
    ] {
        let line = format!("--q - --k 1 --v 1 {input}");
        refused(folder.path(), 200_000, &line, &["--q: ", words]);
    }
}
