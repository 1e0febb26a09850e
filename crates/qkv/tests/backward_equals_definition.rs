//! The fast backward pass equals the definition's derivative within the derived bound, on every
//! instruction set.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use half::{bf16, f16};
use support::{Call, ExpectedGradients, Gap, LAYOUTS, Layout, Random, Worst, times};

/// Compares random calls in one number format, whose numbers are those of the call as `round` gives
/// it; prints the largest error over the bound.
fn compare<T: qkv::Float + Gap>(seed: u64, count: usize, round: fn(Call) -> Call) {
    let mut random = Random::new(seed);
    let (mut worst, mut promised) = (Worst::default(), 0);
    for n in 0..count {
        let mut call = round(Call::random(&mut random));
        if let Some(bias) = &mut call.bias {
            // The bound follows the largest number, and would allow anything.
            let low = |x: &mut f64| {
                if *x < -1e30 && x.is_finite() {
                    *x = -40.0;
                }
            };
            bias.data.iter_mut().for_each(low);
        }
        let expected = ExpectedGradients::of(&mut call, &mut random);
        promised += usize::from(expected.is_promised(&call));
        let layouts: [Layout; 3] = std::array::from_fn(|_| random.pick(&LAYOUTS));
        let compared = expected.compare::<T>(&call, layouts, 1 + n % 3, &mut worst);
        compared.unwrap_or_else(|what| panic!("call {n}: {what}"));
    }
    println!(
        "{:?}: {promised} calls, largest error over bound:{worst}",
        T::DTYPE
    );
    assert!(promised > count / 2);
}

#[test]
fn single_precision() {
    compare::<f32>(11, times(150), |call| call);
}

#[test]
fn double_precision() {
    compare::<f64>(12, times(100), |call| call);
}

#[test]
fn half_precision() {
    compare::<f16>(13, times(60), |call| call.rounded::<f16>());
    compare::<bf16>(14, times(60), |call| call.rounded::<bf16>());
}
