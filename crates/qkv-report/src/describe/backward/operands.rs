//! dQ and dK: what the two sides of each dot product get.

use super::Back;
use super::values::{extremes, tell};
use crate::describe::run::worked;
use crate::describe::softmax::push_rest;
use crate::explanation::{Block, Part};
use crate::expr::{Expr, sum, times};
use qkv::{GradientName, StepName};

pub(super) fn parts(back: &Back<'_, '_>) -> Vec<Part> {
    vec![queries(back), keys(back)]
}

/// The first of these gradients that is in force.
fn first(back: &Back<'_, '_>, names: [GradientName; 3]) -> GradientName {
    let in_force = |name: &GradientName| back.gradient(*name).is_some();
    names.into_iter().find(in_force).unwrap_or(names[2])
}

fn queries(back: &Back<'_, '_>) -> Part {
    let (run, words) = (back.run, back.words);
    let name = first(
        back,
        [
            GradientName::GradQRotated,
            GradientName::GradQNormed,
            GradientName::GradQ,
        ],
    );
    let marks = "'".repeat(back.stages(StepName::QNormed, StepName::QRotated));
    let key_marks = "'".repeat(back.stages(StepName::KNormed, StepName::KRotated));
    let formula = format!("dq{marks}[i,c] = Σ_j d(q_i·k_j)·k{key_marks}[j,c]");
    let mut part = back.part(&[name], words.heading_grad_q(), &formula);
    part.blocks
        .push(Block::Paragraph(words.grad_q(!marks.is_empty())));
    let k = run.final_k();
    let mut told = false;
    for &[b, h] in &run.groups {
        let mut meaning = None;
        part.blocks.extend(run.group_heading([b, h]));
        let g = run.kv_head(h);
        for &i in &run.rows {
            let row = [b, h, i];
            if run.is_empty_row(row) {
                part.blocks.push(Block::Item(words.back_empty_row(i)));
                continue;
            }
            let [kept, written] = run.kept_and_written(row);
            let gradient = |j: usize| back.at(GradientName::GradScores, &[b, h, i, j]);
            for c in run.columns(run.dk) {
                let key = |j: usize| run.at(k, &[b, g, j, c]);
                let mut terms: Vec<Expr> = written
                    .iter()
                    .map(|&j| {
                        let gradient = back.entry(GradientName::GradScores, &[b, h, i, j]);
                        times(gradient, run.entry(k, &[b, g, j, c]))
                    })
                    .collect();
                push_rest(&mut terms, &written, &kept, |j| gradient(j) * key(j));
                part.blocks.push(worked(
                    format!("dq{marks}[{i},{c}]"),
                    vec![sum(terms)],
                    back.entry(name, &[b, h, i, c]),
                ));
            }
            meaning = meaning.or_else(|| pull(back, row, &kept));
        }
        back.push_other_columns(run.dk, &mut part);
        part.blocks
            .extend(back.matrix(&format!("dQ{marks}"), 'q', None, name, &[b, h]));
        tell(&mut told, meaning, &mut part);
    }
    part
}

/// Towards which key the loss pulls a query, and away from which.
fn pull(back: &Back<'_, '_>, [b, h, i]: [usize; 3], kept: &[usize]) -> Option<String> {
    let value = |j: usize| back.at(GradientName::GradScores, &[b, h, i, j]);
    let [to, from] = extremes(kept, value)?;
    let show = |j: usize| back.run.show(value(j));
    (value(to) > 0.0 && value(from) < 0.0).then(|| {
        back.words
            .grad_q_meaning(i, (to, &show(to)), (from, &show(from)))
    })
}

fn keys(back: &Back<'_, '_>) -> Part {
    let (run, words) = (back.run, back.words);
    let name = first(
        back,
        [
            GradientName::GradKRotated,
            GradientName::GradKNormed,
            GradientName::GradK,
        ],
    );
    let marks = "'".repeat(back.stages(StepName::KNormed, StepName::KRotated));
    let query_marks = "'".repeat(back.stages(StepName::QNormed, StepName::QRotated));
    let heads = if back.shares_heads() { "Σ_h " } else { "" };
    let formula = format!("dk{marks}[j,c] = {heads}Σ_i d(q_i·k_j)·q{query_marks}[i,c]");
    let mut part = back.part(&[name], words.heading_grad_k(), &formula);
    part.blocks.push(Block::Paragraph(
        words.grad_k(back.shares_heads(), run.subject.past_len),
    ));
    let q = run.final_q();
    for [b, g] in back.kv_groups() {
        part.blocks
            .extend(back.kv_heading([b, g], &format!("dK{marks}")));
        for j in back.keys_shown() {
            let users = back.users([b, g], j);
            if users.is_empty() {
                part.blocks.push(Block::Item(words.unused_key(j)));
                continue;
            }
            for c in run.columns(run.dk) {
                let terms = users.iter().map(|&[h, i]| {
                    let gradient = back.entry(GradientName::GradScores, &[b, h, i, j]);
                    times(gradient, run.entry(q, &[b, h, i, c]))
                });
                part.blocks.push(worked(
                    format!("dk{marks}[{j},{c}]"),
                    vec![sum(terms.collect())],
                    back.entry(name, &[b, g, j, c]),
                ));
            }
        }
        back.push_other_columns(run.dk, &mut part);
        part.blocks
            .extend(back.matrix(&format!("dK{marks}"), 'k', None, name, &[b, g]));
    }
    part
}
