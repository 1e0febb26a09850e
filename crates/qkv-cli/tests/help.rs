//! The help's examples run, and the rest of what a command carries with it.

mod common;

use common::qkv;
use std::process::Command;

/// Examples of a help text: what follows `$ `, with lines that end in a backslash joined.
fn examples(help: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut lines = help.lines();
    while let Some(line) = lines.next() {
        let Some(example) = line.trim_start().strip_prefix("$ ") else {
            continue;
        };
        let mut example = example.to_owned();
        while example.ends_with('\\') {
            example.pop();
            example.push_str(
                lines
                    .next()
                    .expect("a line follows a backslash")
                    .trim_start(),
            );
        }
        found.push(example);
    }
    found
}

/// What follows the options is not wrapped by the command but as it is written, so that examples can
/// be copied.
#[test]
fn examples_fit_a_terminal_of_80_columns() {
    for help in ["", "explain", "check", "run", "trace", "bench"] {
        let out = qkv(&format!("{help} --help")).out;
        let (_, after) = out.split_once("Examples:").expect("examples");
        for line in after.lines() {
            assert!(line.chars().count() <= 80, "{help}: {line}");
        }
    }
}

#[test]
fn every_example_runs() {
    let folder = tempfile::tempdir().expect("a folder");
    let binary = std::path::Path::new(env!("CARGO_BIN_EXE_qkv"));
    let path = format!(
        "{}:{}",
        binary.parent().expect("its folder").display(),
        std::env::var("PATH").unwrap_or_default()
    );
    let mut count = 0;
    for help in [
        "--help",
        "explain --help",
        "check --help",
        "run --help",
        "trace --help",
        "bench --help",
    ] {
        for example in examples(&qkv(help).out) {
            let output = Command::new("sh")
                .args(["-c", &example])
                .env("PATH", &path)
                .current_dir(folder.path())
                .output()
                .expect("sh");
            let err: String = String::from_utf8_lossy(&output.stderr)
                .lines()
                // Where one core is all there is.
                .filter(|line| !line.starts_with("qkv: warning: --threads: 2 threads share 1 core"))
                .collect();
            assert_eq!(
                (output.status.code(), err.as_str()),
                (Some(0), ""),
                "{example}"
            );
            count += 1;
        }
    }
    assert!(count >= 12, "{count} examples");
}

#[test]
fn help_short_and_long() {
    let (short, long) = (qkv("explain -h"), qkv("explain --help"));
    assert_eq!((short.code, long.code), (0, 0));
    assert!(short.out.len() * 3 / 2 < long.out.len());
    for heading in [
        "Inputs:",
        "Layer:",
        "Masks and scores:",
        "Positions:",
        "Output:",
    ] {
        assert!(
            short.out.contains(heading) && long.out.contains(heading),
            "{heading}"
        );
    }
    for option in [
        "--q",
        "--k",
        "--v",
        "--x",
        "--context",
        "--wq",
        "--wk",
        "--wv",
        "--wo",
        "--bq",
        "--bk",
        "--bv",
        "--bo",
        "--scale",
        "--causal",
        "--window",
        "--kv-lengths",
        "--documents",
        "--softcap",
        "--keep",
        "--drop",
        "--bias",
        "--alibi",
        "--sinks",
        "--past-k",
        "--past-v",
        "--q-norm",
        "--k-norm",
        "--position",
        "--rotary-base",
        "--rotary-dim",
        "--rotary-scaling",
        "--position-offset",
        "--dropout",
        "--seed",
        "--empty-rows",
        "--heads",
        "--kv-heads",
        "--layout",
        "--format",
        "--json",
        "--lang",
        "--digits",
        "--row",
        "--width",
        "--color",
        "--output",
        "--init",
        "--dk",
        "--dv",
        "--residual",
        "--backward",
        "--grad-output",
        "--contrast",
        "--exercise",
        "--permute",
        "--tokens",
        "--next-token",
        "--decode",
    ] {
        assert!(
            short.out.contains(option) && long.out.contains(option),
            "{option}"
        );
    }
    assert!(short.err.is_empty() && long.err.is_empty());
}

#[test]
fn no_command_shows_the_help_and_fails() {
    let ran = qkv("");
    assert_eq!((ran.code, ran.out.as_str()), (2, ""));
    assert!(
        ran.err.contains("Usage: qkv") && ran.err.contains("explain"),
        "{}",
        ran.err
    );
}

#[test]
fn version() {
    let ran = qkv("--version");
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    assert_eq!(ran.out, format!("qkv {}\n", env!("CARGO_PKG_VERSION")));
    assert_eq!(qkv("-V").out, ran.out);
}

#[test]
fn completions() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let ran = qkv(&format!("completions {shell}"));
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{shell}");
        assert!(ran.out.contains("kv-heads"), "{shell}");
    }
    // bash at least reads its own.
    let script = qkv("completions bash").out;
    let status = Command::new("bash").args(["-n", "-c", &script]).status();
    assert!(status.is_ok_and(|status| status.success()));
}

#[test]
fn manual_pages() {
    for (args, words) in [
        ("man", "qkv\\-explain"),
        ("man explain", "\\-\\-kv\\-heads"),
    ] {
        let ran = qkv(args);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{args}");
        assert!(ran.out.contains(".TH") && ran.out.contains(words), "{args}");
    }
}
