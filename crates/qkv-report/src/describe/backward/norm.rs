//! The norm of queries and keys, backwards.

use super::Back;
use crate::describe::position::{Side, sides};
use crate::describe::run::worked;
use crate::entry::Number;
use crate::explanation::{Block, Part};
use crate::expr::{Expr, minus, num, over, sum};
use qkv::{GradientName, RmsNorm, StepName};

/// The gradients of a side: of what came out of the norm, of what went in, of the gain.
struct Names {
    out: GradientName,
    input: GradientName,
    gain: GradientName,
}

pub(super) fn part(back: &Back<'_, '_>) -> Option<Part> {
    let (run, words) = (back.run, back.words);
    let block = run.subject.block;
    if block.q_norm.is_none() && block.k_norm.is_none() {
        return None;
    }
    let [q, k] = [
        Names {
            out: GradientName::GradQNormed,
            input: GradientName::GradQ,
            gain: GradientName::GradQNorm,
        },
        Names {
            out: GradientName::GradKNormed,
            input: GradientName::GradK,
            gain: GradientName::GradKNorm,
        },
    ];
    let formula = "A = Σ_c dx'[c]·gain[c]·x[c], \
                   B = A/(d_k·rms³), dx[c] = gain[c]·dx'[c]/rms − x[c]·B, dgain[c] = Σ dx'[c]·x[c]/rms";
    let mut names = Vec::new();
    for (norm, side) in [(&block.q_norm, &q), (&block.k_norm, &k)] {
        if norm.is_some() {
            names.extend([side.input, side.gain]);
        }
    }
    let mut part = back.part(&names, words.heading_back_norm(), formula);
    part.blocks.push(Block::Paragraph(words.back_norm()));
    let both = sides(
        run,
        [StepName::Q, StepName::QNormed],
        [StepName::K, StepName::KNormed],
    );
    for (side, (norm, names)) in both.iter().zip([(&block.q_norm, q), (&block.k_norm, k)]) {
        if let Some(norm) = norm {
            push_side(back, side, norm, &names, &mut part);
        }
    }
    Some(part)
}

/// The root mean square of a row.
fn rms(back: &Back<'_, '_>, side: &Side, norm: &RmsNorm, at: [usize; 3]) -> f64 {
    let step = back.run.step(side.from);
    let row = step.map_or(&[][..], |step| step.row(&at));
    let squares: f64 = row.iter().map(|value| value * value).sum();
    (squares / row.len() as f64 + norm.eps).sqrt()
}

fn product<const N: usize>(factors: [Number; N]) -> Expr {
    Expr::Product(factors.map(num).into())
}

fn push_side(back: &Back<'_, '_>, side: &Side, norm: &RmsNorm, names: &Names, part: &mut Part) {
    let run = back.run;
    let letter = side.letter;

    for [b, h] in side.groups(run) {
        part.blocks.push(side.heading(run, [b, h]));
        for i in side.rows(run) {
            let rms = rms(back, side, norm, [b, h, i]);
            let gradient = |c: usize| back.entry(names.out, &[b, h, i, c]);
            let input = |c: usize| run.entry(side.from, &[b, h, i, c]);
            let terms = (0..run.dk).map(|c| product([gradient(c), norm.gain[c].into(), input(c)]));
            let along = sum(terms.collect());
            let value = along.value();
            part.blocks
                .push(worked(format!("A[{letter}{i}]"), vec![along], value));
            let width = run.dk as f64;
            let cube = product([width, rms, rms, rms].map(Number::from));
            let through = over(num(value), cube);
            let value = through.value();
            part.blocks
                .push(worked(format!("B[{letter}{i}]"), vec![through], value));
            for c in run.columns(run.dk) {
                let direct = over(product([norm.gain[c].into(), gradient(c)]), num(rms));
                let through = product([input(c), value.into()]);
                part.blocks.push(worked(
                    format!("d{letter}[{i},{c}]"),
                    vec![minus(direct, through)],
                    back.entry(names.input, &[b, h, i, c]),
                ));
            }
        }
        back.push_other_columns(run.dk, part);
        let text = format!("d{}", letter.to_uppercase());
        part.blocks
            .extend(back.matrix(&text, letter, None, names.input, &[b, h]));
    }
    let length = run.step(side.from).map_or(0, |step| step.shape()[2]);
    for c in run.columns(run.dk) {
        let mut terms = Vec::new();
        for b in 0..run.batch {
            for h in 0..side.heads {
                for i in side.past..length {
                    let rms = rms(back, side, norm, [b, h, i]);
                    let gradient = back.entry(names.out, &[b, h, i, c]);
                    let input = run.entry(side.from, &[b, h, i, c]);
                    terms.push(over(product([gradient, input]), num(rms)));
                }
            }
        }
        part.blocks.push(worked(
            format!("dgain_{letter}[{c}]"),
            vec![sum(terms)],
            back.entry(names.gain, &[c]),
        ));
    }
}
