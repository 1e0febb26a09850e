//! Heads ranked by statistics, over one text or many.

use super::pair::{Pair, PairMeans};
use super::targets::{Targets, targets};
use super::{By, Mean, rows_at_a_time};
use crate::{Error, Facts, Kind, Place, Result, Source};
use std::collections::BTreeMap;
use std::ops::Range;

/// Averages of all heads for some statistics, text after text.
#[derive(Clone, Debug)]
pub struct HeadsBy {
    by: Vec<By>,
    control: Option<String>,
    /// `[statistic][layer, head]`
    heads: Vec<BTreeMap<(usize, usize), Means>>,
    /// Texts so far.
    pub texts: usize,
}

#[derive(Clone, Debug, Default)]
struct Means {
    target: Mean,
    control: Mean,
    pair: PairMeans,
}

/// Heads in the order of a statistic.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranking {
    /// The statistic.
    pub by: By,
    /// For a pair of words, the word whose weights are the control; unless one was named, the one that has most
    /// on average over all heads, of four letters or more where there is one.
    pub control: Option<String>,
    /// The heads, the largest average first; those without a value last.
    pub heads: Vec<Ranked>,
    /// The head with the largest control.
    pub best_control: Option<Ranked>,
}

/// A head in a ranking.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ranked {
    /// The layer.
    pub layer: usize,
    /// The query head.
    pub head: usize,
    /// The average weight on the statistic's keys; none if no row has such a key.
    pub mean: Option<f64>,
    /// Rows that it is the average of.
    pub rows: usize,
    /// The same for the control's keys.
    pub control: Option<f64>,
}

impl HeadsBy {
    /// Of these statistics; `control` names the word that is the control of pairs.
    pub fn new(by: Vec<By>, control: Option<String>) -> HeadsBy {
        let heads = vec![BTreeMap::new(); by.len()];
        HeadsBy {
            by,
            control,
            heads,
            texts: 0,
        }
    }

    /// One more source, every batch entry of it. Only rows that count are asked for.
    ///
    /// # Errors
    /// Those of the source.
    pub fn add(&mut self, source: &mut dyn Source) -> Result<()> {
        let facts = source.facts().clone();
        let plans: Vec<Vec<Plan>> = (0..facts.entries())
            .map(|entry| {
                let by = self.by.iter();
                by.map(|by| Plan::new(by, &facts, entry)).collect()
            })
            .collect();
        let ranges: Vec<Vec<Range<usize>>> = plans
            .iter()
            .map(|plans| {
                let counts = |row: &usize| plans.iter().any(|plan| plan.counts(*row));
                ranges(
                    (0..facts.rows()).filter(counts),
                    rows_at_a_time(facts.keys()),
                )
            })
            .collect();
        let mut weights = Vec::new();
        for &layer in &facts.layers {
            for (entry, plans) in plans.iter().enumerate() {
                for &head in &facts.heads {
                    let place = Place { entry, layer, head };
                    for rows in &ranges[entry] {
                        source.rows(Kind::Weights, place, rows.clone(), &mut weights)?;
                        let keys = facts.keys().max(1);
                        for (row, weights) in rows.clone().zip(weights.chunks(keys)) {
                            if weights.iter().all(|w| *w == 0.0) {
                                continue; // the row keeps no key
                            }
                            for (plan, heads) in plans.iter().zip(&mut self.heads) {
                                plan.add(row, weights, heads.entry((layer, head)).or_default());
                            }
                        }
                    }
                    for heads in &mut self.heads {
                        heads.entry((layer, head)).or_default();
                    }
                }
            }
        }
        self.texts += facts.entries();
        Ok(())
    }

    /// The heads of each statistic, ranked.
    ///
    /// # Errors
    /// If no text has the words of a pair, or the control that was named.
    pub fn rankings(&self) -> Result<Vec<Ranking>> {
        let each = self.by.iter().zip(&self.heads);
        each.map(|(by, heads)| self.ranking(by, heads)).collect()
    }

    fn ranking(&self, by: &By, heads: &BTreeMap<(usize, usize), Means>) -> Result<Ranking> {
        let mut control = None;
        if let By::Pair { from, to } = by {
            if heads.values().all(|means| means.pair.target.count == 0) {
                return Err(Error::Statistic {
                    asked: by.to_string(),
                    remedy: format!(
                        "no text has both words, \"{}\" among the queries and \"{}\" among the keys",
                        qkv_io::shown(from),
                        qkv_io::shown(to)
                    ),
                });
            }
            control = self.control_of(by, heads)?;
        }
        let mut ranked: Vec<Ranked> = heads
            .iter()
            .map(|(&(layer, head), means)| {
                let pair = matches!(by, By::Pair { .. });
                let target = if pair {
                    means.pair.target
                } else {
                    means.target
                };
                let beside = match &control {
                    Some(word) => means.pair.others.get(word).copied().unwrap_or_default(),
                    None => means.control,
                };
                Ranked {
                    layer,
                    head,
                    mean: target.value(),
                    rows: target.count,
                    control: beside.value(),
                }
            })
            .collect();
        // NaN is no size: such heads stand in front, where they are seen.
        let size = |value: Option<f64>| match value {
            Some(value) if value.is_nan() => f64::INFINITY,
            Some(value) => value,
            None => f64::NEG_INFINITY,
        };
        let best_control = ranked
            .iter()
            .filter(|head| head.control.is_some_and(f64::is_finite))
            .max_by(|a, b| size(a.control).total_cmp(&size(b.control)))
            .copied();
        ranked.sort_by(|a, b| size(b.mean).total_cmp(&size(a.mean)));
        Ok(Ranking {
            by: by.clone(),
            control,
            heads: ranked,
            best_control,
        })
    }

    fn control_of(
        &self,
        by: &By,
        heads: &BTreeMap<(usize, usize), Means>,
    ) -> Result<Option<String>> {
        let mut totals: BTreeMap<&str, Mean> = BTreeMap::new();
        for means in heads.values() {
            for (word, mean) in &means.pair.others {
                let value = mean.value().filter(|value| value.is_finite());
                totals.entry(word).or_default().add(value.unwrap_or(0.0));
            }
        }
        let Some(asked) = &self.control else {
            // A word that says something, rather than "the", where there is one.
            const LETTERS: usize = 4;
            let value = |word: &str, mean: &Mean| {
                let long = word.chars().count() >= LETTERS || !word.is_ascii();
                (long, mean.value().unwrap_or(0.0))
            };
            let most = totals.iter().max_by(|a, b| {
                let (a, b) = (value(a.0, a.1), value(b.0, b.1));
                a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
            });
            return Ok(most.map(|(word, _)| (*word).to_owned()));
        };
        let lower = asked.to_lowercase();
        let exact = totals.keys().find(|word| *word == asked);
        let found = exact.or_else(|| totals.keys().find(|word| word.to_lowercase() == lower));
        match found {
            Some(word) => Ok(Some((*word).to_owned())),
            None => Err(Error::Statistic {
                asked: by.to_string(),
                remedy: format!(
                    "its control \"{}\" is no other word of the texts (nor their first, nor the one before \
                     the query); there are {}",
                    qkv_io::shown(asked),
                    qkv_io::shown(&totals.keys().copied().collect::<Vec<_>>().join(", "))
                ),
            }),
        }
    }
}

/// Ascending rows as ranges of at most `most` that follow each other.
fn ranges(rows: impl Iterator<Item = usize>, most: usize) -> Vec<Range<usize>> {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for row in rows {
        match ranges.last_mut() {
            Some(last) if last.end == row && last.len() < most => last.end = row + 1,
            _ => ranges.push(row..row + 1),
        }
    }
    ranges
}

/// What a statistic looks at in a text.
enum Plan {
    Targets(BTreeMap<usize, Targets>),
    Pair(Option<Pair>),
}

impl Plan {
    fn new(by: &By, facts: &Facts, entry: usize) -> Plan {
        match by {
            By::Pair { from, to } => Plan::Pair(Pair::find(from, to, facts, entry)),
            _ => Plan::Targets(targets(by, facts, entry).into_iter().collect()),
        }
    }

    fn counts(&self, row: usize) -> bool {
        match self {
            Plan::Targets(rows) => rows.contains_key(&row),
            Plan::Pair(pair) => pair.as_ref().is_some_and(|pair| pair.rows.contains(&row)),
        }
    }

    fn add(&self, row: usize, weights: &[f32], means: &mut Means) {
        let sum = |keys: &[usize]| keys.iter().map(|key| f64::from(weights[*key])).sum();
        match self {
            Plan::Targets(rows) => {
                let Some(found) = rows.get(&row) else {
                    return;
                };
                means.target.add(sum(&found.keys));
                if !found.control.is_empty() {
                    means.control.add(sum(&found.control));
                }
            }
            Plan::Pair(pair) => {
                if let Some(pair) = pair.as_ref().filter(|pair| pair.rows.contains(&row)) {
                    means.pair.add(pair, weights);
                }
            }
        }
    }
}
