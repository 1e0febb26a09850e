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
    fn a_picture_through_a_folder() {
        let folder = model("vit");
        let numbers = "../qkv-models/tests/data/vit/numbers.safetensors";
        let numbers = Path::new(env!("CARGO_MANIFEST_DIR")).join(numbers);
        let pixels = format!("--pixels {}:pixel_values", numbers.display());
        let ran = trace(&folder, &format!("{pixels} --layer 2 --head 3"));
        assert_eq!(ran.code, 0, "{}", ran.err);
        for part in ["8×12 pixels of 2, in patches of 4×4", "[CLS]", "6 1,2"] {
            assert!(ran.out.contains(part), "{part} is not in {}", ran.out);
        }
        for (line, part) in [
            ("'a text'".to_owned(), "looks at pictures"),
            (
                "--pixels '1 2; 3 4'".into(),
                "[2, 2]; give pixels of [2, 8, 12]",
            ),
            (
                format!("{pixels} 'a text'"),
                "TEXT: cannot be used with --pixels",
            ),
            (format!("{pixels} --generate 2"), "--generate"),
        ] {
            let ran = trace(&folder, &line);
            assert_eq!(ran.code, 2, "{line}");
            assert!(ran.err.contains(part), "{part} is not in {}", ran.err);
        }
        let ran = trace(&model("bert"), &pixels);
        assert!(ran.code == 2 && ran.err.contains("--pixels"), "{}", ran.err);
    }

    #[test]
    fn threads_change_no_number() {
        let folder = model("llama");
        let with = |threads: usize| {
            let line = format!("'it was too tired to cross' --json --threads {threads}");
            let ran = trace(&folder, &line);
            assert_eq!(ran.code, 0, "{}", ran.err);
            ran.out
        };
        let one = with(1);
        assert!(one.contains("blocks.2.hook_resid_post") && one == with(3));
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
        let output = common::command(folder.path())
            .env("HF_HUB_CACHE", cache.path())
            .args(["trace", "some/model", "hello"])
            .output()
            .expect("the command ends");
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(shown.starts_with("Attention in some/model\n"), "{shown}");
        assert_eq!(run("some/model@abc").0, Some(0));
        let (code, says) = run("some/other");
        assert_eq!(code, Some(2));
        assert!(says.contains("models--some--other"), "{says}");
    }

    #[cfg(unix)]
    #[test]
    fn a_link_gives_a_model_its_name() {
        let folder = model("bert");
        std::os::unix::fs::symlink(".", folder.path().join("my-model")).expect("a link");
        let ran = run_with(folder.path(), &words("trace my-model hello"), b"");
        assert!(
            ran.out.starts_with("Attention in my-model\n"),
            "{}",
            ran.out
        );
    }

    #[test]
    fn what_comes_next_is_told_of_the_entry_that_is_shown() {
        let folder = model("llama");
        let next = |line: &str| {
            let err = trace(&folder, line).err;
            let line = err.lines().find(|line| line.starts_with("next token"));
            line.map(str::to_owned).expect("a next token")
        };
        let (first, second) = (next("'it was too tired'"), next("'a cat'"));
        assert_ne!(first, second);
        let batch = "'it was too tired' 'a cat' --pad right --entry";
        assert_eq!(next(&format!("{batch} 0")), first);
        assert_eq!(next(&format!("{batch} 1")), second);
    }

    #[test]
    fn a_file_of_texts_is_refused_by_its_line_before_it_is_read() {
        let folder = model("gpt2");
        let texts = folder.path().join("texts.txt");
        let long = "a".repeat(100);
        let line = "--texts texts.txt --heads-by previous";
        for (text, number) in [
            (format!("one\n\n{long}\n"), "line 3"),
            (format!("\n{long}\none\n"), "line 2"),
        ] {
            fs::write(&texts, text).expect("a file");
            let ran = trace(&folder, line);
            let named = ran.err.contains("--texts: ") && ran.err.contains(number);
            assert!(ran.code == 2 && named, "{}", ran.err);
            assert!(ran.err.contains("at most 64 tokens"), "{}", ran.err);
        }
        fs::write(&texts, b"one\nt\xfcr\n").expect("a file");
        let ran = trace(&folder, line);
        assert!(ran.err.contains("not UTF-8"), "{}", ran.err);
        // The mark that editors put in front is no part of the text.
        let tokens = |bytes: &[u8]| {
            fs::write(&texts, bytes).expect("a file");
            trace(&folder, line).out
        };
        assert_eq!(tokens(b"\xef\xbb\xbfone two"), tokens(b"one two"));
        #[cfg(unix)]
        {
            let ran = trace(&folder, "--texts /dev/zero --heads-by previous");
            assert!(ran.err.contains("is a device"), "{}", ran.err);
        }
    }

    #[test]
    fn weights_alone_are_no_trace_and_parts_are_named_by_their_option() {
        let folder = model("gpt2");
        let ran = run_with(folder.path(), &words("trace model.safetensors hello"), b"");
        let says = ran
            .err
            .contains("a model's folder in place of its weights' file");
        assert!(ran.code == 2 && says, "{}", ran.err);
        for (option, asked) in [("--layer", "9"), ("--head", "9"), ("--rows", "99")] {
            let ran = trace(&folder, &format!("hello {option} {asked}"));
            assert!(ran.err.contains(&format!("qkv: {option}: ")), "{}", ran.err);
        }
    }

    #[test]
    fn refusals() {
        let folder = model("gpt2");
        let ran = trace(&folder, "");
        assert!(ran.code == 2 && ran.err.contains("TEXT"), "{}", ran.err);
        let long = "a".repeat(100);
        let ran = trace(&folder, &long);
        assert!(
            ran.code == 2 && ran.err.contains("TEXT: ") && ran.err.contains("at most 64 tokens"),
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
