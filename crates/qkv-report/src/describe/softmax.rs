//! From scores to weights, row by row.

use super::leaders::Largest;
use super::run::{Run, finding, worked};
use crate::entry::Entry;
use crate::explanation::{Block, HeatMap, Part};
use crate::expr::{Expr, Function, Rest, call, minus, num, over, sum, times};
use qkv::{Sinks, StepName};

pub(super) fn parts(run: &Run<'_>) -> Vec<Part> {
    let mut parts = vec![softmax(run)];
    if run.step(StepName::Dropped).is_some() {
        parts.push(dropped(run));
    }
    parts
}

fn softmax(run: &Run<'_>) -> Part {
    let words = run.words;
    let (_, letter) = run.logits();
    let sinks = run.subject.block.attention.sinks.is_some();
    let steps = [
        StepName::Max,
        StepName::Exp,
        StepName::Sum,
        StepName::Weights,
    ];
    let sink = if sinks { " + exp(sink − m[i])" } else { "" };
    let formula = format!(
        "m[i] = max_j {letter}[i,j], e[i,j] = exp({letter}[i,j] − m[i]), \
         S[i] = Σ_j e[i,j]{sink}, w[i,j] = e[i,j]/S[i]"
    );
    let mut part = run.part(&steps, words.heading_softmax(), &formula);
    part.blocks.push(Block::Paragraph(words.softmax()));
    if sinks {
        part.blocks.push(Block::Paragraph(words.sinks()));
    }
    for &[b, h] in &run.groups {
        part.blocks.extend(run.group_heading([b, h]));
        for &i in &run.rows {
            push_row(run, [b, h, i], &mut part);
        }
        part.blocks
            .push(run.score_matrix(StepName::Weights, "w", [b, h]));
    }
    push_maps(run, &mut part);
    part
}

/// Maximum, exponentials, sum and weights of one row.
fn push_row(run: &Run<'_>, row: [usize; 3], part: &mut Part) {
    let [b, h, i] = row;
    let words = run.words;
    part.blocks.push(Block::Heading(run.query(i)));
    if run.is_empty_row(row) {
        part.blocks.push(Block::Item(words.empty_row()));
        return;
    }
    let (logits, _) = run.logits();
    let kept: Vec<usize> = (0..run.keys)
        .filter(|&j| run.takes_part([b, h, i, j]))
        .collect();
    let written: Vec<usize> = run
        .keys_of(row)
        .into_iter()
        .filter(|j| kept.contains(j))
        .collect();
    if kept.len() < run.keys {
        let dropped: Vec<usize> = (0..run.keys).filter(|j| !kept.contains(j)).collect();
        part.blocks.push(Block::Item(words.no_share(&dropped)));
    }
    let max = run.entry(StepName::Max, &row);
    let total = run.entry(StepName::Sum, &row);
    let values: Vec<Expr> = kept
        .iter()
        .map(|&j| num(run.entry(logits, &[b, h, i, j])))
        .collect();
    // In a long row the maximum is named, not searched for on paper.
    let chain = if written.len() < kept.len() {
        vec![]
    } else if values.len() == 1 {
        values
    } else {
        vec![Expr::Max(values)]
    };
    part.blocks
        .push(worked(format!("m[{i}]"), chain, max.clone()));
    for &j in &written {
        let value = run.entry(logits, &[b, h, i, j]);
        let difference = value.value - max.value;
        part.blocks.push(worked(
            format!("e[{i},{j}]"),
            vec![
                call(Function::Exp, minus(num(value), num(max.clone()))),
                call(Function::Exp, num(difference)),
            ],
            run.entry(StepName::Exp, &[b, h, i, j]),
        ));
    }
    let exp = |j: usize| run.entry(StepName::Exp, &[b, h, i, j]);
    let mut terms: Vec<Expr> = written.iter().map(|&j| num(exp(j))).collect();
    push_rest(&mut terms, &written, &kept, |j| exp(j).value);
    if let Some(Sinks(sinks)) = &run.subject.block.attention.sinks {
        let difference = sinks[h] - max.value;
        let sink = difference.exp();
        part.blocks.push(worked(
            words.sink_term(),
            vec![
                call(Function::Exp, minus(num(sinks[h]), num(max))),
                call(Function::Exp, num(difference)),
            ],
            sink,
        ));
        terms.push(num(sink));
    }
    part.blocks
        .push(worked(format!("S[{i}]"), vec![sum(terms)], total.clone()));
    for &j in &written {
        part.blocks.push(worked(
            format!("w[{i},{j}]"),
            vec![over(num(exp(j)), num(total.clone()))],
            run.entry(StepName::Weights, &[b, h, i, j]),
        ));
    }
    let weight = |j: usize| run.at(StepName::Weights, &[b, h, i, j]);
    let mut terms: Vec<Expr> = written
        .iter()
        .map(|&j| num(run.entry(StepName::Weights, &[b, h, i, j])))
        .collect();
    push_rest(&mut terms, &written, &kept, weight);
    let total: f64 = kept.iter().map(|&j| weight(j)).sum();
    part.blocks
        .push(worked(format!("Σ w[{i},·]"), vec![sum(terms)], total));
    let weights: Vec<(usize, f64)> = kept.iter().map(|&j| (j, weight(j))).collect();
    if let Some(best) = Largest::of(&weights, |share| run.percent(share)) {
        let sinks = run.subject.block.attention.sinks.is_some();
        let left = sinks.then(|| run.percent(1.0 - total));
        let meaning = words.row_meaning(i, &best.leaders(), left.as_deref());
        part.blocks.push(finding(meaning));
    }
}

/// The keys that are not written out, as one term.
pub(super) fn push_rest(
    terms: &mut Vec<Expr>,
    written: &[usize],
    kept: &[usize],
    value: impl Fn(usize) -> f64,
) {
    let rest: Vec<usize> = kept
        .iter()
        .copied()
        .filter(|j| !written.contains(j))
        .collect();
    if !rest.is_empty() {
        terms.push(Expr::Rest {
            of: Rest::Keys,
            count: rest.len(),
            value: rest.iter().map(|&j| value(j)).sum(),
        });
    }
}

fn push_maps(run: &Run<'_>, part: &mut Part) {
    if run.keys == 0 || run.queries == 0 {
        return;
    }
    for &[b, h] in &run.maps {
        part.blocks.push(Block::HeatMap(HeatMap {
            at: Some(Entry {
                of: StepName::Weights.as_str(),
                index: vec![b, h],
            }),
            name: run.words.heat_map(run.group_name([b, h]).as_deref()),
            rows: (0..run.queries).map(|i| run.row_name('q', i)).collect(),
            columns: (0..run.keys).map(|j| run.row_name('k', j)).collect(),
            values: run.step(StepName::Weights).map_or(Vec::new(), |weights| {
                (0..run.queries)
                    .map(|i| weights.row(&[b, h, i]).to_vec())
                    .collect()
            }),
        }));
    }
    let others = run.batch * run.heads - run.maps.len();
    if others > 0 {
        part.blocks.push(Block::Item(run.words.other_heads(others)));
    }
}

fn dropped(run: &Run<'_>) -> Part {
    let words = run.words;
    let dropout = run.subject.block.attention.dropout;
    let (p, seed) = dropout.map_or((0.0, 0), |dropout| (dropout.p, dropout.seed));
    let factor = 1.0 / (1.0 - p);
    let formula = "w'[i,j] = w[i,j]/(1 − p)";
    let mut part = run.part(&[StepName::Dropped], words.heading_dropout(), formula);
    part.blocks.push(Block::Paragraph(words.dropout(
        &run.show(p),
        seed,
        &run.show(factor),
    )));
    for &[b, h] in &run.groups {
        part.blocks.extend(run.group_heading([b, h]));
        for &i in &run.rows {
            let drawn = |j: &usize| {
                let weight = |step| run.at(step, &[b, h, i, *j]);
                weight(StepName::Weights) != 0.0 && weight(StepName::Dropped) == 0.0
            };
            let drawn: Vec<usize> = run.keys_of([b, h, i]).into_iter().filter(drawn).collect();
            part.blocks
                .push(Block::Item(words.dropout_drawn(i, &drawn)));
            for j in run.keys_of([b, h, i]) {
                let at = [b, h, i, j];
                let before = run.entry(StepName::Weights, &at);
                let after = run.entry(StepName::Dropped, &at);
                if before.value == 0.0 {
                    continue;
                }
                let label = format!("w'[{i},{j}]");
                part.blocks.push(if after.value == 0.0 {
                    worked(label, vec![times(before, 0.0)], after)
                } else {
                    let left = minus(num(1.0), num(p));
                    worked(label, vec![over(num(before), left)], after)
                });
            }
            let row = run
                .step(StepName::Dropped)
                .map_or(&[][..], |s| s.row(&[b, h, i]));
            let total: f64 = row.iter().sum();
            let sum = Block::Item(words.dropout_sum(i, &run.show(total)));
            part.blocks.push(Block::Finding(Box::new(sum)));
        }
        part.blocks
            .push(run.score_matrix(StepName::Dropped, "w'", [b, h]));
    }
    part
}
