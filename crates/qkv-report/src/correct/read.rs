//! What stands in a filled-in sheet.

use crate::Lang;
use serde_json::Value;
use std::fmt;

/// The problem of a sheet, and its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sheet {
    /// The words after `qkv` that make the problem.
    pub command: Vec<String>,
    /// What each blank asks for.
    pub blanks: Vec<String>,
    /// The queries that are asked for, if not all.
    pub rows: Option<Vec<usize>>,
    /// Decimals that are asked for.
    pub digits: usize,
    /// The language that it is written in.
    pub lang: Lang,
    text: String,
}

/// Why a sheet cannot be corrected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadSheet {
    /// There is no line that tells the problem.
    NoData,
    /// That line is damaged.
    Damaged(String),
    /// It is of a version that is not known.
    Version(String),
    /// Its blanks are not those of its problem.
    Other,
    /// A blank is there twice.
    Twice(usize),
    /// None of the blanks is there.
    NoBlanks,
}

impl fmt::Display for BadSheet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadSheet::NoData => f.write_str(
                "this is no sheet of qkv explain --exercise, or its last line, {\"qkv\":\"sheet\", …}, \
                 is gone; put that line back from the sheet as it was written",
            ),
            BadSheet::Damaged(what) => write!(
                f,
                "the line {{\"qkv\":\"sheet\", …}} is damaged ({what}); put it back from the sheet \
                 as it was written"
            ),
            BadSheet::Version(version) => write!(
                f,
                "the sheet is of version {version}, of which nothing is known here; take the qkv \
                 that wrote it, or a newer one"
            ),
            BadSheet::Other => f.write_str(
                "the blanks in the line {\"qkv\":\"sheet\", …} are not those of its problem; put it \
                 back from the sheet as it was written",
            ),
            BadSheet::Twice(blank) => write!(
                f,
                "blank ({blank}) is there twice with different results; leave one of them"
            ),
            BadSheet::NoBlanks => f.write_str(
                "none of the sheet's blanks is there, as (1) … = …; fill in the sheet as text or \
                 Markdown and leave what stands before each =",
            ),
        }
    }
}

impl std::error::Error for BadSheet {}

/// What was written into a blank.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Typed {
    /// After the last equals sign.
    pub text: String,
    /// The number, and half a unit of its last decimal.
    pub number: Option<(f64, f64)>,
    pub shape: Option<Vec<usize>>,
}

impl Sheet {
    /// Finds the problem in a sheet.
    ///
    /// # Errors
    /// If the line with it is missing or damaged.
    pub fn read(text: &str) -> Result<Sheet, BadSheet> {
        let line = text.lines().find(|line| line.contains("\"qkv\":\"sheet\""));
        let line = line.ok_or(BadSheet::NoData)?;
        let start = line.find('{').ok_or(BadSheet::NoData)?;
        let end = line.rfind('}').map_or(line.len(), |end| end + 1);
        let data: Value = serde_json::from_str(line.get(start..end).unwrap_or_default())
            .map_err(|error| BadSheet::Damaged(format!("character {}", error.column())))?;
        let missing = |name: &str| BadSheet::Damaged(format!("\"{name}\" is missing or wrong"));
        match data["version"].as_u64() {
            Some(1) => {}
            _ => return Err(BadSheet::Version(data["version"].to_string())),
        }
        let strings = |name: &str| -> Option<Vec<String>> {
            let list = data[name].as_array()?.iter();
            list.map(|word| Some(word.as_str()?.to_owned())).collect()
        };
        let rows = match &data["rows"] {
            Value::Null => None,
            Value::Array(rows) => {
                let rows = rows.iter().map(|row| usize::try_from(row.as_u64()?).ok());
                Some(rows.collect::<Option<_>>().ok_or_else(|| missing("rows"))?)
            }
            _ => return Err(missing("rows")),
        };
        const MOST_DIGITS: u64 = 17;
        let digits = data["digits"]
            .as_u64()
            .filter(|digits| *digits <= MOST_DIGITS);
        Ok(Sheet {
            command: strings("command").ok_or_else(|| missing("command"))?,
            blanks: strings("blanks").ok_or_else(|| missing("blanks"))?,
            rows,
            digits: digits.ok_or_else(|| missing("digits"))? as usize,
            lang: match data["lang"].as_str() {
                Some("en") => Lang::En,
                Some("zh") => Lang::Zh,
                _ => return Err(missing("lang")),
            },
            text: text.to_owned(),
        })
    }

    /// What stands in each blank; these labels stand before them.
    pub(crate) fn answers(&self, labels: &[&str]) -> Result<Vec<Option<Typed>>, BadSheet> {
        let mut answers = vec![None; labels.len()];
        let mut seen = false;
        for line in self.text.lines() {
            let line = line.trim().trim_start_matches(['-', '*', '>']).trim_start();
            let Some((number, rest)) = numbered(line) else {
                continue;
            };
            let Some(label) = number.checked_sub(1).and_then(|at| labels.get(at)) else {
                continue;
            };
            let Some(rest) = after_label(rest, label) else {
                continue;
            };
            seen = true;
            let Some(typed) = typed(rest) else { continue };
            let known = &mut answers[number - 1];
            if known.as_ref().is_some_and(|known| *known != typed) {
                return Err(BadSheet::Twice(number));
            }
            *known = Some(typed);
        }
        match seen || labels.is_empty() {
            true => Ok(answers),
            false => Err(BadSheet::NoBlanks),
        }
    }
}

/// `(7) rest`, also in the parentheses of Chinese.
fn numbered(line: &str) -> Option<(usize, &str)> {
    let rest = line.strip_prefix(['(', '（'])?;
    let close = rest.find([')', '）'])?;
    let number = rest[..close].trim().parse().ok()?;
    let rest = rest[close..].trim_start_matches([')', '）']);
    Some((number, rest))
}

/// What stands after the label and its equals sign; blanks do not matter.
fn after_label<'a>(line: &'a str, label: &str) -> Option<&'a str> {
    let mut rest = line.char_indices();
    let blank = |c: &char| c.is_whitespace() || *c == '\u{a0}';
    for wanted in label.chars().filter(|c| !blank(c)) {
        let (_, found) = rest.by_ref().find(|(_, c)| !blank(c))?;
        if found != wanted {
            return None;
        }
    }
    let (at, sign) = rest.find(|(_, c)| !blank(c))?;
    matches!(sign, '=' | '≈' | '＝').then(|| &line[at + sign.len_utf8()..])
}

/// What is written in a blank; `None` if nothing is.
fn typed(rest: &str) -> Option<Typed> {
    let clean = rest.replace(['_', '…'], " ");
    let parts = || clean.rsplit(['=', '≈', '＝']).map(str::trim);
    let text = parts().find(|part| !part.is_empty())?.to_owned();
    Some(Typed {
        number: number(&text),
        shape: parts().find_map(shape), // the names of its axes may follow
        text,
    })
}

/// A number as people write it: `−0.5`, `1/3`, `3×10⁻⁴`, `−∞`.
fn number(text: &str) -> Option<(f64, f64)> {
    let plain: String = text
        .chars()
        .filter(|c| !c.is_whitespace() && *c != '\u{a0}')
        .map(|c| match c {
            '−' | '–' | '－' => '-',
            '．' => '.',
            c => c,
        })
        .collect();
    let plain = plain.trim_end_matches(['.', '。', ';', '；']);
    match plain {
        "-∞" | "-inf" => return Some((f64::NEG_INFINITY, 0.0)),
        "∞" | "+∞" | "inf" => return Some((f64::INFINITY, 0.0)),
        _ => {}
    }
    if let Some((above, below)) = plain.split_once('/') {
        let (above, below) = (decimal(above)?, decimal(below)?);
        return (below.0 != 0.0).then(|| (above.0 / below.0, 0.0));
    }
    let (mantissa, power) = match plain.split_once(['×', '·', '*']) {
        Some((mantissa, power)) => (mantissa, power_of_ten(power)?),
        None => (plain, 0),
    };
    let (value, half) = decimal(mantissa)?;
    let factor = 10f64.powi(power);
    Some((value * factor, half * factor))
}

/// The exponent of `10⁻⁴`, `10^-4` or `10^(-4)`.
fn power_of_ten(text: &str) -> Option<i32> {
    let exponent = text.strip_prefix("10")?;
    let exponent: String = exponent
        .chars()
        .filter(|c| !matches!(c, '^' | '(' | ')'))
        .map(
            |c| match "⁰¹²³⁴⁵⁶⁷⁸⁹".chars().position(|digit| digit == c) {
                Some(digit) => char::from_digit(digit as u32, 10).unwrap_or('0'),
                None if c == '⁻' => '-',
                None => c,
            },
        )
        .collect();
    exponent
        .parse()
        .ok()
        .filter(|power: &i32| power.abs() < 400)
}

/// A plain decimal, and half a unit of its last decimal: none for whole numbers, which are meant as
/// they stand.
fn decimal(text: &str) -> Option<(f64, f64)> {
    // A comma before one to two or more than three digits can only be a decimal comma.
    let text = match text.split_once(',') {
        Some((whole, rest)) if rest.len() == 3 => format!("{whole}{rest}"),
        Some((whole, rest)) => format!("{whole}.{rest}"),
        None => text.to_owned(),
    };
    let allowed = |c: char| c.is_ascii_digit() || matches!(c, '.' | '-' | '+' | 'e' | 'E');
    if text.is_empty() || !text.chars().all(allowed) {
        return None;
    }
    let value: f64 = text.parse().ok()?;
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse().ok()?),
        None => (&text[..], 0_i32),
    };
    let decimals = mantissa
        .split_once('.')
        .map_or(0, |(_, decimals)| decimals.len());
    let half = match decimals {
        0 => 0.0,
        decimals => 0.5 * 10f64.powi(exponent - decimals as i32),
    };
    Some((value, half))
}

/// `[1, 1, 3, 4]`, `(3,4)`, `3 × 4`, with or without words after an equals sign.
fn shape(text: &str) -> Option<Vec<usize>> {
    let inner = text.trim_matches(|c: char| "[](){}〔〕（）【】 ".contains(c));
    let sizes: Vec<&str> = inner
        .split([',', '，', '、', '×', 'x', '*', ' '])
        .filter(|size| !size.is_empty())
        .collect();
    let sizes: Option<Vec<usize>> = sizes.into_iter().map(|size| size.parse().ok()).collect();
    sizes.filter(|sizes| !sizes.is_empty())
}
