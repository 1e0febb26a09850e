//! One step of decoding against a run without a cache.

use crate::recompute::largest_difference;
use qkv::{Attention, Bias, Block, Causal, Inputs, Layer, Mask, Result, StepName, Steps, Tensor};

/// A decode step beside what it should equal.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    /// What it is compared with.
    pub against: Against,
    /// The outputs of that, `[B, H, L_q, d_v]`.
    pub output: Tensor<f64>,
    /// Largest difference to the outputs of the step.
    pub difference: f64,
}

/// What a decode step is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Against {
    /// The same queries against cached and new keys in one call: queries of cached tokens are not
    /// known.
    OneCall,
    /// The last row of the run over all tokens.
    FullRun,
}

impl Decoded {
    /// Whether both have the same bits (NaN counts as equal to NaN).
    pub fn is_equal(&self) -> bool {
        self.difference == 0.0
    }
}

/// The queries of a run with a cache against all keys in one call, as if nothing had been cached.
/// Keys are as the cache holds them, after norm and rotation.
///
/// # Errors
/// Those of [`qkv::steps()`].
pub fn against_one_call(block: &Block<'_>, steps: &Steps) -> Result<Option<Decoded>> {
    let last = |names: [StepName; 3]| names.into_iter().rev().find_map(|name| steps.get(name));
    let q = last([StepName::Q, StepName::QNormed, StepName::QRotated]);
    let k = last([StepName::K, StepName::KNormed, StepName::KRotated]);
    let (Some(q), Some(k), Some(v), Some(own)) =
        (q, k, steps.get(StepName::V), steps.get(StepName::Output))
    else {
        return Ok(None);
    };
    let inputs = Inputs::new(q.view()?, k.view()?, v.view()?)?;
    let output = qkv::definition::forward(&block.attention, &inputs)?.output;
    Ok(Some(Decoded {
        against: Against::OneCall,
        difference: largest_difference(&output, own),
        output,
    }))
}

/// The last token of a run over all tokens, and the cache that the others leave.
#[derive(Clone, Debug, PartialEq)]
pub struct LastToken {
    /// `[B, 1, D]`.
    pub x: Tensor<f64>,
    /// Keys of the others, after norm and rotation, `[B, H_kv, L − 1, d_k]`.
    pub past_k: Tensor<f64>,
    /// Values of the others, `[B, H_kv, L − 1, d_v]`.
    pub past_v: Tensor<f64>,
}

/// Runs all tokens but the last, and keeps their keys and values.
///
/// What a query sees does not change its own key or value, so the masks of the whole run are left
/// out. `None` with fewer than two tokens.
///
/// # Errors
/// Those of [`Layer::steps`].
pub fn prefill(layer: &Layer<'_>, x: &Tensor<f64>) -> Result<Option<LastToken>> {
    let &[batch, length, width] = x.shape() else {
        return Ok(None);
    };
    if length < 2 {
        return Ok(None);
    }
    let rows = |from: usize, to: usize| {
        let mut data = Vec::with_capacity(batch * (to - from) * width);
        for b in 0..batch {
            data.extend((from..to).flat_map(|t| x.row(&[b, t])));
        }
        Tensor::new(&[batch, to - from, width], data)
    };
    let mut prefix = layer.clone();
    prefix.block.attention = Attention::default();
    prefix.block.output = None;
    prefix.residual = false;
    let steps = prefix.steps(&rows(0, length - 1)?, None, None)?;
    let names = [StepName::KRotated, StepName::KNormed, StepName::K];
    let k = names.into_iter().find_map(|name| steps.get(name));
    let (Some(k), Some(v)) = (k, steps.get(StepName::V)) else {
        return Ok(None);
    };
    Ok(Some(LastToken {
        x: rows(length - 1, length)?,
        past_k: k.clone(),
        past_v: v.clone(),
    }))
}

/// The options of a run over `length` tokens, as the last query alone has them: a causal mask that
/// stood at the first key stands `length − 1` keys further, and masks and bias keep their last row.
#[must_use]
pub fn last_query<'a>(attention: &Attention<'a>, length: usize) -> Attention<'a> {
    const QUERIES: usize = 2;
    let before = length.saturating_sub(1);
    let mut own = attention.clone();
    own.causal = attention.causal.map(|causal| match causal {
        Causal::Square | Causal::TopLeft => Causal::Offset(before as i64),
        Causal::BottomRight => Causal::BottomRight,
        Causal::Offset(offset) => Causal::Offset(offset.saturating_add(before as i64)),
    });
    let masks = attention.masks.iter().map(|mask| {
        let view = mask.view();
        let last = match view.shape()[QUERIES].checked_sub(1) {
            Some(last) => view.narrow(QUERIES, last, 1),
            None => view,
        };
        match mask.true_keeps() {
            true => Mask::keep(last),
            false => Mask::drop(last),
        }
    });
    own.masks = masks.collect();
    own.bias = attention.bias.map(|Bias(bias)| {
        Bias(match bias.shape()[QUERIES].checked_sub(1) {
            Some(last) => bias.narrow(QUERIES, last, 1),
            None => bias,
        })
    });
    own
}

/// The step of the last token beside the last row of the run over all tokens.
pub fn against_full_run(full: &Steps, step: &Steps) -> Option<Decoded> {
    let (full, own) = (full.get(StepName::Output)?, step.get(StepName::Output)?);
    let &[batch, heads, queries, width] = full.shape() else {
        return None;
    };
    let last = queries.checked_sub(1)?;
    let mut data = Vec::with_capacity(batch * heads * width);
    for b in 0..batch {
        for h in 0..heads {
            data.extend_from_slice(full.row(&[b, h, last]));
        }
    }
    let output = Tensor::new(&[batch, heads, 1, width], data).ok()?;
    Some(Decoded {
        against: Against::FullRun,
        difference: largest_difference(&output, own),
        output,
    })
}
