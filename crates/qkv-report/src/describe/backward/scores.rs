//! Back through softcap and scale, to the dot products.

use super::Back;
use crate::describe::run::worked;
use crate::explanation::{Block, Part};
use crate::expr::{Expr, Function, call, minus, num, over, times};
use qkv::{GradientName, Scale, StepName};

pub(super) fn parts(back: &Back<'_, '_>) -> Vec<Part> {
    let mut parts = Vec::new();
    parts.extend(softcap(back));
    parts.push(scale(back));
    parts
}

/// Calls `push` for each `[batch, head, query, key]` that is worked out, then adds the matrix.
fn each(
    back: &Back<'_, '_>,
    part: &mut Part,
    (name, text): (GradientName, &str),
    push: impl Fn([usize; 4], &mut Part),
) {
    let run = back.run;
    for &[b, h] in &run.groups {
        part.blocks.extend(run.group_heading([b, h]));
        for &i in &run.rows {
            for j in back.written([b, h, i], part) {
                push([b, h, i, j], part);
            }
        }
        part.blocks
            .extend(back.matrix(text, 'q', Some('k'), name, &[b, h]));
    }
}

fn softcap(back: &Back<'_, '_>) -> Option<Part> {
    let (run, words) = (back.run, back.words);
    let cap = run.subject.block.attention.softcap?;
    let name = GradientName::GradScaled;
    let formula = "t[i,j] = tanh(s[i,j]/C), ds[i,j] = dc[i,j]·(1 − t[i,j]²)";
    let mut part = back.part(&[name], words.heading_back_softcap(), formula);
    part.blocks
        .push(Block::Paragraph(words.back_softcap(&run.show(cap))));
    each(back, &mut part, (name, "dS"), |at, part| {
        let [_, _, i, j] = at;
        let ratio = over(num(run.entry(StepName::Scaled, &at)), num(cap));
        let tanh = call(Function::Tanh, ratio);
        let t = tanh.value();
        part.blocks
            .push(worked(format!("t[{i},{j}]"), vec![tanh], t));
        let slope = minus(num(1.0), Expr::Square(t.into()));
        let before = num(back.entry(GradientName::GradMasked, &at));
        part.blocks.push(worked(
            format!("ds[{i},{j}]"),
            vec![Expr::Product(vec![before, slope])],
            back.entry(name, &at),
        ));
    });
    Some(part)
}

fn scale(back: &Back<'_, '_>) -> Part {
    let (run, words) = (back.run, back.words);
    let name = GradientName::GradScores;
    let before = match back.gradient(GradientName::GradScaled) {
        Some(_) => GradientName::GradScaled,
        None => GradientName::GradMasked,
    };
    let scale = run.subject.block.attention.scale;
    let formula = match scale {
        Scale::InverseSqrt => "d(q_i·k_j) = ds[i,j]/√d_k",
        Scale::Factor(_) => "d(q_i·k_j) = scale · ds[i,j]",
    };
    let mut part = back.part(&[name], words.heading_back_scale(), formula);
    part.blocks.push(Block::Paragraph(words.back_scale()));
    let root = (run.dk as f64).sqrt();
    each(back, &mut part, (name, "d(QKᵀ)"), |at, part| {
        let [_, _, i, j] = at;
        let gradient = back.entry(before, &at);
        let chain = match scale {
            Scale::Factor(factor) => vec![times(factor, gradient)],
            Scale::InverseSqrt => {
                let under_root = call(Function::Sqrt, num(run.dk as f64));
                let mut chain = vec![over(num(gradient.clone()), under_root)];
                if gradient.value != 0.0 {
                    chain.push(over(num(gradient), num(root)));
                }
                chain
            }
        };
        part.blocks.push(worked(
            format!("d(q{i}·k{j})"),
            chain,
            back.entry(name, &at),
        ));
    });
    part
}
