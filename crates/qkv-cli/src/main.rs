//! The command `qkv`.
fn main() {}
