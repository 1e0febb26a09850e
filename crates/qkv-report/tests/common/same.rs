//! What holds for the text of every run: lines fit, and languages say the same.

use super::settings;
use qkv_report::{Lang, Settings, Subject, text};
use unicode_width::UnicodeWidthStr;

pub const BOTH: [Lang; 2] = [Lang::En, Lang::Zh];

/// No line is wider than asked, with and without colours.
pub fn line_widths(subject: &Subject<'_>, widths: &[usize], lang: Lang) {
    for &width in widths {
        for color in [false, true] {
            let settings = Settings {
                color,
                ..settings(lang, width)
            };
            for line in text(subject, &settings).lines() {
                let plain = without_colours(line);
                assert!(
                    plain.width() <= width,
                    "{} > {width}: {line}",
                    plain.width()
                );
                assert!(!plain.ends_with(' '), "trailing space: {line:?}");
            }
        }
    }
}

fn without_colours(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some(at) = rest.find('\x1b') {
        out.push_str(&rest[..at]);
        let end = rest[at..].find('m').unwrap();
        rest = &rest[at + end + 1..];
    }
    out + rest
}

/// Line by line the two languages have the same calculations and the same notes.
pub fn same_lines(subject: &Subject<'_>) {
    let [english, chinese] = BOTH.map(|lang| text(subject, &settings(lang, 1_000_000)));
    let (english, chinese): (Vec<_>, Vec<_>) =
        (english.lines().collect(), chinese.lines().collect());
    assert_eq!(english.len(), chinese.len());
    for (english, chinese) in english.iter().zip(&chinese) {
        assert_eq!(
            english.is_empty(),
            chinese.is_empty(),
            "{english}\n{chinese}"
        );
        let noted = english.contains("shown digits give");
        assert_eq!(
            noted,
            chinese.contains("按显示的数字"),
            "{english}\n{chinese}"
        );
        if !english.starts_with("  ") {
            continue;
        }
        for sign in ["≈", "·", "√", "exp("] {
            let count = |line: &str| line.matches(sign).count();
            assert_eq!(count(english), count(chinese), "{english}\n{chinese}");
        }
    }
}
