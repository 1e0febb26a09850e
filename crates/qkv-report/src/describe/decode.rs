//! A step of decoding: what the cache saves, and that nothing else changes.

use super::beside::{Window, minus};
use super::run::Run;
use crate::explanation::{Block, Part};
use qkv::StepName;
use qkv_check::decode::Against;

pub(super) fn part(run: &Run<'_>) -> Option<Part> {
    let decoded = run.subject.more.decoded.as_ref()?;
    let words = run.words;
    let past = run.subject.past_len;
    if past == 0 {
        return None;
    }
    let formula = "K = [K_past; K_new], V = [V_past; V_new]";
    let mut part = run.part(&[], words.heading_decode(), formula);
    part.blocks.push(Block::Item(words.decode_reused(past)));
    part.blocks
        .push(Block::Item(words.decode_new(run.queries, past, run.keys)));
    part.blocks
        .push(Block::Item(words.decode_saved(run.queries, run.keys)));
    let full = decoded.against == Against::FullRun;
    part.blocks.push(Block::Paragraph(match full {
        true => words.decode_against_full_run(run.keys),
        false => words.decode_against_one_call(run.queries, run.keys),
    }));
    let own = run.step(StepName::Output)?;
    let window = Window::of_output(run);
    for &group in &run.groups {
        part.blocks.extend(run.group_heading(group));
        if window.rows.is_empty() || window.columns.is_empty() {
            continue;
        }
        let before = if full { past } else { 0 };
        let row = |i: usize| run.row_name('o', i);
        let other_row = |i: usize| format!("o{}", before + i);
        let column = |c: usize| c.to_string();
        let step = window.of(own, Some(StepName::Output), group);
        let other = window.of(&decoded.output, None, group);
        let difference = minus(&step, &other);
        part.blocks.push(Block::Beside(vec![
            window.matrix(words.decode_step(), row, column, step),
            window.matrix(words.decode_other(full), other_row, column, other),
            window.matrix(words.permuted_difference(), row, column, difference),
        ]));
    }
    part.blocks.push(Block::Paragraph(match decoded.is_equal() {
        true => words.decode_equal(),
        false => words.decode_differs(&run.show(decoded.difference)),
    }));
    Some(part)
}
