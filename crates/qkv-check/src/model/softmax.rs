//! Weights of a row, by the sum over whatever the recipe sums over.

use super::Model;
use super::logits::Logits;
use super::row::RowOut;
use crate::bound::roundoff;
use crate::recipe::{Axis, DroppedRule, EmptyRule};
use qkv::{DType, StepName, definition};
use std::f64::consts::{LN_2, LOG2_E};

/// Weights of a row, with the logits.
pub(super) struct Weighed {
    pub logits: Logits,
    pub weights: Vec<f64>,
    /// How far a weight is off where the last rounding of one side may go the other way; none unless
    /// weights are rounded.
    pub flips: Vec<f64>,
    pub max: f64,
    sum: f64,
    keys_sum: f64,
    pub empty: bool,
}

/// The largest logit and the sum of each column of a head, or of all of it.
pub(super) struct Columns {
    max: Vec<f64>,
    sum: Vec<f64>,
}

impl Model<'_> {
    pub(super) fn weighed(&self, at @ [b, h, _]: [usize; 3]) -> Weighed {
        let recipe = self.recipe;
        let mut logits = self.logits(at);
        let count = logits.logits.len();
        let mut empty = !logits.kept.contains(&true);
        if empty && count > 0 && recipe.dropped == DroppedRule::Left {
            match recipe.empty {
                EmptyRule::Zero | EmptyRule::Nan => {}
                EmptyRule::Uniform | EmptyRule::Unmasked => {
                    empty = false;
                    logits.kept = vec![true; count];
                    logits.logits = match recipe.empty {
                        EmptyRule::Uniform => vec![0.0; count],
                        // A bias of −∞ is a mask too.
                        _ => (logits.biased.iter().zip(&logits.capped))
                            .map(|(b, c)| if *b == f64::NEG_INFINITY { *c } else { *b })
                            .collect(),
                    };
                }
            }
        }
        if empty {
            let value = match recipe.empty {
                EmptyRule::Nan => f64::NAN,
                _ => 0.0,
            };
            return Weighed {
                weights: vec![value; count],
                flips: Vec::new(),
                logits,
                max: f64::NEG_INFINITY,
                sum: value,
                keys_sum: value,
                empty: true,
            };
        }
        let kept = &logits.kept;
        let sink = recipe.sinks.as_ref().map(|sinks| sinks[h]);
        let own = maximum(
            logits
                .logits
                .iter()
                .zip(kept)
                .filter(|(_, k)| **k)
                .map(|(l, _)| *l),
        );
        let mut weights = vec![0.0; count];
        let mut flips = Vec::new();
        let (mut max, mut sum, mut keys_sum) = (own, 0.0, 0.0);
        match recipe.axis {
            Axis::Keys => {
                for j in 0..count {
                    if kept[j] {
                        weights[j] = (logits.logits[j] - own).exp();
                        keys_sum += weights[j];
                    }
                }
                sum = keys_sum;
                if let Some(sink) = sink {
                    sum += (sink - own).exp();
                }
                let phantoms = recipe.phantoms.count(count);
                if phantoms > 0.0 {
                    let phantoms = phantoms * (-own).exp();
                    sum += phantoms;
                    keys_sum += phantoms;
                }
                // Not where a key is dropped: the sum may be NaN, and the weight is 0 even so.
                for j in (0..count).filter(|&j| kept[j]) {
                    weights[j] /= sum;
                }
                flips = self.round_weights(&mut weights, &logits.logits, kept, own, sum);
            }
            Axis::Queries | Axis::Joint => {
                let columns = self.columns(b, h);
                for j in 0..count {
                    let at = if recipe.axis == Axis::Joint { 0 } else { j };
                    if kept[j] {
                        weights[j] = (logits.logits[j] - columns.max[at]).exp() / columns.sum[at];
                    }
                }
                (max, sum) = (columns.max[0], columns.sum[0]);
                keys_sum = sum;
            }
            Axis::Heads => {
                let all: Vec<Logits> = (0..self.sizes.heads)
                    .map(|h| self.logits([b, h, at[2]]))
                    .collect();
                for j in 0..count {
                    let column = || all.iter().filter(|l| l.kept[j]).map(|l| l.logits[j]);
                    let largest = maximum(column());
                    let total: f64 = column().map(|l| (l - largest).exp()).sum();
                    if kept[j] {
                        weights[j] = (logits.logits[j] - largest).exp() / total;
                    }
                }
            }
        }
        if recipe.dropped == DroppedRule::AfterSoftmax {
            for (w, drops) in weights.iter_mut().zip(&logits.drops) {
                *w *= f64::from(u8::from(*drops == 0));
            }
        }
        if recipe.leak && (0..count).any(|j| !kept[j] && logits.biased[j].is_nan()) {
            weights.fill(f64::NAN);
        }
        if recipe.scale_after != 1.0 {
            weights.iter_mut().for_each(|w| *w *= recipe.scale_after);
        }
        Weighed {
            logits,
            weights,
            flips,
            max,
            sum,
            keys_sum,
            empty: false,
        }
    }

    fn columns(&self, b: usize, h: usize) -> std::rc::Rc<Columns> {
        if let Some(columns) = self.columns.borrow().get(&(b, h)) {
            return std::rc::Rc::clone(columns);
        }
        let rows: Vec<Logits> = (0..self.sizes.queries)
            .map(|i| self.logits([b, h, i]))
            .collect();
        let kept = |row: &Logits, j: usize| row.kept[j].then_some(row.logits[j]);
        let columns = if self.recipe.axis == Axis::Joint {
            let all = || {
                rows.iter()
                    .flat_map(|row| (0..row.kept.len()).filter_map(move |j| kept(row, j)))
            };
            let max = maximum(all());
            let mut sum: f64 = all().map(|l| (l - max).exp()).sum();
            if let Some(sinks) = &self.recipe.sinks {
                sum += rows.len() as f64 * (sinks[h] - max).exp();
            }
            Columns {
                max: vec![max],
                sum: vec![sum],
            }
        } else {
            let column = |j: usize| rows.iter().filter_map(move |row| kept(row, j));
            let max: Vec<f64> = (0..self.sizes.keys).map(|j| maximum(column(j))).collect();
            let sum = |j: usize| column(j).map(|l| (l - max[j]).exp()).sum();
            Columns {
                sum: (0..self.sizes.keys).map(sum).collect(),
                max,
            }
        };
        let columns = std::rc::Rc::new(columns);
        self.columns
            .borrow_mut()
            .insert((b, h), std::rc::Rc::clone(&columns));
        columns
    }

    pub(super) fn weights_step(&self, step: StepName, at: [usize; 3]) -> Option<RowOut> {
        let row = self.weighed(at);
        let (worst, usual) = match self.with_bounds {
            true => self.logit_errors(&row.logits, row.max),
            false => Default::default(),
        };
        let mean = |errors: &[f64], shares: &[f64]| -> f64 {
            let pairs = errors.iter().zip(shares);
            let sum: f64 = pairs.map(|(e, w)| e * w.abs()).sum();
            if sum.is_finite() { sum } else { 0.0 }
        };
        let sums = self.sizes.keys as f64 + 64.0;
        let means = |shares: &[f64]| (mean(&worst, shares) + sums, mean(&usual, shares) + 6.0);
        let one = |value: f64, size: f64, shares: &[f64]| {
            let (mean_worst, mean_usual) = means(shares);
            RowOut {
                values: vec![value],
                worst: vec![mean_worst * size],
                usual: vec![mean_usual * size],
            }
        };
        Some(match step {
            StepName::Weights | StepName::Dropped => {
                let mut weights = row.weights.clone();
                if step == StepName::Dropped {
                    for (j, w) in weights.iter_mut().enumerate() {
                        *w *= self.kept_share(at, j);
                    }
                }
                let errors = |own: &[f64], mean: f64| -> Vec<f64> {
                    let pairs = own.iter().zip(&weights);
                    pairs.map(|(e, w)| w.abs() * (e + mean)).collect()
                };
                let single = roundoff(DType::F32);
                let (mean_worst, mean_usual) = means(&row.weights);
                let mut worst = errors(&worst, mean_worst);
                for (worst, flip) in worst.iter_mut().zip(&row.flips) {
                    *worst += flip / single;
                }
                RowOut {
                    worst,
                    usual: errors(&usual, mean_usual),
                    values: weights,
                }
            }
            StepName::Exp => RowOut {
                values: row
                    .logits
                    .logits
                    .iter()
                    .zip(&row.logits.kept)
                    .map(|(l, kept)| if *kept { (l - row.max).exp() } else { 0.0 })
                    .collect(),
                worst: worst.iter().map(|e| e + 64.0).collect(),
                usual: usual.iter().map(|e| e + 6.0).collect(),
            },
            StepName::Max => {
                let largest = |errors: &[f64]| errors.iter().copied().fold(0.0, f64::max);
                RowOut {
                    values: vec![row.max],
                    worst: vec![largest(&worst)],
                    usual: vec![largest(&usual)],
                }
            }
            StepName::Sum => one(row.sum, row.sum.abs(), &row.weights),
            StepName::Lse => {
                let sum = if self.recipe.lse_with_sink {
                    row.sum
                } else {
                    row.keys_sum
                };
                let lse = match row.empty {
                    true if self.recipe.empty == EmptyRule::Nan => f64::NAN,
                    true => f64::NEG_INFINITY,
                    false => row.max + sum.ln(),
                };
                let shares = self.shares(&row, sum);
                match self.recipe.lse_base_2 {
                    true => one(lse / LN_2, LOG2_E, &shares),
                    false => one(lse, 1.0, &shares),
                }
            }
            _ => return None,
        })
    }

    /// How much of a sum over a row's exponentials each key is: d ln sum = Σ_j share_j·ds_j. Not the
    /// weights where a sink takes part in these and not in the sum.
    fn shares(&self, row: &Weighed, sum: f64) -> Vec<f64> {
        if self.recipe.axis != Axis::Keys {
            return row.weights.clone();
        }
        let keys = row.logits.logits.iter().zip(&row.logits.kept);
        let exps = keys.map(|(l, kept)| if *kept { (l - row.max).exp() } else { 0.0 });
        exps.map(|exp| exp / sum).collect()
    }

    /// What dropout multiplies a weight by.
    pub(crate) fn kept_share(&self, [b, h, i]: [usize; 3], j: usize) -> f64 {
        let Some(dropout) = self.recipe.dropout else {
            return 1.0;
        };
        let place = self.seen.position(b, i, self.recipe.alignment);
        match definition::drops(dropout, b, h, place, j) {
            true => 0.0,
            false if self.recipe.dropout_scaled => 1.0 / (1.0 - dropout.p),
            false => 1.0,
        }
    }
}

/// The largest number; NaN if one of them is, −∞ if there is none.
fn maximum(numbers: impl Iterator<Item = f64>) -> f64 {
    numbers.fold(
        f64::NEG_INFINITY,
        |a, b| if b.is_nan() || b > a { b } else { a },
    )
}
