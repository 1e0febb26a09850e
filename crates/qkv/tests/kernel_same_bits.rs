//! For one instruction set a row has the same bits whatever else is in the call.
#![allow(clippy::unwrap_used)]

mod support;

use qkv::{
    Attention, Cache, Causal, Float, Inputs, Isa, Options, Output, View, ViewMut, forward_into,
    forward_with,
};
use std::num::NonZeroUsize;
use support::{Array, Call, LAYOUTS, Layout, Random, same_bits};

fn isas() -> impl Iterator<Item = Isa> {
    Isa::ALL.into_iter().filter(|isa| isa.available())
}

fn options(isa: Isa, threads: usize) -> Options {
    Options {
        isa: Some(isa),
        threads: NonZeroUsize::new(threads),
    }
}

fn compute<T: Float + Default>(call: &Call, layouts: [Layout; 3], isa: Isa) -> Output<T> {
    let typed = call.typed::<T>(layouts);
    forward_with(&call.attention(&typed), &typed.inputs(), &options(isa, 1)).unwrap()
}

/// Whether row `[b, h, i]` of one result is row `[b2, h2, i2]` of another.
fn same_row<T: Float>(a: &Output<T>, at: [usize; 3], b: &Output<T>, at_b: [usize; 3]) -> bool {
    same_bits(a.output.row(&at), b.output.row(&at_b))
        && same_bits(&[a.lse.at(&at)], &[b.lse.at(&at_b)])
}

/// The same call with some of the queries only, at the places that they had.
fn some_queries(call: &Call, from: usize, to: usize) -> Call {
    let mut part = call.clone();
    let [b, h, queries, d] = call.q.shape;
    let keys = call.k.shape[2] + call.past.as_ref().map_or(0, |(k, _)| k.shape[2]);
    part.q = Array::new([b, h, to - from, d], Layout::Plain, |[b, h, i, c]| {
        call.q.get([b, h, from + i, c])
    });
    part.causal = call.causal.map(|causal| match causal {
        Causal::BottomRight => Causal::Offset(from as i64 + keys as i64 - queries as i64),
        Causal::Offset(offset) => Causal::Offset(from as i64 + offset),
        _ => Causal::Offset(from as i64),
    });
    for (mask, _) in &mut part.masks {
        *mask = rows_of(mask, from, to);
    }
    part.bias = part.bias.map(|bias| rows_of(&bias, from, to));
    part
}

fn rows_of<T: Copy + Default>(array: &Array<T>, from: usize, to: usize) -> Array<T> {
    if array.shape[2] == 1 {
        return array.clone();
    }
    let [b, h, _, k] = array.shape;
    Array::new([b, h, to - from, k], Layout::Plain, |[b, h, i, j]| {
        array.get([b, h, from + i, j])
    })
}

#[test]
fn some_queries_alone_equal_the_same_among_all() {
    let mut random = Random(11);
    for _ in 0..300 {
        let mut call = Call::random(&mut random);
        call.documents = None;
        call.dropout = None;
        if call.causal == Some(Causal::BottomRight) && call.lengths.is_some() {
            call.lengths = None; // the place of a query then depends on the batch entry
        }
        if call.causal.is_none() {
            // Places go by the last query then.
            call.window = None;
            call.alibi = None;
        }
        let queries = call.q.shape[2];
        if queries == 0 {
            continue;
        }
        let from = random.below(queries);
        let most = random.pick(&[1, queries - from]);
        let to = from + 1 + random.below(most);
        let part = some_queries(&call, from, to);
        for isa in isas() {
            let all = compute::<f32>(&call, [Layout::Plain; 3], isa);
            let some = compute::<f32>(&part, [Layout::Plain; 3], isa);
            for b in 0..call.q.shape[0] {
                for h in 0..call.q.shape[1] {
                    for i in from..to {
                        assert!(
                            same_row(&all, [b, h, i], &some, [b, h, i - from]),
                            "{isa:?} [{b}, {h}, {i}] of {from}..{to}: {}",
                            call.describe()
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn layouts_and_cached_keys_change_no_bit() {
    let mut random = Random(12);
    for _ in 0..200 {
        let call = Call::random(&mut random);
        let layouts = std::array::from_fn(|_| random.pick(&LAYOUTS));
        let mut joined = call.clone();
        if let Some((k, v)) = joined.past.take() {
            joined.k = join(&k, &call.k);
            joined.v = join(&v, &call.v);
        }
        for isa in isas() {
            let plain = compute::<f32>(&call, [Layout::Plain; 3], isa);
            let strided = compute::<f32>(&call, layouts, isa);
            let whole = compute::<f32>(&joined, [Layout::Plain; 3], isa);
            for other in [strided, whole] {
                assert!(
                    same_bits(plain.output.data(), other.output.data())
                        && same_bits(plain.lse.data(), other.lse.data()),
                    "{isa:?} {layouts:?} {}",
                    call.describe()
                );
            }
        }
    }
}

fn join(a: &Array<f64>, b: &Array<f64>) -> Array<f64> {
    let [batch, heads, first, width] = a.shape;
    Array::new(
        [batch, heads, first + b.shape[2], width],
        Layout::Plain,
        |[n, h, j, c]| {
            if j < first {
                a.get([n, h, j, c])
            } else {
                b.get([n, h, j - first, c])
            }
        },
    )
}

#[test]
fn batch_neighbours_change_no_bit() {
    let mut random = Random(13);
    for _ in 0..150 {
        let mut call = Call::random(&mut random);
        call.dropout = None;
        let b = random.below(call.q.shape[0]);
        let one = |array: &Array<f64>| only_batch(array, b);
        let mut alone = call.clone();
        alone.q = one(&call.q);
        alone.k = one(&call.k);
        alone.v = one(&call.v);
        alone.past = call.past.as_ref().map(|(k, v)| (one(k), one(v)));
        alone.bias = call.bias.as_ref().map(one);
        alone.lengths = call.lengths.as_ref().map(|lengths| vec![lengths[b]]);
        for (mask, _) in &mut alone.masks {
            *mask = only_batch(mask, b);
        }
        for isa in isas() {
            let all = compute::<f32>(&call, [Layout::Plain; 3], isa);
            let found = compute::<f32>(&alone, [Layout::Plain; 3], isa);
            let length = found.output.data().len();
            assert!(
                same_bits(
                    &all.output.data()[b * length..][..length],
                    found.output.data()
                ),
                "{isa:?} entry {b}: {}",
                call.describe()
            );
        }
    }
}

fn only_batch<T: Copy + Default>(array: &Array<T>, b: usize) -> Array<T> {
    let [batch, h, l, d] = array.shape;
    let b = if batch == 1 { 0 } else { b };
    Array::new([1, h, l, d], Layout::Plain, |[_, h, l, d]| {
        array.get([b, h, l, d])
    })
}

/// Calls large enough to be shared out, in every way that there is.
fn large(random: &mut Random) -> Vec<Call> {
    let mut calls = Vec::new();
    // B, H, H_kv, L_q, L_k, d_k, d_v
    for (shape, causal) in [
        ([1, 4, 2, 300, 300, 33, 20], true),  // waves of heads
        ([3, 4, 4, 130, 170, 16, 40], false), // head by head
        ([1, 3, 1, 1, 9000, 64, 48], false),  // chunks of keys
        ([2, 2, 1, 3, 5000, 40, 64], true),   // chunks of keys, several queries
        ([16, 4, 2, 1, 700, 32, 32], false),  // boxes without packing
        ([1, 2, 1, 500, 2500, 24, 24], true), // several chunks in one block
    ] {
        let [b, h, h_kv, l_q, l_k, d_k, d_v] = shape;
        let mut call = Call::random(random);
        let mut array = |shape| Array::new(shape, Layout::Plain, |_| random.normal());
        call.q = array([b, h, l_q, d_k]);
        call.k = array([b, h_kv, l_k, d_k]);
        call.v = array([b, h_kv, l_k, d_v]);
        call.past = None;
        call.bias = None;
        call.alibi = None;
        call.masks.clear();
        call.lengths = None;
        call.documents = None;
        call.sinks = None;
        call.window = None;
        call.causal = causal.then_some(Causal::BottomRight);
        calls.push(call.clone());
        call.documents = Some((vec![l_q / 3, l_q - l_q / 3], vec![l_k / 3, l_k - l_k / 3]));
        calls.push(call);
    }
    calls
}

#[test]
fn threads_change_no_bit() {
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(3)
        .build()
        .unwrap();
    for call in large(&mut Random(14)) {
        let typed = call.typed::<f32>([Layout::Plain; 3]);
        let (attention, inputs) = (call.attention(&typed), typed.inputs());
        for isa in isas().filter(|&isa| isa != Isa::Portable) {
            let one = forward_with(&attention, &inputs, &options(isa, 1)).unwrap();
            for threads in [2, 3] {
                for _ in 0..3 {
                    let many = pool.install(|| {
                        forward_with(&attention, &inputs, &options(isa, threads)).unwrap()
                    });
                    assert!(
                        same_bits(one.output.data(), many.output.data())
                            && same_bits(one.lse.data(), many.lse.data())
                            && one.empty_rows == many.empty_rows,
                        "{isa:?}, {threads} threads: {}",
                        call.describe()
                    );
                }
            }
        }
    }
}

/// Prefill in pieces, then token by token, equals one shot.
#[test]
fn chunked_prefill_and_decoding_equal_one_shot() {
    let mut random = Random(15);
    let (heads, kv_heads, length, d_k, d_v) = (4, 2, 2300, 20, 24);
    let q = Array::new([1, heads, length, d_k], Layout::Plain, |_| {
        random.normal() as f32
    });
    let k = Array::new([1, kv_heads, length, d_k], Layout::Plain, |_| {
        random.normal() as f32
    });
    let v = Array::new([1, kv_heads, length, d_v], Layout::Plain, |_| {
        random.normal() as f32
    });
    let attention = Attention {
        causal: Some(Causal::BottomRight),
        ..Attention::default()
    };
    let part = |array: &Array<f32>, from: usize, to: usize| -> Array<f32> {
        let [b, h, _, d] = array.shape;
        Array::new([b, h, to - from, d], Layout::Plain, |[b, h, i, c]| {
            array.get([b, h, from + i, c])
        })
    };
    for isa in isas().filter(|&isa| isa != Isa::Portable) {
        let options = options(isa, 2);
        let inputs = Inputs::new(q.view(), k.view(), v.view()).unwrap();
        let whole = forward_with(&attention, &inputs, &options).unwrap();
        let mut cache = Cache::new(1, kv_heads, d_k, d_v);
        let mut from = 0;
        for to in [1, 2, 100, 611, 2043, 2044, 2050, 2051, 2300] {
            cache
                .append(part(&k, from, to).view(), part(&v, from, to).view())
                .unwrap();
            let new = part(&q, from, to);
            let inputs = cache.inputs(new.view()).unwrap();
            let found = forward_with(&attention, &inputs, &options).unwrap();
            for h in 0..heads {
                for i in from..to {
                    assert!(
                        same_row(&whole, [0, h, i], &found, [0, h, i - from]),
                        "{isa:?} head {h} query {i} of {from}..{to}"
                    );
                }
            }
            from = to;
        }
    }
}

/// The output may be of either layout, with gaps, and what lies between is left alone.
#[test]
fn strided_output_is_written_in_place() {
    let mut random = Random(16);
    for _ in 0..30 {
        let call = Call::random(&mut random);
        let typed = call.typed::<f32>([Layout::Plain; 3]);
        let (attention, inputs) = (call.attention(&typed), typed.inputs());
        let [b, h, l, _] = call.q.shape;
        let shape = [b, h, l, call.v.shape[3]];
        let expected = forward_with(&attention, &inputs, &options(Isa::Portable, 1)).unwrap();
        for layout in LAYOUTS {
            let mut target = Array::new(shape, layout, |_| 0.0_f32);
            target.data.fill(7.0);
            let view =
                ViewMut::strided(&mut target.data, target.offset, shape, target.strides).unwrap();
            let rows = forward_into(&attention, &inputs, &options(Isa::Portable, 1), view).unwrap();
            let values = Array::new(shape, Layout::Plain, |index| target.get(index));
            let count = expected.output.data().len();
            assert!(
                same_bits(&values.data[..count], expected.output.data()),
                "{layout:?}"
            );
            assert!(same_bits(rows.lse.data(), expected.lse.data()));
            let left = target.data.iter().filter(|&&x| x == 7.0).count();
            assert!(left >= target.data.len() - count, "{layout:?}");
        }
    }
}

/// B070: views of the same numbers, transposed, with gaps and reversed.
#[test]
fn b070_strided_views_equal_contiguous() {
    let mut random = Random(17);
    let plain = Array::new([2, 3, 50, 9], Layout::Plain, |_| random.normal() as f32);
    let attention = Attention::default();
    let compute = |array: &Array<f32>, isa| {
        let inputs = Inputs::new(array.view(), array.view(), array.view()).unwrap();
        forward_with(&attention, &inputs, &options(isa, 1)).unwrap()
    };
    for isa in isas() {
        let expected = compute(&plain, isa);
        for layout in LAYOUTS {
            let found = compute(&plain.map(layout, |x| x), isa);
            assert!(
                same_bits(expected.output.data(), found.output.data()),
                "{isa:?} {layout:?}"
            );
        }
    }
}

/// B097: a row alone and in batches of 2 to 64.
#[test]
fn b097_a_row_alone_and_in_batches() {
    let mut random = Random(18);
    let (heads, length, width) = (2, 40, 24);
    let data: Vec<f32> = (0..64 * heads * length * width)
        .map(|_| random.normal() as f32)
        .collect();
    let compute = |batch: usize| {
        let count = batch * heads * length * width;
        let view = View::new(&data[..count], &[batch, heads, length, width]).unwrap();
        let inputs = Inputs::new(view, view, view).unwrap();
        forward_with(&Attention::default(), &inputs, &Options::default()).unwrap()
    };
    let alone = compute(1);
    let row = alone.output.data();
    for batch in [2, 3, 8, 64] {
        assert!(
            same_bits(row, &compute(batch).output.data()[..row.len()]),
            "{batch}"
        );
    }
}
