//! Half precision: every number, roundings that are ties, and what one number more or less in a
//! pair could do.

use super::support::{isas_of, options};
use ::half::{bf16, f16};
use qkv::{
    Attention, Causal, DType, Float, Inputs, Isa, KeyLengths, Output, View, Window, forward_with,
};

/// Results on all instruction sets.
fn each<T: Float>(
    attention: &Attention<'_>,
    [q, k, v]: [(&[T], [usize; 4]); 3],
) -> Vec<(Isa, Output<T>)> {
    isas_of::<T>()
        .map(|isa| {
            let inputs = Inputs::new(
                View::new(q.0, &q.1).unwrap(),
                View::new(k.0, &k.1).unwrap(),
                View::new(v.0, &v.1).unwrap(),
            )
            .unwrap();
            let output = forward_with(attention, &inputs, &options(isa, 1)).unwrap();
            (isa, output)
        })
        .collect()
}

/// Whether the dot products of bf16 take a number as 0.
fn is_flushed<T: Float>(isa: Isa, x: f64) -> bool {
    isa == Isa::Avx512Bf16 && T::DTYPE == DType::Bf16 && x.abs() < 2f64.powi(-126)
}

/// A single key gives its value, whatever it is.
fn every_number<T: Float>(all: &[T]) {
    let heads = all.len();
    let shape = [1, heads, 1, 1];
    let ones = vec![T::from_f64(1.0); heads];
    for (isa, found) in each(
        &Attention::default(),
        [(&ones, shape), (&ones, shape), (all, shape)],
    ) {
        for (x, y) in found.output.data().iter().zip(all) {
            let (x, y) = (x.to_f64(), y.to_f64());
            let same = x == y || x.is_nan() && y.is_nan();
            let flushed = is_flushed::<T>(isa, y) && x == 0.0;
            assert!(same || flushed, "{isa:?} {x:e} for {y:e}");
        }
    }
}

#[test]
fn every_number_of_16_bits() {
    let all: Vec<f16> = (0..=u16::MAX).map(f16::from_bits).collect();
    every_number(&all);
    let all: Vec<bf16> = (0..=u16::MAX).map(bf16::from_bits).collect();
    every_number(&all);
}

/// Means of two neighbouring numbers are ties, and go to the even one.
fn ties<T: Float>(digits: i32) {
    let step = 2f64.powi(1 - digits);
    let (first, last) = (2f64.powi(digits - 1), 2f64.powi(digits));
    let numbers: Vec<f64> = (first as usize..last as usize)
        .map(|n| n as f64 * step)
        .collect();
    let heads = numbers.len();
    let zeros = vec![T::from_f64(0.0); 2 * heads];
    let v: Vec<T> = numbers
        .iter()
        .flat_map(|&x| [T::from_f64(x), T::from_f64(x + step)])
        .collect();
    let (q, k) = ([1, heads, 1, 1], [1, heads, 2, 1]);
    for (isa, found) in each(
        &Attention::default(),
        [(&zeros[..heads], q), (&zeros, k), (&v, k)],
    ) {
        for (n, (x, low)) in found.output.data().iter().zip(&numbers).enumerate() {
            let even = if n % 2 == 0 { *low } else { low + step };
            assert_eq!(x.to_f64(), even, "{isa:?} {low} and the next");
        }
    }
}

#[test]
fn outputs_are_rounded_to_even() {
    ties::<f16>(11);
    ties::<bf16>(8);
}

/// The largest numbers do not overflow on the way.
fn largest<T: Float>(most: f64) {
    let number = T::from_f64;
    let (q, k) = (vec![number(most); 6], vec![number(most); 15]);
    let v: Vec<T> = (0..5).map(|_| number(most)).collect();
    let plain = Attention {
        scale: qkv::Scale::Factor(1e-30),
        ..Attention::default()
    };
    let shapes = [[1, 1, 2, 3], [1, 1, 5, 3], [1, 1, 5, 1]];
    for (isa, found) in each(&plain, [(&q, shapes[0]), (&k, shapes[1]), (&v, shapes[2])]) {
        for x in found.output.data() {
            assert_eq!(x.to_f64(), most, "{isa:?}");
        }
    }
}

#[test]
fn the_largest_numbers_stay_finite() {
    largest::<f16>(65504.0);
    largest::<bf16>(2f64.powi(60));
}

/// Keys that are not seen may be anything, also the one that shares a pair with the last or the
/// first that is.
fn unseen_partners<T: Float>(bad: f64) {
    // More than one block of queries, so that values are converted once for all.
    let (queries, keys, width) = (200, 301, 5);
    let number = |n: usize| T::from_f64((n * 7 % 13) as f64 - 6.0);
    let q: Vec<T> = (0..queries * width).map(number).collect();
    let k: Vec<T> = (0..keys * width).map(number).collect();
    let v: Vec<T> = (0..keys * width).map(|n| number(n + 3)).collect();
    for seen in [1, 2, 7, 8, 127, 128, 129, 255, 256, 257, 300] {
        let lengths = Attention {
            lengths: Some(KeyLengths(vec![seen])),
            ..Attention::default()
        };
        // From an odd or an even key on.
        let moving = Attention {
            causal: Some(Causal::Offset(seen as i64 - 1)),
            window: Some(Window {
                back: Some(6),
                forward: None,
            }),
            ..Attention::default()
        };
        for attention in [lengths, moving] {
            let shapes = [[1, 1, queries, width], [1, 1, keys, width]];
            let plain = each(
                &attention,
                [(&q, shapes[0]), (&k, shapes[1]), (&v, shapes[1])],
            );
            let (first, last) = match &attention.lengths {
                Some(_) => (0, seen),
                None => ((seen - 1).saturating_sub(6), (seen + queries - 1).min(keys)),
            };
            let spoilt: Vec<T> = (0..keys * width)
                .map(|n| match (first..last).contains(&(n / width)) {
                    true => v[n],
                    false => T::from_f64(bad),
                })
                .collect();
            let same = each(
                &attention,
                [(&q, shapes[0]), (&k, shapes[1]), (&spoilt, shapes[1])],
            );
            for ((isa, plain), (_, spoilt)) in plain.iter().zip(&same) {
                let what = format!("{isa:?} {:?} seen {seen}", T::DTYPE);
                assert!(plain == spoilt, "{what}");
            }
        }
    }
}

#[test]
fn what_is_not_seen_does_not_come_through_a_pair() {
    for bad in [f64::NAN, f64::INFINITY] {
        unseen_partners::<f16>(bad);
        unseen_partners::<bf16>(bad);
    }
}

/// Subnormal numbers of q, k and v count as what they are, or as 0 in dot products of bf16, for any
/// number of queries.
#[test]
fn subnormal_numbers_of_bf16() {
    let number = |x: f64| bf16::from_f64(x);
    let (tiny, large) = (2f64.powi(-130), 2f64.powi(127));
    let attention = Attention {
        scale: qkv::Scale::Factor(8.0),
        ..Attention::default()
    };
    for queries in [1, 2, 5, 40, 150] {
        for (in_q, in_k) in [(tiny, large), (large, tiny)] {
            let q = vec![number(in_q); queries];
            let (k, v) = ([number(in_k), number(0.0)], [number(1.0), number(3.0)]);
            let shapes = [[1, 1, queries, 1], [1, 1, 2, 1], [1, 1, 2, 1]];
            for (isa, found) in each(
                &attention,
                [(&q, shapes[0]), (&k, shapes[1]), (&v, shapes[2])],
            ) {
                // 8·2⁻³ and 0, or twice 0.
                let score: f64 = if isa == Isa::Avx512Bf16 { 0.0 } else { 1.0 };
                let exact = (score.exp() + 3.0) / (score.exp() + 1.0);
                for (output, lse) in found.output.data().iter().zip(found.lse.data()) {
                    let error = (output.to_f64() - exact).abs();
                    assert!(error <= 2.0 * 2f64.powi(-8), "{isa:?} {queries} {error}");
                    let error = (lse - (score.exp() + 1.0).ln()).abs();
                    assert!(error <= 1e-6, "{isa:?} {queries} {error}");
                }
            }
        }
        // Of one value, and of the mean of two.
        let q = vec![number(0.0); queries];
        for keys in [1, 2] {
            let (k, v) = (vec![number(0.0); keys], vec![number(tiny); keys]);
            let shapes = [[1, 1, queries, 1], [1, 1, keys, 1], [1, 1, keys, 1]];
            for (isa, found) in each(
                &Attention::default(),
                [(&q, shapes[0]), (&k, shapes[1]), (&v, shapes[2])],
            ) {
                let exact = if isa == Isa::Avx512Bf16 { 0.0 } else { tiny };
                for x in found.output.data() {
                    assert_eq!(x.to_f64(), exact, "{isa:?} {queries} {keys}");
                }
            }
        }
    }
}
