//! Whether somebody's numbers are right, and if not, which conventions explain them.

mod candidates;
mod compare;
mod dropout;
mod fit;
mod sinks;

use crate::bound::{Level, roundoff, stored_in};
use crate::claim::Claim;
use crate::lint::{lint, nothing_to_compare};
use crate::model::Shared;
use crate::problem::{Base, Problem};
use crate::recipe::Recipe;
use crate::report::{Cause, FirstDifference, Lint, Parameters, Places, Report, Verdict};
use crate::shape::{Reading, is_score};
use crate::slip::of_row;
use crate::watch::Watch;
use compare::{Compared, compare};
use qkv::StepName;
use std::fmt;

/// Why nothing could be checked.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The problem itself is not possible.
    Problem(qkv::Error),
    /// Numbers whose shape fits no step, rightly or wrongly computed.
    Shape {
        /// Their step.
        step: StepName,
        /// Their shape.
        shape: Vec<usize>,
        /// The shape that was expected.
        expected: Vec<usize>,
    },
    /// Nothing was claimed.
    NoClaim,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Problem(error) => error.fmt(f),
            Error::Shape {
                step,
                shape,
                expected,
            } => write!(
                f,
                "{step}: shape {shape:?} fits neither the right one, {expected:?}, nor that of a \
                 known mistake; check --heads and --layout, and that it belongs to these inputs"
            ),
            Error::NoClaim => f.write_str(
                "there is nothing to check; give somebody's scores, scaled, weights, output or lse",
            ),
        }
    }
}

impl std::error::Error for Error {}

impl From<qkv::Error> for Error {
    fn from(error: qkv::Error) -> Error {
        Error::Problem(error)
    }
}

/// What a search works on.
pub(crate) struct Case<'a> {
    pub base: Base<'a>,
    pub shared: Shared,
    pub right: Recipe,
    pub claims: &'a [Claim],
    /// For each claim the levels at which it may be right, from fine to coarse.
    pub levels: Vec<Vec<Level>>,
    /// How many of them an explanation may fit at: those of the format that the numbers are in.
    pub allowed: usize,
    /// Whether a right score is beyond half precision.
    pub overflows: bool,
    pub watch: &'a Watch,
}

impl Case<'_> {
    /// Whether the numbers are stored in a half precision.
    pub fn is_coarse(&self) -> bool {
        self.claims.iter().any(|claim| roundoff(claim.dtype) > 1e-6) || self.allowed > 4
    }

    /// Whether there are scores among the claims.
    pub fn has_scores(&self) -> bool {
        self.claims.iter().any(|claim| is_score(claim.step))
    }
}

/// Compares claims with the right answer, and if they differ, with every known way to get it wrong.
///
/// # Errors
/// [`Error::Problem`] where the inputs do not fit each other, [`Error::Shape`] for numbers that
/// belong to nothing.
///
/// ```
/// use qkv::{Block, DType, StepName, Tensor};
/// use qkv_check::{Claim, Problem, Verdict, check};
/// let block = Block::default();
/// let q = Tensor::new(&[1, 1, 2, 4], vec![1.0, 0.0, 2.0, 0.0, 0.0, 1.0, 0.0, -1.0])?;
/// let v = Tensor::new(&[1, 1, 2, 1], vec![1.0, 10.0])?;
/// let problem = Problem::Given { block: &block, q: &q, k: &q, v: &v, past: None };
/// // Not divided by √4:
/// let weights = |s: f64, t: f64| [s.exp() / (s.exp() + t.exp()), t.exp() / (s.exp() + t.exp())];
/// let theirs = [weights(5.0, 0.0), weights(0.0, 2.0)].concat();
/// let claim = Claim::new(StepName::Weights, Tensor::new(&[2, 2], theirs)?, DType::F64);
/// let report = check(&problem, &[claim])?;
/// assert_eq!(report.verdict, Verdict::Different);
/// assert_eq!(report.causes[0].id(), "scale");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn check(problem: &Problem<'_>, claims: &[Claim]) -> Result<Report, Error> {
    check_with(problem, claims, &Watch::default())
}

/// As [`check`], while another thread may look how far it is.
///
/// # Errors
/// As [`check`].
pub fn check_with(problem: &Problem<'_>, claims: &[Claim], watch: &Watch) -> Result<Report, Error> {
    check_as(problem, claims, watch, &Recipe::new, &|_| Vec::new()).map(|(report, _)| report)
}

/// As [`check`], where something else is right; also tells which of other recipes fit.
pub(crate) fn check_as(
    problem: &Problem<'_>,
    claims: &[Claim],
    watch: &Watch,
    right: &dyn Fn(&Base<'_>) -> Recipe,
    others: &dyn Fn(&Base<'_>) -> Vec<Recipe>,
) -> Result<(Report, Vec<bool>), Error> {
    let base = Base::new(*problem)?;
    let right = right(&base);
    let others = others(&base);
    if claims.is_empty() {
        return Err(Error::NoClaim);
    }
    let levels: Vec<Vec<Level>> = claims.iter().map(|claim| Level::of(claim.dtype)).collect();
    let allowed = claims.iter().map(allowed_levels).min().unwrap_or(2);
    let shared = Shared::default();
    let lint = lint(&base, &shared, &right, claims);
    let case = Case {
        overflows: lint.iter().any(|lint| lint.id == "fp16-overflow"),
        base,
        shared,
        right,
        claims,
        levels,
        allowed,
        watch,
    };
    let fits = others.iter().map(|recipe| {
        let level = compare(&case, recipe, false).and_then(|compared| compared.level);
        level.is_some_and(|level| level < case.allowed)
    });
    let fits = fits.collect();
    judged(&case, lint).map(|report| (report, fits))
}

/// Compares and, where they differ, searches.
fn judged(case: &Case<'_>, lint: Vec<Lint>) -> Result<Report, Error> {
    let claims = case.claims;
    let repeated = dropout::seen_in_two_runs(case);
    let fits: Vec<bool> = claims
        .iter()
        .map(|claim| Reading::new(&case.base, &case.right, claim).is_some())
        .collect();
    let compared = match fits.contains(&false) {
        true => None,
        false => compare(case, &case.right, true),
    };
    let mut report = Report {
        verdict: Verdict::Different,
        rounding: None,
        first_difference: None,
        causes: Vec::new(),
        indistinguishable: Vec::new(),
        bound: 0.0,
        max_abs_error: f64::INFINITY,
        places: None,
        lint,
        recipes: Vec::new(),
    };
    if let Some(compared) = &compared {
        describe(case, compared, &mut report);
        if compared.of == 0 {
            report.lint.insert(0, nothing_to_compare());
            return Ok(report);
        }
    }
    if !repeated.is_empty() {
        report.verdict = Verdict::Different;
        report.rounding = None;
        report.causes = repeated;
        if report.causes.len() > 1 {
            report.indistinguishable = vec![report.causes.iter().map(Cause::id).collect()];
        }
        return Ok(report);
    }
    let finest = compared.as_ref().and_then(|compared| compared.level);
    if finest == Some(0) {
        return Ok(report);
    }
    let found = candidates::search(case, compared.as_ref(), finest.unwrap_or(usize::MAX));
    if found.causes.is_empty() {
        if compared.is_none() {
            return Err(shape_error(case, &fits));
        }
        if let Some(slip) = slipped(case, &report) {
            report.verdict = Verdict::Different;
            report.causes.push(slip);
        }
        if let Some(cause) = dropout::seen_in_one_run(case).filter(|_| finest.is_none()) {
            report.verdict = Verdict::Different;
            report.causes = vec![cause];
        }
        return Ok(report);
    }
    if let (Some(compared), true) = (&compared, report.verdict.agrees()) {
        locate(compared, &mut report);
    }
    report.verdict = Verdict::Different;
    report.rounding = None;
    report.causes = found.causes;
    report.recipes = found.recipes;
    report.indistinguishable = found.indistinguishable;
    Ok(report)
}

/// What happened to the one row that is wrong.
fn slipped(case: &Case<'_>, report: &Report) -> Option<Cause> {
    let places = report.places.as_ref()?;
    let (&[b], &[h], &[i]) = (&places.batches[..], &places.heads[..], &places.rows[..]) else {
        return None;
    };
    match report.verdict {
        Verdict::Different | Verdict::Undecided => of_row(
            &case.base,
            &case.shared,
            &case.right,
            case.claims,
            [b, h, i],
        ),
        _ => None,
    }
}

/// Levels at which an explanation may fit: those of the format that the numbers are in, or that
/// they were in before somebody widened them.
fn allowed_levels(claim: &Claim) -> usize {
    let levels = Level::of(claim.dtype);
    let stored = match claim.half_unit > 0.0 {
        true => None,
        false => stored_in(claim.values.data()),
    };
    let dtype = stored.unwrap_or(claim.dtype);
    let last = levels.iter().rposition(|level| level.dtype == dtype);
    last.map_or(2, |last| last + 1)
}

/// Verdict, first difference, bound and places of a comparison with the right answer.
fn describe(case: &Case<'_>, compared: &Compared, report: &mut Report) {
    report.max_abs_error = compared.max_abs_error;
    report.bound = compared.largest_allowed;
    let level = |claim: usize| Some(case.levels[claim][compared.levels[claim]?]);
    let levels: Option<Vec<Level>> = (0..case.claims.len()).map(level).collect();
    let coarser = |levels: &[Level]| {
        let pairs = levels.iter().zip(case.claims);
        let coarser = pairs.filter(|(level, claim)| level.dtype != claim.dtype);
        // Numbers that are held in a format say more than how far they are off.
        let dtypes = coarser.flat_map(|(level, claim)| {
            let held = stored_in(claim.values.data()).filter(|_| claim.half_unit == 0.0);
            held.into_iter().chain([level.dtype])
        });
        dtypes.max_by(|a, b| roundoff(*a).total_cmp(&roundoff(*b)))
    };
    report.verdict = match levels {
        None if compared.of > 0 => Verdict::Different,
        Some(levels) if !compared.nothing_to_compare && !is_vacuous(case, compared) => {
            report.rounding = coarser(&levels);
            match report.rounding {
                None => Verdict::Equal,
                Some(_) => Verdict::Rounding,
            }
        }
        _ => Verdict::Undecided,
    };
    if compared.right_is_nan {
        let nan = Lint {
            id: "reference-nan",
            parameters: Parameters::new(),
        };
        report.lint.insert(0, nan);
    }
    if !report.verdict.agrees() {
        locate(compared, report);
    }
}

/// Where they differ.
fn locate(compared: &Compared, report: &mut Report) {
    if let Some(first) = &compared.first {
        report.bound = first.allowed;
        report.first_difference = Some(FirstDifference {
            step: first.step,
            index: first.index.clone(),
            right: first.right,
            theirs: first.theirs,
        });
        report.places = Some(Places {
            count: compared.count,
            of: compared.of,
            batches: compared.batches.clone(),
            heads: compared.heads.clone(),
            rows: compared.rows.clone(),
            ratio: compared.ratio,
        });
    }
}

/// Whether the numbers fit only since scores are so large, or roundings so coarse, that nearly
/// anything does: a difference of a tenth of the largest value is no agreement.
fn is_vacuous(case: &Case<'_>, compared: &Compared) -> bool {
    const MUCH: f64 = 0.1;
    let judged = |claim: &Claim| claim.step == StepName::Output && claim.half_unit == 0.0;
    let values = case.shared.get(&case.base, case.right.projection);
    let largest = values.map_or(0.0, |values| {
        let numbers = values.rows[2].data().iter().filter(|x| x.is_finite());
        numbers.fold(0.0_f64, |most, x| most.max(x.abs()))
    });
    case.claims.iter().all(judged)
        && compared.max_abs_error.is_finite()
        && compared.max_abs_error > MUCH * largest
}

fn shape_error(case: &Case<'_>, fits: &[bool]) -> Error {
    let at = fits.iter().position(|fits| !fits).unwrap_or(0);
    let claim = &case.claims[at];
    let sizes = case.base.sizes;
    let expected = match claim.step {
        StepName::Output => vec![sizes.batch, sizes.heads, sizes.queries, sizes.value_dim],
        StepName::Lse => vec![sizes.batch, sizes.heads, sizes.queries],
        _ => vec![sizes.batch, sizes.heads, sizes.queries, sizes.keys],
    };
    Error::Shape {
        step: claim.step,
        shape: claim.values.shape().to_vec(),
        expected,
    }
}
