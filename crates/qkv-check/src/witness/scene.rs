//! A problem that owns its numbers, and such problems with the options of a given one.

use super::draw::Draw;
use crate::problem::Problem;
use crate::recipe::{Arrangement, Recipe, Swap};
use qkv::{
    AnyView, Attention, Bias, Block, Causal, Documents, KeyLengths, Layer, Mask, Place, Result,
    Tensor, View,
};

/// A problem with all its numbers.
#[derive(Clone, Debug)]
pub struct Scene {
    /// Queries, keys and values, where they are not made from tokens.
    pub given: Option<[Tensor<f64>; 3]>,
    /// What makes q, k and v from tokens, with the tokens and what keys and values are made from
    /// instead.
    pub tokens: Option<(Layer<'static>, Tensor<f64>, Option<Tensor<f64>>)>,
    /// Cached keys and values.
    pub past: Option<(Tensor<f64>, Tensor<f64>)>,
    /// Options without masks and bias; those of the layer where there are tokens.
    pub block: Block<'static>,
    /// Masks, each with what `true` means.
    pub masks: Vec<(Tensor<bool>, bool)>,
    /// The bias.
    pub bias: Option<Tensor<f64>>,
}

impl Scene {
    /// Hands out the problem.
    ///
    /// # Errors
    /// Where a shape has more than four axes.
    pub fn with<R>(&self, run: impl FnOnce(&Problem<'_>) -> R) -> Result<R> {
        let mut block: Block<'_> = self.block.clone();
        for (mask, keeps) in &self.masks {
            let view = View::new(mask.data(), mask.shape())?;
            block.attention.masks.push(match keeps {
                true => Mask::keep(view),
                false => Mask::drop(view),
            });
        }
        if let Some(bias) = &self.bias {
            block.attention.bias = Some(Bias(AnyView::from(bias.view()?)));
        }
        let past = self.past.as_ref().map(|(k, v)| (k, v));
        if let Some((layer, x, context)) = &self.tokens {
            let layer = Layer {
                block,
                ..owned_layer(layer)
            };
            let context = context.as_ref();
            return Ok(run(&Problem::Tokens {
                layer: &layer,
                x,
                context,
                past,
            }));
        }
        let none = Tensor::new(&[0, 0, 0, 0], Vec::new())?;
        let [q, k, v] = match &self.given {
            Some([q, k, v]) => [q, k, v],
            None => [&none, &none, &none],
        };
        let block = &block;
        Ok(run(&Problem::Given {
            block,
            q,
            k,
            v,
            past,
        }))
    }
}

/// Options without what they borrow.
pub(super) fn owned_block(block: &Block<'_>) -> Block<'static> {
    let attention = &block.attention;
    Block {
        q_norm: block.q_norm.clone(),
        k_norm: block.k_norm.clone(),
        rotary: block.rotary,
        place: block.place.clone(),
        concatenate: block.concatenate,
        output: block.output.clone(),
        attention: Attention {
            scale: attention.scale,
            softcap: attention.softcap,
            bias: None,
            alibi: attention.alibi.clone(),
            masks: Vec::new(),
            causal: attention.causal,
            window: attention.window,
            lengths: attention.lengths.clone(),
            documents: attention.documents.clone(),
            sinks: attention.sinks.clone(),
            dropout: attention.dropout,
            empty_rows: attention.empty_rows,
        },
    }
}

fn owned_layer(layer: &Layer<'_>) -> Layer<'static> {
    Layer {
        q: layer.q.clone(),
        k: layer.k.clone(),
        v: layer.v.clone(),
        heads: layer.heads,
        kv_heads: layer.kv_heads,
        sinusoidal: layer.sinusoidal,
        block: owned_block(&layer.block),
        residual: layer.residual,
    }
}

/// Lengths of a scene.
#[derive(Clone, Copy)]
struct Lengths {
    batch: usize,
    queries: usize,
    /// New keys.
    keys: usize,
    past: usize,
}

/// Scenes with the options of a problem: other numbers, other lengths, heads and widths the same.
pub(super) fn like<'p>(
    problem: &'p Problem<'p>,
    recipes: &[Recipe],
) -> impl Iterator<Item = Scene> + 'p {
    const ROUNDS: usize = 36;
    let leaks = recipes.iter().any(|recipe| recipe.leak);
    let overflows = recipes.iter().any(|recipe| recipe.half_range[0]);
    let square = recipes.iter().any(|recipe| {
        recipe.arrangement != Arrangement::Tokens || recipe.swap == Swap::QueriesKeys
    });
    (0..ROUNDS).filter_map(move |round| {
        // Scores beyond 65504 need large numbers.
        let size = match (overflows, round % 3) {
            (true, 0) => 300.0,
            (_, 1) => 2.0,
            _ => 1.0,
        };
        let lengths = lengths(problem, round, square);
        scene(problem, lengths, Draw::new(round as u64), size, leaks).ok()
    })
}

/// The lengths of a round: small, all different where the options allow it, beyond every window.
fn lengths(problem: &Problem<'_>, round: usize, square: bool) -> Lengths {
    const LONGEST: usize = 512;
    let attention = problem.attention();
    let reach = attention.window.map_or(0, |window| {
        window
            .back
            .into_iter()
            .chain(window.forward)
            .max()
            .unwrap_or(0)
    });
    let own = match problem.past() {
        Some((k, _)) => k.shape()[2],
        None => 0,
    };
    let queries = [5, 3, 8, 11][round % 4] + reach.min(LONGEST);
    let further = [3, 6, 2][round / 4 % 3];
    let is_self = matches!(problem, Problem::Tokens { context: None, .. });
    let packed_alike = attention
        .documents
        .as_ref()
        .is_some_and(|documents| documents.queries() == documents.keys());
    let same = is_self
        || packed_alike
        || square && round.is_multiple_of(2)
        || attention.causal == Some(Causal::Square);
    Lengths {
        batch: 2,
        queries,
        keys: match (same, own > 0) {
            (true, _) => queries,
            // With a cache, mostly as many new keys as queries.
            (false, true) if round % 4 != 3 => queries,
            (false, _) if round % 5 == 4 && queries > further => queries - further,
            (false, _) => queries + further,
        },
        past: if own > 0 {
            own.min(LONGEST) + round % 3
        } else {
            0
        },
    }
}

fn scene(
    problem: &Problem<'_>,
    lengths: Lengths,
    mut draw: Draw,
    size: f64,
    leaks: bool,
) -> Result<Scene> {
    let Lengths {
        batch,
        queries,
        keys: new_keys,
        past,
    } = lengths;
    let keys = new_keys + past;
    let attention = problem.attention();
    let mut block = owned_block(problem.block());
    if let Place::Given(_) = block.place {
        // The second batch entry has two places of left padding.
        let places = |pad: i64| (0..queries.max(new_keys) as i64).map(move |t| (t - pad).max(0));
        block.place = Place::Given((0..batch).map(|b| places(2 * b as i64).collect()).collect());
    }
    if attention.lengths.is_some() {
        let each = (0..batch).map(|b| match b {
            0 => keys - keys.min(2).min(keys - 1),
            _ => 1 + draw.below(keys),
        });
        block.attention.lengths = Some(KeyLengths(each.collect()));
    }
    if let Some(documents) = &attention.documents {
        let count = documents.queries().len();
        let split = |of: usize| -> Vec<usize> {
            (0..count)
                .map(|n| (n + 1) * of / count - n * of / count)
                .collect()
        };
        block.attention.documents = Some(Documents::with_key_lengths(split(queries), split(keys))?);
    }
    let full = |shape: [usize; 4]| -> Vec<usize> {
        let heads = shape[1];
        let axes = [
            (shape[0], batch),
            (heads, heads),
            (shape[2], queries),
            (shape[3], keys),
        ];
        axes.map(|(given, now)| if given == 1 { 1 } else { now })
            .into()
    };
    let mut masks = Vec::new();
    for mask in &attention.masks {
        let shape = full(mask.view().shape());
        let count = shape.iter().product();
        // Some rows keep nothing at all.
        let row = shape[3].max(1);
        let dead = draw.below(4);
        let kept = (0..count).map(|at| at / row % 4 != dead && draw.chance(0.6));
        let values: Vec<bool> = kept.map(|kept| kept == mask.true_keeps()).collect();
        masks.push((Tensor::new(&shape, values)?, mask.true_keeps()));
    }
    let bias = match attention.bias {
        None => None,
        Some(Bias(given)) => {
            let shape = full(given.shape());
            let drops = drops(&given);
            let mut bias = draw.tensor(&shape, 1.0)?;
            for x in bias.data_mut() {
                if drops && draw.chance(0.3) {
                    *x = f64::NEG_INFINITY;
                }
            }
            Some(bias)
        }
    };
    let heads_of = |shape: &[usize], length: usize| [batch, shape[1], length, shape[3]];
    let past_tensors = match problem.past() {
        None => None,
        Some((k, v)) => Some((
            draw.tensor(&heads_of(k.shape(), past), size)?,
            draw.tensor(&heads_of(v.shape(), past), size)?,
        )),
    };
    let (mut given, mut tokens) = (None, None);
    match *problem {
        Problem::Given { q, k, v, .. } => {
            let mut v = draw.tensor(&heads_of(v.shape(), new_keys), 1.0)?;
            if let (true, Some(last)) = (leaks, v.data_mut().last_mut()) {
                *last = f64::NAN;
            }
            given = Some([
                draw.tensor(&heads_of(q.shape(), queries), size)?,
                draw.tensor(&heads_of(k.shape(), new_keys), size)?,
                v,
            ]);
        }
        Problem::Tokens {
            layer, x, context, ..
        } => {
            let x = draw.tensor(&[batch, queries, x.shape()[2]], size)?;
            let context = match context {
                Some(context) => Some(draw.tensor(&[batch, new_keys, context.shape()[2]], size)?),
                None => None,
            };
            tokens = Some((owned_layer(layer), x, context));
        }
    }
    Ok(Scene {
        given,
        tokens,
        past: past_tensors,
        block,
        masks,
        bias,
    })
}

/// Whether a bias drops keys.
fn drops(bias: &AnyView<'_>) -> bool {
    let [b, h, i, j] = bias.shape();
    (0..b * h * i * j).any(|at| {
        let index = [at / (h * i * j), at / (i * j) % h, at / j % i, at % j];
        bias.get(index) == f64::NEG_INFINITY
    })
}
