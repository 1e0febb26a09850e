//! Queries, keys, values and options of a call, owned so that a thread can take them along.

use crate::arguments::{Given, Options, f64s, swapped};
use crate::array::{Array, Home, Item, Kind};
use crate::cache::{Cached, Slot};
use crate::error::{bad_value, type_error};
use pyo3::prelude::*;
use qkv::{Float, Inputs, Tensor, ViewMut};

/// A number that attention reads and writes, here and in memory of others.
pub trait Number: Float + Item + Slot {}
impl<T: Float + Item + Slot> Number for T {}

/// A call.
pub struct Problem {
    pub q: Array,
    pub keys: Keys,
    pub options: Options,
    /// Whether lengths come before heads in arrays of the caller's.
    pub swapped: bool,
}

/// Keys and values.
pub enum Keys {
    Given { k: Array, v: Array },
    Cached(Cached),
}

impl Keys {
    /// Sizes of the keys, heads first.
    fn k_sizes(&self) -> [usize; 4] {
        match self {
            Keys::Given { k, .. } => k.sizes(),
            Keys::Cached(cached) => cached.sizes(cached.head_dim),
        }
    }

    /// Sizes of the values, heads first.
    fn v_sizes(&self) -> [usize; 4] {
        match self {
            Keys::Given { v, .. } => v.sizes(),
            Keys::Cached(cached) => cached.sizes(cached.value_dim),
        }
    }
}

/// q, k or v, or something of their axes, heads first.
///
/// # Errors
/// `TypeError` for truth values, `ValueError` for fewer than two axes.
pub fn operand(argument: &str, value: &Bound<'_, PyAny>, swapped: bool) -> PyResult<Array> {
    let array = Array::new(argument, value)?;
    if array.kind() == Kind::Bool {
        return Err(Kind::refused(argument, "bool"));
    }
    if array.rank() < 2 {
        return Err(bad_value(
            argument,
            format!("shape {:?}", array.shape()),
            "give 2 axes [length, head_dim], 3 with heads, or 4 with batch and heads",
        ));
    }
    Ok(array.heads_first(swapped))
}

/// Refuses another dtype than q's.
///
/// # Errors
/// `TypeError`.
pub fn same_kind(argument: &str, array: &Array, q: &Array) -> PyResult<()> {
    if array.kind() == q.kind() {
        return Ok(());
    }
    Err(type_error(
        argument,
        format!(
            "dtype {}, but q has {}",
            array.kind().name(),
            q.kind().name()
        ),
        "convert one of them",
    ))
}

impl Problem {
    /// # Errors
    /// `TypeError` and `ValueError` for arrays and options that cannot be read. Whether they fit
    /// each other is found by the engine.
    pub fn new(
        [q, k, v]: [&Bound<'_, PyAny>; 3],
        given: &Given<'_>,
        layout: &str,
    ) -> PyResult<Problem> {
        let swapped = swapped(layout)?;
        let q = operand("q", q, swapped)?;
        let k = operand("k", k, swapped)?;
        let v = operand("v", v, swapped)?;
        same_kind("k", &k, &q)?;
        same_kind("v", &v, &q)?;
        let options = Options::new(given, q.sizes()[1])?;
        Ok(Problem {
            q,
            keys: Keys::Given { k, v },
            options,
            swapped,
        })
    }

    /// Queries against a cache.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn cached(
        q: &Bound<'_, PyAny>,
        cached: Cached,
        given: &Given<'_>,
        layout: &str,
    ) -> PyResult<Problem> {
        let swapped = swapped(layout)?;
        let q = operand("q", q, swapped)?;
        if q.kind() != cached.kind {
            return Err(type_error(
                "q",
                format!(
                    "dtype {}, but the cache has {}",
                    q.kind().name(),
                    cached.kind.name()
                ),
                "convert it, or make a cache of its dtype",
            ));
        }
        let options = Options::new(given, q.sizes()[1])?;
        Ok(Problem {
            q,
            keys: Keys::Cached(cached),
            options,
            swapped,
        })
    }

    /// Does something with the inputs.
    ///
    /// # Errors
    /// Those of [`Inputs::new`] and of what is done.
    pub fn with_inputs<T: Number, R>(
        &self,
        work: impl FnOnce(Inputs<'_, T>) -> qkv::Result<R>,
    ) -> qkv::Result<R> {
        let q = self.q.view()?;
        match &self.keys {
            Keys::Given { k, v } => work(Inputs::new(q, k.view()?, v.view()?)?),
            Keys::Cached(cached) => cached.read::<T, R>(|cache| work(cache.inputs(q)?)),
        }
    }

    /// q, k and v in `f64`, heads first.
    ///
    /// # Errors
    /// Those of [`Inputs::new`] where keys are cached, which have no tensors of their own.
    pub fn tensors(&self) -> qkv::Result<[Tensor<f64>; 3]> {
        let widened = |array: &Array| Tensor::new(&array.sizes(), f64s(array)?);
        match &self.keys {
            Keys::Given { k, v } => Ok([widened(&self.q)?, widened(k)?, widened(v)?]),
            Keys::Cached(_) => Err(qkv::Error::Option {
                option: "k",
                value: "a cache".into(),
                remedy: "give arrays",
            }),
        }
    }

    /// Floating-point operations, about.
    pub fn flops(&self) -> f64 {
        let [batch, heads, queries, head_dim] = self.q.sizes().map(|size| size as f64);
        let [_, _, keys, value_dim] = self.keys.v_sizes().map(|size| size as f64);
        2.0 * batch * heads * queries * keys * (head_dim + value_dim)
    }

    /// Shape of the output, heads first.
    pub fn output_sizes(&self) -> [usize; 4] {
        let [batch, heads, queries, _] = self.q.sizes();
        [batch, heads, queries, self.keys.v_sizes()[3]]
    }

    /// Shape of the weights.
    pub fn weights_sizes(&self) -> [usize; 4] {
        let [batch, heads, queries, _] = self.q.sizes();
        [batch, heads, queries, self.keys.k_sizes()[2]]
    }

    /// Axes of results.
    pub fn rank(&self) -> usize {
        self.q.rank()
    }

    /// Axes of q, k and v.
    pub fn ranks(&self) -> [usize; 3] {
        match &self.keys {
            Keys::Given { k, v } => [self.q.rank(), k.rank(), v.rank()],
            Keys::Cached(_) => [self.q.rank(), 4, 4],
        }
    }

    /// The library that results go to.
    pub fn home(&self) -> Home {
        self.q.home
    }

    /// The arrays by name.
    pub fn arrays(&self) -> Vec<(&'static str, &Array)> {
        let mut arrays = vec![("q", &self.q)];
        if let Keys::Given { k, v } = &self.keys {
            arrays.extend([("k", k), ("v", v)]);
        }
        arrays.extend(self.options.arrays());
        arrays
    }

    /// Sizes of q, k and v, heads first.
    pub fn sizes(&self) -> [[usize; 4]; 3] {
        [self.q.sizes(), self.keys.k_sizes(), self.keys.v_sizes()]
    }
}

/// Sizes, heads first, as an array of so many axes in the caller's layout.
pub fn laid_out(
    [batch, heads, length, width]: [usize; 4],
    swapped: bool,
    rank: usize,
) -> Vec<usize> {
    let all = if swapped && rank > 2 {
        [batch, length, heads, width]
    } else {
        [batch, heads, length, width]
    };
    all[4 - rank..].to_vec()
}

/// Memory of that shape, seen heads first.
///
/// # Errors
/// None where the data has as many numbers.
pub fn laid_out_mut<T: Copy>(
    data: &mut [T],
    sizes: [usize; 4],
    swapped: bool,
) -> qkv::Result<ViewMut<'_, T>> {
    let view = ViewMut::new(data, &laid_out(sizes, swapped, 4))?;
    Ok(if swapped { view.swap_axes(1, 2) } else { view })
}

/// The same for lse, which has no width.
pub fn rows_laid_out([batch, heads, length, _]: [usize; 4], rank: usize) -> Vec<usize> {
    [batch, heads, length][4 - rank..].to_vec()
}

/// Does something with the type of a dtype.
macro_rules! by_kind {
    ($kind:expr, $type:ident => $body:expr) => {
        match $kind {
            $crate::array::Kind::F16 => {
                type $type = half::f16;
                $body
            }
            $crate::array::Kind::Bf16 => {
                type $type = half::bf16;
                $body
            }
            $crate::array::Kind::F32 => {
                type $type = f32;
                $body
            }
            // Truth values were refused.
            $crate::array::Kind::F64 | $crate::array::Kind::Bool => {
                type $type = f64;
                $body
            }
        }
    };
}
pub(crate) use by_kind;
