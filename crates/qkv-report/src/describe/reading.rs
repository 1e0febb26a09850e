//! How the formulas of a run are to be read, sign by sign.

use super::run::Run;
use crate::explanation::Block;
use qkv::{Scale, StepName};

/// Only the signs that this run uses.
pub(super) fn blocks(run: &Run<'_>) -> Vec<Block> {
    let words = run.words;
    let attention = &run.subject.block.attention;
    let scale = match attention.scale {
        Scale::InverseSqrt => None,
        Scale::Factor(factor) => Some(run.show(factor)),
    };
    let mut items = vec![
        words.read_indices(),
        words.read_transpose(),
        words.read_root(scale.as_deref()),
        words.read_mask(run.step(StepName::Masked).is_some()),
        words.read_softmax(),
        words.read_sums(),
        words.read_exp(),
    ];
    if attention.softcap.is_some() {
        items.push(words.read_tanh());
    }
    if attention.alibi.is_some() {
        items.push(words.read_distance());
    }
    let mut blocks = vec![Block::Paragraph(words.reading_follows())];
    blocks.extend(items.into_iter().map(Block::Item));
    blocks
}
