//! Back through the softmax: delta, dS, and what sinks and bias get.

use super::Back;
use super::values::{extremes, tell};
use crate::describe::run::worked;
use crate::describe::softmax::push_rest;
use crate::entry::index;
use crate::explanation::{Block, Part};
use crate::expr::{Expr, Function, call, dot, minus, num, over, sum, times};
use qkv::{GradientName, Sinks, StepName};

/// Entries of a bias that are worked out.
const BIAS_ENTRIES: usize = 48;

pub(super) fn parts(back: &Back<'_, '_>) -> Vec<Part> {
    let mut parts = vec![delta(back), softmax(back)];
    if back.gradient(GradientName::GradSinks).is_some() {
        parts.push(sinks(back));
    }
    parts.extend(bias(back));
    parts
}

fn delta(back: &Back<'_, '_>) -> Part {
    let (run, words) = (back.run, back.words);
    let heading = words.heading_delta();
    let formula = "δ[i] = Σ_j w[i,j]·dp[i,j]";
    let mut part = back.part(&[GradientName::Delta], heading, formula);
    let sinks = run.subject.block.attention.sinks.is_some();
    part.blocks.push(Block::Paragraph(words.delta(sinks)));
    for &[b, h] in &run.groups {
        part.blocks.extend(run.group_heading([b, h]));
        for &i in &run.rows {
            let row = [b, h, i];
            let value = back.entry(GradientName::Delta, &row);
            if run.is_empty_row(row) {
                part.blocks.push(worked(format!("δ[{i}]"), vec![], value));
                continue;
            }
            let [kept, written] = run.kept_and_written(row);
            let weight = |j: usize| run.at(StepName::Weights, &[b, h, i, j]);
            let gradient = |j: usize| back.at(GradientName::GradWeights, &[b, h, i, j]);
            let mut terms: Vec<Expr> = written
                .iter()
                .map(|&j| {
                    let gradient = back.entry(GradientName::GradWeights, &[b, h, i, j]);
                    times(run.entry(StepName::Weights, &[b, h, i, j]), gradient)
                })
                .collect();
            push_rest(&mut terms, &written, &kept, |j| weight(j) * gradient(j));
            part.blocks
                .push(worked(format!("δ[{i}]"), vec![sum(terms)], value));
            let of_output =
                (0..run.dv).map(|c| back.entry(GradientName::GradOutput, &[b, h, i, c]));
            let output = (0..run.dv).map(|c| run.entry(StepName::Output, &[b, h, i, c]));
            let product = dot(of_output, output);
            let value = product.value();
            part.blocks
                .push(worked(format!("do{i}·o{i}"), vec![product], value));
        }
    }
    part
}

fn softmax(back: &Back<'_, '_>) -> Part {
    let (run, words) = (back.run, back.words);
    let letter = back.logit_letter();
    let heading = words.heading_grad_scores(letter);
    let formula = format!("d{letter}[i,j] = w[i,j]·(dp[i,j] − δ[i])");
    let mut part = back.part(&[GradientName::GradMasked], heading, &formula);
    let sinks = run.subject.block.attention.sinks.is_some();
    part.blocks
        .push(Block::Paragraph(words.grad_scores(letter, sinks)));
    let mut told = [false; 2];
    for &[b, h] in &run.groups {
        part.blocks.extend(run.group_heading([b, h]));
        let (mut moved, mut still) = (None, None);
        for &i in &run.rows {
            let row = [b, h, i];
            push_row(back, row, letter, &mut part);
            moved = moved.or_else(|| above_and_below(back, row));
            still = still.or_else(|| nothing(back, row));
        }
        let name = format!("d{}", letter.to_uppercase());
        part.blocks
            .extend(back.matrix(&name, 'q', Some('k'), GradientName::GradMasked, &[b, h]));
        let [told_moved, told_still] = &mut told;
        tell(told_still, still, &mut part);
        tell(told_moved, moved, &mut part);
    }
    part
}

/// dS of one row, and what it adds up to.
fn push_row(back: &Back<'_, '_>, row: [usize; 3], letter: char, part: &mut Part) {
    let run = back.run;
    let [b, h, i] = row;
    let written = back.written(row, part);
    if written.is_empty() {
        return;
    }
    let [kept, _] = run.kept_and_written(row);
    let dropped: Vec<usize> = (0..run.keys).filter(|j| !kept.contains(j)).collect();
    if !dropped.is_empty() {
        let text = back.words.back_dropped_keys(i, &dropped);
        part.blocks.push(Block::Item(text));
    }
    let delta = back.entry(GradientName::Delta, &row);
    let value = |j: usize| back.at(GradientName::GradMasked, &[b, h, i, j]);
    let entry = |j: usize| back.entry(GradientName::GradMasked, &[b, h, i, j]);
    for &j in &written {
        let weight = run.entry(StepName::Weights, &[b, h, i, j]);
        let gradient = back.entry(GradientName::GradWeights, &[b, h, i, j]);
        let apart = minus(num(gradient), num(delta.clone()));
        part.blocks.push(worked(
            format!("d{letter}[{i},{j}]"),
            vec![Expr::Product(vec![num(weight), apart])],
            entry(j),
        ));
    }
    let mut terms: Vec<Expr> = written.iter().map(|&j| num(entry(j))).collect();
    push_rest(&mut terms, &written, &kept, value);
    let total: f64 = kept.iter().map(|&j| value(j)).sum();
    let terms = sum(terms);
    // Where the terms cancel they do so by definition.
    let total = if terms.cancels_to(total) { 0.0 } else { total };
    let label = format!("Σ d{letter}[{i},·]");
    part.blocks.push(worked(label, vec![terms], total));
}

/// The gradient of a score, 0 where dp and δ differ by rounding only.
fn of_score(back: &Back<'_, '_>, [b, h, i, j]: [usize; 4]) -> f64 {
    let at = [b, h, i, j];
    let apart = minus(
        num(back.at(GradientName::GradWeights, &at)),
        num(back.at(GradientName::Delta, &[b, h, i])),
    );
    match apart.cancels_to(apart.value()) {
        true => 0.0,
        false => back.at(GradientName::GradMasked, &at),
    }
}

/// A key whose score the loss would like to see higher, and one that it would like lower.
fn above_and_below(back: &Back<'_, '_>, row: [usize; 3]) -> Option<String> {
    let [b, h, i] = row;
    let [kept, _] = back.run.kept_and_written(row);
    let [up, down] = extremes(&kept, |j| of_score(back, [b, h, i, j]))?;
    if of_score(back, [b, h, i, up]) <= 0.0 || of_score(back, [b, h, i, down]) >= 0.0 {
        return None;
    }
    let text = |j: usize| {
        let at = [b, h, i, j];
        back.run.show(back.at(GradientName::GradWeights, &at))
    };
    let delta = back.run.show(back.at(GradientName::Delta, &row));
    let (of_up, of_down) = (text(up), text(down));
    let words = back.words;
    Some(words.grad_scores_meaning(i, &delta, (up, &of_up), (down, &of_down)))
}

/// Why no score of a row gets anything, if that is so.
fn nothing(back: &Back<'_, '_>, row: [usize; 3]) -> Option<String> {
    let [b, h, i] = row;
    let [kept, _] = back.run.kept_and_written(row);
    let nothing = kept.iter().all(|&j| of_score(back, [b, h, i, j]) == 0.0);
    let only = kept.len() == 1 && back.run.subject.block.attention.sinks.is_none();
    (nothing && !kept.is_empty()).then(|| back.words.grad_scores_nothing(i, only))
}

fn sinks(back: &Back<'_, '_>) -> Part {
    let (run, words) = (back.run, back.words);
    let heading = words.heading_grad_sinks();
    let formula = "w_sink[i] = exp(sink − m[i])/S[i], dsink = −Σ_i w_sink[i]·δ[i]";
    let mut part = back.part(&[GradientName::GradSinks], heading, formula);
    part.blocks.push(Block::Paragraph(words.grad_sinks()));
    let Some(Sinks(sinks)) = &run.subject.block.attention.sinks else {
        return part;
    };
    // A sink serves all batch entries.
    let heads = 0..if run.large {
        run.heads.min(1)
    } else {
        run.heads
    };
    for h in heads {
        if run.heads > 1 {
            let heading = words.group(None, Some(h), None);
            part.blocks.push(Block::Heading(heading));
        }
        let mut terms = Vec::new();
        for b in 0..run.batch {
            for i in 0..run.queries {
                let row = [b, h, i];
                if run.is_empty_row(row) {
                    continue;
                }
                let lse = run.at(StepName::Lse, &row);
                let weight = 1.0 / (1.0 + (lse - sinks[h]).exp());
                terms.push(times(-weight, back.entry(GradientName::Delta, &row)));
                if run.rows.contains(&i) && run.groups.contains(&[b, h]) {
                    let of = minus(num(sinks[h]), num(run.entry(StepName::Max, &row)));
                    let total = num(run.entry(StepName::Sum, &row));
                    let chain = over(call(Function::Exp, of), total);
                    part.blocks
                        .push(worked(format!("w_sink[{i}]"), vec![chain], weight));
                }
            }
        }
        part.blocks.push(worked(
            format!("dsink[{h}]"),
            vec![sum(terms)],
            back.entry(GradientName::GradSinks, &[h]),
        ));
    }
    part
}

/// A bias gets what the scores get that it was added to.
fn bias(back: &Back<'_, '_>) -> Option<Part> {
    let (run, words) = (back.run, back.words);
    let gradient = back.gradient(GradientName::GradBias)?;
    let shape: [usize; 4] = gradient.shape().try_into().ok()?;
    let full = [run.batch, run.heads, run.queries, run.keys];
    let letter = back.logit_letter();
    let repeated = shape != full;
    let formula = match repeated {
        true => format!("dbias = Σ d{letter}[i,j]"),
        false => format!("dbias[i,j] = d{letter}[i,j]"),
    };
    let heading = words.heading_grad_bias();
    let mut part = back.part(&[GradientName::GradBias], heading, &formula);
    part.blocks
        .push(Block::Paragraph(words.grad_bias(repeated)));
    if !repeated {
        return Some(part);
    }
    let range = |axis: usize, at: usize| match shape[axis] == 1 {
        true => 0..full[axis],
        false => at..at + 1,
    };
    let most = if run.large { 3 } else { BIAS_ENTRIES };
    let entries = gradient.data().len();
    for at in (0..entries).take(most) {
        let at = index(&shape, at);
        let mut terms = Vec::new();
        for b in range(0, at[0]) {
            for h in range(1, at[1]) {
                for i in range(2, at[2]) {
                    for j in range(3, at[3]) {
                        if run.takes_part([b, h, i, j]) {
                            terms.push(num(back.entry(GradientName::GradMasked, &[b, h, i, j])));
                        }
                    }
                }
            }
        }
        let skip = at
            .iter()
            .zip(shape)
            .take(2)
            .take_while(|(_, n)| *n == 1)
            .count();
        let label: Vec<String> = at[skip..].iter().map(usize::to_string).collect();
        let label = format!("dbias[{}]", label.join(","));
        part.blocks.push(worked(
            label,
            vec![sum(terms)],
            back.entry(GradientName::GradBias, &at),
        ));
    }
    if most < entries {
        part.blocks
            .push(Block::Item(words.other_numbers(entries - most)));
    }
    Some(part)
}
