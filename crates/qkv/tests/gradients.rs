//! The derivative against central differences in `f64`.
//!
//! L = Σ output·g, and dL/dx ≈ (L(x + h) − L(x − h)) / 2h for every entry of q, k, v, bias and
//! sinks. The truncation error is h²/6·|L‴|, the rounding error about ε·|L|/h with ε = 2⁻⁵²;
//! their sum is least where h is near the cube root of ε, 6·10⁻⁶, for inputs of order one, and
//! both are then near 4·10⁻¹¹ of L. That is far below the tolerance, 10⁻⁶ of the largest entry of
//! the gradient, so a wrong term shows. Where a whole gradient is zero (one key; a scale of 0)
//! what is left is the rounding error itself, see [`noise`].

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::*;
use qkv::definition::{self, Gradients};
use qkv::{
    Attention, Causal, Dropout, EmptyRows, Error, Inputs, Mask, Result, Scale, Tensor, View, Window,
};

/// The cube root of 2⁻⁵².
const STEP: f64 = 6.055_454_452_393_343e-6;

const TOLERANCE: f64 = 1e-6;

fn loss(case: &Case, g: &[f64]) -> f64 {
    let output = case.forward().output.into_data();
    output.iter().zip(g).map(|(o, g)| o * g).sum()
}

/// The rounding error of a difference quotient, ε·|L|/h with the sizes of the products in L for
/// |L|, and a factor for the operations that lead to each of them.
fn noise(case: &Case, g: &[f64]) -> f64 {
    let output = case.forward().output.into_data();
    let size: f64 = output.iter().zip(g).map(|(o, g)| (o * g).abs()).sum();
    4.0 * f64::EPSILON * size / STEP
}

fn gradients(case: &Case, g: &[f64]) -> Gradients {
    let grad = View::new(g, &[case.b, case.h, case.lq, case.dv]).unwrap();
    definition::backward(&case.attention(), &case.inputs(), grad)
        .unwrap_or_else(|error| panic!("{error}: {case:?}"))
}

/// The difference quotient for each entry of one argument.
fn differences(case: &Case, g: &[f64], argument: impl Fn(&mut Case) -> &mut Vec<f64>) -> Vec<f64> {
    let mut moved = case.clone();
    let count = argument(&mut moved).len();
    (0..count)
        .map(|n| {
            let old = argument(&mut moved)[n];
            if !old.is_finite() {
                return 0.0; // a dropped key stays dropped
            }
            let (up, down) = (old + STEP, old - STEP);
            argument(&mut moved)[n] = up;
            let above = loss(&moved, g);
            argument(&mut moved)[n] = down;
            let below = loss(&moved, g);
            argument(&mut moved)[n] = old;
            (above - below) / (up - down)
        })
        .collect()
}

#[track_caller]
fn check(case: &Case, rng: &mut Rng) {
    let g = rng.reals(case.b * case.h * case.lq * case.dv);
    let found = gradients(case, &g);
    let noise = noise(case, &g);
    let compare = |name: &str, found: &Tensor<f64>, differences: &[f64]| {
        let largest = found.data().iter().fold(0.0_f64, |max, x| max.max(x.abs()));
        let what = (name, case);
        assert!(found.data().iter().all(|x| x.is_finite()), "{what:?}");
        assert_near(
            found.data(),
            differences,
            TOLERANCE * largest + noise,
            &what,
        );
    };
    compare("q", &found.q, &differences(case, &g, |case| &mut case.q));
    compare("k", &found.k, &differences(case, &g, |case| &mut case.k));
    compare("v", &found.v, &differences(case, &g, |case| &mut case.v));
    assert_eq!(found.bias.is_some(), case.bias.is_some());
    if let (Some(found), Some(bias)) = (&found.bias, &case.bias) {
        let shape = [vec![1; 4 - bias.shape.len()], bias.shape.clone()].concat();
        assert_eq!(found.shape(), shape, "{case:?}");
        let by_difference = differences(case, &g, |case| &mut case.bias.as_mut().unwrap().data);
        compare("bias", found, &by_difference);
    }
    assert_eq!(found.sinks.is_some(), case.sinks.is_some());
    if let Some(found) = &found.sinks {
        assert_eq!(found.shape(), [case.h]);
        let by_difference = differences(case, &g, |case| case.sinks.as_mut().unwrap());
        compare("sinks", found, &by_difference);
    }
}

/// Sizes that are all different, two batch entries, groups of two heads.
fn sizes(rng: &mut Rng) -> Case {
    let mut case = Case::plain(rng, false);
    (case.b, case.h, case.hkv) = (2, 4, 2);
    (case.lq, case.lk, case.dk, case.dv) = (3, 5, 2, 6);
    case.q = rng.reals(2 * 4 * 3 * 2);
    case.k = rng.reals(2 * 2 * 5 * 2);
    case.v = rng.reals(2 * 2 * 5 * 6);
    case
}

#[test]
fn every_option_alone() {
    type Option_ = (&'static str, fn(&mut Case, &mut Rng));
    let options: &[Option_] = &[
        ("none", |_, _| ()),
        ("scale", |case, _| case.scale = Scale::Factor(1.7)),
        ("negative scale", |case, _| case.scale = Scale::Factor(-0.6)),
        ("scale 0", |case, _| case.scale = Scale::Factor(0.0)),
        ("softcap", |case, _| case.softcap = Some(1.3)),
        ("large softcap", |case, _| case.softcap = Some(50.0)),
        ("bias", |case, rng| {
            case.bias = Some(Array::new(&case.scores(), rng.reals(2 * 4 * 3 * 5)));
        }),
        ("bias with -inf", |case, rng| {
            let mut bias = Array::new(&case.scores(), rng.reals(2 * 4 * 3 * 5));
            bias.data
                .iter_mut()
                .step_by(3)
                .for_each(|x| *x = f64::NEG_INFINITY);
            bias.data[..5].fill(f64::NEG_INFINITY); // row 0 keeps nothing
            case.bias = Some(bias);
        }),
        ("alibi", |case, rng| case.alibi = Some(rng.reals(4))),
        ("keep", |case, rng| {
            let data = (0..2 * 4 * 3 * 5).map(|_| rng.chance(0.5)).collect();
            case.masks.push((true, Array::new(&case.scores(), data)));
        }),
        ("drop", |case, _| {
            let data = (0..15).map(|n| n % 4 == 1 || n < 5).collect();
            case.masks.push((false, Array::new(&[3, 5], data)));
        }),
        ("top-left", |case, _| case.causal = Some(Causal::TopLeft)),
        ("bottom-right", |case, _| {
            case.causal = Some(Causal::BottomRight)
        }),
        ("offset 1", |case, _| case.causal = Some(Causal::Offset(1))),
        ("offset -2", |case, _| {
            case.causal = Some(Causal::Offset(-2))
        }),
        ("window", |case, _| {
            case.window = Some(Window {
                back: Some(1),
                forward: Some(0),
            });
        }),
        ("lengths", |case, _| case.lengths = Some(vec![3, 0])),
        ("documents", |case, _| {
            case.documents = Some((vec![1, 0, 2], vec![0, 3, 2]));
        }),
        ("sinks", |case, rng| case.sinks = Some(rng.reals(4))),
        ("sinks and empty rows", |case, rng| {
            case.sinks = Some(rng.reals(4));
            case.lengths = Some(vec![0, 4]);
        }),
        ("dropout", |case, _| {
            case.dropout = Some(Dropout { p: 0.4, seed: 9 });
        }),
        ("past", |case, _| case.past = 2),
        ("all past", |case, _| case.past = 5),
    ];
    for (n, (name, set)) in options.iter().enumerate() {
        let mut rng = Rng(900 + n as u64);
        let mut case = sizes(&mut rng);
        set(&mut case, &mut rng);
        println!("{name}");
        check(&case, &mut rng);
    }
}

/// The gradient of a bias that repeats along an axis is the sum over that axis: all 16 choices of
/// axes and all ranks.
#[test]
fn a_bias_repeated_along_each_axis() {
    for axes in 0..16 {
        for rank in 0..=4 {
            let mut rng = Rng(1000 + axes * 5 + rank);
            let mut case = sizes(&mut rng);
            let mut shape = case.scores().to_vec();
            for (axis, size) in shape.iter_mut().enumerate() {
                if axes >> axis & 1 == 1 {
                    *size = 1;
                }
            }
            let shape = &shape[4 - rank as usize..];
            let n = shape.iter().product();
            case.bias = Some(Array::new(shape, rng.reals(n)));
            case.causal = Some(Causal::BottomRight);
            let g = rng.reals(2 * 4 * 3 * 6);
            let found = gradients(&case, &g).bias.unwrap();
            let differences = differences(&case, &g, |case| &mut case.bias.as_mut().unwrap().data);
            let largest = found.data().iter().fold(0.0_f64, |max, x| max.max(x.abs()));
            let tolerance = (TOLERANCE * largest).max(noise(&case, &g));
            assert_near(found.data(), &differences, tolerance, &shape);
        }
    }
}

#[test]
fn random_combinations() {
    let mut empty = 0;
    for seed in 0..400 {
        let mut rng = Rng(50_000 + seed);
        let case = Case::random(&mut rng, false);
        empty += usize::from(!case.forward().empty_rows.is_empty());
        check(&case, &mut rng);
    }
    assert!(empty > 40, "{empty} cases with empty rows");
}

/// Everything at once, so that no option hides another.
#[test]
fn all_options_at_once() {
    for seed in 0..20 {
        let mut rng = Rng(60_000 + seed);
        let mut case = sizes(&mut rng);
        case.scale = Scale::Factor(0.8);
        case.softcap = Some(2.0);
        case.bias = Some(case.random_bias(&mut rng, 0.1));
        case.alibi = Some(vec![0.5, 0.25, -0.1, 0.0]);
        let mask = (0..15).map(|_| rng.chance(0.8)).collect();
        case.masks = vec![(true, Array::new(&[3, 5], mask))];
        case.causal = Some(Causal::Offset(1));
        case.window = Some(Window {
            back: Some(3),
            forward: None,
        });
        case.lengths = Some(vec![5, 4]);
        case.documents = Some((vec![1, 2], vec![2, 3]));
        case.sinks = Some(rng.reals(4));
        case.dropout = Some(Dropout { p: 0.3, seed });
        case.past = 2;
        check(&case, &mut rng);
    }
}

/// Keys and values that no row keeps have a gradient of zero, and NaN there reaches nothing.
#[test]
fn nan_in_dropped_keys_leaves_the_gradient_finite() {
    for seed in 0..200 {
        let mut rng = Rng(70_000 + seed);
        let mut case = Case::random(&mut rng, false);
        case.dropout = None; // a kept key dropped at random is read
        let g = rng.reals(case.b * case.h * case.lq * case.dv);
        let clean = gradients(&case, &g);
        let keeps = case.keeps();
        let group = case.h / case.hkv;
        let mut poisoned = case.clone();
        let mut unseen = Vec::new();
        for [b, head, j, _] in places([case.b, case.hkv, case.lk, 1]) {
            let seen = places([1, group, case.lq, 1])
                .any(|[_, h, i, _]| keeps([b, head * group + h, i, j]));
            if !seen {
                let key = (b * case.hkv + head) * case.lk + j;
                poisoned.k[key * case.dk..(key + 1) * case.dk].fill(f64::NAN);
                poisoned.v[key * case.dv..(key + 1) * case.dv].fill(f64::INFINITY);
                unseen.push([b, head, j]);
            }
        }
        // A query whose row is empty adds nothing either.
        for [b, h, i] in case.forward().empty_rows {
            let row = ((b * case.h + h) * case.lq + i) * case.dk;
            poisoned.q[row..row + case.dk].fill(f64::NAN);
        }
        let found = gradients(&poisoned, &g);
        assert_eq!(found, clean, "{case:?}");
        for at in unseen {
            assert!(found.k.row(&at).iter().all(|x| *x == 0.0), "{case:?}");
            assert!(found.v.row(&at).iter().all(|x| *x == 0.0), "{case:?}");
        }
    }
}

/// NaN in a kept query stays in its own row of dq.
#[test]
fn nan_in_a_query_stays_in_its_row() -> Result<()> {
    let mut rng = Rng(71);
    let mut case = sizes(&mut rng);
    case.q[2] = f64::NAN; // query 1 of head 0 of entry 0
    let found = gradients(&case, &rng.reals(2 * 4 * 3 * 6));
    for [b, h, i, _] in places([2, 4, 3, 1]) {
        let row = found.q.row(&[b, h, i]);
        assert_eq!(row.iter().all(|x| x.is_nan()), [b, h, i] == [0, 0, 1]);
    }
    for [b, g, j, c] in places([2, 2, 5, 2]) {
        assert_eq!(found.k.at(&[b, g, j, c]).is_nan(), [b, g] == [0, 0]);
    }
    Ok(())
}

/// The sum over keys of a row of d(bias) is what its sink's share takes: nothing without one.
#[test]
fn the_gradient_of_a_row_sums_to_minus_its_sinks() {
    for seed in 0..100 {
        let mut rng = Rng(80_000 + seed);
        let mut case = Case::random(&mut rng, false);
        let full = case.scores();
        case.bias = Some(Array::new(&full, rng.reals(full.iter().product())));
        let g = rng.reals(case.b * case.h * case.lq * case.dv);
        let found = gradients(&case, &g);
        let bias = found.bias.unwrap();
        let by_head = |h: usize| -> f64 {
            places(full)
                .filter(|at| at[1] == h)
                .map(|at| bias.at(&at))
                .sum()
        };
        let size: f64 = g.iter().map(|x| x.abs()).sum();
        let bound = size * bound(&case, 2, 0.0).output * case.lk as f64;
        for h in 0..case.h {
            let sink = found.sinks.as_ref().map_or(0.0, |sinks| sinks.at(&[h]));
            assert_near(&[by_head(h)], &[-sink], bound, &case);
        }
    }
}

#[test]
fn a_misfitting_gradient_is_refused() -> Result<()> {
    let case = sizes(&mut Rng(72));
    let zeros = vec![0.0; 1000];
    for (axis, name) in ["batch", "heads", "queries", "value_dim"]
        .iter()
        .enumerate()
    {
        let mut shape = [2, 4, 3, 6];
        shape[axis] += 1;
        let grad = View::new(&zeros[..shape.iter().product()], &shape)?;
        let error = definition::backward(&case.attention(), &case.inputs(), grad).unwrap_err();
        let message = error.to_string();
        let shapes = [format!("{shape:?}"), "[2, 4, 3, 6]".into()];
        for part in ["grad_output", name, &shapes[0], &shapes[1]] {
            assert!(message.contains(part), "{part:?} is not in {message:?}");
        }
    }
    // One number for all is no gradient: nothing is repeated.
    let grad = View::new(&zeros[..1], &[1, 1, 1, 1])?;
    let error = definition::backward(&case.attention(), &case.inputs(), grad).unwrap_err();
    assert!(matches!(error, Error::Mismatch { .. }));
    Ok(())
}

#[test]
fn empty_rows_as_an_error_hold_for_the_derivative() -> Result<()> {
    let zeros = [0.0; 2];
    let view = View::new(&zeros, &[2, 1])?;
    let keep = [true, true, false, false];
    let attention = Attention {
        masks: vec![Mask::keep(View::new(&keep, &[2, 2])?)],
        empty_rows: EmptyRows::Error,
        ..Attention::default()
    };
    let inputs = Inputs::new(view, view, view)?;
    let error = definition::backward(&attention, &inputs, view).unwrap_err();
    assert!(matches!(
        error,
        Error::EmptyRows {
            first: [0, 0, 1],
            ..
        }
    ));
    Ok(())
}

/// Axes of length 0: gradients of the right shape, nothing in them.
#[test]
fn nothing_has_a_gradient_of_nothing() -> Result<()> {
    for [b, h, lq, lk, dv] in [
        [0, 2, 3, 4, 2],
        [1, 0, 3, 4, 2],
        [1, 2, 0, 4, 2],
        [1, 2, 3, 0, 2],
        [1, 2, 3, 4, 0],
    ] {
        let numbers = [1.0; 64];
        let view = |shape: [usize; 4]| View::new(&numbers[..shape.iter().product()], &shape);
        let inputs = Inputs::new(
            view([b, h, lq, 2])?,
            view([b, h, lk, 2])?,
            view([b, h, lk, dv])?,
        )?;
        let found = definition::backward(&Attention::default(), &inputs, view([b, h, lq, dv])?)?;
        assert_eq!(found.q.shape(), [b, h, lq, 2]);
        assert_eq!(found.k.shape(), [b, h, lk, 2]);
        assert_eq!(found.v.shape(), [b, h, lk, dv]);
        assert!(found.q.data().iter().all(|x| *x == 0.0));
    }
    Ok(())
}
