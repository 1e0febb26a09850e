//! Text and formulas in HTML.

use crate::entry::Entry;

/// ` data-e="step.0.0.1.0"`
pub(super) fn attribute(name: &str, entry: Option<&Entry>) -> String {
    entry.map_or(String::new(), |entry| {
        let index: Vec<String> = entry.index.iter().map(usize::to_string).collect();
        format!(" {name}=\"{}.{}\"", entry.of, index.join("."))
    })
}

/// Text that HTML leaves as it is.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// Text in which `W_Q`, `d_k` and `Σ_j` have subscripts and `^(…)` a superscript.
pub(super) fn marked(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::new();
    let mut plain = String::new();
    let mut at = 0;
    while at < chars.len() {
        let end = match chars[at] {
            '_' if ends_with_name(&plain) => subscript_end(&chars, at + 1),
            '^' => superscript_end(&chars, at + 1),
            _ => None,
        };
        match (chars[at], end) {
            ('_', Some(end)) => {
                let below: String = chars[at + 1..end].iter().collect();
                out.push_str(&escaped(&std::mem::take(&mut plain)));
                out.push_str(&format!("<sub>{below}</sub>"));
                at = end;
            }
            (_, Some(end)) => {
                let above: String = chars[at + 2..end - 1].iter().collect();
                out.push_str(&escaped(&std::mem::take(&mut plain)));
                out.push_str(&format!("<sup>{}</sup>", escaped(&above)));
                at = end;
            }
            (c, None) => {
                plain.push(c);
                at += 1;
            }
        }
    }
    let out = out + &escaped(&plain);
    out.replace('ᵀ', "<sup>T</sup>")
}

/// Names that take a subscript: a letter, Σ, max.
fn ends_with_name(text: &str) -> bool {
    let start = text.trim_end_matches(|c: char| c.is_ascii_alphanumeric());
    let name = &text[start.len()..];
    name.len() == 1 || name == "max" || text.ends_with('Σ')
}

/// The end of a subscript: one letter, or digits.
fn subscript_end(chars: &[char], start: usize) -> Option<usize> {
    let own = chars[start..].iter();
    let long = own.take_while(|c| c.is_ascii_alphanumeric()).count();
    let digits = chars[start..start + long].iter().all(char::is_ascii_digit);
    (long == 1 || long > 0 && digits).then_some(start + long)
}

/// The end of a superscript in parentheses.
fn superscript_end(chars: &[char], start: usize) -> Option<usize> {
    let inside = chars.get(start..)?.strip_prefix(&['('])?;
    let long = inside.iter().position(|&c| c == ')')?;
    Some(start + long + 2)
}

#[cfg(test)]
mod tests {
    use super::marked;

    #[test]
    fn formulas_and_text() {
        for (text, html) in [
            (
                "q_i·k_j / √d_k",
                "q<sub>i</sub>·k<sub>j</sub> / √d<sub>k</sub>",
            ),
            (
                "Σ_j e[i,j] = max_j",
                "Σ<sub>j</sub> e[i,j] = max<sub>j</sub>",
            ),
            ("p/10000^(2i/D)", "p/10000<sup>2i/D</sup>"),
            ("QKᵀ", "QK<sup>T</sup>"),
            ("p_12", "p<sub>12</sub>"),
            ("x_positioned a_ _b ^", "x_positioned a_ _b ^"),
            ("<script>'\"&", "&lt;script&gt;&#39;&quot;&amp;"),
        ] {
            assert_eq!(marked(text), html);
        }
    }
}
