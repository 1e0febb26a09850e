//! Values that are more than a word: each with the text that says what was expected.

use qkv::position::Scaling;
use qkv::{Causal, Documents, Window};

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
    serde_json::from_str(text).map(Tokens).map_err(|error| {
        format!("a JSON list of texts is needed, for example [\"the\", \" cat\"] ({error})")
    })
}

/// The text of an array. Because a literal may start with a minus sign, the word after an option
/// is taken as it is: here an option that was meant as the next one is told from an array.
pub fn array(text: &str) -> Parsed<String> {
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
    let remedy = || "give one number, for example 0.5 or 1e-3".to_owned();
    text.trim().parse().map_err(|_| remedy())
}

/// A whole number from 0.
pub fn whole(text: &str) -> Parsed<usize> {
    text.trim()
        .parse()
        .map_err(|_| "give a whole number from 0".into())
}

/// A whole number from 1.
pub fn count(text: &str) -> Parsed<usize> {
    match text.trim().parse() {
        Ok(n) if n > 0 => Ok(n),
        _ => Err("give a whole number from 1".into()),
    }
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
    within(text, 20, 1000)
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
        _ => Err("give a whole number from -2^53 to 2^53".into()),
    }
}

/// An alignment of the causal mask.
pub fn causal(text: &str) -> Parsed<Causal> {
    match text {
        "square" => Ok(Causal::Square),
        "top-left" => Ok(Causal::TopLeft),
        "bottom-right" => Ok(Causal::BottomRight),
        _ => offset(text).map(Causal::Offset).map_err(|_| {
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
        side => side.parse().map(Some).map_err(|_| remedy()),
    };
    Ok(Window {
        back: side(back)?,
        forward: side(forward)?,
    })
}

/// Whole numbers between commas.
pub fn lengths(text: &str) -> Parsed<Lengths> {
    let one = |item: &str| {
        item.trim().parse().map_err(|_| {
            "give whole numbers from 0 with commas between, for example 3,5".to_owned()
        })
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
    let length = |text: &str| text.trim().parse::<usize>().map_err(|_| remedy());
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
    let spread = |text: &str| match text.trim().parse() {
        Ok(n) if n > 0.0 && f64::is_finite(n) => Ok(n),
        _ => Err("the number must be finite and above 0, for example normal:0.02".to_owned()),
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
        .map(|n| n.trim().parse().map_err(|_| remedy()))
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
