//! docs/check.md: whatever it shows is what the command prints. `UPDATE=1 cargo test --test guide`
//! writes the output of its commands anew.

mod common;

use std::fs;
use std::path::Path;

/// A code block of the guide: a command and what it prints, of which `…` leaves out the rest.
fn told(block: &[&str], folder: &Path) -> Option<Vec<String>> {
    let first = block.first()?.strip_prefix("$ ")?;
    let continued = block.iter().take_while(|line| line.ends_with('\\')).count();
    let mut command = first.trim_end_matches('\\').to_owned();
    for more in &block[1..=continued] {
        command.push_str(more.trim_start().trim_end_matches('\\'));
    }
    let words = common::words(&command.replace('"', "'"));
    assert_eq!(words[0], "qkv", "{command}");
    let ran = common::run_with(folder, &words[1..], b"");
    assert_eq!(ran.err, "", "{command}");
    let mut told: Vec<String> = block[..=continued]
        .iter()
        .map(|line| (*line).to_owned())
        .collect();
    told.extend(ran.out.lines().map(|line| line.trim_end().to_owned()));
    Some(told)
}

#[test]
fn every_output_is_what_the_command_prints() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/check.md");
    let text = fs::read_to_string(&path).expect("docs/check.md");
    let folder = tempfile::tempdir().expect("a folder");
    let mut out: Vec<String> = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        out.push(line.to_owned());
        if !line.starts_with("```") {
            continue;
        }
        let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        let printed = told(&block, folder.path());
        let cut = block.last() == Some(&"…");
        match printed {
            None => out.extend(block.iter().map(|line| (*line).to_owned())),
            Some(mut printed) if cut => {
                printed.truncate(block.len() - 1);
                printed.push("…".into());
                out.extend(printed);
            }
            Some(printed) => out.extend(printed),
        }
        out.push("```".into());
    }
    let new = out.join("\n") + "\n";
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, &new).expect("the guide is written");
        return;
    }
    let differs = text.lines().zip(new.lines()).find(|(a, b)| a != b);
    assert!(text == new, "docs/check.md is out of date: {differs:?}");
}
