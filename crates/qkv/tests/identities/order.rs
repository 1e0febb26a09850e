//! Keys, queries, heads and batch entries in another order, in parts, in another layout.

use crate::common::*;
use crate::*;
use qkv::{Causal, Dropout, Inputs, Sinks, View, definition};

#[test]
fn permuted_keys_change_nothing() {
    for_cases(1, 400, without_positions, |case, rng| {
        let order = rng.shuffled(case.lk);
        let mut permuted = regathered(case, case.scores(), |[b, h, i, j]| [b, h, i, order[j]]);
        permuted.k = rows_from(&case.k, case.lk, case.dk, &order);
        permuted.v = rows_from(&case.v, case.lk, case.dv, &order);
        let bound = bound(case, 1, 0.0);
        assert_results_near(&permuted.forward(), &case.forward(), bound, case);
    });
}

#[test]
fn permuted_queries_permute_the_rows() {
    for_cases(2, 400, without_positions, |case, rng| {
        let order = rng.shuffled(case.lq);
        let mut permuted = regathered(case, case.scores(), |[b, h, i, j]| [b, h, order[i], j]);
        permuted.q = rows_from(&case.q, case.lq, case.dk, &order);
        let (found, whole) = (permuted.forward(), case.forward());
        let output = rows_from(whole.output.data(), case.lq, case.dv, &order);
        assert_bits(found.output.data(), &output, case);
        let lse = rows_from(whole.lse.data(), case.lq, 1, &order);
        assert_bits(found.lse.data(), &lse, case);
    });
}

#[test]
fn permuted_heads_and_batch_entries_permute_the_result() {
    for_cases(3, 300, every_option, |case, rng| {
        let mut case = case.clone();
        case.dropout = None; // keyed by head and batch entry
        // groups of heads together with their kv head
        let (group, order) = (case.h / case.hkv, rng.shuffled(case.hkv));
        let heads: Vec<usize> = order
            .iter()
            .flat_map(|&g| g * group..(g + 1) * group)
            .collect();
        let entries = rng.shuffled(case.b);
        let from = |[b, h, i, j]: [usize; 4]| [entries[b], heads[h], i, j];
        let mut permuted = regathered(&case, case.scores(), from);
        let (q, kv) = (case.lq * case.dk, case.lk);
        permuted.q = rows_from(
            &rows_from(&case.q, case.b, case.h * q, &entries),
            case.h,
            q,
            &heads,
        );
        let permuted_kv = |data: &[f64], width: usize| {
            let entries = rows_from(data, case.b, case.hkv * kv * width, &entries);
            rows_from(&entries, case.hkv, kv * width, &order)
        };
        permuted.k = permuted_kv(&case.k, case.dk);
        permuted.v = permuted_kv(&case.v, case.dv);
        let per_head = |list: &Option<Vec<f64>>| {
            let list = list.as_ref()?;
            Some(heads.iter().map(|&h| list[h]).collect())
        };
        permuted.alibi = per_head(&case.alibi);
        permuted.sinks = per_head(&case.sinks);
        permuted.lengths = case
            .lengths
            .as_ref()
            .map(|lengths| entries.iter().map(|&b| lengths[b]).collect());
        let (found, whole) = (permuted.forward(), case.forward());
        for [b, h, i, c] in places([case.b, case.h, case.lq, case.dv]) {
            let expected = whole.output.at(&[entries[b], heads[h], i, c]);
            assert_bits(&[found.output.at(&[b, h, i, c])], &[expected], &case);
            let expected = whole.lse.at(&[entries[b], heads[h], i]);
            assert_bits(&[found.lse.at(&[b, h, i])], &[expected], &case);
        }
    });
}

#[test]
fn chunked_queries_are_one_shot() {
    for_cases(5, 400, every_option, |case, rng| {
        let mut case = case.clone();
        // A chunk says where it stands by `Causal::Offset`, which holds for all batch entries.
        case.documents = None;
        let one_offset = case.lengths.is_none();
        let offset = match case.causal {
            Some(Causal::Offset(n)) => n,
            Some(Causal::BottomRight) if one_offset => case.lk as i64 - case.lq as i64,
            Some(Causal::TopLeft | Causal::Square) => 0,
            _ => {
                case.causal = None;
                (case.window, case.alibi, case.dropout) = (None, None, None);
                0
            }
        };
        let whole = case.forward();
        let parts = 1 + rng.below(4);
        let mut first = 0;
        for count in rng.split(case.lq, parts) {
            let rows: Vec<usize> = (first..first + count).collect();
            let full = [case.b, case.h, count, case.lk];
            let mut chunk = regathered(&case, full, |[b, h, i, j]| [b, h, first + i, j]);
            chunk.lq = count;
            chunk.q = rows_from(&case.q, case.lq, case.dk, &rows);
            chunk.causal = case.causal.map(|_| Causal::Offset(offset + first as i64));
            let found = chunk.forward();
            let expected = rows_from(whole.output.data(), case.lq, case.dv, &rows);
            assert_bits(found.output.data(), &expected, &chunk);
            let expected = rows_from(whole.lse.data(), case.lq, 1, &rows);
            assert_bits(found.lse.data(), &expected, &chunk);
            first += count;
        }
    });
}

/// Step by step, as generation goes: one query, the keys so far.
#[test]
fn one_token_at_a_time_is_one_shot() {
    for_cases(6, 150, without_positions, |case, rng| {
        let mut case = case.clone();
        case.causal = Some(Causal::BottomRight);
        if rng.chance(0.5) {
            case.alibi = Some(rng.reals(case.h));
        }
        if rng.chance(0.5) {
            case.dropout = Some(Dropout { p: 0.3, seed: 5 });
        }
        case.lk = case.lk.max(case.lq);
        let rng = &mut Rng(case.lk as u64);
        case.k = rng.reals(case.b * case.hkv * case.lk * case.dk);
        case.v = rng.reals(case.b * case.hkv * case.lk * case.dv);
        (case.bias, case.masks) = (None, Vec::new());
        let whole = case.forward();
        for i in 0..case.lq {
            let keys = case.lk - case.lq + i + 1;
            let rows: Vec<usize> = (0..keys).collect();
            let mut step = case.clone();
            (step.lq, step.lk) = (1, keys);
            step.past = keys - 1;
            step.q = rows_from(&case.q, case.lq, case.dk, &[i]);
            step.k = rows_from(&case.k, case.lk, case.dk, &rows);
            step.v = rows_from(&case.v, case.lk, case.dv, &rows);
            let expected = rows_from(whole.output.data(), case.lq, case.dv, &[i]);
            assert_bits(step.forward().output.data(), &expected, &step);
        }
    });
}

#[test]
fn cached_is_uncached() {
    for_cases(7, 400, every_option, |case, rng| {
        let mut uncached = case.clone();
        uncached.past = 0;
        let expected = uncached.forward();
        for past in [0, 1, case.lk / 2, case.lk, rng.below(case.lk + 1)] {
            let mut cached = case.clone();
            cached.past = past.min(case.lk);
            assert_results_same(&cached.forward(), &expected, &cached);
            // Also where nothing is cached but a cache is given.
            if past == 0 {
                let inputs = uncached.inputs();
                let none: [f64; 0] = [];
                let k = View::new(&none, &[case.b, case.hkv, 0, case.dk]).unwrap();
                let v = View::new(&none, &[case.b, case.hkv, 0, case.dv]).unwrap();
                let inputs = inputs.with_past(k, v).unwrap();
                let found = definition::forward(&case.attention(), &inputs).unwrap();
                assert_results_same(&found, &expected, case);
            }
        }
    });
}

#[test]
fn grouped_heads_are_repeated_heads() {
    for_cases(12, 300, every_option, |case, _| {
        let group = case.h / case.hkv;
        let repeat = |data: &[f64], width: usize| -> Vec<f64> {
            data.chunks(case.lk * width)
                .flat_map(|head| head.repeat(group))
                .collect()
        };
        let mut repeated = case.clone();
        repeated.hkv = case.h;
        repeated.k = repeat(&case.k, case.dk);
        repeated.v = repeat(&case.v, case.dv);
        assert_results_same(&case.forward(), &repeated.forward(), case);
    });
}

/// Disjoint ranges of keys, empty ones and wholly dropped ones among them, merged; sinks once.
#[test]
fn merged_parts_are_the_whole() {
    for_cases(13, 400, every_option, |case, rng| {
        let mut case = case.clone();
        case.dropout = None; // a part would count its keys anew
        if case.alibi.is_some() {
            case.bias = None;
        }
        let whole = case.forward();
        // Positions as masks and biases, which can be cut into ranges.
        let mut explicit = case.clone();
        explicit.masks.push((true, case.explicit_keep()));
        if let Some(alibi) = case.explicit_alibi() {
            explicit.bias = Some(alibi);
        }
        (explicit.causal, explicit.window, explicit.alibi) = (None, None, None);
        (explicit.lengths, explicit.documents, explicit.sinks) = (None, None, None);
        explicit.past = 0;
        let mut first = 0;
        let mut parts = Vec::new();
        let count = 1 + rng.below(4);
        for keys in rng.split(case.lk, count) {
            let full = [case.b, case.h, case.lq, keys];
            let mut part = regathered(&explicit, full, |[b, h, i, j]| [b, h, i, first + j]);
            let rows: Vec<usize> = (first..first + keys).collect();
            part.lk = keys;
            part.k = rows_from(&case.k, case.lk, case.dk, &rows);
            part.v = rows_from(&case.v, case.lk, case.dv, &rows);
            parts.push(part.forward());
            first += keys;
        }
        let sinks = case.sinks.clone().map(Sinks);
        let merged = definition::merge(&parts, sinks.as_ref()).unwrap();
        // exp(lse_p − lse) carries the error of two lse; then it is as in one computation
        let bound = bound(&case, 3, 0.0);
        assert_results_near(&merged, &whole, bound, &case);
    });
}

/// Parts by masks, with dropout: the whole again, since outputs add up.
#[test]
fn parts_by_masks_merge_with_dropout() {
    for_cases(14, 200, every_option, |case, rng| {
        let owner: Vec<usize> = (0..case.lk).map(|_| rng.below(3)).collect();
        let parts: Vec<_> = (0..3)
            .map(|part| {
                let mut case = case.clone();
                case.sinks = None;
                let own = owner.iter().map(|&o| o == part).collect();
                case.masks.push((true, Array::new(&[case.lk], own)));
                case.forward()
            })
            .collect();
        let sinks = case.sinks.clone().map(Sinks);
        let merged = definition::merge(&parts, sinks.as_ref()).unwrap();
        assert_results_near(&merged, &case.forward(), bound(case, 3, 0.0), case);
    });
}

#[test]
fn any_layout_is_the_same() {
    for_cases(17, 200, every_option, |case, rng| {
        // Each array in another order of its axes in memory, some of them backwards, with gaps.
        let scatter = |data: &[f64], shape: [usize; 4], rng: &mut Rng| {
            let order = rng.shuffled(4);
            let mut strides = [0_isize; 4];
            let mut size = 1 + rng.below(2);
            for &axis in &order {
                strides[axis] = size as isize;
                size *= shape[axis].max(1);
                size += rng.below(3);
            }
            let mut offset = rng.below(3);
            for axis in 0..4 {
                if rng.chance(0.4) {
                    offset += (shape[axis] - 1) * strides[axis] as usize;
                    strides[axis] = -strides[axis];
                }
            }
            let at = |index: [usize; 4]| {
                let distance: isize = (0..4).map(|a| index[a] as isize * strides[a]).sum();
                (offset as isize + distance) as usize
            };
            let needed = places(shape).map(at).max().unwrap_or(0) + 1;
            let mut memory = vec![f64::NAN; needed];
            for (n, index) in places(shape).enumerate() {
                memory[at(index)] = data[n];
            }
            (memory, offset, strides)
        };
        let mut case = case.clone();
        case.past = 0;
        let shapes = [
            [case.b, case.h, case.lq, case.dk],
            [case.b, case.hkv, case.lk, case.dk],
            [case.b, case.hkv, case.lk, case.dv],
        ];
        let data = [&case.q, &case.k, &case.v];
        let scattered = [0, 1, 2].map(|n| scatter(data[n], shapes[n], rng));
        let [q, k, v] = [0, 1, 2].map(|n| {
            let (memory, offset, strides) = &scattered[n];
            View::strided(memory, *offset, shapes[n], *strides).unwrap()
        });
        let inputs = Inputs::new(q, k, v).unwrap();
        let found = definition::forward(&case.attention(), &inputs).unwrap();
        assert_results_same(&found, &case.forward(), &case);
    });
}

#[test]
fn batch_entries_do_not_know_each_other() {
    for_cases(25, 300, every_option, |case, _| {
        let mut case = case.clone();
        case.dropout = None; // keyed by the batch entry
        let whole = case.forward();
        let entry = |data: &[f64], b: usize| {
            let size = data.len() / case.b;
            data[b * size..(b + 1) * size].to_vec()
        };
        for b in 0..case.b {
            let full = [1, case.h, case.lq, case.lk];
            let mut alone = regathered(&case, full, |[_, h, i, j]| [b, h, i, j]);
            alone.b = 1;
            (alone.q, alone.k, alone.v) = (entry(&case.q, b), entry(&case.k, b), entry(&case.v, b));
            alone.lengths = case.lengths.as_ref().map(|lengths| vec![lengths[b]]);
            let found = alone.forward();
            let expected = entry(whole.output.data(), b);
            assert_bits(found.output.data(), &expected, &case);
            let expected = entry(whole.lse.data(), b);
            assert_bits(found.lse.data(), &expected, &case);
        }
    });
}
