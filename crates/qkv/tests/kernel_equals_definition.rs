//! The fast path equals the definition within the derived bound, on every instruction set.
//!
//! `QKV_TEST_TIMES=20 cargo test --release -p qkv --test kernel_equals_definition -- --nocapture`
//! tries twenty times as many calls and shows what they contained.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use half::{bf16, f16};
use qkv::{DType, Float, Scale, bound};
use support::{Array, Call, Counts, Expected, Gap, LENGTHS, Layout, Random, Ratios, times};

fn compare_many(seed: u64) {
    let mut random = Random::new(seed);
    let (mut counts, mut ratios) = (Counts::default(), Ratios::default());
    for _ in 0..times(500) {
        let call = Call::random(&mut random);
        counts.add(&call);
        let expected = Expected::of(&call);
        let (layouts, threads) = (Call::layouts(&mut random), random.pick(&[1, 2]));
        let same = expected
            .compare::<f32>(&call, layouts, threads, &mut ratios)
            .and_then(|()| expected.compare::<f64>(&call, layouts, threads, &mut ratios));
        same.unwrap_or_else(|what| panic!("{what}"));
    }
    println!("{counts}\n{ratios}");
    counts.assert_each(250);
}

#[test]
fn random_calls_equal_the_definition_1() {
    compare_many(1);
}

#[test]
fn random_calls_equal_the_definition_2() {
    compare_many(2);
}

/// Against the definition on the rounded numbers.
fn compare_many_rounded<T: Float + Gap>(seed: u64) {
    let mut random = Random::new(seed);
    let (mut counts, mut ratios) = (Counts::default(), Ratios::default());
    for _ in 0..times(500) {
        let call = Call::random(&mut random).rounded::<T>();
        counts.add(&call);
        let expected = Expected::of(&call);
        let (layouts, threads) = (Call::layouts(&mut random), random.pick(&[1, 2]));
        let same = expected.compare::<T>(&call, layouts, threads, &mut ratios);
        same.unwrap_or_else(|what| panic!("{what}"));
    }
    println!("{counts}\n{ratios}");
    counts.assert_each(250);
}

#[test]
fn random_calls_of_f16_equal_the_definition() {
    compare_many_rounded::<f16>(5);
}

#[test]
fn random_calls_of_bf16_equal_the_definition() {
    compare_many_rounded::<bf16>(6);
}

#[test]
fn every_length_equals_the_definition() {
    let mut random = Random::new(3);
    let mut ratios = Ratios::default();
    for queries in LENGTHS {
        for keys in LENGTHS {
            let mut array = |shape| Array::new(shape, Layout::Plain, |_| random.normal() as f32);
            let [q, k, v] = [[2, 6, queries, 7], [2, 3, keys, 7], [2, 3, keys, 5]]
                .map(|shape| array(shape).map(Layout::Plain, f64::from));
            let call = Call::plain(q, k, v);
            let expected = Expected::of(&call);
            let layouts = [Layout::Plain; 3];
            expected
                .compare::<f32>(&call, layouts, 1, &mut ratios)
                .unwrap();
            expected
                .compare::<f64>(&call, layouts, 1, &mut ratios)
                .unwrap();
        }
    }
}

/// The bound is of no use where a huge scale makes rounding of scores decide. Where scores are
/// exact, only what follows rounds: a weight e^(−x) then has an error of a few u·x·e^(−x), and
/// x·e^(−x) is below 1, so the bound of scores of size 1 holds.
#[test]
fn exact_scores_with_any_scale() {
    let mut random = Random::new(4);
    for n in 0..times(60) {
        let (queries, keys) = (random.pick(&LENGTHS), 1 + random.below(700));
        let mut whole = |shape| Array::new(shape, Layout::Plain, |_| random.below(7) as f64 - 3.0);
        let (q, k) = (whole([1, 2, queries, 5]), whole([1, 1, keys, 5]));
        let v = Array::new([1, 1, keys, 3], Layout::Plain, |_| random.number().round());
        let mut call = Call::plain(q, k, v);
        call.scale = Scale::Factor([1e3, -1e6, 1e20, -1e30, 1.0, 1e-5][n % 6]);
        let mut expected = Expected::of(&call);
        expected.take_scores_as(1.0);
        let mut ratios = Ratios::default();
        let layouts = [Layout::Plain; 3];
        expected
            .compare::<f32>(&call, layouts, 1, &mut ratios)
            .unwrap();
        expected
            .compare::<f64>(&call, layouts, 1, &mut ratios)
            .unwrap();
    }
}

#[test]
fn bound_grows_with_what_is_rounded() {
    assert!(bound(DType::F32, 64, 100, 3.0) < bound(DType::F32, 128, 100, 3.0));
    assert!(bound(DType::F32, 64, 100, 3.0) < bound(DType::F32, 64, 1000, 3.0));
    assert!(bound(DType::F64, 64, 100, 3.0) < 1e-8 * bound(DType::F32, 64, 100, 3.0));
    assert_eq!(bound(DType::F32, 64, 100, 1e38), 2.0);
}
