//! Long work in slices, so that there is progress to show and a moment to stop at.
//!
//! A slice is some batch entries, or some heads of one, or some queries of one head. The engine
//! promises the same bits for any of them, so slicing changes nothing but what is said about where
//! queries stand.

use crate::workers::Workers;
use qkv::{
    Alibi, Attention, Bias, Causal, EmptyRows, Float, Inputs, KeyLengths, Mask, Result, Sinks,
    View, ViewMut, forward_into,
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
    // Dropout goes by the batch entry and the head.
    if flops(batch * heads) <= 2.0 * work || attention.dropout.is_some() {
        return vec![whole];
    }
    let (of_entry, of_group) = (flops(heads), flops(heads / kv_heads));
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
        let [_, all_heads, all_queries, _] = inputs.scores_shape();
        let width = inputs.value_dim();
        let (head_step, query_step) = if output.swapped {
            (width, all_heads * width)
        } else {
            (all_queries * width, width)
        };
        let batch_step = all_heads * all_queries * width;
        let shape = [self.batch.len(), heads.len(), self.queries.len(), width];
        let offset = self.batch.start * batch_step
            + heads.start * head_step
            + self.queries.start * query_step;
        let strides = [batch_step, head_step, query_step, 1].map(|step| step as isize);
        let view = ViewMut::strided(output.data, offset, shape, strides)?;
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
mod tests {
    use super::*;
    use crate::args::EngineArgs;
    use qkv::{Documents, Dropout, Isa, Window};

    /// Numbers between −1 and 1.
    fn numbers(seed: u64, count: usize) -> Vec<f32> {
        let mut state = seed;
        (0..count)
            .map(|_| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                (state >> 40) as f32 / (1 << 23) as f32 - 1.0
            })
            .collect()
    }

    /// The result in slices of so much work each, and how many they were.
    fn sliced(
        attention: &Attention<'_>,
        inputs: &Inputs<'_, f32>,
        work: f64,
        swapped: bool,
    ) -> (Vec<f32>, Rows, usize) {
        let engine = EngineArgs {
            isa: Some(Isa::Portable),
            any_order: false,
        };
        let workers = Workers::new(1, &engine).expect("a thread");
        let [batch, heads, queries, _] = inputs.scores_shape();
        let mut data = vec![f32::NAN; batch * heads * queries * inputs.value_dim()];
        let mut output = Output {
            data: &mut data,
            swapped,
        };
        let mut rows = Rows {
            lse: vec![f64::NAN; batch * heads * queries],
            empty: Vec::new(),
        };
        let slices = plan(attention, inputs, work);
        for slice in &slices {
            slice
                .forward(attention, inputs, &workers, &mut output, &mut rows)
                .expect("a result");
        }
        rows.empty.sort_unstable();
        (data, rows, slices.len())
    }

    /// Slices give the bits of one call, whatever the options.
    #[test]
    fn slices_change_nothing() -> Result<()> {
        let (batch, heads, kv_heads, queries, new, past) = (3, 4, 2, 2000, 30, 11);
        let keys = new + past;
        let q = numbers(1, batch * heads * queries * 3);
        let k = numbers(2, batch * kv_heads * new * 3);
        let v = numbers(3, batch * kv_heads * new * 5);
        let past_k = numbers(4, batch * kv_heads * past * 3);
        let past_v = numbers(5, batch * kv_heads * past * 5);
        let inputs = Inputs::new(
            View::new(&q, &[batch, heads, queries, 3])?,
            View::new(&k, &[batch, kv_heads, new, 3])?,
            View::new(&v, &[batch, kv_heads, new, 5])?,
        )?
        .with_past(
            View::new(&past_k, &[batch, kv_heads, past, 3])?,
            View::new(&past_v, &[batch, kv_heads, past, 5])?,
        )?;
        let keep: Vec<bool> = (0..heads * queries * keys).map(|at| at % 7 != 2).collect();
        let bias = numbers(6, batch * queries * keys);
        let plain = Attention::default();
        let causal = |causal| Attention {
            causal: Some(causal),
            ..Attention::default()
        };
        let lengths = Some(KeyLengths(vec![keys, 17, 0]));
        let window = Some(Window {
            back: Some(9),
            forward: Some(2),
        });
        let alibi = Some(Alibi {
            slopes: vec![0.5, 0.25, 0.125, 1.0],
        });
        // Whether queries of these can be cut.
        let cases = [
            (plain.clone(), true),
            (causal(Causal::TopLeft), true),
            (causal(Causal::Offset(-500)), true),
            (
                Attention {
                    lengths: lengths.clone(),
                    window,
                    alibi: alibi.clone(),
                    ..causal(Causal::BottomRight)
                },
                true,
            ),
            (
                Attention {
                    masks: vec![Mask::keep(View::new(&keep, &[heads, queries, keys])?)],
                    bias: Some(Bias(View::new(&bias, &[batch, 1, queries, keys])?.into())),
                    sinks: Some(Sinks(vec![0.5, -1.0, 0.0, 2.0])),
                    ..plain.clone()
                },
                true,
            ),
            (
                Attention {
                    window,
                    lengths,
                    ..plain.clone()
                },
                false,
            ),
            (
                Attention {
                    alibi,
                    ..plain.clone()
                },
                false,
            ),
            (
                Attention {
                    documents: Some(Documents::with_key_lengths(
                        vec![1500, 500],
                        vec![20, keys - 20],
                    )?),
                    ..causal(Causal::BottomRight)
                },
                false,
            ),
        ];
        let flops = 2.0 * (batch * heads * queries * keys * 8) as f64;
        for (attention, can_be_cut) in &cases {
            attention.check(&inputs)?;
            for swapped in [false, true] {
                let (whole, whole_rows, one) = sliced(attention, &inputs, flops, swapped);
                assert_eq!(one, 1);
                // Batch entries, groups of heads, and cuts of at least so many queries.
                let cuts = if *can_be_cut { 3 } else { 1 };
                for (share, expected) in [(2.0, 1), (2.5, 3), (4.0, 6), (1e9, 6 * cuts)] {
                    let (data, rows, slices) =
                        sliced(attention, &inputs, 1.001 * flops / share, swapped);
                    let what = format!("{attention:?} in {slices}, swapped: {swapped}");
                    assert_eq!(slices, expected, "{what}");
                    assert!(data == whole, "{what}");
                    assert!(rows == whole_rows, "{what}");
                }
            }
        }
        let dropout = Attention {
            dropout: Some(Dropout { p: 0.5, seed: 1 }),
            ..plain
        };
        assert_eq!(plan(&dropout, &inputs, 1.0).len(), 1);
        Ok(())
    }
}
