//! Exact attention: one definition, every step visible.
//!
//! ```text
//! Attention(Q, K, V) = softmax(scale·Q·Kᵀ + mask)·V
//! ```
//!
//! [`Attention`] says what to compute, [`Inputs`] on what, [`definition`] is the mathematics in
//! plain `f64` loops.

pub mod attention;
pub mod cache;
pub mod definition;
pub mod error;
pub mod kernel;
pub mod layer;
pub mod mask;
pub mod position;
pub mod steps;
pub mod view;
pub mod view_mut;

pub use attention::{Alibi, Attention, Bias, Dropout, Inputs, Scale, Sinks};
pub use cache::Cache;
pub use definition::Output;
pub use error::{Error, Result};
pub use kernel::{
    Float, GradientBound, GradientSizes, GradientsMut, Isa, Options, Part, Rows, Saved, Store,
    backward, backward_into, bound, fma_burst, forward, forward_into, forward_with, gradient_bound,
    merge, scores, weights,
};
pub use layer::{Block, FiniteDifference, GradientSteps, Layer, Linear, Place, RmsNorm};
pub use mask::{Causal, Documents, EmptyRows, KeyLengths, Mask, Window};
pub use steps::{GradientName, StepName, Steps, steps};
pub use view::{AnyView, DType, Element, Tensor, View};
pub use view_mut::ViewMut;

/// The examples of the READMEs are tests.
#[cfg(doctest)]
mod readme {
    #[doc = include_str!("../../../README.md")]
    struct English;
    #[doc = include_str!("../../../README.zh-CN.md")]
    struct Chinese;
}
