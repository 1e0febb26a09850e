//! `qkv.Cache`.

use crate::arguments::{Given, count, in_order, swapped};
use crate::array::{Home, Kind};
use crate::attention::{Wanted, whole};
use crate::error::{type_error, value_error};
use crate::problem::{Number, Problem, by_kind, operand};
use crate::results::hand_over;
use crate::room;
use half::{bf16, f16};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use std::sync::{Arc, PoisonError, RwLock, TryLockError};

/// A cache of some dtype.
#[derive(Clone, Debug)]
pub enum Any {
    F16(qkv::Cache<f16>),
    Bf16(qkv::Cache<bf16>),
    F32(qkv::Cache<f32>),
    F64(qkv::Cache<f64>),
}

/// A number that has a place in [`Any`].
pub trait Slot: qkv::Element {
    fn wrap(cache: qkv::Cache<Self>) -> Any;
    fn of(any: &Any) -> Option<&qkv::Cache<Self>>;
    fn of_mut(any: &mut Any) -> Option<&mut qkv::Cache<Self>>;
}

macro_rules! slots {
    ($($t:ty => $variant:ident),*) => {$(
        impl Slot for $t {
            fn wrap(cache: qkv::Cache<$t>) -> Any {
                Any::$variant(cache)
            }
            fn of(any: &Any) -> Option<&qkv::Cache<$t>> {
                match any {
                    Any::$variant(cache) => Some(cache),
                    _ => None,
                }
            }
            fn of_mut(any: &mut Any) -> Option<&mut qkv::Cache<$t>> {
                match any {
                    Any::$variant(cache) => Some(cache),
                    _ => None,
                }
            }
        }
    )*};
}
slots!(f16 => F16, bf16 => Bf16, f32 => F32, f64 => F64);

/// A cache as it is when a call begins.
pub struct Cached {
    cache: Arc<RwLock<Any>>,
    pub kind: Kind,
    batch: usize,
    kv_heads: usize,
    len: usize,
    pub head_dim: usize,
    pub value_dim: usize,
}

impl Cached {
    /// Sizes of the keys or the values.
    pub fn sizes(&self, width: usize) -> [usize; 4] {
        [self.batch, self.kv_heads, self.len, width]
    }

    /// Reads it; nobody appends meanwhile.
    ///
    /// # Errors
    /// Those of the work.
    pub fn read<T: Slot, R>(
        &self,
        work: impl FnOnce(&qkv::Cache<T>) -> qkv::Result<R>,
    ) -> qkv::Result<R> {
        let any = self.cache.read().unwrap_or_else(PoisonError::into_inner);
        match T::of(&any) {
            Some(cache) => work(cache),
            None => Err(qkv::Error::Option {
                option: "q",
                value: self.kind.name().into(),
                remedy: "the cache has another dtype",
            }),
        }
    }
}

/// Keys and values that grow in place, a token or many at a time.
///
/// Keys are [batch, kv_heads, len, head_dim], values [batch, kv_heads, len, value_dim]. Appending
/// copies the new tokens only. A step of decoding has the same bits as the row of a full run.
///
/// Parameters
/// ----------
/// batch, kv_heads, head_dim : int
/// value_dim : int
///     head_dim if left out.
/// dtype : str or dtype
///     "float16", "bfloat16", "float32" or "float64", or a dtype of NumPy or torch of that name.
///
/// Examples
/// --------
/// >>> import numpy, qkv
/// >>> cache = qkv.Cache(1, 2, 4)
/// >>> token = numpy.ones((1, 2, 1, 4), numpy.float32)
/// >>> for _ in range(3):
/// ...     cache.append(token, 2 * token)
/// >>> len(cache), cache.attention(token)[0, 0].tolist()
/// (3, [[2.0, 2.0, 2.0, 2.0]])
#[pyclass(frozen, module = "qkv")]
pub struct Cache {
    cache: Arc<RwLock<Any>>,
    kind: Kind,
    sizes: [usize; 4],
}

#[pymethods]
impl Cache {
    #[new]
    #[pyo3(signature = (batch, kv_heads, head_dim, value_dim=None, *, dtype=None),
           text_signature = "(batch, kv_heads, head_dim, value_dim=None, *, dtype='float32')")]
    fn new(
        batch: &Bound<'_, PyAny>,
        kv_heads: &Bound<'_, PyAny>,
        head_dim: &Bound<'_, PyAny>,
        value_dim: Option<&Bound<'_, PyAny>>,
        dtype: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Cache> {
        let sizes = [
            count("batch", batch)?,
            count("kv_heads", kv_heads)?,
            count("head_dim", head_dim)?,
            count("value_dim", value_dim.unwrap_or(head_dim))?,
        ];
        let kind = dtype.map_or(Ok(Kind::F32), named)?;
        let [batch, kv_heads, head_dim, value_dim] = sizes;
        let cache = by_kind!(kind, T => <T as Slot>::wrap(qkv::Cache::new(
            batch, kv_heads, head_dim, value_dim,
        )));
        Ok(Cache {
            cache: Arc::new(RwLock::new(cache)),
            kind,
            sizes,
        })
    }

    /// Appends keys [batch, kv_heads, tokens, head_dim] and values [batch, kv_heads, tokens,
    /// value_dim] of any strides; where they do not fit, the cache stays as it was.
    #[pyo3(signature = (k, v, *, layout="bhld"))]
    fn append(&self, k: &Bound<'_, PyAny>, v: &Bound<'_, PyAny>, layout: &str) -> PyResult<()> {
        let swapped = swapped(layout)?;
        let (k, v) = (operand("k", k, swapped)?, operand("v", v, swapped)?);
        for (name, array) in [("k", &k), ("v", &v)] {
            if array.kind() != self.kind {
                return Err(type_error(
                    name,
                    format!(
                        "dtype {}, but the cache has {}",
                        array.kind().name(),
                        self.kind.name()
                    ),
                    "convert it, or make a cache of its dtype",
                ));
            }
        }
        let tokens = k.sizes()[2];
        by_kind!(self.kind, T => self.change::<T, _>(|cache| {
            let needed = cache.len().saturating_add(tokens);
            if needed > cache.capacity() {
                // It grows to twice what it was.
                self.room("append", needed.max(cache.capacity().saturating_mul(2)))?;
            }
            cache.append(k.view().map_err(value_error)?, v.view().map_err(value_error)?)
                .map_err(value_error)
        }))
    }

    /// Attention of queries [batch, heads, queries, head_dim] against everything in the cache, with
    /// the options of qkv.attention. The newest token sees all of them; with several new queries
    /// give causal="bottom-right".
    #[allow(clippy::too_many_arguments)] // the method that Python sees
    #[pyo3(signature = (q, *, layout="bhld", out=None, return_lse=false, return_weights=false, **options))]
    fn attention(
        &self,
        py: Python<'_>,
        q: &Bound<'_, PyAny>,
        layout: &str,
        out: Option<Bound<'_, PyAny>>,
        return_lse: bool,
        return_weights: bool,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Py<PyAny>> {
        let given = Given::take(options)?;
        let problem = Problem::cached(q, self.now(), &given, layout)?;
        let wanted = Wanted {
            lse: return_lse,
            weights: return_weights,
        };
        by_kind!(self.kind, T => whole::<T>(py, problem, out, wanted))
    }

    /// Forgets all but the first tokens, for example after rejected guesses. The room stays.
    fn truncate(&self, tokens: &Bound<'_, PyAny>) -> PyResult<()> {
        let tokens = count("tokens", tokens)?;
        by_kind!(self.kind, T => self.change::<T, _>(|cache| {
            cache.truncate(tokens);
            Ok(())
        }))
    }

    /// Makes room for so many tokens in all, so that appending up to there never moves any.
    fn reserve(&self, tokens: &Bound<'_, PyAny>) -> PyResult<()> {
        let tokens = count("tokens", tokens)?;
        by_kind!(self.kind, T => self.change::<T, _>(|cache| {
            if tokens > cache.capacity() {
                self.room("reserve", tokens)?;
            }
            cache.reserve(tokens);
            Ok(())
        }))
    }

    /// A cache of its own with the same tokens, for example to go on from here in two ways.
    fn copy(&self, py: Python<'_>) -> PyResult<Cache> {
        let capacity =
            by_kind!(self.kind, T => self.now().read::<T, _>(|cache| Ok(cache.capacity())));
        self.room("a copy of the cache", capacity.map_err(value_error)?)?;
        let copy = py.detach(|| {
            let any = self.cache.read().unwrap_or_else(PoisonError::into_inner);
            any.clone()
        });
        Ok(Cache {
            cache: Arc::new(RwLock::new(copy)),
            kind: self.kind,
            sizes: self.sizes,
        })
    }

    fn __copy__(&self, py: Python<'_>) -> PyResult<Cache> {
        self.copy(py)
    }

    fn __deepcopy__(&self, py: Python<'_>, _memo: &Bound<'_, PyAny>) -> PyResult<Cache> {
        self.copy(py)
    }

    fn __len__(&self) -> usize {
        self.now().len
    }

    /// A copy of the keys.
    #[getter]
    fn k(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        by_kind!(self.kind, T => self.numbers::<T>(py, false))
    }

    /// A copy of the values.
    #[getter]
    fn v(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        by_kind!(self.kind, T => self.numbers::<T>(py, true))
    }

    fn __repr__(&self) -> String {
        let [batch, kv_heads, head_dim, value_dim] = self.sizes;
        format!(
            "qkv.Cache({batch}, {kv_heads}, {head_dim}, {value_dim}, dtype='{}') with {} tokens",
            self.kind.name(),
            self.now().len
        )
    }
}

impl Cache {
    fn now(&self) -> Cached {
        let [batch, kv_heads, head_dim, value_dim] = self.sizes;
        let any = self.cache.read().unwrap_or_else(PoisonError::into_inner);
        let len = match &*any {
            Any::F16(cache) => cache.len(),
            Any::Bf16(cache) => cache.len(),
            Any::F32(cache) => cache.len(),
            Any::F64(cache) => cache.len(),
        };
        Cached {
            cache: self.cache.clone(),
            kind: self.kind,
            batch,
            kv_heads,
            len,
            head_dim,
            value_dim,
        }
    }

    fn change<T: Slot, R>(
        &self,
        change: impl FnOnce(&mut qkv::Cache<T>) -> PyResult<R>,
    ) -> PyResult<R> {
        // Waiting here would hold the interpreter, for which the reader may wait.
        let mut any = match self.cache.try_write() {
            Ok(any) => any,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                return Err(PyRuntimeError::new_err(
                    "the cache is being read by a call that has not ended; wait for it",
                ));
            }
        };
        match T::of_mut(&mut any) {
            Some(cache) => change(cache),
            None => Err(PyRuntimeError::new_err("the cache has another dtype")),
        }
    }

    /// Asks for the memory of so many tokens.
    fn room(&self, what: &str, tokens: usize) -> PyResult<()> {
        let [batch, kv_heads, head_dim, value_dim] = self.sizes.map(|size| size as f64);
        let bytes = self.kind.size() as f64 * (head_dim + value_dim);
        room::check(what, batch * kv_heads * bytes * tokens as f64)
    }

    fn numbers<T: Number>(&self, py: Python<'_>, values: bool) -> PyResult<Py<PyAny>> {
        let now = self.now();
        self.room("a copy of the cache", now.len)?;
        let numbers: Vec<T> = now
            .read::<T, _>(|cache| {
                let view = if values { cache.v()? } else { cache.k()? };
                Ok(in_order(view).collect())
            })
            .map_err(value_error)?;
        let width = if values { now.value_dim } else { now.head_dim };
        hand_over(py, Home::NumPy, &now.sizes(width), numbers)
    }
}

/// A dtype by name: a string, or what NumPy and torch call it.
fn named(dtype: &Bound<'_, PyAny>) -> PyResult<Kind> {
    let name = match dtype.cast::<PyString>() {
        Ok(name) => name.to_string_lossy().into_owned(),
        Err(_) => match dtype.getattr("__name__") {
            Ok(name) => name.extract()?,
            Err(_) => dtype.str()?.to_string_lossy().into_owned(),
        },
    };
    let short = name.rsplit('.').next().unwrap_or_default();
    Kind::ALL
        .into_iter()
        .find(|kind| *kind != Kind::Bool && kind.name() == short)
        .ok_or_else(|| {
            type_error(
                "dtype",
                format!("{name:?}"),
                "choose float16, bfloat16, float32 or float64",
            )
        })
}
