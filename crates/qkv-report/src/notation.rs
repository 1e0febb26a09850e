//! Our notation for formulas, `o[i,c] = Σ_j w[i,j]·v[j,c]`, in TeX.
//!
//! `_` and square brackets behind a name are subscripts, `ᵀ`, `²` and `^(…)` superscripts, `√` takes
//! what follows it. Words of two letters and more are words, unless they name a function or are
//! used as one.

/// Functions that TeX knows.
const KNOWN: [&str; 7] = ["exp", "max", "tanh", "ln", "sin", "cos", "log"];
/// Names of more than one letter that are no words.
const NAMES: [&str; 12] = [
    "softmax", "lse", "mask", "mean", "rms", "bias", "slope", "scale", "gain", "eps", "sink", "sum",
];

/// A formula in TeX, to stand between dollar signs.
pub(crate) fn to_tex(formula: &str) -> String {
    let chars: Vec<char> = formula.chars().collect();
    let mut reader = Reader {
        chars: &chars,
        at: 0,
        out: Vec::new(),
        space: false,
        inside: false,
    };
    reader.read();
    let pieces = reader.out.into_iter().map(|piece| match piece {
        Piece::Math(tex) => tex,
        Piece::Words(words) => format!("\\text{{{}}}", escaped(&words)),
    });
    pieces.collect()
}

/// A list of equations one by one, `a = b, c = d`; anything else as it is.
pub(crate) fn equations(formula: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut depth, mut start) = (0_i32, 0);
    for (at, c) in formula.char_indices() {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            ',' if depth == 0 && formula[at..].starts_with(", ") => {
                parts.push(&formula[start..at]);
                start = at + 2;
            }
            _ => {}
        }
    }
    parts.push(&formula[start..]);
    match parts.iter().all(|part| part.contains(" = ")) {
        true => parts,
        false => vec![formula],
    }
}

/// Whether a formula is rather a sentence.
pub(crate) fn is_sentence(formula: &str) -> bool {
    to_tex(formula).contains("\\text{")
}

/// Plain characters for TeX.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\textbackslash{}"),
            '{' | '}' | '$' | '&' | '#' | '%' | '_' => out.extend(['\\', c]),
            '^' => out.push_str("\\textasciicircum{}"),
            '~' => out.push_str("\\textasciitilde{}"),
            '\u{a0}' => out.push('~'),
            c => out.push(c),
        }
    }
    out
}

/// The length of a subscript in running text, where it is one: `W_Q`, `p_12`, `do_i`, `d_model`, and
/// not any word with `_` in it.
pub(crate) fn subscript_in_text(before: &str, after: &str) -> Option<usize> {
    let start = before.trim_end_matches(|c: char| c.is_ascii_alphanumeric());
    let name = &before[start.len()..];
    let named = name.len() == 1
        || name.len() == 2 && name.starts_with('d')
        || name == "max"
        || before.ends_with('Σ');
    let others = after.trim_start_matches(|c: char| c.is_ascii_alphanumeric());
    let below = &after[..after.len() - others.len()];
    let short = below.len() == 1 || below == "model";
    let digits = !below.is_empty() && below.bytes().all(|b| b.is_ascii_digit());
    (named && (short || digits)).then_some(below.len())
}

enum Piece {
    Math(String),
    Words(String),
}

struct Reader<'a> {
    chars: &'a [char],
    at: usize,
    out: Vec<Piece>,
    /// A space that is not yet written.
    space: bool,
    /// Whether a bar | is open.
    inside: bool,
}

impl Reader<'_> {
    fn read(&mut self) {
        while let Some(c) = self.peek() {
            match c {
                ' ' | '\u{a0}' => {
                    self.space = true;
                    self.at += 1;
                }
                c if c.is_ascii_alphabetic() => self.name(),
                c if c.is_ascii_digit() => {
                    let number = self.number();
                    self.math(number);
                }
                '√' => {
                    self.at += 1;
                    let inside = self.operand();
                    self.math(format!("\\sqrt{{{inside}}}"));
                }
                '^' => {
                    self.at += 1;
                    let above = self.operand();
                    self.math(format!("^{{{above}}}"));
                }
                'Σ' => {
                    self.at += 1;
                    let below = self.subscript();
                    self.math(format!("\\sum{below} "));
                }
                c if superscript(c).is_some() => {
                    let above = self.run(superscript);
                    self.math(format!("^{{{above}}}"));
                }
                '|' => {
                    self.at += 1;
                    let bar = if self.inside { "\\rvert " } else { "\\lvert " };
                    self.inside = !self.inside;
                    self.math(bar.into());
                }
                c => {
                    self.at += 1;
                    match sign(c) {
                        Some(tex) if c == 'δ' && self.peek() == Some('[') => {
                            let below = self.bracketed();
                            self.math(format!("{}_{{{below}}}", tex.trim_end()));
                        }
                        Some(tex) => self.math(tex.into()),
                        None => self.word(c.into()),
                    }
                }
            }
        }
    }

    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn math(&mut self, tex: String) {
        if std::mem::take(&mut self.space) {
            match self.out.last_mut() {
                Some(Piece::Words(words)) => words.push(' '),
                Some(Piece::Math(math)) if !math.ends_with(' ') => math.push(' '),
                _ => {}
            }
        }
        match self.out.last_mut() {
            Some(Piece::Math(math)) => math.push_str(&tex),
            _ => self.out.push(Piece::Math(tex)),
        }
    }

    fn word(&mut self, mut word: String) {
        if std::mem::take(&mut self.space) {
            word.insert(0, ' ');
        }
        match self.out.last_mut() {
            Some(Piece::Words(words)) => words.push_str(&word),
            _ => self.out.push(Piece::Words(word)),
        }
    }

    fn take(&mut self, belongs: impl Fn(char) -> bool) -> String {
        let start = self.at;
        while self.peek().is_some_and(&belongs) {
            self.at += 1;
        }
        self.chars[start..self.at].iter().collect()
    }

    fn run(&mut self, of: fn(char) -> Option<&'static str>) -> String {
        let mut out = String::new();
        while let Some(tex) = self.peek().and_then(of) {
            out.push_str(tex);
            self.at += 1;
        }
        out
    }

    fn number(&mut self) -> String {
        let digits = self.take(|c| c.is_ascii_digit());
        let next = self.chars.get(self.at + 1);
        if self.peek() == Some('.') && next.is_some_and(char::is_ascii_digit) {
            self.at += 1;
            return format!("{digits}.{}", self.take(|c| c.is_ascii_digit()));
        }
        digits
    }

    /// A name with all that hangs on it, or a word.
    fn name(&mut self) {
        let name = self.take(|c| c.is_ascii_alphabetic());
        let letters = name.len();
        let numbered = letters == 1 || letters == 2 && name.starts_with('d');
        let digit = self.peek().is_some_and(|c| c.is_ascii_digit());
        let used = matches!(self.peek(), Some('[' | '(' | '_' | '\'')) || numbered && digit;
        let tex = if letters == 1 || name.chars().skip(1).all(|c| c.is_ascii_uppercase()) {
            name
        } else if KNOWN.contains(&name.as_str()) {
            format!("\\{name}")
        } else if used || NAMES.contains(&name.as_str()) {
            // Not \operatorname, which GitHub has refused at times.
            format!("\\mathrm{{{name}}}")
        } else {
            return self.word(name);
        };
        let known = tex.starts_with('\\') && !tex.ends_with('}');
        let primes = self.take(|c| c == '\'');
        let mut below = self.subscript();
        if below.is_empty() && numbered && self.peek().is_some_and(|c| c.is_ascii_digit()) {
            below = format!("_{{{}}}", self.take(|c| c.is_ascii_digit()));
        }
        if below.is_empty() && self.peek() == Some('[') {
            below = format!("_{{{}}}", self.bracketed());
        }
        let space = if known && below.is_empty() { " " } else { "" };
        self.math(format!("{tex}{space}{primes}{below}"));
    }

    fn subscript(&mut self) -> String {
        let low = self.run(subscript);
        if !low.is_empty() {
            return format!("_{{{low}}}");
        }
        if self.peek() != Some('_') {
            return String::new();
        }
        self.at += 1;
        format!("_{{{}}}", self.take(|c| c.is_ascii_alphanumeric()))
    }

    /// What stands between the bracket here and its partner, in TeX.
    fn bracketed(&mut self) -> String {
        let (open, close) = match self.peek() {
            Some('[') => ('[', ']'),
            _ => ('(', ')'),
        };
        let start = self.at + 1;
        let mut depth = 0;
        while let Some(c) = self.peek() {
            self.at += 1;
            depth += i32::from(c == open) - i32::from(c == close);
            if depth == 0 {
                break;
            }
        }
        let end = self.at.saturating_sub(1).max(start);
        let inside: String = self.chars[start.min(end)..end].iter().collect();
        to_tex(&inside)
    }

    /// What a root or a power takes: parentheses, a number, or a name with its subscript.
    fn operand(&mut self) -> String {
        match self.peek() {
            Some('(') => self.bracketed(),
            Some(c) if c.is_ascii_digit() => self.number(),
            Some(c) if c.is_alphabetic() => {
                self.at += 1;
                let name = sign(c).map_or_else(|| c.to_string(), Into::into);
                let below = self.subscript();
                format!("{name}{below}")
            }
            _ => String::new(),
        }
    }
}

/// A sign of the notation in TeX.
fn sign(c: char) -> Option<&'static str> {
    Some(match c {
        '·' => "\\cdot ",
        '×' => "\\times ",
        '−' => "-",
        '≈' => "\\approx ",
        '≤' => "\\le ",
        '≥' => "\\ge ",
        '→' => "\\to ",
        '∞' => "\\infty ",
        'θ' => "\\theta ",
        'π' => "\\pi ",
        'Δ' => "\\Delta ",
        'δ' => "\\delta ",
        'ε' => "\\varepsilon ",
        '∂' => "\\partial ",
        '…' => "\\dots ",
        '%' => "\\%",
        '(' => "(",
        ')' => ")",
        '[' => "[",
        ']' => "]",
        '+' => "+",
        '-' => "-",
        '=' => "=",
        '/' => "/",
        ',' => ",",
        '.' => ".",
        ':' => ":",
        '<' => "<",
        '>' => ">",
        '\'' => "'",
        _ => return None,
    })
}

fn superscript(c: char) -> Option<&'static str> {
    Some(match c {
        'ᵀ' => "\\top ",
        'ˣ' => "x",
        '⁻' => "-",
        '⁰' => "0",
        '¹' => "1",
        '²' => "2",
        '³' => "3",
        '⁴' => "4",
        '⁵' => "5",
        '⁶' => "6",
        '⁷' => "7",
        '⁸' => "8",
        '⁹' => "9",
        _ => return None,
    })
}

fn subscript(c: char) -> Option<&'static str> {
    let at = "₀₁₂₃₄₅₆₇₈₉".chars().position(|low| low == c)?;
    Some(["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"][at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formulas_in_tex() {
        for (formula, tex) in [
            (
                "s[i,j] = q_i·k_j / √d_k",
                "s_{i,j} = q_{i}\\cdot k_{j} / \\sqrt{d_{k}}",
            ),
            (
                "o[i,c] = Σ_j w'[i,j]·v[j,c]",
                "o_{i,c} = \\sum_{j} w'_{i,j}\\cdot v_{j,c}",
            ),
            ("m[i] = max_j s[i,j]", "m_{i} = \\max_{j} s_{i,j}"),
            (
                "softmax(QKᵀ/√d_k + mask)·V",
                "\\mathrm{softmax}(QK^{\\top }/\\sqrt{d_{k}} + \\mathrm{mask})\\cdot V",
            ),
            ("sin(p/10000^(2i/D))", "\\sin (p/10000^{2i/D})"),
            (
                "q[0,1] = x0·W_Q column 1",
                "q_{0,1} = x_{0}\\cdot W_{Q}\\text{ column }1",
            ),
            ("x0·W_Q第1列", "x_{0}\\cdot W_{Q}\\text{第}1\\text{列}"),
            ("Z = [O₀, O₁, …]", "Z = [O_{0}, O_{1}, \\dots ]"),
            (
                "x / √(mean(x²) + eps)",
                "x / \\sqrt{\\mathrm{mean}(x^{2}) + \\mathrm{eps}}",
            ),
            ("Σ w[0,·]", "\\sum w_{0,\\cdot }"),
            (
                "do0·o0 = δ[0]",
                "\\mathrm{do}_{0}\\cdot o_{0} = \\delta_{0}",
            ),
            (
                "ds[0,1]·(dp[0,1] − δ[i])",
                "\\mathrm{ds}_{0,1}\\cdot (\\mathrm{dp}_{0,1} - \\delta_{i})",
            ),
            (
                "b becomes −∞ at 5%",
                "b\\text{ becomes }-\\infty \\text{ at }5\\%",
            ),
            ("|p_i − j|", "\\lvert p_{i} - j\\rvert "),
            ("cos θ", "\\cos \\theta "),
            ("3.1×10⁻⁴", "3.1\\times 10^{-4}"),
        ] {
            assert_eq!(to_tex(formula), tex);
        }
    }

    #[test]
    fn subscripts_in_text() {
        for (before, after, length) in [
            ("W", "Q is", Some(1)),
            ("of Σ", "j", Some(1)),
            ("√d", "model", Some(5)),
            ("do", "i·o_i", Some(1)),
            ("p", "12 =", Some(2)),
            ("x", "positioned", None),
            ("token", "a", None),
            ("a", "", None),
        ] {
            assert_eq!(subscript_in_text(before, after), length, "{before}_{after}");
        }
    }

    #[test]
    fn lists_of_equations() {
        assert_eq!(
            equations("a = max(b, c), d = e"),
            ["a = max(b, c)", "d = e"]
        );
        assert_eq!(equations("s stays, and is kept"), ["s stays, and is kept"]);
    }
}
