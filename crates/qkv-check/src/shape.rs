//! Which numbers of a recipe a claim's numbers stand for: by its step and its shape.

use crate::claim::Claim;
use crate::model::{Model, RowOut};
use crate::problem::{Base, result_step};
use crate::recipe::{Recipe, Shown};
use qkv::StepName;

/// How a claim is read under a recipe.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Reading {
    pub step: StepName,
    /// The shape of full rank; that of lse and the like ends in 1.
    pub dims: Vec<usize>,
    shown: Shown,
    /// Whether a position more or less is one of the keys too.
    of_keys: bool,
    heads: usize,
}

impl Reading {
    /// `None` where the claim's shape does not fit.
    pub fn new(base: &Base<'_>, recipe: &Recipe, claim: &Claim) -> Option<Reading> {
        let given = claim.values.shape();
        candidates(base, recipe, claim)
            .into_iter()
            .find_map(|step| {
                let dims = dims(base, recipe, step)?;
                let fits = |dims: &[usize]| {
                    let dims = match is_row(step) {
                        true => &dims[..dims.len() - 1],
                        false => dims,
                    };
                    stripped(dims) == stripped(given)
                };
                let averaged = |dims: &[usize]| match (given, dims) {
                    (&[b, 1, i, j], dims) => [b, i, j] == *dims,
                    _ => false,
                };
                // One of several steps may be shown otherwise, and the others as usual.
                let ways = [
                    (recipe.shown, is_score(step)),
                    (recipe.shown, false),
                    (Shown::Plain, false),
                ];
                ways.into_iter().find_map(|(shown, of_keys)| {
                    let dims = shown_dims(shown, of_keys, step, &dims)?;
                    let fits = fits(&dims) || shown == Shown::Averaged && averaged(&dims);
                    fits.then_some(Reading {
                        step,
                        dims,
                        shown,
                        of_keys,
                        heads: base.sizes.heads,
                    })
                })
            })
    }

    /// The numbers of a step of full rank, as the recipe gives and shows them.
    pub fn of(base: &Base<'_>, recipe: &Recipe, step: StepName) -> Option<Reading> {
        let step = match step {
            StepName::Output => result(base, recipe),
            step => step,
        };
        let of_keys = is_score(step);
        let dims = shown_dims(recipe.shown, of_keys, step, &dims(base, recipe, step)?)?;
        Some(Reading {
            step,
            dims,
            shown: recipe.shown,
            of_keys,
            heads: base.sizes.heads,
        })
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.dims[..self.dims.len() - 1].iter().product()
    }

    /// Numbers of a row.
    pub fn width(&self) -> usize {
        *self.dims.last().unwrap_or(&1)
    }

    /// The index of a row.
    pub fn index(&self, mut row: usize) -> Vec<usize> {
        let lead = &self.dims[..self.dims.len() - 1];
        let mut index = vec![0; lead.len()];
        for axis in (0..lead.len()).rev() {
            index[axis] = row % lead[axis].max(1);
            row /= lead[axis].max(1);
        }
        index
    }

    /// A row of what the recipe gives; `None` where there is nothing to compare with.
    pub fn row(&self, model: &Model<'_>, row: usize) -> Option<RowOut> {
        let mut at = self.index(row);
        let token = at.len() - 1;
        match self.shown {
            Shown::Plain => model.step(self.step, &at),
            Shown::ExtraFirst => {
                at[token] = at[token].checked_sub(1)?;
                let mut row = model.step(self.step, &at)?;
                if self.of_keys {
                    // Nobody knows the score of a key that was not given.
                    row.values.insert(0, f64::NAN);
                    row.worst.insert(0, f64::INFINITY);
                    row.usual.insert(0, f64::INFINITY);
                }
                Some(row)
            }
            Shown::WithoutFirst => {
                at[token] += 1;
                let mut row = model.step(self.step, &at)?;
                if self.of_keys {
                    row.values.remove(0);
                    row.worst.remove(0);
                    row.usual.remove(0);
                }
                Some(row)
            }
            Shown::Averaged => {
                let mut mean: Option<RowOut> = None;
                for h in 0..self.heads {
                    let one = model.step(self.step, &[at[0], h, at[1]])?;
                    let add = |to: &mut Vec<f64>, from: &[f64]| {
                        for (to, from) in to.iter_mut().zip(from) {
                            *to += from / self.heads as f64;
                        }
                    };
                    let mean = mean.get_or_insert_with(|| RowOut {
                        values: vec![0.0; one.values.len()],
                        worst: vec![0.0; one.worst.len()],
                        usual: vec![0.0; one.usual.len()],
                    });
                    add(&mut mean.values, &one.values);
                    add(&mut mean.worst, &one.worst);
                    add(&mut mean.usual, &one.usual);
                }
                mean
            }
            Shown::Swapped => {
                at.swap(1, 2);
                model.step(self.step, &at)
            }
        }
    }
}

/// Steps with a number for every query and key before the softmax.
pub(crate) fn is_score(step: StepName) -> bool {
    matches!(
        step,
        StepName::Scores
            | StepName::Scaled
            | StepName::Capped
            | StepName::Biased
            | StepName::Masked
    )
}

/// Steps with one number for each row.
pub(crate) fn is_row(step: StepName) -> bool {
    matches!(step, StepName::Lse | StepName::Max | StepName::Sum)
}

/// What a claim may be of, the likeliest first.
fn candidates(base: &Base<'_>, recipe: &Recipe, claim: &Claim) -> Vec<StepName> {
    if claim.step != StepName::Output {
        return vec![claim.step];
    }
    let result = result(base, recipe);
    let given = claim.values.shape();
    if base.problem.block().output.is_some() {
        let without = recipe.projection.no_output;
        return match (without, given.len()) {
            (true, _) => vec![StepName::Concatenated, StepName::Output],
            (false, 4) => vec![result, StepName::Output],
            (false, _) => vec![result],
        };
    }
    match result {
        StepName::Output => vec![StepName::Output, StepName::Concatenated],
        result => vec![result, StepName::Output],
    }
}

/// What a run of the recipe ends with.
fn result(base: &Base<'_>, recipe: &Recipe) -> StepName {
    let without = recipe.projection;
    match result_step(&base.problem) {
        StepName::Residual if without.no_residual => match base.problem.block().output.is_some() {
            true => StepName::Projected,
            false => StepName::Concatenated,
        },
        StepName::Projected if without.no_output => StepName::Concatenated,
        step => step,
    }
}

/// The shape of a step of full rank.
fn dims(base: &Base<'_>, recipe: &Recipe, step: StepName) -> Option<Vec<usize>> {
    let sizes = base.sizes;
    let swapped = recipe.swap == crate::recipe::Swap::KeysValues;
    let value_dim = if swapped {
        sizes.head_dim
    } else {
        sizes.value_dim
    };
    let (b, h, g, i, j) = (
        sizes.batch,
        sizes.heads,
        sizes.kv_heads,
        sizes.queries,
        sizes.keys,
    );
    Some(match step {
        StepName::Q | StepName::QRotated => vec![b, h, i, sizes.head_dim],
        StepName::K | StepName::KRotated => vec![b, g, j, sizes.head_dim],
        StepName::V => vec![b, g, j, value_dim],
        StepName::Scores
        | StepName::Scaled
        | StepName::Capped
        | StepName::Biased
        | StepName::Masked
        | StepName::Exp
        | StepName::Weights
        | StepName::Dropped => {
            let plain = recipe.arrangement == crate::recipe::Arrangement::Tokens;
            plain.then_some(vec![b, h, i, j])?
        }
        StepName::Max | StepName::Sum | StepName::Lse => vec![b, h, i, 1],
        StepName::Output => vec![b, h, i, value_dim],
        StepName::Concatenated => vec![b, i, h * value_dim],
        StepName::Projected => vec![b, i, sizes.out_width?],
        StepName::Residual => match sizes.out_width {
            Some(width) => vec![b, i, width],
            None => vec![b, i, h * value_dim],
        },
        _ => return None,
    })
}

fn shown_dims(shown: Shown, keys: bool, step: StepName, dims: &[usize]) -> Option<Vec<usize>> {
    let mut dims = dims.to_vec();
    let rank = dims.len();
    match shown {
        Shown::Plain => {}
        Shown::ExtraFirst => {
            dims[rank - 2] += 1;
            dims[rank - 1] += usize::from(keys);
        }
        Shown::WithoutFirst => {
            dims[rank - 2] = dims[rank - 2].checked_sub(1)?;
            dims[rank - 1] = dims[rank - 1].checked_sub(usize::from(keys))?;
        }
        Shown::Averaged => {
            let of_heads = matches!(step, StepName::Weights | StepName::Dropped);
            if !of_heads {
                return None;
            }
            dims.remove(1);
        }
        Shown::Swapped => {
            if rank != 4 {
                return None;
            }
            dims.swap(1, 2);
        }
    }
    Some(dims)
}

/// A shape without its leading axes of length 1.
fn stripped(dims: &[usize]) -> Vec<usize> {
    dims.iter().copied().skip_while(|n| *n == 1).collect()
}
