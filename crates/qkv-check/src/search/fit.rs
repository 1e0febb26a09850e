//! Numbers that nobody told, found from the claims.

use super::Case;
use super::candidates::{Hypothesis, Probes};
use super::compare::Trial;
use crate::conventions::{Convention, Fit, table};
use crate::recipe::Recipe;
use crate::report::Parameters;
use rayon::prelude::*;

/// Each convention with an unknown number, with the numbers that fit the probes best.
pub(super) fn singles(case: &Case<'_>, probes: &Probes) -> Vec<Hypothesis> {
    unknown()
        .into_par_iter()
        .flat_map_iter(|(rank, convention, unknown)| {
            let grid = (unknown.grid)(&case.base, &case.right);
            best(case, probes, unknown, &case.right, grid, true)
                .into_iter()
                .map(move |number| {
                    let mut recipe = case.right.clone();
                    (unknown.set)(&case.base, &mut recipe, number);
                    Hypothesis {
                        ids: vec![convention.id],
                        parameters: (unknown.parameters)(&case.base, &case.right, number),
                        recipe,
                        fitted: 1,
                        rank,
                    }
                })
        })
        .collect()
}

/// Each unknown number together with one known change.
pub(super) fn pairs(
    case: &Case<'_>,
    known: &[(usize, &'static str, &Parameters, Recipe)],
    probes: &Probes,
) -> Vec<Hypothesis> {
    let few: Probes = probes.iter().copied().take(4).collect();
    let unknown = unknown();
    case.watch.more(known.len());
    known
        .par_iter()
        .flat_map_iter(|(rank, id, parameters, recipe)| {
            let mut found = Vec::new();
            case.watch.tried();
            for (other_rank, convention, unknown) in &unknown {
                if convention.id == *id {
                    continue;
                }
                let grid = (unknown.grid)(&case.base, &case.right);
                for number in best(case, &few, *unknown, recipe, grid, false) {
                    let mut recipe = recipe.clone();
                    (unknown.set)(&case.base, &mut recipe, number);
                    let mut parameters = (*parameters).clone();
                    parameters.extend((unknown.parameters)(&case.base, &case.right, number));
                    found.push(Hypothesis {
                        ids: match rank < other_rank {
                            true => vec![*id, convention.id],
                            false => vec![convention.id, *id],
                        },
                        parameters,
                        recipe,
                        fitted: 1,
                        rank: rank + other_rank,
                    });
                }
            }
            found
        })
        .collect()
}

/// The unknown numbers of the table, with the ranks of their conventions.
fn unknown() -> Vec<(usize, &'static Convention, Fit)> {
    let ranked = table().enumerate();
    ranked
        .flat_map(|(rank, convention)| {
            convention
                .fits
                .iter()
                .map(move |fit| (rank, convention, *fit))
        })
        .collect()
}

/// The numbers at the lowest points of the squared difference, refined: those of a change `alone`, or
/// of one of many pairs, which have to show that they are worth the effort.
fn best(
    case: &Case<'_>,
    probes: &Probes,
    fit: Fit,
    from: &Recipe,
    mut grid: Vec<f64>,
    alone: bool,
) -> Vec<f64> {
    const FIRST: usize = 2; // probes that the grid is tried on
    const STEPS: usize = 45; // 0.618^45 < 2^-31
    grid.sort_by(f64::total_cmp);
    grid.dedup();
    if grid.len() < 3 || usable(case, probes) < 2 {
        return Vec::new();
    }
    let first: Probes = probes.iter().copied().take(FIRST).collect();
    let cost = |number: f64, probes: &Probes| {
        let mut recipe = from.clone();
        (fit.set)(&case.base, &mut recipe, number);
        squares(case, &recipe, probes)
    };
    let costs: Vec<f64> = grid.iter().map(|number| cost(*number, &first)).collect();
    let mut sorted: Vec<f64> = costs.iter().copied().filter(|c| c.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let Some(&median) = sorted.get(sorted.len() / 2) else {
        return Vec::new();
    };
    let mut lowest: Vec<usize> = (0..grid.len())
        .filter(|&at| {
            let left = at == 0 || costs[at - 1] >= costs[at];
            let right = at + 1 == grid.len() || costs[at + 1] >= costs[at];
            // A number that explains something has a low point of its own.
            (alone && costs[at].is_finite() || costs[at] <= 0.5 * median) && left && right
        })
        .collect();
    lowest.sort_by(|a, b| costs[*a].total_cmp(&costs[*b]));
    lowest.truncate(if alone { 3 } else { 1 });
    let mut numbers: Vec<f64> = Vec::new();
    for at in lowest {
        let low = grid[at.saturating_sub(1)];
        let high = grid[(at + 1).min(grid.len() - 1)];
        let all = |number: f64| cost(number, probes);
        let (low, high) = narrow(&all, low, high, STEPS);
        let number = 0.5 * (low + high);
        if fit.whole {
            numbers.push(number.round());
        } else if alone || cost(number, &first) <= 0.1 * costs[at] || costs[at] <= 1e-6 * median {
            // It is worth the rest of its digits.
            let (low, high) = narrow(&all, low, high, STEPS);
            numbers.push(0.5 * (low + high));
        }
    }
    numbers.dedup();
    numbers
}

/// Fewer numbers than unknowns fit anything.
fn usable(case: &Case<'_>, probes: &Probes) -> usize {
    let numbers = |claim: usize| {
        case.claims[claim]
            .values
            .shape()
            .last()
            .copied()
            .unwrap_or(1)
    };
    probes.iter().map(|(claim, _)| numbers(*claim)).sum()
}

/// What is left of an interval around its lowest point, by the golden section.
fn narrow(cost: &impl Fn(f64) -> f64, mut low: f64, mut high: f64, steps: usize) -> (f64, f64) {
    let share = (5f64.sqrt() - 1.0) / 2.0;
    let (mut a, mut b) = (high - share * (high - low), low + share * (high - low));
    let (mut at_a, mut at_b) = (cost(a), cost(b));
    for _ in 0..steps {
        if at_a <= at_b {
            (high, b, at_b) = (b, a, at_a);
            a = high - share * (high - low);
            at_a = cost(a);
        } else {
            (low, a, at_a) = (a, b, at_b);
            b = low + share * (high - low);
            at_b = cost(b);
        }
    }
    (low, high)
}

/// Σ (theirs − predicted)² of the probes.
fn squares(case: &Case<'_>, recipe: &Recipe, probes: &Probes) -> f64 {
    let Some(trial) = Trial::new(case, recipe, false) else {
        return f64::INFINITY;
    };
    let mut sum = 0.0;
    for &(claim, row) in probes
        .iter()
        .filter(|(claim, row)| *row < trial.rows(*claim))
    {
        let Some(predicted) = trial.predicted(claim, row) else {
            continue;
        };
        for (theirs, predicted) in trial.theirs(claim, row).iter().zip(&predicted.values) {
            if theirs.is_finite() || predicted.is_finite() {
                sum += (theirs - predicted).powi(2);
            }
        }
    }
    if sum.is_nan() { f64::INFINITY } else { sum }
}
