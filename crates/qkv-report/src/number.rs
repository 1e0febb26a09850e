//! How numbers are shown.
//!
//! A value that a decimal of at most N places equals is shown trimmed ("0.5"), any other with
//! exactly N places. Rounding is that of paper: the shortest decimal that names the `f64` is
//! rounded, halves away from zero. "−" is a real minus sign.

/// A number as it is printed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Shown {
    /// The characters.
    pub text: String,
    /// Whether nothing was rounded away.
    pub exact: bool,
    /// The number that the characters say.
    pub value: f64,
}

/// Larger numbers are written with a power of ten, unless they are exact and short.
const LARGE: f64 = 1e7;

/// `value` with `digits` decimals, or with a power of ten where these would show too little.
pub(crate) fn shown(value: f64, digits: usize) -> Shown {
    if let Some(text) = not_a_decimal(value) {
        return text;
    }
    let decimal = Decimal::of(value);
    if let Some(short) = decimal.if_short(value, digits) {
        return short.plain(digits, true, value < 0.0);
    }
    if value.abs() >= LARGE || value.abs() < smallest_fixed(digits) {
        return decimal.scientific(digits, value < 0.0, true);
    }
    decimal.rounded_off(digits, value < 0.0)
}

/// Below this, `digits` decimals show too little of a number.
fn smallest_fixed(digits: usize) -> f64 {
    match digits {
        0 => 0.5,
        1..=3 => 10_f64.powi(-(digits as i32)),
        _ => 10_f64.powi(1 - digits.min(300) as i32),
    }
}

/// Always in decimals, however small: for a matrix whose larger entries set the measure.
pub(crate) fn shown_fixed(value: f64, digits: usize) -> Shown {
    if let Some(text) = not_a_decimal(value) {
        return text;
    }
    let decimal = Decimal::of(value);
    if let Some(short) = decimal.if_short(value, digits) {
        return short.plain(digits, true, value < 0.0);
    }
    decimal.rounded_off(digits, value < 0.0)
}

/// 0.6698 as "66.98".
pub(crate) fn percent(share: f64, digits: usize) -> String {
    let places = digits.saturating_sub(2);
    if let Some(text) = not_a_decimal(share) {
        return text.text;
    }
    let mut decimal = Decimal::of(share);
    decimal.point += 2;
    let short = decimal.if_short(share * 100.0, places);
    let exact = short.is_some();
    short
        .unwrap_or_else(|| decimal.rounded(places as i64))
        .plain(places, exact, share < 0.0)
        .text
}

/// `redone` in the notation of `own`, free of the residue that `f64` leaves of a sum of decimals.
pub(crate) fn rounded_like(redone: f64, own: &Shown, digits: usize) -> Shown {
    let clean: f64 = format!("{redone:.13e}").parse().unwrap_or(redone);
    if own.text.contains('×') && clean != 0.0 {
        // Rounded at the last place of `own`, which may have another power of ten.
        let place = |value: f64| digits.max(2) as i64 - Decimal::of(value).point;
        let place = place(own.value).min(place(clean));
        let rounded = Decimal::of(clean).rounded(place);
        if rounded.value() == own.value.abs() && (clean < 0.0) == (own.value < 0.0) {
            return own.clone();
        }
        return match rounded.digits.is_empty() {
            true => shown_fixed(0.0, digits),
            false => rounded.scientific(digits, clean < 0.0, false),
        };
    }
    shown_fixed(clean, digits)
}

/// With the decimals that a rounded number beside it has.
pub(crate) fn padded_like(mut number: Shown, other: &Shown) -> Shown {
    let has_power = number.text.contains('×') || other.text.contains('×');
    if !other.exact && !has_power {
        let decimals = |text: &str| text.split_once('.').map(|(_, decimals)| decimals.len());
        let wanted = decimals(&other.text).unwrap_or(0);
        if wanted > 0 && !number.text.contains('.') {
            number.text.push('.');
        }
        let missing = wanted.saturating_sub(decimals(&number.text).unwrap_or(0));
        number.text.push_str(&"0".repeat(missing));
    }
    number
}

/// Half a unit in the last place of a printed number.
pub(crate) fn half_unit(own: &Shown, digits: usize) -> f64 {
    let place = match own.text.contains('×') {
        true => digits.max(2) as i64 - Decimal::of(own.value).point,
        false => digits as i64,
    };
    0.5 * 10_f64.powi(-place as i32)
}

/// 1016 as "1,016".
pub(crate) fn count(n: usize) -> String {
    let plain = n.to_string();
    let mut out = String::new();
    for (at, digit) in plain.chars().enumerate() {
        if at > 0 && (plain.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

fn not_a_decimal(value: f64) -> Option<Shown> {
    let text = if value.is_nan() {
        "NaN"
    } else if value == f64::INFINITY {
        "∞"
    } else if value == f64::NEG_INFINITY {
        "−∞"
    } else if value == 0.0 {
        "0"
    } else {
        return None;
    };
    Some(Shown {
        text: text.into(),
        exact: true,
        value: if value == 0.0 { 0.0 } else { value },
    })
}

/// 0.d₁d₂d₃… × 10^point, without a sign.
#[derive(Clone, Debug)]
struct Decimal {
    digits: Vec<u8>,
    point: i64,
}

impl Decimal {
    /// The shortest decimal that names this finite number.
    fn of(value: f64) -> Decimal {
        let text = format!("{:e}", value.abs());
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let digits: Vec<u8> = mantissa
            .bytes()
            .filter(u8::is_ascii_digit)
            .map(|digit| digit - b'0')
            .collect();
        Decimal {
            digits,
            point: exponent.parse::<i64>().unwrap_or(0) + 1,
        }
        .trimmed()
    }

    fn trimmed(mut self) -> Decimal {
        while self.digits.last() == Some(&0) {
            self.digits.pop();
        }
        self
    }

    /// Itself, if at most `places` decimals say it. What `f64` adds of its own in the sixteenth
    /// digit (0.1 + 0.2) does not count.
    fn if_short(&self, value: f64, places: usize) -> Option<Decimal> {
        let whole_too_long = self.point > 12;
        if whole_too_long {
            return None;
        }
        let decimals = self.digits.len() as i64 - self.point;
        if decimals <= places as i64 && self.digits.len() < 16 {
            return Some(self.clone());
        }
        let enough_left = self.digits.len() >= 15 && places as i64 + self.point <= 13;
        let near = self.rounded(places as i64);
        let residue = (near.value() - value.abs()).abs();
        (enough_left && !near.digits.is_empty() && residue <= 4e-15 * value.abs()).then_some(near)
    }

    /// Rounded to `places` decimals, halves up; no digits are left of a number that is too small.
    fn rounded(&self, places: i64) -> Decimal {
        let keep = self.point.saturating_add(places);
        if keep < 0 {
            return Decimal {
                digits: Vec::new(),
                point: 0,
            };
        }
        let keep = keep as usize;
        if keep >= self.digits.len() {
            return self.clone();
        }
        let up = self.digits[keep] >= 5;
        let mut digits = self.digits[..keep].to_vec();
        let mut point = self.point;
        if up {
            let nines = digits.iter().rev().take_while(|digit| **digit == 9).count();
            digits.truncate(digits.len() - nines);
            match digits.last_mut() {
                Some(last) => *last += 1,
                None => {
                    digits.push(1);
                    point += 1;
                }
            }
        }
        Decimal { digits, point }.trimmed()
    }

    /// With exactly `places` decimals, or with all that `f64` has if these are fewer.
    fn rounded_off(&self, places: usize, negative: bool) -> Shown {
        let all = (self.digits.len() as i64 - self.point).max(0);
        self.rounded(places as i64)
            .plain(places.min(all as usize), false, negative)
    }

    fn value(&self) -> f64 {
        let digits: String = self.digits.iter().map(|d| char::from(b'0' + d)).collect();
        format!("0.{digits}0e{}", self.point).parse().unwrap_or(0.0)
    }

    /// Written out: trimmed if it is exact, else with exactly `places` decimals.
    fn plain(&self, places: usize, exact: bool, negative: bool) -> Shown {
        let digit = |at: i64| match usize::try_from(at) {
            Ok(at) => char::from(b'0' + self.digits.get(at).copied().unwrap_or(0)),
            Err(_) => '0',
        };
        let mut text: String = (0..self.point.max(1))
            .map(|at| digit(at + self.point.min(1) - 1))
            .collect();
        let places = if exact {
            (self.digits.len() as i64 - self.point).max(0)
        } else {
            places as i64
        };
        if places > 0 {
            text.push('.');
            text.extend((0..places).map(|at| digit(self.point + at)));
        }
        let negative = negative && !self.digits.is_empty();
        let sign = if negative { "−" } else { "" };
        Shown {
            text: format!("{sign}{text}"),
            exact,
            value: if negative {
                -self.value()
            } else {
                self.value()
            },
        }
    }

    /// d.ddd×10ⁿ, trimmed if it is exact and `trim` allows it.
    fn scientific(&self, digits: usize, negative: bool, trim: bool) -> Shown {
        let significant = match trim {
            true => digits.max(2).min(self.digits.len().max(2)) as i64,
            false => digits.max(2) as i64,
        };
        let short = self.rounded(significant - self.point);
        // Near the smallest numbers short digits are no sign of an exact one.
        let exact = trim
            && short.digits.len() == self.digits.len()
            && self.digits.len() < 15
            && self.point > -300;
        let mut mantissa = Decimal {
            digits: short.digits.clone(),
            point: 1,
        }
        .plain(significant as usize - 1, exact, negative);
        mantissa.text.push_str("×10");
        mantissa.text.push_str(&superscript(short.point - 1));
        let value = short.value();
        Shown {
            text: mantissa.text,
            exact,
            value: if negative { -value } else { value },
        }
    }
}

/// −4 as "⁻⁴".
pub(crate) fn superscript(n: i64) -> String {
    const DIGITS: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    n.to_string()
        .chars()
        .map(|c| c.to_digit(10).map_or('⁻', |digit| DIGITS[digit as usize]))
        .collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn shown_as_on_paper() {
        let cases = [
            (0.5, 4, "0.5"),
            (1.0, 4, "1"),
            (-0.0, 4, "0"),
            (0.1 + 0.2, 4, "0.3"),
            (1.0 / 3.0, 4, "0.3333"),
            (-2.0 / 3.0, 4, "−0.6667"),
            (1.00005, 4, "1.0001"),
            (2.5, 0, "3"),
            (-2.5, 0, "−3"),
            (9.99996, 4, "10.0000"),
            (0.66976155, 4, "0.6698"),
            (0.00031, 4, "3.1×10⁻⁴"),
            (0.000312345, 4, "3.123×10⁻⁴"),
            (0.0012345, 4, "0.0012"),
            (0.05, 4, "0.05"),
            (8388608.0, 4, "8388608"),
            (123456789.25, 4, "123456789.25"),
            (123456789.123456, 4, "1.235×10⁸"),
            (1e300, 4, "1×10³⁰⁰"),
            (741455.2, 4, "741455.2"),
            (f64::NEG_INFINITY, 4, "−∞"),
            (f64::NAN, 4, "NaN"),
            (0.3, 0, "3×10⁻¹"),
            (0.67, 0, "1"),
            (120.5, 2, "120.5"),
            (1.0 / 3.0, 17, "0.3333333333333333"),
            (2.0_f64.sqrt(), 17, "1.4142135623730951"),
            (2e-20 / 3.0, 17, "6.6666666666666666×10⁻²¹"),
        ];
        for (value, digits, text) in cases {
            assert_eq!(shown(value, digits).text, text, "{value:?} with {digits}");
        }
        assert_eq!(shown_fixed(0.00001, 4).text, "0.0000");
        assert_eq!(shown_fixed(-0.00001, 4).text, "0.0000");
        assert_eq!(percent(0.669761, 4), "66.98");
        assert_eq!(percent(1.0, 4), "100");
        assert_eq!(percent(0.07, 4), "7");
        assert_eq!(count(1016), "1,016");
        assert_eq!(count(12), "12");
    }

    #[test]
    fn the_value_is_what_the_text_says() {
        for value in [0.66976155, -1.00005, 0.000312345, 123456789.123456, 0.3] {
            let shown = shown(value, 4);
            let ascii = shown.text.replace('−', "-");
            let parsed = match ascii.split_once("×10") {
                Some((mantissa, power)) => {
                    let power: String = power
                        .chars()
                        .map(|c| "⁰¹²³⁴⁵⁶⁷⁸⁹".chars().position(|d| d == c))
                        .map(|d| d.map_or("-".into(), |d| d.to_string()))
                        .collect();
                    format!("{mantissa}e{power}").parse::<f64>().unwrap()
                }
                None => ascii.parse::<f64>().unwrap(),
            };
            assert_eq!(parsed, shown.value, "{}", shown.text);
        }
    }
}
