//! GGUF: one file with configuration, vocabulary and weights.
//!
//! The header is read here, so that every size is checked against the file before memory is taken for
//! it, and a fault is said with its byte; candle turns the quantized blocks into numbers.

mod config;
mod factors;
mod header;

pub(crate) use config::{alias, json};
pub(crate) use header::{Gguf, Meta};
