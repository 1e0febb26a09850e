//! Every kind of misfit is refused with a message that names the argument, the shapes and a
//! remedy; axes of length 0 and extreme numbers give right results or a refusal, never a panic.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../common/mod.rs"]
mod common;

mod arrays;
mod extremes;
mod layers;
mod options;

use qkv::{Attention, Error, Inputs, Result, View, definition, steps};

/// The message has all parts.
#[track_caller]
pub(crate) fn refused<T: std::fmt::Debug>(result: Result<T>, parts: &[&str]) -> Error {
    let error = result.unwrap_err();
    let message = error.to_string();
    for part in parts {
        assert!(message.contains(part), "{part:?} is not in {message:?}");
    }
    // A message is one line, with a remedy after a semicolon, or a list's meaning after a colon.
    assert!(!message.contains('\n'), "{message:?}");
    assert!(
        message.contains("; ") || message.contains(": "),
        "{message:?}"
    );
    error
}

pub(crate) const ONES: [f64; 256] = [1.0; 256];

pub(crate) fn ones(shape: &[usize]) -> View<'static, f64> {
    View::new(&ONES[..shape.iter().product()], shape).unwrap()
}

pub(crate) fn inputs_of(q: &[usize], k: &[usize], v: &[usize]) -> Result<Inputs<'static, f64>> {
    Inputs::new(ones(q), ones(k), ones(v))
}

/// Batch 2, heads 4 over 2, queries 3, keys 5, head_dim 6 (k: 2·2·5·6 = 120), value_dim 1.
pub(crate) fn fitting() -> Inputs<'static, f64> {
    inputs_of(&[2, 4, 3, 6], &[2, 2, 5, 6], &[2, 2, 5, 1]).unwrap()
}

pub(crate) fn tried(attention: &Attention<'_>) -> Result<definition::Output<f64>> {
    let inputs = fitting();
    let found = definition::forward(attention, &inputs);
    // All ways in refuse alike.
    let text = |error: Option<Error>| error.map(|error| error.to_string());
    let by_forward = text(found.clone().err());
    assert_eq!(text(steps(attention, &inputs).err()), by_forward);
    let grad = ones(&[2, 4, 3, 1]);
    assert_eq!(
        text(definition::backward(attention, &inputs, grad).err()),
        by_forward
    );
    if !matches!(found, Err(Error::EmptyRows { .. })) {
        assert_eq!(text(attention.check(&inputs).err()), by_forward);
        assert_eq!(
            text(definition::places(attention, &inputs).err()),
            by_forward
        );
    }
    found
}
