//! Whether gradients are the right ones, as rounding allows.

use super::GradientClaim;
use super::backward::Gradients;
use super::each::Each;
use super::half::Half;
use super::sizes::largest;
use crate::bound::{Work, roundoff, stored_in};
use crate::dumps::{FirstDifference, Report, place_of};
use crate::lint::nothing_to_compare;
use crate::recompute::difference;
use crate::report::{Lint, Parameters, Places, Verdict};
use qkv::{DType, GradientBound, GradientName, Tensor};

/// Claims beside right numbers, with what rounding may do.
pub(super) struct Judge<'a> {
    /// From fine to coarse.
    pub bounds: [GradientBound; 4],
    /// Of each number, in units of the roundoff of single and double precision.
    pub each: Option<Each>,
    /// What roundings to `f16` and `bf16` add to it, where a claim may be in them.
    pub halves: [Option<Half>; 2],
    /// What is lost of a number below the least normal one, in double and in single precision.
    pub lost: [f64; 2],
    pub pairs: &'a [(&'a GradientClaim, Tensor<f64>)],
}

impl Judge<'_> {
    /// The error allowed of any number of a claim, in a format.
    fn allowed(&self, claim: &GradientClaim, format: usize) -> f64 {
        let bound = &self.bounds[format];
        let bound = match claim.name {
            GradientName::GradQ => bound.q,
            GradientName::GradK => bound.k,
            GradientName::GradBias => bound.bias,
            GradientName::GradSinks => bound.sinks,
            _ => bound.v,
        };
        bound + stored(format, largest(claim.values.data())) + claim.half_unit
    }

    /// The error allowed of number `at`, which should be `right`.
    fn allowed_at(
        &self,
        claim: &GradientClaim,
        (format, work): (usize, Work),
        at: usize,
        right: f64,
    ) -> f64 {
        let own = self.own(claim, (format, work), right.abs(), |each| {
            each.get(at).copied()
        });
        self.allowed(claim, format).min(own)
    }

    /// The error allowed of numbers that another derivative gives: what the right ones' may be at most,
    /// larger where the numbers are.
    fn allowed_of(
        &self,
        (claim, right): &(&GradientClaim, Tensor<f64>),
        format: usize,
        predicted: &[f64],
    ) -> f64 {
        const ELSEWHERE: f64 = 4.0;
        let (most, before) = (largest(predicted), largest(right.data()));
        let grown = ELSEWHERE * (most / before).max(1.0);
        let level = (format, Work::Kept);
        let own = self.own(claim, level, most, |each| Some(grown * largest(each)));
        self.allowed(claim, format).min(own)
    }

    /// A bound of a number's own; infinite where there is none.
    fn own(
        &self,
        claim: &GradientClaim,
        (format, work): (usize, Work),
        size: f64,
        of: impl Fn(&[f64]) -> Option<f64>,
    ) -> f64 {
        let computed = match format {
            0 => 2.0 * roundoff(DType::F64), // both sides round alike
            _ => roundoff(DType::F32) + roundoff(DType::F64),
        };
        let each = self.each.as_ref().and_then(|each| of(each.of(claim.name)));
        let Some(units) = each else {
            return f64::INFINITY;
        };
        let lost = self.lost[usize::from(format > 0)];
        let computed = computed * units + lost + stored(format, size) + claim.half_unit;
        if format < 2 {
            return computed;
        }
        let half = self.halves[format - 2].as_ref();
        let half = half.and_then(|half| match work {
            Work::Stored => of(half.stored.of(claim.name)),
            Work::Kept => of(half.kept.of(claim.name)),
        });
        // What is rounded may be off.
        half.map_or(f64::INFINITY, |half| half + 1.01 * computed)
    }

    /// What is left of each claim beside these numbers, if it is them as its own format rounds.
    pub fn left(&self, predicted: &Gradients) -> Vec<Option<f64>> {
        let of_claim = |pair: &(&GradientClaim, Tensor<f64>)| {
            let (claim, _) = pair;
            let own = place_of(claim.dtype).max(1);
            let numbers = predicted.of(claim.name);
            let allowed = self.allowed_of(pair, own, numbers);
            if numbers.len() != claim.values.data().len() {
                return None;
            }
            let mut left = 0.0_f64;
            for (a, b) in numbers.iter().zip(claim.values.data()) {
                let apart = difference(*a, *b);
                if apart.is_nan() || apart > allowed {
                    return None;
                }
                left = left.max(apart);
            }
            Some(left)
        };
        self.pairs.iter().map(of_claim).collect()
    }

    /// Of each claim, whether these numbers are what it should be, as its own format rounds.
    pub fn is_right(&self, predicted: &Gradients) -> Vec<bool> {
        let of_claim = |(claim, right): &(&GradientClaim, Tensor<f64>)| {
            let level = (place_of(claim.dtype).max(1), Work::Kept);
            let numbers = predicted.of(claim.name);
            let mut pairs = numbers.iter().zip(right.data()).enumerate();
            numbers.len() == right.data().len()
                && pairs
                    .all(|(at, (a, b))| difference(*a, *b) <= self.allowed_at(claim, level, at, *b))
        };
        self.pairs.iter().map(of_claim).collect()
    }

    pub fn compare(&self, held: DType) -> Report {
        let mut report = Report {
            verdict: Verdict::Equal,
            rounding: None,
            first_difference: None,
            equal: Vec::new(),
            differing: Vec::new(),
            causes: Vec::new(),
            bound: 0.0,
            max_abs_error: 0.0,
            places: None,
            lint: Vec::new(),
            missing: Vec::new(),
            extra: Vec::new(),
            of_files: false,
        };
        let mut level = 0;
        let mut equal = Vec::new();
        for (claim, right) in self.pairs {
            let own = place_of(claim.dtype);
            let stored = stored_by(claim);
            let coarsest = coarsest(claim, held);
            let name = claim.name.as_str();
            let (theirs, numbers) = (claim.values.data(), right.data());
            let apart = |at: usize| difference(theirs[at], numbers[at]);
            let allowed = |level, at: usize| self.allowed_at(claim, level, at, numbers[at]);
            // Half precision of which every intermediate is kept is not equal, but right.
            let most_of = match own {
                0 | 1 => Work::Stored,
                _ => Work::Kept,
            };
            let most = (0..theirs.len()).max_by(|a, b| apart(*a).total_cmp(&apart(*b)));
            if let Some(at) = most.filter(|at| apart(*at) >= report.max_abs_error) {
                (report.max_abs_error, report.bound) =
                    (apart(at), allowed((own, Work::Stored), at));
            }
            let fits = levels(own, coarsest)
                .find(|level| (0..theirs.len()).all(|at| apart(at) <= allowed(*level, at)));
            if let Some((format, work)) = fits {
                if format > own || work == Work::Kept {
                    // Numbers that are held in a format say more than how far they are off.
                    let held = stored.map_or(0, place_of);
                    level = level.max(format).max(held);
                }
                report.equal.push(name.to_owned());
                equal.push(claim.name);
                continue;
            }
            report.differing.push(name.to_owned());
            if report.first_difference.is_none() {
                let allowed = |at: usize| allowed((own, most_of), at);
                let found = first(claim, right, allowed, &equal);
                report.places = Some(places(claim, right, allowed));
                report.first_difference = Some(found);
            }
        }
        if numbers_are_nan(self.pairs) {
            report.lint.push(Lint {
                id: "reference-nan",
                parameters: Parameters::new(),
            });
        }
        if report.first_difference.is_some() {
            report.verdict = Verdict::Different;
        } else if self.pairs.iter().all(|(_, right)| right.data().is_empty()) {
            report.verdict = Verdict::Undecided;
            report.lint.push(nothing_to_compare());
        } else if level > 0 {
            report.verdict = Verdict::Rounding;
            report.rounding = [DType::F64, DType::F32, DType::F16, DType::Bf16]
                .get(level)
                .copied();
        }
        report
    }
}

/// What the numbers of a claim are held in, as far as they tell.
fn stored_by(claim: &GradientClaim) -> Option<DType> {
    stored_in(claim.values.data()).filter(|_| claim.half_unit == 0.0)
}

/// The coarsest format that a claim may be right in, where inputs are held in this one.
pub(super) fn coarsest(claim: &GradientClaim, held: DType) -> usize {
    let formats = [Some(held), stored_by(claim), Some(claim.dtype)];
    let places = formats.into_iter().flatten().map(place_of);
    places.fold(place_of(DType::F32), usize::max)
}

/// From fine to coarse.
fn levels(own: usize, coarsest: usize) -> impl Iterator<Item = (usize, Work)> {
    (own..=coarsest).flat_map(|format| {
        let kept = (format >= place_of(DType::F16)).then_some((format, Work::Kept));
        std::iter::once((format, Work::Stored)).chain(kept)
    })
}

/// In single precision a number is rounded once more than bounds know when it is stored.
fn stored(format: usize, size: f64) -> f64 {
    match format {
        0 => 0.0,
        _ => roundoff(DType::F32) * size,
    }
}

fn numbers_are_nan(pairs: &[(&GradientClaim, Tensor<f64>)]) -> bool {
    pairs
        .iter()
        .any(|(_, right)| right.data().iter().any(|x| x.is_nan()))
}

fn first(
    claim: &GradientClaim,
    right: &Tensor<f64>,
    allowed: impl Fn(usize) -> f64,
    equal: &[GradientName],
) -> FirstDifference {
    let pairs = right.data().iter().zip(claim.values.data());
    let at = pairs
        .enumerate()
        .find(|(at, (a, b))| difference(**a, **b) > allowed(*at));
    FirstDifference {
        names: [claim.name.as_str(), claim.name.as_str()].map(str::to_owned),
        layer: None,
        step: Some(claim.name.as_str()),
        equal_inputs: equal.iter().map(|name| name.as_str()).collect(),
        shapes: None,
        at: at.map(|(at, (a, b))| (crate::dumps::index_of(right.shape(), at), *a, *b)),
    }
}

fn places(claim: &GradientClaim, right: &Tensor<f64>, allowed: impl Fn(usize) -> f64) -> Places {
    let mut places = Places {
        of: right.data().len(),
        ..Places::default()
    };
    let pairs = right.data().iter().zip(claim.values.data());
    let mut ratio = crate::dumps::Ratio::default();
    let width = right.shape().last().copied().unwrap_or(1).max(1);
    for (at, (a, b)) in pairs.enumerate() {
        let allowed = allowed(at);
        if difference(*a, *b) > allowed {
            ratio.note(places.count == 0, at / width, *a, *b, allowed);
            places.count += 1;
            crate::dumps::note_place(&mut places, &crate::dumps::index_of(right.shape(), at));
        }
    }
    places.ratio = ratio.found();
    places
}
