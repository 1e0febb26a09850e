//! Numbers that nobody told, found from the claims.

use super::Case;
use super::candidates::{Hypothesis, Probes};
use super::compare::Trial;
use crate::conventions::{Convention, Fit, table};
use crate::recipe::Recipe;
use rayon::prelude::*;

/// Each convention with an unknown number, with the numbers that fit the probes best.
pub(super) fn singles(case: &Case<'_>, probes: &Probes) -> Vec<Hypothesis> {
    let unknown: Vec<(usize, &Convention, Fit)> = table()
        .enumerate()
        .filter_map(|(rank, convention)| Some((rank, convention, convention.fit?)))
        .collect();
    unknown
        .into_par_iter()
        .flat_map_iter(|(rank, convention, unknown)| {
            let grid = (unknown.grid)(&case.base, &case.right);
            best(case, probes, unknown, &case.right, grid)
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

/// The numbers at the lowest points of the squared difference, refined.
fn best(case: &Case<'_>, probes: &Probes, fit: Fit, from: &Recipe, mut grid: Vec<f64>) -> Vec<f64> {
    const MOST: usize = 3;
    grid.sort_by(f64::total_cmp);
    grid.dedup();
    if grid.len() < 3 || usable(case, probes) < 2 {
        return Vec::new();
    }
    let cost = |number: f64| {
        let mut recipe = from.clone();
        (fit.set)(&case.base, &mut recipe, number);
        squares(case, &recipe, probes)
    };
    let costs: Vec<f64> = grid.iter().map(|number| cost(*number)).collect();
    let mut lowest: Vec<usize> = (0..grid.len())
        .filter(|&at| {
            let left = at == 0 || costs[at - 1] >= costs[at];
            let right = at + 1 == grid.len() || costs[at + 1] >= costs[at];
            costs[at].is_finite() && left && right
        })
        .collect();
    lowest.sort_by(|a, b| costs[*a].total_cmp(&costs[*b]));
    lowest.truncate(MOST);
    let mut numbers: Vec<f64> = lowest
        .into_iter()
        .map(|at| {
            let low = grid[at.saturating_sub(1)];
            let high = grid[(at + 1).min(grid.len() - 1)];
            let number = narrow(&cost, low, high);
            if fit.whole { number.round() } else { number }
        })
        .collect();
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

/// The lowest point between two numbers, by the golden section.
fn narrow(cost: &impl Fn(f64) -> f64, mut low: f64, mut high: f64) -> f64 {
    const STEPS: usize = 90; // 0.618^90 < 2^-62
    let share = (5f64.sqrt() - 1.0) / 2.0;
    let (mut a, mut b) = (high - share * (high - low), low + share * (high - low));
    let (mut at_a, mut at_b) = (cost(a), cost(b));
    for _ in 0..STEPS {
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
    if at_a <= at_b { a } else { b }
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
