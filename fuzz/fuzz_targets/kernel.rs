//! Any bytes as the choices of a random call of attention: the fast path and its gradients equal
//! the definition on every instruction set, and scores and weights can be had.
#![no_main]

#[path = "../../crates/qkv/tests/support/mod.rs"]
mod support;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| support::check_bytes(bytes).unwrap());
