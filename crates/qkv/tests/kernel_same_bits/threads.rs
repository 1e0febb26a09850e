//! Calls large enough to be shared out, in every way that there is.

use super::support::{Array, Call, Gap, Layout, Random, both_orders, isas, same_bits, times};
use half::{bf16, f16};
use qkv::{Causal, EmptyRows, Float, Isa, Options, forward_with};
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::num::NonZeroUsize;

fn pool() -> ThreadPool {
    ThreadPoolBuilder::new().num_threads(5).build().unwrap()
}

fn check<T: Float + Gap>(call: &Call, pool: &ThreadPool, isa: Isa) {
    let typed = call.typed::<T>([Layout::Plain; 3]);
    let (attention, inputs) = (call.attention(&typed), typed.inputs());
    for order in both_orders(call, isa, 1) {
        let one = forward_with(&attention, &inputs, &order).unwrap();
        for threads in [2, 3, 5] {
            let options = Options {
                threads: NonZeroUsize::new(threads),
                ..order
            };
            let many = pool.install(|| forward_with(&attention, &inputs, &options));
            let many = many.unwrap();
            assert!(
                same_bits(one.output.data(), many.output.data())
                    && same_bits(one.lse.data(), many.lse.data())
                    && one.empty_rows == many.empty_rows,
                "{options:?} {:?}: {}",
                T::DTYPE,
                call.describe()
            );
        }
    }
}

#[test]
fn threads_change_no_bit_of_random_calls() {
    let (mut random, pool) = (Random::new(21), pool());
    for _ in 0..times(40) {
        let mut call = Call::random_of_work(&mut random, 2_500_000, 10_000_000);
        call.empty_rows = EmptyRows::Zero;
        for isa in isas() {
            check::<f32>(&call, &pool, isa);
            check::<f64>(&call, &pool, isa);
            check::<f16>(&call, &pool, isa);
            check::<bf16>(&call, &pool, isa);
        }
    }
}

/// One call for each way in which work is shared out.
#[test]
fn threads_change_no_bit() {
    let (mut random, pool) = (Random::new(14), pool());
    // B, H, H_kv, L_q, L_k, d_k, d_v
    for (shape, causal) in [
        ([1, 4, 2, 300, 300, 33, 20], true),  // waves of heads
        ([3, 4, 4, 130, 170, 16, 40], false), // head by head
        ([1, 3, 1, 1, 9000, 64, 48], false),  // chunks of keys
        ([1, 2, 2, 1, 9000, 40, 24], false),  // the same, in any order too
        ([2, 2, 1, 3, 5000, 40, 64], true),   // chunks of keys, several queries
        ([16, 4, 2, 1, 700, 32, 32], false),  // boxes without packing
        ([1, 2, 1, 500, 2500, 24, 24], true), // several chunks in one block
    ] {
        let [b, h, h_kv, l_q, l_k, d_k, d_v] = shape;
        let mut array = |shape| Array::new(shape, Layout::Plain, |_| random.normal());
        let (q, k, v) = ([b, h, l_q, d_k], [b, h_kv, l_k, d_k], [b, h_kv, l_k, d_v]);
        let mut call = Call::plain(array(q), array(k), array(v));
        call.causal = causal.then_some(Causal::BottomRight);
        for documents in [None, Some((parts(l_q), parts(l_k)))] {
            call.documents = documents;
            for isa in isas().filter(|&isa| isa != Isa::Portable) {
                check::<f32>(&call, &pool, isa);
                check::<f64>(&call, &pool, isa);
                check::<f16>(&call, &pool, isa);
                check::<bf16>(&call, &pool, isa);
            }
        }
    }
}

fn parts(length: usize) -> Vec<usize> {
    vec![length / 3, length - length / 3]
}
