//! The same tokens in another order.

use super::beside::{Window, minus};
use super::run::Run;
use crate::explanation::{Block, Part};
use qkv::StepName;

pub(super) fn part(run: &Run<'_>) -> Option<Part> {
    let permuted = run.subject.more.permuted.as_ref()?;
    let words = run.words;
    let order = &permuted.order;
    let mut part = run.part(&[], words.heading_permuted(), "o'[i] = o[order[i]]");
    part.blocks.push(Block::Paragraph(words.permuted(order)));
    let (first, second) = (
        run.step(StepName::Output)?,
        permuted.steps.get(StepName::Output)?,
    );
    for &[b, h] in &run.groups {
        part.blocks.extend(run.group_heading([b, h]));
        let here = Window::of_output(run);
        let there = Window {
            rows: here.rows.iter().map(|&i| order[i]).collect(),
            columns: here.columns.clone(),
        };
        if here.rows.is_empty() || here.columns.is_empty() {
            continue;
        }
        let column = |c: usize| c.to_string();
        let row = |i: usize| run.row_name('o', i);
        let was = here.of(first, Some(StepName::Output), [b, h]);
        let is = here.of(second, None, [b, h]);
        let difference = minus(&is, &there.of(first, None, [b, h]));
        let moved = |i: usize| match run.query_labels.get(order[i]) {
            Some(token) => format!("o'{i} {token}"),
            None => format!("o'{i}"),
        };
        let both = |i: usize| format!("o'{i} − o{}", order[i]);
        part.blocks.push(Block::Beside(vec![
            here.matrix("O".into(), row, column, was),
            here.matrix("O'".into(), moved, column, is),
            here.matrix(words.permuted_difference(), both, column, difference),
        ]));
    }
    let difference = run.show(permuted.difference);
    if permuted.is_same() {
        let rounded = permuted.difference > 0.0;
        part.blocks
            .push(Block::Paragraph(words.permuted_same(rounded, &difference)));
    } else {
        part.blocks
            .push(Block::Paragraph(words.permuted_other(&difference)));
    }
    for &(option, alone) in &permuted.causes {
        let ends = alone > permuted.bound;
        let alone = run.show(alone);
        part.blocks.push(Block::Item(words.permuted_cause(
            run.option_name(option),
            option,
            ends,
            &alone,
        )));
    }
    if !permuted.causes.is_empty() {
        part.blocks.push(Block::Paragraph(
            words.permuted_without(&run.show(permuted.without), permuted.without > 0.0),
        ));
    }
    Some(part)
}
