//! Lines of a given width, in columns of a terminal.

use crate::expr::TIED;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Columns that a text takes; a Chinese character takes two.
pub(crate) fn columns(text: &str) -> usize {
    text.width()
}

/// Where further lines begin.
#[derive(Clone, Copy)]
pub(super) struct Hang {
    /// A line that begins with "=" or "≈".
    pub relation: usize,
    /// Any other.
    pub other: usize,
}

impl Hang {
    pub(super) fn at(column: usize) -> Hang {
        Hang {
            relation: column,
            other: column,
        }
    }
}

/// Closing marks never begin a line, opening ones never end it.
const CLOSING: &str = "，。；：、！？）”〕》]";
const OPENING: &str = "（“〔《[";

/// What no line break may divide.
struct Unit {
    text: String,
    space_before: bool,
}

/// Longer remarks may be broken.
const SHORT_REMARK: usize = 38;

/// The length of a Chinese remark that begins here, if it is to stay on one line.
fn remark(text: &str) -> Option<usize> {
    let end = text.strip_prefix('〔')?.find('〕')?;
    let length = '〔'.len_utf8() + end + '〕'.len_utf8();
    (columns(&text[..length]) <= SHORT_REMARK).then_some(length)
}

fn units(text: &str) -> Vec<Unit> {
    let mut units: Vec<Unit> = Vec::new();
    let mut space = false;
    let mut last: Option<char> = None;
    // Where a short remark that is under way ends.
    let mut whole = 0;
    for (at, c) in text.char_indices() {
        if let Some(length) = remark(&text[at..]) {
            whole = at + length;
        }
        if c == ' ' {
            space = true;
            last = None;
            continue;
        }
        let wide = |c: char| c.width() == Some(2) || c == '“' || c == '”';
        let breaks = match last {
            None => true,
            Some(before) if before == TIED || c == TIED => false,
            Some(_) if at < whole && c != '〔' => false,
            Some(before) => {
                (wide(before) || wide(c)) && !CLOSING.contains(c) && !OPENING.contains(before)
            }
        };
        match units.last_mut() {
            Some(unit) if !breaks => unit.text.push(c),
            _ => units.push(Unit {
                text: c.into(),
                space_before: space,
            }),
        }
        space = false;
        last = Some(c);
    }
    units
}

/// Breaks a text at spaces, and anywhere between Chinese characters.
pub(super) fn wrap(text: &str, width: usize, first: usize, hang: Hang) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = " ".repeat(first);
    let mut used = first;
    let mut empty = true;
    for unit in units(text) {
        let space = usize::from(unit.space_before && !empty);
        if !empty && used + space + columns(&unit.text) > width {
            let relation = unit.text.starts_with(['=', '≈']);
            let indent = if relation { hang.relation } else { hang.other };
            lines.push(std::mem::replace(&mut line, " ".repeat(indent)));
            used = indent;
            empty = true;
        } else if space == 1 {
            line.push(' ');
            used += 1;
        }
        if used + columns(&unit.text) <= width {
            line.push_str(&unit.text);
            used += columns(&unit.text);
            empty = false;
            continue;
        }
        for c in unit.text.chars() {
            let wide = c.width().unwrap_or(0);
            // Only what is longer than a whole line is cut.
            if used + wide > width && !empty {
                lines.push(std::mem::replace(&mut line, " ".repeat(hang.other)));
                used = hang.other;
            }
            line.push(c);
            used += wide;
            empty = false;
        }
    }
    if !empty || lines.is_empty() {
        lines.push(line);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chinese_breaks_anywhere_but_before_closing_marks() {
        let lines = wrap("查询发问，键回答（很好）。", 10, 0, Hang::at(0));
        assert_eq!(
            lines,
            ["查询发问，", "键回答（很", "好）。"].map(String::from)
        );
        assert!(lines.iter().all(|line| columns(line) <= 10));
    }

    #[test]
    fn a_short_chinese_remark_stays_whole() {
        let lines = wrap("结果 = 1.5 〔计算得1.6〕", 18, 0, Hang::at(2));
        assert_eq!(lines, ["结果 = 1.5", "  〔计算得1.6〕"].map(String::from));
    }

    #[test]
    fn sums_hang_under_their_first_term() {
        let text = "s =\u{a0}1·2 +\u{a0}3·4 +\u{a0}5·6 =\u{a0}44";
        let hang = Hang {
            relation: 2,
            other: 4,
        };
        let lines = wrap(text, 14, 0, hang);
        let plain: Vec<String> = lines.iter().map(|l| l.replace(TIED, " ")).collect();
        assert_eq!(plain, ["s = 1·2 + 3·4", "    + 5·6 = 44"]);
    }

    #[test]
    fn what_is_longer_than_a_line_is_cut() {
        let lines = wrap("aaaaaaaaaaaa bb", 5, 0, Hang::at(1));
        assert!(lines.iter().all(|line| columns(line) <= 5), "{lines:?}");
    }
}
