//! The engine's errors as Python's.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use qkv::Error;

/// A `ValueError` with the engine's message, under the names of the keywords.
pub fn value_error(error: Error) -> PyErr {
    let keyword = |name| {
        if name == "lengths" {
            "kv_lengths"
        } else {
            name
        }
    };
    let named = match error {
        Error::ListLength {
            argument,
            found,
            expected,
            meaning,
        } => Error::ListLength {
            argument: keyword(argument),
            found,
            expected,
            meaning,
        },
        Error::Option {
            option,
            value,
            remedy,
        } => Error::Option {
            option: keyword(option),
            value,
            remedy,
        },
        other => other,
    };
    PyValueError::new_err(named.to_string())
}

/// What kind of thing a value is, for a message: "an int", "a list".
///
/// # Errors
/// None that a type with a name has.
pub fn named(value: &Bound<'_, PyAny>) -> PyResult<String> {
    let name = value.get_type().name()?.to_string();
    let article = match name.chars().next() {
        _ if name == "NoneType" => return Ok("None".into()),
        Some('a' | 'e' | 'i' | 'o' | 'A' | 'E' | 'I' | 'O') => "an",
        _ => "a",
    };
    Ok(format!("{article} {name}"))
}

/// A `TypeError` about an argument.
pub fn type_error(argument: &str, found: impl std::fmt::Display, remedy: &str) -> PyErr {
    PyTypeError::new_err(format!("{argument}: {found}; {remedy}"))
}

/// A `ValueError` about an argument.
pub fn bad_value(argument: &str, found: impl std::fmt::Display, remedy: &str) -> PyErr {
    PyValueError::new_err(format!("{argument}: {found} is not possible; {remedy}"))
}
