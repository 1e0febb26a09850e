//! What the numbers themselves obey.

use crate::common::*;
use crate::*;
use qkv::{
    AnyView, Attention, Bias, Dropout, Element, Inputs, Scale, StepName, View, definition, steps,
};

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
        let dropped_by_bias = case
            .bias
            .as_ref()
            .is_some_and(|bias| bias.data.contains(&f64::NEG_INFINITY));
        assert_eq!(
            has(StepName::Masked),
            positional || !case.masks.is_empty() || dropped_by_bias
        );

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
