//! How sentences are written, and that they fit the numbers beside them.
#![allow(clippy::unwrap_used, clippy::panic)]

#[allow(dead_code)]
mod common;

use common::{settings, with_gradient, with_problem};
use qkv_report::{Lang, text};

fn is_chinese(c: char) -> bool {
    ('\u{4e00}'..='\u{9fff}').contains(&c)
}

/// A space between Chinese and Latin, outside tables.
fn spaced(line: &str) -> bool {
    let chars: Vec<char> = line.trim().chars().collect();
    let table = chars.windows(2).any(|two| two == [' ', ' ']);
    let latin = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '−';
    let apart = |at: &[char]| {
        at[1] == ' ' && (is_chinese(at[0]) && latin(at[2]) || latin(at[0]) && is_chinese(at[2]))
    };
    !table && chars.windows(3).any(apart)
}

#[test]
fn chinese_has_one_word_for_a_thing_and_no_spaces_around_latin() {
    assert!(spaced("种子 7") && spaced("7 个") && !spaced("种子7个（W_O）  1 个"));
    for seed in 0..80 {
        with_problem(seed, |problem| {
            with_gradient(problem, seed, |subject| {
                let text = text(subject, &settings(Lang::Zh, 100_000));
                for line in text.lines() {
                    assert!(!spaced(line), "{line}");
                    for other in ["分数", "汇点", "丢弃", "发问，与"] {
                        assert!(!line.contains(other), "{other} in {line}");
                    }
                }
            });
        });
    }
}
