//! Which keys a query may see: masks, causality, windows, lengths, documents.
//!
//! All of them combine: a key is kept if every one keeps it.

use crate::error::{Error, Result};
use crate::view::View;

/// A boolean mask that says what `true` means.
///
/// Shape `[batch, heads, queries, keys]`; axes align to the right (a view of rank 3 is
/// `[heads, queries, keys]`) and an axis of length 1 serves all.
#[derive(Clone, Copy, Debug)]
pub struct Mask<'a> {
    view: View<'a, bool>,
    kept: bool,
}

impl<'a> Mask<'a> {
    /// `true` keeps a key: what PyTorch's `scaled_dot_product_attention`, JAX and ONNX mean.
    pub fn keep(view: View<'a, bool>) -> Self {
        Mask { view, kept: true }
    }

    /// `true` drops a key: what PyTorch's `nn.MultiheadAttention` means.
    pub fn drop(view: View<'a, bool>) -> Self {
        Mask { view, kept: false }
    }

    /// The view as given.
    pub fn view(&self) -> View<'a, bool> {
        self.view
    }

    /// Whether `true` keeps (or else drops).
    pub fn true_keeps(&self) -> bool {
        self.kept
    }

    /// `keep` or `drop`: the name of the argument in messages.
    pub fn name(&self) -> &'static str {
        if self.kept { "keep" } else { "drop" }
    }
}

/// A causal mask: query i keeps key j if j ≤ i + offset.
///
/// With as many keys as queries, and no key lengths, all alignments are the same. Otherwise they
/// differ and the caller names one; [`Causal::Square`] stays at offset 0 beside key lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Causal {
    /// Offset 0; an error unless there are as many keys as queries.
    Square,
    /// Offset 0: the first query sees the first key. PyTorch's `is_causal`, JAX, Keras.
    TopLeft,
    /// Offset L_k − L_q, or length − L_q where a batch entry has a length, or keys − queries of
    /// each document: the last query sees the last key. FlashAttention ≥ 2.1, MLX, cached keys.
    BottomRight,
    /// This offset, for example the number of cached keys.
    Offset(i64),
}

/// A sliding window: query i keeps key j if −back ≤ j − (i + offset) ≤ forward.
///
/// Both ends are inclusive, so `back: Some(w - 1)` with a causal mask is "w keys, the own one
/// included". `None` leaves a side open. The offset is that of [`Causal`], or bottom-right's
/// where nothing is causal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Keys seen before the own position.
    pub back: Option<usize>,
    /// Keys seen after the own position.
    pub forward: Option<usize>,
}

/// How many keys each batch entry really has; the rest is padding and dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyLengths(pub Vec<usize>);

/// Several documents packed one after the other: a query sees the keys of its own only.
///
/// Positions, and with them causality, windows and ALiBi, start anew in each document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Documents {
    queries: Vec<usize>,
    keys: Vec<usize>,
}

impl Documents {
    /// Documents with as many keys as queries each. Zero is allowed.
    pub fn new(lengths: Vec<usize>) -> Self {
        Documents {
            queries: lengths.clone(),
            keys: lengths,
        }
    }

    /// Documents whose numbers of queries and of keys differ, for example one new query each
    /// against cached keys.
    ///
    /// # Errors
    /// [`Error::ListLength`] if one list is longer than the other.
    pub fn with_key_lengths(queries: Vec<usize>, keys: Vec<usize>) -> Result<Self> {
        if queries.len() != keys.len() {
            return Err(Error::ListLength {
                argument: "documents",
                found: keys.len(),
                expected: queries.len(),
                meaning: "one number of keys for each number of queries",
            });
        }
        Ok(Documents { queries, keys })
    }

    /// Number of queries of each document.
    pub fn queries(&self) -> &[usize] {
        &self.queries
    }

    /// Number of keys of each document.
    pub fn keys(&self) -> &[usize] {
        &self.keys
    }
}

/// What a row that keeps no key means to the caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EmptyRows {
    /// A zero row, zero weights, lse = −∞; the rows are listed in the result.
    #[default]
    Zero,
    /// An error that lists the rows.
    Error,
}
