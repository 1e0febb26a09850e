//! The weighted sum of the values, and lse.

use super::leaders::{Largest, mix};
use super::run::{Run, finding, worked};
use super::softmax::push_rest;
use crate::explanation::{Block, Part};
use crate::expr::{Expr, Function, call, num, sum, times};
use qkv::StepName;

pub(super) fn parts(run: &Run<'_>) -> Vec<Part> {
    vec![output(run), lse(run)]
}

fn output(run: &Run<'_>) -> Part {
    let words = run.words;
    let mixing = run.mixing();
    let letter = if mixing == StepName::Dropped {
        "w'"
    } else {
        "w"
    };
    let formula = format!("o[i,c] = Σ_j {letter}[i,j]·v[j,c]");
    let mut part = run.part(&[StepName::Output], words.heading_output(), &formula);
    part.blocks
        .push(Block::Paragraph(words.output(run.dv, run.masks_keys())));
    for &[b, h] in &run.groups {
        part.blocks.extend(run.group_heading([b, h]));
        for &i in &run.rows {
            push_row(run, [b, h, i], &mut part);
        }
        part.blocks
            .push(run.step_matrix("O", 'o', None, StepName::Output, &[b, h]));
    }
    part
}

fn push_row(run: &Run<'_>, row: [usize; 3], part: &mut Part) {
    let [b, h, i] = row;
    if run.is_empty_row(row) {
        part.blocks.push(Block::Item(run.words.empty_output(i)));
        return;
    }
    let kv_head = run.kv_head(h);
    let mixing = run.mixing();
    let weight = |j: usize| run.at(mixing, &[b, h, i, j]);
    let kept: Vec<usize> = (0..run.keys)
        .filter(|&j| run.takes_part([b, h, i, j]))
        .collect();
    let written: Vec<usize> = run
        .keys_of(row)
        .into_iter()
        .filter(|j| kept.contains(j))
        .collect();
    for c in run.columns(run.dv) {
        let value = |j: usize| run.at(StepName::V, &[b, kv_head, j, c]);
        let mut terms: Vec<_> = written
            .iter()
            .map(|&j| {
                let value = run.entry(StepName::V, &[b, kv_head, j, c]);
                times(run.entry(mixing, &[b, h, i, j]), value)
            })
            .collect();
        push_rest(&mut terms, &written, &kept, |j| weight(j) * value(j));
        part.blocks.push(worked(
            format!("o[{i},{c}]"),
            vec![sum(terms)],
            run.entry(StepName::Output, &[b, h, i, c]),
        ));
    }
    if run.columns(run.dv).len() < run.dv {
        part.blocks
            .push(Block::Item(run.words.other_columns(run.dv)));
    }
    // What dropout sets to 0 has no part in the output.
    let weights = kept.iter().map(|&j| (j, weight(j)));
    let weights: Vec<(usize, f64)> = weights.filter(|(_, weight)| *weight != 0.0).collect();
    let best = Largest::of(&weights, |share| run.percent(share));
    if run.dv > 0 && (best.is_some() || weights.is_empty()) {
        let mix = mix(run, row, &weights);
        let none = Largest::default();
        let leaders = best.as_ref().unwrap_or(&none).leaders();
        part.blocks
            .push(finding(run.words.output_meaning(i, &leaders, &mix)));
    }
}

fn lse(run: &Run<'_>) -> Part {
    let words = run.words;
    let sinks = run.subject.block.attention.sinks.is_some();
    let formula = "lse[i] = m[i] + ln Σ_j e[i,j]";
    let mut part = run.part(&[StepName::Lse], words.heading_lse(), formula);
    part.blocks.push(Block::Paragraph(words.lse(sinks)));
    for &[b, h] in &run.groups {
        part.blocks.extend(run.group_heading([b, h]));
        for &i in &run.rows {
            let row = [b, h, i];
            if run.is_empty_row(row) {
                part.blocks.push(worked(
                    format!("lse[{i}]"),
                    vec![],
                    run.entry(StepName::Lse, &row),
                ));
                continue;
            }
            let exp = |j: usize| run.entry(StepName::Exp, &[b, h, i, j]);
            let [kept, written] = run.kept_and_written(row);
            let total: f64 = kept.iter().map(|&j| exp(j).value).sum();
            if sinks {
                let mut terms: Vec<Expr> = written.iter().map(|&j| num(exp(j))).collect();
                push_rest(&mut terms, &written, &kept, |j| exp(j).value);
                part.blocks
                    .push(worked(format!("Σ e[{i},·]"), vec![sum(terms)], total));
            }
            let max = || num(run.entry(StepName::Max, &row));
            let mut chain = vec![sum(vec![max(), call(Function::Ln, num(total))])];
            if total != 1.0 {
                chain.push(sum(vec![max(), num(total.ln())]));
            }
            part.blocks.push(worked(
                format!("lse[{i}]"),
                chain,
                run.entry(StepName::Lse, &row),
            ));
        }
    }
    part
}
