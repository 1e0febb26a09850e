//! The problem whose answer somebody else worked out too.

use qkv::{Attention, Bias, Block, Inputs, Layer, Result, StepName, Tensor};

/// What both sides computed, with the options that the right answer follows.
#[derive(Clone, Copy, Debug)]
pub enum Problem<'a> {
    /// From queries, keys and values.
    Given {
        /// The options.
        block: &'a Block<'a>,
        /// `[B, H, L_q, d_k]`.
        q: &'a Tensor<f64>,
        /// `[B, H_kv, L, d_k]`.
        k: &'a Tensor<f64>,
        /// `[B, H_kv, L, d_v]`.
        v: &'a Tensor<f64>,
        /// Cached keys and values in front of them.
        past: Option<(&'a Tensor<f64>, &'a Tensor<f64>)>,
    },
    /// From token rows and weights.
    Tokens {
        /// What makes q, k and v from them.
        layer: &'a Layer<'a>,
        /// `[B, L, D]`.
        x: &'a Tensor<f64>,
        /// What keys and values are made from instead.
        context: Option<&'a Tensor<f64>>,
        /// Cached keys and values in front of the new ones.
        past: Option<(&'a Tensor<f64>, &'a Tensor<f64>)>,
    },
}

impl<'a> Problem<'a> {
    pub(crate) fn block(&self) -> &'a Block<'a> {
        match *self {
            Problem::Given { block, .. } => block,
            Problem::Tokens { layer, .. } => &layer.block,
        }
    }

    pub(crate) fn attention(&self) -> &'a Attention<'a> {
        &self.block().attention
    }

    pub(crate) fn past(&self) -> Option<(&'a Tensor<f64>, &'a Tensor<f64>)> {
        match *self {
            Problem::Given { past, .. } | Problem::Tokens { past, .. } => past,
        }
    }
}

/// The sizes of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    pub batch: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub queries: usize,
    /// Cached ones included.
    pub keys: usize,
    pub past: usize,
    pub head_dim: usize,
    pub value_dim: usize,
    /// Width of x, or of all query heads together.
    pub model_width: usize,
    /// Width of the result of W_O.
    pub out_width: Option<usize>,
}

/// A problem that was checked.
pub(crate) struct Base<'a> {
    pub problem: Problem<'a>,
    pub sizes: Sizes,
    /// Each mask, repeated to the shape of the scores, and what `true` means in it.
    pub masks: Vec<(qkv::View<'a, bool>, bool)>,
    pub bias: Option<qkv::AnyView<'a>>,
    /// How many of its first keys each batch entry drops for every query.
    pub left_padding: Vec<usize>,
}

/// How many of its first keys each batch entry drops for every query by a mask.
pub(crate) fn left_padding(problem: &Problem<'_>, batch: usize, keys: usize) -> Vec<usize> {
    let masks = &problem.attention().masks;
    let dropped = |b: usize, j: usize| {
        masks.iter().any(|mask| {
            let view = mask.view();
            let [batches, heads, queries, axis] = view.shape();
            let at = |n: usize, of: usize| if of == 1 { 0 } else { n };
            (0..heads * queries).all(|n| {
                let index = [
                    at(b, batches),
                    n / queries.max(1),
                    n % queries.max(1),
                    at(j, axis),
                ];
                view.get(index) != mask.true_keeps()
            })
        })
    };
    let of = |b: usize| (0..keys).take_while(|j| dropped(b, *j)).count();
    (0..batch).map(of).collect()
}

impl<'a> Base<'a> {
    /// Checks the problem as a run of it does.
    ///
    /// # Errors
    /// Those of [`Block::steps`] and [`Layer::steps`].
    pub fn new(problem: Problem<'a>) -> Result<Base<'a>> {
        let [q, k, v] = crate::model::projected(&problem, crate::recipe::Projection::default())?;
        let past = problem.past();
        let mut inputs = Inputs::new(q.view()?, k.view()?, v.view()?)?;
        if let Some((past_k, past_v)) = past {
            inputs = inputs.with_past(past_k.view()?, past_v.view()?)?;
        }
        let (block, attention) = (problem.block(), problem.attention());
        attention.check(&inputs)?;
        check_rest(&problem)?;
        let shape = inputs.scores_shape();
        let masks = attention.masks.iter().filter_map(|mask| {
            let view = mask.view().broadcast(shape)?;
            Some((view, mask.true_keeps()))
        });
        let sizes = Sizes {
            batch: inputs.batch(),
            heads: inputs.heads(),
            kv_heads: inputs.kv_heads(),
            queries: inputs.queries(),
            keys: inputs.keys(),
            past: inputs.past_len(),
            head_dim: inputs.head_dim(),
            value_dim: inputs.value_dim(),
            model_width: match problem {
                Problem::Given { .. } => inputs.heads() * inputs.head_dim(),
                Problem::Tokens { x, .. } => x.shape()[2],
            },
            out_width: block.output.as_ref().map(|output| output.out_width()),
        };
        let masks = masks.collect();
        let left_padding = left_padding(&problem, sizes.batch, sizes.keys);
        let bias = attention.bias.and_then(|Bias(bias)| bias.broadcast(shape));
        Ok(Base {
            problem,
            sizes,
            masks,
            bias,
            left_padding,
        })
    }
}

/// Norms, rotary, W_O and residual: a run of the first token of each checks that they fit.
fn check_rest(problem: &Problem<'_>) -> Result<()> {
    let first = |tensor: &Tensor<f64>| -> Result<Tensor<f64>> {
        let shape = tensor.shape().to_vec();
        let axis = shape.len() - 2;
        let mut short = shape.clone();
        short[axis] = shape[axis].min(1);
        let width = shape[axis + 1];
        let lead: usize = shape[..axis].iter().product();
        let mut data = Vec::new();
        for block in 0..lead {
            let start = block * shape[axis] * width;
            data.extend_from_slice(&tensor.data()[start..start + short[axis] * width]);
        }
        Tensor::new(&short, data)
    };
    let plain = |block: &Block<'_>| -> Block<'static> {
        Block {
            q_norm: block.q_norm.clone(),
            k_norm: block.k_norm.clone(),
            rotary: block.rotary,
            output: block.output.clone(),
            concatenate: block.concatenate,
            ..Block::default()
        }
    };
    match *problem {
        Problem::Given { block, q, k, v, .. } => {
            let (q, k, v) = (first(q)?, first(k)?, first(v)?);
            plain(block).steps(&Inputs::new(q.view()?, k.view()?, v.view()?)?)?;
        }
        Problem::Tokens {
            layer, x, context, ..
        } => {
            let mut one = Layer {
                q: layer.q.clone(),
                k: layer.k.clone(),
                v: layer.v.clone(),
                heads: layer.heads,
                kv_heads: layer.kv_heads,
                sinusoidal: layer.sinusoidal,
                block: plain(&layer.block),
                residual: layer.residual,
            };
            one.block.concatenate = true;
            let context = context.map(&first).transpose()?;
            one.steps(&first(x)?, context.as_ref(), None)?;
        }
    }
    Ok(())
}

/// The step that a whole run ends with.
pub(crate) fn result_step(problem: &Problem<'_>) -> StepName {
    let residual = matches!(problem, Problem::Tokens { layer, .. } if layer.residual);
    let block = problem.block();
    if residual {
        StepName::Residual
    } else if block.output.is_some() {
        StepName::Projected
    } else if block.concatenate {
        StepName::Concatenated
    } else {
        StepName::Output
    }
}

impl Base<'_> {
    /// Whether a query stands where its own key does.
    pub fn is_self_attention(&self) -> bool {
        matches!(self.problem, Problem::Tokens { context: None, .. })
    }
}
