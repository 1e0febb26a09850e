//! Pictures of what the heads of a model did: for a terminal, for a browser, for programs.
//!
//! Everything is drawn from a [`Source`]; restricting it to layers, heads and rows is
//! [`qkv_trace::Chosen`]'s.

mod html;
mod json;
mod residual;
mod svg;
mod text;

pub use html::map_html;
pub use json::map_json;
pub use svg::map_svg;
pub use text::map_text;

use crate::labels::label;
use qkv_trace::{Facts, Kind, Place, Ranked, Ranking, Result, Source, Survey};

/// What is shown of a source.
#[derive(Clone, Debug)]
pub struct MapView {
    /// The batch entry.
    pub entry: usize,
    /// Whether the first token is set aside: not drawn, not listed, not in entropy and distance.
    pub without_first: bool,
    /// Whether one head or a few were asked for, rather than all.
    pub few_heads: bool,
    /// Links listed for each query.
    pub links: usize,
    /// Heads listed in a ranking.
    pub most_heads: usize,
    /// Heads ranked by statistics.
    pub rankings: Vec<Ranking>,
    /// Texts that the rankings are over.
    pub texts: usize,
}

impl Default for MapView {
    fn default() -> Self {
        MapView {
            entry: 0,
            without_first: false,
            few_heads: false,
            links: 3,
            most_heads: 10,
            rankings: Vec::new(),
            texts: 1,
        }
    }
}

/// "L13H8", as heads are usually named.
fn head_name(layer: usize, head: usize) -> String {
    format!("L{layer}H{head}")
}

/// The name of a ranked head.
fn ranked_name(head: &Ranked) -> String {
    head_name(head.layer, head.head)
}

/// "8 ␣it" for a key.
fn key_name(facts: &Facts, entry: usize, key: usize) -> String {
    let token = facts.tokens.get(entry).and_then(|text| text.get(key));
    format!("{key} {}", label(token.map_or("", |token| &token.text)))
}

/// The same for a query: the number of its own key, or its row where it comes from another text.
fn query_name(facts: &Facts, entry: usize, row: usize) -> String {
    let number = facts.own_key(row).unwrap_or(row);
    let text = facts.query(entry, row).map_or("", |token| &token.text);
    format!("{number} {}", label(text))
}

/// All weights of a head.
fn weights(source: &mut dyn Source, place: Place) -> Result<Vec<f32>> {
    let mut rows = Vec::new();
    let all = 0..source.facts().rows();
    source.rows(Kind::Weights, place, all, &mut rows)?;
    Ok(rows)
}

/// The first key that is no padding.
fn first_key(facts: &Facts, entry: usize) -> usize {
    let tokens = facts.tokens.get(entry).map_or(&[][..], |tokens| tokens);
    tokens.iter().position(|token| !token.padding).unwrap_or(0)
}

/// Whether a weight is set aside: that of the first key, but in the first token's own row.
fn is_aside(facts: &Facts, view: &MapView, row: usize, key: usize) -> bool {
    let first = first_key(facts, view.entry);
    view.without_first && key == first && facts.own_key(row) != Some(first)
}

/// The average over heads of the weight on the first token.
fn first_share(survey: &Survey) -> Option<f64> {
    let shares: Vec<f64> = survey
        .heads
        .iter()
        .filter_map(|(_, head)| head.first.value())
        .collect();
    (!shares.is_empty()).then(|| shares.iter().sum::<f64>() / shares.len() as f64)
}

/// The query heads that share a head's key and value head, where several do.
fn sharing(facts: &Facts, head: usize) -> Option<(usize, Vec<usize>)> {
    if facts.kv_heads >= facts.all_heads {
        return None;
    }
    let kv = facts.kv_head(head);
    let heads = (0..facts.all_heads).filter(|other| facts.kv_head(*other) == kv);
    Some((kv, heads.collect()))
}
