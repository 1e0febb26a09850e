//! From tokens and weights to q, k and v.

use super::heads::{Head, Kind};
use crate::problem::{Base, Problem, left_padding};
use crate::recipe::{Arrangement, DocumentRule, Norm, Projection, Recipe, Split, Swap, Turning};
use qkv::layer::split_heads;
use qkv::position::sinusoidal;
use qkv::{Linear, Result, Tensor};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// Queries, new keys and new values, before norm and rotation.
pub(crate) struct Projected {
    pub rows: [Tensor<f64>; 3],
    /// Σ|x|·|W| + |b| of each, where they were made from tokens: what rounding goes by.
    pub sizes: Option<[Tensor<f64>; 3]>,
}

/// What several recipes have in common, worked out once.
#[derive(Default)]
pub(crate) struct Shared {
    projections: Mutex<HashMap<Projection, Option<Arc<Projected>>>>,
    heads: Mutex<Heads>,
}

/// Keys and values by the way they are made, batch entry and head.
#[derive(Default)]
struct Heads {
    kept: HashMap<(usize, Kind, usize, usize), Arc<Head>>,
    /// How many numbers they are.
    numbers: usize,
    /// The ways that are told from each other, from this number on.
    ways: Vec<Way>,
    first_way: usize,
}

/// Numbers of heads that are kept for other recipes: 128 MiB.
const MOST_KEPT: usize = 1 << 24;

/// Ways to make keys or values that are told from each other at a time.
const MOST_WAYS: usize = 512;

/// Everything in a recipe that decides on keys, or on values.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Way {
    projection: Projection,
    split: Split,
    swap: Swap,
    arrangement: Arrangement,
    norm: Norm,
    rotary: Option<Turning>,
    documents: DocumentRule,
}

impl Way {
    pub fn new(recipe: &Recipe, kind: Kind) -> Way {
        let turns = match kind {
            Kind::V => recipe.rotary.values,
            _ => recipe.rotary.keys,
        };
        // What concerns queries, or what comes after the heads, makes no other keys.
        let rotary = recipe
            .rotary
            .rotary
            .filter(|_| turns)
            .map(|rotary| Turning {
                rotary: Some(rotary),
                queries: true,
                query_offset: 0,
                unpadded: [false, recipe.rotary.unpadded[1]],
                ..recipe.rotary.clone()
            });
        let normed = kind != Kind::V || recipe.swap != Swap::None;
        Way {
            projection: recipe.projection.of_inputs(),
            split: recipe.split,
            swap: recipe.swap,
            arrangement: recipe.arrangement,
            norm: if normed {
                recipe.norm
            } else {
                Norm::BeforeRotary
            },
            documents: match rotary {
                Some(_) => recipe.documents,
                None => DocumentRule::Apart,
            },
            rotary,
        }
    }
}

impl Shared {
    /// The number of a way.
    pub(super) fn way(&self, way: Way) -> usize {
        let mut heads = unlocked(&self.heads);
        if let Some(at) = heads.ways.iter().position(|known| *known == way) {
            return heads.first_way + at;
        }
        if heads.ways.len() == MOST_WAYS {
            heads.forget();
        }
        heads.ways.push(way);
        heads.first_way + heads.ways.len() - 1
    }

    /// Keys or values of a head as other recipes have them too.
    pub(super) fn head(
        &self,
        key: (usize, Kind, usize, usize),
        make: impl FnOnce() -> Head,
    ) -> Arc<Head> {
        if let Some(head) = unlocked(&self.heads).kept.get(&key) {
            return Arc::clone(head);
        }
        let head = Arc::new(make());
        let mut heads = unlocked(&self.heads);
        let numbers = 2 * head.rows.len();
        if heads.numbers + numbers > MOST_KEPT {
            // Most are of numbers that were tried once; what is in use comes back.
            heads.forget();
        }
        let known = key.0 >= heads.first_way && numbers <= MOST_KEPT;
        if known && heads.kept.insert(key, Arc::clone(&head)).is_none() {
            heads.numbers += numbers;
        }
        head
    }

    /// `None` where the weights do not allow it.
    pub fn get(&self, base: &Base<'_>, projection: Projection) -> Option<Arc<Projected>> {
        // What comes after the heads does not matter here.
        let key = projection.of_inputs();
        let mut known = unlocked(&self.projections);
        let make = || {
            let rows = projected(&base.problem, key).ok()?;
            let sizes = sizes(&base.problem, key);
            Some(Arc::new(Projected { rows, sizes }))
        };
        known.entry(key).or_insert_with(make).clone()
    }
}

fn unlocked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    match mutex.lock() {
        Ok(guard) => guard,
        Err(poisoned) => poisoned.into_inner(),
    }
}

impl Heads {
    /// Keeps nothing any longer; a number never stands for two ways.
    fn forget(&mut self) {
        self.first_way += self.ways.len();
        self.ways.clear();
        self.kept.clear();
        self.numbers = 0;
    }
}

impl Projection {
    /// Without what comes after the heads.
    fn of_inputs(self) -> Projection {
        let but_output = |each: [bool; 4]| [each[0], each[1], each[2], false];
        Projection {
            transposed: but_output(self.transposed),
            unbiased: but_output(self.unbiased),
            no_output: false,
            no_residual: false,
            ..self
        }
    }
}

/// Queries, new keys and new values in this way.
///
/// # Errors
/// Where the weights do not allow it.
pub(crate) fn projected(problem: &Problem<'_>, way: Projection) -> Result<[Tensor<f64>; 3]> {
    match *problem {
        Problem::Given { q, k, v, .. } => Ok([q.clone(), k.clone(), v.clone()]),
        Problem::Tokens {
            layer, x, context, ..
        } => {
            let past = problem.past().map_or(0, |(k, _)| k.shape()[2]);
            let start = layer.sinusoidal.filter(|_| !way.no_positions);
            let padding = way.unpadded.map(|place| {
                let [batch, len, _] = *x.shape() else {
                    return (place, Vec::new());
                };
                (place, left_padding(problem, batch, past + len))
            });
            let x = positioned(x, start.map(|start| start + past), padding.as_ref());
            let source = match context {
                Some(context) => positioned(context, start.map(|_| 0), None),
                None => x.clone(),
            };
            let (k, v) = match way.swapped {
                true => (&layer.v, &layer.k),
                false => (&layer.k, &layer.v),
            };
            let q = linear(&layer.q, way.transposed[0], way.unbiased[0])?.apply(&x, "x")?;
            let k = linear(k, way.transposed[1], way.unbiased[1])?.apply(&source, "x")?;
            let v = linear(v, way.transposed[2], way.unbiased[2])?.apply(&source, "x")?;
            Ok([
                split_heads(&q, layer.heads, "W_Q")?,
                split_heads(&k, layer.kv_heads, "W_K")?,
                split_heads(&v, layer.kv_heads, "W_V")?,
            ])
        }
    }
}

/// Σ|x|·|W| + |b| of each.
fn sizes(problem: &Problem<'_>, way: Projection) -> Option<[Tensor<f64>; 3]> {
    let Problem::Tokens {
        layer,
        x,
        context,
        past,
    } = *problem
    else {
        return None;
    };
    let mut positive = layer.clone();
    positive.q = absolute_linear(&layer.q)?;
    positive.k = absolute_linear(&layer.k)?;
    positive.v = absolute_linear(&layer.v)?;
    positive.sinusoidal = None;
    let context = context.map(absolute);
    let problem = Problem::Tokens {
        layer: &positive,
        x: &absolute(x),
        context: context.as_ref(),
        past,
    };
    projected(&problem, way).ok()
}

fn absolute(tensor: &Tensor<f64>) -> Tensor<f64> {
    let mut tensor = tensor.clone();
    tensor.data_mut().iter_mut().for_each(|x| *x = x.abs());
    tensor
}

fn absolute_linear(linear: &Linear) -> Option<Linear> {
    let bias = linear
        .bias()
        .map(|bias| bias.iter().map(|b| b.abs()).collect());
    Linear::new("W", absolute(linear.weight()), bias).ok()
}

/// A weight as it is, or its transpose, with its bias or without.
pub(super) fn linear(given: &Linear, transposed: bool, unbiased: bool) -> Result<Linear> {
    let weight = given.weight();
    let weight = match *weight.shape() {
        [rows, columns] if transposed => {
            let mut data = Vec::with_capacity(rows * columns);
            for c in 0..columns {
                data.extend((0..rows).map(|r| weight.at(&[r, c])));
            }
            Tensor::new(&[columns, rows], data)?
        }
        _ => weight.clone(),
    };
    let bias = given.bias().filter(|_| !unbiased).map(<[f64]>::to_vec);
    Linear::new("W", weight, bias)
}

/// Tokens with their positions; with `padding`, where padding stands and how much there is in front of
/// each batch entry, others count without it.
fn positioned(
    x: &Tensor<f64>,
    start: Option<usize>,
    padding: Option<&(usize, Vec<usize>)>,
) -> Tensor<f64> {
    let mut x = x.clone();
    if let (Some(start), &[_, len, width]) = (start, x.shape()) {
        let table = sinusoidal(len + 1, width, start);
        let period = (len * width).max(1);
        for (at, value) in x.data_mut().iter_mut().enumerate() {
            let (b, t, c) = (at / period, at % period / width, at % width);
            let t = match padding {
                None => t,
                Some((place, each)) => {
                    let pads = each.get(b).copied().unwrap_or(0);
                    t.checked_sub(pads).unwrap_or(*place)
                }
            };
            *value += table.data()[t * width + c];
        }
    }
    x
}
