//! One entry checked by what a derivative says: change a number a little, see what the loss does.

use super::Back;
use crate::describe::run::{finding, precise, worked};
use crate::explanation::{Block, Part};
use crate::expr::{minus, num, over};
use crate::number::shown;
use qkv::{FiniteDifference, GradientName};

/// Decimals that the two losses show beyond the usual: they differ late.
const MORE_DIGITS: usize = 6;
/// The most decimals of a loss.
const MOST_DIGITS: usize = 12;
/// Digits that an `f64` can hold.
const ALL_DIGITS: f64 = 15.0;

pub(super) fn part(back: &Back<'_, '_>) -> Option<Part> {
    let (run, words) = (back.run, back.words);
    let check = back.backward.difference?;
    let entry = entry(check);
    let formula = "dL/dx ≈ (L(x + h) − L(x − h))/(2h)";
    let mut part = back.part(&[], words.heading_difference(), formula);
    let [value, step] = [check.value, check.step].map(|number| run.show(number));
    let usual = check.step == 1e-3;
    part.blocks.push(Block::Paragraph(
        words.finite_difference(&entry, &value, &step, usual),
    ));
    let more_digits = MORE_DIGITS.min(MOST_DIGITS.saturating_sub(run.digits));
    let apart = losses_apart(check);
    let subtraction = minus(num(check.plus), num(check.minus));
    let quotient = over(num(apart), num(2.0 * check.step));
    part.blocks.extend([
        precise(format!("L({entry} + h)"), vec![], check.plus, more_digits),
        precise(format!("L({entry} − h)"), vec![], check.minus, more_digits),
        precise("L(+h) − L(−h)", vec![subtraction], apart, more_digits),
        worked("(L(+h) − L(−h))/2h", vec![quotient], check.quotient),
        worked(
            format!("d{entry}"),
            vec![],
            back.entry(check.of, &check.index),
        ),
    ]);
    part.blocks.push(finding(meaning(back, check)));
    Some(part)
}

/// The entry as the text names it: q[0,1], or with its head q[b,h,i,c] where there are several.
fn entry(check: &FiniteDifference) -> String {
    let letter = match check.of {
        GradientName::GradQ => "q",
        GradientName::GradK => "k",
        GradientName::GradV => "v",
        GradientName::GradWq => "W_Q",
        GradientName::GradWk => "W_K",
        GradientName::GradWv => "W_V",
        _ => "x",
    };
    let leading = check.index.len().saturating_sub(2);
    let in_front = check.index[..leading].iter().any(|&at| at > 0);
    let skip = if in_front { 0 } else { leading };
    let index: Vec<String> = check.index[skip..].iter().map(usize::to_string).collect();
    format!("{letter}[{}]", index.join(","))
}

/// Their difference as far as their digits go: the last of an `f64` are no paper's.
fn losses_apart(check: &FiniteDifference) -> f64 {
    let apart = check.plus - check.minus;
    let largest = check.plus.abs().max(check.minus.abs());
    let decimals = (ALL_DIGITS - 1.0 - largest.log10().floor()).clamp(0.0, 300.0);
    format!("{apart:.*}", decimals as usize)
        .parse()
        .unwrap_or(apart)
}

/// How many digits agree, and why not more.
fn meaning(back: &Back<'_, '_>, check: &FiniteDifference) -> String {
    let words = back.words;
    let apart = (check.quotient - check.gradient).abs();
    if !apart.is_finite() {
        return words.difference_not_finite();
    }
    let size = check.gradient.abs();
    if size == 0.0 {
        let text = shown(check.quotient, back.run.digits).text;
        return words.difference_of_nothing(&text);
    }
    let agreeing = match apart > 0.0 {
        true => (-(apart / size).log10()).clamp(0.0, ALL_DIGITS),
        false => ALL_DIGITS,
    };
    // One digit more than agrees, so that the difference is seen.
    let decimals = (agreeing - size.log10()).ceil().clamp(1.0, 16.0) as usize + 1;
    let [quotient, gradient] =
        [check.quotient, check.gradient].map(|number| shown(number, decimals).text);
    let rounding = f64::EPSILON * check.plus.abs().max(check.minus.abs()) / check.step;
    words.difference_agrees(agreeing as usize, &quotient, &gradient, rounding > apart)
}
