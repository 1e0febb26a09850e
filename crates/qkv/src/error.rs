//! What can be wrong with a call, with the data to say so.

use std::fmt;

/// Result of everything in this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// A shape, shown as `[2, 3, 4, 5]`.
#[derive(Clone, PartialEq, Eq)]
pub struct Shape(pub Box<[usize]>);

impl From<&[usize]> for Shape {
    fn from(shape: &[usize]) -> Self {
        Shape(shape.into())
    }
}

impl<const N: usize> From<[usize; N]> for Shape {
    fn from(shape: [usize; N]) -> Self {
        Shape(shape.into())
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// `1 key`, `2 keys`.
pub(crate) fn many(count: usize, thing: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {thing}{plural}")
}

/// `1 axis`, `2 axes`.
fn axes(count: usize) -> String {
    if count == 1 {
        "1 axis".to_owned()
    } else {
        format!("{count} axes")
    }
}

/// Why a call was refused. Every message names the argument, the shapes and what to change.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The shape asks for another number of elements than the data holds.
    #[error(
        "{argument}: shape {shape} needs {needed} element{}, but the data holds {found}; \
         give the shape that the data has", if needed == "1" { "" } else { "s" }
    )]
    Count {
        /// Which argument.
        argument: &'static str,
        /// The shape asked for.
        shape: Shape,
        /// Elements that the shape needs, or `"more than memory can address"`.
        needed: String,
        /// Elements in the data.
        found: usize,
    },
    /// A strided view reaches outside its data.
    #[error(
        "{argument}: a view of shape {shape} with strides {strides:?} from element {offset} \
         reaches element {reach}, but the data holds {}; give an offset and strides, \
         in elements, that stay inside", many(*found, "element")
    )]
    OutOfBounds {
        /// Which argument.
        argument: &'static str,
        /// The view's shape.
        shape: Shape,
        /// The view's strides, in elements.
        strides: Vec<isize>,
        /// Where the view starts, in elements.
        offset: usize,
        /// The element farthest out of bounds that the view would touch.
        reach: i64,
        /// Elements in the data.
        found: usize,
    },
    /// A view to be written names an element twice.
    #[error(
        "{argument}: a view of shape {shape} with strides {strides:?} names an element twice, so \
         it cannot be written; give strides that step over what the smaller ones reach"
    )]
    Overlap {
        /// Which argument.
        argument: &'static str,
        /// The view's shape.
        shape: Shape,
        /// The view's strides, in elements.
        strides: Vec<isize>,
    },
    /// An argument has a number of axes that it may not have.
    #[error("{argument}: shape {shape} has {}; {expected}", axes(shape.0.len()))]
    Rank {
        /// Which argument.
        argument: &'static str,
        /// Its shape.
        shape: Shape,
        /// What is expected, as a sentence part.
        expected: &'static str,
    },
    /// Two arguments disagree about an axis.
    #[error(
        "{left} has {axis} {left_size} (shape {left_shape}), but {right} has {right_size} \
         (shape {right_shape}); {remedy}"
    )]
    Mismatch {
        /// The axis in words, for example `head_dim`.
        axis: &'static str,
        /// The one argument.
        left: &'static str,
        /// Its size on the axis.
        left_size: usize,
        /// Its shape.
        left_shape: Shape,
        /// The other argument.
        right: &'static str,
        /// Its size on the axis.
        right_size: usize,
        /// Its shape.
        right_shape: Shape,
        /// What to change.
        remedy: &'static str,
    },
    /// Query heads cannot be shared out evenly over key and value heads.
    #[error(
        "{} cannot be shared out over {} (q has shape {q}, k has shape {k}); the first must be a \
         multiple of the second",
        many(*heads, "query head"), many(*kv_heads, "key and value head")
    )]
    Groups {
        /// Query heads.
        heads: usize,
        /// Key and value heads.
        kv_heads: usize,
        /// Shape of q.
        q: Shape,
        /// Shape of k.
        k: Shape,
    },
    /// A mask or bias does not fit the scores.
    #[error(
        "{argument}: shape {shape} does not fit the scores, [batch, heads, queries, keys] = \
         {scores}; axes align to the right and each must be equal or 1{hint}"
    )]
    Broadcast {
        /// Which argument.
        argument: &'static str,
        /// Its shape.
        shape: Shape,
        /// Shape of the scores.
        scores: Shape,
        /// The probable cause, empty or starting with `; `.
        hint: String,
    },
    /// A list has another length than the axis it belongs to.
    #[error("{argument}: {} given, but {expected} needed: {meaning}", many(*found, "value"))]
    ListLength {
        /// Which argument.
        argument: &'static str,
        /// Values given.
        found: usize,
        /// Values needed.
        expected: usize,
        /// What one value stands for.
        meaning: &'static str,
    },
    /// An option has a value that means nothing.
    #[error("{option}: {value} is not possible; {remedy}")]
    Option {
        /// The option's name.
        option: &'static str,
        /// The value given.
        value: String,
        /// What to change.
        remedy: &'static str,
    },
    /// `causal` without an alignment, but the numbers of queries and keys differ.
    #[error(
        "causal: for {} against {}{place} there are two causal masks; name one: \
         top-left (query i sees keys 0 to i), bottom-right (the last query sees the last key; \
         right when earlier keys are cached), or an offset N (query i sees keys 0 to i + N)",
        if *queries == 1 { "1 query".to_owned() } else { format!("{queries} queries") },
        many(*keys, "key")
    )]
    CausalAlignment {
        /// Number of queries.
        queries: usize,
        /// Number of keys.
        keys: usize,
        /// Where, for example ` in document 2`; empty for the whole call.
        place: String,
    },
    /// Rows without a key where the caller asked for an error.
    #[error(
        "{} of {} no key, the first is [batch, head, query] = {first:?}; \
         loosen the mask or allow empty rows (they give a zero row)", empty.len(),
        if *rows == 1 { "1 row keeps".to_owned() } else { format!("{rows} rows keep") }
    )]
    EmptyRows {
        /// Rows in all.
        rows: usize,
        /// The first of the empty ones.
        first: [usize; 3],
        /// All empty rows as `[batch, head, query]`.
        empty: Vec<[usize; 3]>,
    },
}
