//! Dropout, told from one run's weights: some are 0, all others the right ones times one factor.

use super::Case;
use super::compare::Trial;
use crate::report::{Cause, Parameters, Value};
use qkv::StepName;

/// The cause, if the weights look so and the share of zeros is that of the factor.
pub(super) fn seen_in_weights(case: &Case<'_>) -> Option<Cause> {
    const TELLING: f64 = 1e-4; // smaller weights may be 0 by rounding
    const FEWEST: f64 = 8.0;
    let only_weights = case
        .claims
        .iter()
        .all(|claim| claim.step == StepName::Weights);
    if !only_weights || case.right.dropout.is_some() {
        return None;
    }
    let trial = Trial::new(case, &case.right, true)?;
    let (mut zeros, mut all) = (0.0, 0.0);
    let (mut factor, mut largest) = (None::<f64>, 0.0_f64);
    for claim in 0..case.claims.len() {
        for row in 0..trial.rows(claim) {
            let right = trial.predicted(claim, row)?;
            let level = *case.levels[claim].get(1)?;
            for (c, &theirs) in trial.theirs(claim, row).iter().enumerate() {
                let weight = right.values[c];
                if weight.abs() < TELLING {
                    continue;
                }
                all += 1.0;
                if theirs == 0.0 {
                    zeros += 1.0;
                    continue;
                }
                let share = theirs / weight;
                let known = *factor.get_or_insert(share);
                let apart = (theirs - known * weight).abs();
                let extra = case.claims[claim].half_unit;
                let fits = apart <= 2.0 * (known * level.allows(&right, c) + extra);
                if !fits {
                    return None;
                }
                largest = largest.max(apart);
            }
        }
    }
    let factor = factor?;
    if zeros < 1.0 || all < FEWEST || factor < 1.0 - 1e-3 {
        return None;
    }
    let unscaled = factor < 1.0 + 1e-3;
    let p = if unscaled {
        zeros / all
    } else {
        1.0 - 1.0 / factor
    };
    // Five standard deviations of a count.
    if (zeros - p * all).abs() > 5.0 * (p * (1.0 - p) * all).sqrt() + 1.0 {
        return None;
    }
    Some(Cause {
        ids: match unscaled {
            true => vec!["dropout-on", "dropout-unscaled"],
            false => vec!["dropout-on"],
        },
        parameters: Parameters::from([("p", Value::Number(p))]),
        max_abs_error: largest,
    })
}
