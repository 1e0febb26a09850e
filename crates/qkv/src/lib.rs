//! Exact attention.
