//! Memory that a call needs, asked for before it begins: an allocation that fails inside the engine
//! ends the whole process, and a view may claim any number of rows with strides of 0.

use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;

/// What every machine has; nothing is asked up to here.
const SMALL: f64 = (64 << 20) as f64;

/// Refuses to begin what needs more bytes than the process can get.
///
/// Products of sizes are given as `f64`, which never overflow.
///
/// # Errors
/// `MemoryError`.
pub fn check(what: &str, bytes: f64) -> PyResult<()> {
    if bytes <= SMALL {
        return Ok(());
    }
    let mut probe = Vec::<u8>::new();
    // Beyond `usize::MAX` the conversion stays there, and that is refused.
    if probe.try_reserve_exact(bytes as usize).is_ok() {
        return Ok(());
    }
    Err(PyMemoryError::new_err(format!(
        "{what}: {:.1} GiB are needed, more than this process can get; give fewer queries or batch \
         entries at a time, and ask for weights or steps of short inputs only",
        bytes / f64::from(1 << 30)
    )))
}

/// How many numbers there are with these sizes.
pub fn count(sizes: &[usize]) -> f64 {
    sizes.iter().map(|&size| size as f64).product()
}
