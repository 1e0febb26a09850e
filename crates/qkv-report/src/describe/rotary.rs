//! The rotation of queries and keys by their positions.

use super::places;
use super::position::{Side, sides};
use super::run::{Run, worked};
use crate::Origin;
use crate::entry::Number;
use crate::explanation::{Block, Part};
use crate::expr::{Expr, Function, call, minus, num, over, sum, times};
use crate::words::Stretch;
use qkv::position::{Pairing, Rotary, Scaling};
use qkv::{Place, StepName};
use std::f64::consts::TAU;

/// The part of the rotation.
pub(super) fn rotation(run: &Run<'_>, rotary: &Rotary) -> Part {
    let words = run.words;
    let steps = [StepName::QRotated, StepName::KRotated];
    let stretch = stretch(run, rotary);
    let f = match stretch {
        None => ", f = base^(−2·n/d)",
        Some(Stretch::Linear { .. }) => ", f = base^(−2·n/d)/factor",
        Some(Stretch::Llama3 { .. }) => "",
    };
    let formula = format!("a' = a·cos θ − b·sin θ, b' = a·sin θ + b·cos θ, θ = p·f{f}");
    let mut part = run.part(&steps, words.heading_rotary(), &formula);
    let interleaved = rotary.pairing == Pairing::Interleaved;
    let frequencies = rotary.inverse_frequencies(run.dk).unwrap_or_default();
    let turned = 2 * frequencies.len();
    part.blocks
        .push(Block::Paragraph(words.rotary(interleaved, turned, run.dk)));
    if let Some(stretch) = &stretch {
        part.blocks.push(Block::Paragraph(words.stretch(stretch)));
    }
    let columns = |pair| columns(rotary, frequencies.len(), pair);
    for (pair, &frequency) in frequencies.iter().enumerate() {
        if run.columns(frequencies.len()).contains(&pair) {
            let (a, b) = columns(pair);
            let label = words.frequency(pair, a, b);
            let chain = frequency_chain(run, rotary, (pair, turned), &mut part);
            part.blocks.push(worked(label, vec![chain], frequency));
        }
    }
    if let Place::Counted { start } = run.subject.block.place
        && !queries_are_keys(run)
    {
        places::push(run, start, &mut part);
    }
    let q_from = run.last_of(&[StepName::Q, StepName::QNormed]);
    let k_from = run.last_of(&[StepName::K, StepName::KNormed]);
    for side in sides(
        run,
        [q_from, StepName::QRotated],
        [k_from, StepName::KRotated],
    ) {
        for [b, h] in side.groups(run) {
            part.blocks.push(side.heading(run, [b, h]));
            for i in side.rows(run) {
                let place = place(run, &side, b, i);
                let label = format!("p[{}{i}]", side.letter);
                part.blocks.push(worked(label, vec![], place as f64));
                for (pair, &frequency) in frequencies.iter().enumerate() {
                    if run.columns(frequencies.len()).contains(&pair) {
                        let turn = Turn {
                            at: [b, h, i],
                            columns: columns(pair),
                            pair,
                            place,
                            frequency,
                        };
                        push_turn(run, &side, &turn, &mut part);
                    }
                }
            }
            let name = format!("{}'", side.letter.to_uppercase());
            part.blocks
                .push(run.step_matrix(&name, side.letter, None, side.to, &[b, h]));
        }
    }
    part
}

/// What is done to the frequencies, with its numbers as they are printed.
pub(super) fn stretch(run: &Run<'_>, rotary: &Rotary) -> Option<Stretch> {
    let show = |value: f64| run.show(value);
    match rotary.scaling {
        Scaling::Linear { factor } => Some(Stretch::Linear {
            factor: show(factor),
        }),
        Scaling::Llama3 {
            factor,
            low_freq_factor,
            high_freq_factor,
            original_length,
        } => Some(Stretch::Llama3 {
            factor: show(factor),
            low: show(low_freq_factor),
            high: show(high_freq_factor),
            length: show(original_length),
        }),
        _ => None,
    }
}

/// What the frequency of a pair comes from; lines that lead to it are added first.
fn frequency_chain(
    run: &Run<'_>,
    rotary: &Rotary,
    (pair, turned): (usize, usize),
    part: &mut Part,
) -> Expr {
    let words = run.words;
    let exponent = over(num(0.0 - 2.0 * pair as f64), num(turned as f64));
    let power = Expr::Power(Box::new(num(rotary.base)), Box::new(exponent));
    let (factor, low, high, length) = match rotary.scaling {
        Scaling::Linear { factor } => return over(power, num(factor)),
        Scaling::Llama3 {
            factor,
            low_freq_factor,
            high_freq_factor,
            original_length,
        } => (factor, low_freq_factor, high_freq_factor, original_length),
        _ => return power,
    };
    let plain = power.value();
    let turns = length * plain / TAU;
    let label = words.plain_frequency(pair);
    part.blocks.push(worked(label, vec![power], plain));
    let product = times(length, plain);
    part.blocks.push(worked(
        words.turns(pair),
        vec![over(product, num(TAU))],
        turns,
    ));
    if turns > high {
        return num(plain);
    }
    if turns < low {
        return over(num(plain), num(factor));
    }
    let ramp = (turns - low) / (high - low);
    let above = minus(num(turns), num(low));
    let chain = vec![over(above, minus(num(high), num(low)))];
    part.blocks.push(worked(words.ramp(pair), chain, ramp));
    let slow = over(num(plain), num(factor));
    let slow = Expr::Product(vec![minus(num(1.0), num(ramp)), slow]);
    Expr::Sum(vec![slow, times(ramp, plain)])
}

/// The two columns of a pair.
pub(super) fn columns(rotary: &Rotary, pairs: usize, pair: usize) -> (usize, usize) {
    match rotary.pairing {
        Pairing::Halves => (pair, pair + pairs),
        Pairing::Interleaved => (2 * pair, 2 * pair + 1),
    }
}

/// Where a token stands for the rotation.
pub(super) fn place(run: &Run<'_>, side: &Side, b: usize, i: usize) -> i64 {
    let start = match &run.subject.block.place {
        Place::Given(places) => {
            let list = places.get(b).map_or(&[][..], |list| list);
            return list.get(i - side.past.min(i)).copied().unwrap_or(0);
        }
        Place::Counted { start } => start,
    };
    let place = run.places.as_ref().map_or(0, |places| match side.letter {
        'q' if queries_are_keys(run) => places.keys[b][run.subject.past_len + i],
        'q' => places.queries[b][i],
        _ => places.keys[b][i],
    });
    place.saturating_add(*start)
}

/// Whether queries and keys are made from the same tokens, so that a query stands at its own key.
fn queries_are_keys(run: &Run<'_>) -> bool {
    matches!(run.subject.origin, Origin::Projected { context: None, .. })
}

/// One pair of columns of one token.
struct Turn {
    at: [usize; 3],
    columns: (usize, usize),
    pair: usize,
    place: i64,
    frequency: f64,
}

fn push_turn(run: &Run<'_>, side: &Side, turn: &Turn, part: &mut Part) {
    let [b, h, i] = turn.at;
    let (left, right) = turn.columns;
    let letter = side.letter;
    let angle = turn.place as f64 * turn.frequency;
    let (sin, cos) = angle.sin_cos();
    part.blocks.push(worked(
        format!("θ[{letter}{i},{}]", turn.pair),
        vec![Expr::Product(vec![
            num(turn.place as f64),
            num(turn.frequency),
        ])],
        angle,
    ));
    part.blocks
        .push(worked("cos θ", vec![call(Function::Cos, num(angle))], cos));
    part.blocks
        .push(worked("sin θ", vec![call(Function::Sin, num(angle))], sin));
    let a_value = run.entry(side.from, &[b, h, i, left]);
    let b_value = run.entry(side.from, &[b, h, i, right]);
    let product = |x: &Number, y: f64| times(x.clone(), y);
    part.blocks.push(worked(
        format!("{letter}'[{i},{left}]"),
        vec![minus(product(&a_value, cos), product(&b_value, sin))],
        run.entry(side.to, &[b, h, i, left]),
    ));
    part.blocks.push(worked(
        format!("{letter}'[{i},{right}]"),
        vec![sum(vec![product(&a_value, sin), product(&b_value, cos)])],
        run.entry(side.to, &[b, h, i, right]),
    ));
}
