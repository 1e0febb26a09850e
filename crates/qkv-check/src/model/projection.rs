//! From tokens and weights to q, k and v.

use super::heads::{Head, Kind};
use crate::problem::{Base, Problem};
use crate::recipe::Projection;
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
    heads: Mutex<HashMap<(Kind, usize, usize), Arc<Head>>>,
}

/// Numbers of heads that are kept for other recipes.
const MOST_KEPT: usize = 1 << 23;

impl Shared {
    /// Keys or values of a head as most recipes have them.
    pub(super) fn head(&self, key: (Kind, usize, usize), make: impl FnOnce() -> Head) -> Arc<Head> {
        if let Some(head) = unlocked(&self.heads).get(&key) {
            return Arc::clone(head);
        }
        let head = Arc::new(make());
        let mut heads = unlocked(&self.heads);
        if (heads.len() + 1) * 2 * head.rows.len() <= MOST_KEPT {
            heads.insert(key, Arc::clone(&head));
        }
        head
    }

    /// `None` where the weights do not allow it.
    pub fn get(&self, base: &Base<'_>, projection: Projection) -> Option<Arc<Projected>> {
        // What comes after the heads does not matter here.
        let key = Projection {
            transposed: at_output(projection.transposed, false),
            unbiased: at_output(projection.unbiased, false),
            no_output: false,
            no_residual: false,
            ..projection
        };
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

fn at_output(mut each: [bool; 4], value: bool) -> [bool; 4] {
    each[3] = value;
    each
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
            let x = positioned(x, start.map(|start| start + past));
            let source = match context {
                Some(context) => positioned(context, start.map(|_| 0)),
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

fn positioned(x: &Tensor<f64>, start: Option<usize>) -> Tensor<f64> {
    let mut x = x.clone();
    if let (Some(start), &[_, len, width]) = (start, x.shape()) {
        let table = sinusoidal(len, width, start);
        let period = (len * width).max(1);
        for (at, value) in x.data_mut().iter_mut().enumerate() {
            *value += table.data()[at % period];
        }
    }
    x
}
