//! One pass over all weights: entropy, distance, first key, and what is odd.

use super::{Mean, rows_at_a_time};
use crate::{Facts, Kind, Place, Result, Source};

/// What a head does on average over the rows of a text.
///
/// For a row with weights w over the keys j, and p = w / Σ w:
///
/// * entropy: −Σ p·ln p, in nats: 0 for one key, ln n for n keys alike;
/// * distance: Σ p·|i − j|, where i is the query's own key;
/// * previous: w of key i − 1; own: w of key i; first: w of the first key, in rows of other keys.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HeadStatistics {
    /// −Σ p·ln p in nats.
    pub entropy: Mean,
    /// Σ p·|i − j|; without a value in cross-attention.
    pub distance: Mean,
    /// The weight of the first key that is no padding, in the rows of other tokens.
    pub first: Mean,
    /// The weight of the key before the query's own.
    pub previous: Mean,
    /// The weight of the query's own key.
    pub own: Mean,
    /// Rows that count.
    pub rows: usize,
    /// Rows with a NaN.
    pub nan_rows: usize,
    /// Rows that keep no key.
    pub empty_rows: usize,
    /// The largest weight; 0 if there is none above it.
    pub largest: f32,
    /// Weights below 0 or above 1 by more than rounding.
    pub outside: usize,
    /// The smallest and the largest sum of a row that keeps a key.
    pub sums: Option<(f64, f64)>,
}

/// The statistics of every recorded head, for one batch entry.
#[derive(Clone, Debug, PartialEq)]
pub struct Survey {
    /// In the order of [`Facts::places`].
    pub heads: Vec<(Place, HeadStatistics)>,
    /// How far from 1 rounding can bring the sum of a row.
    pub tolerance: f64,
}

impl Survey {
    /// Walks over all weights of a batch entry once. `without_first` sets the first key aside: entropy
    /// and distance are those of the other keys.
    ///
    /// # Errors
    /// Those of the source.
    pub fn of(source: &mut dyn Source, entry: usize, without_first: bool) -> Result<Survey> {
        let facts = source.facts().clone();
        let mut survey = Survey {
            heads: Vec::new(),
            tolerance: tolerance(facts.keys()),
        };
        let mut rows = Vec::new();
        let step = rows_at_a_time(facts.keys());
        for place in facts.places(entry) {
            let mut head = HeadStatistics::default();
            for start in (0..facts.rows()).step_by(step) {
                let end = facts.rows().min(start + step);
                source.rows(Kind::Weights, place, start..end, &mut rows)?;
                for (row, weights) in (start..end).zip(rows.chunks(facts.keys().max(1))) {
                    head.add(
                        &facts,
                        (entry, row),
                        weights,
                        without_first,
                        survey.tolerance,
                    );
                }
            }
            survey.heads.push((place, head));
        }
        Ok(survey)
    }

    /// Whether some row's sum is farther from 1 than rounding brings it.
    pub fn sums_apart_from_1(&self) -> Option<(f64, f64)> {
        let sums = self.heads.iter().filter_map(|(_, head)| head.sums);
        let (low, high) = sums.fold((f64::INFINITY, f64::NEG_INFINITY), |all, own| {
            (all.0.min(own.0), all.1.max(own.1))
        });
        (low < 1.0 - self.tolerance || high > 1.0 + self.tolerance).then_some((low, high))
    }
}

/// n weights that sum to 1 in exact arithmetic, each rounded to half precision bf16 (2⁻⁹ of itself)
/// and taken from a sum of n terms in f32 (n·2⁻²⁴): the coarsest format that weights come in.
fn tolerance(keys: usize) -> f64 {
    2.0_f64.powi(-9) + keys as f64 * 2.0_f64.powi(-24)
}

impl HeadStatistics {
    /// One more row.
    pub(crate) fn add(
        &mut self,
        facts: &Facts,
        (entry, row): (usize, usize),
        weights: &[f32],
        without_first: bool,
        tolerance: f64,
    ) {
        if facts.query(entry, row).is_none_or(|query| query.padding) {
            return;
        }
        let first = first_key(facts, entry);
        let own = facts.own_key(row);
        let sum: f64 = weights.iter().map(|w| f64::from(*w)).sum();
        if sum == 0.0 && weights.iter().all(|w| *w == 0.0) {
            self.empty_rows += 1;
            return;
        }
        self.rows += 1;
        if sum.is_nan() {
            self.nan_rows += 1;
        } else {
            let (low, high) = self.sums.unwrap_or((sum, sum));
            self.sums = Some((low.min(sum), high.max(sum)));
        }
        let outside = |w: &&f32| f64::from(**w) < -tolerance || f64::from(**w) > 1.0 + tolerance;
        self.outside += weights.iter().filter(outside).count();
        let finite = weights.iter().copied().filter(|w| w.is_finite());
        self.largest = finite.fold(self.largest, f32::max);
        if own != Some(first) {
            self.first.add(f64::from(weights[first]));
        }
        if let Some(own) = own {
            self.own.add(f64::from(weights[own]));
            if own > first {
                self.previous.add(f64::from(weights[own - 1]));
            }
        }
        let set_aside = |key: usize| without_first && key == first && own != Some(first);
        let counted = || {
            let keys = weights.iter().enumerate();
            keys.filter(move |(key, _)| !set_aside(*key))
                .map(|(key, w)| (key, f64::from(*w)))
        };
        let sum: f64 = counted().map(|(_, w)| w).sum();
        if sum == 0.0 {
            return;
        }
        let share = |w: f64| if w == 0.0 { 0.0 } else { w / sum };
        self.entropy
            .add(-counted().map(|(_, w)| plogp(share(w))).sum::<f64>());
        if let Some(own) = own {
            let terms = counted().map(|(key, w)| share(w) * own.abs_diff(key) as f64);
            self.distance.add(terms.sum());
        }
    }
}

fn plogp(p: f64) -> f64 {
    if p == 0.0 { 0.0 } else { p * p.ln() }
}

/// The first key that is no padding.
pub(crate) fn first_key(facts: &Facts, entry: usize) -> usize {
    let tokens = facts.tokens.get(entry).map_or(&[][..], |tokens| tokens);
    tokens.iter().position(|token| !token.padding).unwrap_or(0)
}
