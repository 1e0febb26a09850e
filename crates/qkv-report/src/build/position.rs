//! What happens to queries and keys before they meet: norm and rotation.

use super::run::{Run, worked};
use crate::Origin;
use crate::entry::Number;
use crate::explanation::{Block, Part};
use crate::expr::{Expr, Function, call, minus, num, over, sum, times};
use qkv::position::{Pairing, Rotary};
use qkv::{Place, RmsNorm, StepName};

pub(super) fn parts(run: &Run<'_>) -> Vec<Part> {
    let mut parts = Vec::new();
    let block = run.subject.block;
    if block.q_norm.is_some() || block.k_norm.is_some() {
        parts.push(norms(run));
    }
    if let Some(rotary) = &block.rotary {
        parts.push(rotation(run, rotary));
    }
    parts
}

/// Queries or keys, before and after.
pub(super) struct Side {
    pub letter: char,
    pub from: StepName,
    pub to: StepName,
    pub heads: usize,
    /// Rows that were cached and stay as they are.
    pub past: usize,
}

pub(super) fn sides(run: &Run<'_>, q: [StepName; 2], k: [StepName; 2]) -> [Side; 2] {
    let side = |letter, [from, to]: [StepName; 2], heads, past| Side {
        letter,
        from,
        to,
        heads,
        past,
    };
    [
        side('q', q, run.heads, 0),
        side('k', k, run.kv_heads, run.subject.past_len),
    ]
}

impl Side {
    /// The `[batch, head]` worked out.
    pub(super) fn groups(&self, run: &Run<'_>) -> Vec<[usize; 2]> {
        let all = (0..run.batch).flat_map(|b| (0..self.heads).map(move |h| [b, h]));
        all.take(if run.large { 1 } else { usize::MAX }).collect()
    }

    pub(super) fn heading(&self, run: &Run<'_>, [b, h]: [usize; 2]) -> Block {
        let batch = (run.batch > 1).then_some(b);
        let head = (self.heads > 1).then_some(h);
        let name = self.letter.to_uppercase();
        Block::Heading(match (batch, head) {
            (None, None) => name.to_string(),
            _ => format!("{} · {name}", run.words.group(batch, head, None)),
        })
    }

    /// The rows worked out, counted with the cached ones.
    pub(super) fn rows(&self, run: &Run<'_>) -> Vec<usize> {
        let length = run.step(self.from).map_or(0, |step| step.shape()[2]);
        if self.letter == 'q' {
            return run.rows.clone();
        }
        let new = self.past..length;
        if run.large {
            return new.last().into_iter().collect();
        }
        new.collect()
    }
}

fn norms(run: &Run<'_>) -> Part {
    let block = run.subject.block;
    let steps = [StepName::QNormed, StepName::KNormed];
    let formula = "x' = x / √(mean(x²) + eps) · gain";
    let mut part = run.part(&steps, run.words.heading_norm(), formula);
    part.blocks.push(Block::Paragraph(run.words.norm()));
    let [q, k] = sides(
        run,
        [StepName::Q, StepName::QNormed],
        [StepName::K, StepName::KNormed],
    );
    for (side, norm) in [(q, &block.q_norm), (k, &block.k_norm)] {
        if let Some(norm) = norm {
            push_norm(run, &side, norm, &mut part);
        }
    }
    part
}

fn push_norm(run: &Run<'_>, side: &Side, norm: &RmsNorm, part: &mut Part) {
    let gain = norm.gain.iter().map(|gain| Number::from(*gain)).collect();
    let name = format!("gain {}", side.letter.to_uppercase());
    part.blocks.push(run.matrix(name, ' ', None, vec![gain]));
    part.blocks.push(worked("eps", vec![], norm.eps));
    for [b, h] in side.groups(run) {
        part.blocks.push(side.heading(run, [b, h]));
        for i in side.rows(run) {
            let row: Vec<Number> = (0..run.dk)
                .map(|c| run.entry(side.from, &[b, h, i, c]))
                .collect();
            let squares = sum(row.iter().cloned().map(Expr::Square).collect());
            let mean_square = row.iter().map(|n| n.value * n.value).sum::<f64>() / run.dk as f64;
            let root = (mean_square + norm.eps).sqrt();
            let name = format!("{}{i}", side.letter);
            part.blocks.push(worked(
                run.words.mean_square(&name),
                vec![over(squares, num(run.dk as f64))],
                mean_square,
            ));
            part.blocks.push(worked(
                run.words.root_mean_square(&name),
                vec![call(
                    Function::Sqrt,
                    Expr::Sum(vec![num(mean_square), num(norm.eps)]),
                )],
                root,
            ));
            for c in run.columns(run.dk) {
                part.blocks.push(worked(
                    format!("{}'[{i},{c}]", side.letter),
                    vec![Expr::Product(vec![
                        over(num(row[c].clone()), num(root)),
                        num(norm.gain[c]),
                    ])],
                    run.entry(side.to, &[b, h, i, c]),
                ));
            }
        }
        let name = format!("{}'", side.letter.to_uppercase());
        part.blocks
            .push(run.step_matrix(&name, side.letter, None, side.to, &[b, h]));
    }
}

fn rotation(run: &Run<'_>, rotary: &Rotary) -> Part {
    let words = run.words;
    let steps = [StepName::QRotated, StepName::KRotated];
    let formula = "a' = a·cos θ − b·sin θ, b' = a·sin θ + b·cos θ, θ = p·f";
    let mut part = run.part(&steps, words.heading_rotary(), formula);
    let interleaved = rotary.pairing == Pairing::Interleaved;
    let frequencies = rotary.inverse_frequencies(run.dk).unwrap_or_default();
    let turned = 2 * frequencies.len();
    part.blocks
        .push(Block::Paragraph(words.rotary(interleaved, turned, run.dk)));
    let columns = |pair| columns(rotary, frequencies.len(), pair);
    for (pair, &frequency) in frequencies.iter().enumerate() {
        if run.columns(frequencies.len()).contains(&pair) {
            let (a, b) = columns(pair);
            let label = words.frequency(pair, a, b);
            part.blocks.push(worked(label, vec![], frequency));
        }
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
    let same_tokens = matches!(run.subject.origin, Origin::Projected { context: None, .. });
    let place = run.places.as_ref().map_or(0, |places| match side.letter {
        'q' if same_tokens => places.keys[b][run.subject.past_len + i],
        'q' => places.queries[b][i],
        _ => places.keys[b][i],
    });
    place.saturating_add(*start)
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
