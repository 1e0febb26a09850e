//! The fast backward pass equals the definition's derivative within the derived bound, on every
//! instruction set.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use half::{bf16, f16};
use qkv::{DType, GradientBound, GradientSizes, bound, gradient_bound};
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

/// The bound is what its documentation says: a looser one would hold too.
#[test]
fn the_bound_is_the_documented_one() {
    // Sizes that are all different, so that none can stand for another.
    let sizes = GradientSizes {
        head_dim: 24,
        value_dim: 40,
        keys: 300,
        rows: 700,
        weight: 5.0,
        bias_terms: 90,
        bias_weight: 3.0,
        sink_terms: 50,
        largest_score: 7.0,
        scale: 0.3,
        softcap: Some(11.0),
        dropout: 0.25,
        q: 1.1,
        k: 1.3,
        grad: 1.7,
        product: 19.0,
    };
    let (m, g) = (4.0 / 3.0, 19.0 * 4.0 / 3.0);
    for (dtype, u, h, times) in [
        (DType::F64, 2f64.powi(-53), 0.0, 2.0),
        (DType::F32, 2f64.powi(-24), 0.0, 1.0),
        (DType::F16, 2f64.powi(-24), 2f64.powi(-11), 1.0),
        (DType::Bf16, 2f64.powi(-24), 2f64.powi(-8), 1.0),
    ] {
        let of = |dtype| bound(dtype, 24, 300, 7.0);
        // Of the weights, and of the output, which is rounded to the format.
        let (e, of_output) = match dtype {
            DType::F64 => (of(dtype), of(dtype)),
            _ => (of(DType::F32), of(dtype)),
        };
        let each = 4.0 * e + of_output + 56.0 * u + 4.0 * u * 32.0 * (7.0 / 11.0 + 1.0);
        let rounded = |size: f64, share: f64, most: f64| {
            let error = times * (1.0 + each) * size * share;
            error + h * (most + error)
        };
        let of_q = 0.3 * 1.3 * g;
        let of_k = 0.3 * 1.1 * g * 5.0;
        let of_v = m * 1.7 * 5.0;
        let of_bias = g * 3.0;
        let of_sinks = g * 50.0;
        let wanted = GradientBound {
            q: rounded(of_q, each + 608.0 * u, 2.0 * of_q),
            k: rounded(of_k, each + 1408.0 * u, 2.0 * of_k),
            v: rounded(of_v, 2.0 * e + 704.0 * u, of_v),
            bias: rounded(of_bias, each + 188.0 * u, 2.0 * of_bias),
            sinks: rounded(of_sinks, 2.0 * e + of_output + 58.0 * u, of_sinks),
        };
        let found = gradient_bound(dtype, &sizes);
        let pairs = [
            (found.q, wanted.q),
            (found.k, wanted.k),
            (found.v, wanted.v),
            (found.bias, wanted.bias),
            (found.sinks, wanted.sinks),
        ];
        // What is too small for the format is the only rest.
        let tiny = if dtype == DType::F16 {
            2f64.powi(-25)
        } else {
            1e-30
        };
        for (n, (found, wanted)) in pairs.into_iter().enumerate() {
            let rest = (found - wanted).abs();
            assert!(
                rest <= tiny + 1e-12 * wanted,
                "{dtype:?} {n}: {found} {wanted}"
            );
        }
    }
}
