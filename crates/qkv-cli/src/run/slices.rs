//! Long work in slices, so that there is progress to show and a moment to stop at.
//!
//! A slice is some batch entries, or some heads of one, or some queries of one head. The engine
//! promises the same bits for any of them, so slicing changes nothing but what is said about where
//! queries stand.

use crate::workers::Workers;
use qkv::{
    Alibi, Attention, Bias, Causal, EmptyRows, Float, GradientsMut, Inputs, KeyLengths, Mask,
    Result, Saved, Sinks, Store, View, ViewMut, backward_into, forward_into,
};
use std::ops::Range;

/// Operations in a slice: half a second's work or so on one core.
pub const WORK: f64 = 1e11;

/// Fewer queries than this are not worth packing the keys for.
const FEWEST_QUERIES: usize = 960;

/// A part of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    batch: Range<usize>,
    kv_heads: Range<usize>,
    queries: Range<usize>,
}

/// The slices of a call, of about so much work each; `attention` must fit the inputs.
pub fn plan<T: Float>(attention: &Attention<'_>, inputs: &Inputs<'_, T>, work: f64) -> Vec<Slice> {
    let [batch, heads, queries, keys] = inputs.scores_shape();
    let kv_heads = inputs.kv_heads();
    let whole = Slice {
        batch: 0..batch,
        kv_heads: 0..kv_heads,
        queries: 0..queries,
    };
    let width = (inputs.head_dim() + inputs.value_dim()) as f64;
    let flops = |heads: usize| 2.0 * heads as f64 * queries as f64 * keys as f64 * width;
    let (of_entry, of_group) = (flops(heads), flops(heads / kv_heads.max(1)));
    // Dropout goes by the batch entry and the head. Whether queries are cut, which changes the order
    // of sums in gradients, depends on one group of heads alone, not on what is beside it.
    let is_small = flops(batch * heads) <= 2.0 * work && of_group <= work;
    if is_small || attention.dropout.is_some() {
        return vec![whole];
    }
    let share = |of: f64| (work / of).max(1.0) as usize;
    if of_entry <= work {
        return ranges(0..batch, share(of_entry))
            .map(|batch| Slice {
                batch,
                ..whole.clone()
            })
            .collect();
    }
    let step = if of_group <= work || !queries_can_be_cut(attention) {
        queries
    } else {
        let step = queries as f64 * work / of_group;
        (step as usize).max(FEWEST_QUERIES)
    };
    let mut slices = Vec::new();
    for b in 0..batch {
        for kv_heads in ranges(0..kv_heads, share(of_group)) {
            slices.extend(ranges(0..queries, step).map(|queries| Slice {
                batch: b..b + 1,
                kv_heads: kv_heads.clone(),
                queries,
            }));
        }
    }
    slices
}

fn ranges(all: Range<usize>, step: usize) -> impl Iterator<Item = Range<usize>> {
    let end = all.end;
    all.step_by(step.max(1))
        .map(move |start| start..start.saturating_add(step).min(end))
}

/// Where queries stand can be said of a part of them only if something is causal, unless it does
/// not matter.
fn queries_can_be_cut(attention: &Attention<'_>) -> bool {
    let places_matter = attention.window.is_some() || attention.alibi.is_some();
    attention.documents.is_none() && (attention.causal.is_some() || !places_matter)
}

/// What the rows of a call are, besides the output.
#[derive(Debug, Default, PartialEq)]
pub struct Rows {
    /// `[batch, heads, queries]`.
    pub lse: Vec<f64>,
    /// Rows that keep no key.
    pub empty: Vec<[usize; 3]>,
}

/// Output in memory: `[B, H, L, d]`, or `[B, L, H, d]` if swapped.
pub struct Output<'a, T> {
    pub data: &'a mut [T],
    pub swapped: bool,
}

/// An array in memory, seen as `[B, H, L, d]`.
#[derive(Clone, Copy)]
struct Layout {
    shape: [usize; 4],
    swapped: bool,
}

/// What was computed forward, and the gradient of the output.
#[derive(Clone, Copy)]
pub struct Before<'a, T> {
    /// The output, in memory as [`Output`].
    pub output: &'a [T],
    pub swapped: bool,
    pub lse: &'a [f64],
    pub grad: View<'a, T>,
}

/// Gradients in memory: `[B, H, L, d]`, or `[B, L, H, d]` where the option is true.
#[derive(Debug)]
pub struct Gradients<T> {
    pub q: (Vec<T>, bool),
    pub k: (Vec<T>, bool),
    pub v: (Vec<T>, bool),
    /// In the shape of the bias.
    pub bias: Option<Vec<T>>,
    pub sinks: Option<Vec<T>>,
}

impl Layout {
    /// Where a part of the batch entries, heads and places begins, its shape and its strides.
    fn part(self, parts: [Range<usize>; 3]) -> (usize, [usize; 4], [isize; 4]) {
        let [_, heads, length, width] = self.shape;
        let (of_head, of_place) = if self.swapped {
            (width, heads * width)
        } else {
            (length * width, width)
        };
        let steps = [heads * length * width, of_head, of_place];
        let offset = parts
            .iter()
            .zip(steps)
            .map(|(part, step)| part.start * step);
        let [b, h, l] = &parts;
        let strides = [steps[0], steps[1], steps[2], 1].map(|step| step as isize);
        (offset.sum(), [b.len(), h.len(), l.len(), width], strides)
    }

    fn part_mut<T: Copy>(self, data: &mut [T], parts: [Range<usize>; 3]) -> Result<ViewMut<'_, T>> {
        let (offset, shape, strides) = self.part(parts);
        ViewMut::strided(data, offset, shape, strides)
    }
}

impl Slice {
    /// Its share of the work, in any unit.
    pub fn weight<T: Float>(&self, attention: &Attention<'_>, inputs: &Inputs<'_, T>) -> u64 {
        let keys = inputs.keys();
        let seen = match attention.causal {
            Some(_) => keys * (self.queries.start + self.queries.end) / 2 / inputs.queries().max(1),
            None => keys,
        };
        (self.batch.len() * self.kv_heads.len() * self.queries.len() * (seen + 1)) as u64
    }

    /// Computes it into its place.
    ///
    /// # Errors
    /// Those of [`forward_into`]; a row without a key is none.
    pub fn forward<T: Float>(
        &self,
        attention: &Attention<'_>,
        inputs: &Inputs<'_, T>,
        workers: &Workers,
        output: &mut Output<'_, T>,
        rows: &mut Rows,
    ) -> Result<()> {
        let group = inputs.heads() / inputs.kv_heads().max(1);
        let heads = self.kv_heads.start * group..self.kv_heads.end * group;
        let cut = self.inputs(inputs, &heads)?;
        let attention = self.attention(attention, inputs, &heads);
        let [batch, all_heads, all_queries, _] = inputs.scores_shape();
        let layout = Layout {
            shape: [batch, all_heads, all_queries, inputs.value_dim()],
            swapped: output.swapped,
        };
        let parts = [self.batch.clone(), heads.clone(), self.queries.clone()];
        let view = layout.part_mut(output.data, parts)?;
        let found = workers.run(|| forward_into(&attention, &cut, &workers.options, view))?;
        let places = self
            .batch
            .clone()
            .flat_map(|b| heads.clone().map(move |h| (b, h)));
        let lengths = self.queries.len();
        for ((b, h), lse) in places.zip(found.lse.data().chunks(lengths.max(1))) {
            let at = (b * all_heads + h) * all_queries + self.queries.start;
            rows.lse[at..at + lengths].copy_from_slice(lse);
        }
        rows.empty.extend(found.empty_rows.iter().map(|[b, h, i]| {
            [
                self.batch.start + b,
                heads.start + h,
                self.queries.start + i,
            ]
        }));
        Ok(())
    }

    /// Adds its gradients to those of the slices before.
    ///
    /// # Errors
    /// Those of [`backward_into`].
    pub fn backward<T: Float>(
        &self,
        attention: &Attention<'_>,
        inputs: &Inputs<'_, T>,
        workers: &Workers,
        before: Before<'_, T>,
        to: &mut Gradients<T>,
    ) -> Result<()> {
        let group = inputs.heads() / inputs.kv_heads().max(1);
        let heads = self.kv_heads.start * group..self.kv_heads.end * group;
        let cut = self.inputs(inputs, &heads)?;
        let cut_attention = self.attention(attention, inputs, &heads);
        let [batch, all_heads, queries, keys] = inputs.scores_shape();
        let (d_k, d_v) = (inputs.head_dim(), inputs.value_dim());
        let rows = [self.batch.clone(), heads.clone(), self.queries.clone()];
        let of_keys = [self.batch.clone(), self.kv_heads.clone(), 0..keys];
        let of_rows = |width, swapped| Layout {
            shape: [batch, all_heads, queries, width],
            swapped,
        };
        let of_heads = |width, swapped| Layout {
            shape: [batch, inputs.kv_heads(), keys, width],
            swapped,
        };
        let (offset, shape, strides) = of_rows(d_v, before.swapped).part(rows.clone());
        let mut lse = Vec::with_capacity(shape[0] * shape[1] * shape[2]);
        for b in self.batch.clone() {
            for h in heads.clone() {
                let first = (b * all_heads + h) * queries;
                let places = first + self.queries.start..first + self.queries.end;
                lse.extend_from_slice(&before.lse[places]);
            }
        }
        let saved = Saved {
            output: View::strided(before.output, offset, shape, strides)?,
            lse: &lse,
        };
        let grad = before.grad;
        let grad = (0..3).fold(grad, |grad, axis| {
            grad.narrow(axis, rows[axis].start, rows[axis].len())
        });
        let bias = match (&mut to.bias, attention.bias) {
            (Some(data), Some(Bias(bias))) => {
                let layout = Layout {
                    shape: bias.shape(),
                    swapped: false,
                };
                let parts = std::array::from_fn(|axis| match layout.shape[axis] {
                    1 => 0..1,
                    _ => rows[axis].clone(),
                });
                Some(layout.part_mut(data, parts)?)
            }
            _ => None,
        };
        let (q, k, v) = (&mut to.q, &mut to.k, &mut to.v);
        let gradients = GradientsMut {
            q: of_rows(d_k, q.1).part_mut(&mut q.0, rows.clone())?,
            k: of_heads(d_k, k.1).part_mut(&mut k.0, of_keys.clone())?,
            v: of_heads(d_v, v.1).part_mut(&mut v.0, of_keys)?,
            bias,
            sinks: to.sinks.as_mut().map(|sinks| &mut sinks[heads.clone()]),
            store: Store::Add,
        };
        let options = &workers.options;
        workers.run(|| backward_into(&cut_attention, &cut, saved, grad, options, gradients))
    }

    fn inputs<'a, T: Float>(
        &self,
        inputs: &Inputs<'a, T>,
        heads: &Range<usize>,
    ) -> Result<Inputs<'a, T>> {
        let entries = |view: View<'a, T>, heads: &Range<usize>| {
            view.narrow(0, self.batch.start, self.batch.len())
                .narrow(1, heads.start, heads.len())
        };
        let q = entries(inputs.q(), heads).narrow(2, self.queries.start, self.queries.len());
        let kv = |view| entries(view, &self.kv_heads);
        let cut = Inputs::new(q, kv(inputs.k()), kv(inputs.v()))?;
        match inputs.past() {
            Some((k, v)) => cut.with_past(kv(k), kv(v)),
            None => Ok(cut),
        }
    }

    fn attention<'a, T: Float>(
        &self,
        attention: &Attention<'a>,
        inputs: &Inputs<'_, T>,
        heads: &Range<usize>,
    ) -> Attention<'a> {
        // Axes align to the right, and one of length 1 serves all.
        let axes = [&self.batch, heads, &self.queries];
        let cut = |mask: &Mask<'a>| {
            let mut view = mask.view();
            for (axis, range) in axes.iter().enumerate() {
                if view.shape()[axis] != 1 {
                    view = view.narrow(axis, range.start, range.len());
                }
            }
            if mask.true_keeps() {
                Mask::keep(view)
            } else {
                Mask::drop(view)
            }
        };
        let bias = attention.bias.map(|Bias(mut view)| {
            for (axis, range) in axes.iter().enumerate() {
                if view.shape()[axis] != 1 {
                    view = view.narrow(axis, range.start, range.len());
                }
            }
            Bias(view)
        });
        let lengths = attention
            .lengths
            .as_ref()
            .map(|KeyLengths(lengths)| KeyLengths(lengths[self.batch.clone()].to_vec()));
        Attention {
            bias,
            masks: attention.masks.iter().map(cut).collect(),
            alibi: attention.alibi.as_ref().map(|alibi| Alibi {
                slopes: alibi.slopes[heads.clone()].to_vec(),
            }),
            sinks: attention
                .sinks
                .as_ref()
                .map(|Sinks(sinks)| Sinks(sinks[heads.clone()].to_vec())),
            causal: self.causal(attention, inputs),
            lengths,
            // Told of all rows together.
            empty_rows: EmptyRows::Zero,
            ..attention.clone()
        }
    }

    /// The same places for a part of the queries.
    fn causal<T: Float>(
        &self,
        attention: &Attention<'_>,
        inputs: &Inputs<'_, T>,
    ) -> Option<Causal> {
        let causal = attention.causal?;
        if self.queries == (0..inputs.queries()) {
            return Some(causal);
        }
        let offset = match causal {
            Causal::Square | Causal::TopLeft => 0,
            Causal::Offset(offset) => offset,
            Causal::BottomRight => {
                // Queries are cut in one batch entry at a time.
                let keys = match &attention.lengths {
                    Some(KeyLengths(lengths)) => lengths[self.batch.start],
                    None => inputs.keys(),
                };
                keys as i64 - inputs.queries() as i64
            }
        };
        Some(Causal::Offset(
            offset.saturating_add_unsigned(self.queries.start as u64),
        ))
    }
}

#[cfg(test)]
mod tests;
