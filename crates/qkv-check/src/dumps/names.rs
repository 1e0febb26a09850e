//! Which arrays of two dumps belong together, and in which order they were worked out.

use super::Named;
use qkv::StepName;

/// Where an array belongs, as far as its name tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub layer: Option<usize>,
    pub step: Option<StepName>,
}

/// What belongs together.
pub(super) struct Matched {
    /// In order, with places in both dumps.
    pub pairs: Vec<(Key, usize, usize)>,
    pub only_first: Vec<usize>,
    pub only_second: Vec<usize>,
}

/// Other names of steps, as the last parts of a name have them.
const ALIASES: &[(&str, StepName)] = &[
    ("hook_q", StepName::Q),
    ("hook_k", StepName::K),
    ("hook_v", StepName::V),
    ("hook_rot_q", StepName::QRotated),
    ("hook_rot_k", StepName::KRotated),
    ("hook_attn_scores", StepName::Masked),
    ("attn_scores", StepName::Masked),
    ("hook_pattern", StepName::Weights),
    ("pattern", StepName::Weights),
    ("attn_weights", StepName::Weights),
    ("attention_weights", StepName::Weights),
    ("attentions", StepName::Weights),
    ("attn_probs", StepName::Weights),
    ("probs", StepName::Weights),
    ("hook_z", StepName::Output),
    ("z", StepName::Output),
    ("context_layer", StepName::Output),
    ("hook_attn_out", StepName::Projected),
    ("attn_out", StepName::Projected),
    ("attn_output", StepName::Projected),
    ("o_proj", StepName::Projected),
    ("out_proj", StepName::Projected),
    ("q_proj", StepName::Q),
    ("k_proj", StepName::K),
    ("v_proj", StepName::V),
    ("query", StepName::Q),
    ("key", StepName::K),
    ("value", StepName::V),
    ("logits", StepName::Masked),
    ("hook_resid_mid", StepName::Residual),
];

/// Words before the number of a layer.
const LAYERS: [&str; 6] = ["blocks", "block", "layers", "layer", "h", "l"];

pub(super) fn key(name: &str) -> Key {
    let parts: Vec<&str> = name.split(['.', '/', ':']).collect();
    let number = |at: usize| parts.get(at)?.parse::<usize>().ok();
    let layer = (0..parts.len()).find_map(|at| {
        let word = parts[at].to_ascii_lowercase();
        if LAYERS.contains(&word.as_str()) {
            return number(at + 1);
        }
        let (word, digits) = word.rsplit_once('_').unwrap_or(("", &word));
        let digits = digits.trim_start_matches(|c: char| c.is_ascii_alphabetic());
        let named = word.is_empty() || LAYERS.contains(&word);
        let starts = LAYERS.iter().any(|layer| parts[at].starts_with(layer));
        (named && starts && !digits.is_empty())
            .then(|| digits.parse().ok())
            .flatten()
    });
    let last = parts.iter().rev().find(|part| !part.is_empty());
    let last = last.map_or(String::new(), |part| part.to_ascii_lowercase());
    let within_layer = layer.is_some();
    let step = StepName::ALL
        .iter()
        .copied()
        .find(|step| step.as_str() == last);
    let alias = || ALIASES.iter().find(|(alias, _)| *alias == last);
    // The logits of a whole model are no scores.
    let alias = || alias().filter(|(alias, _)| within_layer || *alias != "logits");
    Key {
        layer,
        step: step.or_else(|| alias().map(|(_, step)| *step)),
    }
}

/// Matches by name, and what is left by layer and step.
pub(super) fn pairs(first: &[Named], second: &[Named]) -> Matched {
    let mut pairs = Vec::new();
    let mut free: Vec<usize> = (0..second.len()).collect();
    let mut left = Vec::new();
    for (a, one) in first.iter().enumerate() {
        match free.iter().position(|b| second[*b].name == one.name) {
            Some(at) => pairs.push((key(&one.name), a, free.remove(at))),
            None => left.push(a),
        }
    }
    let only_layer = |dump: &[Named]| {
        let mut layers: Vec<Option<usize>> = dump.iter().map(|one| key(&one.name).layer).collect();
        layers.sort_unstable();
        layers.dedup();
        layers.len() == 1
    };
    // Dumps of one layer need not number it.
    let any_layer = only_layer(first) && only_layer(second);
    left.retain(|&a| {
        let own = key(&first[a].name);
        let fits = |b: &usize| {
            let other = key(&second[*b].name);
            own.step.is_some() && own.step == other.step && (any_layer || own.layer == other.layer)
        };
        let mut found = free.iter().filter(|b| fits(b));
        match (found.next().copied(), found.next()) {
            (Some(b), None) => {
                free.retain(|other| *other != b);
                pairs.push((own, a, b));
                false
            }
            _ => true,
        }
    });
    if let ([a], [b], true) = (&left[..], &free[..], first.len() == 1 && second.len() == 1) {
        pairs.push((key(&first[*a].name), *a, *b));
        (left, free) = (Vec::new(), Vec::new());
    }
    pairs.sort_by(|(_, a, _), (_, b, _)| order(&first[*a].name).cmp(&order(&first[*b].name)));
    Matched {
        pairs,
        only_first: left,
        only_second: free,
    }
}

/// Layer, place within it, and the name with its numbers filled up.
fn order(name: &str) -> (usize, usize, String) {
    let key = key(name);
    let lower = name.to_ascii_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    let layer = match key.layer {
        Some(layer) => layer + 1,
        None if has(&["embed", "wte", "wpe", "token"]) => 0,
        None if key.step.is_some() => 1,
        None => usize::MAX,
    };
    const AFTER: usize = 1000;
    let place = match key.step {
        Some(step) => {
            StepName::ALL
                .iter()
                .position(|known| *known == step)
                .unwrap_or(0)
                + 1
        }
        None if has(&["resid_pre", "ln1", "input_layernorm", "x_", "hidden_in"]) => 0,
        None if has(&["resid_post", "layer_out", "block_out", "hidden_out"]) => AFTER + 1,
        None => AFTER,
    };
    let mut padded = String::new();
    let mut digits = String::new();
    for c in name.chars().chain([' ']) {
        if c.is_ascii_digit() {
            digits.push(c);
            continue;
        }
        if !digits.is_empty() {
            padded.push_str(&format!("{digits:0>20}"));
            digits.clear();
        }
        padded.push(c);
    }
    (layer, place, padded)
}
