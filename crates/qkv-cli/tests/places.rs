//! Where results go is looked at before there are any.

mod common;

use common::{refusals, run_with, words};
use std::fs;
use std::path::Path;

/// Each command with an input that is not there, or else measures, and the option that names a file.
#[rustfmt::skip] // one line for each
const COMMANDS: &[(&str, &str, &str, &str)] = &[
    ("explain", "--q none.npy --k 1 --v 1", "-o", "md"),
    ("explain", "--q none.npy --k 1 --v 1 --exercise", "-o", "md"),
    ("explain", "--q none.npy --k 1 --v 1", "-o", "safetensors"),
    ("run", "--q none.npy --k 1 --v 1", "-o", "npy"),
    ("check", "--q none.npy --k 1 --v 1 --output 1", "-o", "html"),
    ("check", "--q none.npy --k 1 --v 1 --output 1", "--tell-apart", "npz"),
    ("check", "none.safetensors none.safetensors", "-o", "json"),
    ("check", "--sheet none.md", "-o", "json"),
    ("trace", "none.safetensors", "-o", "html"),
    ("trace", "none.safetensors", "-o", "safetensors"),
    ("trace", "none.safetensors text", "-o", "json"),
    ("trace", "none.safetensors", "--html", "html"),
    ("trace", "none.safetensors --layer 0 --head 0", "--svg", "svg"),
    ("bench", "--case tiny-2 --repeat 5 --json", "-o", "jsonl"),
];

/// What is said of a file `x.ENDING` in such a place, with the option before it.
fn refused(folder: &Path, file: impl Fn(&str) -> String, says: impl Fn(&str) -> String) {
    for (command, line, option, ending) in COMMANDS {
        let line = format!("{line} {option} {}", file(ending));
        refusals(
            command,
            folder,
            &[(line, &[&format!("{option}: {}", says(ending))])],
        );
    }
}

#[test]
fn a_folder_that_is_not_there() {
    let folder = tempfile::tempdir().expect("a folder");
    refused(
        folder.path(),
        |ending| format!("no/such/x.{ending}"),
        |ending| {
            format!(
                "could not write no/such/x.{ending}: there is no folder no/such; make the folder first"
            )
        },
    );
    // A name that ends as a folder's.
    refused(
        folder.path(),
        |ending| format!("x.{ending}/"),
        |ending| {
            format!("could not write x.{ending}/: there is no folder x.{ending}/; make the folder")
        },
    );
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
}

#[test]
fn a_folder_instead_of_a_file() {
    let folder = tempfile::tempdir().expect("a folder");
    for (command, line, option, ending) in COMMANDS {
        // In a folder the benchmark's file has a name of its own.
        if *command == "bench" {
            continue;
        }
        let name = format!("x.{ending}");
        fs::create_dir_all(folder.path().join(&name)).expect("a folder");
        let says = format!("{option}: {name} is a folder; name a file in it");
        refusals(
            command,
            folder.path(),
            &[(format!("{line} {option} {name}"), &[&says])],
        );
    }
}

#[test]
fn a_file_instead_of_a_folder() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("file"), "").expect("written");
    refused(
        folder.path(),
        |ending| format!("file/x.{ending}"),
        |ending| {
            format!("could not write file/x.{ending}: a part of the path before its last is a file")
        },
    );
}

/// Nobody, not even root, makes files there.
#[cfg(target_os = "linux")]
#[test]
fn a_folder_that_may_not_be_written_to() {
    let folder = tempfile::tempdir().expect("a folder");
    refused(
        folder.path(),
        |ending| format!("/sys/x.{ending}"),
        |ending| format!("could not write /sys/x.{ending}: "),
    );
    let bench = [(
        "--case tiny-2 --repeat 5 -o /sys",
        &["-o: could not write /sys/20"][..],
    )];
    refusals("bench", folder.path(), &bench);
}

/// One would overwrite the other.
#[test]
fn one_file_for_two_results() {
    let folder = tempfile::tempdir().expect("a folder");
    let line = "--weights 1 --tokens a --html x --layer 0 --head 0 --svg ./x";
    let says = "--svg: cannot be used with --html, which names ./x too; name another file";
    refusals("trace", folder.path(), &[(line, &[says])]);
    // A link to the other is the other.
    #[cfg(unix)]
    {
        fs::write(folder.path().join("x.npz"), "old").expect("written");
        std::os::unix::fs::symlink("x.npz", folder.path().join("x")).expect("a link");
        let line = "--q 1 --k 1 --v 1 --output 1 --format json -o x --tell-apart x.npz";
        let says = "--tell-apart: cannot be used with -o, which names x.npz too";
        refusals("check", folder.path(), &[(line, &[says])]);
        assert_eq!(
            fs::read(folder.path().join("x.npz")).expect("the file"),
            b"old"
        );
    }
}

/// Looking leaves nothing behind and spoils nothing, and standard output is no file.
#[test]
fn places_that_are_there() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("old.md"), "old").expect("written");
    let fails = run_with(
        folder.path(),
        &words("explain --q none.npy --k 1 --v 1 -o old.md"),
        b"",
    );
    assert_eq!(fails.code, 2);
    assert!(fails.err.starts_with("qkv: --q: "), "{}", fails.err);
    assert_eq!(
        fs::read(folder.path().join("old.md")).expect("the file"),
        b"old"
    );
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
    let page = run_with(
        folder.path(),
        &words("trace --weights 1 --tokens a --html -"),
        b"",
    );
    assert_eq!((page.code, page.err.as_str()), (0, ""));
    assert!(page.out.starts_with("<!DOCTYPE html>"));
}
