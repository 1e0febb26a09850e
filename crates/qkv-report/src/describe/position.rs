//! What happens to queries and keys before they meet: norm and rotation.

use super::rotary;
use super::run::{Run, worked};
use crate::entry::Number;
use crate::explanation::{Block, Part};
use crate::expr::{Expr, Function, call, num, over, sum};
use qkv::{RmsNorm, StepName};

pub(super) fn parts(run: &Run<'_>) -> Vec<Part> {
    let mut parts = Vec::new();
    let block = run.subject.block;
    if block.q_norm.is_some() || block.k_norm.is_some() {
        parts.push(norms(run));
    }
    if let Some(options) = &block.rotary {
        parts.push(rotary::rotation(run, options));
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
