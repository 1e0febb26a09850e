//! Dropout, told from the numbers of one run or of two, since nobody knows which weights it drops.
//!
//! A run's weights are the right ones times 0 or one factor, 1/(1−p) or, unscaled, 1. An output is
//! Σ_j m_j·w_j·v_j with such m_j, which a row of few keys gives away. Of two runs nothing more is known
//! than mean and variance of m: 1 and p/(1−p), or, unscaled, 1−p and p·(1−p).

mod masks;

use super::Case;
use super::compare::Trial;
use crate::bound::roundoff;
use crate::claim::Claim;
use crate::model::RowOut;
use crate::recompute::difference;
use crate::report::{Cause, Parameters, Value};
use qkv::StepName;

/// Weights of a run: how many were dropped, of how many, and how large they are.
#[derive(Default)]
struct Count {
    dropped: f64,
    all: f64,
    /// The largest weight that was dropped, and the smallest that was not.
    largest_dropped: f64,
    smallest_kept: f64,
    largest_error: f64,
}

impl Count {
    fn new() -> Count {
        Count {
            smallest_kept: f64::INFINITY,
            ..Count::default()
        }
    }

    fn add(&mut self, weight: f64, dropped: bool) {
        self.all += 1.0;
        if dropped {
            self.dropped += 1.0;
            self.largest_dropped = self.largest_dropped.max(weight);
        } else {
            self.smallest_kept = self.smallest_kept.min(weight);
        }
    }

    /// The cause, if the share of what was dropped is that of the factor, and chance may have chosen.
    fn cause(&self, factor: f64, near: f64) -> Option<Cause> {
        const FEWEST: f64 = 8.0;
        // All small weights dropped and no large one is a threshold, not chance.
        let by_size = self.largest_dropped < self.smallest_kept;
        if self.dropped < 1.0 || self.all < FEWEST || factor < 1.0 - near || by_size {
            return None;
        }
        let unscaled = factor < 1.0 + near;
        let p = if unscaled {
            self.dropped / self.all
        } else {
            1.0 - 1.0 / factor
        };
        // Five standard deviations of a count.
        if (self.dropped - p * self.all).abs() > 5.0 * (p * (1.0 - p) * self.all).sqrt() + 1.0 {
            return None;
        }
        Some(cause(unscaled, Some(p), self.largest_error))
    }
}

fn cause(unscaled: bool, p: Option<f64>, max_abs_error: f64) -> Cause {
    let p = p.map(|p| ("p", Value::Number(p)));
    Cause {
        ids: match unscaled {
            true => vec!["dropout-unscaled"],
            false => vec!["dropout-on"],
        },
        parameters: Parameters::from_iter(p),
        max_abs_error,
    }
}

/// The cause, if one run's numbers look so.
pub(super) fn seen_in_one_run(case: &Case<'_>) -> Option<Cause> {
    let only = |step: StepName| case.claims.iter().all(|claim| claim.step == step);
    if case.right.dropout.is_some() {
        return None;
    }
    let trial = Trial::new(case, &case.right, true)?;
    match () {
        () if only(StepName::Weights) => in_weights(case, &trial),
        () if only(StepName::Output) => masks::in_outputs(case, &trial),
        () => None,
    }
}

fn in_weights(case: &Case<'_>, trial: &Trial<'_>) -> Option<Cause> {
    const TELLING: f64 = 1e-4; // smaller weights may be 0 by rounding
    let rows = || {
        (0..case.claims.len()).flat_map(|claim| (0..trial.rows(claim)).map(move |row| (claim, row)))
    };
    // The factor of those that are left, over which roundings even out.
    let (mut product, mut square) = (0.0, 0.0);
    for (claim, row) in rows() {
        let right = trial.predicted(claim, row)?;
        for (weight, theirs) in right.values.iter().zip(trial.theirs(claim, row)) {
            if weight.abs() >= TELLING && *theirs != 0.0 {
                product += weight * theirs;
                square += weight * weight;
            }
        }
    }
    let factor = product / square;
    let mut count = Count::new();
    for (claim, row) in rows() {
        let right = trial.predicted(claim, row)?;
        let level = *case.levels[claim].get(1)?;
        for (c, &theirs) in trial.theirs(claim, row).iter().enumerate() {
            let weight = right.values[c];
            if weight.abs() < TELLING {
                continue;
            }
            count.add(weight, theirs == 0.0);
            if theirs == 0.0 {
                continue;
            }
            let apart = (theirs - factor * weight).abs();
            let extra = case.claims[claim].half_unit;
            let fits = apart <= 2.0 * (factor * level.allows(&right, c) + extra);
            if !fits {
                return None;
            }
            count.largest_error = count.largest_error.max(apart);
        }
    }
    let coarse = case.is_coarse() || case.claims.iter().any(|claim| claim.half_unit > 0.0);
    count.cause(factor, if coarse { 1e-2 } else { 1e-3 })
}

/// Two runs of the same that differ by more than rounding: the likelier first, one alone where it is
/// certain which.
pub(super) fn seen_in_two_runs(case: &Case<'_>) -> Vec<Cause> {
    for (at, a) in case.claims.iter().enumerate() {
        for (other, b) in case.claims.iter().enumerate().skip(at + 1) {
            if a.step != b.step || a.values.data().len() != b.values.data().len() {
                continue;
            }
            let apart = apart(a, b);
            let largest = a.values.data().iter().fold(0.0_f64, |m, x| m.max(x.abs()));
            if apart > roundoff(a.dtype) * 64.0 * largest {
                return match mean_tells(case, at, other) {
                    None => vec![cause(false, None, apart)],
                    Some(Told { unscaled, p, other }) => {
                        [Some((unscaled, p)), other.map(|p| (!unscaled, p))]
                            .into_iter()
                            .flatten()
                            .map(|(unscaled, p)| cause(unscaled, Some(p), apart))
                            .collect()
                    }
                };
            }
        }
    }
    Vec::new()
}

/// What two runs tell.
struct Told {
    unscaled: bool,
    /// The share that was dropped.
    p: f64,
    /// That share, were it the other way, where this cannot be excluded.
    other: Option<f64>,
}

fn apart(a: &Claim, b: &Claim) -> f64 {
    let pairs = a.values.data().iter().zip(b.values.data());
    pairs.map(|(a, b)| difference(*a, *b)).fold(0.0, f64::max)
}

/// Scaled or not, by the mean and the variance of what each weight was multiplied by; `None` for
/// results that mix heads.
fn mean_tells(case: &Case<'_>, a: usize, b: usize) -> Option<Told> {
    const CERTAIN: f64 = 8.0; // standard deviations between both: four from either
    let trial = Trial::new(case, &case.right, false)?;
    if trial.rows(a) != trial.rows(b) {
        return None;
    }
    // mean m = Σ theirs·right / Σ right²; its variance from what each key has in it.
    let (mut product, mut square, mut spread, mut runs, mut keys) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for at in 0..trial.rows(a) {
        let RowOut { values: right, .. } = trial.predicted(a, at)?;
        let terms = match case.claims[a].step {
            StepName::Output => trial.terms(a, at)?.1,
            StepName::Weights => {
                let alone = |j: usize| {
                    let mut term = vec![0.0; right.len()];
                    term[j] = right[j];
                    term
                };
                (0..right.len()).map(alone).collect()
            }
            _ => return None,
        };
        let (one, two) = (trial.theirs(a, at), trial.theirs(b, at));
        for c in 0..right.len() {
            product += 0.5 * (one[c] + two[c]) * right[c];
            square += right[c] * right[c];
            runs += (one[c] - two[c]).powi(2);
        }
        for term in &terms {
            let along: f64 = term.iter().zip(&right).map(|(t, r)| t * r).sum();
            spread += along * along;
            keys += term.iter().map(|t| t * t).sum::<f64>();
        }
    }
    let mean = product / square;
    // E (one − two)² = 2·Var(m)·Σ_j (w_j·v_j)².
    let variance = runs / (2.0 * keys);
    let deviation = (0.5 * variance * spread).sqrt() / square;
    let scaled = variance / (1.0 + variance);
    // p·(1 − p) is at most a quarter.
    let root = (1.0 - 4.0 * variance).max(0.0).sqrt();
    let shares = [0.5 - 0.5 * root, 0.5 + 0.5 * root];
    let off = |p: f64| (mean - (1.0 - p)).abs();
    let [low, high] = shares;
    let unscaled = if off(low) <= off(high) { low } else { high };
    if !(mean.is_finite() && variance > 0.0 && deviation > 0.0) {
        return None;
    }
    let certain = unscaled > CERTAIN * deviation;
    let told = |is_unscaled: bool, p: f64, other: f64| Told {
        unscaled: is_unscaled,
        p,
        other: (!certain).then_some(other),
    };
    Some(match off(unscaled) < (mean - 1.0).abs() {
        true => told(true, unscaled, scaled),
        false => told(false, scaled, unscaled),
    })
}
