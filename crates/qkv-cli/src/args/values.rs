//! Values that are more than a word: each with the text that says what was expected.

use crate::suite::{CASES, Case, FAULTS};
use qkv::position::Scaling;
use qkv::{Causal, Documents, Isa, Window};
use std::num::IntErrorKind;

/// What a value parser gives; the error is a remedy, the argument and the value are put before it.
type Parsed<T> = Result<T, String>;

/// Whole numbers up to here are exact in `f64`; places beyond are refused.
const FARTHEST: i64 = 1 << 53;

/// How weights are drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// Mean 0 and this standard deviation.
    Normal(f64),
    /// Evenly from −a to a.
    Uniform(f64),
    /// Evenly, with a = √(6/(rows + columns)).
    Xavier,
}

/// A list of lengths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lengths(pub Vec<usize>);

/// Names of tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tokens(pub Vec<String>);

/// Words between blanks, or a JSON list of texts. A word in square brackets is a word.
pub fn tokens(text: &str) -> Parsed<Tokens> {
    let inside = text.trim_start().strip_prefix('[').map(str::trim_start);
    let is_list = inside.is_some_and(|inside| inside.starts_with(['"', ']']));
    if !is_list {
        return Ok(Tokens(text.split_whitespace().map(Into::into).collect()));
    }
    serde_json::from_str(text).map(Tokens).map_err(|_| {
        "give a JSON list of texts, each in quotation marks, for example [\"the\", \" cat\"]".into()
    })
}

/// Indices from 0 between commas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Indices(pub Vec<usize>);

/// The text of an array. Because a literal may start with a minus sign, the word after an option
/// is taken as it is: here an option that was meant as the next one is told from an array.
pub fn array(text: &str) -> Parsed<String> {
    if text.is_empty() {
        return Err("it is empty, as a shell variable that is not set: give an array".into());
    }
    let mut chars = text.chars();
    let option = chars.next() == Some('-')
        && chars.next().is_some_and(|c| c == '-' || c.is_alphabetic())
        && !text[1..].to_lowercase().starts_with(['i', 'n']);
    if option {
        return Err("an array is missing before this option".into());
    }
    Ok(text.to_owned())
}

/// Any number; what is not finite is for the engine to judge.
pub fn number(text: &str) -> Parsed<f64> {
    const REMEDY: &str = "give one number, for example 0.5 or 1e-3";
    real(text, REMEDY)
}

/// A number that is what was typed: one beyond the range of 64 bits is none.
fn real(text: &str, remedy: &str) -> Parsed<f64> {
    let text = text.trim();
    let digits = |c: char| c.is_ascii_digit();
    match text.parse::<f64>() {
        Err(_) => Err(remedy.to_owned()),
        Ok(number) if number.is_infinite() && text.contains(digits) => Err(format!(
            "it is too large for a 64-bit number (at most about 1.8e308); {remedy}"
        )),
        Ok(number) if number == 0.0 && is_above_0(text) => Err(format!(
            "it is too small for a 64-bit number (at least about 5e-324); {remedy}"
        )),
        Ok(number) => Ok(number),
    }
}

/// Whether a digit other than 0 stands before the exponent.
fn is_above_0(number: &str) -> bool {
    let mantissa = number.split(['e', 'E']).next().unwrap_or_default();
    mantissa.contains(|c: char| ('1'..='9').contains(&c))
}

/// A whole number from 1.
pub fn count(text: &str) -> Parsed<usize> {
    whole_from(text, 1, "")
}

/// A whole number that is not below `low`; `example` ends the remedy.
fn whole_from(text: &str, low: usize, example: &str) -> Parsed<usize> {
    match text.trim().parse::<usize>() {
        Ok(n) if n >= low => Ok(n),
        Err(error) if *error.kind() == IntErrorKind::PosOverflow => Err(format!(
            "it is too large: give a whole number from {low} to {}{example}",
            usize::MAX
        )),
        _ => Err(format!("give a whole number from {low}{example}")),
    }
}

/// Whether only the size of a whole number can be wrong.
fn is_digits(text: &str) -> bool {
    let text = text.trim();
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// A number of threads; far more than there are cores would only take memory.
pub fn threads(text: &str) -> Parsed<usize> {
    within(text, 1, 1024)
}

/// An instruction set.
pub fn isa(text: &str) -> Parsed<Isa> {
    let found = Isa::ALL.into_iter().find(|isa| isa.name() == text);
    found.ok_or_else(|| "give one of avx512bf16, avx512, avx2, portable".into())
}

/// A case of the suite.
pub fn case(text: &str) -> Parsed<&'static Case> {
    let mut cases = CASES.iter().chain(FAULTS);
    let found = cases.find(|case| case.name == text.trim());
    found.ok_or_else(|| {
        let cases = CASES.iter().chain(FAULTS);
        let names: Vec<&str> = cases.map(|case| case.name).collect();
        format!("give one of {}", names.join(", "))
    })
}

/// Indices from 0 between commas.
pub fn indices(text: &str) -> Parsed<Indices> {
    let one = |item: &str| whole_from(item, 0, ", or several with commas between, for example 0,2");
    text.split(',').map(one).collect::<Parsed<_>>().map(Indices)
}

/// A seed.
pub fn seed(text: &str) -> Parsed<u64> {
    text.trim()
        .parse()
        .map_err(|_| format!("give a whole number from 0 to {}", u64::MAX))
}

/// Decimals that are shown.
pub fn digits(text: &str) -> Parsed<usize> {
    within(text, 0, 17)
}

/// Columns of the text.
pub fn width(text: &str) -> Parsed<usize> {
    within(text, 40, 1000)
}

fn within(text: &str, low: usize, high: usize) -> Parsed<usize> {
    match text.trim().parse() {
        Ok(n) if (low..=high).contains(&n) => Ok(n),
        _ => Err(format!("give a whole number from {low} to {high}")),
    }
}

/// A place of a token, or a number of places.
pub fn offset(text: &str) -> Parsed<i64> {
    match text.trim().parse() {
        Ok(n) if (-FARTHEST..=FARTHEST).contains(&n) => Ok(n),
        _ => Err(format!(
            "give a whole number from -{FARTHEST} to {FARTHEST} (2^53)"
        )),
    }
}

/// An alignment of the causal mask.
pub fn causal(text: &str) -> Parsed<Causal> {
    match text {
        "square" => Ok(Causal::Square),
        "top-left" => Ok(Causal::TopLeft),
        "bottom-right" => Ok(Causal::BottomRight),
        _ => offset(text).map(Causal::Offset).map_err(|remedy| {
            let unsigned = text.strip_prefix('-').unwrap_or(text);
            if !unsigned.is_empty() && unsigned.bytes().all(|b| b.is_ascii_digit()) {
                return remedy; // an offset, and too large
            }
            "name top-left, bottom-right or a whole offset such as 3 or -1, \
             or nothing where there are as many keys as queries"
                .into()
        }),
    }
}

/// Both sides of a window.
pub fn window(text: &str) -> Parsed<Window> {
    let remedy = || {
        "give BACK,FORWARD, each a whole number from 0 or inf for an open side, for example 2,0"
            .to_owned()
    };
    let (back, forward) = text.split_once(',').ok_or_else(remedy)?;
    let side = |side: &str| match side.trim() {
        "inf" => Ok(None),
        side => whole_from(side, 0, ", or inf for an open side")
            .map(Some)
            .map_err(|says| if is_digits(side) { says } else { remedy() }),
    };
    Ok(Window {
        back: side(back)?,
        forward: side(forward)?,
    })
}

/// Whole numbers between commas.
pub fn lengths(text: &str) -> Parsed<Lengths> {
    let one = |item: &str| {
        let remedy = "give whole numbers from 0 with commas between, for example 3,5";
        whole_from(item, 0, "").map_err(|says| if is_digits(item) { says } else { remedy.into() })
    };
    text.split(',').map(one).collect::<Parsed<_>>().map(Lengths)
}

/// Lengths of documents, `N` or `QUERIES:KEYS`.
pub fn documents(text: &str) -> Parsed<Documents> {
    let remedy = || {
        "give the length of each document, for example 2,3, or QUERIES:KEYS where they differ, \
         for example 1:4,1:6"
            .to_owned()
    };
    let length = |text: &str| {
        whole_from(text, 0, "").map_err(|says| if is_digits(text) { says } else { remedy() })
    };
    let (mut queries, mut keys) = (Vec::new(), Vec::new());
    for item in text.split(',') {
        let (q, k) = item.split_once(':').unwrap_or((item, item));
        queries.push(length(q)?);
        keys.push(length(k)?);
    }
    Documents::with_key_lengths(queries, keys).map_err(|_| remedy())
}

/// How weights are drawn.
pub fn init(text: &str) -> Parsed<Init> {
    let remedy = || "give normal:STD, uniform:A or xavier, for example normal:0.02".to_owned();
    let spread = |text: &str| {
        const REMEDY: &str = "the number must be finite and above 0, for example normal:0.02";
        match real(text, REMEDY)? {
            n if n > 0.0 && n.is_finite() => Ok(n),
            _ => Err(REMEDY.to_owned()),
        }
    };
    match text.split_once(':') {
        Some(("normal", std)) => spread(std).map(Init::Normal),
        Some(("uniform", a)) => spread(a).map(Init::Uniform),
        None if text == "xavier" => Ok(Init::Xavier),
        _ => Err(remedy()),
    }
}

/// A change of the rotary frequencies.
pub fn scaling(text: &str) -> Parsed<Scaling> {
    let remedy = || {
        "give linear:FACTOR or llama3:FACTOR,LOW,HIGH,ORIGINAL, for example llama3:8,1,4,8192"
            .to_owned()
    };
    let (kind, numbers) = text.split_once(':').ok_or_else(remedy)?;
    let numbers: Vec<f64> = numbers
        .split(',')
        .map(|n| real(n, &remedy()))
        .collect::<Parsed<_>>()?;
    match (kind, &numbers[..]) {
        ("linear", &[factor]) => Ok(Scaling::Linear { factor }),
        ("llama3", &[factor, low, high, original]) => Ok(Scaling::Llama3 {
            factor,
            low_freq_factor: low,
            high_freq_factor: high,
            original_length: original,
        }),
        _ => Err(remedy()),
    }
}
