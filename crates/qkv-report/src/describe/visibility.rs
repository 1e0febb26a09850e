//! Which keys each query keeps, and why it drops the others.

use super::beside::shown_rows;
use super::run::Run;
use crate::explanation::{Block, Part};
use crate::words::Reason;
use qkv::{Causal, StepName};

pub(super) fn part(run: &Run<'_>) -> Option<Part> {
    run.step(StepName::Masked)?;
    let words = run.words;
    let attention = &run.subject.block.attention;
    let (_, letter) = run.logits();
    let mut part = run.part(
        &[StepName::Masked],
        words.heading_masked(),
        &words.masked_formula(letter),
    );
    part.blocks.push(Block::Paragraph(words.masked()));
    if let Some(causal) = attention.causal {
        part.blocks
            .push(Block::Item(words.causal(alignment(causal), offset(run))));
    }
    if let Some(window) = attention.window {
        part.blocks.push(Block::Item(
            words.sentence(&words.window(window.back, window.forward)),
        ));
    }
    if let Some(lengths) = &attention.lengths {
        part.blocks.push(Block::Item(
            words.sentence(&words.option_lengths(&lengths.0)),
        ));
    }
    if let Some(documents) = &attention.documents {
        part.blocks.push(Block::Item(words.sentence(
            &words.option_documents(documents.queries(), documents.keys()),
        )));
    }
    for mask in &attention.masks {
        part.blocks.push(Block::Item(
            words.sentence(&words.option_mask(mask.true_keeps())),
        ));
    }
    let mut told = Vec::new();
    for &[b, h] in &run.groups {
        part.blocks.extend(run.group_heading([b, h]));
        for &i in &run.rows {
            part.blocks.push(Block::Item(row(run, [b, h, i])));
        }
        let seen = seen(run, [b, h]);
        // Heads that see the same are told once.
        if seen != told {
            part.blocks
                .push(Block::Paragraph(words.what_each_token_sees()));
            part.blocks.extend(seen.iter().cloned().map(Block::Item));
            told = seen;
        }
        let name = format!("{letter} + mask");
        part.blocks
            .push(run.score_matrix(StepName::Masked, &name, [b, h]));
    }
    Some(part)
}

fn alignment(causal: Causal) -> &'static str {
    match causal {
        Causal::Square => "",
        Causal::TopLeft => "top-left",
        Causal::BottomRight => "bottom-right",
        Causal::Offset(_) => "offset",
    }
}

/// The distance between a query's number and its position, where one number says it for all.
fn offset(run: &Run<'_>) -> Option<i64> {
    let attention = &run.subject.block.attention;
    let one_for_all = attention.documents.is_none() && attention.lengths.is_none();
    (one_for_all && run.queries > 0 && run.batch > 0).then(|| run.position(0, 0))
}

/// Which tokens each query sees, if tokens have names.
fn seen(run: &Run<'_>, [b, h]: [usize; 2]) -> Vec<String> {
    if run.key_labels.is_empty() {
        return Vec::new();
    }
    let sees = |&i: &usize| {
        let keys = (0..run.keys).filter(|&j| run.takes_part([b, h, i, j]));
        let tokens: Vec<&str> = keys
            .filter_map(|j| run.key_labels.get(j).map(String::as_str))
            .collect();
        run.words.sees(&run.row_name('q', i), &tokens)
    };
    shown_rows(run).iter().map(sees).collect()
}

/// What query i keeps, and why not the rest.
fn row(run: &Run<'_>, [b, h, i]: [usize; 3]) -> String {
    let mut kept = Vec::new();
    let mut dropped: Vec<(Reason, Vec<usize>)> = Vec::new();
    for j in 0..run.keys {
        match reason(run, [b, h, i, j]) {
            None => kept.push(j),
            Some(reason) => match dropped.iter_mut().find(|(other, _)| *other == reason) {
                Some((_, keys)) => keys.push(j),
                None => dropped.push((reason, vec![j])),
            },
        }
    }
    let attention = &run.subject.block.attention;
    let matters = attention.causal.is_some() || attention.window.is_some();
    let moved = matters && run.position(b, i) != i as i64;
    let position = moved.then(|| run.position(b, i));
    run.words.kept_and_dropped(i, position, &kept, &dropped)
}

/// The first reason to drop a key.
fn reason(run: &Run<'_>, at: [usize; 4]) -> Option<Reason> {
    let [b, _, i, j] = at;
    let attention = &run.subject.block.attention;
    if run.at(StepName::Masked, &at) != f64::NEG_INFINITY {
        return None;
    }
    if !run.own_keys(i).contains(&j) {
        return Some(Reason::Document);
    }
    if attention
        .lengths
        .as_ref()
        .is_some_and(|lengths| j >= lengths.0[b])
    {
        return Some(Reason::Length);
    }
    let ahead = (j as i64).saturating_sub(run.position(b, i));
    if attention.causal.is_some() && ahead > 0 {
        return Some(Reason::Causal);
    }
    if let Some(window) = attention.window {
        let ahead = i128::from(ahead);
        let behind = window.back.is_some_and(|back| ahead < -(back as i128));
        let beyond = window
            .forward
            .is_some_and(|forward| ahead > forward as i128);
        if behind || beyond {
            return Some(Reason::Window);
        }
    }
    let shape = [run.batch, run.heads, run.queries, run.keys];
    for mask in &attention.masks {
        let view = mask.view().broadcast(shape);
        if view.is_some_and(|view| view.get(at) != mask.true_keeps()) {
            return Some(if mask.true_keeps() {
                Reason::Keep
            } else {
                Reason::Drop
            });
        }
    }
    Some(Reason::Bias)
}
