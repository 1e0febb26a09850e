//! Somebody else's gradients of queries, keys, values, bias and sinks.
//!
//! The right ones are those of the definition's derivative, with the bound of
//! [`qkv::gradient_bound`], and a bound of each number's own but with rotary positions and norms. Where
//! they differ, the derivative is worked out again under every mistake of the table below, under
//! every convention that changes the forward pass, and under pairs of both.

mod backward;
mod each;
mod half;
mod judge;
mod mistakes;
mod repeated;
mod sizes;

pub use mistakes::MISTAKES;

use crate::bound::stored_in;
use crate::conventions::{Text, Variant, table};
use crate::dumps::{Report, place_of};
use crate::model::{Model, Shared};
use crate::problem::{Base, Problem};
use crate::recipe::Recipe;
use crate::report::{Cause, Parameters, Value, Verdict};
use backward::{Gradients, Masked, Mistake};
use each::Each;
use half::Half;
use judge::{Judge, coarsest};
use qkv::{DType, GradientName, Tensor, gradient_bound};
use rayon::prelude::*;
use sizes::{lost, sizes};

/// Somebody else's gradient.
#[derive(Clone, Debug)]
pub struct GradientClaim {
    /// [`GradientName::GradQ`], `GradK`, `GradV`, `GradBias` or `GradSinks`.
    pub name: GradientName,
    /// In the shape of what it is the gradient of; leading axes of length 1 may be left out.
    pub values: Tensor<f64>,
    /// The format that it is stored in.
    pub dtype: DType,
    /// Half a unit of the last digit that was typed, where numbers were typed rounded.
    pub half_unit: f64,
}

/// A mistake of the backward pass.
#[derive(Clone, Copy)]
pub struct GradientMistake {
    /// Its name, which never changes.
    pub id: &'static str,
    /// What the other side did.
    pub says: Text,
    edit: fn(&mut Mistake),
}

/// The mistake of this id.
pub fn find(id: &str) -> Option<&'static GradientMistake> {
    MISTAKES.iter().find(|mistake| mistake.id == id)
}

/// Why gradients could not be checked.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The problem itself is not possible, or the gradient of the output does not fit it.
    Problem(qkv::Error),
    /// The problem starts from tokens.
    NotGiven,
    /// A gradient of something that the options do not have.
    Missing(GradientName),
    /// Numbers of another shape than what they are the gradient of.
    Shape {
        /// Which gradient.
        name: GradientName,
        /// Its shape.
        shape: Vec<usize>,
        /// The shape that was expected.
        expected: Vec<usize>,
    },
}

impl From<qkv::Error> for Error {
    fn from(error: qkv::Error) -> Error {
        Error::Problem(error)
    }
}

/// The order in which gradients are worked out.
const ORDER: [GradientName; 5] = [
    GradientName::GradV,
    GradientName::GradSinks,
    GradientName::GradBias,
    GradientName::GradQ,
    GradientName::GradK,
];

/// Compares gradients with the right ones, and names what explains the difference.
///
/// `grad` has the shape of the problem's result; the problem is one of given queries, keys and
/// values.
///
/// # Errors
/// [`Error::Problem`] where inputs do not fit each other, [`Error::Shape`] for a gradient of another
/// shape, [`Error::Missing`] for one of a bias or of sinks that there are not, [`Error::NotGiven`] for a problem of tokens and weights.
///
/// ```
/// use qkv::{Block, DType, GradientName, Inputs, Tensor};
/// use qkv_check::Problem;
/// use qkv_check::gradients::{GradientClaim, check};
/// let block = Block::default();
/// let q = Tensor::new(&[1, 1, 2, 4], vec![1.0, 0.0, 2.0, 0.0, 0.0, 1.0, 0.0, -1.0])?;
/// let v = Tensor::new(&[1, 1, 2, 1], vec![1.0, 10.0])?;
/// let grad = Tensor::new(&[1, 1, 2, 1], vec![1.0, -0.5])?;
/// let inputs = Inputs::new(q.view()?, q.view()?, v.view()?)?;
/// let right = block.gradients(&block.steps(&inputs)?, 0, &grad)?;
/// let dq = right.get(GradientName::GradQ).ok_or("always there")?;
/// // Not multiplied by 1/√4:
/// let theirs = dq.data().iter().map(|x| x * 2.0).collect();
/// let claim = GradientClaim {
///     name: GradientName::GradQ,
///     values: Tensor::new(dq.shape(), theirs)?,
///     dtype: DType::F64,
///     half_unit: 0.0,
/// };
/// let problem = Problem::Given { block: &block, q: &q, k: &q, v: &v, past: None };
/// let report = check(&problem, &grad, &[claim]).map_err(|_| "it fits")?;
/// assert_eq!(report.causes[0].id(), "grad-scale-missing");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn check(
    problem: &Problem<'_>,
    grad: &Tensor<f64>,
    claims: &[GradientClaim],
) -> Result<Report, Error> {
    let base = Base::new(*problem)?;
    let Problem::Given {
        block,
        q,
        k,
        v,
        past,
    } = *problem
    else {
        return Err(Error::NotGiven);
    };
    let mut inputs = qkv::Inputs::new(q.view()?, k.view()?, v.view()?)?;
    if let Some((past_k, past_v)) = past {
        inputs = inputs.with_past(past_k.view()?, past_v.view()?)?;
    }
    let steps = block.steps(&inputs)?;
    let gradients = block.gradients(&steps, inputs.past_len(), grad)?;
    let heads_grad = gradients.get(GradientName::GradOutput).unwrap_or(grad);
    let right = |name| gradients.get(name).cloned();
    let mut sorted: Vec<&GradientClaim> = claims.iter().collect();
    sorted.sort_by_key(|claim| ORDER.iter().position(|name| *name == claim.name));
    let mut pairs = Vec::new();
    for claim in sorted {
        let right = right(claim.name).ok_or(Error::Missing(claim.name))?;
        if stripped(right.shape()) != stripped(claim.values.shape()) {
            return Err(Error::Shape {
                name: claim.name,
                shape: claim.values.shape().to_vec(),
                expected: right.shape().to_vec(),
            });
        }
        pairs.push((claim, right));
    }
    let shared = Shared::default();
    let recipe = Recipe::new(&base);
    let sizes = sizes(&base, &shared, &recipe, heads_grad);
    let held = held(q, k, v);
    let formats = |format: DType| {
        let among = |(claim, _): &(&GradientClaim, _)| {
            (place_of(claim.dtype)..=coarsest(claim, held)).contains(&place_of(format))
        };
        pairs.iter().any(among)
    };
    let each = Each::new(&base, &shared, &recipe, heads_grad);
    let half = |format| Half::new(&base, &shared, &recipe, heads_grad, format);
    let judge = Judge {
        halves: [DType::F16, DType::Bf16].map(|format| match formats(format) && each.is_some() {
            true => half(format),
            false => None,
        }),
        bounds: [DType::F64, DType::F32, DType::F16, DType::Bf16]
            .map(|dtype| gradient_bound(dtype, &sizes)),
        each,
        lost: [f64::MIN_POSITIVE, f64::from(f32::MIN_POSITIVE)].map(|least| lost(least, &sizes)),
        pairs: &pairs,
    };
    let mut report = judge.compare(held);
    if report.verdict == Verdict::Different {
        let search = Search {
            base: &base,
            shared: &shared,
            right: &recipe,
            grad: heads_grad,
            judge: &judge,
            differs: pairs
                .iter()
                .map(|(claim, _)| {
                    report
                        .differing
                        .iter()
                        .any(|name| *name == claim.name.as_str())
                })
                .collect(),
        };
        report.causes = search.run();
    }
    Ok(report)
}

/// The coarsest format that the inputs are held in.
fn held(q: &Tensor<f64>, k: &Tensor<f64>, v: &Tensor<f64>) -> DType {
    let formats = [q, k, v].map(|one| stored_in(one.data()).unwrap_or(DType::F64));
    let finest = formats.into_iter().min_by_key(|format| place_of(*format));
    finest.unwrap_or(DType::F64)
}

fn stripped(shape: &[usize]) -> &[usize] {
    let ones = shape.iter().take_while(|n| **n == 1).count();
    &shape[ones..]
}

/// Which mistakes explain the claims.
struct Search<'a> {
    base: &'a Base<'a>,
    shared: &'a Shared,
    right: &'a Recipe,
    grad: &'a Tensor<f64>,
    judge: &'a Judge<'a>,
    /// Which of the claims are not right.
    differs: Vec<bool>,
}

/// Changes of the backward pass, and of the forward pass.
struct Hypothesis {
    ids: Vec<&'static str>,
    parameters: Parameters,
    recipe: Recipe,
    mistake: Mistake,
}

impl Search<'_> {
    fn run(&self) -> Vec<Cause> {
        let block = self.base.problem.block();
        if block.q_norm.is_some() || block.k_norm.is_some() {
            return Vec::new(); // their derivative is the definition's alone
        }
        let mut singles: Vec<Hypothesis> = MISTAKES
            .iter()
            .filter_map(|mistake| self.backward(mistake, self.right.clone(), &[]))
            .collect();
        singles.extend(self.forward());
        // Gradients alone do not tell a mask that the forward pass forgot too: that is simpler.
        singles.sort_by_key(|single| single.mistake.mask == Masked::Renormed);
        let tried = self.tried(&singles);
        let all = vec![true; self.differs.len()];
        let mut causes = explained(&singles, &tried, &all);
        if causes.is_empty() {
            // Some gradients may have been worked out otherwise than the rest, which is right, and so
            // the forward pass too.
            causes = self.of(&self.differs, explained(&singles, &tried, &self.differs));
            let forward = |cause: &Cause| !MISTAKES.iter().any(|mistake| cause.ids == [mistake.id]);
            causes.sort_by_key(forward);
        }
        if !causes.is_empty() {
            return causes;
        }
        let mut pairs = Vec::new();
        for (at, one) in MISTAKES.iter().enumerate() {
            for other in &MISTAKES[at + 1..] {
                let mut both = self.backward(one, self.right.clone(), &[other]);
                if let Some(both) = &mut both {
                    both.ids = vec![one.id, other.id];
                }
                pairs.extend(both.filter(|both| both.ids[0] != both.ids[1]));
            }
            let forward = singles
                .iter()
                .filter(|single| single.mistake == Mistake::default());
            for convention in forward {
                let pair = self.backward(one, convention.recipe.clone(), &[]);
                pairs.extend(pair.map(|pair| Hypothesis {
                    ids: [&convention.ids[..], &pair.ids].concat(),
                    parameters: convention.parameters.clone(),
                    ..pair
                }));
            }
        }
        let both = explained(&pairs, &self.tried(&pairs), &all);
        if !both.is_empty() {
            return both;
        }
        // Of several that nothing explains together, the first.
        let first = self.differs.iter().position(|differs| *differs);
        let only: Vec<bool> = (0..all.len()).map(|at| Some(at) == first).collect();
        self.of(&only, explained(&singles, &tried, &only))
    }

    /// Causes of some of several gradients alone.
    fn of(&self, which: &[bool], mut causes: Vec<Cause>) -> Vec<Cause> {
        let names = self.judge.pairs.iter().zip(which);
        let names: Vec<&'static str> = names
            .filter(|(_, one)| **one)
            .map(|((claim, _), _)| claim.name.as_str())
            .collect();
        for cause in &mut causes {
            let names = Value::Names(names.clone());
            cause.parameters.insert("gradients", names);
        }
        causes
    }

    /// A mistake of the backward pass; `None` where it changes nothing.
    fn backward(
        &self,
        one: &GradientMistake,
        recipe: Recipe,
        more: &[&GradientMistake],
    ) -> Option<Hypothesis> {
        let mut mistake = Mistake::default();
        let all = more.iter().copied().chain([one]);
        for one in all {
            let before = mistake;
            (one.edit)(&mut mistake);
            if mistake == before || !mistake.means_something(self.base, &recipe) {
                return None;
            }
        }
        Some(Hypothesis {
            ids: vec![one.id],
            parameters: Parameters::new(),
            recipe,
            mistake,
        })
    }

    /// Conventions whose derivative is known here: those that change weights row by row.
    fn forward(&self) -> Vec<Hypothesis> {
        let (mut found, mut undeclared) = (Vec::new(), Vec::new());
        for convention in table() {
            for Variant {
                parameters,
                edit,
                undeclared: adds,
            } in (convention.variants)(self.base, self.right)
            {
                let mut recipe = self.right.clone();
                edit(&mut recipe);
                if recipe != *self.right && backward::is_known(&recipe, self.right) {
                    let to = if adds { &mut undeclared } else { &mut found };
                    to.push(Hypothesis {
                        ids: vec![convention.id],
                        parameters,
                        recipe,
                        mistake: Mistake::default(),
                    });
                }
            }
        }
        found.append(&mut undeclared);
        found
    }

    /// What each hypothesis leaves of each claim.
    fn tried(&self, hypotheses: &[Hypothesis]) -> Vec<Vec<Option<f64>>> {
        let tried = hypotheses.par_iter().map(|one| {
            let model = Model::new(self.base, self.shared, &one.recipe, false)?;
            let predicted = Gradients::new(&model, self.base, self.grad, one.mistake)?;
            let mut left = self.judge.left(&predicted);
            // What is not right is not explained by numbers that are.
            let is_right = self.judge.is_right(&predicted);
            for ((left, differs), right) in left.iter_mut().zip(&self.differs).zip(is_right) {
                *left = left.filter(|_| !(*differs && right));
            }
            Some(left)
        });
        let none = || vec![None; self.differs.len()];
        tried.map(|left| left.unwrap_or_else(none)).collect()
    }
}

/// Hypotheses that explain these of the claims, the simplest first. Where roundings are so coarse that
/// more than one fits, those that leave much more than another are none.
fn explained(hypotheses: &[Hypothesis], tried: &[Vec<Option<f64>>], which: &[bool]) -> Vec<Cause> {
    const MUCH_MORE: f64 = 8.0;
    let mut causes: Vec<Cause> = Vec::new();
    for (hypothesis, left) in hypotheses.iter().zip(tried) {
        let mut of_claims = left.iter().zip(which).filter(|(_, one)| **one);
        let left = of_claims.try_fold(0.0_f64, |most, (left, _)| left.map(|left| most.max(left)));
        let Some(left) = left else { continue };
        if !causes.iter().any(|known| known.ids == hypothesis.ids) {
            causes.push(Cause {
                ids: hypothesis.ids.clone(),
                parameters: hypothesis.parameters.clone(),
                max_abs_error: left,
            });
        }
    }
    let least = causes.iter().map(|cause| cause.max_abs_error);
    let least = least.fold(f64::INFINITY, f64::min);
    let single = 2f64.powi(-24); // below it is noise
    causes.retain(|cause| cause.max_abs_error <= MUCH_MORE * least.max(single));
    causes
}
