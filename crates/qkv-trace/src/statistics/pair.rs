//! The weight of one word in the rows of another, with every other word as a possible control.

use super::Mean;
use super::survey::first_key;
use crate::Facts;
use crate::word::{Word, places_of, words};
use std::collections::BTreeMap;
use std::ops::Range;

/// What a text has of a pair of words.
pub(crate) struct Pair {
    /// Rows of the first word.
    pub rows: Vec<usize>,
    /// The tokens of the second word.
    pub target: Vec<usize>,
    /// Other words, each with its tokens.
    pub others: BTreeMap<String, Vec<usize>>,
}

impl Pair {
    /// None if the text lacks one of the words.
    pub(crate) fn find(from: &str, to: &str, facts: &Facts, entry: usize) -> Option<Pair> {
        let all = words(&facts.tokens[entry]);
        let first = first_key(facts, entry);
        let sources = match &facts.queries {
            crate::Queries::OfKeys(_) => places_of(from, &all),
            crate::Queries::Elsewhere(tokens) => places_of(from, &words(&tokens[entry])),
        };
        let is_source = |token: usize| sources.iter().any(|range| range.contains(&token));
        let rows: Vec<usize> = (0..facts.rows())
            .filter(|row| is_source(facts.own_key(*row).unwrap_or(*row)))
            .collect();
        let places = places_of(to, &all);
        let target: Vec<usize> = places.iter().cloned().flatten().collect();
        if rows.is_empty() || target.is_empty() {
            return None;
        }
        let own_text = matches!(facts.queries, crate::Queries::OfKeys(_));
        // The first key and the one before the query take what no other does, whatever they say.
        let before: Vec<usize> = rows
            .iter()
            .filter_map(|row| facts.own_key(*row)?.checked_sub(1))
            .collect();
        let is_other = |word: &&Word| {
            let among = |ranges: &[Range<usize>]| ranges.contains(&word.tokens);
            let is_source = own_text && among(&sources);
            let special = |key: usize| key == first || before.contains(&key);
            !(among(&places) || is_source || word.tokens.clone().any(special))
        };
        let mut others: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for word in all.iter().filter(is_other) {
            let tokens = others.entry(word.text.clone()).or_default();
            tokens.extend(word.tokens.clone());
        }
        Some(Pair {
            rows,
            target,
            others,
        })
    }
}

/// A head's averages for a pair.
#[derive(Clone, Debug, Default)]
pub(crate) struct PairMeans {
    pub target: Mean,
    pub others: BTreeMap<String, Mean>,
}

impl PairMeans {
    pub(crate) fn add(&mut self, pair: &Pair, weights: &[f32]) {
        let sum = |keys: &[usize]| keys.iter().map(|key| f64::from(weights[*key])).sum();
        self.target.add(sum(&pair.target));
        for (word, keys) in &pair.others {
            self.others.entry(word.clone()).or_default().add(sum(keys));
        }
    }
}
