//! From the heads back to one row a token: concatenation, W_O, residual.

use super::projection::{linear_entry, push_linear, shown_entries};
use super::run::{Run, worked};
use crate::Origin;
use crate::entry::Number;
use crate::explanation::{Block, Part};
use crate::expr::{num, sum};
use qkv::StepName;

pub(super) fn parts(run: &Run<'_>) -> Vec<Part> {
    let mut parts = Vec::new();
    if run.step(StepName::Concatenated).is_some() {
        parts.push(concatenated(run));
    }
    if run.step(StepName::Projected).is_some() {
        parts.push(projected(run));
    }
    if run.step(StepName::Residual).is_some() {
        parts.push(residual(run));
    }
    parts
}

fn entry_heading(run: &Run<'_>, b: usize) -> Option<Block> {
    (run.batch > 1).then(|| Block::Heading(run.words.group(Some(b), None, None)))
}

fn concatenated(run: &Run<'_>) -> Part {
    let words = run.words;
    let steps = [StepName::Concatenated];
    let formula = "Z = [O₀, O₁, …]";
    let mut part = run.part(&steps, words.heading_concatenated(), formula);
    part.blocks
        .push(Block::Paragraph(words.concatenated(run.heads, run.dv)));
    for b in shown_entries(run, run.batch) {
        part.blocks.extend(entry_heading(run, b));
        part.blocks
            .push(run.step_matrix("Z", 'z', None, StepName::Concatenated, &[b]));
    }
    part
}

fn projected(run: &Run<'_>) -> Part {
    let words = run.words;
    let Some(linear) = &run.subject.block.output else {
        return Part::default();
    };
    let bias = if linear.bias().is_some() {
        " + b_O"
    } else {
        ""
    };
    let formula = format!("Y = Z·W_O{bias}");
    let mut part = run.part(&[StepName::Projected], words.heading_projected(), &formula);
    part.blocks.push(Block::Paragraph(
        words.output_projection(linear.in_width(), linear.out_width()),
    ));
    push_linear(run, linear, 'O', &mut part);
    for b in shown_entries(run, run.batch) {
        part.blocks.extend(entry_heading(run, b));
        for &i in &run.rows {
            let row: Vec<Number> = (0..linear.in_width())
                .map(|r| run.entry(StepName::Concatenated, &[b, i, r]))
                .collect();
            for c in run.columns(linear.out_width()) {
                part.blocks.push(worked(
                    format!("y[{i},{c}] = {}", words.row_times_column("z", i, "O", c)),
                    vec![linear_entry(linear, 'O', &row, c)],
                    run.entry(StepName::Projected, &[b, i, c]),
                ));
            }
        }
        part.blocks
            .push(run.step_matrix("Y", 'y', None, StepName::Projected, &[b]));
    }
    part
}

fn residual(run: &Run<'_>) -> Part {
    let words = run.words;
    let Origin::Projected { x, .. } = run.subject.origin else {
        return Part::default();
    };
    let before = run.last_of(&[StepName::Concatenated, StepName::Projected]);
    let letter = if before == StepName::Projected {
        'y'
    } else {
        'z'
    };
    let positioned = run.step(StepName::XPositioned);
    let (x, name, entry) = match positioned {
        Some(positioned) => (positioned, "x'", StepName::XPositioned.as_str()),
        None => (x, "x", "x"),
    };
    let formula = format!("r[i,c] = {name}[i,c] + {letter}[i,c]");
    let mut part = run.part(&[StepName::Residual], words.heading_residual(), &formula);
    part.blocks
        .push(Block::Paragraph(words.residual(positioned.is_some())));
    let width = x.shape().last().copied().unwrap_or(0);
    for b in shown_entries(run, run.batch) {
        part.blocks.extend(entry_heading(run, b));
        for &i in &run.rows {
            for c in run.columns(width) {
                let token = Number::of(entry, x, &[b, i, c]);
                let terms = vec![num(token), num(run.entry(before, &[b, i, c]))];
                part.blocks.push(worked(
                    format!("r[{i},{c}]"),
                    vec![sum(terms)],
                    run.entry(StepName::Residual, &[b, i, c]),
                ));
            }
        }
        part.blocks
            .push(run.step_matrix("R", 'r', None, StepName::Residual, &[b]));
    }
    part
}
