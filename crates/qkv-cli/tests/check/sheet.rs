//! Filled-in exercise sheets.

use crate::common::{Ran, refusals, run_with, words};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// Four numbers in a query, three causal tokens.
const MASK: &str = "explain --exercise random --seed 6 --causal";

struct Desk {
    folder: tempfile::TempDir,
    sheet: String,
    file: &'static str,
}

impl Desk {
    fn new(command: &str, file: &'static str) -> Desk {
        let folder = tempfile::tempdir().expect("a folder");
        let ran = run_with(folder.path(), &words(&format!("{command} -o {file}")), b"");
        assert_eq!(ran.code, 0, "{}", ran.err);
        let sheet = fs::read_to_string(folder.path().join(file)).expect("a sheet");
        Desk {
            folder,
            sheet,
            file,
        }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Writes the sheet with these results in its blanks.
    fn fill(&self, results: &[(usize, String)]) {
        let mut lines: Vec<String> = self.sheet.lines().map(str::to_owned).collect();
        for (number, result) in results {
            let start = format!("({number}) ");
            let of = |line: &&mut String| {
                let line = line.trim_start();
                line.starts_with(&start) && line.contains('_')
            };
            let line = lines.iter_mut().find(of).expect("a blank");
            let blank = line.find("= _").expect("room") + 2;
            line.replace_range(blank.., result);
        }
        fs::write(self.path().join(self.file), lines.join("\n")).expect("a file");
    }

    fn check(&self) -> (i32, Value) {
        let line = words(&format!("check --sheet {} --json", self.file));
        let Ran { code, out, err } = run_with(self.path(), &line, b"");
        assert_eq!(err, "");
        (code, serde_json::from_str(&out).expect("JSON"))
    }

    /// The answers of the key.
    fn right(&self) -> Vec<(usize, String)> {
        self.fill(&[]);
        let (code, json) = self.check();
        assert_eq!((code, &json["verdict"]), (1, &json!("undecided")));
        let blanks = json["blanks"].as_array().expect("a list");
        let right = |blank: &Value| blank["right"].as_str().expect("a text").to_owned();
        blanks
            .iter()
            .map(right)
            .enumerate()
            .map(|(at, right)| (at + 1, right))
            .collect()
    }

    fn fill_with(&self, other: &[(usize, &str)]) {
        let mut results = self.right();
        for (number, result) in other {
            (*result).clone_into(&mut results[number - 1].1);
        }
        self.fill(&results);
    }
}

fn states(json: &Value, state: &str) -> Vec<u64> {
    let blanks = json["blanks"].as_array().expect("a list").iter();
    let of = blanks.filter(|blank| blank["state"] == state);
    of.map(|blank| blank["number"].as_u64().expect("a number"))
        .collect()
}

#[test]
fn a_right_sheet_is_right_in_both_languages_and_formats() {
    let more = "explain --exercise --q '1 0 2;0 1 1' --k '1 1 0;0 2 1' --v '1 2;3 4' --softcap 5 \
                --position rotary --rotary-dim 2 --sinks '0.5' --bias '.5 0;0 1'";
    for command in [MASK, more, "explain --exercise random --seed 3 --heads 2"] {
        for (lang, file) in [("en", "s.md"), ("zh", "s.md"), ("en", "s.txt")] {
            let desk = Desk::new(&format!("{command} --lang {lang}"), file);
            desk.fill(&desk.right());
            let (code, json) = desk.check();
            let blanks = json["blanks"].as_array().expect("a list").len();
            assert_eq!(states(&json, "right").len(), blanks, "{json}");
            assert_eq!((code, &json["verdict"]), (0, &json!("equal")));
        }
    }
}

#[test]
fn rounded_steps_count_as_right() {
    // The built-in example in two decimals and in one: each number from the rounded ones before it.
    let desk = Desk::new("explain --exercise", "s.md");
    let right = desk.right();
    let of = |json: &Value, asks: &str| {
        let blanks = json["blanks"].as_array().expect("a list").iter();
        let found = blanks.filter(|blank| blank["asks"].as_str() == Some(asks));
        found
            .map(|blank| blank["number"].as_u64().expect("a number") as usize)
            .next()
    };
    let (_, json) = desk.check();
    for (s, e, sum, w, other, o) in [
        ("0.71", "0.49", "1.49", "0.67", "0.33", ["1.34", "1.32"]),
        ("0.7", "0.5", "1.5", "0.7", "0.3", ["1.4", "1.2"]),
    ] {
        let mut results = right.clone();
        let mut put = |asks: &str, result: &str| {
            let number = of(&json, asks).expect(asks);
            result.clone_into(&mut results[number - 1].1);
        };
        put("scaled[0,0,0,0]", s);
        put("max[0,0,0]", s);
        put("exp[0,0,0,1]", e);
        put("sum[0,0,0]", sum);
        put("weights[0,0,0,0]", w);
        put("weights[0,0,0,1]", other);
        put("output[0,0,0,0]", o[0]);
        put("output[0,0,0,1]", o[1]);
        desk.fill(&results);
        let (code, json) = desk.check();
        assert_eq!((code, states(&json, "wrong")), (0, vec![]), "{json}");
    }
    // But not a number that no rounding gives.
    let number = of(&json, "output[0,0,0,0]").expect("a blank");
    let mut results = right;
    results[number - 1].1 = "1.36".into();
    desk.fill(&results);
    assert_eq!(states(&desk.check().1, "wrong"), [number as u64]);
}

#[test]
fn a_slip_is_named_and_what_follows_is_not_counted_again() {
    let desk = Desk::new(MASK, "s.md");
    // s[2,0] = −1/4; e[2,0] = exp(−0.25 − 0.5); the sum and the weights from that.
    let wrong = [
        (18, "-1/4 = -0.25"),
        (36, "0.4724"),
        (39, "2.4724"),
        (40, "0.1911"),
    ];
    let more = [(41, "0.4045"), (42, "0.4045"), (47, "2.7869")];
    desk.fill_with(&[&wrong[..], &more[..]].concat());
    let (code, json) = desk.check();
    assert_eq!((code, &json["verdict"]), (1, &json!("different")));
    assert_eq!(states(&json, "wrong"), [18], "{json}");
    assert_eq!(states(&json, "follows"), [36, 39, 40, 41, 42, 47], "{json}");
    assert_eq!(json["first_wrong"], 18);
    assert_eq!(
        json["first_difference"],
        json!({"step": "scaled", "index": [0, 0, 2, 0]})
    );
    assert_eq!(json["causes"][0]["id"], "divided-by-d");
    let says = json["blanks"][17]["slip"]["says"].as_str().expect("a text");
    assert_eq!(says, "row 2: divided by d = 4 instead of √d = 2");
    let zh = run_with(desk.path(), &words("check --sheet s.md --lang zh"), b"");
    assert!(
        zh.out.contains("第2行：除以了d = 4，而应除以√d = 2"),
        "{}",
        zh.out
    );
    // One exponential off, with no reason; everything after it follows.
    desk.fill_with(&[
        (36, "0.9"),
        (39, "2.9"),
        (40, "0.31"),
        (41, "0.345"),
        (42, "0.345"),
    ]);
    let (_, json) = desk.check();
    assert_eq!(
        (states(&json, "wrong")[0], states(&json, "wrong").len()),
        (36, 1),
        "{json}"
    );
    assert_eq!(states(&json, "follows"), [39, 40, 41, 42], "{json}");
    let text = run_with(desk.path(), &words("check --sheet s.md"), b"").out;
    assert!(
        text.contains("(36) e[2,0] is off: 0.9, where 0.3679 is right"),
        "{text}"
    );
    assert!(text.contains("4 blanks after it follow"), "{text}");
}

#[test]
fn usual_slips() {
    let desk = Desk::new(MASK, "s.md");
    for (number, result, slip) in [
        (12, "4", "not-divided"),
        (12, "8", "multiplied"),
        (12, "1", "divided-by-d"),
        (4, "-3", "sign"),
        (2, "3", "term-missing"),
        (8, "1", "sign-of-term"),
        (29, "1.6487", "difference-reversed"),
        (29, "1", "max-not-subtracted"),
        (32, "2.6487", "inverted"),
        (36, "0.3678", "last-digit"),
        (36, "3.679", "decimal-point"),
        (36, "0.3697", "digits-exchanged"),
        (47, "3", "not-weighted"),
    ] {
        desk.fill_with(&[(number, result)]);
        let (_, json) = desk.check();
        let blank = &json["blanks"][number - 1];
        assert_eq!(blank["slip"]["id"], slip, "({number}) = {result}: {blank}");
    }
}

#[test]
fn what_is_written_is_read_as_people_write() {
    let desk = Desk::new(MASK, "s.md");
    for (number, result) in [
        (1, "(1,1,3,3)"),
        (1, "3 × 3"),
        (1, "[1, 1, 3, 3] = batch, heads, queries, keys"),
        (3, "2·(−1) + 1·0 + (−1)·(−1) + (−1)·1 = −2"),
        (3, "–2"),
        (16, "1/2"),
        (16, "½ ≈ 0.50"),
        (36, "3.679×10⁻¹"),
        (36, "0,3679"),
        (36, "0.37 ___"),
    ] {
        desk.fill_with(&[(number, result)]);
        let (code, json) = desk.check();
        assert_eq!(
            code,
            0,
            "({number}) = {result}: {}",
            json["blanks"][number - 1]
        );
    }
    for (number, result, state) in [
        (36, "no idea", "unreadable"),
        (1, "[1, 1, 3, 4]", "wrong"),
        (36, "", "empty"),
    ] {
        desk.fill_with(&[(number, result)]);
        let (code, json) = desk.check();
        assert_eq!(
            (code, states(&json, state)),
            (1, vec![number as u64]),
            "{result}"
        );
    }
}

#[test]
fn damaged_sheets_are_refused_clearly() {
    let desk = Desk::new(MASK, "s.md");
    let write = |name: &str, text: &str| fs::write(desk.path().join(name), text).expect("a file");
    let sheet = &desk.sheet;
    write("none.md", "(1) x = 3");
    write("cut.md", &sheet.replace("\"digits\":4,", "\"digits\":"));
    write("new.md", &sheet.replace("\"version\":1", "\"version\":2"));
    write("other.md", &sheet.replace("[[4],[5],[0]]", "[[4],[5]]"));
    write("fewer.md", &sheet.replace("\"scores[0,0,0,0]\",", ""));
    write("word.md", &sheet.replace("[\"explain\"", "[\"bench\""));
    let data = sheet
        .lines()
        .find(|line| line.contains("\"qkv\""))
        .expect("the data");
    write("bare.md", data);
    let twice = sheet.replace("\n(2) q0", "\n(2) q0·k0 = 3\n(2) q0·k0 = 4\n(2) q0");
    write("twice.md", &twice);
    refusals(
        "check",
        desk.path(),
        &[
            (
                "--sheet nowhere.md",
                &["--sheet: there is no file \"nowhere.md\"; check the path\n"],
            ),
            ("--sheet .", &["--sheet: . is a folder; name a file in it"]),
            ("--sheet none.md", &["no sheet"]),
            ("--sheet cut.md", &["damaged", "character"]),
            ("--sheet new.md", &["version 2"]),
            ("--sheet other.md", &["3"]),
            ("--sheet fewer.md", &["not those"]),
            ("--sheet word.md", &["damaged", "command"]),
            ("--sheet bare.md", &["none of the sheet's blanks"]),
            ("--sheet twice.md", &["(2)", "twice"]),
            ("--sheet s.md --q 1", &["--q"]),
        ],
    );
}
