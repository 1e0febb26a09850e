//! The Python package `qkv`: the engine, the steps and the worked calculation over arrays of
//! NumPy and of anything that speaks DLPack.
//!
//! Nothing is computed here. [`array`](mod@array) sees somebody's memory as views, [`arguments`]
//! turns keywords into an [`Attention`](qkv::Attention), [`work`] computes away from the
//! interpreter.

mod arguments;
mod array;
mod attention;
mod backward;
mod cache;
mod check;
mod dlpack;
mod error;
mod layer;
mod problem;
mod results;
mod room;
mod rotary;
mod steps;
mod trace;
mod work;

use pyo3::prelude::*;

#[pymodule]
fn _qkv(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_function(wrap_pyfunction!(attention::attention, module)?)?;
    module.add_function(wrap_pyfunction!(backward::attention_backward, module)?)?;
    module.add_function(wrap_pyfunction!(array::address, module)?)?;
    module.add_function(wrap_pyfunction!(backward::merge, module)?)?;
    module.add_function(wrap_pyfunction!(rotary::rotary, module)?)?;
    module.add_function(wrap_pyfunction!(steps::steps, module)?)?;
    module.add_function(wrap_pyfunction!(steps::explain, module)?)?;
    module.add_function(wrap_pyfunction!(check::check, module)?)?;
    module.add_function(wrap_pyfunction!(trace::trace, module)?)?;
    module.add_function(wrap_pyfunction!(trace::trace_weights, module)?)?;
    module.add_class::<check::Report>()?;
    module.add_class::<backward::Gradients>()?;
    module.add_class::<cache::Cache>()?;
    module.add_class::<layer::MultiHeadAttention>()?;
    module.add_class::<steps::Explanation>()?;
    module.add_class::<trace::Trace>()?;
    Ok(())
}
