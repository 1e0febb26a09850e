//! Sheets and keys.

#![allow(clippy::panic)]

#[path = "../common/mod.rs"]
mod common;
mod refusals;

use common::{Ran, run_with, words};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Problems whose inputs have at most two decimals, so that a number with four is a result.
const PROBLEMS: [&str; 21] = [
    "",
    "--causal",
    "--scale 0.3",
    "--q '1 0; 0 1' --k '1 1; 0 1; 2 0' --v '1; 2; 3' --causal bottom-right",
    "--q '1 0.5 0 2; 0 1 3 1' --k '1 1 0 1; 0 1 2 2' --v '1 2 3; 0.5 1 2' --heads 1",
    "--q '1 0.5 0 2; 0 1 3 1' --k '1 1; 0 1' --v '1 2; 0.5 1' --heads 2 --kv-heads 1",
    "--q '1 0; 0 1' --k '1 2; 0 1' --v '2 0; 0 4' --wo '1 2 3; 0 1 1'",
    "--x '1 0 2; 0 1 1' --wq '1 0;0 1;1 0' --wk '1 0;0 1;1 1' --wv '1 0;0 2;1 0' --wo '1 0 1;0 1 0' --heads 2 --causal --residual",
    "--x '1 0.5; 0 2' --wq '1 0;0 1' --wk '1 0;1 1' --wv '1 2;0 2' --bq '0.5 1' --bv '0 1'",
    "--x '1 0.5; 0 2' --context '2 1; 1 1; 0 3' --wq '1 0;0 1' --wk '1 0;1 1' --wv '1 2;0 2'",
    "--x '1 0; 0 1' --wq '1 0;0 1' --wk '1 0;1 1' --wv '1 2;0 2' --position sinusoidal",
    "--q '1 0; 0 1' --k '1 2; 0 1' --v '2 0; 0 4' --position rotary",
    "--q '1 0; 0 1' --k '1 2; 0 1' --v '2 0; 0 4' --q-norm '1 2' --k-norm '1 1'",
    "--q '1 0; 0 1' --k '1 2; 0 1' --v '2 0; 0 4' --past-k '1 1' --past-v '5 6' --causal 1",
    "--q '1 0; 0 1; 2 1' --k '1 2; 0 1' --v '2 0; 0 4' --keep '1 1; 0 0; 0 1'",
    "--q '1 0; 0 1' --k '1 2; 0 1' --v '2 0; 0 4' --softcap 2 --bias '0 -1; 0.5 -inf' --alibi 0.5",
    "--q '1 0; 0 1' --k '1 2; 0 1' --v '2 0; 0 4' --sinks 0.5 --dropout 0.5 --seed 3",
    "--q '[[[[1,0],[0,1]]],[[[2,1],[1,1]]]]' --k '[[[[1,0],[0,1]]],[[[2,1],[1,1]]]]' --v '[[[[1],[2]]],[[[3],[4]]]]'",
    "--q '1 2; 2 1; 0 1; 1 1; 3 0; 1 3' --k '1 2; 0 1; 1 0; 2 1; 1 1; 0 2' --v '1;2;3;4;5;6' --causal",
    "--x '1 0; 0 1; 2 1' --wq '1 0;0 1' --wk '1 0;1 1' --wv '1 2;0 2' --causal --decode",
    "--q '1 0; 1 1' --k '1 2; 0 1' --v '2 0; 0 4' --backward",
];

/// 1/√2 and √2, which a sheet tells where d_k = 2, and which happen to be results too.
const CONSTANTS: [&str; 2] = ["0.7071", "1.4142"];

/// A sheet, its key and its line for programs.
struct Pages {
    sheet: String,
    key: String,
    data: Value,
}

fn run_in(folder: &Path, line: &str) -> Ran {
    run_with(folder, &words(&format!("explain {line}")), b"")
}

/// The pages of a problem, in lines that are never broken.
fn make(folder: &Path, line: &str, lang: &str, ending: &str) -> Pages {
    let (sheet, key) = (format!("sheet.{ending}"), format!("sheet.key.{ending}"));
    let ran = run_in(
        folder,
        &format!("{line} --lang {lang} --width 1000 -o {sheet}"),
    );
    let says = format!("{sheet}\n{key}\n");
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{line}");
    assert_eq!(ran.out, says, "{line}");
    let read = |name: &str| fs::read_to_string(folder.join(name)).expect("a file");
    let whole = read(&sheet);
    let start = whole.find("{\"qkv\":").expect("the line for programs");
    let end = start + whole[start..].find('\n').expect("its end");
    let json = whole[start..end].trim_end_matches(" -->");
    Pages {
        data: serde_json::from_str(json).expect("JSON"),
        sheet: format!("{}{}", &whole[..start], &whole[end..]),
        key: read(&key),
    }
}

/// `(7) label = rest`, split.
fn numbered(line: &str) -> Option<(usize, &str)> {
    let (number, rest) = line
        .trim_start_matches(['-', ' '])
        .strip_prefix('(')?
        .split_once(") ")?;
    Some((number.parse().ok()?, rest))
}

/// Number and label of every blank, in the order of the sheet.
fn blanks(sheet: &str) -> Vec<(usize, &str)> {
    let blank = |line| {
        let (number, rest) = numbered(line)?;
        let (label, room) = rest.rsplit_once(" = ")?;
        let empty = room.len() >= 12 && room.chars().all(|c| c == '_');
        empty.then_some((number, label))
    };
    sheet.lines().filter_map(blank).collect()
}

/// What the key gives for every number, in its order.
fn answers(key: &str) -> Vec<(usize, String)> {
    let answer = |line| {
        let (number, rest) = numbered(line)?;
        let shape = rest
            .find([':', '：'])
            .filter(|at| rest[*at..].contains('['));
        let rest = match shape {
            Some(at) => &rest[at..rest.find("] =")? + 1],
            None => {
                let remark = [" [", " 〔"]
                    .iter()
                    .filter_map(|mark| rest.find(mark))
                    .min();
                &rest[..remark.unwrap_or(rest.len())]
            }
        };
        let last = rest.rsplit(['=', '≈', ':', '：']).next()?;
        Some((number, last.trim().to_owned()))
    };
    key.lines().filter_map(answer).collect()
}

/// A number as it is printed, and half a unit of its last place if it was rounded.
fn parse(text: &str, digits: i32) -> (f64, f64) {
    let plain = text.replace('−', "-").replace('∞', "inf");
    let Some((mantissa, power)) = plain.split_once("×10") else {
        return (
            plain.parse().unwrap_or_else(|_| panic!("{text}")),
            0.5 * 10_f64.powi(-digits),
        );
    };
    let digit = |c| "⁰¹²³⁴⁵⁶⁷⁸⁹".chars().position(|d| d == c);
    let power: String = power
        .chars()
        .map(|c| digit(c).map_or("-".into(), |d| d.to_string()))
        .collect();
    let value: f64 = format!("{mantissa}e{power}").parse().expect("a number");
    let power: i32 = power.parse().expect("a power");
    (value, 0.5 * 10_f64.powi(power + 1 - digits.max(2)))
}

fn at(json: &Value, name: &str, index: &[usize]) -> f64 {
    let listed = ["steps", "gradients"].map(|list| json[list].as_array().into_iter().flatten());
    let mut listed = listed.into_iter().flatten();
    let step = listed
        .find(|step| step["name"] == name)
        .unwrap_or_else(|| panic!("no {name}"));
    let value = index.iter().fold(&step["values"], |value, i| &value[*i]);
    match value {
        Value::String(text) => text.parse().expect("a number"),
        value => value.as_f64().expect("a number"),
    }
}

fn shape(json: &Value, name: &str) -> String {
    let listed = ["steps", "gradients"].map(|list| json[list].as_array().into_iter().flatten());
    let mut listed = listed.into_iter().flatten();
    let step = listed.find(|step| step["name"] == name).expect("the step");
    step["shape"].to_string().replace(',', ", ")
}

/// Sheet and key go together, the sheet's own command computes the same numbers again, and the key
/// has them rounded.
fn check(folder: &Path, line: &str, lang: &str, ending: &str) -> Pages {
    let pages = make(folder, line, lang, ending);
    let blanks = blanks(&pages.sheet);
    let answers = answers(&pages.key);
    let asked: Vec<&str> = pages.data["blanks"]
        .as_array()
        .expect("blanks")
        .iter()
        .map(|name| name.as_str().expect("a name"))
        .collect();
    let numbers: Vec<usize> = (1..=asked.len()).collect();
    assert_eq!(
        blanks.iter().map(|b| b.0).collect::<Vec<_>>(),
        numbers,
        "{line}"
    );
    assert_eq!(
        answers.iter().map(|a| a.0).collect::<Vec<_>>(),
        numbers,
        "{line}"
    );

    let digits = pages.data["digits"].as_i64().expect("digits") as i32;
    let command = pages.data["command"].as_array().expect("a command");
    let mut again: Vec<String> = command
        .iter()
        .map(|word| word.as_str().expect("a word").to_owned())
        .collect();
    again.push("--json".into());
    // From anywhere: no file is needed.
    let elsewhere = tempfile::tempdir().expect("a folder");
    let ran = run_with(elsewhere.path(), &again, b"");
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{again:?}");
    let json: Value = serde_json::from_str(&ran.out).expect("JSON");
    for ((name, (number, answer)), (_, label)) in asked.iter().zip(&answers).zip(&blanks) {
        let case = format!("{line} {lang} {ending}: ({number}) {label} = {answer}, {name}");
        if let Some(step) = name.strip_prefix("shape of ") {
            assert_eq!(*answer, shape(&json, step), "{case}");
            continue;
        }
        let (printed, half) = parse(answer, digits);
        let Some((step, index)) = name.strip_suffix(']').and_then(|name| name.split_once('['))
        else {
            continue;
        };
        let index: Vec<usize> = index.split(',').filter_map(|i| i.parse().ok()).collect();
        if !step.chars().all(|c| c.is_ascii_lowercase() || c == '_') {
            continue; // a number on the way, which is no step's
        }
        let value = at(&json, step, &index);
        assert!(
            printed == value || (printed - value).abs() <= half * (1.0 + 1e-9),
            "{case}: {value}"
        );
    }
    pages
}

/// Numbers with exactly four decimals.
fn rounded(text: &str) -> BTreeSet<&str> {
    text.split(|c: char| !c.is_ascii_digit() && c != '.')
        .filter(|word| {
            word.split_once('.')
                .is_some_and(|(_, decimals)| decimals.len() == 4)
        })
        .collect()
}

#[test]
fn every_problem_in_both_languages_and_all_formats() {
    let folder = tempfile::tempdir().expect("a folder");
    for line in PROBLEMS {
        for ending in ["txt", "md"] {
            let [en, zh] = ["en", "zh"].map(|lang| {
                let line = format!("{line} --exercise");
                check(folder.path(), &line, lang, ending)
            });
            // The same numbers are asked in both.
            let answers = [&en, &zh].map(|pages| answers(&pages.key));
            assert_eq!(answers[0], answers[1], "{line}");
            assert_eq!(en.data["command"], zh.data["command"]);
        }
    }
}

#[test]
fn a_sheet_tells_no_answer() {
    let folder = tempfile::tempdir().expect("a folder");
    for line in PROBLEMS {
        let pages = make(folder.path(), &format!("{line} --exercise"), "en", "md");
        let results = answers(&pages.key);
        let results: BTreeSet<&str> = results.iter().map(|(_, answer)| answer.as_str()).collect();
        let sheet: Vec<&str> = pages
            .sheet
            .lines()
            .filter(|line| !line.contains("exp(x)**"))
            .collect();
        let sheet = sheet.join("\n");
        let told: Vec<&str> = rounded(&sheet)
            .into_iter()
            .filter(|number| results.contains(number))
            .filter(|number| !CONSTANTS.contains(number))
            .collect();
        assert_eq!(told, [""; 0], "{line}\n{}", pages.sheet);
        for line in pages.sheet.lines() {
            assert!(
                !line.contains('≈')
                    || line.contains("≈ instead of")
                    || line.contains("e ≈ 2.7183")
                    || line.contains('√'),
                "{line}"
            );
        }
    }
}

/// Text between the tags of a page, one paragraph a line.
fn untagged(html: &str) -> String {
    let body = html.split("<main").nth(1).expect("a main part");
    let mut text = String::new();
    for piece in body.replace("</p>", "</p>\n").split('<') {
        text.push_str(piece.split_once('>').map_or("", |(_, text)| text));
    }
    text
}

#[test]
fn pages_for_paper_have_the_same_blanks_and_tell_no_answer() {
    let folder = tempfile::tempdir().expect("a folder");
    for line in PROBLEMS {
        let line = format!("{line} --exercise");
        let text = make(folder.path(), &line, "en", "txt");
        let count = blanks(&text.sheet).len();
        let results = answers(&text.key);
        let results: BTreeSet<&str> = results.iter().map(|(_, answer)| answer.as_str()).collect();
        for ending in ["tex", "html"] {
            let pages = make(folder.path(), &line, "en", ending);
            assert_eq!(pages.data, text.data, "{line} {ending}");
            let [sheet, key] = match ending {
                "html" => [&pages.sheet, &pages.key].map(|page| untagged(page)),
                _ => [pages.sheet, pages.key],
            };
            for number in 1..=count {
                // A line of its own; in the sheet perhaps a place in a matrix too.
                let label = format!("({number})");
                assert!(
                    sheet.contains(&label) && key.contains(&label),
                    "{line} {ending} {label}"
                );
            }
            assert!(
                !sheet.contains(&format!("({})", count + 1)),
                "{line} {ending}"
            );
            let table = |line: &&str| !line.contains("exp(x)") && !line.contains("0.6065");
            let sheet: String = sheet.lines().filter(table).collect::<Vec<_>>().join("\n");
            let told: Vec<&str> = rounded(&sheet)
                .into_iter()
                .filter(|number| results.contains(number) && !CONSTANTS.contains(number))
                .collect();
            assert_eq!(told, [""; 0], "{line} {ending}\n{sheet}");
        }
    }
}

#[test]
fn what_is_asked_of_two_tokens() {
    let folder = tempfile::tempdir().expect("a folder");
    let pages = make(folder.path(), "--exercise", "en", "txt");
    let asked: Vec<&str> = blanks(&pages.sheet).iter().map(|blank| blank.1).collect();
    assert_eq!(
        asked,
        [
            "Shape of scores [batch, heads, queries, keys]",
            "q0·k0",
            "q0·k1",
            "q1·k0",
            "q1·k1",
            "Shape of scaled [batch, heads, queries, keys]",
            "s[0,0]",
            "s[0,1]",
            "s[1,0]",
            "s[1,1]",
            "Shape of max and sum [batch, heads, queries]",
            "Shape of exp and weights [batch, heads, queries, keys]",
            "m[0]",
            "e[0,0]",
            "e[0,1]",
            "S[0]",
            "w[0,0]",
            "w[0,1]",
            "Σ w[0,·]",
            "m[1]",
            "e[1,0]",
            "e[1,1]",
            "S[1]",
            "w[1,0]",
            "w[1,1]",
            "Σ w[1,·]",
            "Shape of output [batch, heads, queries, d_v]",
            "o[0,0]",
            "o[0,1]",
            "o[1,0]",
            "o[1,1]",
        ]
    );
    assert_eq!(pages.data["blanks"][7], "scaled[0,0,0,1]");
    // The matrices are there to be filled in.
    assert!(
        pages.sheet.contains("  q1   (4) ………  (5) ………\n"),
        "{}",
        pages.sheet
    );
    assert!(
        pages.key.contains("(17) w[0,0] = 1/1.4931 ≈ 0.6698 ["),
        "{}",
        pages.key
    );
    assert!(pages.sheet.contains("Name: ") && !pages.key.contains("Name: "));
}

#[test]
fn a_long_problem_asks_for_one_query() {
    let folder = tempfile::tempdir().expect("a folder");
    let long =
        "--q '1 2; 2 1; 0 1; 1 1; 3 0; 1 3' --k '1 2; 0 1; 1 0; 2 1; 1 1; 0 2' --v '1;2;3;4;5;6'";
    let rows = |line: &str| {
        let pages = check(
            folder.path(),
            &format!("{long} --exercise {line}"),
            "en",
            "txt",
        );
        let blanks = blanks(&pages.sheet);
        let rows: BTreeSet<String> = blanks
            .iter()
            .filter_map(|(_, label)| Some(label.strip_prefix("s[")?.split_once(',')?.0.to_owned()))
            .collect();
        // No row of another query is shown either.
        for row in 0..6 {
            let shown = pages.sheet.contains(&format!("\n  q{row}  ("));
            assert_eq!(shown, rows.contains(&row.to_string()), "{}", pages.sheet);
        }
        rows.into_iter().collect::<Vec<_>>()
    };
    assert_eq!(rows(""), ["5"]);
    // Where a mask is in force, a query that it concerns.
    assert_eq!(rows("--causal"), ["4"]);
    assert_eq!(rows("--row 2"), ["2"]);
    assert_eq!(rows("--row 2,0"), ["0", "2"]);
}

#[test]
fn arrays_from_files_are_kept_in_the_sheet() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(
        folder.path().join("q.csv"),
        "0.1,0.30000000000000004\n1e-300,-2.5e20\n",
    )
    .expect("q");
    fs::write(folder.path().join("k.json"), "[[1,0],[0,1]]").expect("k");
    let args = words("explain --q q.csv --k k.json --v - --exercise -o sheet.md --width 1000");
    let ran = run_with(folder.path(), &args, b"3 1; 2 2");
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let sheet = fs::read_to_string(folder.path().join("sheet.md")).expect("the sheet");
    let start = sheet.find("{\"qkv\":").expect("data");
    let data = sheet[start..].trim_end().trim_end_matches(" -->");
    let data: Value = serde_json::from_str(data).expect("JSON");
    assert_eq!(
        data["command"],
        serde_json::json!([
            "explain",
            "--q=[[0.1,0.30000000000000004],[1e-300,-2.5e20]]",
            "--k=[[1,0],[0,1]]",
            "--v=[[3,1],[2,2]]",
        ])
    );
}

#[test]
fn labels_and_values_cannot_end_the_comment() {
    let folder = tempfile::tempdir().expect("a folder");
    let ran = run_in(
        folder.path(),
        "--scale -1 --tokens 'the c-->at' --exercise -o sheet.md",
    );
    assert_eq!(ran.code, 0, "{}", ran.err);
    let sheet = fs::read_to_string(folder.path().join("sheet.md")).expect("the sheet");
    let (_, comment) = sheet.rsplit_once("<!-- ").expect("a comment");
    assert_eq!(comment.matches("--").count(), 1, "{comment}");
    assert!(comment.trim_end().ends_with(" -->"));
}

#[test]
fn a_drawn_problem_is_the_same_for_its_seed() {
    let folder = tempfile::tempdir().expect("a folder");
    let command = |line: &str| {
        let pages = check(
            folder.path(),
            &format!("--exercise random {line}"),
            "en",
            "md",
        );
        assert!(pages.sheet.contains("drawn from seed"));
        pages.data["command"].clone()
    };
    assert_eq!(command("--seed 7"), command("--seed 7"));
    assert_ne!(command("--seed 7"), command("--seed 8"));
    assert_eq!(command("")[1], command("--seed 0")[1]);
    // Other options join in.
    let softcap = command("--seed 7 --softcap 2 --heads 2");
    let softcap = softcap.as_array().expect("words");
    assert!(softcap.contains(&"--softcap=2".into()) && softcap.contains(&"--heads=2".into()));
    let causal = command("--seed 7 --causal --digits 2");
    let causal = causal.as_array().expect("words");
    assert_eq!(
        causal
            .iter()
            .filter(|word| word.as_str().is_some_and(|w| w.starts_with("--causal")))
            .count(),
        1
    );
}
