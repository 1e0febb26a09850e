//! Scores and weights on demand: a part of what the forward pass never keeps.

use super::ahead::Ahead;
use super::block::{FEWER_QUERIES, Scratch};
use super::call::{Call, check_scale};
use super::options::Options;
use super::packed::Head;
use super::real::Float;
use crate::attention::{Attention, Inputs};
use crate::error::{Error, Result};
use crate::view::Tensor;
use std::ops::Range;

/// Which part of `[batch, heads, queries, keys]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Batch entries.
    pub batch: Range<usize>,
    /// Query heads.
    pub heads: Range<usize>,
    /// Queries.
    pub queries: Range<usize>,
    /// Keys, the cached ones first.
    pub keys: Range<usize>,
}

impl Part {
    /// Everything.
    pub fn all<T: Float>(inputs: &Inputs<'_, T>) -> Part {
        let [batch, heads, queries, keys] = inputs.scores_shape();
        Part {
            batch: 0..batch,
            heads: 0..heads,
            queries: 0..queries,
            keys: 0..keys,
        }
    }

    fn axes(&self) -> [&Range<usize>; 4] {
        [&self.batch, &self.heads, &self.queries, &self.keys]
    }

    fn check<T: Float>(&self, inputs: &Inputs<'_, T>) -> Result<()> {
        let names = ["batch", "heads", "queries", "keys"];
        let sizes = inputs.scores_shape();
        for ((name, size), range) in names.into_iter().zip(sizes).zip(self.axes()) {
            if range.start > range.end || range.end > size {
                return Err(Error::Option {
                    option: name,
                    value: format!("{range:?} (there are {size})"),
                    remedy: "a part must lie within the scores",
                });
            }
        }
        Ok(())
    }

    fn shape(&self) -> [usize; 4] {
        self.axes().map(|range| range.len())
    }
}

/// The scores that the softmax takes: scale·q·k with softcap, bias and ALiBi, −∞ where a key is
/// dropped (the step `masked`).
///
/// Shape: that of `part`. They come from the very products that [`forward`](crate::forward) uses,
/// with the same bits. A row with no key is −∞ throughout.
///
/// # Errors
/// Those of [`Attention::check`] and [`Options::isa`], and [`Error::Option`] if the part reaches
/// outside.
pub fn scores<T: Float>(
    attention: &Attention<'_>,
    inputs: &Inputs<'_, T>,
    options: &Options,
    part: &Part,
) -> Result<Tensor<T>> {
    checked(attention, inputs, options, part, false)
}

/// The weights, exp(score − max)/sum with the sink in the sum, before dropout; 0 where a key is
/// dropped.
///
/// Shape: that of `part`. They come from the scores, maximum and sum that
/// [`forward`](crate::forward) uses, with the same bits, however small the part. A row with no key
/// is 0 throughout. Working memory is the part and no more.
///
/// # Errors
/// As [`scores`].
///
/// ```
/// use qkv::{Attention, Inputs, Options, Part, View, weights};
/// let q = [0.0_f32; 4];
/// let inputs = Inputs::new(View::new(&q, &[4, 1])?, View::new(&q, &[4, 1])?, View::new(&q, &[4, 1])?)?;
/// let last = Part { queries: 3..4, ..Part::all(&inputs) };
/// let weights = weights(&Attention::default(), &inputs, &Options::default(), &last)?;
/// assert_eq!(weights.data(), [0.25; 4]);
/// # Ok::<(), qkv::Error>(())
/// ```
pub fn weights<T: Float>(
    attention: &Attention<'_>,
    inputs: &Inputs<'_, T>,
    options: &Options,
    part: &Part,
) -> Result<Tensor<T>> {
    checked(attention, inputs, options, part, true)
}

fn checked<T: Float>(
    attention: &Attention<'_>,
    inputs: &Inputs<'_, T>,
    options: &Options,
    part: &Part,
    weigh: bool,
) -> Result<Tensor<T>> {
    attention.check(inputs)?;
    check_scale::<T>(attention)?;
    part.check(inputs)?;
    let call = Call::new(attention, inputs, options.isa()?, options.reproducible);
    Ok(T::recompute(&call, part, weigh))
}

/// Scores, or with `weigh` weights, of a part that lies within the call's.
pub(super) fn recompute<T: Float>(call: &Call<'_, T>, part: &Part, weigh: bool) -> Tensor<T> {
    let dropped = if weigh { 0.0 } else { f64::NEG_INFINITY };
    let mut result = Tensor::filled(&part.shape(), T::from_f64(dropped));
    let data = result.data_mut();
    T::with_scratch(|scratch| {
        for b in part.batch.clone() {
            for h in part.heads.clone() {
                for index in 0..call.visible.stretches() {
                    let stretch = call.visible.stretch(index);
                    let head = Head {
                        batch: b,
                        kv_head: h / call.group,
                        stretch: &stretch,
                    };
                    let mut first = stretch.queries.start.max(part.queries.start);
                    let end = stretch.queries.end.min(part.queries.end);
                    while first < end {
                        let queries = first..(first + FEWER_QUERIES).min(end);
                        first = queries.end;
                        scratch.take_rows(call, head, h..h + 1, queries);
                        block(call, head, scratch, part, weigh, data);
                    }
                }
            }
        }
    });
    result
}

/// One block of queries of one head.
fn block<T: Float>(
    call: &Call<'_, T>,
    head: Head<'_>,
    scratch: &mut Scratch<T>,
    part: &Part,
    weigh: bool,
    data: &mut [T],
) {
    if weigh {
        scratch.run(call, head, None, false, &mut Ahead::default());
    }
    let seen = scratch.seen();
    let begin = head.stretch.keys.start;
    let wanted = |key: usize| key.clamp(begin, head.stretch.keys.end) - begin;
    let keys = wanted(part.keys.start).max(seen.start)..wanted(part.keys.end).min(seen.end);
    let [_, heads, queries, row_len] = part.shape();
    scratch.each_row(call, head, keys, weigh, |row, first, x| {
        let at = (head.batch - part.batch.start) * heads + row.head - part.heads.start;
        let at = (at * queries + row.query - part.queries.start) * row_len;
        let from = begin + first - part.keys.start;
        for (to, &x) in data[at + from..].iter_mut().zip(x) {
            *to = T::narrow(x);
        }
    });
}
