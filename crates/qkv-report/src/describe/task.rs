//! The opening of an exercise, and what a pencil needs beside the formulas.

use super::opening::{options, sizes};
use super::run::Run;
use crate::explanation::{Block, Cell, Matrix, Part};
use qkv::StepName;

/// What is to be done.
pub(super) fn instructions(run: &Run<'_>) -> Vec<Block> {
    let words = run.words;
    vec![
        Block::Paragraph(words.name_and_date()),
        Block::Paragraph(words.task()),
        Block::Item(words.where_to_write()),
        Block::Item(words.rounding(run.digits)),
        Block::Item(words.notation()),
    ]
}

/// With which sizes and options, for which queries.
pub(super) fn problem(run: &Run<'_>) -> Vec<Block> {
    let mut blocks = sizes(run);
    blocks.extend(options(run));
    if run.rows_chosen && run.rows.len() < run.queries {
        blocks.push(Block::Paragraph(run.words.rows_asked(&run.rows)));
    }
    blocks
}

/// The values of exp that are in the table, in halves from 0 down.
const TABLE: usize = 9;

/// Adds to the softmax how to get exp: from a table, where one suffices.
pub(super) fn add_exp(run: &Run<'_>, parts: &mut [Part]) {
    let weights = |part: &&mut Part| {
        let mut steps = part.steps.iter().flat_map(|shape| &shape.steps);
        steps.any(|step| *step == StepName::Exp.as_str())
    };
    let Some(part) = parts.iter_mut().find(weights) else {
        return;
    };
    let at = part
        .blocks
        .iter()
        .position(|block| !matches!(block, Block::Paragraph(_)))
        .unwrap_or(part.blocks.len());
    if !table_suffices(run) {
        let text = run.words.exp_by_calculator();
        part.blocks.insert(at, Block::Paragraph(text));
        return;
    }
    let arguments: Vec<f64> = (0..TABLE).map(|n| 0.0 - n as f64 / 2.0).collect();
    let values = arguments.iter().map(|x| Cell::Number(x.exp().into()));
    let table = Matrix {
        name: "x".into(),
        rows: vec!["exp(x)".into()],
        columns: arguments.iter().map(|x| run.show(*x)).collect(),
        cells: vec![values.collect()],
    };
    part.blocks
        .insert(at, Block::Paragraph(run.words.exp_table()));
    part.blocks.insert(at + 1, Block::Matrix(table));
}

fn table_suffices(run: &Run<'_>) -> bool {
    if run.subject.block.attention.sinks.is_some() {
        return false;
    }
    let (logits, _) = run.logits();
    run.groups.iter().all(|&[b, h]| {
        run.rows.iter().all(|&i| {
            let max = run.at(StepName::Max, &[b, h, i]);
            (0..run.keys)
                .filter(|&j| run.takes_part([b, h, i, j]))
                .map(|j| 2.0 * (max - run.at(logits, &[b, h, i, j])))
                .all(|halves| halves == halves.trunc() && halves < TABLE as f64)
        })
    })
}
