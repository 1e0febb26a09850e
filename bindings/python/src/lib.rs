//! The Python package `qkv`: the engine, the steps and the worked calculation over arrays of
//! NumPy and of anything that speaks DLPack.
//!
//! Nothing is computed here. [`array`](mod@array) sees somebody's memory as views, [`arguments`]
//! turns keywords into an [`Attention`](qkv::Attention), [`work`] computes away from the
//! interpreter.

mod arguments;
mod array;
mod attention;
mod dlpack;
mod error;
mod problem;
mod results;
mod work;

use pyo3::prelude::*;

#[pymodule]
fn _qkv(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_function(wrap_pyfunction!(attention::attention, module)?)?;
    Ok(())
}
