//! Numbers as they are printed.

/// A number as printed, and the largest error that its rounding allows.
pub fn printed(text: &str, digits: usize) -> Option<(f64, f64)> {
    let ascii = text.replace('−', "-").replace('\u{a0}', "");
    if let Some((mantissa, power)) = ascii.split_once("×10") {
        let power: String = power.chars().map(plain).collect();
        let power: i32 = power.parse().ok()?;
        let value = format!("{mantissa}e{power}").parse().ok()?;
        let significant = digits.max(2) as i32;
        return Some((value, 0.5 * 10_f64.powi(power + 1 - significant)));
    }
    match ascii.as_str() {
        "∞" => Some((f64::INFINITY, 0.0)),
        "-∞" => Some((f64::NEG_INFINITY, 0.0)),
        "NaN" => Some((f64::NAN, 0.0)),
        _ => Some((ascii.parse().ok()?, 0.5 * 10_f64.powi(-(digits as i32)))),
    }
}

fn plain(superscript: char) -> char {
    let at = "⁰¹²³⁴⁵⁶⁷⁸⁹".chars().position(|c| c == superscript);
    at.map_or('-', |digit| char::from(b'0' + digit as u8))
}
