//! What to compute: the inputs and every option of attention.

use crate::error::{Error, Result, Shape, many};
use crate::mask::{Causal, Documents, EmptyRows, KeyLengths, Mask, Window};
use crate::view::{AnyView, Element, View, element_count};

/// The factor on q·k.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Scale {
    /// 1/√head_dim of the queries.
    #[default]
    InverseSqrt,
    /// Any finite number. The fast path refuses one that the type it computes in does not hold: half
    /// and single precision are computed in `f32`, which holds 0 and sizes from 1.2e-38 to 2.3e38.
    Factor(f64),
}

impl Scale {
    /// The factor for a head width.
    pub fn factor(self, head_dim: usize) -> f64 {
        match self {
            Scale::InverseSqrt => 1.0 / (head_dim as f64).sqrt(),
            Scale::Factor(factor) => factor,
        }
    }
}

/// Numbers added to the scores, after scale and softcap: an additive mask, or a learned bias.
///
/// Shape `[batch, heads, queries, keys]`, aligned to the right, axes of length 1 serve all. A bias
/// is arithmetic: only −∞ drops a key (as [`Mask::drop`] does), a finite number never does.
#[derive(Clone, Copy, Debug)]
pub struct Bias<'a>(pub AnyView<'a>);

impl Bias<'_> {
    /// Whether a number in it is −∞.
    pub(crate) fn drops_keys(&self) -> bool {
        let [batch, heads, queries, keys] = self.0.shape();
        (0..batch).any(|b| {
            (0..heads).any(|h| {
                (0..queries)
                    .any(|i| (0..keys).any(|j| self.0.get([b, h, i, j]) == f64::NEG_INFINITY))
            })
        })
    }
}

/// Attention with linear biases: adds −slope·|i + offset − j|, one slope a head.
#[derive(Clone, Debug, PartialEq)]
pub struct Alibi {
    /// One slope a query head.
    pub slopes: Vec<f64>,
}

/// One logit a query head that joins the softmax's denominator only: weights then sum to less
/// than one. It is neither scaled nor capped, and lse does not include it.
#[derive(Clone, Debug, PartialEq)]
pub struct Sinks(pub Vec<f64>);

/// Drops weights at random and multiplies those left by 1/(1−p).
///
/// Which ones is a function of (seed, batch, head, query position, key position) alone, so that
/// the backward pass, or anybody else, can compute it again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    /// The share dropped, 0 ≤ p < 1.
    pub p: f64,
    /// The seed.
    pub seed: u64,
}

/// Every option of attention. The default is plain `softmax(q·kᵀ/√d_k)·v`.
///
/// The order is: s = scale·q·k → `softcap·tanh(s/softcap)` → + `bias`, + ALiBi → masks, `causal`,
/// `window`, `lengths`, `documents` → softmax over the kept keys, sinks in the denominator →
/// `dropout` → weighted sum of v.
///
/// ```
/// use qkv::{Attention, Causal, Inputs, View, definition};
/// let (q, k) = ([0.0; 2], [0.0; 5]);
/// let v = [1.0, 2.0, 3.0, 4.0, 5.0];
/// let inputs = Inputs::new(
///     View::new(&q, &[2, 1])?,
///     View::new(&k, &[5, 1])?,
///     View::new(&v, &[5, 1])?,
/// )?;
/// let attention = Attention {
///     causal: Some(Causal::BottomRight),
///     ..Attention::default()
/// };
/// let result = definition::forward(&attention, &inputs)?;
/// assert_eq!(result.output.data(), [2.5, 3.0]);
/// # Ok::<(), qkv::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Attention<'a> {
    /// The factor on q·k; 1/√head_dim if left out.
    pub scale: Scale,
    /// c in c·tanh(s/c), a finite number above 0.
    pub softcap: Option<f64>,
    /// Added to the scores.
    pub bias: Option<Bias<'a>>,
    /// Linear biases by distance.
    pub alibi: Option<Alibi>,
    /// Boolean masks, any number of them.
    pub masks: Vec<Mask<'a>>,
    /// A causal mask, with its alignment.
    pub causal: Option<Causal>,
    /// A sliding window.
    pub window: Option<Window>,
    /// Number of real keys of each batch entry.
    pub lengths: Option<KeyLengths>,
    /// Packed documents.
    pub documents: Option<Documents>,
    /// One extra logit a head in the denominator.
    pub sinks: Option<Sinks>,
    /// Dropout on the weights.
    pub dropout: Option<Dropout>,
    /// Whether rows without a key are zero or an error.
    pub empty_rows: EmptyRows,
}

/// Queries, keys and values whose shapes fit each other.
///
/// q `[batch, heads, queries, head_dim]`, k `[batch, kv_heads, keys, head_dim]`,
/// v `[batch, kv_heads, keys, value_dim]`. `heads` is a multiple of `kv_heads`; query head h uses
/// key and value head ⌊h / (heads/kv_heads)⌋.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a, T> {
    q: View<'a, T>,
    k: View<'a, T>,
    v: View<'a, T>,
    past: Option<(View<'a, T>, View<'a, T>)>,
}

impl<'a, T: Element> Inputs<'a, T> {
    /// Checks that the three fit.
    ///
    /// # Errors
    /// [`Error::Mismatch`] names the two arguments and the axis, [`Error::Groups`] head counts
    /// that do not divide, [`Error::Option`] a head_dim of 0.
    #[inline]
    pub fn new(q: View<'a, T>, k: View<'a, T>, v: View<'a, T>) -> Result<Self> {
        // Small calls are many: the usual case is decided here, what is wrong out of line.
        let [batch, heads, queries, head_dim] = q.shape();
        let [b, kv_heads, keys, width] = k.shape();
        let [v_batch, v_heads, v_keys, v_width] = v.shape();
        let usual = batch == b
            && b == v_batch
            && kv_heads == v_heads
            && keys == v_keys
            && heads == kv_heads
            && head_dim == width
            && head_dim > 0;
        if !usual {
            // Not `q.shape()`, which the compiler would keep in memory for this.
            let q = [batch, heads, queries, head_dim];
            let k = [b, kv_heads, keys, width];
            let v = [v_batch, v_heads, v_keys, v_width];
            check_shapes(q, k, v).map_err(|error| *error)?;
        }
        Ok(Inputs {
            q,
            k,
            v,
            past: None,
        })
    }

    /// Puts cached keys and values in front of k and v.
    ///
    /// # Errors
    /// [`Error::Mismatch`] where they do not fit.
    pub fn with_past(mut self, k: View<'a, T>, v: View<'a, T>) -> Result<Self> {
        let (own_k, own_v) = (self.k.shape(), self.v.shape());
        agree("past k", k.shape(), "k", own_k, 0, "batch", BATCH)?;
        agree("past k", k.shape(), "k", own_k, 1, "heads", KV_HEADS)?;
        agree("past k", k.shape(), "k", own_k, 3, "head_dim", HEAD_DIM)?;
        agree("past v", v.shape(), "v", own_v, 0, "batch", BATCH)?;
        agree("past v", v.shape(), "v", own_v, 1, "heads", KV_HEADS)?;
        agree("past v", v.shape(), "v", own_v, 3, "value_dim", VALUE_DIM)?;
        agree("past k", k.shape(), "past v", v.shape(), 2, "keys", KEYS)?;
        if k.shape()[2].checked_add(own_k[2]).is_none() {
            return Err(too_large("past k", k.shape()));
        }
        self.past = Some((k, v));
        Ok(self)
    }

    /// Queries, new keys and new values where they are.
    pub(crate) fn views(&self) -> [&View<'a, T>; 3] {
        [&self.q, &self.k, &self.v]
    }

    /// The queries, `[batch, heads, queries, head_dim]`.
    pub fn q(&self) -> View<'a, T> {
        self.q
    }

    /// The new keys, `[batch, kv_heads, keys, head_dim]`.
    pub fn k(&self) -> View<'a, T> {
        self.k
    }

    /// The new values, `[batch, kv_heads, keys, value_dim]`.
    pub fn v(&self) -> View<'a, T> {
        self.v
    }

    /// Cached keys and values that come before the new ones.
    pub fn past(&self) -> Option<(View<'a, T>, View<'a, T>)> {
        self.past
    }

    /// Number of cached keys.
    pub fn past_len(&self) -> usize {
        self.past.map_or(0, |(k, _)| k.shape()[2])
    }

    /// Batch entries.
    pub fn batch(&self) -> usize {
        self.q.shape()[0]
    }

    /// Query heads.
    pub fn heads(&self) -> usize {
        self.q.shape()[1]
    }

    /// Key and value heads.
    pub fn kv_heads(&self) -> usize {
        self.k.shape()[1]
    }

    /// Queries, L_q.
    pub fn queries(&self) -> usize {
        self.q.shape()[2]
    }

    /// Keys, L_k, the cached ones included.
    pub fn keys(&self) -> usize {
        self.past_len() + self.k.shape()[2]
    }

    /// Width of queries and keys, d_k.
    pub fn head_dim(&self) -> usize {
        self.q.shape()[3]
    }

    /// Width of values, d_v.
    pub fn value_dim(&self) -> usize {
        self.v.shape()[3]
    }

    /// The key and value head that a query head uses.
    pub fn kv_head(&self, head: usize) -> usize {
        let group = self.heads().checked_div(self.kv_heads()).unwrap_or(1);
        head / group.max(1)
    }

    /// Shape of the scores, `[batch, heads, queries, keys]`.
    pub fn scores_shape(&self) -> [usize; 4] {
        [self.batch(), self.heads(), self.queries(), self.keys()]
    }
}

const BATCH: &str = "both need the same number of batch entries";
const HEAD_DIM: &str = "a query and a key are multiplied column by column; check for a transposed \
                        array or heads that are not split";
const VALUE_DIM: &str = "cached and new values need the same width";
const KV_HEADS: &str = "keys and values come in the same number of heads";
const KEYS: &str = "each key needs its value";

/// What [`Inputs::new`] refuses, out of line, and boxed, as the errors of [`View::new`].
#[cold]
fn check_shapes(
    q: [usize; 4],
    k: [usize; 4],
    v: [usize; 4],
) -> std::result::Result<(), Box<Error>> {
    agree("q", q, "k", k, 0, "batch", BATCH)?;
    agree("q", q, "k", k, 3, "head_dim", HEAD_DIM)?;
    agree("k", k, "v", v, 0, "batch", BATCH)?;
    agree("k", k, "v", v, 1, "heads", KV_HEADS)?;
    agree("k", k, "v", v, 2, "keys", KEYS)?;
    let (heads, kv_heads) = (q[1], k[1]);
    if heads.checked_rem(kv_heads).unwrap_or(heads) != 0 {
        return Err(Box::new(Error::Groups {
            heads,
            kv_heads,
            q: q.into(),
            k: k.into(),
        }));
    }
    if q[3] == 0 {
        return Err(Box::new(Error::Option {
            option: "head_dim",
            value: "0".into(),
            remedy: "queries and keys need at least one column",
        }));
    }
    Ok(())
}

fn agree(
    left: &'static str,
    left_shape: [usize; 4],
    right: &'static str,
    right_shape: [usize; 4],
    at: usize,
    axis: &'static str,
    remedy: &'static str,
) -> Result<()> {
    if left_shape[at] == right_shape[at] {
        return Ok(());
    }
    Err(Error::Mismatch {
        axis,
        left,
        left_size: left_shape[at],
        left_shape: left_shape.into(),
        right,
        right_size: right_shape[at],
        right_shape: right_shape.into(),
        remedy,
    })
}

impl Attention<'_> {
    /// Checks every option against the inputs: what each computation does first.
    ///
    /// # Errors
    /// [`Error::Option`], [`Error::Broadcast`], [`Error::ListLength`] or
    /// [`Error::CausalAlignment`].
    pub fn check<T: Element>(&self, inputs: &Inputs<'_, T>) -> Result<()> {
        self.check_values()?;
        check_sizes(inputs)?;
        let scores = inputs.scores_shape();
        for mask in &self.masks {
            fits(
                mask.name(),
                mask.view().broadcast(scores).is_some(),
                mask.view().shape(),
                inputs,
            )?;
        }
        if let Some(Bias(bias)) = self.bias {
            fits(
                "bias",
                bias.broadcast(scores).is_some(),
                bias.shape(),
                inputs,
            )?;
        }
        if let Some(alibi) = &self.alibi {
            per_head("alibi", alibi.slopes.len(), inputs.heads())?;
        }
        if let Some(Sinks(sinks)) = &self.sinks {
            per_head("sinks", sinks.len(), inputs.heads())?;
        }
        if let Some(KeyLengths(lengths)) = &self.lengths {
            check_lengths(lengths, inputs.batch(), inputs.keys())?;
        }
        if let Some(documents) = &self.documents {
            covers(
                "documents",
                documents.queries(),
                inputs.queries(),
                "queries",
            )?;
            covers("documents", documents.keys(), inputs.keys(), "keys")?;
        }
        self.check_square(inputs)
    }

    /// Whether this is softmax(scale·q·kᵀ)·v and no more.
    pub(crate) fn is_plain(&self) -> bool {
        self.softcap.is_none()
            && self.bias.is_none()
            && self.alibi.is_none()
            && self.masks.is_empty()
            && self.causal.is_none()
            && self.window.is_none()
            && self.lengths.is_none()
            && self.documents.is_none()
            && self.sinks.is_none()
            && self.dropout.is_none()
    }

    fn check_values(&self) -> Result<()> {
        if let Scale::Factor(factor) = self.scale {
            possible("scale", factor, factor.is_finite(), "give a finite number")?;
        }
        if let Some(cap) = self.softcap {
            let remedy = "give a finite number above 0, or leave softcap out";
            possible("softcap", cap, cap.is_finite() && cap > 0.0, remedy)?;
        }
        if let Some(alibi) = &self.alibi {
            for &slope in &alibi.slopes {
                possible("alibi", slope, slope.is_finite(), "give finite slopes")?;
            }
        }
        if let Some(dropout) = self.dropout {
            let remedy = "give a share from 0 up to, not including, 1";
            possible(
                "dropout",
                dropout.p,
                (0.0..1.0).contains(&dropout.p),
                remedy,
            )?;
        }
        Ok(())
    }

    /// A bare causal mask has one meaning only where there are as many keys as queries.
    fn check_square<T: Element>(&self, inputs: &Inputs<'_, T>) -> Result<()> {
        if self.causal != Some(Causal::Square) {
            return Ok(());
        }
        let unequal = |queries, keys, place| Error::CausalAlignment {
            queries,
            keys,
            place,
        };
        if let Some(documents) = &self.documents {
            let pairs = documents.queries().iter().zip(documents.keys());
            for (index, (&queries, &keys)) in pairs.enumerate() {
                if queries != keys {
                    return Err(unequal(queries, keys, format!(" in document {index}")));
                }
            }
        } else if inputs.queries() != inputs.keys() {
            let place = match inputs.past_len() {
                0 => String::new(),
                past => format!(" ({past} of them cached)"),
            };
            return Err(unequal(inputs.queries(), inputs.keys(), place));
        }
        Ok(())
    }
}

/// Views that repeat their data may have any shape: what is computed from them must still fit.
fn check_sizes<T: Element>(inputs: &Inputs<'_, T>) -> Result<()> {
    let [batch, heads, queries, keys] = inputs.scores_shape();
    let (kv_heads, head_dim, value_dim) =
        (inputs.kv_heads(), inputs.head_dim(), inputs.value_dim());
    // Small calls are many: no product of four has more bits than its factors together.
    let bits = |sizes: [usize; 4]| -> u32 {
        let of = |size: usize| usize::BITS - size.leading_zeros();
        sizes.into_iter().map(of).sum()
    };
    let widest = queries.max(keys).max(head_dim).max(value_dim);
    if bits([batch, heads.max(kv_heads), widest, widest]) < isize::BITS - 3 {
        return Ok(());
    }
    for (what, shape) in [
        ("scores", [batch, heads, queries, keys]),
        ("output", [batch, heads, queries, value_dim]),
        ("q", [batch, heads, queries, head_dim]),
        ("k", [batch, kv_heads, keys, head_dim]),
        ("v", [batch, kv_heads, keys, value_dim]),
    ] {
        let most = isize::MAX as usize / size_of::<f64>();
        if element_count(&shape).is_none_or(|count| count > most) {
            return Err(too_large(what, shape));
        }
    }
    Ok(())
}

fn too_large(what: &'static str, shape: [usize; 4]) -> Error {
    Error::Option {
        option: what,
        value: format!("shape {}", Shape::from(shape)),
        remedy: "it has more elements than memory can address; give shorter axes",
    }
}

fn possible(option: &'static str, value: f64, good: bool, remedy: &'static str) -> Result<()> {
    if good {
        return Ok(());
    }
    Err(Error::Option {
        option,
        value: value.to_string(),
        remedy,
    })
}

fn per_head(argument: &'static str, found: usize, heads: usize) -> Result<()> {
    if found == heads {
        return Ok(());
    }
    Err(Error::ListLength {
        argument,
        found,
        expected: heads,
        meaning: "one for each query head",
    })
}

fn check_lengths(lengths: &[usize], batch: usize, keys: usize) -> Result<()> {
    if lengths.len() != batch {
        return Err(Error::ListLength {
            argument: "lengths",
            found: lengths.len(),
            expected: batch,
            meaning: "one for each batch entry",
        });
    }
    match lengths.iter().find(|&&length| length > keys) {
        None => Ok(()),
        Some(length) => Err(Error::Option {
            option: "lengths",
            value: format!("{length} (k has {})", many(keys, "key")),
            remedy: "a batch entry cannot have more keys than k has rows",
        }),
    }
}

/// The documents' lengths must add up to the axis they share out.
fn covers(
    argument: &'static str,
    lengths: &[usize],
    axis: usize,
    what: &'static str,
) -> Result<()> {
    let sum = lengths
        .iter()
        .try_fold(0usize, |sum, &length| sum.checked_add(length));
    if sum == Some(axis) {
        return Ok(());
    }
    let sum = sum.map_or("too many".into(), |sum| sum.to_string());
    Err(Error::Option {
        option: argument,
        value: format!("{lengths:?} ({sum} {what} in all, but there are {axis})"),
        remedy: "the lengths must add up to the number of queries and of keys",
    })
}

fn fits<T: Element>(
    argument: &'static str,
    good: bool,
    shape: [usize; 4],
    inputs: &Inputs<'_, T>,
) -> Result<()> {
    if good {
        return Ok(());
    }
    let scores = inputs.scores_shape();
    let past = inputs.past_len();
    let hint = if past > 0 && shape[3] != 1 && shape[3] == inputs.k().shape()[2] {
        format!(
            "; it has a column for each of the {} new keys, but {past} cached keys come first: \
             add a column for each of them",
            shape[3]
        )
    } else if shape[2] == scores[3] && shape[3] == scores[2] && shape[2] != shape[3] {
        "; it looks transposed: rows are queries, columns are keys".into()
    } else {
        String::new()
    };
    Err(Error::Broadcast {
        argument,
        shape: Shape::from(shape),
        scores: Shape::from(scores),
        hint,
    })
}
