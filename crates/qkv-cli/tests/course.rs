//! The course in `docs/`: whatever it shows is what the command prints.
//!
//! A code block that begins with `$ qkv` holds lines of that command's output: lines that follow
//! one another there, and `…` where some are left out. A number with a decimal point in the text
//! of a chapter comes from a command of this chapter. `UPDATE=1 cargo test --test course` puts
//! changed numbers into the blocks; those in the text are for whoever wrote the text.

#![allow(clippy::panic)]

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The languages: the file, and the locale in which its commands run.
const COURSES: [(&str, &str); 2] = [("course.md", "C"), ("course.zh-CN.md", "zh_CN.UTF-8")];

/// How a question to the reader begins; the answer is unfolded.
const QUESTION: [&str; 2] = ["**Question.**", "**想一想：**"];

fn path(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs")
        .join(file)
}

fn read(file: &str) -> String {
    fs::read_to_string(path(file)).unwrap_or_else(|error| panic!("docs/{file}: {error}"))
}

/// A part of the course under one heading.
#[derive(Default)]
struct Chapter {
    prose: Vec<(usize, String)>,
    examples: Vec<Example>,
}

/// A command and the lines shown of its output.
#[derive(Default)]
struct Example {
    command: String,
    /// Line of the file where the shown output begins, from 0.
    start: usize,
    shown: Vec<String>,
}

fn chapters(text: &str) -> Vec<Chapter> {
    let mut chapters = vec![Chapter::default()];
    let mut lines = text.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        if line.starts_with("## ") {
            chapters.push(Chapter::default());
        }
        let chapter = chapters.last_mut().expect("a chapter");
        if !line.starts_with("```") {
            chapter.prose.push((at, line.to_owned()));
            continue;
        }
        let block: Vec<_> = lines.by_ref().take_while(|(_, l)| *l != "```").collect();
        let Some(first) = block.first().and_then(|(_, l)| l.strip_prefix("$ ")) else {
            continue;
        };
        let continued = block.iter().take_while(|(_, l)| l.ends_with('\\')).count();
        let mut command = first.trim_end_matches('\\').to_owned();
        for (_, more) in &block[1..=continued] {
            command += more.trim_start().trim_end_matches('\\');
        }
        let blank = block[continued + 1..]
            .iter()
            .take_while(|(_, l)| l.is_empty());
        let head = continued + 1 + blank.count();
        chapter.examples.push(Example {
            command,
            start: at + 1 + head,
            shown: block[head..]
                .iter()
                .map(|(_, line)| (*line).to_owned())
                .collect(),
        });
    }
    chapters
}

/// The output of `qkv …`, typed as in the course.
fn output(command: &str, folder: &Path, locale: &str) -> String {
    let words = common::words(&command.replace('"', "'"));
    assert_eq!(words.first().map(String::as_str), Some("qkv"), "{command}");
    let ran = common::command(folder)
        .args(&words[1..])
        .env("LC_ALL", locale)
        .output()
        .expect("the command starts");
    let errors = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "$ {command}\n{errors}");
    String::from_utf8(ran.stdout).expect("UTF-8")
}

/// Runs every command of a course, in order and in one folder, so that later ones may read the
/// files of earlier ones.
fn for_each(file: &str, locale: &str, mut then: impl FnMut(&Chapter, &[String])) {
    let folder = tempfile::tempdir().expect("a folder");
    for chapter in chapters(&read(file)) {
        let outputs: Vec<String> = chapter
            .examples
            .iter()
            .map(|example| output(&example.command, folder.path(), locale))
            .collect();
        then(&chapter, &outputs);
    }
}

/// Where the lines of each piece between `…` stand in the output, if they do, in this order.
fn locate(shown: &[String], printed: &[String]) -> Result<Vec<usize>, String> {
    let mut from = 0;
    let mut starts = Vec::new();
    for piece in pieces(shown) {
        let found = printed[from..]
            .windows(piece.len())
            .position(|window| window == piece)
            .ok_or_else(|| piece.join("\n"))?;
        starts.push(from + found);
        from += found + piece.len();
    }
    Ok(starts)
}

fn pieces(shown: &[String]) -> impl Iterator<Item = &[String]> {
    shown
        .split(|line| line == "…")
        .filter(|piece| !piece.is_empty())
}

fn lines(text: &str) -> Vec<String> {
    text.lines()
        .map(|line| line.trim_end().to_owned())
        .collect()
}

/// A line with every number replaced, to find the line that took its place.
fn without_numbers(line: &str) -> String {
    let mut kept = String::new();
    for c in line.chars().filter(|c| !"−. █▓▒░".contains(*c)) {
        match c.is_ascii_digit() {
            true if kept.ends_with('#') => {}
            true => kept.push('#'),
            false => kept.push(c),
        }
    }
    kept
}

#[test]
fn excerpts_are_what_the_command_prints() {
    let update = std::env::var_os("UPDATE").is_some();
    for (file, locale) in COURSES {
        let mut text: Vec<String> = read(file).lines().map(str::to_owned).collect();
        let mut stale = Vec::new();
        for_each(file, locale, |chapter, outputs| {
            for (example, output) in chapter.examples.iter().zip(outputs) {
                let printed = lines(output);
                let Err(piece) = locate(&example.shown, &printed) else {
                    continue;
                };
                let bare = |lines: &[String]| {
                    lines
                        .iter()
                        .map(|line| without_numbers(line))
                        .collect::<Vec<_>>()
                };
                match locate(&bare(&example.shown), &bare(&printed)) {
                    Ok(starts) if update => {
                        let mut at = example.start;
                        let mut starts = starts.into_iter();
                        for run in example.shown.chunk_by(|a, b| a != "…" && b != "…") {
                            if run[0] != "…"
                                && let Some(start) = starts.next()
                            {
                                text[at..at + run.len()]
                                    .clone_from_slice(&printed[start..start + run.len()]);
                            }
                            at += run.len();
                        }
                    }
                    _ => stale.push(format!(
                        "docs/{file}:{}: $ {}\ndoes not print, in this place:\n{piece}",
                        example.start + 1,
                        example.command
                    )),
                }
            }
        });
        if update {
            fs::write(path(file), text.join("\n") + "\n").expect("the course is written");
        }
        assert!(stale.is_empty(), "{}", stale.join("\n\n"));
    }
}

/// Without the remarks on what shown digits would give, whose numbers are not the result.
fn without_remarks(output: &str) -> String {
    let remarks = [("[shown", ']'), ("[the shown", ']'), ("〔", '〕')];
    remarks
        .iter()
        .fold(output.to_owned(), |text, (open, close)| {
            let mut parts = text.split(open);
            let first = parts.next().unwrap_or_default().to_owned();
            parts.fold(first, |kept, part| {
                kept + part.split_once(*close).map_or(part, |(_, after)| after)
            })
        })
}

/// 66.52 as 0.6652.
fn hundredth(percent: &str) -> String {
    let (whole, decimals) = percent.split_once('.').expect("a decimal point");
    let whole = format!("{whole:0>3}");
    let (ones, hundredths) = whole.split_at(whole.len() - 2);
    format!("{ones}.{hundredths}{decimals}")
}

/// The numbers with a decimal point, with their signs; 66.52% is 0.6652.
fn decimals(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_digit() || c == '.';
    let mut found = BTreeSet::new();
    let mut rest = text;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let sign = match rest[..start].chars().next_back() {
            Some('−' | '-') => "−",
            _ => "",
        };
        let end = rest[start..]
            .find(|c: char| !is_part(c))
            .map_or(rest.len(), |length| start + length);
        let number = rest[start..end].trim_end_matches('.');
        if number.contains('.') {
            let number = match rest[end..].starts_with('%') {
                true => hundredth(number),
                false => number.to_owned(),
            };
            found.insert(format!("{sign}{number}"));
        }
        rest = &rest[end..];
    }
    found
}

#[test]
fn numbers_in_the_text_are_printed_by_a_command_of_the_chapter() {
    for (file, locale) in COURSES {
        let mut stale = Vec::new();
        for_each(file, locale, |chapter, outputs| {
            let mut printed = decimals(&without_remarks(&outputs.join("\n")));
            for example in &chapter.examples {
                printed.extend(decimals(&example.command));
            }
            for (at, line) in &chapter.prose {
                for number in decimals(line).difference(&printed) {
                    stale.push(format!("docs/{file}:{}: {number}: {line}", at + 1));
                }
            }
        });
        assert!(stale.is_empty(), "{}", stale.join("\n"));
    }
}

/// What must agree between the languages, line by line.
fn outline(file: &str) -> Vec<String> {
    let text = read(file);
    let mut outline = Vec::new();
    let mut examples = Vec::new();
    for chapter in chapters(&text) {
        examples.extend(chapter.examples);
        outline.push("chapter".to_owned());
        let mut open = 0;
        for (at, line) in &chapter.prose {
            let heading = line.chars().take_while(|c| *c == '#').count();
            if heading > 0 {
                outline.push(format!("heading {heading}"));
            }
            if QUESTION.iter().any(|begin| line.starts_with(begin)) {
                open += 1;
                outline.push("question".to_owned());
            }
            if line.starts_with("<details>") {
                open -= 1;
                outline.push("answer".to_owned());
            }
            assert!(
                (0..=1).contains(&open),
                "docs/{file}:{}: each question has one answer",
                at + 1
            );
            if line.starts_with('|') {
                outline.push("row of a table".to_owned());
            }
        }
        assert_eq!(open, 0, "docs/{file}: a question without an answer");
    }
    outline.extend(examples.into_iter().map(|example| example.command));
    outline
}

#[test]
fn both_languages_have_the_same_parts_and_commands() {
    let [english, chinese] = COURSES.map(|(file, _)| outline(file));
    let asked = |outline: &[String]| outline.iter().filter(|part| *part == "question").count();
    assert!(asked(&english) > 0, "no question found");
    for (i, (english, chinese)) in english.iter().zip(&chinese).enumerate() {
        assert_eq!(english, chinese, "part {i} of the outline");
    }
    assert_eq!(english.len(), chinese.len());
}

#[test]
fn numbers_are_told_from_other_marks() {
    let found: Vec<String> = decimals("0.5, −1.25; 66.52% of 3. 9.00%, 123.45%. Then (-0.10).")
        .into_iter()
        .collect();
    assert_eq!(
        found,
        ["0.0900", "0.5", "0.6652", "1.2345", "−0.10", "−1.25"]
    );
}
