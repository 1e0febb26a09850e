//! What to check, and what needs attention.

use super::leaders::Largest;
use super::run::Run;
use crate::explanation::{Block, Part};
use crate::words::Heaviest;
use qkv::{Bias, StepName};

/// The largest finite number of half precision.
const LARGEST_HALF: f64 = 65504.0;
/// A bias this low is what programs add where they mean to mask.
const LIKE_A_MASK: f64 = -1e4;
/// Rows listed one by one in a warning or a check.
const LISTED: usize = 8;

pub(super) fn parts(run: &Run<'_>) -> Vec<Part> {
    let mut parts = vec![checks(run)];
    let warnings = warnings(run);
    if !warnings.is_empty() {
        parts.push(Part {
            heading: run.words.heading_warnings(),
            blocks: warnings.into_iter().map(Block::Warning).collect(),
            ..Part::default()
        });
    }
    parts
}

fn checks(run: &Run<'_>) -> Part {
    let words = run.words;
    let mut part = run.part(&[], words.heading_checks(), "");
    let attention = &run.subject.block.attention;
    let factor = attention.scale.factor(run.dk.max(1));
    part.blocks.push(Block::Item(words.check_shapes(
        run.queries,
        run.keys,
        run.dk,
        run.dv,
    )));
    part.blocks.push(Block::Item(words.check_scale(
        matches!(attention.scale, qkv::Scale::InverseSqrt),
        run.dk,
        &run.show(factor),
    )));
    part.blocks.push(Block::Item(words.check_softmax(
        (run.keys > 0).then(|| run.masks_keys()),
        attention.sinks.is_some(),
    )));
    for &[b, h] in &run.groups {
        for &i in run.rows.iter().take(LISTED) {
            let row = run
                .step(StepName::Weights)
                .map_or(&[][..], |s| s.row(&[b, h, i]));
            let total: f64 = row.iter().sum();
            let kept = (0..row.len()).filter(|&j| run.takes_part([b, h, i, j]));
            let weights: Vec<(usize, f64)> = kept.map(|j| (j, row[j])).collect();
            let best = Largest::of(&weights, |weight| run.show(weight));
            let heaviest = match &best {
                Some(best) => Heaviest::At(best.leaders()),
                None if run.is_empty_row([b, h, i]) => Heaviest::NoKey,
                None => Heaviest::NotFinite,
            };
            let group = run.group_name([b, h]);
            let total = run.show(total);
            let text = words.check_row(group.as_deref(), i, &total, &heaviest);
            part.blocks.push(Block::Item(text));
        }
    }
    part.blocks.push(Block::Item(words.check_output(run.dv)));
    part
}

fn warnings(run: &Run<'_>) -> Vec<String> {
    let words = run.words;
    let mut warnings = Vec::new();
    let empty = run.subject.steps.empty_rows();
    for &[b, h, i] in empty.iter().take(LISTED) {
        warnings.push(words.warn_empty_row(run.group_name([b, h]).as_deref(), i, run.keys));
    }
    if empty.len() > LISTED {
        warnings.push(words.warn_more_rows(empty.len() - LISTED));
    }
    let low = rows_of_low_biases(run);
    for &([b, h, i], highest) in low.iter().take(LISTED) {
        let group = run.group_name([b, h]);
        warnings.push(words.warn_low_biases(group.as_deref(), i, &run.show(highest)));
    }
    if low.len() > LISTED {
        warnings.push(words.warn_more_rows(low.len() - LISTED));
    }
    let mut more = 0;
    for (listed, row) in not_finite(run).into_iter().enumerate() {
        match listed {
            0..LISTED => warnings.push(row),
            _ => more += 1,
        }
    }
    if more > 0 {
        warnings.push(words.warn_more_rows(more));
    }
    let scores = run.step(StepName::Scores).map_or(&[][..], |s| s.data());
    let finite = scores.iter().filter(|score| score.is_finite());
    let largest = finite.fold(0.0_f64, |largest, score| largest.max(score.abs()));
    if largest > LARGEST_HALF {
        warnings.push(words.warn_half_precision(&run.show(largest)));
    }
    warnings
}

/// The rows whose kept keys all have a bias so low that a mask was probably meant, with the highest
/// bias among them.
fn rows_of_low_biases(run: &Run<'_>) -> Vec<([usize; 3], f64)> {
    let scores = [run.batch, run.heads, run.queries, run.keys];
    let bias = run.subject.block.attention.bias;
    let Some(bias) = bias.and_then(|Bias(view)| view.broadcast(scores)) else {
        return Vec::new();
    };
    let mut rows = Vec::new();
    for b in 0..run.batch {
        for h in 0..run.heads {
            for i in 0..run.queries {
                let highest = (0..run.keys)
                    .filter(|&j| run.takes_part([b, h, i, j]))
                    .map(|j| bias.get([b, h, i, j]))
                    .reduce(f64::max);
                if let Some(highest) = highest.filter(|&highest| highest <= LIKE_A_MASK) {
                    rows.push(([b, h, i], highest));
                }
            }
        }
    }
    rows
}

/// The rows whose output is not finite, and which input is to blame.
fn not_finite(run: &Run<'_>) -> Vec<String> {
    let mut rows = Vec::new();
    let Some(output) = run.step(StepName::Output) else {
        return rows;
    };
    let bad = |row: &[f64]| row.iter().any(|value| !value.is_finite());
    for b in 0..run.batch {
        for h in 0..run.heads {
            for i in 0..run.queries {
                let weights = run
                    .step(StepName::Weights)
                    .map_or(&[][..], |s| s.row(&[b, h, i]));
                let row = output.row(&[b, h, i]);
                if bad(row) || bad(weights) {
                    let nan = row.iter().chain(weights).any(|value| value.is_nan());
                    let cause = cause(run, [b, h, i]);
                    let group = run.group_name([b, h]);
                    rows.push(run.words.warn_not_finite(group.as_deref(), i, nan, &cause));
                }
            }
        }
    }
    rows
}

/// The sentence that names the number that is not finite.
fn cause(run: &Run<'_>, [b, h, i]: [usize; 3]) -> String {
    let words = run.words;
    let kv_head = run.kv_head(h);
    let found = |step, at: &[usize]| {
        let row = run.step(step).map_or(&[][..], |s| s.row(at));
        let bad = row.iter().find(|value| !value.is_finite());
        bad.map(|value| run.show(*value))
    };
    if let Some(value) = found(run.final_q(), &[b, h, i]) {
        return words.cause_query(i, &value);
    }
    for j in (0..run.keys).filter(|&j| run.takes_part([b, h, i, j])) {
        if let Some(value) = found(run.final_k(), &[b, kv_head, j]) {
            return words.cause_key(j, &value);
        }
        if let Some(value) = found(StepName::V, &[b, kv_head, j]) {
            return words.cause_value(j, &value);
        }
    }
    words.cause_scores()
}
