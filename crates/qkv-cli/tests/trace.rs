//! `qkv trace`: weights from elsewhere, trace files, and what is refused.

mod common;

use common::{Ran, run_with, words};
use std::fs;
use std::path::Path;

const WEIGHTS: &str = "[[[[1,0,0],[0.25,0.75,0],[0.5,0.25,0.25]],[[1,0,0],[1,0,0],[0,1,0]]]]";

fn run(folder: &Path, line: &str) -> Ran {
    run_with(folder, &words(line), b"")
}

/// A folder with weights, their tokens, and a trace of them.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("w.json"), WEIGHTS).expect("written");
    fs::write(folder.path().join("t.json"), r#"["The", "Ġcat", "Ġsat"]"#).expect("written");
    let ran = run(
        folder.path(),
        "trace --weights w.json --tokens t.json -o t.safetensors",
    );
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (0, "", ""));
    folder
}

#[test]
fn weights_from_elsewhere_and_their_trace_say_the_same() {
    let folder = folder();
    let given = run(
        folder.path(),
        "trace --weights w.json --tokens t.json --layer 0 --head 1",
    );
    let kept = run(folder.path(), "trace t.safetensors --layer 0 --head 1");
    assert_eq!((given.code, kept.code), (0, 0), "{}", kept.err);
    assert_eq!(given.out, kept.out);
    assert!(given.out.contains("2 ␣sat ← 1 ␣cat 1"), "{}", given.out);
    assert!(!given.out.contains('\x1b'));
    let zh = run(folder.path(), "trace t.safetensors --lang zh");
    assert!(zh.out.contains("权重不是解释"));
    let json = run(folder.path(), "trace t.safetensors --json");
    let json: serde_json::Value = serde_json::from_str(&json.out).expect("JSON");
    assert_eq!(json["tokens"][1], " cat");
    assert_eq!(json["heads"][1]["previous"], 1.0);
    let literal = run(
        folder.path(),
        "trace --weights '1 0; 0.5 0.5' --tokens 'a b' --heads-by 'previous,b>a'",
    );
    assert!(literal.out.contains("Heads by b>a"), "{}", literal.out);
}

#[test]
fn heads_are_ranked_beside_a_control() {
    let folder = folder();
    let ran = run(
        folder.path(),
        "trace t.safetensors --heads-by sat>cat --most 1",
    );
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.contains("L0H1        1"), "{}", ran.out);
    assert!(!ran.out.contains("L0H0  "));
    assert!(ran.out.contains("proves little"));
}

#[test]
fn files_are_written_and_nothing_is_printed() {
    let folder = folder();
    let line = "trace t.safetensors --layer 0 --head 0 --html m.html --svg h.svg";
    let ran = run(folder.path(), line);
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (0, "", ""));
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).expect(name);
    assert!(read("m.html").starts_with("<!DOCTYPE html>"));
    assert!(read("h.svg").starts_with("<svg"));
    let ran = run(
        folder.path(),
        "trace t.safetensors --heads-by first -o m2.html",
    );
    assert!(ran.code == 0 && ran.out.contains("Heads by first"));
    assert!(read("m2.html").contains("Heads by first"));
    assert_eq!(run(folder.path(), "trace t.safetensors -o r.json").code, 0);
    assert!(read("r.json").starts_with("{\"model\""));
}

/// Names the layer and the step, with what comes before it.
#[test]
fn two_traces_are_compared() {
    let folder = folder();
    let other = WEIGHTS.replace("0.25,0.75,0", "0.35,0.65,0");
    fs::write(folder.path().join("w2.json"), other).expect("written");
    let ran = run(
        folder.path(),
        "trace --weights w2.json --tokens t.json -o u.safetensors",
    );
    assert_eq!(ran.code, 0);
    assert_eq!(
        run(folder.path(), "check t.safetensors t.safetensors").code,
        0
    );
    let ran = run(folder.path(), "check t.safetensors u.safetensors");
    assert_eq!(ran.code, 1);
    assert!(
        ran.out.contains("First difference: layer 0, weights"),
        "{}",
        ran.out
    );
    assert!(ran.out.contains("At [0, 0, 1, 0]"), "{}", ran.out);
}

#[test]
fn what_does_not_fit_is_refused() {
    let folder = folder();
    fs::write(folder.path().join("two.json"), r#"["a", "b"]"#).expect("written");
    fs::write(folder.path().join("odd.json"), r#"{"keys": [1]}"#).expect("written");
    fs::write(folder.path().join("cut.json"), r#"["a", "#).expect("written");
    fs::write(folder.path().join("empty.json"), "\n").expect("written");
    let trace = fs::read(folder.path().join("t.safetensors")).expect("a trace");
    fs::write(
        folder.path().join("cut.safetensors"),
        &trace[..trace.len() - 1],
    )
    .expect("written");
    for (line, says) in [
        (
            "trace",
            "MODEL: missing; name a trace file or a model, or give --weights",
        ),
        (
            "trace --weights w.json --tokens two.json",
            "--weights: tokens: 2 tokens for weights with 3 keys",
        ),
        ("trace --weights w.json --tokens odd.json", "--tokens: "),
        (
            "trace --weights w.json --tokens cut.json",
            "--tokens: cut.json, line 1, character ",
        ),
        (
            "trace --weights w.json --tokens '[\"a\"'",
            "--tokens: argument, line 1, character 4: not valid: the text ends in the middle",
        ),
        (
            "trace --weights w.json --tokens empty.json",
            "--tokens: empty.json is empty",
        ),
        (
            "trace --weights w.json --tokens none.json",
            "--tokens: there is no file \"none.json\"; check the path\n",
        ),
        (
            "trace none.safetensors",
            "MODEL: there is no file \"none.safetensors\"; check the path\n",
        ),
        (
            "trace model --texts none.txt --heads-by first",
            "--texts: there is no file \"none.txt\"; check the path\n",
        ),
        (
            "trace --weights w.json --tokens no.json",
            "--tokens: there is no file",
        ),
        ("trace --weights no.npy", "--weights: there is no file"),
        ("trace --weights []", "--weights: "),
        (
            "trace --weights w.json --kv-heads 3",
            "--kv-heads: heads: 2 query heads on 3",
        ),
        (
            "trace --weights w.json t.safetensors",
            "--weights: cannot be used with a model or a trace",
        ),
        (
            "trace t.safetensors --tokens t.json",
            "--tokens: has no meaning without --weights",
        ),
        (
            "trace t.safetensors text",
            "TEXT: cannot be used with a trace file",
        ),
        (
            "trace t.safetensors --layer 1",
            "layer 1 is not there; there are only 0",
        ),
        (
            "trace t.safetensors --head 2",
            "head 2 is not there; there are 0 to 1",
        ),
        (
            "trace t.safetensors --rows 3",
            "row 3 is not there; there are 0 to 2",
        ),
        (
            "trace t.safetensors --entry 1",
            "--entry: 1 is not possible",
        ),
        (
            "trace t.safetensors --keep q",
            "--keep: has no meaning without -o",
        ),
        (
            "trace t.safetensors --keep weight -o x.safetensors",
            "--keep: \"weight\" is not possible",
        ),
        (
            "trace t.safetensors --keep q -o x.safetensors",
            "-o: q: not kept of layer 0",
        ),
        (
            "trace t.safetensors --heads-by most",
            "--heads-by: \"most\" is not possible",
        ),
        (
            "trace t.safetensors --heads-by sat>dog",
            "no text has both words",
        ),
        (
            "trace t.safetensors --control cat",
            "--control: has no meaning without --heads-by",
        ),
        (
            "trace t.safetensors --heads-by own --texts t.json",
            "--texts: has no meaning without a model",
        ),
        (
            "trace t.safetensors --generate 5",
            "--generate: has no meaning without a model",
        ),
        (
            "trace t.safetensors --pad left",
            "--pad: has no meaning without a model",
        ),
        (
            "trace t.safetensors --pixels q.npy",
            "--pixels: has no meaning without a model",
        ),
        (
            "trace t.safetensors --threads 1",
            "--threads: has no meaning without a model",
        ),
        (
            "trace t.safetensors --svg x.svg",
            "--layer and --head: missing",
        ),
        (
            "trace t.safetensors --layer 0 --head 0,1 --svg x.svg",
            "--svg: a drawing of 2 heads",
        ),
        (
            "trace t.safetensors -o x.npy",
            "-o: the ending of x.npy is not possible",
        ),
        (
            "trace t.safetensors -o t.safetensors",
            "-o: cannot be used with t.safetensors",
        ),
        (
            "trace t.safetensors -o x.json --format text",
            "-o: x.json with another --format",
        ),
        (
            "trace cut.safetensors",
            "MODEL: cut.safetensors: safetensors file is 1 byte short",
        ),
    ] {
        let ran = run(folder.path(), line);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{line}");
        assert!(ran.err.contains(says), "{line}: {}", ran.err);
        assert_eq!(ran.err.lines().count(), 1, "{line}: {}", ran.err);
    }
}

/// What makes no sense is refused before anything is read, run or written.
#[test]
fn options_that_mean_nothing_are_refused_first() {
    let folder = folder();
    for (line, says) in [
        (
            "trace none.safetensors --keep weights",
            "--keep: has no meaning without -o",
        ),
        (
            "trace none.safetensors --keep weights -o x.html",
            "--keep: has no meaning without -o",
        ),
        (
            "trace none.safetensors --texts none.txt",
            "--texts: has no meaning without --heads-by",
        ),
        (
            "trace none.safetensors --texts none.txt --heads-by first --rows 0",
            "--rows: cannot be used with --texts",
        ),
        (
            "trace none.safetensors --control cat",
            "--control: has no meaning without --heads-by",
        ),
        (
            "trace t.safetensors --layer 0 --head 0,1 --svg x.svg -o x.html",
            "--svg: a drawing of 2 heads",
        ),
    ] {
        let ran = run(folder.path(), line);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{line}");
        assert!(ran.err.contains(says), "{line}: {}", ran.err);
    }
    assert!(!folder.path().join("x.html").exists());
}

/// Without models that is said rather than what a model would need.
#[cfg(not(feature = "models"))]
#[test]
fn a_model_without_models() {
    for line in ["trace model", "trace model text"] {
        let ran = run(folder().path(), line);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{line}");
        let says = "MODEL: \"model\" without models is not possible; this command was built";
        assert!(ran.err.contains(says), "{line}: {}", ran.err);
    }
}

#[test]
fn cross_attention_and_batches() {
    let folder = folder();
    let tokens = r#"{"keys": ["a", "b", "c"], "queries": ["x", "y"]}"#;
    fs::write(folder.path().join("cross.json"), tokens).expect("written");
    let line = "trace --weights '[[1,0,0],[0,0.5,0.5]]' --tokens cross.json --heads-by y>c";
    let ran = run(folder.path(), line);
    assert!(
        ran.code == 0 && ran.out.contains("0.5"),
        "{}{}",
        ran.out,
        ran.err
    );
    let line = "trace --weights '[[1,0,0],[0,0.5,0.5]]' --tokens cross.json";
    assert!(
        run(folder.path(), line)
            .out
            .contains("1 y ← 1 b 0.5 · 2 c 0.5")
    );
    let batch = r#"[["a", "b"], ["c", {"text": "[PAD]", "id": 0, "padding": true}]]"#;
    fs::write(folder.path().join("batch.json"), batch).expect("written");
    let weights = "[[[[[1,0],[0.5,0.5]]],[[[1,0],[1,0]]]]]";
    fs::write(folder.path().join("b.json"), weights).expect("written");
    let line = "trace --weights b.json --tokens batch.json --entry 1";
    let ran = run(folder.path(), line);
    assert!(
        ran.out.contains("batch entry 1 of 2"),
        "{}{}",
        ran.out,
        ran.err
    );
}
