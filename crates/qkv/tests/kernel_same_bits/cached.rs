//! Prefill in pieces, then token by token, equals one shot.

use super::parts::{cut_masks, draw_apart, some_queries};
use super::support::{Array, Call, Gap, Layout, Random, isas, options, times};
use super::{Pair, memory::join, same_row};
use half::{bf16, f16};
use qkv::{Attention, Cache, Causal, Float, Inputs, Isa, forward_with};

/// The call with its first keys only, some of them cached.
fn first_keys(call: &Call, end: usize, cached: usize) -> Call {
    let all = call.keys();
    let mut part = call.clone();
    let (k, v) = match &call.past {
        Some((k, v)) => (join(k, &call.k), join(v, &call.v)),
        None => (call.k.clone(), call.v.clone()),
    };
    part.past = Some((k.part(2, 0, cached, 1), v.part(2, 0, cached, 1)));
    part.k = k.part(2, cached, end, 1);
    part.v = v.part(2, cached, end, 1);
    if let Some(lengths) = &mut part.lengths {
        lengths
            .iter_mut()
            .for_each(|length| *length = end.min(*length));
    }
    cut_masks(&mut part, 3, (0, end), all);
    part
}

/// Each piece has the keys that it may see, the earlier of them cached.
#[test]
fn pieces_of_a_prefill_equal_one_shot() {
    let mut random = Random::new(20);
    let mut done = 0;
    while done < times(100) {
        let whole = draw_apart(&mut random);
        let (queries, keys) = (whole.q.shape[2], whole.keys());
        let offset = match whole.causal {
            Some(Causal::BottomRight) => keys as i64 - queries as i64,
            Some(Causal::Offset(offset)) => offset,
            Some(_) => 0,
            None => continue,
        };
        done += 1;
        let mut from = 0;
        while from < queries {
            let most = random.pick(&[1, 40, queries]).min(queries - from);
            let to = from + 1 + random.below(most);
            let end = (to as i64).saturating_add(offset).clamp(0, keys as i64) as usize;
            let part = some_queries(&whole, from, to);
            Pair {
                part: first_keys(&part, end, random.below(end + 1)),
                whole: whole.clone(),
                layouts: Call::layouts(&mut random),
                first: [0, 0, from],
            }
            .check();
            from = if random.chance(3) { to } else { queries };
        }
    }
}

fn part<T: Gap>(array: &Array<T>, from: usize, to: usize) -> Array<T> {
    array.part(2, from, to, 1)
}

/// Over several chunks, with a cache that grows.
#[test]
fn a_growing_cache_equals_one_shot() {
    for isa in isas() {
        // Grouped heads are computed together; a query of a head of its own is all alone.
        for (heads, kv_heads) in [(4, 2), (1, 1)] {
            growing_cache::<f32>(isa, heads, kv_heads);
            growing_cache::<f64>(isa, heads, kv_heads);
            growing_cache::<bf16>(isa, heads, kv_heads);
        }
    }
}

/// Each of them sees other keys, and they are too few for keys and values to be laid out.
#[test]
fn the_last_queries_equal_each_alone() {
    for isa in isas() {
        last_queries::<f32>(isa);
        last_queries::<f16>(isa);
        last_queries::<bf16>(isa);
    }
}

fn last_queries<T: Float + Gap + Default>(isa: Isa) {
    let mut random = Random::new(31);
    let attention = Attention {
        causal: Some(Causal::BottomRight),
        ..Attention::default()
    };
    let options = options(isa, 1);
    for keys in 257..257 + times(40) {
        let (count, d_k, d_v) = (random.below(8) + 1, 7, 18);
        let mut array = |length, width| {
            let shape = [1, 1, length, width];
            Array::new(shape, Layout::Plain, |_| T::from_f64(random.normal()))
        };
        let (q, k, v) = (array(count, d_k), array(keys, d_k), array(keys, d_v));
        let inputs = Inputs::new(q.view(), k.view(), v.view()).unwrap();
        let all = forward_with(&attention, &inputs, &options).unwrap();
        for i in 0..count {
            let seen = keys + 1 + i - count;
            let (q, k, v) = (part(&q, i, i + 1), part(&k, 0, seen), part(&v, 0, seen));
            let inputs = Inputs::new(q.view(), k.view(), v.view()).unwrap();
            let alone = forward_with(&attention, &inputs, &options).unwrap();
            let at = [0, 0, i];
            assert!(
                same_row(&all, at, &alone, [0; 3]),
                "{isa:?} {:?} query {i} of {count}, {keys} keys",
                T::DTYPE
            );
        }
    }
}

fn growing_cache<T: Float + Gap + Default>(isa: Isa, heads: usize, kv_heads: usize) {
    let mut random = Random::new(15);
    let (length, d_k, d_v) = (2300, 20, 24);
    let mut array = |heads, width| {
        let shape = [1, heads, length, width];
        Array::new(shape, Layout::Plain, |_| T::from_f64(random.normal()))
    };
    let (q, k, v) = (
        array(heads, d_k),
        array(kv_heads, d_k),
        array(kv_heads, d_v),
    );
    let attention = Attention {
        causal: Some(Causal::BottomRight),
        ..Attention::default()
    };
    let options = options(isa, 2);
    let inputs = Inputs::new(q.view(), k.view(), v.view()).unwrap();
    let whole = forward_with(&attention, &inputs, &options).unwrap();
    let mut cache = Cache::new(1, kv_heads, d_k, d_v);
    let mut from = 0;
    for to in [1, 2, 100, 611, 2043, 2044, 2050, 2051, 2300] {
        let (new_k, new_v) = (part(&k, from, to), part(&v, from, to));
        cache.append(new_k.view(), new_v.view()).unwrap();
        let new = part(&q, from, to);
        let inputs = cache.inputs(new.view()).unwrap();
        let found = forward_with(&attention, &inputs, &options).unwrap();
        for h in 0..heads {
            for i in from..to {
                assert!(
                    same_row(&whole, [0, h, i], &found, [0, h, i - from]),
                    "{isa:?} {:?} head {h} query {i} of {from}..{to}",
                    T::DTYPE
                );
            }
        }
        from = to;
    }
}
