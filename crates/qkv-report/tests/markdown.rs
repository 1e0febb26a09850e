//! What Markdown says, and that it is well-formed.
#![allow(clippy::unwrap_used, clippy::panic)]

#[allow(dead_code)]
mod common;

use common::{settings, with_problem};
use qkv_report::{Lang, markdown, text};

/// Words of a line, without the marks of a table.
fn bare(line: &str) -> Vec<String> {
    let cells = line.trim_matches('|').replace("**", "").replace("\\|", "|");
    let words = cells.split(|c: char| c == '|' || c.is_whitespace());
    words
        .filter(|word| !word.is_empty())
        .map(|word| {
            let word = word.replace("&lt;", "<").replace("&amp;", "&");
            ["\\_", "\\*", "\\\\"]
                .iter()
                .fold(word, |word, mark| word.replace(mark, &mark[1..]))
        })
        .collect()
}

/// The lines of calculation and the rows of matrices, in order.
fn numbers(markdown: &str) -> Vec<Vec<String>> {
    let mut code = false;
    let mut lines = Vec::new();
    for line in markdown.lines() {
        if line.starts_with("```") {
            code = !code;
        } else if line.starts_with('|') && !line.starts_with("|:--") || code {
            lines.push(bare(line));
        }
    }
    lines
}

#[test]
fn its_numbers_are_those_of_the_text() {
    let mut compared = 0;
    for seed in 0..220 {
        with_problem(seed, |problem| {
            for lang in [Lang::En, Lang::Zh] {
                let settings = settings(lang, 100_000);
                let text = text(&problem.subject, &settings);
                let text: Vec<Vec<String>> = text.lines().map(bare).collect();
                let mut rest = text.iter();
                for line in numbers(&markdown(&problem.subject, &settings)) {
                    let mut ahead = rest.clone();
                    if ahead.any(|other| *other == line) {
                        rest = ahead;
                    } else {
                        // The text puts matrices side by side and does not split them here.
                        // A row's name is a word, or two with its token.
                        let part = |other: &Vec<String>| {
                            [1, 2].into_iter().any(|name| {
                                let cells = line.get(name..).unwrap_or_default();
                                !cells.is_empty() && other.windows(cells.len()).any(|w| w == cells)
                            })
                        };
                        assert!(text.iter().any(part), "seed {seed}: {line:?}");
                    }
                    compared += 1;
                }
            }
        });
    }
    assert!(compared > 50_000, "{compared}");
}

#[test]
fn tables_code_and_mathematics_are_closed() {
    for seed in 0..220 {
        with_problem(seed, |problem| {
            for lang in [Lang::En, Lang::Zh] {
                let page = markdown(&problem.subject, &settings(lang, 80));
                let lines: Vec<&str> = page.lines().collect();
                let (mut code, mut mathematics, mut columns) = (false, false, None);
                for (at, line) in lines.iter().enumerate() {
                    let before = at.checked_sub(1).map_or("", |at| lines[at]);
                    if line.starts_with("```") {
                        code = !code;
                        assert!(!code || before.is_empty(), "{line} after {before}");
                    } else if code {
                        assert!(line.chars().count() <= 80, "{line}");
                    } else if *line == "$$" {
                        mathematics = !mathematics;
                    } else if line.starts_with('|') {
                        let bars = line.replace("\\|", "").matches('|').count();
                        assert_eq!(*columns.get_or_insert(bars), bars, "{line}");
                        assert!(before.starts_with('|') || before.is_empty());
                    } else {
                        columns = None;
                    }
                    let heading = line.starts_with('#') && !code;
                    let item = line.trim_start().starts_with("- ") && !code;
                    let listed = before.trim_start().starts_with("- ");
                    assert!(!heading || before.is_empty(), "{line} after {before}");
                    assert!(
                        !item || listed || before.is_empty(),
                        "{line} after {before}"
                    );
                }
                assert!(!code && !mathematics, "seed {seed}");
                assert_eq!(page.matches("\n# ").count() + 1, 1, "one title");
                assert!(page.starts_with("# ") && page.ends_with('\n'));
            }
        });
    }
}
