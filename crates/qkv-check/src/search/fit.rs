//! Numbers that nobody told, found from the claims.

use super::Case;
use super::candidates::{Hypothesis, Probes};
use super::compare::Trial;
use crate::conventions::{Convention, Fit, Number, table};
use crate::recipe::Recipe;
use crate::report::Parameters;
use rayon::prelude::*;

/// Each convention with an unknown number, with the numbers that fit the probes best.
pub(super) fn singles(case: &Case<'_>, probes: &Probes) -> Vec<Hypothesis> {
    let rows = Rows::new(case, probes, probes.len());
    unknown()
        .into_par_iter()
        .flat_map_iter(|(rank, convention, unknown)| {
            let grid = (unknown.grid)(&case.base, &case.right);
            best(case, &rows, unknown, &case.right, grid, true)
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
    let rows = Rows::new(case, probes, 4);
    let mut unknown = unknown();
    unknown.retain(|(_, _, unknown)| !unknown.alone);
    case.watch.more(known.len());
    known
        .par_iter()
        .flat_map_iter(|(rank, id, parameters, recipe)| {
            let mut found = Vec::new();
            case.watch.tried();
            for (other_rank, convention, unknown) in &unknown {
                if convention.id == *id || is_idle(convention.id, id) {
                    continue;
                }
                let grid = (unknown.grid)(&case.base, &case.right);
                for number in best(case, &rows, *unknown, recipe, grid, false) {
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

/// Whether an unknown number means nothing beside a change, or next to nothing: a base where nothing is
/// turned, or where all frequencies are other ones anyway. Keys are turned anew for each.
fn is_idle(unknown: &str, known: &str) -> bool {
    unknown == "rotary-base" && matches!(known, "rotary-missing" | "rotary-scaling")
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
    rows: &Rows,
    fit: Fit,
    from: &Recipe,
    mut grid: Vec<f64>,
    alone: bool,
) -> Vec<f64> {
    const STEPS: usize = 45; // 0.618^45 < 2^-31
    grid.sort_by(f64::total_cmp);
    grid.dedup();
    if grid.len() < 3 || usable(case, &rows.probes) < 2 {
        return Vec::new();
    }
    let Rows {
        first,
        probes,
        last,
    } = rows;
    let cost = |number: f64, probes: &Probes| {
        let mut recipe = from.clone();
        (fit.set)(&case.base, &mut recipe, number);
        squares(case, &recipe, probes)
    };
    // One of a list may show in few rows.
    let tried = match fit.number {
        Number::Listed => probes,
        Number::Real | Number::Whole => first,
    };
    let costs: Vec<f64> = grid.iter().map(|number| cost(*number, tried)).collect();
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
        if fit.number == Number::Listed {
            numbers.push(grid[at]);
            continue;
        }
        let low = grid[at.saturating_sub(1)];
        let high = grid[(at + 1).min(grid.len() - 1)];
        let all = |number: f64| cost(number, probes);
        let (low, high) = narrow(&all, low, high, STEPS);
        let number = 0.5 * (low + high);
        if fit.number == Number::Whole {
            numbers.push(number.round());
        } else if alone || cost(number, first) <= 0.1 * costs[at] || costs[at] <= 1e-6 * median {
            // It is worth the rest of its digits, which more rows may tell than found it.
            let width = (high - low).max(1e-3 * number.abs());
            let (low, high) = match last {
                None => narrow(&all, low, high, STEPS),
                Some(last) => {
                    let all = |number: f64| cost(number, last);
                    narrow(&all, number - 8.0 * width, number + 8.0 * width, STEPS)
                }
            };
            numbers.push(0.5 * (low + high));
        }
    }
    numbers.dedup();
    numbers
}

/// Rows that a number is found from.
struct Rows {
    /// Those that the grid is tried on.
    first: Probes,
    probes: Probes,
    /// Where numbers are rounded coarsely, many more, over which the roundings even out.
    last: Option<Probes>,
}

impl Rows {
    fn new(case: &Case<'_>, probes: &Probes, count: usize) -> Rows {
        const ENOUGH: usize = 16; // numbers that the grid is tried on
        const LAST: usize = 96;
        let take = |count: usize| probes.iter().copied().take(count).collect();
        let width = |claim: usize| case.claims[claim].values.shape().last().copied();
        let widths = probes
            .iter()
            .map(|(claim, _)| width(*claim).unwrap_or(1).max(1));
        let least = widths.min().unwrap_or(1);
        Rows {
            first: take(ENOUGH.div_ceil(least).clamp(1, 2)),
            probes: take(count),
            last: case.is_coarse().then(|| spread(case, LAST)),
        }
    }
}

/// This many rows of each claim, evenly.
fn spread(case: &Case<'_>, most: usize) -> Probes {
    let of = |claim: usize| {
        let values = &case.claims[claim].values;
        let width = values.shape().last().copied().unwrap_or(1).max(1);
        let rows = values.data().len() / width;
        let step = rows.div_ceil(most).max(1);
        (0..rows).step_by(step).map(move |row| (claim, row))
    };
    (0..case.claims.len()).flat_map(of).collect()
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
pub(super) fn narrow(
    cost: &impl Fn(f64) -> f64,
    mut low: f64,
    mut high: f64,
    steps: usize,
) -> (f64, f64) {
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

/// Σ (theirs − predicted)² of the probes; relative to the rounding of each where that is coarse.
pub(super) fn squares(case: &Case<'_>, recipe: &Recipe, probes: &Probes) -> f64 {
    let Some(trial) = Trial::new(case, recipe, false) else {
        return f64::INFINITY;
    };
    let coarse = case.is_coarse();
    let mut sum = 0.0;
    for &(claim, row) in probes
        .iter()
        .filter(|(claim, row)| *row < trial.rows(*claim))
    {
        let Some(predicted) = trial.predicted(claim, row) else {
            continue;
        };
        let theirs = trial.theirs(claim, row);
        let largest = theirs.iter().filter(|x| x.is_finite());
        let largest = largest.fold(0.0_f64, |most, x| most.max(x.abs()));
        for (theirs, predicted) in theirs.iter().zip(&predicted.values) {
            if theirs.is_finite() || predicted.is_finite() {
                let size = match coarse && largest > 0.0 {
                    true => (theirs.abs() + 0.05 * largest) / largest,
                    false => 1.0,
                };
                sum += ((theirs - predicted) / size).powi(2);
            }
        }
    }
    if sum.is_nan() { f64::INFINITY } else { sum }
}
