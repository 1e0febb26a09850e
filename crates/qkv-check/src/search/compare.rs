//! Claims beside what a recipe gives.

use super::Case;
use crate::bound::Level;
use crate::model::{Model, RowOut};
use crate::recipe::Recipe;
use crate::shape::{Reading, is_score};
use qkv::StepName;
use rayon::prelude::*;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A whole comparison.
#[derive(Clone, Debug)]
pub(crate) struct Compared {
    /// The finest level at which all numbers fit.
    pub level: Option<usize>,
    /// The same for each claim.
    pub levels: Vec<Option<usize>>,
    pub max_abs_error: f64,
    /// Mean square of difference ÷ what storing in the numbers' own format allows.
    pub noise: f64,
    pub largest_allowed: f64,
    pub right_is_nan: bool,
    pub nothing_to_compare: bool,
    pub first: Option<Difference>,
    pub count: usize,
    pub of: usize,
    pub batches: Vec<usize>,
    pub heads: Vec<usize>,
    pub rows: Vec<usize>,
    pub ratio: Option<f64>,
    /// Rows that differ, and some that do not, of each claim.
    pub differing: Vec<Vec<usize>>,
}

#[derive(Clone, Debug)]
pub(crate) struct Difference {
    pub claim: usize,
    pub step: StepName,
    pub index: Vec<usize>,
    pub right: f64,
    pub theirs: f64,
    pub allowed: f64,
}

/// What one row comes to.
#[derive(Clone, Debug, Default)]
pub(super) struct RowCompared {
    /// The finest level at which it fits; as many as there are levels if at none.
    pub level: usize,
    pub largest: f64,
    pub noise: f64,
    pub allowed: f64,
    pub count: usize,
    pub numbers: usize,
    pub nan: bool,
    first: Option<(usize, f64, f64, f64)>,
    ratio: Option<f64>,
}

/// A recipe that is ready to be compared with the claims.
pub(super) struct Trial<'c> {
    case: &'c Case<'c>,
    model: Model<'c>,
    readings: Vec<Reading>,
}

impl<'c> Trial<'c> {
    pub fn new(case: &'c Case<'c>, recipe: &'c Recipe, with_bounds: bool) -> Option<Trial<'c>> {
        let readings = case
            .claims
            .iter()
            .map(|claim| Reading::new(&case.base, recipe, claim))
            .collect::<Option<_>>()?;
        Some(Trial {
            case,
            model: Model::new(&case.base, &case.shared, recipe, with_bounds)?,
            readings,
        })
    }

    /// The claim's numbers of a row.
    pub fn theirs(&self, claim: usize, row: usize) -> &'c [f64] {
        let width = self.readings[claim].width();
        &self.case.claims[claim].values.data()[row * width..][..width]
    }

    pub fn rows(&self, claim: usize) -> usize {
        self.readings[claim].rows()
    }

    /// The head of a row, where it is of one.
    pub fn head(&self, claim: usize, row: usize) -> Option<usize> {
        match self.readings[claim].index(row)[..] {
            [_, h, _] => Some(h),
            _ => None,
        }
    }

    pub fn predicted(&self, claim: usize, row: usize) -> Option<RowOut> {
        self.readings[claim].row(&self.model, row)
    }

    /// Weights of a row of a head's output, and w_j·v_j of each key; `None` for what mixes heads.
    pub fn terms(&self, claim: usize, row: usize) -> Option<(Vec<f64>, Vec<Vec<f64>>)> {
        let reading = &self.readings[claim];
        let &[b, h, i] = &reading.index(row)[..] else {
            return None;
        };
        if reading.step != StepName::Output {
            return None;
        }
        Some(self.model.terms([b, h, i]))
    }

    /// Compares a row.
    pub fn row(&self, claim: usize, row: usize) -> RowCompared {
        let Some(mut right) = self.predicted(claim, row) else {
            return RowCompared::default();
        };
        let theirs = self.theirs(claim, row);
        let reading = &self.readings[claim];
        if is_score(reading.step) && theirs.contains(&f64::NEG_INFINITY) {
            self.accept_masked(reading, row, theirs, &mut right);
        }
        if let Some(shift) = self.shift(claim, theirs, &right) {
            right.values.iter_mut().for_each(|x| *x += shift);
            return compare_row(self.case, claim, theirs, &right, true);
        }
        compare_row(self.case, claim, theirs, &right, false)
    }

    /// The mean difference of a row, where rows may be shifted.
    fn shift(&self, claim: usize, theirs: &[f64], right: &RowOut) -> Option<f64> {
        const FEWEST: usize = 3; // fewer numbers say nothing beside an unknown
        let step = self.readings[claim].step;
        if !self.model.recipe.row_shift || !(is_score(step) || step == StepName::Output) {
            return None;
        }
        let pairs = theirs.iter().zip(&right.values);
        let apart = pairs.map(|(t, r)| t - r).filter(|x| x.is_finite());
        let (count, sum) = apart.fold((0, 0.0), |(n, sum), x| (n + 1, sum + x));
        (count >= FEWEST).then_some(sum / count as f64)
    }

    /// The shift of the first row that has one.
    pub fn first_shift(&self) -> Option<f64> {
        (0..self.readings.len()).find_map(|claim| {
            (0..self.rows(claim)).find_map(|row| {
                let right = self.predicted(claim, row)?;
                let shift = self.shift(claim, self.theirs(claim, row), &right)?;
                (shift.abs() > 1e-9).then_some(shift)
            })
        })
    }

    /// −∞ where a key is dropped is right in every step of scores.
    fn accept_masked(&self, reading: &Reading, row: usize, theirs: &[f64], right: &mut RowOut) {
        let index = reading.index(row);
        let masked = self.model.step(StepName::Masked, &index);
        let Some(masked) = masked.filter(|masked| masked.values.len() == theirs.len()) else {
            return;
        };
        for (c, masked) in masked.values.iter().enumerate() {
            if theirs[c] == f64::NEG_INFINITY && *masked == f64::NEG_INFINITY {
                right.values[c] = f64::NEG_INFINITY;
            }
        }
    }
}

/// Where a row is `shifted`, the shift is as uncertain as the numbers that it was found from.
fn compare_row(
    case: &Case<'_>,
    claim: usize,
    theirs: &[f64],
    right: &RowOut,
    shifted: bool,
) -> RowCompared {
    let levels = &case.levels[claim];
    let extra = case.claims[claim].half_unit;
    let stored = levels[case.allowed.saturating_sub(2).min(levels.len() - 1)];
    let own = levels[1.min(levels.len() - 1)];
    let mut out = RowCompared::default();
    let (mut ratio, mut one_ratio) = (None, true);
    let theirs_count = theirs.len();
    for (c, &theirs) in theirs.iter().enumerate() {
        let value = right.values[c];
        if right.worst[c] == f64::INFINITY {
            continue; // nobody knows it
        }
        out.numbers += 1;
        out.nan |= value.is_nan();
        let apart = crate::recompute::difference(theirs, value);
        let slack = |level: Level| match shifted {
            true => (0..theirs_count).fold(0.0, |most, c| level.allows(right, c).max(most)),
            false => 0.0,
        };
        let fits =
            |level: Level| apart == 0.0 || apart <= level.allows(right, c) + slack(level) + extra;
        let allowed = own.allows(right, c) + extra;
        out.largest = out.largest.max(apart);
        if allowed.is_finite() {
            out.allowed = out.allowed.max(allowed);
        }
        while out.level < levels.len() && !fits(levels[out.level]) {
            out.level += 1;
        }
        let fine = stored.allows(right, c) + extra;
        if apart > 0.0 && fine > 0.0 {
            out.noise += (apart / fine).powi(2).min(1e12);
        }
        if !fits(own) {
            out.count += 1;
            out.first.get_or_insert((c, value, theirs, allowed));
        }
        if value.abs() > 1e3 * allowed {
            let share = theirs / value;
            let known = *ratio.get_or_insert(share);
            one_ratio &= (share - known).abs() <= 1e-6 * known.abs() + 2.0 * allowed / value.abs();
        }
    }
    out.ratio = ratio.filter(|ratio| one_ratio && ratio.is_finite());
    out
}

/// Compares every number. With `locate` it goes on after a difference, and says where they are;
/// else it ends at the first row that fits at no level that an explanation may fit at.
pub(crate) fn compare(case: &Case<'_>, recipe: &Recipe, locate: bool) -> Option<Compared> {
    const ROWS: usize = 16;
    let trial = Trial::new(case, recipe, true)?;
    let failed = AtomicUsize::new(0);
    let mut total = Compared {
        level: Some(0),
        levels: vec![Some(0); case.claims.len()],
        max_abs_error: 0.0,
        noise: 0.0,
        largest_allowed: 0.0,
        right_is_nan: false,
        nothing_to_compare: true,
        first: None,
        count: 0,
        of: 0,
        batches: Vec::new(),
        heads: Vec::new(),
        rows: Vec::new(),
        ratio: None,
        differing: vec![Vec::new(); case.claims.len()],
    };
    let readings = trial.readings.clone();
    drop(trial);
    for claim in 0..case.claims.len() {
        let reading = &readings[claim];
        let rows = reading.rows();
        // Rows of a head share its keys and values: pieces of a head each.
        let per_head = reading.dims[reading.dims.len() - 2].max(1);
        let piece = per_head.max(ROWS);
        let pieces: Vec<(usize, Vec<RowCompared>)> = (0..rows.div_ceil(piece))
            .into_par_iter()
            .filter_map(|at| {
                if !locate && failed.load(Ordering::Relaxed) > 0 {
                    return None;
                }
                let trial = Trial::new(case, recipe, true)?;
                let mut compared = Vec::new();
                for row in at * piece..((at + 1) * piece).min(rows) {
                    let one = trial.row(claim, row);
                    let stop = !locate && one.level >= case.allowed;
                    compared.push(one);
                    if stop {
                        failed.fetch_add(1, Ordering::Relaxed);
                        break;
                    }
                }
                Some((at * piece, compared))
            })
            .collect();
        if !locate && failed.load(Ordering::Relaxed) > 0 {
            return None;
        }
        gather(case, claim, reading, pieces, &mut total);
    }
    if total.of == 0 {
        total.nothing_to_compare = true;
        total.level = None;
    }
    total.noise /= (total.of as f64).max(1.0);
    Some(total)
}

fn gather(
    case: &Case<'_>,
    claim: usize,
    reading: &Reading,
    pieces: Vec<(usize, Vec<RowCompared>)>,
    total: &mut Compared,
) {
    let count = case.levels[claim].len();
    let mut here = false;
    for (start, rows) in pieces {
        for (at, row) in rows.into_iter().enumerate() {
            let at = start + at;
            total.of += row.numbers;
            total.nothing_to_compare &= row.nan || row.numbers == 0;
            total.right_is_nan |= row.nan;
            total.max_abs_error = total.max_abs_error.max(row.largest);
            total.largest_allowed = total.largest_allowed.max(row.allowed);
            total.noise += row.noise;
            for level in [&mut total.level, &mut total.levels[claim]] {
                *level = match *level {
                    Some(level) if row.level < count => Some(level.max(row.level)),
                    _ => None,
                };
            }
            if row.level > 0 {
                total.differing[claim].push(at);
            }
            let Some((c, right, theirs, allowed)) = row.first else {
                continue;
            };
            let mut index = reading.index(at);
            if total
                .first
                .as_ref()
                .is_none_or(|first| first.claim == claim)
            {
                here = true;
            }
            if here {
                note(&mut total.batches, index[0]);
                if index.len() == 3 {
                    note(&mut total.heads, index[1]);
                }
                note(&mut total.rows, index[index.len() - 1]);
                total.count += row.count;
            }
            if total.first.is_none() {
                total.ratio = row.ratio;
                if !matches!(reading.step, StepName::Lse | StepName::Max | StepName::Sum) {
                    index.push(c);
                }
                total.first = Some(Difference {
                    claim,
                    step: reading.step,
                    index,
                    right,
                    theirs,
                    allowed,
                });
            }
        }
    }
}

fn note(known: &mut Vec<usize>, index: usize) {
    if let Err(at) = known.binary_search(&index) {
        known.insert(at, index);
    }
}
