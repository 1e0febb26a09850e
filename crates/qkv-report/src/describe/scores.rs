//! From queries and keys to the scores that enter the softmax.

use super::leaders::Largest;
use super::places;
use super::run::{Run, finding, worked};
use super::visibility;
use crate::entry::Number;
use crate::explanation::{Block, Part};
use crate::expr::{Expr, Function, call, dot, minus, num, over, times};
use qkv::{AnyView, Scale, StepName};

pub(super) fn parts(run: &Run<'_>) -> Vec<Part> {
    let mut parts = vec![scores(run), scaled(run)];
    if run.step(StepName::Capped).is_some() {
        parts.push(capped(run));
    }
    if run.step(StepName::Biased).is_some() {
        parts.push(biased(run));
    }
    parts.extend(visibility::part(run));
    parts
}

/// Calls `line` with every `[batch, head, query, key]` that is worked out, then adds the matrix.
fn each(
    run: &Run<'_>,
    part: &mut Part,
    step: StepName,
    letter: &str,
    line: impl Fn([usize; 4]) -> Block,
) {
    for &[b, h] in &run.groups {
        part.blocks.extend(run.group_heading([b, h]));
        for &i in &run.rows {
            let keys = run.keys_of([b, h, i]);
            part.blocks.extend(keys.iter().map(|&j| line([b, h, i, j])));
            if keys.len() < run.keys {
                let words = run.words;
                part.blocks
                    .push(Block::Item(words.heaviest_keys(keys.len(), run.keys)));
            }
        }
        part.blocks.push(run.score_matrix(step, letter, [b, h]));
    }
}

fn scores(run: &Run<'_>) -> Part {
    let words = run.words;
    let formula = "q_i·k_j = Σ_c q[i,c]·k[j,c]";
    let mut part = run.part(&[StepName::Scores], words.heading_scores(), formula);
    let (q, k) = (run.final_q(), run.final_k());
    part.blocks
        .push(Block::Paragraph(words.scores(q != StepName::Q, run.dk)));
    each(run, &mut part, StepName::Scores, "QKᵀ", |[b, h, i, j]| {
        let kv_head = run.kv_head(h);
        let query = (0..run.dk).map(|c| run.entry(q, &[b, h, i, c]));
        let key = (0..run.dk).map(|c| run.entry(k, &[b, kv_head, j, c]));
        worked(
            format!("q{i}·k{j}"),
            vec![dot(query, key)],
            run.entry(StepName::Scores, &[b, h, i, j]),
        )
    });
    if let (Some(&[b, h]), Some(&i)) = (run.groups.first(), run.rows.first()) {
        part.blocks.extend(best_match(run, [b, h, i]).map(finding));
    }
    part
}

/// Which key a query matches best, in the run's numbers.
fn best_match(run: &Run<'_>, [b, h, i]: [usize; 3]) -> Option<String> {
    let row = run.step(StepName::Scores)?.row(&[b, h, i]);
    let numbers: Vec<(usize, f64)> = row.iter().copied().enumerate().collect();
    if row.len() < 2 || row.iter().any(|score| !score.is_finite()) {
        return None;
    }
    let best = Largest::of(&numbers, |score| run.show(score))?;
    let others = numbers.iter().filter(|(j, _)| !best.keys.contains(j));
    let next = others.max_by(|a, b| a.1.total_cmp(&b.1));
    let next = next.map(|(j, score)| (*j, run.show(*score)));
    let next = next.as_ref().map(|(j, score)| (*j, score.as_str()));
    let group = run.group_name([b, h]);
    let words = run.words;
    Some(words.best_match(group.as_deref(), i, &best.leaders(), next))
}

fn scaled(run: &Run<'_>) -> Part {
    let words = run.words;
    let root = (run.dk as f64).sqrt();
    let scale = run.subject.block.attention.scale;
    let (formula, explanation) = match scale {
        Scale::InverseSqrt => (
            "s[i,j] = q_i·k_j / √d_k".to_string(),
            words.scaled_by_root(run.dk, &run.show(root), &run.show(1.0 / root)),
        ),
        Scale::Factor(factor) => (
            "s[i,j] = scale · q_i·k_j".to_string(),
            words.scaled_by_factor(&run.show(factor), run.dk, &run.show(1.0 / root)),
        ),
    };
    let mut part = run.part(&[StepName::Scaled], words.heading_scaled(), &formula);
    part.blocks.push(Block::Paragraph(explanation));
    each(run, &mut part, StepName::Scaled, "s", |at| {
        let [_, _, i, j] = at;
        let score = run.entry(StepName::Scores, &at);
        let chain = match scale {
            Scale::Factor(factor) => vec![times(score, factor)],
            Scale::InverseSqrt => {
                let under_root = call(Function::Sqrt, num(run.dk as f64));
                let mut chain = vec![over(num(score.clone()), under_root)];
                if score.value != 0.0 && root != 1.0 {
                    chain.push(over(num(score), num(root)));
                }
                chain
            }
        };
        worked(
            format!("s[{i},{j}]"),
            chain,
            run.entry(StepName::Scaled, &at),
        )
    });
    part
}

fn capped(run: &Run<'_>) -> Part {
    let cap = run.subject.block.attention.softcap.unwrap_or(1.0);
    let formula = "c[i,j] = C·tanh(s[i,j]/C)";
    let words = run.words;
    let mut part = run.part(&[StepName::Capped], words.heading_capped(), formula);
    part.blocks
        .push(Block::Paragraph(words.capped(&run.show(cap))));
    each(run, &mut part, StepName::Capped, "c", |at| {
        let [_, _, i, j] = at;
        let scaled = run.entry(StepName::Scaled, &at);
        let tanh = call(Function::Tanh, over(num(scaled), num(cap)));
        worked(
            format!("c[{i},{j}]"),
            vec![Expr::Product(vec![num(cap), tanh])],
            run.entry(StepName::Capped, &at),
        )
    });
    part
}

/// The bias that was given: once, or for each head if they differ.
fn push_bias(run: &Run<'_>, bias: &AnyView<'_>, part: &mut Part) {
    let of = |[b, h]: [usize; 2]| -> Vec<Vec<Number>> {
        let row = |i| (0..run.keys).map(move |j| Number::from(bias.get([b, h, i, j])));
        (0..run.queries).map(|i| row(i).collect()).collect()
    };
    let Some(&first) = run.groups.first() else {
        return;
    };
    let differ = run.groups.iter().any(|&group| of(group) != of(first));
    for &group in run.groups.iter().take(if differ { usize::MAX } else { 1 }) {
        if differ {
            part.blocks.extend(run.group_heading(group));
        }
        part.blocks
            .push(run.matrix("bias".into(), 'q', Some('k'), of(group)));
    }
}

fn biased(run: &Run<'_>) -> Part {
    let attention = &run.subject.block.attention;
    let before = run.last_of(&[StepName::Scaled, StepName::Capped]);
    let letter = if before == StepName::Capped { 'c' } else { 's' };
    let shape = [run.batch, run.heads, run.queries, run.keys];
    let bias = attention.bias.and_then(|bias| bias.0.broadcast(shape));
    let mut formula = format!("b[i,j] = {letter}[i,j]");
    if bias.is_some() {
        formula.push_str(" + bias[i,j]");
    }
    if attention.alibi.is_some() {
        formula.push_str(" − slope·|p_i − j|");
    }
    let words = run.words;
    let mut part = run.part(&[StepName::Biased], words.heading_biased(), &formula);
    if bias.is_some() {
        part.blocks.push(Block::Paragraph(words.bias()));
    }
    if let Some(alibi) = &attention.alibi {
        let slope = alibi.slopes.first().copied().unwrap_or(0.0);
        part.blocks
            .push(Block::Paragraph(words.alibi(&run.show(slope))));
        places::push(run, 0, &mut part);
    }
    if let (Some(bias), false) = (&bias, run.large) {
        push_bias(run, bias, &mut part);
    }
    each(run, &mut part, StepName::Biased, "b", |at| {
        let [b, h, i, j] = at;
        let mut expr = num(run.entry(before, &at));
        if let Some(bias) = &bias {
            expr = Expr::Sum(vec![expr, num(bias.get(at))]);
        }
        if let Some(alibi) = &attention.alibi {
            let distance = minus(num(run.position(b, i) as f64), num(j as f64));
            let penalty = Expr::Product(vec![num(alibi.slopes[h]), call(Function::Abs, distance)]);
            expr = minus(expr, penalty);
        }
        worked(
            format!("b[{i},{j}]"),
            vec![expr],
            run.entry(StepName::Biased, &at),
        )
    });
    part
}
