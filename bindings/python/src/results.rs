//! The engine's numbers as arrays of the caller's library, handed over without a copy.

#![allow(unsafe_code)]

use crate::array::{Home, Item, Kind};
use crate::dlpack;
use numpy::npyffi::{NPY_ARRAY_CARRAY, NpyTypes, PY_ARRAY_API, get_type_object, npy_intp};
use numpy::{PyArrayDescr, PyArrayDescrMethods};
use pyo3::exceptions::{PyImportError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyCapsule;
use std::ptr::null_mut;

/// An array of this shape over numbers in row-major order.
///
/// # Errors
/// `ImportError` where NumPy needs `ml_dtypes` for bfloat16 and does not find it.
pub fn hand_over<T: Item + Send + Sync + 'static>(
    py: Python<'_>,
    home: Home,
    shape: &[usize],
    data: Vec<T>,
) -> PyResult<Py<PyAny>> {
    if shape.iter().product::<usize>() != data.len() {
        return Err(PyRuntimeError::new_err(format!(
            "a result of {} numbers for shape {shape:?}; were arrays exchanged during the call?",
            data.len()
        )));
    }
    match home {
        Home::Library(table) => dlpack::give(py, table, T::KIND, shape, data),
        Home::NumPy => numpy_array(py, shape, data),
    }
}

fn numpy_array<T: Item + Send + Sync + 'static>(
    py: Python<'_>,
    shape: &[usize],
    mut data: Vec<T>,
) -> PyResult<Py<PyAny>> {
    let dtype = descr(py, T::KIND)?;
    let mut sizes = [0 as npy_intp; 4];
    for (to, &size) in sizes.iter_mut().zip(shape) {
        *to = size as npy_intp;
    }
    let start = data.as_mut_ptr();
    let keeper = PyCapsule::new_with_value(py, data, c"qkv")?;
    // SAFETY: the vector holds as many numbers as the shape says (an engine's tensor), of the dtype
    // named; the capsule keeps it and becomes the base of the array, which steals the reference, as
    // the first call steals that of the dtype.
    unsafe {
        let array = PY_ARRAY_API.PyArray_NewFromDescr(
            py,
            get_type_object(py, NpyTypes::PyArray_Type),
            dtype.into_dtype_ptr(),
            shape.len() as i32,
            sizes.as_mut_ptr(),
            null_mut(),
            start.cast(),
            NPY_ARRAY_CARRAY,
            null_mut(),
        );
        let array = Bound::from_owned_ptr_or_err(py, array)?;
        if PY_ARRAY_API.PyArray_SetBaseObject(py, array.as_ptr().cast(), keeper.into_ptr()) != 0 {
            return Err(PyErr::fetch(py));
        }
        Ok(array.unbind())
    }
}

fn descr(py: Python<'_>, kind: Kind) -> PyResult<Bound<'_, PyArrayDescr>> {
    Ok(match kind {
        Kind::F32 => numpy::dtype::<f32>(py),
        Kind::F64 => numpy::dtype::<f64>(py),
        Kind::Bool => numpy::dtype::<bool>(py),
        Kind::F16 => PyArrayDescr::new(py, "float16")?,
        Kind::Bf16 => {
            static BF16: PyOnceLock<Py<PyArrayDescr>> = PyOnceLock::new();
            let found = BF16.get_or_try_init(py, || {
                let scalar = py
                    .import("ml_dtypes")
                    .and_then(|module| module.getattr("bfloat16"))
                    .map_err(|_| {
                        PyImportError::new_err(
                            "NumPy has bfloat16 only with the package ml_dtypes; install it",
                        )
                    })?;
                PyArrayDescr::new(py, scalar).map(Bound::unbind)
            })?;
            found.bind(py).clone()
        }
    })
}
