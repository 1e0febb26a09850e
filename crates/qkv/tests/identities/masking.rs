//! One way to hide a key against another.

use crate::common::*;
use crate::*;
use qkv::Causal;

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
