//! Sheets and keys of drawn problems with every option.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

#[allow(dead_code)]
mod common;

use common::{settings, with_gradient, with_matrices, with_problem};
use qkv::Block;
use qkv_report::{Lang, NoExercise, Paper, Subject, exercise, json};
use serde_json::Value;
use std::collections::HashSet;

/// Wide enough that no line is broken.
const WIDTH: usize = 2000;

/// `(7) rest`, split.
fn numbered(line: &str) -> Option<(usize, &str)> {
    let line = line.trim_start_matches(['-', ' ']);
    let (number, rest) = line.strip_prefix('(')?.split_once(") ")?;
    Some((number.parse().ok()?, rest))
}

fn data(sheet: &str) -> Value {
    let start = sheet.find("{\"qkv\":").unwrap();
    let end = sheet[start..].find('\n').unwrap();
    serde_json::from_str(sheet[start..start + end].trim_end_matches(" -->")).unwrap()
}

/// The number of a step by a name such as `scaled[0,0,1,0]`.
fn number(json: &Value, name: &str) -> Option<f64> {
    let (step, index) = name.strip_suffix(']')?.split_once('[')?;
    let listed = ["steps", "gradients"].map(|list| json[list].as_array().into_iter().flatten());
    let mut listed = listed.into_iter().flatten();
    let step = listed.find(|listed| listed["name"] == step)?;
    let mut value = &step["values"];
    for index in index.split(',') {
        value = &value[index.parse::<usize>().ok()?];
    }
    match value {
        Value::String(text) => text.parse().ok(),
        value => value.as_f64(),
    }
}

/// The last number of a line, before its remark, and half a unit of its last place.
fn result(line: &str) -> (f64, f64) {
    let remark = [" [", " 〔"]
        .iter()
        .filter_map(|mark| line.find(mark))
        .min();
    let line = &line[..remark.unwrap_or(line.len())];
    let last = line.rsplit(['=', '≈']).next().unwrap().trim();
    let last = last.replace('−', "-").replace('∞', "inf");
    let Some((mantissa, power)) = last.split_once("×10") else {
        return (last.parse().unwrap_or_else(|_| panic!("{line}")), 0.5e-4);
    };
    let digit = |c| "⁰¹²³⁴⁵⁶⁷⁸⁹".chars().position(|d| d == c);
    let power: String = power
        .chars()
        .map(|c| digit(c).map_or("-".into(), |d| d.to_string()))
        .collect();
    let value: f64 = format!("{mantissa}e{power}").parse().unwrap();
    (value, 0.5e-3 * 10_f64.powi(power.parse().unwrap()))
}

fn check(subject: &Subject<'_>, lang: Lang, paper: Paper, seed: u64) -> Option<usize> {
    let made = match exercise(subject, &settings(lang, WIDTH), paper, &[]) {
        Ok(made) => made,
        Err(refused) => {
            assert_ne!(refused, NoExercise::Nothing, "seed {seed}");
            return None;
        }
    };
    let (data, json) = (data(&made.sheet), json(subject));
    let asked: Vec<&str> = data["blanks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|name| name.as_str().unwrap())
        .collect();
    let blanks: Vec<_> = made.sheet.lines().filter_map(numbered).collect();
    let answers: Vec<_> = made.key.lines().filter_map(numbered).collect();
    assert_eq!(blanks.len(), asked.len(), "seed {seed}");
    assert_eq!(answers.len(), asked.len(), "seed {seed}");
    for (at, name) in asked.iter().enumerate() {
        let ((blank, line), (answer, solved)) = (blanks[at], answers[at]);
        assert_eq!([blank, answer], [at + 1, at + 1], "seed {seed}");
        let (label, room) = line.rsplit_once(" = ").unwrap();
        assert!(
            room.chars().all(|c| c == '_') && room.len() >= 12,
            "seed {seed}: {line}"
        );
        if name.starts_with("shape of ") {
            continue;
        }
        assert!(
            solved.starts_with(label),
            "seed {seed}: {line} and {solved}"
        );
        if let Some(value) = number(&json, name) {
            let (shown, half) = result(solved);
            let near = (shown - value).abs() <= half * (1.0 + 1e-9);
            assert!(
                near || shown == value || shown.is_nan() && value.is_nan(),
                "seed {seed}: {name} is {value}, {solved}"
            );
        }
    }
    check_solvable(&made.sheet, &answers, &asked, seed);
    // Worked lines are the key's alone.
    for line in made.sheet.lines().filter(|line| line.contains('≈')) {
        let constant = line.contains("2.7183")
            || line.contains("6.2832")
            || line.contains('√')
            || line.contains('“')
            || line.contains("write ≈");
        assert!(constant, "seed {seed}: {line}");
    }
    Some(asked.len())
}

/// Numbers without their signs.
fn numbers(text: &str) -> HashSet<String> {
    let part = |c: char| c.is_ascii_digit() || c == '.' || "×⁰¹²³⁴⁵⁶⁷⁸⁹⁻∞".contains(c);
    text.split(|c| !part(c))
        .map(|word| match word.contains('×') {
            true => word,
            false => word.trim_end_matches(|c: char| !c.is_ascii_digit()), // a square, a full stop
        })
        .map(str::to_owned)
        .filter(|word| !word.is_empty())
        .collect()
}

/// Each calculation of the key begins with numbers that the sheet gives or asks for before.
fn check_solvable(sheet: &str, answers: &[(usize, &str)], asked: &[&str], seed: u64) {
    let given = sheet.split("{\"qkv\":").next().unwrap();
    let mut known = numbers(given);
    for ((number, line), name) in answers.iter().zip(asked) {
        if name.starts_with("shape of ") {
            continue;
        }
        let remark = [" [", " 〔"]
            .iter()
            .filter_map(|mark| line.find(mark))
            .min();
        let line = &line[..remark.unwrap_or(line.len())];
        let (rest, value) = line.rsplit_once(['=', '≈']).unwrap();
        // After the label, which may be a formula itself.
        let label = blank_label(sheet, *number);
        let first = rest[label.len()..].trim_start_matches([' ', '=', '≈', '\u{a0}']);
        let first = first.split(['=', '≈']).next().unwrap();
        // The angle of a position is worked out from the formula.
        let wave = first.find(" + sin(").or(first.find(" + cos("));
        for needed in numbers(&first[..wave.unwrap_or(first.len())]) {
            assert!(
                known.contains(&needed),
                "seed {seed}: where does {needed} of {line} come from?\n{sheet}"
            );
        }
        known.extend(numbers(value));
    }
}

fn blank_label(sheet: &str, number: usize) -> &str {
    let mut lines = sheet.lines().filter_map(numbered);
    let (_, line) = lines.find(|(found, _)| *found == number).unwrap();
    line.rsplit_once(" = ").unwrap().0
}

#[test]
fn five_hundred_problems_with_every_option() {
    let mut made = 0;
    for seed in 0..500 {
        with_problem(seed, |problem| {
            let lang = [Lang::En, Lang::Zh][seed as usize % 2];
            let paper = [Paper::Text, Paper::Markdown][seed as usize / 2 % 2];
            made += usize::from(check(&problem.subject, lang, paper, seed).is_some());
        });
    }
    assert!(made > 400, "{made} of 500 problems made a sheet");
}

#[test]
fn gradients_too() {
    let mut made = 0;
    for seed in 0..200 {
        with_problem(seed, |problem| {
            with_gradient(problem, seed, |subject| {
                let lang = [Lang::En, Lang::Zh][seed as usize % 2];
                made += usize::from(check(subject, lang, Paper::Text, seed).is_some());
            });
        });
    }
    assert!(made > 20, "{made} of 200 problems made a sheet");
}

#[test]
fn a_result_that_is_an_input_too_is_still_blank() {
    // With one key the output is the value, with K = 1 the scores are the queries.
    let (q, k, v) = ([0.1234, 0.9871], [1.0], [0.4321]);
    let matrices = [(&q[..], [2, 1]), (&k[..], [1, 1]), (&v[..], [1, 1])];
    with_matrices(&Block::default(), matrices, |subject| {
        let made = exercise(subject, &settings(Lang::En, 80), Paper::Text, &[]).unwrap();
        // Each is there once, where it is given.
        for number in ["0.1234", "0.9871", "0.4321"] {
            assert_eq!(made.sheet.matches(number).count(), 1, "{}", made.sheet);
        }
        assert!(made.key.contains("m[0] = 0.1234\n"), "{}", made.key);
    });
}

#[test]
fn nothing_to_work_out() {
    let matrices = [
        (&[][..], [0, 1]),
        (&[1.0][..], [1, 1]),
        (&[1.0][..], [1, 1]),
    ];
    with_matrices(&Block::default(), matrices, |subject| {
        let made = exercise(subject, &settings(Lang::En, 80), Paper::Text, &[]);
        assert_eq!(made.unwrap_err(), NoExercise::Nothing);
    });
}
