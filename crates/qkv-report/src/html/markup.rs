//! Text and formulas in HTML.

use crate::entry::Entry;
use crate::notation::subscript_in_text;

/// ` data-e="step.0.0.1.0"`
pub(super) fn attribute(name: &str, entry: Option<&Entry>) -> String {
    entry.map_or(String::new(), |entry| {
        let index: Vec<String> = entry.index.iter().map(usize::to_string).collect();
        format!(" {name}=\"{}.{}\"", entry.of, index.join("."))
    })
}

/// The beginning of a box that scrolls where its table is too wide, with the keyboard too.
pub(super) fn scroll(name: &str) -> String {
    format!("<div class=\"scroll\" role=\"group\" aria-label=\"{name}\" tabindex=\"0\">")
}

/// Text that HTML leaves as it is.
pub(crate) fn escaped(text: &str) -> String {
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
    let mut out = String::new();
    let mut done = 0;
    for (at, c) in text.char_indices() {
        let after = &text[at + c.len_utf8()..];
        let small = match c {
            _ if at < done => None,
            '_' => subscript_in_text(&text[..at], after).map(|end| ("sub", 0..end, end)),
            '^' => in_parentheses(after).map(|end| ("sup", 1..end - 1, end)),
            _ => None,
        };
        if let Some((tag, inside, end)) = small {
            out.push_str(&escaped(&text[done..at]));
            out.push_str(&format!("<{tag}>{}</{tag}>", escaped(&after[inside])));
            done = at + 1 + end;
        }
    }
    out.push_str(&escaped(&text[done..]));
    out.replace('ᵀ', "<sup>T</sup>")
}

/// The length of what stands in parentheses at the beginning, with them.
fn in_parentheses(text: &str) -> Option<usize> {
    let end = text.strip_prefix('(')?.find(')')?;
    Some(end + 2)
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
