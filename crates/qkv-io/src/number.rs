//! The one place that reads numbers typed as text, and gathers them into an array.

use std::borrow::Cow;

use crate::array::{Array, Values};
use crate::fault::TextFault;

/// One value as typed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Typed {
    /// A number and its decimals.
    Number(f64, i32),
    /// A truth value.
    Truth(bool),
}

/// Reads one value: a decimal number, nan, inf, true or false.
pub(crate) fn parse(token: &str) -> Result<Typed, TextFault> {
    if token.is_empty() {
        return Err(TextFault::MissingValue);
    }
    // The mathematical minus sign means what the hyphen does.
    let ascii = if token.is_ascii() {
        Cow::Borrowed(token)
    } else {
        token.replace('\u{2212}', "-").into()
    };
    if let Some(typed) = word(&ascii) {
        return Ok(typed);
    }
    let refused = || TextFault::NotANumber {
        found: token.to_owned(),
        remedy: remedy(token),
    };
    let decimals = decimals(&ascii).ok_or_else(refused)?;
    let value: f64 = ascii.parse().map_err(|_| refused())?;
    if value.is_infinite() {
        return Err(TextFault::Overflow {
            found: token.to_owned(),
        });
    }
    Ok(Typed::Number(value, decimals))
}

/// The values that are words.
fn word(token: &str) -> Option<Typed> {
    let unsigned = token.strip_prefix(['+', '-']).unwrap_or(token);
    if !unsigned.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return None;
    }
    let is = |word: &str| unsigned.eq_ignore_ascii_case(word);
    if is("nan") {
        Some(Typed::Number(f64::NAN, i32::MAX))
    } else if is("inf") || is("infinity") {
        let sign = if token.starts_with('-') { -1.0 } else { 1.0 };
        Some(Typed::Number(sign * f64::INFINITY, i32::MAX))
    } else if unsigned.len() == token.len() && (is("true") || is("false")) {
        Some(Typed::Truth(is("true")))
    } else {
        None
    }
}

/// Whether a token is a value, or so near to one that it was meant as one.
pub(crate) fn looks_like_number(token: &str) -> bool {
    let numeric = |c: char| c.is_ascii_digit() || "+-.\u{2212}eE_/%".contains(c);
    parse(token).is_ok()
        || matches!(parse(token), Err(TextFault::Overflow { .. }))
        || (token.chars().all(numeric) && token.contains(|c: char| c.is_ascii_digit()))
}

/// Decimals of a number, or `None` if the text is no decimal number.
fn decimals(text: &str) -> Option<i32> {
    let body = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = match body.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => {
            let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
            if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
                return None;
            }
            let magnitude = digits.parse::<i64>().unwrap_or(i64::from(i32::MAX));
            (
                mantissa,
                if exponent.starts_with('-') {
                    -magnitude
                } else {
                    magnitude
                },
            )
        }
        None => (body, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || whole.len() + fraction.len() == 0 {
        return None;
    }
    let places = i64::try_from(fraction.len())
        .unwrap_or(i64::MAX)
        .saturating_sub(exponent);
    // i32::MAX itself means "not finite".
    Some(places.clamp(i64::from(i32::MIN), i64::from(i32::MAX) - 1) as i32)
}

/// What was probably meant.
fn remedy(token: &str) -> &'static str {
    let lower = token.to_ascii_lowercase();
    let of = |allowed: &str| {
        token.contains(|c: char| c.is_ascii_digit())
            && token
                .chars()
                .all(|c| c.is_ascii_digit() || allowed.contains(c))
    };
    let fraction = token
        .split_once('/')
        .is_some_and(|(over, under)| decimals(over).is_some() && decimals(under).is_some());
    if fraction {
        "write fractions as decimals, such as 0.3333333333333333 for 1/3"
    } else if of("+-.eE_") && token.contains('_') {
        "write digits without underscores"
    } else if of("+-.eE%") && token.ends_with('%') {
        "write percentages as decimals, such as 0.25 for 25%"
    } else if of("+-.eE\u{2013}\u{2014}") && token.contains(['\u{2013}', '\u{2014}']) {
        "that is a dash; type the minus sign -"
    } else if of("+-.,'") && token.contains([',', '\'']) {
        "use a point for decimals, and no separators of thousands"
    } else if lower.starts_with("0x") || lower.starts_with("-0x") {
        "write numbers in decimal"
    } else if printed(token).is_some() {
        "leave out array( and ), keeping the brackets inside"
    } else if of("+-*/^√().eE\u{2212}") && token.contains(['*', '^', '√', '(', ')', '/']) {
        "write the result of the calculation as a decimal number"
    } else if token.contains("...") || token.contains('…') {
        "this was abbreviated when printed; give all the values"
    } else if of("+-.eE\u{2212}") && token.matches('.').count() > 1 {
        "a number has one decimal point; put a blank or a comma between two numbers"
    } else if ["null", "none", "na", "n/a", "nil"].contains(&lower.as_str()) {
        "write nan for an unknown value, -inf for a dropped one"
    } else if token
        .chars()
        .any(|c| ('\u{FF10}'..='\u{FF19}').contains(&c))
    {
        "type ordinary digits, not full-width ones"
    } else if of("+-.eEijIJ") && lower.ends_with(['i', 'j']) {
        "complex numbers are not read; give real ones"
    } else {
        "write a decimal number such as 0.5 or 1e-3, or nan, inf, -inf, true, false"
    }
}

/// How an array printed by Python begins, where a text does: `array(`.
pub(crate) fn printed(text: &str) -> Option<&str> {
    let (start, rest) = text.split_at(text.find('(')? + 1);
    let name = start.trim_end_matches('(').rsplit('.').next()?;
    let bracket = rest.trim_start();
    (["array", "tensor", "Array", "Tensor", "Parameter", "matrix"].contains(&name)
        && (bracket.is_empty() || bracket.starts_with(['[', '('])))
    .then_some(start)
}

/// Values gathered one by one: all numbers or all truth values.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    numbers: Vec<f64>,
    decimals: Vec<i32>,
    truths: Vec<bool>,
}

impl Gathered {
    /// Reads and adds one value.
    pub(crate) fn push(&mut self, token: &str) -> Result<(), TextFault> {
        let mixed = match parse(token)? {
            Typed::Number(value, decimals) => {
                let room = self.numbers.try_reserve(1);
                room.and(self.decimals.try_reserve(1))
                    .map_err(|_| TextFault::Memory)?;
                self.numbers.push(value);
                self.decimals.push(decimals);
                !self.truths.is_empty()
            }
            Typed::Truth(truth) => {
                self.truths.try_reserve(1).map_err(|_| TextFault::Memory)?;
                self.truths.push(truth);
                !self.numbers.is_empty()
            }
        };
        if mixed {
            Err(TextFault::MixedBool {
                found: token.to_owned(),
            })
        } else {
            Ok(())
        }
    }

    /// How many values there are.
    pub(crate) fn len(&self) -> usize {
        self.numbers.len() + self.truths.len()
    }

    /// The array of that shape.
    pub(crate) fn into_array(self, shape: Vec<usize>) -> Array {
        if self.truths.is_empty() {
            Array {
                shape,
                values: Values::F64(self.numbers),
                decimals: Some(self.decimals),
            }
        } else {
            Array {
                shape,
                values: Values::Bool(self.truths),
                decimals: None,
            }
        }
    }
}
