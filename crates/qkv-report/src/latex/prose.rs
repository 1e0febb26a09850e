//! Text in LaTeX: what is mathematics in it is set as mathematics.

use crate::notation::{subscript_in_text, to_tex};

/// Signs that only occur in formulas.
const SIGNS: &str = "√Σᵀˣ∞πθ≤≥≈→·×−∂Δδε⁰¹²³⁴⁵⁶⁷⁸⁹⁻₀₁₂₃₄₅₆₇₈₉";
/// From here on characters are Chinese, or others that are as wide.
const WIDE: char = '\u{2e80}';

/// Text in which `√d_k`, `W_Q` or `s[i,j]` are formulas.
pub(super) fn mixed(text: &str) -> String {
    let mut out = String::new();
    let mut word = String::new();
    for c in text.chars() {
        if c == ' ' || c == '\u{a0}' || c >= WIDE || "“”".contains(c) {
            push_word(&mut out, &std::mem::take(&mut word));
            out.push_str(&plain(&c.to_string()));
        } else {
            word.push(c);
        }
    }
    push_word(&mut out, &word);
    quoted(&out)
}

/// A word with the punctuation around it, which is no part of a formula.
fn push_word(out: &mut String, word: &str) {
    let mut core = word.trim_end_matches([',', '.', ';', ':', '!', '?', '"']);
    core = core.trim_start_matches('"');
    let open = core.matches('(').count();
    let close = core.matches(')').count();
    if open > close {
        core = core.trim_start_matches('(');
    } else if close > open {
        core = core.trim_end_matches(')');
    }
    // What goes on behind a Chinese character is left as it is.
    let balanced = core.matches('(').count() == core.matches(')').count();
    if !balanced || !is_formula(core) {
        return out.push_str(&plain(word));
    }
    let (before, after) = word.split_once(core).unwrap_or(("", ""));
    out.push_str(&format!(
        "{}${}${}",
        plain(before),
        to_tex(core).trim_end(),
        plain(after)
    ));
}

fn is_formula(word: &str) -> bool {
    if word.starts_with("--") {
        return false;
    }
    let mut low = word.match_indices('_');
    let subscript = low.any(|(at, _)| subscript_in_text(&word[..at], &word[at + 1..]).is_some());
    let letter = word.starts_with(|c: char| c.is_ascii_alphabetic());
    let index = word.ends_with(']') && letter && word.find('[').is_some_and(|at| at <= 3);
    word.chars().any(|c| SIGNS.contains(c)) || subscript || index || word.contains("^(")
}

/// Straight quotation marks as LaTeX writes them.
fn quoted(text: &str) -> String {
    let mut out = String::new();
    let mut open = false;
    for c in text.chars() {
        match c {
            '"' => {
                out.push_str(if open { "''" } else { "``" });
                open = !open;
            }
            c => out.push(c),
        }
    }
    out
}

/// Text that LaTeX leaves as it is, quotation marks aside.
pub(super) fn plain(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\textbackslash{}"),
            '{' | '}' | '$' | '&' | '#' | '%' | '_' => out.extend(['\\', c]),
            '^' => out.push_str("\\textasciicircum{}"),
            '~' => out.push_str("\\textasciitilde{}"),
            '<' => out.push_str("\\textless{}"),
            '>' => out.push_str("\\textgreater{}"),
            '|' => out.push_str("\\textbar{}"),
            // Two in a row would become one long dash, and marks would join.
            '-' | '`' | '\'' => {
                out.push(c);
                out.push_str("{}");
            }
            '\u{a0}' => out.push('~'),
            '√' => out.push_str("$\\surd$"),
            c if SIGNS.contains(c) => {
                out.push_str(&format!("${}$", to_tex(&c.to_string()).trim_end()));
            }
            c => out.push(c),
        }
    }
    out.replace("-{} ", "- ")
}

#[cfg(test)]
mod tests {
    use super::{mixed, plain};

    #[test]
    fn formulas_in_text() {
        for (text, tex) in [
            (
                "divided by √d_k = √2 ≈ 1.4142, which",
                "divided by $\\sqrt{d_{k}}$ = $\\sqrt{2}$ $\\approx$ 1.4142, which",
            ),
            ("(with W_Q).", "(with $W_{Q}$)."),
            ("exp(−∞) = 0:", "$\\exp (-\\infty )$ = 0:"),
            ("a \"=\" b", "a ``='' b"),
            ("除以√d_k，即", "除以$\\sqrt{d_{k}}$，即"),
            ("give --past-k 5%", "give -{}-{}past-{}k 5\\%"),
            ("w[0,1] is [1, 2]", "$w_{0,1}$ is [1, 2]"),
            ("the key eˣ of", "the key $e^{x}$ of"),
            ("my_token", "my\\_token"),
            ("√(6/(行数+列数))", "$\\surd$(6/(行数+列数))"),
        ] {
            assert_eq!(mixed(text), tex);
        }
        assert_eq!(plain("\\input{a}#"), "\\textbackslash{}input\\{a\\}\\#");
    }
}
