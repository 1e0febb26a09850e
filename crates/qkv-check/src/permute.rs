//! The same tokens in another order.
//!
//! Attention itself does not see order: where nothing tells positions, the output of permuted
//! tokens is the permuted output. What ends this is found by running with one positional option at
//! a time.

use crate::recompute::difference;
use qkv::{
    Attention, Bias, Block, EmptyRows, Inputs, Layer, Mask, Result, StepName, Steps, Tensor, View,
};

/// What is run again.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a> {
    /// Queries, keys and values, as many of each.
    Given {
        /// The options.
        block: &'a Block<'a>,
        /// `[B, H, L, d_k]`.
        q: &'a Tensor<f64>,
        /// `[B, H_kv, L, d_k]`.
        k: &'a Tensor<f64>,
        /// `[B, H_kv, L, d_v]`.
        v: &'a Tensor<f64>,
    },
    /// Token rows.
    Tokens {
        /// What makes q, k and v from them.
        layer: &'a Layer<'a>,
        /// `[B, L, D]`.
        x: &'a Tensor<f64>,
    },
}

/// An option that tells positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Positional {
    /// Sines and cosines added to the tokens.
    Sinusoidal,
    /// Queries and keys turned by their place.
    Rotary,
    /// A penalty by distance.
    Alibi,
    /// Later keys hidden.
    Causal,
    /// Far keys hidden.
    Window,
    /// The last keys hidden.
    Lengths,
    /// Other documents hidden.
    Documents,
    /// Weights dropped by place.
    Dropout,
}

impl Positional {
    /// The name in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Positional::Sinusoidal => "sinusoidal",
            Positional::Rotary => "rotary",
            Positional::Alibi => "alibi",
            Positional::Causal => "causal",
            Positional::Window => "window",
            Positional::Lengths => "kv_lengths",
            Positional::Documents => "documents",
            Positional::Dropout => "dropout",
        }
    }
}

/// Two runs, the second with its tokens in another order.
#[derive(Clone, Debug, PartialEq)]
pub struct Permuted {
    /// Token i of the second run is token `order[i]` of the first.
    pub order: Vec<usize>,
    /// The second run.
    pub steps: Steps,
    /// max |o'\[i] − o\[order\[i]]|.
    pub difference: f64,
    /// What rounding may make of it.
    pub bound: f64,
    /// For each positional option in force, the difference with it alone.
    pub causes: Vec<(Positional, f64)>,
    /// The difference without any of them.
    pub without: f64,
}

impl Permuted {
    /// Whether the outputs are the same rows in the new order, to within rounding.
    pub fn is_same(&self) -> bool {
        self.difference <= self.bound
    }
}

/// Runs again with the tokens in another order: x, or the rows of q, k and v together; masks and
/// bias move along, in both axes.
///
/// ```text
/// x'[i] = x[order[i]]        o'[i] = o[order[i]] if nothing tells positions
/// ```
///
/// `steps` are the first run; `order` holds each index from 0 to L − 1 once.
///
/// # Errors
/// Those of [`Block::steps`] and [`Layer::steps`].
///
/// # Panics
/// If an index of `order` is outside the tokens.
pub fn permute(source: Source<'_>, steps: &Steps, order: &[usize]) -> Result<Permuted> {
    let second = run(source, None, Some(order))?;
    let alone = |keep: Option<Positional>| -> Result<f64> {
        let (a, b) = (
            run(source, Some(keep), None)?,
            run(source, Some(keep), Some(order))?,
        );
        Ok(difference_of(&a, &b, order))
    };
    let mut causes = Vec::new();
    for option in in_force(source) {
        causes.push((option, alone(Some(option))?));
    }
    // Scores and exponentials have the same bits in both runs. Sums of L terms in another order
    // differ by at most (L − 1)·2⁻⁵² of the sum of their absolute values: once in the denominator,
    // once in Σ w·v, whose terms add up to at most max |v|.
    let values = steps.get(StepName::V).map_or(&[][..], |v| v.data());
    let finite = values.iter().filter(|value| value.is_finite());
    let largest = finite.fold(0.0_f64, |largest, value| largest.max(value.abs()));
    Ok(Permuted {
        order: order.to_vec(),
        difference: difference_of(steps, &second, order),
        bound: 2.0 * (order.len() as f64 + 1.0) * f64::EPSILON * largest,
        without: if causes.is_empty() {
            difference_of(steps, &second, order)
        } else {
            alone(None)?
        },
        steps: second,
        causes,
    })
}

/// max |b\[i] − a\[order\[i]]| over the outputs.
fn difference_of(a: &Steps, b: &Steps, order: &[usize]) -> f64 {
    let (Some(a), Some(b)) = (a.get(StepName::Output), b.get(StepName::Output)) else {
        return f64::INFINITY;
    };
    let &[batch, heads, queries, width] = b.shape() else {
        return f64::INFINITY;
    };
    let mut largest = 0.0_f64;
    for b_at in 0..batch {
        for h in 0..heads {
            for i in 0..queries {
                for c in 0..width {
                    let was = a.at(&[b_at, h, order[i], c]);
                    largest = largest.max(difference(b.at(&[b_at, h, i, c]), was));
                }
            }
        }
    }
    largest
}

/// The positional options of a run.
fn in_force(source: Source<'_>) -> Vec<Positional> {
    let (block, sinusoidal) = match source {
        Source::Given { block, .. } => (block, false),
        Source::Tokens { layer, .. } => (&layer.block, layer.sinusoidal.is_some()),
    };
    let attention = &block.attention;
    let all = [
        (Positional::Sinusoidal, sinusoidal),
        (Positional::Rotary, block.rotary.is_some()),
        (Positional::Alibi, attention.alibi.is_some()),
        (Positional::Causal, attention.causal.is_some()),
        (Positional::Window, attention.window.is_some()),
        (Positional::Lengths, attention.lengths.is_some()),
        (Positional::Documents, attention.documents.is_some()),
        (Positional::Dropout, attention.dropout.is_some()),
    ];
    let in_force = all.into_iter().filter(|(_, in_force)| *in_force);
    in_force.map(|(option, _)| option).collect()
}

/// A run with only one positional option, or none, where `only` says so, and in another order.
fn run(
    source: Source<'_>,
    only: Option<Option<Positional>>,
    order: Option<&[usize]>,
) -> Result<Steps> {
    let moved = |tensor: &Tensor<f64>| match order {
        Some(order) => reordered(tensor, order),
        None => Ok(tensor.clone()),
    };
    match source {
        Source::Given { block, q, k, v } => {
            let grids = Grids::new(&block.attention, order);
            let block = grids.with(block, only)?;
            let (q, k, v) = (moved(q)?, moved(k)?, moved(v)?);
            block.steps(&Inputs::new(q.view()?, k.view()?, v.view()?)?)
        }
        Source::Tokens { layer, x } => {
            let grids = Grids::new(&layer.block.attention, order);
            let mut again = layer.clone();
            again.block = grids.with(&layer.block, only)?;
            if only.is_some_and(|keep| keep != Some(Positional::Sinusoidal)) {
                again.sinusoidal = None;
            }
            again.steps(&moved(x)?, None, None)
        }
    }
}

/// Row i of the axis before the last is row `order[i]` of what it was.
fn reordered(tensor: &Tensor<f64>, order: &[usize]) -> Result<Tensor<f64>> {
    let shape = tensor.shape();
    let width = shape.last().copied().unwrap_or(1);
    let length = order.len();
    let lead = shape.iter().rev().skip(2).product::<usize>();
    let mut data = Vec::with_capacity(tensor.data().len());
    for block in 0..lead {
        for &from in order {
            let start = (block * length + from) * width;
            data.extend_from_slice(&tensor.data()[start..start + width]);
        }
    }
    Tensor::new(shape, data)
}

/// Masks and bias of a run, in another order.
struct Grids {
    masks: Vec<(Vec<bool>, [usize; 4], bool)>,
    bias: Option<(Vec<f64>, [usize; 4])>,
}

impl Grids {
    fn new(attention: &Attention<'_>, order: Option<&[usize]>) -> Grids {
        let place = |size: usize, i: usize| match order {
            // An axis of length 1 serves all tokens, in any order.
            Some(order) if size > 1 => order[i],
            _ => i,
        };
        let moved = |shape: [usize; 4], [b, h, i, j]: [usize; 4]| {
            [b, h, place(shape[2], i), place(shape[3], j)]
        };
        let masks = attention.masks.iter().map(|mask| {
            let shape = mask.view().shape();
            let at = indices(shape).map(|at| mask.view().get(moved(shape, at)));
            (at.collect(), shape, mask.true_keeps())
        });
        Grids {
            masks: masks.collect(),
            bias: attention.bias.map(|Bias(bias)| {
                let shape = bias.shape();
                (
                    indices(shape)
                        .map(|at| bias.get(moved(shape, at)))
                        .collect(),
                    shape,
                )
            }),
        }
    }

    /// The block with these masks, and with only one positional option where `only` says so.
    fn with<'a>(
        &'a self,
        block: &Block<'a>,
        only: Option<Option<Positional>>,
    ) -> Result<Block<'a>> {
        let mut again = block.clone();
        let attention = &mut again.attention;
        attention.masks.clear();
        for (data, shape, keeps) in &self.masks {
            let view = View::new(data, shape)?;
            attention.masks.push(if *keeps {
                Mask::keep(view)
            } else {
                Mask::drop(view)
            });
        }
        attention.bias = match &self.bias {
            Some((data, shape)) => Some(Bias(View::new(data, shape)?.into())),
            None => None,
        };
        attention.empty_rows = EmptyRows::Zero;
        if let Some(keep) = only {
            let off = |option| keep != Some(option);
            if off(Positional::Rotary) {
                again.rotary = None;
            }
            if off(Positional::Alibi) {
                attention.alibi = None;
            }
            if off(Positional::Causal) {
                attention.causal = None;
            }
            if off(Positional::Window) {
                attention.window = None;
            }
            if off(Positional::Lengths) {
                attention.lengths = None;
            }
            if off(Positional::Documents) {
                attention.documents = None;
            }
            if off(Positional::Dropout) {
                attention.dropout = None;
            }
        }
        Ok(again)
    }
}

/// All indices of a shape, row-major.
fn indices([a, b, c, d]: [usize; 4]) -> impl Iterator<Item = [usize; 4]> {
    (0..a).flat_map(move |a| {
        (0..b).flat_map(move |b| (0..c).flat_map(move |c| (0..d).map(move |d| [a, b, c, d])))
    })
}
