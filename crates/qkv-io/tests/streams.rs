//! Standard input, pipes, devices, and files whose length the system does not know.
#![allow(clippy::unwrap_used, clippy::panic)]

use qkv_io::{Array, read_argument, read_argument_within};
use std::io::Read;

fn piped(text: &str) -> Result<Array, String> {
    read_argument("-", &mut text.as_bytes()).map_err(|error| error.to_string())
}

#[test]
fn one_typed_line_reads_the_same_from_standard_input() {
    for text in [
        "1;2;3",
        "1;2;3\n",
        "1 0; 0 1",
        "1,5;2,5",
        "3",
        "1 2 3",
        "1,2,3",
        "[[1],[2]]",
    ] {
        let typed = read_argument(text.trim(), &mut std::io::empty()).unwrap();
        assert_eq!(piped(text).unwrap(), typed, "{text}");
    }
    assert_eq!(piped("1;2;3").unwrap().shape, [3, 1]);
    assert_eq!(
        piped("1,5;2,5").unwrap().to_f64().unwrap(),
        [1.0, 5.0, 2.0, 5.0]
    );
    // Several lines are a table, or refused in both.
    assert_eq!(piped("1;2;3\n4;5;6\n").unwrap().shape, [2, 3]);
    let text = "1,5;2,5\n3,5;4,5";
    let typed = read_argument(text, &mut std::io::empty())
        .unwrap_err()
        .to_string();
    for error in [typed, piped(text).unwrap_err()] {
        assert!(error.contains("two readings: decimal commas"), "{error}");
    }
}

#[test]
fn an_array_of_standard_input_is_named_as_an_argument() {
    let text = "{\"a\": [1], \"b\": [2]}";
    let error = piped(text).unwrap_err();
    assert!(
        error.starts_with("standard input: ") && error.contains("say which, as -:NAME"),
        "{error}"
    );
    let array = read_argument("-:b", &mut text.as_bytes()).unwrap();
    assert_eq!(array.to_f64().unwrap(), [2.0]);
}

/// Counts what is read of an endless stream.
struct Endless(&'static [u8], usize);

impl Read for Endless {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        for byte in into.iter_mut() {
            *byte = self.0[self.1 % self.0.len()];
            self.1 += 1;
        }
        Ok(into.len())
    }
}

#[test]
fn an_endless_stream_is_given_up() {
    for (bytes, words) in [
        (&[0][..], "format is not known"),
        (b"\xff\x00\x07", "format is not known"),
    ] {
        let mut stream = Endless(bytes, 0);
        let error = read_argument("-", &mut stream).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
        assert!(stream.1 <= 1 << 16, "{} bytes were read", stream.1);
    }
    let mut stream = Endless(b"1 2\n", 0);
    let error = read_argument_within("-", &mut stream, 1000)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("the input has more than 2000 bytes"),
        "{error}"
    );
    assert!(stream.1 <= 1 << 16, "{} bytes were read", stream.1);
}

#[test]
fn more_values_than_are_wanted() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(path("a.csv"), "1,2,3\n".repeat(4)).unwrap();
    std::fs::write(
        path("a.npz"),
        std::fs::read("tests/data/stored.npz").unwrap(),
    )
    .unwrap();
    std::fs::write(
        path("a.npy"),
        std::fs::read("tests/data/f4_le_c.npy").unwrap(),
    )
    .unwrap();
    for argument in [path("a.csv"), path("a.npz:q"), path("a.npy")] {
        let none = &mut std::io::empty();
        assert!(read_argument_within(&argument, none, 100).is_ok());
        let error = read_argument_within(&argument, none, 5)
            .unwrap_err()
            .to_string();
        assert!(error.contains("more than"), "{argument}: {error}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn devices_and_files_without_a_length() {
    let read = |argument: &str| {
        read_argument(argument, &mut std::io::empty()).map_err(|error| error.to_string())
    };
    for device in ["/dev/zero", "/dev/full", "/dev/urandom", "/dev/null"] {
        let error = read(device).unwrap_err();
        assert!(
            error.contains("is a device, not a file; give a file"),
            "{error}"
        );
    }
    let error = read("/proc/version").unwrap_err();
    assert!(
        !error.contains("empty") && error.contains("is not a number"),
        "{error}"
    );
    let error = read("/proc/self/environ").unwrap_err();
    assert!(!error.contains("empty"), "{error}");
    assert_eq!(read("/proc/sys/kernel/pid_max").unwrap().shape, [1, 1]);
}

#[cfg(unix)]
#[test]
fn a_pipe_with_a_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&path).status();
    assert!(made.unwrap().success());
    let writer = std::thread::spawn({
        let path = path.clone();
        move || std::fs::write(path, "1;2")
    });
    // A pipe is no standard input: nobody typed into it.
    let error = read_argument(path.to_str().unwrap(), &mut std::io::empty()).unwrap_err();
    assert!(error.to_string().contains("two readings"), "{error}");
    writer.join().unwrap().unwrap();
}
