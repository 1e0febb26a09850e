//! Tokens as names of rows and columns.

use crate::text::columns;
use unicode_width::UnicodeWidthChar;

/// Columns of the longest label.
const WIDEST: usize = 12;

/// A token as a label: nothing in it moves the cursor, hides, or breaks a line, and it is short.
///
/// A blank is "␣", other blanks and control characters are escaped as in Rust, a mark that combines
/// with the character before it stands on "◌", and what is wider than 12 columns ends in "…".
pub(crate) fn label(token: &str) -> String {
    let mut out = String::new();
    for c in token.chars() {
        match c {
            ' ' => out.push('␣'),
            '\n' | '\r' | '\t' => out.extend(c.escape_default()),
            _ if c.is_control() || c.is_whitespace() || is_invisible(c) => {
                out.extend(c.escape_unicode());
            }
            _ => {
                if out.is_empty() && c.width() == Some(0) {
                    out.push('◌');
                }
                out.push(c);
            }
        }
    }
    if out.is_empty() {
        return "\"\"".into();
    }
    if columns(&out) <= WIDEST {
        return out;
    }
    let mut short = String::new();
    for c in out.chars() {
        short.push(c);
        if columns(&short) >= WIDEST {
            short.pop();
            break;
        }
    }
    short.truncate(short.trim_end_matches('\u{200d}').len());
    short.push('…');
    short
}

/// Characters that show nothing, or turn the direction of what follows.
fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{180e}' | '\u{200b}'
        | '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
        | '\u{feff}' | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::label;
    use crate::text::columns;

    #[test]
    fn a_label_is_safe_and_short() {
        for (token, shown) in [
            ("the", "the"),
            (" the", "␣the"),
            ("", "\"\""),
            ("a\nb\t", "a\\nb\\t"),
            ("\x1b[31m", "\\u{1b}[31m"),
            ("\u{202e}abc", "\\u{202e}abc"),
            ("a\u{a0}b", "a\\u{a0}b"),
            ("\u{301}", "◌\u{301}"),
            ("e\u{301}", "e\u{301}"),
            ("猫", "猫"),
            ("internationalisation", "internation…"),
            ("注意力机制很有用", "注意力机制…"),
            ("twelve chars", "twelve␣chars"),
        ] {
            assert_eq!(label(token), shown, "{token:?}");
            assert!(columns(shown) <= 12, "{shown}");
        }
        let family = "\u{1f468}\u{200d}\u{1f469}\u{200d}\u{1f467}";
        assert!(columns(&label(&family.repeat(9))) <= 12);
        let cut = label(&format!("0123456789{}", "e\u{301}".repeat(5)));
        assert_eq!(cut, "0123456789e\u{301}…");
    }
}
