//! Random calls of attention, with every option, strides and sizes all different.
#![allow(dead_code, clippy::unwrap_used, unused_imports)] // each test file uses a part

mod array;
mod call;
mod compare;
mod counts;
mod draw;
mod random;

pub use array::{AnyArray, Array, Gap, LAYOUTS, Layout, same_bits};
pub use call::{Call, Typed};
pub use compare::{Expected, Ratios};
pub use counts::Counts;
pub use draw::LENGTHS;
pub use random::Random;

use qkv::{Isa, Options};
use std::num::NonZeroUsize;

/// The instruction sets of this processor.
pub fn isas() -> impl Iterator<Item = Isa> {
    Isa::ALL.into_iter().filter(|isa| isa.available())
}

/// An instruction set and a number of threads.
pub fn options(isa: Isa, threads: usize) -> Options {
    Options {
        isa: Some(isa),
        threads: NonZeroUsize::new(threads),
    }
}

/// How many random calls to try: `usual`, or `usual`·N where `QKV_TEST_TIMES` is N.
pub fn times(usual: usize) -> usize {
    let times = std::env::var("QKV_TEST_TIMES").ok();
    usual * times.map_or(1, |times| times.parse().unwrap())
}
