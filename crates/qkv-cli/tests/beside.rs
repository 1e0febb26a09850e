//! What can be shown beside the calculation.

mod common;

use common::{close, json, qkv};
use serde_json::Value;

const THREE: &str = "--q '1 0; 0 1; 1 1' --k '1 0; 0 1; 1 1' --v '1; 10; 100'";

fn numbers(value: &Value) -> Vec<f64> {
    match value {
        Value::Array(list) => list.iter().flat_map(numbers).collect(),
        value => value.as_f64().into_iter().collect(),
    }
}

#[test]
fn b010_contrast_in_json_beside_what_is_there_anyway() {
    let plain = json(&format!("{THREE} --causal"));
    let with = json(&format!("{THREE} --causal --contrast"));
    let contrast = with["contrast"].as_array().expect("a list");
    let ids: Vec<&Value> = contrast.iter().map(|wrong| &wrong["id"]).collect();
    let expected = [
        "softmax-over-queries",
        "softmax-joint",
        "scale",
        "scale",
        "mask-polarity",
    ];
    assert_eq!(ids, expected);
    let inverted = numbers(&contrast[4]["output"]);
    assert!(
        close(&inverted, &[70.278_539, 100.0, 0.0], 1e-6),
        "{inverted:?}"
    );
    for key in ["shapes", "options", "steps", "empty_rows"] {
        assert_eq!(with[key], plain[key]);
    }
    assert!(plain.get("contrast").is_none());
}

#[test]
fn b038_the_width_of_the_model_is_that_of_all_heads_or_of_x() {
    let heads =
        json("--heads 4 --q '1 0 0 1 2 0 1 0' --k '1 0 0 1 2 0 1 0' --v '1 2 3 4' --contrast");
    let parameters = |json: &Value| json["contrast"][3]["parameters"].clone();
    assert_eq!(parameters(&heads)["model_width"], 8);
    assert_eq!(parameters(&heads)["scale"], 1.0 / 8_f64.sqrt());
    let x = json("--x '1 0 2; 0 1 1' --init xavier --heads 2 --dk 4 --contrast");
    assert_eq!(parameters(&x)["model_width"], 3);
    let text =
        qkv("explain --lang en --x '1 0 2; 0 1 1' --init xavier --heads 2 --dk 4 --contrast").out;
    assert!(text.contains("the width of x, 3"), "{text}");
}

fn says(line: &str, words: &[&str]) {
    let ran = qkv(line);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{line}");
    // Wherever a line breaks.
    let text: Vec<&str> = ran.out.split_whitespace().collect();
    let text = text.join(" ");
    for words in words {
        assert!(text.contains(words), "{line}: no {words:?} in {text}");
    }
}

#[test]
fn permuted_tokens_in_every_kind_of_run() {
    let x = "--x '1 0 2 1; 0 1 1 0; 2 1 0 1' --init xavier --heads 2";
    says(
        &format!("explain --lang en {x} --permute 2,0,1"),
        &["The outputs are the same rows in the new order"],
    );
    for option in [
        "--position sinusoidal",
        "--position rotary",
        "--position rotary-interleaved",
        "--alibi",
        "--causal",
        "--window 1,0",
        "--kv-lengths 2",
        "--documents 1,2",
        "--dropout 0.5",
    ] {
        let name = match option.split_once(' ') {
            Some(("--position", _)) | None => option,
            Some((name, _)) => name,
        };
        says(
            &format!("explain --lang en {x} {option} --permute 2,0,1"),
            &[
                "The outputs are not the same rows",
                &format!("{name} alone: largest difference"),
                "It is responsible",
            ],
        );
        let found = json(&format!("{x} {option} --permute 2,0,1"));
        assert_eq!(found["permute"]["equal"], false, "{option}");
    }
    let found = json(&format!(
        "{THREE} --keep '1 0 1; 1 1 0; 0 1 1' --permute 1,2,0"
    ));
    assert_eq!(found["permute"]["equal"], true);
    let plain = json(THREE);
    let rows = |json: &Value| numbers(&json["steps"].as_array().expect("steps")[9]["values"]);
    let with = json(&format!("{THREE} --permute 1,2,0"));
    assert_eq!(rows(&with), rows(&plain));
    let (was, is) = (rows(&plain), numbers(&with["permute"]["output"]));
    assert!(
        close(&is, &[was[1], was[2], was[0]], 1e-13),
        "{was:?} {is:?}"
    );
}

/// B108: the step of the last token is the last row of the run over all, bit for bit.
#[test]
fn b108_decode_from_tokens() {
    let x = "--x '1 0 2 1; 0 1 1 0; 2 1 0 1; 1 1 1 0' --init xavier --heads 2 --residual --seed 3";
    for options in [
        "",
        "--causal",
        "--causal --position rotary",
        "--position sinusoidal --alibi --window 2,0",
        "--causal -1 --keep '1 0 1 1; 1 1 0 1; 0 1 1 1; 1 1 0 1'",
        "--kv-lengths 3 --causal bottom-right",
        "--bias '0 1 2 3; 1 0 1 0; 1 1 1 1; 0 0 2 0' --k-norm '1 2' --dropout 0.3",
    ] {
        let full = json(&format!("{x} {options}"));
        let step = json(&format!("{x} {options} --decode"));
        assert_eq!(step["decode"]["equal"], true, "{options}");
        assert_eq!(step["decode"]["max_abs_difference"], 0.0, "{options}");
        assert_eq!(step["options"]["past"], 3);
        let last = |json: &Value, name: &str| {
            let steps = json["steps"].as_array().expect("steps");
            let step = steps.iter().find(|step| step["name"] == name);
            let rows = step.expect("the step")["values"][0]
                .as_array()
                .expect("rows")
                .clone();
            rows.last().cloned()
        };
        assert_eq!(
            last(&step, "residual"),
            last(&full, "residual"),
            "{options}"
        );
    }
    says(
        &format!("explain --lang en {x} --causal --decode"),
        &[
            "K and V grow 3 → 4",
            "full run",
            "equal in every bit",
            "token 3 alone",
        ],
    );
    says(
        &format!("explain --lang zh {x} --causal --decode"),
        &["3 → 4", "完整计算", "每一位都相同"],
    );
}

#[test]
fn refusals_name_the_option_and_the_remedy() {
    let x = "--x '1 0; 0 1' --init xavier";
    for (line, words) in [
        ("--permute 0,0", "token 0 stands there 2 times"),
        ("--permute 0,2", "there is no token 2"),
        ("--permute 1", "token 0 is missing"),
        (
            "--q '1' --k '1;2' --v '1;2' --permute 0",
            "1 queries and 2 keys",
        ),
        ("--past-k '1 0' --past-v '1 0' --permute 1,0", "cached keys"),
        (
            &format!("{x} --context '1 0; 0 1' --permute 1,0"),
            "--context",
        ),
        ("--decode", "--x"),
        (&format!("{x} --decode --documents 1,1"), "--documents"),
        (&format!("{x} --decode --context '1 0; 0 1'"), "--context"),
        (
            &format!("{x} --decode --past-k '1 0' --past-v '1 0'"),
            "--past-k",
        ),
        ("--x '1 0' --init xavier --decode", "at least two tokens"),
        (&format!("{x} --decode --row 1"), "there is 1 query, row 0"),
        (
            "--tokens 'the cat sat'",
            "3 tokens (\"the\", \"cat\", \"sat\") for 2 keys",
        ),
        ("--tokens ''", "0 tokens () for 2 keys"),
        ("--tokens '[\"a\"'", "give a JSON list of texts"),
        ("--tokens '[\"a\", 2]'", "give a JSON list of texts"),
        (
            "--past-k '1 0' --past-v '1 0' --tokens 'a b'",
            "3 keys, the cached ones first",
        ),
        (
            &format!("{x} --context '1 0' --tokens a"),
            "2 tokens in --x",
        ),
        (
            "--x '[[[1,0]],[[0,1]]]' --init xavier --tokens a",
            "2 batch entries",
        ),
        ("--q '1' --k '1;2' --v '1;2' --next-token", "self-attention"),
        (
            &format!("{x} --context '1 0; 0 1' --next-token"),
            "--context",
        ),
    ] {
        let ran = qkv(&format!("explain {line}"));
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{line}");
        assert!(ran.err.contains(words), "{line}: {}", ran.err);
        assert!(ran.err.starts_with("qkv: --"), "{}", ran.err);
    }
}

#[test]
fn tokens_name_rows_and_columns() {
    let x = "--x '1 0; 0 1; 1 1' --init xavier";
    let ran = qkv(&format!(
        "explain --lang en {x} --causal --tokens 'the cat sat'"
    ));
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    for line in [
        "k0 the   k1 cat   k2 sat",
        "\n  q1 cat  ",
        "\n  k2 sat  ",
        "\n  v0 the  ",
        "\n  x1 cat  ",
        "\n  o2 sat  ",
        "Query 1 · cat\n",
        "Which tokens each position sees:\n  q0 the sees: the\n  q1 cat sees: the · cat\n",
    ] {
        assert!(ran.out.contains(line), "no {line:?} in {}", ran.out);
    }
    says(
        &format!("explain --lang zh {x} --causal --tokens '我 看 猫'"),
        &[
            "每个位置能看到哪些词元： q0 我：我 q1 看：我 · 看",
            "查询2 · 猫",
        ],
    );
    let found = json(&format!("{x} --tokens '[CLS] cat ?'"));
    assert_eq!(found["tokens"], serde_json::json!(["[CLS]", "cat", "?"]));
    let found = json(&format!("{x} --tokens '[\"New York\", \"\", \"a b\"]'"));
    assert_eq!(found["tokens"], serde_json::json!(["New York", "", "a b"]));
    assert!(json(x).get("tokens").is_none());
    // Rows that are not worked out are told too.
    says(
        &format!("explain --lang en {x} --causal --row 1 --next-token --tokens 'the cat sat'"),
        &[
            "q0 the sees: the q1 cat sees: the · cat q2 sat sees",
            "q0 the → cat q1 cat → sat",
        ],
    );
    // Of a cache and its step, of a context, of more keys than queries.
    says(
        &format!("explain --lang en {x} --decode --tokens 'the cat sat'"),
        &["q0 sat", "k0 the", "v2 sat", "o0 sat"],
    );
    says(
        &format!("explain --lang en {x} --context '1 0' --tokens 'the cat sat'"),
        &["q0 the", "k0 "],
    );
    says(
        "explain --lang en --q '1' --k '1;2' --v '1;2' --tokens 'a b'",
        &["k1 b", " q0 "],
    );
}

/// Nothing in a token reaches the terminal as a control, and columns stay aligned.
#[test]
fn tokens_are_shown_safely() {
    let hostile = r#"'["\u001b[31m", "\u202eabc", "e\u0301猫"]'"#;
    let ran = qkv(&format!(
        "explain --lang en --x '1 0; 0 1; 1 1' --init xavier --causal --next-token --tokens {hostile}"
    ));
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    assert!(ran.out.contains(r"\u{1b}[31m") && ran.out.contains(r"\u{202e}abc"));
    assert!(
        ran.out
            .chars()
            .all(|c| c == '\n' || !c.is_control() && c != '\u{202e}')
    );
    let ran = qkv("explain --tokens 'a\u{1b}b'");
    assert!(
        ran.err.chars().all(|c| c == '\n' || !c.is_control()),
        "{:?}",
        ran.err
    );
}

#[test]
fn the_next_token_and_a_mask_that_shows_it() {
    let x = "--x '1 0; 0 1; 1 1' --init xavier --next-token";
    says(
        &format!("explain --lang en {x} --causal --tokens 'the cat sat'"),
        &[
            "q0 the → cat q1 cat → sat q2 sat → ?",
            "No position sees its own label.",
        ],
    );
    says(
        &format!("explain --lang en {x} --tokens 'the cat sat'"),
        &["q0 the, q1 cat see the token that they are to predict"],
    );
    // A mask that is wrong in one row; without names.
    says(
        &format!("explain --lang en {x} --keep '1 0 0; 1 1 1; 1 1 1'"),
        &["q0 → token 1", "q1 sees the token that it is to predict"],
    );
    says(
        &format!("explain --lang zh {x} --tokens '我 看 猫'"),
        &[
            "能看到自己要预测的词元（查询i保留了键i + 1）：q0 我、q1 看。",
            "q2 猫 → ?",
        ],
    );
    let next = |line: &str| json(&format!("{x} {line}"))["next_token"].clone();
    let expected = serde_json::json!({"labels": [[1, 2, null]], "sees_own_label": []});
    assert_eq!(next("--causal"), expected);
    let leaky = serde_json::json!([[0, 0, 0], [0, 0, 1]]);
    assert_eq!(next("--causal 1")["sees_own_label"], leaky);
    assert_eq!(next("")["sees_own_label"], leaky);
    // Nothing follows at the end of a document, nor in padding.
    let documents = next("--documents 2,1");
    assert_eq!(documents["labels"], serde_json::json!([[1, null, null]]));
    assert_eq!(documents["sees_own_label"], serde_json::json!([[0, 0, 0]]));
    assert_eq!(
        next("--kv-lengths 2")["labels"],
        serde_json::json!([[1, null, null]])
    );
    // The step of the last token, which predicts a token that is not there yet.
    assert_eq!(next("--decode")["labels"], serde_json::json!([[null]]));
    // A bias of −∞ hides as a mask does.
    let bias = "--bias '0 -inf -inf; 0 0 -inf; 0 0 0'";
    assert_eq!(next(bias), expected);
}

/// Tokens, comparisons and labels are in every format.
#[test]
fn every_format_has_them() {
    let line = "explain --lang en --x '1 0; 0 1; 1 1' --init xavier --causal --tokens '<a> b&c #' \
                --next-token --permute 2,0,1 --contrast --format";
    for (format, words) in [
        ("text", ["q0 <a>", "o'1 <a>", "b&c → #", "w wrong"]),
        (
            "markdown",
            ["q0 &lt;a>", "o'1 &lt;a>", "b&amp;c → #", "w wrong"],
        ),
        (
            "html",
            [
                "q0 &lt;a&gt;",
                "o&#39;1 &lt;a&gt;",
                "b&amp;c → #",
                "w wrong",
            ],
        ),
        ("latex", ["b\\&c", "\\#", "causal", "wrong"]),
    ] {
        let ran = qkv(&format!("{line} {format}"));
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{format}");
        for words in words {
            let found = ran.out.contains(words);
            assert!(found, "{format}: no {words:?} in {}", ran.out);
        }
    }
}
