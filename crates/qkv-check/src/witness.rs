//! Inputs that tell conventions apart.
//!
//! [`tell_apart`] looks for numbers, of the same options, for which explanations that one input could
//! not separate give different results; [`witness`] is such an input for one convention of the table
//! against all the others.

mod draw;
mod scene;
mod table;

pub use scene::Scene;
pub use table::{Witness, witness};

use crate::bound::{Level, Work};
use crate::claim::Claim;
use crate::model::{Model, RowOut, Shared};
use crate::problem::{Base, Problem};
use crate::recipe::Recipe;
use crate::report::{Cause, Report};
use crate::shape::{Reading, is_row};
use qkv::{DType, StepName, Tensor};

/// Numbers of several steps.
pub type Numbers = Vec<(StepName, Tensor<f64>)>;

/// An input, and what each of several explanations makes of it.
#[derive(Clone, Debug)]
pub struct Apart {
    /// The input: the same options and weights, other numbers and lengths.
    pub scene: Scene,
    /// What is right for it, step by step, of full rank.
    pub right: Numbers,
    /// What each explanation gives, step by step.
    pub each: Vec<(Cause, Numbers)>,
    /// Explanations that still give the same numbers: no input was found that separates them.
    pub together: Vec<Vec<String>>,
}

/// Every number of one step, row by row.
struct Whole {
    step: StepName,
    dims: Vec<usize>,
    rows: Vec<RowOut>,
}

/// Looks for an input for which the explanations of a report differ from each other by more than
/// rounding, where possible by more than that of half precision.
///
/// `None` where there are fewer than two explanations, or no input was found for which any two differ.
///
/// ```
/// use qkv::{Attention, Block, Causal, DType, StepName, Tensor};
/// use qkv_check::{Claim, Problem, check, tell_apart};
/// let attention = Attention { causal: Some(Causal::BottomRight), ..Attention::default() };
/// let block = Block { attention, ..Block::default() };
/// let (q, k) = (Tensor::new(&[1, 1, 2, 1], vec![0.0; 2])?, Tensor::new(&[1, 1, 5, 1], vec![0.0; 5])?);
/// let v = Tensor::new(&[1, 1, 5, 1], vec![1.0, 2.0, 3.0, 4.0, 5.0])?;
/// let problem = Problem::Given { block: &block, q: &q, k: &k, v: &v, past: None };
/// let claims = [Claim::new(StepName::Output, Tensor::new(&[2, 1], vec![1.0, 1.5])?, DType::F64)];
/// let report = check(&problem, &claims)?;
/// assert_eq!(report.indistinguishable, [["causal-top-left", "cache-offset"]]);
/// let apart = tell_apart(&problem, &claims, &report).ok_or("there is one")?;
/// assert!(apart.together.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn tell_apart(problem: &Problem<'_>, claims: &[Claim], report: &Report) -> Option<Apart> {
    let count = report.causes.len();
    if report.recipes.len() != count || count < 2 {
        return None;
    }
    let mut steps: Vec<StepName> = claims.iter().map(|claim| claim.step).collect();
    steps.dedup();
    let mut best: Option<(usize, Apart)> = None;
    for scene in scene::like(problem, &report.recipes) {
        let Some((score, apart)) = separated(scene, report, &steps) else {
            continue;
        };
        if score > best.as_ref().map_or(0, |(most, _)| *most) {
            let all = apart.together.is_empty() && score == pairs(count) * LEVELS.len();
            best = Some((score, apart));
            if all {
                break;
            }
        }
    }
    best.map(|(_, apart)| apart)
}

/// Formats in which the numbers should still differ.
const LEVELS: [DType; 3] = [DType::F64, DType::F32, DType::Bf16];

fn pairs(of: usize) -> usize {
    of * (of - 1) / 2
}

/// What each explanation gives for a scene, and how well it separates them: one point for each pair
/// and each number format in which they differ.
fn separated(scene: Scene, report: &Report, steps: &[StepName]) -> Option<(usize, Apart)> {
    let recipes = &report.recipes;
    let ids: Vec<String> = report.causes.iter().map(Cause::id).collect();
    let (right, each) = scene
        .with(|problem| -> Option<_> {
            let base = Base::new(*problem).ok()?;
            let shared = Shared::default();
            let right = whole(&base, &shared, &Recipe::new(&base), steps)?;
            let each: Option<Vec<Vec<Whole>>> = recipes
                .iter()
                .map(|recipe| {
                    let mut recipe = recipe.clone();
                    // Places are those of this input.
                    recipe.rotary.place.clone_from(&base.problem.block().place);
                    whole(&base, &shared, &recipe, steps)
                })
                .collect();
            Some((right, each?))
        })
        .ok()??;
    let mut score = 0;
    let mut together: Vec<Vec<String>> = Vec::new();
    for a in 0..each.len() {
        for b in a + 1..each.len() {
            let points = points(&each[a], &each[b]);
            score += points;
            if points > 0 {
                continue;
            }
            let known = together.iter_mut().find(|group| group.contains(&ids[a]));
            match known {
                Some(group) if group.contains(&ids[b]) => {}
                Some(group) => group.push(ids[b].clone()),
                None => together.push(vec![ids[a].clone(), ids[b].clone()]),
            }
        }
    }
    let tensors = |all: &[Whole]| -> Option<Numbers> { all.iter().map(Whole::tensor).collect() };
    let apart = Apart {
        right: tensors(&right)?,
        each: report
            .causes
            .iter()
            .zip(&each)
            .map(|(cause, all)| Some((cause.clone(), tensors(all)?)))
            .collect::<Option<_>>()?,
        scene,
        together,
    };
    Some((score, apart))
}

/// All numbers of these steps under a recipe.
fn whole(
    base: &Base<'_>,
    shared: &Shared,
    recipe: &Recipe,
    steps: &[StepName],
) -> Option<Vec<Whole>> {
    let model = Model::new(base, shared, recipe, true)?;
    let one = |step: &StepName| {
        let reading = Reading::of(base, recipe, *step)?;
        let rows = (0..reading.rows()).map(|row| {
            let unknown = || RowOut {
                values: vec![0.0; reading.width()],
                worst: vec![f64::INFINITY; reading.width()],
                usual: vec![f64::INFINITY; reading.width()],
            };
            reading.row(&model, row).unwrap_or_else(unknown)
        });
        Some(Whole {
            step: *step,
            rows: rows.collect(),
            dims: reading.dims.clone(),
        })
    };
    steps.iter().map(one).collect()
}

/// The numbers of one step under a recipe.
fn numbers(
    base: &Base<'_>,
    shared: &Shared,
    recipe: &Recipe,
    step: StepName,
) -> Option<Tensor<f64>> {
    let whole = whole(base, shared, recipe, &[step])?;
    Some(whole.first()?.tensor()?.1)
}

impl Whole {
    fn tensor(&self) -> Option<(StepName, Tensor<f64>)> {
        let values = self.rows.iter().flat_map(|row| row.values.iter().copied());
        let shape = match is_row(self.step) {
            true => &self.dims[..self.dims.len() - 1],
            false => &self.dims[..],
        };
        let tensor = Tensor::new(shape, values.collect()).ok()?;
        Some((self.step, tensor))
    }
}

/// In how many formats two explanations differ by more than every rounding.
fn points(a: &[Whole], b: &[Whole]) -> usize {
    let differ = |dtype: DType| {
        let level = Level {
            dtype,
            work: Work::Kept,
        };
        a.iter().zip(b).any(|(a, b)| {
            a.dims != b.dims
                || a.rows.iter().zip(&b.rows).any(|(a, b)| {
                    (0..a.values.len()).any(|c| {
                        let apart = crate::recompute::difference(a.values[c], b.values[c]);
                        apart > 2.0 * (level.allows(a, c) + level.allows(b, c))
                    })
                })
        })
    };
    LEVELS.into_iter().filter(|dtype| differ(*dtype)).count()
}
