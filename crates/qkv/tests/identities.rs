//! Identities of attention over random sizes, numbers and combinations of options: where both
//! sides do the same operations they have the same bits, elsewhere a derived bound holds.

#![allow(clippy::unwrap_used, clippy::panic, clippy::result_large_err)]

mod common;

use common::*;
use qkv::{
    Attention, Causal, Dropout, Element, Inputs, Scale, Sinks, StepName, View, definition, steps,
};

/// Runs a property over small configurations and over lengths around blocks.
fn for_cases(
    seed: u64,
    count: u64,
    make: impl Fn(&mut Rng, bool) -> Case,
    check: impl Fn(&Case, &mut Rng),
) {
    for n in 0..count {
        let mut rng = Rng(seed * 1_000_000 + n);
        let case = make(&mut rng, n % 12 == 11);
        check(&case, &mut rng);
    }
}

fn every_option(rng: &mut Rng, large: bool) -> Case {
    Case::random(rng, large)
}

/// Scale, softcap, bias, masks, sinks.
fn without_positions(rng: &mut Rng, large: bool) -> Case {
    let mut case = Case::plain(rng, large);
    case.with_pointwise(rng);
    case
}

/// `[batch, heads, rows, width]` with each output row taken from another one.
fn rows_from(data: &[f64], rows: usize, width: usize, from: &[usize]) -> Vec<f64> {
    data.chunks(rows * width)
        .flat_map(|head| {
            from.iter()
                .flat_map(|&row| head[row * width..(row + 1) * width].to_vec())
                .collect::<Vec<f64>>()
        })
        .collect()
}

/// The masks and the bias in full, each place taken from elsewhere in the old scores.
fn regathered(
    case: &Case,
    full: [usize; 4],
    from: impl Fn([usize; 4]) -> [usize; 4] + Copy,
) -> Case {
    let mut new = case.clone();
    new.bias = case.bias.as_ref().map(|bias| bias.gathered(full, from));
    new.masks = case
        .masks
        .iter()
        .map(|(keeps, mask)| (*keeps, mask.gathered(full, from)))
        .collect();
    new
}

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
fn a_constant_on_a_row_changes_only_its_lse() {
    for_cases(4, 300, every_option, |case, rng| {
        let mut case = case.clone();
        case.sinks = None; // a sink is not shifted along
        let full = case.scores();
        let bias = match &case.bias {
            Some(bias) => bias.expanded(full),
            None => Array::new(&full, vec![0.0; full.iter().product()]),
        };
        let constants: Vec<f64> = (0..case.b * case.h * case.lq)
            .map(|_| 20.0 * rng.real())
            .collect();
        let row = |[b, h, i, _]: [usize; 4]| (b * case.h + h) * case.lq + i;
        let data = places(full)
            .map(|at| bias.at(at) + constants[row(at)])
            .collect();
        let mut shifted = case.clone();
        shifted.bias = Some(Array::new(&full, data));
        let bound = bound(&case, 1, 50.0);
        let (found, mut expected) = (shifted.forward(), case.forward());
        for at in places([case.b, case.h, case.lq, 1]) {
            *expected.lse.at_mut(&at[..3]) += constants[row(at)];
        }
        assert_results_near(&found, &expected, bound, &case);
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

/// Causal, window, lengths and documents, one by one and all together, are one keep mask. The
/// linear bias is a bias.
#[test]
fn every_positional_rule_is_a_mask() {
    for_cases(8, 600, every_option, |case, _| {
        let mut case = case.clone();
        case.dropout = None; // keyed by positions
        if case.alibi.is_some() {
            case.bias = None; // one bias holds only one of them
        }
        let mut explicit = case.clone();
        explicit.masks.push((true, case.explicit_keep()));
        if let Some(alibi) = case.explicit_alibi() {
            explicit.bias = Some(alibi);
        }
        (explicit.causal, explicit.window, explicit.alibi) = (None, None, None);
        (explicit.lengths, explicit.documents) = (None, None);
        assert_results_same(&case.forward(), &explicit.forward(), &case);
    });
}

#[test]
fn causal_is_a_mask_by_hand() {
    for_cases(9, 200, without_positions, |case, rng| {
        let offset = rng.below(case.lk + case.lq + 2) as i64 - case.lq as i64 - 1;
        let bottom_right = case.lk as i64 - case.lq as i64;
        for (causal, offset) in [
            (Causal::TopLeft, 0),
            (Causal::BottomRight, bottom_right),
            (Causal::Offset(offset), offset),
        ] {
            let mut by_rule = case.clone();
            by_rule.causal = Some(causal);
            let shape = [case.lq, case.lk];
            let lower = places([1, 1, case.lq, case.lk])
                .map(|[_, _, i, j]| j as i64 <= i as i64 + offset)
                .collect();
            let mut by_mask = case.clone();
            by_mask.masks.push((true, Array::new(&shape, lower)));
            assert_results_same(&by_rule.forward(), &by_mask.forward(), &by_rule);
        }
    });
}

/// Each document by itself, and its rows put one after the other.
#[test]
fn packed_documents_are_separate_calls() {
    for_cases(10, 300, every_option, |case, rng| {
        let mut case = case.clone();
        let parts = 1 + rng.below(3);
        let (queries, keys) = (rng.split(case.lq, parts), rng.split(case.lk, parts));
        if case.causal == Some(Causal::Square) {
            case.causal = Some(Causal::TopLeft);
        }
        case.documents = Some((queries.clone(), keys.clone()));
        case.dropout = None; // keyed by the position in the call
        let packed = case.forward();
        let (mut first_q, mut first_k) = (0, 0);
        for (&lq, &lk) in queries.iter().zip(&keys) {
            let full = [case.b, case.h, lq, lk];
            let mut alone =
                regathered(&case, full, |[b, h, i, j]| [b, h, first_q + i, first_k + j]);
            alone.documents = None;
            (alone.lq, alone.lk, alone.past) = (lq, lk, 0);
            let rows: Vec<usize> = (first_q..first_q + lq).collect();
            let key_rows: Vec<usize> = (first_k..first_k + lk).collect();
            alone.q = rows_from(&case.q, case.lq, case.dk, &rows);
            alone.k = rows_from(&case.k, case.lk, case.dk, &key_rows);
            alone.v = rows_from(&case.v, case.lk, case.dv, &key_rows);
            alone.lengths = case.lengths.as_ref().map(|lengths| {
                let within = |&length: &usize| length.saturating_sub(first_k).min(lk);
                lengths.iter().map(within).collect()
            });
            let found = alone.forward();
            let expected = rows_from(packed.output.data(), case.lq, case.dv, &rows);
            assert_near(found.output.data(), &expected, 0.0, &case);
            let expected = rows_from(packed.lse.data(), case.lq, 1, &rows);
            assert_near(found.lse.data(), &expected, 0.0, &case);
            (first_q, first_k) = (first_q + lq, first_k + lk);
        }
    });
}

/// Padding on the right changes nothing, whatever it holds.
#[test]
fn a_length_is_fewer_keys() {
    for_cases(11, 300, every_option, |case, rng| {
        let mut short = case.clone();
        short.past = 0;
        short.documents = None;
        short.lengths = None;
        if short.causal == Some(Causal::Square) {
            short.causal = Some(Causal::TopLeft);
        }
        let extra = 1 + rng.below(4);
        let mut padded = short.clone();
        padded.lk += extra;
        padded.lengths = Some(vec![case.lk; case.b]);
        let pad = |data: &[f64], width: usize| -> Vec<f64> {
            data.chunks(case.lk * width)
                .flat_map(|head| [head, &vec![f64::NAN; extra * width]].concat())
                .collect()
        };
        (padded.k, padded.v) = (pad(&case.k, case.dk), pad(&case.v, case.dv));
        let inside = |[b, h, i, j]: [usize; 4]| [b, h, i, j.min(case.lk - 1)];
        let padded = regathered(&padded, padded.scores(), inside);
        let (found, expected) = (padded.forward(), short.forward());
        assert_results_same(&found, &expected, &padded);
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
fn a_bias_of_minus_infinity_is_a_dropped_key() {
    for_cases(15, 300, every_option, |case, rng| {
        let mut by_bias = case.clone();
        by_bias.bias = Some(case.random_bias(rng, 0.4));
        let bias = by_bias.bias.clone().unwrap();
        let infinite = |x: &f64| *x == f64::NEG_INFINITY;
        let mut by_mask = case.clone();
        let dropped = bias.data.iter().map(infinite).collect();
        by_mask
            .masks
            .push((false, Array::new(&bias.shape, dropped)));
        let finite = bias.data.iter().map(|x| if infinite(x) { 0.5 } else { *x });
        by_mask.bias = Some(Array::new(&bias.shape, finite.collect()));
        assert_results_same(&by_bias.forward(), &by_mask.forward(), case);
        assert_bits(by_bias.weights().data(), by_mask.weights().data(), case);
    });
}

#[test]
fn keep_is_not_drop_and_broadcast_is_repetition() {
    for_cases(16, 300, every_option, |case, _| {
        let mut negated = case.clone();
        for (keeps, mask) in &mut negated.masks {
            *keeps = !*keeps;
            mask.data.iter_mut().for_each(|x| *x = !*x);
        }
        assert_results_same(&negated.forward(), &case.forward(), case);
        // In full, in the other order, and one of them twice.
        let mut expanded = regathered(case, case.scores(), |at| at);
        expanded.masks.reverse();
        if let Some(mask) = expanded.masks.first().cloned() {
            expanded.masks.push(mask);
        }
        assert_results_same(&expanded.forward(), &case.forward(), case);
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

/// Numbers rounded to a narrow type, and the same numbers widened.
fn narrow_is_widened<T: Element>(seed: u64) {
    for_cases(seed, 100, every_option, |case, _| {
        let narrow = |data: &[f64]| data.iter().map(|&x| T::from_f64(x)).collect::<Vec<T>>();
        let (q, k, v) = (narrow(&case.q), narrow(&case.k), narrow(&case.v));
        let wide = |data: &[T]| data.iter().map(|x| x.to_f64()).collect::<Vec<f64>>();
        let mut widened = case.clone();
        (widened.q, widened.k, widened.v) = (wide(&q), wide(&k), wide(&v));
        let inputs = Inputs::new(
            View::new(&q, &[case.b, case.h, case.lq, case.dk]).unwrap(),
            View::new(&k, &[case.b, case.hkv, case.lk, case.dk]).unwrap(),
            View::new(&v, &[case.b, case.hkv, case.lk, case.dv]).unwrap(),
        );
        let (attention, inputs) = (widened.attention(), inputs.unwrap());
        let found = definition::forward(&attention, &inputs).unwrap();
        assert_results_same(&found, &widened.forward(), case);
        let grad = View::new(found.output.data(), found.output.shape()).unwrap();
        let expected = definition::backward(&attention, &widened.inputs(), grad).unwrap();
        let narrow_grad = narrow(found.output.data());
        let narrow_grad = View::new(&narrow_grad, found.output.shape()).unwrap();
        let found = definition::backward(&attention, &inputs, narrow_grad).unwrap();
        assert_eq!(found.q.shape(), expected.q.shape());
        // Only the gradient given differs, by a relative unit of the narrow type.
        let scale = expected
            .v
            .data()
            .iter()
            .fold(1.0_f64, |m, x| m.max(x.abs()));
        assert_near(
            found.v.data(),
            expected.v.data(),
            0.01 * scale * case.lq as f64,
            case,
        );
    });
}

#[test]
fn narrow_numbers_are_the_definition_on_their_values() {
    narrow_is_widened::<half::f16>(18);
    narrow_is_widened::<half::bf16>(19);
    narrow_is_widened::<f32>(20);
}

#[test]
fn a_bias_of_any_dtype_is_its_values() {
    use qkv::{AnyView, Bias};
    for_cases(21, 100, every_option, |case, rng| {
        let mut case = case.clone();
        let mut bias = case.random_bias(rng, 0.2);
        bias.data
            .iter_mut()
            .for_each(|x| *x = half::bf16::from_f64(*x).to_f64());
        case.bias = Some(bias.clone());
        let expected = case.forward();
        let single: Vec<f32> = bias.data.iter().map(|&x| x as f32).collect();
        let brain: Vec<half::bf16> = bias.data.iter().map(|&x| half::bf16::from_f64(x)).collect();
        let views = [
            AnyView::from(View::new(&single, &bias.shape).unwrap()),
            AnyView::from(View::new(&brain, &bias.shape).unwrap()),
        ];
        for view in views {
            let attention = Attention {
                bias: Some(Bias(view)),
                ..case.attention()
            };
            let found = definition::forward(&attention, &case.inputs()).unwrap();
            assert_results_same(&found, &expected, &case);
        }
    });
}

#[test]
fn steps_are_what_forward_does() {
    for_cases(22, 400, every_option, |case, _| {
        let (steps, forward) = (case.steps(), case.forward());
        let get = |name| {
            steps
                .get(name)
                .unwrap_or_else(|| panic!("no {name}: {case:?}"))
        };
        assert_bits(get(StepName::Output).data(), forward.output.data(), case);
        assert_bits(get(StepName::Lse).data(), forward.lse.data(), case);
        assert_eq!(steps.empty_rows(), forward.empty_rows);
        assert_bits(get(StepName::Q).data(), &case.q, case);
        assert_bits(get(StepName::K).data(), &case.k, case);
        assert_bits(get(StepName::V).data(), &case.v, case);

        // Each step from the one before it, and those not in force absent.
        let names: Vec<StepName> = steps.iter().map(|(name, _)| name).collect();
        assert!(names.is_sorted());
        let has = |name| names.contains(&name);
        assert_eq!(has(StepName::Capped), case.softcap.is_some());
        assert_eq!(
            has(StepName::Biased),
            case.bias.is_some() || case.alibi.is_some()
        );
        assert_eq!(has(StepName::Dropped), case.dropout.is_some());
        let positional = case.causal.is_some()
            || case.window.is_some()
            || case.lengths.is_some()
            || case.documents.is_some();
        assert_eq!(has(StepName::Masked), positional || !case.masks.is_empty());

        let scale = case.scale.factor(case.dk);
        let scores = get(StepName::Scores).data();
        let scaled = get(StepName::Scaled).data();
        let before_mask = [StepName::Biased, StepName::Capped, StepName::Scaled];
        let before_mask = get(*before_mask.iter().find(|&&name| has(name)).unwrap());
        let (max, sum) = (get(StepName::Max), get(StepName::Sum));
        let (exp, weights) = (get(StepName::Exp), get(StepName::Weights));
        assert_eq!(max.shape(), [case.b, case.h, case.lq]);
        let keeps = case.keeps();
        for (n, at) in places(case.scores()).enumerate() {
            assert_bits(&[scaled[n]], &[scale * scores[n]], case);
            let row = &at[..3];
            let kept = keeps(at);
            if has(StepName::Masked) {
                let masked = if kept {
                    before_mask.at(&at)
                } else {
                    f64::NEG_INFINITY
                };
                assert_bits(&[get(StepName::Masked).at(&at)], &[masked], case);
            }
            let e = if kept {
                (before_mask.at(&at) - max.at(row)).exp()
            } else {
                0.0
            };
            assert_bits(&[exp.at(&at)], &[e], case);
            let weight = if kept { e / sum.at(row) } else { 0.0 };
            assert_bits(&[weights.at(&at)], &[weight], case);
        }
    });
}

#[test]
fn weights_sum_to_one_or_leave_the_sinks_share() {
    for_cases(23, 400, every_option, |case, _| {
        let (weights, forward) = (case.weights(), case.forward());
        let keeps = case.keeps();
        for at in places([case.b, case.h, case.lq, 1]) {
            let row = &at[..3];
            let sum: f64 = weights.row(row).iter().sum();
            let lse = forward.lse.at(row);
            let sink = case
                .sinks
                .as_ref()
                .map_or(f64::NEG_INFINITY, |sinks| sinks[at[1]]);
            let expected = match lse == f64::NEG_INFINITY {
                true => 0.0,
                false => 1.0 / (1.0 + (sink - lse).exp()),
            };
            let bound = bound(case, 2, 0.0);
            assert_near(&[sum], &[expected], bound.weights + bound.lse, case);
            for (j, &weight) in weights.row(row).iter().enumerate() {
                let kept = keeps([at[0], at[1], at[2], j]);
                assert_eq!(weight > 0.0, kept, "{case:?} {at:?} {j}");
            }
        }
        // Exactly the rows that keep nothing are listed.
        let empty: Vec<[usize; 3]> = places([case.b, case.h, case.lq, 1])
            .filter(|&[b, h, i, _]| (0..case.lk).all(|j| !keeps([b, h, i, j])))
            .map(|[b, h, i, _]| [b, h, i])
            .collect();
        assert_eq!(forward.empty_rows, empty, "{case:?}");
        for row in empty {
            assert_bits(forward.output.row(&row), &vec![0.0; case.dv], case);
            assert_eq!(forward.lse.at(&row), f64::NEG_INFINITY);
        }
    });
}

/// A sink is a key that scores its logit and whose value is zero.
#[test]
fn a_sink_is_a_key_with_a_value_of_zero() {
    for_cases(24, 200, every_option, |case, rng| {
        let mut case = case.clone();
        case.sinks = Some(rng.reals(case.h).iter().map(|x| 2.0 * x).collect());
        case.past = 0;
        case.dropout = None;
        if case.alibi.is_some() {
            case.bias = None;
        }
        let mut by_key = case.clone();
        by_key.masks.push((true, case.explicit_keep()));
        if let Some(alibi) = case.explicit_alibi() {
            by_key.bias = Some(alibi);
        }
        (by_key.causal, by_key.window, by_key.alibi) = (None, None, None);
        (by_key.lengths, by_key.documents, by_key.sinks) = (None, None, None);
        let sinks = case.sinks.clone().unwrap();
        let inside = |[b, h, i, j]: [usize; 4]| [b, h, i, j.min(case.lk - 1)];
        by_key.lk += 1;
        let mut by_key = regathered(&by_key, by_key.scores(), inside);
        // the new key: q·k = 0, the sink as its bias, kept everywhere
        let with_zeros = |data: &[f64], width: usize| -> Vec<f64> {
            data.chunks(case.lk * width)
                .flat_map(|head| [head, &vec![0.0; width]].concat())
                .collect()
        };
        by_key.k = with_zeros(&case.k, case.dk);
        by_key.v = with_zeros(&case.v, case.dv);
        let full = by_key.scores();
        let bias = by_key
            .bias
            .clone()
            .unwrap_or(Array::new(&[1], vec![0.0]))
            .expanded(full);
        let data = places(full)
            .map(|at| {
                if at[3] == case.lk {
                    sinks[at[1]]
                } else {
                    bias.at(at)
                }
            })
            .collect();
        by_key.bias = Some(Array::new(&full, data));
        for (keeps, mask) in &mut by_key.masks {
            for (n, at) in places(full).enumerate() {
                if at[3] == case.lk {
                    mask.data[n] = *keeps;
                }
            }
        }
        // Rows without a real key are zero either way; with a sink they count as empty.
        let (found, expected) = (case.forward(), by_key.forward());
        let bound = bound(&case, 1, 0.0);
        let output = expected.output.data();
        assert_near(found.output.data(), output, bound.output, &case);
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

/// Whatever stands where no row of a head's group looks: the same bits. Where a row looks, its
/// result shows it, and no other row's does.
#[test]
fn nan_and_infinity_stay_where_they_are_seen() {
    for_cases(26, 300, every_option, |case, rng| {
        let mut case = case.clone();
        case.dropout = None; // a key kept by the mask but dropped at random is read
        let (clean, group) = (case.forward(), case.h / case.hkv);
        let keeps = case.keeps();
        let seen = |[b, g, j]: [usize; 3]| {
            let mut rows = places([1, group, case.lq, 1]);
            rows.any(|[_, h, i, _]| keeps([b, g * group + h, i, j]))
        };
        let mut poisoned = case.clone();
        for [b, g, j, _] in places([case.b, case.hkv, case.lk, 1]) {
            let key = (b * case.hkv + g) * case.lk + j;
            if !seen([b, g, j]) {
                let poison = rng.pick(&[f64::NAN, f64::INFINITY, f64::NEG_INFINITY]);
                poisoned.k[key * case.dk + rng.below(case.dk)] = poison;
                poisoned.v[key * case.dv + rng.below(case.dv)] = poison;
            }
        }
        assert_results_same(&poisoned.forward(), &clean, &case);

        let key = rng.below(case.b * case.hkv * case.lk);
        let mut poisoned = case.clone();
        poisoned.v[key * case.dv] = f64::NAN;
        let found = poisoned.forward();
        for [b, h, i, c] in places([case.b, case.h, case.lq, case.dv]) {
            let own = (b * case.hkv + h / group) * case.lk;
            let hit = c == 0 && (own..own + case.lk).contains(&key) && keeps([b, h, i, key - own]);
            let (found, clean) = (
                found.output.at(&[b, h, i, c]),
                clean.output.at(&[b, h, i, c]),
            );
            match hit {
                true => assert!(found.is_nan(), "{case:?}"),
                false => assert_bits(&[found], &[clean], &case),
            }
        }
    });
}

#[test]
fn a_factor_may_stand_in_the_queries() {
    for_cases(27, 200, every_option, |case, rng| {
        let factor = case.scale.factor(case.dk);
        let mut folded = case.clone();
        folded.q.iter_mut().for_each(|x| *x *= factor);
        folded.scale = Scale::Factor(1.0);
        assert_results_near(
            &folded.forward(),
            &case.forward(),
            bound(case, 1, 0.0),
            case,
        );
        // A power of two is exact.
        let mut folded = case.clone();
        let power = rng.pick(&[0.5, 2.0, -4.0]);
        folded.k.iter_mut().for_each(|x| *x *= power);
        folded.scale = Scale::Factor(factor / power);
        assert_results_same(&folded.forward(), &case.forward(), case);
    });
}

/// V enters linearly: columns one by one, and a factor outside.
#[test]
fn values_enter_linearly() {
    for_cases(28, 200, every_option, |case, rng| {
        let whole = case.forward();
        let column = rng.below(case.dv);
        let mut one = case.clone();
        one.dv = 1;
        one.v = case
            .v
            .chunks(case.dv)
            .map(|row| -2.0 * row[column])
            .collect();
        let found = one.forward();
        let rows = whole.output.data().chunks(case.dv);
        let expected: Vec<f64> = rows.map(|row| -2.0 * row[column]).collect();
        assert_near(found.output.data(), &expected, 0.0, case);
        // A value of ones gives the sum of the weights after dropout.
        one.v.fill(1.0);
        let found = one.forward();
        let steps = case.steps();
        let dropped = steps
            .get(StepName::Dropped)
            .or(steps.get(StepName::Weights));
        let sums: Vec<f64> = dropped
            .unwrap()
            .data()
            .chunks(case.lk)
            .map(|row| row.iter().sum())
            .collect();
        assert_near(found.output.data(), &sums, bound(&one, 1, 0.0).output, case);
    });
}

/// Which weights are dropped depends on seed, batch entry, head and positions alone, and as many
/// are dropped as asked.
#[test]
fn dropout_is_a_function_of_its_place() {
    let mut case = Case::plain(&mut Rng(29), false);
    (case.b, case.h, case.hkv, case.lq, case.lk) = (2, 3, 3, 40, 50);
    (case.dk, case.dv, case.past) = (1, 1, 0);
    let mut rng = Rng(290);
    case.q = rng.reals(2 * 3 * 40);
    (case.k, case.v) = (rng.reals(2 * 3 * 50), rng.reals(2 * 3 * 50));
    for p in [0.1, 0.5, 0.9] {
        case.dropout = Some(Dropout { p, seed: 11 });
        let steps = steps(&case.attention(), &case.inputs()).unwrap();
        let weights = steps.get(StepName::Weights).unwrap();
        let dropped = steps.get(StepName::Dropped).unwrap();
        let mut zeros = 0.0;
        let mut by_head = vec![Vec::new(); 6];
        for at in places(case.scores()) {
            let (weight, after) = (weights.at(&at), dropped.at(&at));
            let is_dropped = after == 0.0;
            let left = weight * (1.0 / (1.0 - p));
            assert_bits(&[after], &[if is_dropped { 0.0 } else { left }], &at);
            // no causality: bottom-right, 50 − 40
            let position = at[2] as i64 + 10;
            let expected =
                definition::drops(Dropout { p, seed: 11 }, at[0], at[1], position, at[3]);
            assert_eq!(is_dropped, expected, "{at:?}");
            zeros += f64::from(u8::from(is_dropped));
            by_head[at[0] * 3 + at[1]].push(is_dropped);
        }
        // 12000 draws: five standard deviations
        let n = 12_000.0;
        assert!(
            (zeros - p * n).abs() < 5.0 * (n * p * (1.0 - p)).sqrt(),
            "{p}: {zeros}"
        );
        for a in 0..6 {
            assert!((0..a).all(|b| by_head[a] != by_head[b]), "heads {a}");
        }
        case.dropout = Some(Dropout { p, seed: 12 });
        assert_ne!(case.steps().get(StepName::Dropped).unwrap(), dropped);
    }
    // Nothing dropped is no dropout.
    case.dropout = Some(Dropout { p: 0.0, seed: 1 });
    let found = case.forward();
    case.dropout = None;
    assert_results_same(&found, &case.forward(), &"p = 0");
}
