//! Every line of the text is redone from the digits that it shows, as a reader would.
#![allow(clippy::unwrap_used, clippy::panic)]

#[allow(dead_code)]
mod common;

use common::numbers::printed;
use common::{settings, with_gradient, with_problem};
use qkv_report::{Lang, Settings, Subject, text};

/// A pencil: + − · / √ ² exp tanh ln sin cos max | | ( ) and [left out: value].
struct Pencil<'a> {
    rest: &'a str,
    digits: usize,
}

impl Pencil<'_> {
    fn eat(&mut self, what: &str) -> bool {
        let trimmed = self.rest.trim_start();
        match trimmed.strip_prefix(what) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn sum(&mut self) -> Option<f64> {
        let mut total = self.product()?;
        loop {
            if self.rest.starts_with(" +") {
                self.eat("+");
                total += self.product()?;
            } else if self.rest.starts_with(" −") {
                self.eat("−");
                total -= self.product()?;
            } else {
                return Some(total);
            }
        }
    }

    fn product(&mut self) -> Option<f64> {
        let mut total = self.factor()?;
        loop {
            if self.eat("·") {
                total *= self.factor()?;
            } else if self.eat("/") {
                total /= self.factor()?;
            } else {
                return Some(total);
            }
        }
    }

    fn factor(&mut self) -> Option<f64> {
        let value = self.simple()?;
        if self.eat("^(") {
            let power = self.sum()?;
            return self.eat(")").then(|| value.powf(power));
        }
        Some(if self.eat("²") { value * value } else { value })
    }

    fn simple(&mut self) -> Option<f64> {
        type Call = (&'static str, fn(f64) -> f64);
        let calls: [Call; 5] = [
            ("exp(", f64::exp),
            ("tanh(", f64::tanh),
            ("ln(", f64::ln),
            ("sin(", f64::sin),
            ("cos(", f64::cos),
        ];
        for (name, function) in calls {
            if self.eat(name) {
                let value = function(self.sum()?);
                return self.eat(")").then_some(value);
            }
        }
        if self.eat("√") {
            return Some(self.simple()?.sqrt());
        }
        if self.eat("|") {
            let value = self.sum()?.abs();
            return self.eat("|").then_some(value);
        }
        if self.eat("max(") {
            let mut largest = self.sum()?;
            while self.eat(",") {
                largest = largest.max(self.sum()?);
            }
            return self.eat(")").then_some(largest);
        }
        if self.eat("(") {
            let value = self.sum()?;
            return self.eat(")").then_some(value);
        }
        if self.eat("[") {
            let (inside, rest) = self.rest.split_once(']')?;
            self.rest = rest;
            let value = inside.rsplit([':', '：']).next()?.trim();
            return Some(printed(value, self.digits)?.0);
        }
        let text = self.rest.trim_start();
        let is_number = |c: char| c.is_ascii_digit() || ".×∞Na".contains(c);
        let mut end = 0;
        let mut power = false;
        for c in text.chars() {
            power |= c == '×';
            let raised = power && "⁰¹²³⁴⁵⁶⁷⁸⁹⁻".contains(c);
            if !(is_number(c) || raised || end == 0 && c == '−') {
                break;
            }
            end += c.len_utf8();
        }
        let (number, rest) = text.split_at(end);
        self.rest = rest;
        Some(printed(number, self.digits)?.0)
    }
}

fn redo(formula: &str, digits: usize) -> Option<f64> {
    let mut pencil = Pencil {
        rest: formula,
        digits,
    };
    let value = pencil.sum()?;
    pencil.rest.is_empty().then_some(value)
}

/// Splits at " = " and " ≈ "; each piece with whether "=" stands before it.
fn pieces(line: &str) -> Vec<(bool, &str)> {
    let mut pieces = Vec::new();
    let (mut rest, mut equal) = (line, true);
    loop {
        let next = [(" = ", true), (" ≈ ", false)]
            .into_iter()
            .filter_map(|(sign, equal)| Some((rest.find(sign)?, sign.len(), equal)))
            .min();
        match next {
            Some((at, length, next_equal)) => {
                pieces.push((equal, &rest[..at]));
                rest = &rest[at + length..];
                equal = next_equal;
            }
            None => {
                pieces.push((equal, rest));
                return pieces;
            }
        }
    }
}

#[derive(Default)]
struct Count {
    lines: usize,
    notes: usize,
}

/// Redoes one line of a text, if it is a calculation.
fn redo_line(line: &str, digits: usize, count: &mut Count) {
    let (line, note) = match line
        .find(" [shown digits")
        .or(line.find(" [the shown digits"))
    {
        Some(at) => (&line[..at], Some(&line[at..])),
        None => match line.find(" 〔按") {
            Some(at) => (&line[..at], Some(&line[at..])),
            None => (line, None),
        },
    };
    let pieces = pieces(line.trim());
    let [(_, label), formulas @ .., (_, value)] = &pieces[..] else {
        assert!(note.is_none(), "{line}");
        return;
    };
    let named = [
        "cos", "sin", "mean", "rms", "Σ", "lse", "sink", "f of", "turns", "ramp", "第",
    ];
    let is_label = label.contains('[')
        || label.starts_with(['q', 'd', 'L', '('])
        || named.iter().any(|name| label.starts_with(name));
    if !is_label || printed(value, digits).is_none() {
        assert!(note.is_none(), "{line}");
        return;
    }
    let words = |formula: &str| formula.contains("column") || formula.contains('列');
    let formulas: Vec<_> = formulas.iter().filter(|(_, f)| !words(f)).collect();
    count.lines += 1;
    count.notes += usize::from(note.is_some());
    let mut links = Vec::new();
    for pair in formulas.windows(2) {
        let [(_, before), (equal, next)] = pair else {
            continue;
        };
        if *equal {
            let [a, b] = [before, next].map(|formula| pencil(formula, digits));
            let error = (a - b).abs();
            assert!(
                a == b || a.is_nan() && b.is_nan() || error <= 1e-13 * (a.abs() + b.abs()),
                "{line}: {before} is not {next}"
            );
        }
        links.extend(number_of(before, next).map(|(formula, number)| (formula, *equal, number)));
    }
    if let Some((_, last)) = formulas.last() {
        links.push((*last, pieces[pieces.len() - 1].0, *value));
    }
    let mut all_agree = true;
    for (formula, equal, number) in links {
        all_agree &= agrees(formula, equal, number, digits, (line, note));
    }
    assert!(
        note.is_none() || !all_agree,
        "{line}: has a note but agrees"
    );
}

fn pencil(formula: &str, digits: usize) -> f64 {
    redo(formula, digits).unwrap_or_else(|| panic!("cannot redo {formula:?}"))
}

/// What is a number in the second formula where the first has something to work out.
fn number_of<'a>(before: &'a str, next: &'a str) -> Option<(&'a str, &'a str)> {
    let ends: [(&str, &str); 2] = [("exp(", ")"), ("", "")];
    for (start, end) in ends {
        let inside = |text: &'a str| text.strip_prefix(start)?.strip_suffix(end);
        let (Some(a), Some(b)) = (inside(before), inside(next)) else {
            continue;
        };
        if printed(b, 4).is_some() {
            return Some((a, b));
        }
    }
    let cut = |sign| Some((before.split_once(sign)?, next.split_once(sign)?));
    for sign in ["/", " + "] {
        if let Some(((a, b), (c, d))) = cut(sign)
            && a == c
            && printed(d, 4).is_some()
        {
            return Some((b, d));
        }
    }
    // x + cos(2) ≈ x − 0.4161
    if next.contains(" − ") && before.contains(" + ") {
        return None;
    }
    panic!("{next:?} does not follow from {before:?}");
}

/// Whether a formula, redone from its digits, gives the number that stands behind it. If not, there
/// must be a note that says what it gives.
fn agrees(
    formula: &str,
    equal: bool,
    value: &str,
    digits: usize,
    (line, note): (&str, Option<&str>),
) -> bool {
    let redone = pencil(formula, digits);
    let Some((value, half)) = printed(value, digits) else {
        panic!("{line}: {value} is no number");
    };
    if !redone.is_finite() || !value.is_finite() {
        assert!(
            redone.is_nan() == value.is_nan() || note.is_none(),
            "{line}"
        );
        return true;
    }
    let error = (redone - value).abs();
    if digits == 8 {
        // A note excuses the last digit, not a wrong formula.
        assert!(
            error < 1e-5 * (1.0 + value.abs()),
            "{line}: redone {redone}"
        );
    }
    // Seen from a number that is exactly half way, either neighbour is right.
    let slack = 1e-9 * half + 1e-12 * value.abs();
    if error <= half + slack {
        assert!(!equal || error < 1e-9, "{line}: not equal, {redone}");
        return error < half - slack || note.is_none();
    }
    let note = note.unwrap_or_else(|| panic!("{line}: redone {redone}, no note"));
    assert!(!equal, "{line}: not equal, {redone}");
    // What the note says comes from this formula.
    let numbers = note.split([' ', '\u{a0}', ':', '：', ']', '〕', '、', '得']);
    let said = numbers.filter_map(|word| printed(word, digits));
    let mut errors = said.map(|(said, own)| (said - redone).abs() - half.max(own) - slack);
    assert!(
        errors.any(|error| error <= 0.0),
        "{line}: the note does not say {redone}"
    );
    false
}

#[test]
fn every_line_can_be_redone_or_says_why_not() {
    let mut count = Count::default();
    for seed in 0..220 {
        with_problem(seed, |problem| redo_text(&problem.subject, &mut count));
    }
    assert!(count.lines > 50_000, "{} lines", count.lines);
    assert!(count.notes > 1_000, "{} notes", count.notes);
}

#[test]
fn every_line_of_the_gradient_too() {
    let mut count = Count::default();
    for seed in 0..100 {
        with_problem(seed, |problem| {
            with_gradient(problem, seed, |subject| redo_text(subject, &mut count));
        });
    }
    assert!(count.lines > 80_000, "{} lines", count.lines);
    assert!(count.notes > 2_000, "{} notes", count.notes);
}

fn redo_text(subject: &Subject<'_>, count: &mut Count) {
    for (lang, digits) in [(Lang::En, 4), (Lang::Zh, 4), (Lang::En, 2), (Lang::En, 8)] {
        let settings = Settings {
            digits,
            ..settings(lang, 100_000)
        };
        for line in text(subject, &settings).lines() {
            redo_line(line, shown_digits(line, digits), count);
        }
    }
}

/// The losses of a finite difference show more decimals.
fn shown_digits(line: &str, digits: usize) -> usize {
    let line = line.trim_start();
    match line.starts_with("L(") {
        true => digits + 6.min(12 - digits),
        false => digits,
    }
}

#[test]
fn the_pencil_itself() {
    assert_eq!(redo("1·0.5 + 0.5·(−0.2)", 4), Some(0.4));
    assert_eq!(redo("exp(0 − 0)/(1 + 1)", 4), Some(0.5));
    assert_eq!(redo("[… 58 more terms …: 1.5] − 3×10⁻¹", 4), Some(1.2));
    assert_eq!(redo("max(−1, −∞, |−2|)", 4), Some(2.0));
    assert_eq!(redo("(3² + (−1)²)/2", 4), Some(5.0));
}
