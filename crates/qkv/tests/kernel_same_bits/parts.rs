//! Rows of a part of a call.

use super::support::{Array, Call, Gap, LAYOUTS, Layout, Random, times};
use super::{Pair, draw};
use qkv::{Attention, Causal, Inputs, Options, View, forward_with};

/// What the call has for indices `from..to` of an axis of the scores.
fn cut<T: Gap>(array: &Array<T>, axis: usize, (from, to): (usize, usize), of: usize) -> Array<T> {
    array.part(axis, from, to, of)
}

/// Masks and bias for indices `range` of an axis of the scores, of which there are `of`.
pub fn cut_masks(call: &mut Call, axis: usize, range: (usize, usize), of: usize) {
    for (mask, _) in &mut call.masks {
        *mask = cut(mask, axis, range, of);
    }
    if let Some(bias) = &mut call.bias {
        *bias = cut(bias, axis, range, of);
    }
}

/// The call with one batch entry only.
fn only_batch(call: &Call, b: usize) -> Call {
    let (of, range) = (call.q.shape[0], (b, b + 1));
    let mut part = call.clone();
    for array in [&mut part.q, &mut part.k, &mut part.v] {
        *array = cut(array, 0, range, of);
    }
    if let Some((k, v)) = &mut part.past {
        (*k, *v) = (cut(k, 0, range, of), cut(v, 0, range, of));
    }
    part.lengths = call.lengths.as_ref().map(|lengths| vec![lengths[b]]);
    cut_masks(&mut part, 0, range, of);
    part
}

/// The call with one query head only.
fn only_head(call: &Call, h: usize) -> Call {
    let (heads, kv_heads) = (call.q.shape[1], call.k.shape[1]);
    let g = h / (heads / kv_heads);
    let mut part = call.clone();
    part.q = cut(&part.q, 1, (h, h + 1), heads);
    part.k = cut(&part.k, 1, (g, g + 1), kv_heads);
    part.v = cut(&part.v, 1, (g, g + 1), kv_heads);
    if let Some((k, v)) = &mut part.past {
        *k = cut(k, 1, (g, g + 1), kv_heads);
        *v = cut(v, 1, (g, g + 1), kv_heads);
    }
    part.alibi = call.alibi.as_ref().map(|slopes| vec![slopes[h]]);
    part.sinks = call.sinks.as_ref().map(|sinks| vec![sinks[h]]);
    cut_masks(&mut part, 1, (h, h + 1), heads);
    part
}

/// The call with some of the queries only, at the places that they had.
pub fn some_queries(call: &Call, from: usize, to: usize) -> Call {
    let (queries, keys) = (call.q.shape[2], call.keys());
    let mut part = call.clone();
    part.q = cut(&part.q, 2, (from, to), queries);
    let moved = match call.causal {
        Some(Causal::BottomRight) => keys as i64 - queries as i64,
        Some(Causal::Offset(offset)) => offset,
        _ => 0,
    };
    let offset = Causal::Offset(moved.saturating_add(from as i64));
    part.causal = call.causal.map(|_| offset);
    cut_masks(&mut part, 2, (from, to), queries);
    part
}

/// A random call in which queries can be taken apart: each has its place by itself.
pub fn draw_apart(random: &mut Random) -> Call {
    let mut call = draw(random);
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
    // No sum is exact that far out, and −(i + offset) would not be the same number.
    if let Some(Causal::Offset(i64::MIN | i64::MAX)) = call.causal {
        call.causal = Some(Causal::TopLeft);
    }
    call
}

#[test]
fn some_queries_equal_the_same_among_all() {
    let mut random = Random::new(11);
    for _ in 0..times(150) {
        let whole = draw_apart(&mut random);
        let queries = whole.q.shape[2];
        if queries == 0 {
            continue;
        }
        let from = random.below(queries);
        let most = random.pick(&[1, queries - from]);
        Pair {
            part: some_queries(&whole, from, from + 1 + random.below(most)),
            whole,
            layouts: Call::layouts(&mut random),
            first: [0, 0, from],
        }
        .check();
    }
}

#[test]
fn a_batch_entry_or_a_head_alone_equals_the_same_among_all() {
    let mut random = Random::new(13);
    for _ in 0..times(150) {
        let mut whole = draw(&mut random);
        whole.dropout = None;
        let mut part = whole.clone();
        let mut first = [0; 3];
        if random.chance(2) {
            first[0] = random.below(whole.q.shape[0]);
            part = only_batch(&part, first[0]);
        }
        if random.chance(2) {
            first[1] = random.below(whole.q.shape[1]);
            part = only_head(&part, first[1]);
        }
        Pair {
            whole,
            part,
            layouts: [Layout::Plain; 3],
            first,
        }
        .check();
    }
}

#[test]
fn a_document_alone_equals_the_same_among_others() {
    let mut random = Random::new(19);
    let mut done = 0;
    while done < times(60) {
        let mut whole = draw(&mut random);
        whole.dropout = None;
        let Some((of_queries, of_keys)) = whole.documents.clone() else {
            continue;
        };
        done += 1;
        let which = random.below(of_queries.len());
        let range = |lengths: &[usize]| {
            let from: usize = lengths[..which].iter().sum();
            (from, from + lengths[which])
        };
        let (queries, keys) = (range(&of_queries), range(&of_keys));
        let mut part = whole.clone();
        part.documents = None;
        part.q = cut(&part.q, 2, queries, usize::MAX);
        let all_keys = |past: Option<&Array<f64>>, new: &Array<f64>| match past {
            Some(past) => super::memory::join(past, new),
            None => new.clone(),
        };
        let past = whole.past.as_ref();
        part.past = None;
        part.k = all_keys(past.map(|(k, _)| k), &whole.k).part(2, keys.0, keys.1, 1);
        part.v = all_keys(past.map(|(_, v)| v), &whole.v).part(2, keys.0, keys.1, 1);
        part.q = whole.q.part(2, queries.0, queries.1, 1);
        if let Some(lengths) = &mut part.lengths {
            for length in lengths {
                *length = (*length).clamp(keys.0, keys.1) - keys.0;
            }
        }
        cut_masks(&mut part, 2, queries, whole.q.shape[2]);
        cut_masks(&mut part, 3, keys, whole.keys());
        Pair {
            whole,
            part,
            layouts: [Layout::Plain; 3],
            first: [0, 0, queries.0],
        }
        .check();
    }
}

/// B097: a row alone and in batches of 2 to 64.
#[test]
fn b097_a_row_alone_and_in_batches() {
    let mut random = Random::new(18);
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
        let found = compute(batch);
        assert!(
            super::same_bits(row, &found.output.data()[..row.len()]),
            "{batch}"
        );
    }
}

/// Calls small enough for ways of their own, one score at a time or by a tile, against the stages,
/// which are taken where there is a mask, even of nothing.
#[test]
fn a_small_call_equals_the_same_by_stages() {
    let mut random = Random::new(23);
    for n in 0..times(40) {
        let (h, group) = (1 + random.below(2), 1 + random.below(2));
        let (most_queries, most_columns, rare) = match n % 2 {
            0 => (4, 20, 300),
            _ => (17, 70, 3000),
        };
        let (l_q, l_k) = (1 + random.below(most_queries), 1 + random.below(17));
        let (d_k, d_v) = (
            1 + random.below(most_columns),
            1 + random.below(most_columns),
        );
        let mut array = |shape| {
            Array::new(shape, Layout::Plain, |_| match random.below(rare) {
                0 => f64::NEG_INFINITY,
                1 => f64::NAN,
                2 => 0.0,
                _ => random.normal(),
            })
        };
        let q = array([3, h * group, l_q, d_k]);
        let (k, v) = (array([3, h, l_k, d_k]), array([3, h, l_k, d_v]));
        let small = Call::plain(q, k, v);
        let mut whole = small.clone();
        let all = Array::new([1, 1, l_q, l_k], Layout::Plain, |_| true);
        whole.masks.push((all, true));
        for b in [0, 2] {
            Pair {
                part: only_batch(&small, b),
                layouts: [random.pick(&LAYOUTS); 3],
                first: [b, 0, 0],
                whole: whole.clone(),
            }
            .check();
        }
    }
}
