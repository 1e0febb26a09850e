//! Which keys of a row dropout dropped, told from the row of the output.
//!
//! A row is f·Σ_j m_j·w_j·v_j with m_j 0 or 1 and one f for all. Where the w_j·v_j of the kept keys are
//! independent, the m_j·f are the one solution of a linear system; where there are few of them, all sets
//! are tried, in two halves that have to meet once f is known.

use super::{Case, Count, Trial, roundoff};
use crate::report::Cause;

/// Where every set of keys is tried.
const FEW: usize = 10;
/// Where sets of either half are.
const MOST: usize = 24;

/// A row whose keys dropout may have dropped, and what came out.
struct Row<'r> {
    /// w_j·v_j of each key that shows.
    terms: Vec<Vec<f64>>,
    weights: Vec<f64>,
    theirs: &'r [f64],
    allowed: Vec<f64>,
}

/// Which keys of a row were dropped, with the factor of the others.
struct Fit {
    factor: f64,
    dropped: Vec<bool>,
    error: f64,
}

pub(super) fn in_outputs(case: &Case<'_>, trial: &Trial<'_>) -> Option<Cause> {
    const ROWS: usize = 512;
    const FEWEST: usize = 4;
    let fine = case.claims.iter().all(|claim| roundoff(claim.dtype) < 1e-6);
    if !fine || case.allowed > 4 || case.claims.iter().any(|claim| claim.half_unit > 0.0) {
        return None;
    }
    let (mut rows, mut all) = (Vec::new(), 0);
    for claim in 0..case.claims.len() {
        for at in 0..trial.rows(claim) {
            if rows.len() < ROWS {
                all += 1;
                rows.extend(row(case, trial, claim, at)?.filter_solvable());
            }
        }
    }
    // What cannot be told of most rows is told of none.
    if 2 * rows.len() < all {
        return None;
    }
    let several = || rows.iter().filter(|row| row.terms.len() > 1);
    let factor = match several().find_map(Row::alone) {
        Some(fit) => fit.factor,
        None => {
            let shortest = several().min_by_key(|row| row.terms.len())?;
            let shares = (0..100).map(|n| 1.0 / (1.0 - 0.01 * f64::from(n)));
            shares
                .into_iter()
                .find(|factor| shortest.fits(*factor).len() == 1)?
        }
    };
    let mut count = Count::new();
    let mut told = 0;
    for row in &rows {
        let fits = row.fits(factor);
        let [fit] = &fits[..] else {
            if fits.is_empty() {
                return None;
            }
            continue; // several sets give the same
        };
        told += 1;
        count.largest_error = count.largest_error.max(fit.error);
        for (weight, dropped) in row.weights.iter().zip(&fit.dropped) {
            count.add(*weight, *dropped);
        }
    }
    if told < FEWEST.min(rows.len()) {
        return None;
    }
    count.cause(factor, 1e-3)
}

/// Terms of a row of a head's output; `None` for other results, where heads are mixed.
fn row<'r>(case: &Case<'_>, trial: &'r Trial<'_>, claim: usize, at: usize) -> Option<Row<'r>> {
    let (weights, terms) = trial.terms(claim, at)?;
    let right = trial.predicted(claim, at)?;
    let level = *case.levels[claim].get(1)?;
    let allowed: Vec<f64> = (0..right.values.len())
        .map(|c| 4.0 * level.allows(&right, c))
        .collect();
    // A key that is lost in rounding may be dropped or not.
    let shows = |term: &[f64]| {
        let mut pairs = term.iter().zip(&allowed);
        pairs.any(|(x, allowed)| x.abs() > 0.05 * allowed)
    };
    let (terms, weights) = terms
        .into_iter()
        .zip(weights)
        .filter(|(term, _)| shows(term))
        .unzip();
    Some(Row {
        terms,
        weights,
        theirs: trial.theirs(claim, at),
        allowed,
    })
}

impl Row<'_> {
    fn filter_solvable(self) -> Option<Self> {
        let keys = self.terms.len();
        (keys <= MOST || keys <= self.theirs.len()).then_some(self)
    }

    /// The one set of dropped keys that gives the row with one factor for the others, if there is one.
    fn alone(&self) -> Option<Fit> {
        let keys = self.terms.len();
        if let Some(dropped) = self.solved() {
            let fit = self.fit(&dropped, None)?;
            return dropped.contains(&false).then_some(fit);
        }
        if keys > FEW {
            return None;
        }
        let sets = (0..1_usize << keys).map(|set| bits(set, keys));
        let mut fits = sets.filter_map(|dropped| self.fit(&dropped, None));
        let fit = fits.next()?;
        (fits.next().is_none() && fit.dropped.contains(&false)).then_some(fit)
    }

    /// All sets of dropped keys that give the row with this factor for the others; of very many some.
    fn fits(&self, factor: f64) -> Vec<Fit> {
        if let Some(dropped) = self.solved() {
            return self.fit(&dropped, Some(factor)).into_iter().collect();
        }
        let keys = self.terms.len();
        let half = keys / 2;
        // The first column of each half's sums; the halves have to meet in it.
        let sums = |from: usize, to: usize| -> Vec<(f64, usize)> {
            let mut sums = vec![(0.0, 0)];
            for (at, term) in self.terms[from..to].iter().enumerate() {
                let more: Vec<(f64, usize)> = sums
                    .iter()
                    .map(|(sum, set)| (sum + factor * term[0], set | 1 << at))
                    .collect();
                sums.extend(more);
            }
            sums
        };
        let (Some(&theirs), Some(&allowed)) = (self.theirs.first(), self.allowed.first()) else {
            return Vec::new();
        };
        let mut left = sums(0, half);
        left.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut fits = Vec::new();
        for (sum, right) in sums(half, keys) {
            let (low, high) = (
                theirs - sum - factor * allowed,
                theirs - sum + factor * allowed,
            );
            let from = left.partition_point(|(sum, _)| *sum < low);
            for (_, kept) in left[from..].iter().take_while(|(sum, _)| *sum <= high) {
                let kept = kept | right << half;
                let dropped: Vec<bool> = bits(kept, keys).into_iter().map(|kept| !kept).collect();
                fits.extend(self.fit(&dropped, Some(factor)));
                if fits.len() > 1 {
                    return fits;
                }
            }
        }
        fits
    }

    /// What a set of dropped keys gives, if that is the row.
    fn fit(&self, dropped: &[bool], factor: Option<f64>) -> Option<Fit> {
        let mut sum = vec![0.0; self.theirs.len()];
        for (term, _) in self
            .terms
            .iter()
            .zip(dropped)
            .filter(|(_, dropped)| !**dropped)
        {
            sum.iter_mut().zip(term).for_each(|(sum, x)| *sum += x);
        }
        let factor = match factor {
            Some(factor) => factor,
            None => {
                let product: f64 = sum.iter().zip(self.theirs).map(|(x, y)| x * y).sum();
                product / sum.iter().map(|x| x * x).sum::<f64>()
            }
        };
        let mut error = 0.0_f64;
        for ((x, y), allowed) in sum.iter().zip(self.theirs).zip(&self.allowed) {
            let apart = (factor * x - y).abs();
            error = error.max(apart);
            if apart > factor * allowed {
                return None;
            }
        }
        // A factor that is no number fits nothing.
        (factor >= 1.0 - 1e-3).then(|| Fit {
            factor,
            dropped: dropped.to_vec(),
            error,
        })
    }

    /// Which keys were dropped, where their terms are independent: those whose share of the row is
    /// below a half, since the others' is one or more.
    fn solved(&self) -> Option<Vec<bool>> {
        const INDEPENDENT: f64 = 1e-4; // what is left of a term beside those before it
        let (keys, width) = (self.terms.len(), self.theirs.len());
        if keys > width || keys == 0 {
            return None;
        }
        // Gram and Schmidt, each term twice; shares are found backwards.
        let dot = |a: &[f64], b: &[f64]| -> f64 { a.iter().zip(b).map(|(a, b)| a * b).sum() };
        let (mut base, mut upper) = (Vec::<Vec<f64>>::new(), Vec::new());
        for term in &self.terms {
            let mut rest = term.clone();
            let mut column = vec![0.0; base.len()];
            for _ in 0..2 {
                for (share, unit) in column.iter_mut().zip(&base) {
                    let along = dot(unit, &rest);
                    *share += along;
                    rest.iter_mut().zip(unit).for_each(|(x, u)| *x -= along * u);
                }
            }
            let (left, all) = (dot(&rest, &rest).sqrt(), dot(term, term).sqrt());
            if left.is_nan() || left <= INDEPENDENT * all {
                return None;
            }
            rest.iter_mut().for_each(|x| *x /= left);
            base.push(rest);
            column.push(left);
            upper.push(column);
        }
        let mut shares: Vec<f64> = base.iter().map(|unit| dot(unit, self.theirs)).collect();
        for at in (0..keys).rev() {
            shares[at] /= upper[at][at];
            for before in 0..at {
                shares[before] -= upper[at][before] * shares[at];
            }
        }
        Some(shares.into_iter().map(|share| share < 0.5).collect())
    }
}

/// Whether each of some bits is set.
fn bits(set: usize, count: usize) -> Vec<bool> {
    (0..count).map(|at| set >> at & 1 == 1).collect()
}
