//! Random calls of attention, with every option, strides and sizes all different.
#![allow(dead_code, clippy::unwrap_used, unused_imports)] // each test file uses a part

mod array;
mod call;
mod compare;
mod counts;
mod draw;
mod gradients;
mod random;

pub use array::{AnyArray, Array, Gap, LAYOUTS, Layout, same_bits};
pub use call::{Call, Typed};
pub use compare::{Expected, Ratios};
pub use counts::Counts;
pub use draw::LENGTHS;
pub use gradients::{ExpectedGradients, Worst, grad_output};
pub use random::Random;

use half::{bf16, f16};
use qkv::{Float, Isa, Options, Part, scores, weights};
use std::num::NonZeroUsize;

/// The instruction sets of this processor.
pub fn isas() -> impl Iterator<Item = Isa> {
    Isa::ALL.into_iter().filter(|isa| isa.available())
}

/// Those of them that compute a type in their own way.
pub fn isas_of<T: Float>() -> impl Iterator<Item = Isa> {
    isas().filter(|isa| isa.of(T::DTYPE) == *isa)
}

/// An instruction set and a number of threads.
pub fn options(isa: Isa, threads: usize) -> Options {
    Options {
        isa: Some(isa),
        threads: NonZeroUsize::new(threads),
        ..Options::default()
    }
}

/// The same, and where it makes a difference, without reproducible sums too.
pub fn both_orders(call: &Call, isa: Isa, threads: usize) -> Vec<Options> {
    let default = options(isa, threads);
    let any_order = Options {
        reproducible: false,
        ..default
    };
    let few = call.q.shape[1] * call.q.shape[2] <= 2 * call.k.shape[1];
    if few {
        vec![default, any_order]
    } else {
        vec![default]
    }
}

/// How many random calls to try: `usual`, or `usual`·N where `QKV_TEST_TIMES` is N.
pub fn times(usual: usize) -> usize {
    let times = std::env::var("QKV_TEST_TIMES").ok();
    usual * times.map_or(1, |times| times.parse().unwrap())
}

/// Makes a call of any bytes and compares the fast path, forward and backward, with the definition.
///
/// # Errors
/// Says where they differ.
pub fn check_bytes(bytes: &[u8]) -> Result<(), String> {
    let mut random = Random::of_bytes(bytes);
    let call = Call::random_of_work(&mut random, 0, 100_000);
    let layouts = Call::layouts(&mut random);
    let expected = Expected::of(&call);
    let mut ratios = Ratios::default();
    expected.compare::<f32>(&call, layouts, 1, &mut ratios)?;
    expected.compare::<f64>(&call, layouts, 1, &mut ratios)?;
    let half = call.rounded::<f16>();
    Expected::of(&half).compare::<f16>(&half, layouts, 1, &mut ratios)?;
    let half = call.rounded::<bf16>();
    Expected::of(&half).compare::<bf16>(&half, layouts, 1, &mut ratios)?;
    let mut single = call.clone();
    let gradients = ExpectedGradients::of(&mut single, &mut random);
    let mut worst = Worst::default();
    gradients.compare::<f32>(&single, layouts, 1, &mut worst)?;
    gradients.compare::<f64>(&single, layouts, 1, &mut worst)?;
    let mut half = call.rounded::<bf16>();
    let gradients = ExpectedGradients::of(&mut half, &mut random);
    gradients.compare::<bf16>(&half, layouts, 1, &mut worst)?;
    some_weights::<f16>(&call, layouts, &mut random);
    some_weights::<bf16>(&call, layouts, &mut random);
    some_weights::<f32>(&call, layouts, &mut random);
    some_weights::<f64>(&call, layouts, &mut random);
    Ok(())
}

/// Computes any part of scores and weights.
fn some_weights<T: Float + Gap>(call: &Call, layouts: [Layout; 3], random: &mut Random) {
    let typed = call.typed::<T>(layouts);
    let (attention, inputs) = (call.attention(&typed), typed.inputs());
    let part = any_part(call, random);
    for isa in isas_of::<T>() {
        let options = options(isa, 1);
        weights(&attention, &inputs, &options, &part).unwrap();
        scores(&attention, &inputs, &options, &part).unwrap();
    }
}

/// Any part of the scores of a call.
pub fn any_part(call: &Call, random: &mut Random) -> Part {
    let mut within = |size: usize| {
        let from = random.below(size + 1);
        from..from + random.below(size - from + 1)
    };
    Part {
        batch: within(call.q.shape[0]),
        heads: within(call.q.shape[1]),
        queries: within(call.q.shape[2]),
        keys: within(call.keys()),
    }
}
