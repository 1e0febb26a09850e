//! dV, and dP: what values and weights get from the gradient of the output.

use super::Back;
use crate::describe::run::{finding, worked};
use crate::explanation::{Block, Part};
use crate::expr::{Expr, dot, minus, num, over, sum, times};
use qkv::{GradientName, StepName};

pub(super) fn parts(back: &Back<'_, '_>) -> Vec<Part> {
    vec![values(back), weights(back)]
}

fn values(back: &Back<'_, '_>) -> Part {
    let (run, words) = (back.run, back.words);
    let mixing = run.mixing();
    let mark = if mixing == StepName::Dropped { "'" } else { "" };
    let heads = if back.shares_heads() { "Σ_h " } else { "" };
    let formula = format!("dv[j,c] = {heads}Σ_i w{mark}[i,j]·do[i,c]");
    let names = [GradientName::GradV];
    let mut part = back.part(&names, words.heading_grad_v(), &formula);
    part.blocks
        .push(Block::Paragraph(words.grad_v(back.shares_heads())));
    let mut told = false;
    for [b, g] in back.kv_groups() {
        let mut meaning = None;
        part.blocks.extend(back.kv_heading([b, g], "dV"));
        for j in back.keys_shown() {
            let users = back.users([b, g], j);
            if users.is_empty() {
                part.blocks.push(Block::Item(words.unused_key(j)));
                continue;
            }
            let weight = |[h, i]: [usize; 2]| run.at(mixing, &[b, h, i, j]);
            for c in run.columns(run.dv) {
                let terms = users.iter().map(|&[h, i]| {
                    let gradient = back.entry(GradientName::GradOutput, &[b, h, i, c]);
                    times(run.entry(mixing, &[b, h, i, j]), gradient)
                });
                part.blocks.push(worked(
                    format!("dv[{j},{c}]"),
                    vec![sum(terms.collect())],
                    back.entry(GradientName::GradV, &[b, g, j, c]),
                ));
            }
            let heaviest = users
                .into_iter()
                .max_by(|&x, &y| weight(x).total_cmp(&weight(y)));
            meaning =
                meaning.or(heaviest
                    .filter(|&user| weight(user).is_finite())
                    .map(|[h, i]| {
                        let head = (run.heads > 1).then_some(h);
                        words.grad_v_meaning(j, (i, head), &run.show(weight([h, i])))
                    }));
        }
        back.push_other_columns(run.dv, &mut part);
        part.blocks
            .extend(back.matrix("dV", 'v', None, GradientName::GradV, &[b, g]));
        tell(&mut told, meaning, &mut part);
    }
    part
}

fn weights(back: &Back<'_, '_>) -> Part {
    let (run, words) = (back.run, back.words);
    let dropout = run.subject.block.attention.dropout;
    let names = [GradientName::GradDropped, GradientName::GradWeights];
    let formula = match dropout {
        Some(_) => "dp'[i,j] = Σ_c do[i,c]·v[j,c], dp[i,j] = dp'[i,j]/(1 − p)",
        None => "dp[i,j] = Σ_c do[i,c]·v[j,c]",
    };
    let mut part = back.part(&names, words.heading_grad_weights(), formula);
    part.blocks
        .push(Block::Paragraph(words.grad_weights(dropout.is_some())));
    if run.masks_keys() {
        let text = words.grad_weights_of_dropped_keys();
        part.blocks.push(Block::Paragraph(text));
    }
    let mut told = false;
    for &[b, h] in &run.groups {
        let mut meaning = None;
        part.blocks.extend(run.group_heading([b, h]));
        for &i in &run.rows {
            let row = [b, h, i];
            for j in back.written(row, &mut part) {
                push_weight(back, [b, h, i, j], &mut part);
            }
            meaning = meaning.or_else(|| best_and_worst(back, row));
        }
        part.blocks
            .extend(back.matrix("dP", 'q', Some('k'), GradientName::GradWeights, &[b, h]));
        tell(&mut told, meaning, &mut part);
    }
    part
}

/// The lines of one weight.
fn push_weight(back: &Back<'_, '_>, at: [usize; 4], part: &mut Part) {
    let run = back.run;
    let [b, h, i, j] = at;
    let g = run.kv_head(h);
    let gradient = (0..run.dv).map(|c| back.entry(GradientName::GradOutput, &[b, h, i, c]));
    let value = (0..run.dv).map(|c| run.entry(StepName::V, &[b, g, j, c]));
    let product = dot(gradient, value);
    let of_weight = back.entry(GradientName::GradWeights, &at);
    let Some(dropout) = run.subject.block.attention.dropout else {
        part.blocks
            .push(worked(format!("dp[{i},{j}]"), vec![product], of_weight));
        return;
    };
    let of_dropped = back.entry(GradientName::GradDropped, &at);
    part.blocks.push(worked(
        format!("dp'[{i},{j}]"),
        vec![product],
        of_dropped.clone(),
    ));
    let lost = run.at(StepName::Dropped, &at) == 0.0 && of_weight.value == 0.0;
    let chain = if lost {
        Expr::Product(vec![num(of_dropped), num(0.0)])
    } else {
        over(num(of_dropped), minus(num(1.0), num(dropout.p)))
    };
    part.blocks
        .push(worked(format!("dp[{i},{j}]"), vec![chain], of_weight));
}

/// Which key's weight the loss would gain most from, and which least.
fn best_and_worst(back: &Back<'_, '_>, row: [usize; 3]) -> Option<String> {
    let [b, h, i] = row;
    let [kept, _] = back.run.kept_and_written(row);
    let value = |j: usize| back.at(GradientName::GradWeights, &[b, h, i, j]);
    let [most, least] = extremes(&kept, value)?;
    let show = |j: usize| back.run.show(value(j));
    (value(most) > value(least)).then(|| {
        back.words
            .grad_weights_meaning(i, (most, &show(most)), (least, &show(least)))
    })
}

/// The keys of the largest and of the smallest number.
pub(super) fn extremes(keys: &[usize], value: impl Fn(usize) -> f64) -> Option<[usize; 2]> {
    let order = |x: &usize, y: &usize| value(*x).total_cmp(&value(*y));
    let most = keys.iter().copied().max_by(order)?;
    let least = keys.iter().copied().min_by(order)?;
    Some([most, least])
}

/// Adds a sentence about the first head that has one.
pub(super) fn tell(told: &mut bool, meaning: Option<String>, part: &mut Part) {
    if !*told {
        *told = meaning.is_some();
        part.blocks.extend(meaning.map(finding));
    }
}

impl Back<'_, '_> {
    /// The keys of a row that are written out; says so if there are others, or none.
    pub(super) fn written(&self, row: [usize; 3], part: &mut Part) -> Vec<usize> {
        let [_, _, i] = row;
        let run = self.run;
        if run.is_empty_row(row) {
            part.blocks.push(Block::Item(self.words.back_empty_row(i)));
            return Vec::new();
        }
        let [kept, written] = run.kept_and_written(row);
        if written.len() < kept.len() {
            let text = self.words.heaviest_keys(written.len(), run.keys);
            part.blocks.push(Block::Item(text));
        }
        written
    }
}
