//! How far rounding may move a number of a dump.
//!
//! A number is a sum of terms of both signs, so that its row's root mean square r stands for that
//! of its terms, √Σt². Terms of two factors that are each stored in a format of roundoff u, and a sum
//! of up to N terms in one of roundoff c (single precision, or double for f64), stray by
//!
//! ```text
//! 4·√2·u·(|x| + r) + 4·√N·c·(|x| + r)        N the longest axis of the dump, four deviations
//! ```
//!
//! and each layer before adds as much again, independently: times √(1 + layer). A weight moves with
//! its logit: w·(δ_j + Σ w·δ), δ the above of the logits, or of ln w where the dump has none.

use super::Named;
use super::names::{Key, key};
use crate::bound::roundoff;
use qkv::{DType, StepName};

/// What the bound takes from a whole dump.
pub(super) struct Scale {
    longest: f64,
    /// Root mean square of the values of each layer.
    values: Vec<(Option<usize>, f64)>,
}

impl Scale {
    pub fn new(dump: &[Named]) -> Scale {
        let axes = dump.iter().flat_map(|one| one.values.shape());
        let longest = axes.copied().max().unwrap_or(1).max(1) as f64;
        let values = dump.iter().filter_map(|one| {
            let key = key(&one.name);
            let is_values = key.step == Some(StepName::V);
            is_values.then(|| (key.layer, rms(one.values.data())))
        });
        Scale {
            longest,
            values: values.collect(),
        }
    }

    fn of_values(&self, layer: Option<usize>) -> f64 {
        let found = self.values.iter().find(|(other, _)| *other == layer);
        found.map_or(0.0, |(_, rms)| *rms)
    }
}

/// The numbers that weights of this layer and shape were made from.
pub(super) fn logits<'a>(dump: &'a [Named], weights: &Key, shape: &[usize]) -> Option<&'a [f64]> {
    if !matches!(weights.step, Some(StepName::Weights | StepName::Dropped)) {
        return None;
    }
    let last = [
        StepName::Masked,
        StepName::Biased,
        StepName::Capped,
        StepName::Scaled,
    ];
    let of = |step: StepName| {
        dump.iter().find(|one| {
            let key = key(&one.name);
            key.layer == weights.layer && key.step == Some(step) && one.values.shape() == shape
        })
    };
    let found = last.into_iter().find_map(of)?;
    Some(found.values.data())
}

/// A row with what rounding may do to it.
pub(super) struct Row<'a> {
    row: &'a [f64],
    /// In units of roundoff: |x| + r of each number, or what stands for it.
    sizes: Vec<f64>,
    growth: f64,
    terms: f64,
}

impl<'a> Row<'a> {
    /// Row `at` of an array of the dump.
    ///
    /// `logits` are those of the same layer, where the dump has them.
    pub fn new(
        scale: &Scale,
        logits: Option<&[f64]>,
        key: &Key,
        row: &'a [f64],
        at: usize,
    ) -> Row<'a> {
        let own = logits.and_then(|logits| logits.chunks(row.len()).nth(at));
        let sizes = match key.step {
            Some(StepName::Weights | StepName::Dropped) => match own {
                Some(logits) => weights(row, logits),
                None => weights(row, &logarithms(row)),
            },
            Some(StepName::Output | StepName::Concatenated) => {
                plain(row, scale.of_values(key.layer))
            }
            _ => plain(row, 0.0),
        };
        Row {
            row,
            sizes,
            growth: (1.0 + key.layer.unwrap_or(0) as f64).sqrt(),
            terms: scale.longest,
        }
    }

    /// The error allowed of number `c`.
    pub fn allows(&self, c: usize, format: DType) -> f64 {
        let computed = match format {
            DType::F64 => roundoff(DType::F64),
            _ => roundoff(DType::F32),
        };
        let each = 4.0 * (2f64.sqrt() * roundoff(format) + self.terms.sqrt() * computed);
        let smallest = match format {
            DType::F64 => f64::MIN_POSITIVE,
            DType::F16 => 2f64.powi(-24),
            DType::F32 | DType::Bf16 => 2f64.powi(-126),
        };
        match self.row[c].is_finite() {
            true => each * self.growth * self.sizes[c] + smallest,
            false => 0.0,
        }
    }
}

/// |x| + r of the row, and what is added to it.
fn plain(row: &[f64], more: f64) -> Vec<f64> {
    let root = rms(row) + more;
    row.iter().map(|x| x.abs() + root).collect()
}

/// w·(δ_j + Σ w·δ + 1), δ = |s| + r.
fn weights(row: &[f64], logits: &[f64]) -> Vec<f64> {
    let errors = plain(logits, 1.0);
    let error = |j: usize| {
        if logits[j].is_finite() {
            errors[j]
        } else {
            0.0
        }
    };
    let mean: f64 = row
        .iter()
        .enumerate()
        .map(|(j, w)| w.abs() * error(j))
        .sum();
    let size = |(j, w): (usize, &f64)| w.abs() * (error(j) + mean + 1.0);
    row.iter().enumerate().map(size).collect()
}

/// ln(w / max w).
fn logarithms(row: &[f64]) -> Vec<f64> {
    let largest = row.iter().copied().fold(0.0, f64::max);
    let logarithm = |w: &f64| match *w > 0.0 {
        true => (w / largest).ln(),
        false => f64::NEG_INFINITY,
    };
    row.iter().map(logarithm).collect()
}

/// Root mean square of the finite numbers.
fn rms(numbers: &[f64]) -> f64 {
    let finite = || numbers.iter().filter(|x| x.is_finite());
    let count = finite().count().max(1) as f64;
    (finite().map(|x| x * x).sum::<f64>() / count).sqrt()
}
