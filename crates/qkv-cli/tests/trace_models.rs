//! `qkv trace MODEL TEXT`, with the small models that qkv-models is tested with.

mod common;

use common::{Ran, qkv, run_with, words};
use std::fs;
use std::path::Path;
use tempfile::TempDir;

fn model(name: &str) -> TempDir {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../qkv-models/tests/data");
    let folder = tempfile::tempdir().expect("a folder");
    for file in ["config.json", "model.safetensors"] {
        fs::copy(data.join(name).join(file), folder.path().join(file)).expect("a copy");
    }
    fs::copy(
        data.join("tokenizer.json"),
        folder.path().join("tokenizer.json"),
    )
    .expect("a copy");
    folder
}

fn trace(folder: &TempDir, line: &str) -> Ran {
    run_with(folder.path(), &words(&format!("trace . {line}")), b"")
}

#[cfg(not(feature = "models"))]
#[test]
fn without_models_it_says_how_to_have_them() {
    let folder = model("bert");
    let ran = trace(&folder, "hello");
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("--features models"), "{}", ran.err);
}

#[cfg(feature = "models")]
mod with_models {
    use super::*;

    #[test]
    fn a_text_through_a_folder() {
        let ran = trace(&model("bert"), "'it was too tired'");
        assert_eq!(ran.code, 0, "{}", ran.err);
        for part in ["3 layers", "4 heads", "family: bert", "scale: 0.35355"] {
            assert!(ran.out.contains(part), "{part} is not in {}", ran.out);
        }
        assert!(ran.err.contains("largest difference"), "{}", ran.err);
    }

    #[test]
    fn the_same_numbers_from_a_trace_file() {
        let folder = model("gemma3");
        let line = "'it was too tired to cross' -o t.safetensors";
        let ran = trace(&folder, line);
        assert_eq!(ran.code, 0, "{}", ran.err);
        let json = |line: &str| run_with(folder.path(), &words(line), b"").out;
        let direct = json("trace . 'it was too tired to cross' --json");
        assert!(direct.len() > 1000);
        assert_eq!(direct, json("trace t.safetensors --json"));
    }

    #[test]
    fn generated_rows_and_batches() {
        let folder = model("llama-yarn");
        let ran = trace(&folder, "'it was' --generate 5 --json --layer 1 --head 0");
        assert_eq!(ran.code, 0, "{}", ran.err);
        assert!(ran.err.contains("next token"), "{}", ran.err);
        let ran = trace(
            &folder,
            "'it was too tired' cat --entry 1 --layer 0 --head 0",
        );
        assert_eq!(ran.code, 0, "{}", ran.err);
        let ran = trace(&folder, "'it was too tired' cat --generate 2 --pad right");
        assert_eq!(ran.code, 2);
        assert!(ran.err.contains("--pad right"), "{}", ran.err);
    }

    #[test]
    fn a_name_of_the_hub_is_found_in_the_cache() {
        let folder = model("qwen2");
        let cache = tempfile::tempdir().expect("a folder");
        let repository = cache.path().join("models--some--model");
        let snapshot = repository.join("snapshots/abc");
        fs::create_dir_all(&snapshot).expect("folders");
        fs::create_dir_all(repository.join("refs")).expect("folders");
        fs::write(repository.join("refs/main"), "abc\n").expect("a file");
        for file in ["config.json", "model.safetensors", "tokenizer.json"] {
            fs::copy(folder.path().join(file), snapshot.join(file)).expect("a copy");
        }
        let run = |name: &str| {
            let output = common::command(folder.path())
                .env("HF_HUB_CACHE", cache.path())
                .args(["trace", name, "hello", "--layer", "0", "--head", "0"])
                .output()
                .expect("the command ends");
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            (output.status.code(), text)
        };
        assert_eq!(run("some/model").0, Some(0));
        assert_eq!(run("some/model@abc").0, Some(0));
        let (code, says) = run("some/other");
        assert_eq!(code, Some(2));
        assert!(says.contains("models--some--other"), "{says}");
    }

    #[test]
    fn refusals() {
        let folder = model("gpt2");
        let ran = trace(&folder, "");
        assert!(ran.code == 2 && ran.err.contains("TEXT"), "{}", ran.err);
        let long = "a".repeat(100);
        let ran = trace(&folder, &long);
        assert!(
            ran.code == 2 && ran.err.contains("at most 64 tokens"),
            "{}",
            ran.err
        );
        let ran = trace(&model("bert"), "hello --generate 2");
        assert!(ran.code == 2 && ran.err.contains("no head"), "{}", ran.err);
    }
}

#[test]
fn nothing_there() {
    let ran = qkv("trace nosuch/model hello");
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("nosuch/model"), "{}", ran.err);
}
