//! What comes first: what this is, with which shapes and options.

use super::run::Run;
use super::{reading, rotary};
use crate::Origin;
use crate::explanation::Block;
use crate::number::shown;
use qkv::position::Pairing;
use qkv::{Causal, EmptyRows, Place, Scale, StepName};

pub(super) fn blocks(run: &Run<'_>) -> Vec<Block> {
    let words = run.words;
    let mut blocks = Vec::new();
    if run.subject.built_in {
        blocks.push(Block::Paragraph(words.built_in()));
    }
    blocks.push(Block::Paragraph(words.novice()));
    blocks.extend(sizes(run));
    blocks.extend(options(run));
    blocks.push(Block::Paragraph(words.how_numbers_are_shown(run.digits)));
    if run.large {
        let weights = run.batch * run.heads * run.queries * run.keys;
        blocks.push(Block::Paragraph(words.large(
            weights,
            run.longest_dot,
            &run.rows,
            run.rows_chosen,
        )));
    } else if run.rows_chosen {
        blocks.push(Block::Paragraph(words.rows_chosen(&run.rows)));
    }
    if has_small_numbers(run) {
        blocks.push(Block::Paragraph(words.small_numbers(run.digits)));
    }
    blocks
}

/// The formula, how to read it, and the shapes of this run.
pub(super) fn sizes(run: &Run<'_>) -> Vec<Block> {
    let words = run.words;
    let formula = "Attention(Q,K,V) = softmax(QKᵀ/√d_k + mask)·V";
    let mut blocks = vec![Block::Formula(formula.into())];
    blocks.extend(reading::blocks(run));
    let sizes = words.sizes(run.queries, run.keys, run.dk, run.dv);
    blocks.push(Block::Paragraph(sizes));
    if run.heads != 1 || run.kv_heads != 1 || run.batch != 1 {
        blocks.push(Block::Paragraph(words.heads(
            run.batch,
            run.heads,
            run.kv_heads,
        )));
    }
    let shape = [run.batch, run.heads, run.queries, run.dk];
    blocks.push(Block::Paragraph(words.four_axes(shape)));
    blocks
}

/// The options in force and the caller's remarks.
pub(super) fn options(run: &Run<'_>) -> Vec<Block> {
    let mut blocks = Vec::new();
    let options = in_force(run);
    let notes = run.subject.notes.iter().cloned();
    if options.is_empty() {
        blocks.extend(notes.map(Block::Paragraph));
    } else {
        blocks.push(Block::Paragraph(run.words.options_follow()));
        blocks.extend(options.into_iter().chain(notes).map(Block::Item));
    }
    blocks
}

/// Whether the scores are so small that their printed digits are too few to redo them.
fn has_small_numbers(run: &Run<'_>) -> bool {
    let largest = |name| {
        let data = run.step(name).map_or(&[][..], |step| step.data());
        let finite = data.iter().filter(|value| value.is_finite());
        finite.fold(0.0_f64, |largest, value| largest.max(value.abs()))
    };
    let inexact = |value: f64| value > 0.0 && !shown(value, run.digits).exact;
    let light_row = |[b, h]: [usize; 2]| {
        let weights = run.step(StepName::Weights);
        run.rows.iter().any(|&i| {
            let row = weights.map_or(&[][..], |weights| weights.row(&[b, h, i]));
            let heaviest = row.iter().copied().fold(0.0, f64::max);
            inexact(heaviest) && heaviest < 0.02
        })
    };
    let small_inputs = [StepName::Q, StepName::K, StepName::Scores]
        .into_iter()
        .map(largest)
        .any(|value| inexact(value) && value < 0.01);
    run.digits < 8 && (small_inputs || run.groups.iter().any(|&group| light_row(group)))
}

/// The options in force, one a line.
fn in_force(run: &Run<'_>) -> Vec<String> {
    let words = run.words;
    let block = run.subject.block;
    let attention = &block.attention;
    let list = |values: &[f64]| {
        let values: Vec<String> = values.iter().map(|v| run.show(*v)).collect();
        values.join(", ")
    };
    let mut options = Vec::new();
    if let Scale::Factor(factor) = attention.scale {
        options.push(words.option_scale(&run.show(factor)));
    }
    if run.subject.past_len > 0 {
        options.push(words.option_past(run.subject.past_len));
    }
    if let Origin::Projected { layer, .. } = run.subject.origin
        && let Some(start) = layer.sinusoidal
    {
        options.push(words.option_sinusoidal(start));
    }
    if block.q_norm.is_some() || block.k_norm.is_some() {
        options.push(words.option_norm(block.q_norm.is_some(), block.k_norm.is_some()));
    }
    if let Some(rotary) = &block.rotary {
        let interleaved = rotary.pairing == Pairing::Interleaved;
        options.push(words.option_rotary(interleaved, &run.show(rotary.base), rotary.dim));
        if let Some(stretch) = rotary::stretch(run, rotary) {
            options.push(words.option_stretch(&stretch));
        }
        if let Place::Counted { start } = block.place
            && start != 0
        {
            options.push(words.option_position_offset(start));
        }
    }
    if let Some(cap) = attention.softcap {
        options.push(words.option_softcap(&run.show(cap)));
    }
    if attention.bias.is_some() {
        options.push(words.option_bias());
    }
    if let Some(alibi) = &attention.alibi {
        options.push(words.option_alibi(&list(&alibi.slopes)));
    }
    for mask in &attention.masks {
        options.push(words.option_mask(mask.true_keeps()));
    }
    match attention.causal {
        Some(Causal::Square) => options.push(words.option_causal("")),
        Some(Causal::TopLeft) => options.push(words.option_causal("top-left")),
        Some(Causal::BottomRight) => options.push(words.option_causal("bottom-right")),
        Some(Causal::Offset(offset)) => {
            options.push(words.option_causal(&run.show(offset as f64)));
        }
        None => {}
    }
    if let Some(window) = attention.window {
        options.push(words.option_window(window.back, window.forward));
    }
    if let Some(lengths) = &attention.lengths {
        options.push(words.option_lengths(&lengths.0));
    }
    if let Some(documents) = &attention.documents {
        options.push(words.option_documents(documents.queries(), documents.keys()));
    }
    if let Some(sinks) = &attention.sinks {
        options.push(words.option_sinks(&list(&sinks.0)));
    }
    if let Some(dropout) = attention.dropout {
        options.push(words.option_dropout(&run.show(dropout.p), dropout.seed));
    }
    if attention.empty_rows == EmptyRows::Error {
        options.push(words.option_empty_rows_error());
    }
    options
}
