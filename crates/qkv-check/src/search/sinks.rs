//! Sinks that nobody told, one number for each head: what a head's rows lack of the right ones says its
//! own.

use super::Case;
use super::candidates::{Hypothesis, Probes};
use super::compare::Trial;
use super::fit::{narrow, squares};
use crate::conventions::{sink_logits, sinks, table};
use rayon::prelude::*;

/// The convention that they are found for.
const SINKS: &str = "sinks-undeclared";

/// The right recipe with the sinks that fit each head best; `None` where the options have some, and
/// where a head's numbers say too little.
pub(super) fn of_each_head(case: &Case<'_>) -> Option<Hypothesis> {
    const ROWS: usize = 12;
    const STEPS: usize = 90; // 0.618^90 < 2^-62
    let heads = case.base.sizes.heads;
    if case.right.sinks.is_some() || heads < 2 {
        return None;
    }
    let rows = rows_of_heads(case)?;
    let logits: Vec<f64> = rows
        .par_iter()
        .map(|rows| {
            let some: Probes = rows
                .iter()
                .copied()
                .step_by(rows.len().div_ceil(ROWS))
                .collect();
            let cost = |logit: f64| {
                let mut recipe = case.right.clone();
                recipe.sinks = Some(vec![logit; heads]);
                squares(case, &recipe, &some)
            };
            let grid = sink_logits().map(|logit| (cost(logit), logit));
            let (_, near) = grid.min_by(|a, b| a.0.total_cmp(&b.0))?;
            let (low, high) = narrow(&cost, near - 0.5, near + 0.5, STEPS);
            Some(0.5 * (low + high))
        })
        .collect::<Option<_>>()?;
    let mut recipe = case.right.clone();
    recipe.sinks = Some(logits.clone());
    Some(Hypothesis {
        ids: vec![SINKS],
        parameters: sinks(&logits),
        recipe,
        fitted: heads,
        rank: table().position(|convention| convention.id == SINKS)?,
    })
}

/// The rows of each head, where rows are of one head and there are several of each: one alone may be
/// multiplied by anything.
fn rows_of_heads(case: &Case<'_>) -> Option<Vec<Probes>> {
    let trial = Trial::new(case, &case.right, false)?;
    let mut rows = vec![Probes::new(); case.base.sizes.heads];
    for claim in 0..case.claims.len() {
        for row in 0..trial.rows(claim) {
            if let Some(h) = trial.head(claim, row) {
                rows.get_mut(h)?.push((claim, row));
            }
        }
    }
    rows.iter().all(|rows| rows.len() > 1).then_some(rows)
}
