//! How much memory the fast path takes beyond its result.
//!
//! `cargo test --release -p qkv --test kernel_memory -- --ignored --nocapture` prints it for long
//! inputs.
#![allow(unsafe_code, clippy::unwrap_used)] // an allocator that counts

use half::{bf16, f16};
use qkv::{
    Attention, Cache, Causal, Float, GradientsMut, Inputs, Mask, Options, Part, Saved, Store, View,
    Window, backward, backward_into, forward_with, weights,
};
use std::alloc::{GlobalAlloc, Layout, System};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

static HELD: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
static CALLS: AtomicUsize = AtomicUsize::new(0);
/// Only one test at a time is measured.
static TURN: Mutex<()> = Mutex::new(());

struct Counting;

// SAFETY: everything is handed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let held = HELD.fetch_add(layout.size(), Relaxed) + layout.size();
        PEAK.fetch_max(held, Relaxed);
        CALLS.fetch_add(1, Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Relaxed);
        unsafe { System.dealloc(at, layout) };
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes that `run` held at most, on threads that hold no scratch.
fn measure<R: Send>(threads: usize, run: impl Fn() -> R + Sync) -> usize {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
    let pool = pool.build().unwrap();
    pool.install(|| {
        let before = HELD.load(Relaxed);
        PEAK.store(before, Relaxed);
        let result = run();
        let peak = PEAK.load(Relaxed) - before;
        drop(result);
        peak
    })
}

fn options(threads: usize) -> Options {
    Options {
        threads: NonZeroUsize::new(threads),
        ..Options::default()
    }
}

/// Some numbers: no value is measured here.
fn numbers<T: Float>(count: usize) -> Vec<T> {
    let number = |n: usize| T::from_f64((n % 17) as f64 * 0.1 - 0.8);
    (0..count).map(number).collect()
}

/// Bytes beyond output and lse of self-attention over `[1, heads, length, width]`.
fn extra<T: Float>(attention: &Attention<'_>, threads: usize, shape: [usize; 4]) -> usize {
    let data = numbers::<T>(shape.iter().product());
    let view = View::new(&data, &shape).unwrap();
    let inputs = Inputs::new(view, view, view).unwrap();
    let peak = measure(threads, || {
        forward_with(attention, &inputs, &options(threads)).unwrap()
    });
    let [batch, heads, length, width] = shape;
    peak - batch * heads * length * (width * size_of::<T>() + size_of::<f64>())
}

fn causal() -> Attention<'static> {
    Attention {
        causal: Some(Causal::Square),
        ..Attention::default()
    }
}

/// What a thread holds whatever the length: scores and sums of a block of queries, packed keys of
/// a block, lists of rows. 96 queries × (272 scores + 2·64 sums + 64 q) × 4 bytes = 180 kB, and
/// 256 keys × 64 × 4 bytes = 66 kB; the rest is small.
const FIXED: usize = 512 << 10;

#[test]
fn memory_is_linear_in_the_length() {
    let _turn = turn();
    for threads in [1, 2] {
        for heads in [1, 3] {
            for length in [1024, 2048, 4096] {
                let found = extra::<f32>(&causal(), threads, [1, heads, length, 64]);
                // Packed keys of one head a thread, or of the heads of a wave.
                let packed = threads.min(heads) * length * 64 * size_of::<f32>();
                assert!(
                    found <= packed + threads * FIXED,
                    "{threads} threads, {heads} heads of {length}: {found} bytes"
                );
            }
        }
    }
}

/// Half precision keeps converted keys and values, of 4 bytes each, or of 2 in pairs.
fn half_is_linear<T: Float>() {
    for threads in [1, 2] {
        for length in [1024, 2048, 4096] {
            let found = extra::<T>(&causal(), threads, [1, 3, length, 64]);
            let packed = threads * length * 2 * 64 * size_of::<f32>();
            assert!(
                found <= packed + threads * FIXED,
                "{:?}, {threads} threads, {length}: {found} bytes",
                T::DTYPE
            );
        }
    }
}

#[test]
fn memory_of_half_precision_is_linear_in_the_length() {
    let _turn = turn();
    half_is_linear::<f16>();
    half_is_linear::<bf16>();
}

/// B084: a small window takes no more than that, and no mask of all pairs (64 Mi entries).
#[test]
fn b084_a_window_builds_no_mask() {
    let _turn = turn();
    let attention = Attention {
        window: Some(Window {
            back: Some(15),
            forward: None,
        }),
        ..causal()
    };
    let length = 8192;
    let found = extra::<f32>(&attention, 1, [1, 1, length, 64]);
    assert!(found <= length * 64 * size_of::<f32>() + FIXED, "{found}");
}

/// B034: no buffer of weights (2.88 MB here) unless they are asked for.
#[test]
fn b034_no_weights_unless_asked_for() {
    let _turn = turn();
    let (heads, length, width) = (8, 300, 32);
    let found = extra::<f32>(&Attention::default(), 1, [1, heads, length, width]);
    assert!(found < FIXED && FIXED < heads * length * length * size_of::<f32>());

    // With them the result is the same.
    let data = numbers::<f32>(heads * length * width);
    let view = View::new(&data, &[1, heads, length, width]).unwrap();
    let inputs = Inputs::new(view, view, view).unwrap();
    let (attention, options) = (Attention::default(), options(1));
    let output = forward_with(&attention, &inputs, &options).unwrap().output;
    let weights = weights(&attention, &inputs, &options, &Part::all(&inputs)).unwrap();
    for h in 0..heads {
        for i in 0..length {
            for c in 0..width {
                let products = (0..length).map(|j| {
                    f64::from(weights.at(&[0, h, i, j])) * f64::from(view.get([0, h, j, c]))
                });
                let sum: f64 = products.sum();
                let error = (sum - f64::from(output.at(&[0, h, i, c]))).abs();
                assert!(error <= 1e-6, "{error}");
            }
        }
    }
}

/// B086: memory follows the tokens there are, not the most there may be.
#[test]
fn b086_memory_follows_the_tokens() {
    let _turn = turn();
    let mut cache = Cache::<f32>::new(1, 1, 64, 64);
    cache.reserve(32768);
    let data = numbers::<f32>(10 * 64);
    let tokens = View::new(&data, &[10, 64]).unwrap();
    cache.append(tokens, tokens).unwrap();
    let inputs = cache.inputs(tokens).unwrap();
    let found = measure(1, || forward_with(&causal(), &inputs, &options(1)).unwrap());
    assert!(found < FIXED, "{found}");
    // Before any token there is nothing.
    assert_eq!(Cache::<f32>::new(80, 64, 128, 128).capacity(), 0);
}

/// Room doubles when it is used up, contents stay where they were, in small memory and in memory
/// on large pages (from 8 MiB), and a clone is a cache of its own.
#[test]
fn a_cache_grows_and_keeps_what_it_holds() {
    let _turn = turn();
    let (heads, width) = (2, 32);
    let mut cache = Cache::<f32>::new(1, heads, width, 1);
    let token = |t: usize| (0..heads * width).map(move |n| (t * heads * width + n) as f32);
    let mut capacities = Vec::new();
    let tokens = 40_000; // keys of 2·32·4 bytes: 8 MiB are passed at 32,768
    for t in 0..tokens {
        let k: Vec<f32> = token(t).collect();
        let v = [t as f32, -(t as f32)];
        let k = View::new(&k, &[1, heads, 1, width]).unwrap();
        cache
            .append(k, View::new(&v, &[1, heads, 1, 1]).unwrap())
            .unwrap();
        if capacities.last() != Some(&cache.capacity()) {
            capacities.push(cache.capacity());
        }
    }
    assert!(
        capacities.windows(2).all(|pair| pair[1] == 2 * pair[0]),
        "{capacities:?}"
    );
    assert!(cache.capacity() >= tokens && cache.capacity() * heads * width * 4 > 8 << 20);
    let mut copy = cache.clone();
    copy.truncate(1);
    let other = numbers::<f32>(heads * width);
    let other = View::new(&other, &[1, heads, 1, width]).unwrap();
    copy.append(other, View::new(&[7.0, 8.0], &[1, heads, 1, 1]).unwrap())
        .unwrap();
    for t in 0..tokens {
        let mut expected = token(t);
        for h in 0..heads {
            let sign = if h == 0 { 1.0 } else { -1.0 };
            assert_eq!(cache.v().unwrap().get([0, h, t, 0]), sign * t as f32);
            for c in 0..width {
                let expected = expected.next().unwrap();
                assert_eq!(
                    cache.k().unwrap().get([0, h, t, c]),
                    expected,
                    "{h} {t} {c}"
                );
            }
        }
    }
    assert_eq!((copy.len(), copy.v().unwrap().get([0, 1, 1, 0])), (2, 8.0));
    assert_eq!(
        copy.k().unwrap().get([0, 1, 0, 3]),
        token(0).nth(width + 3).unwrap()
    );
}

/// Weights of a few rows of a long input take these rows.
#[test]
fn weights_of_a_few_rows_take_these_rows() {
    let _turn = turn();
    let length = 131_072;
    let data = numbers::<f32>(length * 8);
    let view = View::new(&data, &[length, 8]).unwrap();
    let inputs = Inputs::new(view, view, view).unwrap();
    let part = Part {
        queries: length - 3..length,
        ..Part::all(&inputs)
    };
    let found = measure(1, || {
        weights(&causal(), &inputs, &options(1), &part).unwrap()
    });
    let rows = 3 * length * size_of::<f32>();
    assert!(found >= rows && found <= rows + FIXED, "{found}");
}

/// A mask of one row for all is not copied for each row, nor for each head.
#[test]
fn broadcast_masks_stay_as_they_are() {
    let _turn = turn();
    let (heads, length) = (4, 2048);
    let keep: Vec<bool> = (0..length).map(|j| j % 3 > 0).collect();
    let attention = Attention {
        masks: vec![Mask::keep(View::new(&keep, &[1, length]).unwrap())],
        ..Attention::default()
    };
    let with = extra::<f32>(&attention, 1, [1, heads, length, 64]);
    let without = extra::<f32>(&Attention::default(), 1, [1, heads, length, 64]);
    assert!(with <= without + 64 * length, "{with} {without}");
}

/// One query against a long cache: the sums of each chunk of keys, at most.
#[test]
fn decoding_takes_the_sums_of_chunks() {
    let _turn = turn();
    let keys = 16384;
    let data = numbers::<f32>(keys * 64);
    let long = View::new(&data, &[keys, 64]).unwrap();
    let one = View::new(&data[..64], &[1, 64]).unwrap();
    let inputs = Inputs::new(one, long, long).unwrap();
    for threads in [1, 2] {
        let attention = Attention::default();
        let found = measure(threads, || {
            forward_with(&attention, &inputs, &options(threads)).unwrap()
        });
        assert!(found <= threads * FIXED, "{found}");
    }
}

/// A small call allocates its result and nothing else, once its thread has worked before.
#[test]
fn a_small_call_allocates_its_result_only() {
    let _turn = turn();
    let data = numbers::<f32>(4 * 16 * 32);
    let view = View::new(&data, &[1, 4, 16, 32]).unwrap();
    let inputs = Inputs::new(view, view, view).unwrap();
    let attention = Attention::default();
    let mut least = usize::MAX;
    for _ in 0..1000 {
        let before = CALLS.load(Relaxed);
        let result = forward_with(&attention, &inputs, &options(1)).unwrap();
        // What runs the tests may allocate meanwhile, on a thread of its own.
        least = least.min(CALLS.load(Relaxed) - before);
        drop(result);
    }
    // Numbers of output and of lse.
    assert_eq!(least, 2);
}

/// Bytes beyond the gradients that the backward pass takes for self-attention of one head a group.
fn extra_backward<T: Float>(attention: &Attention<'_>, threads: usize, shape: [usize; 4]) -> usize {
    let data = numbers::<T>(shape.iter().product());
    let view = View::new(&data, &shape).unwrap();
    let inputs = Inputs::new(view, view, view).unwrap();
    let options = options(threads);
    let output = forward_with(attention, &inputs, &options).unwrap();
    let saved = Saved::new(&output).unwrap();
    let mut gradients = backward(attention, &inputs, saved, view, &options).unwrap();
    let gradients = Mutex::new(&mut gradients);
    measure(threads, || {
        let mut gradients = gradients.lock().unwrap();
        let to = GradientsMut::new(&mut gradients, Store::Replace).unwrap();
        backward_into(attention, &inputs, saved, view, &options, to).unwrap();
    })
}

/// What a thread holds in the backward pass whatever the length: scores and their gradients of 96
/// queries × 272 keys, sums, packed keys and values of 256 keys, 64 wide: 209 + 262 kB, and lists.
const FIXED_BACKWARD: usize = 1 << 20;

/// Bytes that the backward pass may hold: three numbers for each row, lists of blocks, and the sums of
/// the queries of a head that is not done: a thread's own head each, or all heads where threads share
/// one.
fn linear_backward([_, heads, length, width]: [usize; 4], threads: usize) -> usize {
    heads * length * (width + 3) * size_of::<f32>() + threads * FIXED_BACKWARD
}

#[test]
fn memory_of_the_backward_pass_is_linear_in_the_length() {
    let _turn = turn();
    for attention in [causal(), Attention::default()] {
        for threads in [1, 2] {
            for heads in [1, 3] {
                for length in [1024, 2048, 4096] {
                    let shape = [1, heads, length, 64];
                    let found = extra_backward::<f32>(&attention, threads, shape);
                    assert!(
                        found <= linear_backward(shape, threads),
                        "{threads} threads, {heads} heads of {length}: {found} bytes"
                    );
                }
            }
        }
    }
}

/// In a window only the sums of the queries that see some of a block of keys are held at a time.
#[test]
fn memory_of_the_backward_pass_of_a_window_is_that_of_its_queries() {
    let _turn = turn();
    let back = 511;
    let attention = Attention {
        window: Some(Window {
            back: Some(back),
            forward: None,
        }),
        ..causal()
    };
    let length = 8192;
    let found = extra_backward::<f32>(&attention, 1, [1, 1, length, 64]);
    // Of the queries that see some of 256 keys, and of a block of queries at each end; and what a
    // list has of each block of 96.
    let sums = (back + 256 + 2 * 96) * 64 * size_of::<f32>();
    let rows = length * 3 * size_of::<f32>() + length.div_ceil(96) * 256;
    assert!(found <= sums + rows + FIXED_BACKWARD, "{found}");
    assert!(sums + rows + FIXED_BACKWARD < length * 64 * size_of::<f32>());
}

/// Besides that, half precision has copies of five arrays in single precision, and of three gradients.
fn half_backward_is_linear<T: Float>() {
    for threads in [1, 2] {
        for length in [1024, 2048, 4096] {
            let found = extra_backward::<T>(&causal(), threads, [1, 3, length, 64]);
            let arrays = 9 * 3 * length * 64 * size_of::<f32>();
            let rows = 3 * length * 3 * size_of::<f32>();
            assert!(
                found <= arrays + rows + threads * FIXED_BACKWARD,
                "{:?}, {threads} threads, {length}: {found} bytes",
                T::DTYPE
            );
        }
    }
}

#[test]
fn memory_of_the_backward_pass_of_half_precision_is_linear_in_the_length() {
    let _turn = turn();
    half_backward_is_linear::<f16>();
    half_backward_is_linear::<bf16>();
}

/// What the figures of long inputs are.
#[test]
#[ignore = "a few seconds in release; prints figures"]
fn figures_of_long_inputs() {
    let _turn = turn();
    let window = Attention {
        window: Some(Window {
            back: Some(511),
            forward: None,
        }),
        ..causal()
    };
    // In the backward pass the sums of a query are held from the first block of keys that it sees to
    // the last: of all queries at a time where the first keys are seen by all (causal), of some in a
    // window. Both are linear; the longest has its own test.
    for (name, attention, lengths) in [
        ("causal", causal(), &[4096, 8192, 16_384][..]),
        ("window 512", window, &[16_384, 32_768, 65_536, 131_072]),
    ] {
        for &length in lengths {
            for threads in [1, 2] {
                let place = format!("{name} L {length}, {threads} threads");
                figures::<f32>(&place, &attention, threads, length);
                figures::<bf16>(&place, &attention, threads, length);
                figures::<f16>(&place, &attention, threads, length);
            }
        }
    }
}

/// Causal attention holds the sums of all queries: no more a key for 131,072 keys than for 4,096.
#[test]
#[ignore = "some minutes in release on one thread"]
fn memory_of_the_backward_pass_of_a_very_long_input() {
    let _turn = turn();
    for length in [4096, 131_072] {
        let found = extra_backward::<f32>(&causal(), 1, [1, 1, length, 64]);
        println!(
            "{length}: {found} bytes, {:.1} a key",
            found as f64 / length as f64
        );
        assert!(
            found <= linear_backward([1, 1, length, 64], 1),
            "{length}: {found} bytes"
        );
    }
}

fn figures<T: Float>(place: &str, attention: &Attention<'_>, threads: usize, length: usize) {
    let shape = [1, 1, length, 64];
    for (pass, found) in [
        ("forward", extra::<T>(attention, threads, shape)),
        ("backward", extra_backward::<T>(attention, threads, shape)),
    ] {
        println!(
            "{:?} {pass} {place}: {found} bytes beyond the result, {:.1} a key; {}",
            T::DTYPE,
            found as f64 / length as f64,
            high_water()
        );
    }
}

/// The process's own account, where there is one.
fn high_water() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM"));
    line.unwrap_or_default().to_owned()
}
