//! The definition against a second one: whole matrices a head, positions as vectors, masks as
//! added matrices, the softmax by way of its logarithm. It was written from the design's text
//! and shares no line with the crate.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::*;
use qkv::{Attention, Causal, Dropout, EmptyRows, Error, Scale, StepName, definition, steps};

/// A matrix.
#[derive(Clone)]
struct Matrix {
    rows: usize,
    columns: usize,
    data: Vec<f64>,
}

impl Matrix {
    fn by(rows: usize, columns: usize, at: impl Fn(usize, usize) -> f64) -> Matrix {
        let data = (0..rows * columns).map(|n| at(n / columns, n % columns));
        Matrix {
            rows,
            columns,
            data: data.collect(),
        }
    }

    fn at(&self, i: usize, j: usize) -> f64 {
        self.data[i * self.columns + j]
    }

    /// One head of an array `[batch, heads, rows, columns]`.
    fn head(data: &[f64], head: usize, rows: usize, columns: usize) -> Matrix {
        let size = rows * columns;
        Matrix::by(rows, columns, |i, j| data[head * size + i * columns + j])
    }

    fn transposed(&self) -> Matrix {
        Matrix::by(self.columns, self.rows, |i, j| self.at(j, i))
    }

    fn times(&self, other: &Matrix) -> Matrix {
        assert_eq!(self.columns, other.rows);
        Matrix::by(self.rows, other.columns, |i, j| {
            // from the last term to the first
            (0..self.columns)
                .rev()
                .fold(0.0, |sum, c| sum + self.at(i, c) * other.at(c, j))
        })
    }

    fn map(&self, f: impl Fn(f64) -> f64) -> Matrix {
        Matrix::by(self.rows, self.columns, |i, j| f(self.at(i, j)))
    }

    fn plus(&self, other: &Matrix) -> Matrix {
        Matrix::by(self.rows, self.columns, |i, j| {
            self.at(i, j) + other.at(i, j)
        })
    }
}

/// For each query or key: its document, and its place in it.
fn in_documents(lengths: &[usize]) -> Vec<(usize, i64)> {
    let mut all = Vec::new();
    for (document, &length) in lengths.iter().enumerate() {
        all.extend((0..length as i64).map(|place| (document, place)));
    }
    all
}

/// What the second definition gives.
struct Found {
    output: Vec<f64>,
    lse: Vec<f64>,
    weights: Vec<f64>,
    dropped: Vec<f64>,
    empty: Vec<[usize; 3]>,
}

fn naive(case: &Case) -> Found {
    let (lq, lk) = (case.lq, case.lk);
    let (document_queries, document_keys) = match &case.documents {
        Some((queries, keys)) => (queries.clone(), keys.clone()),
        None => (vec![lq], vec![lk]),
    };
    let (queries, keys) = (
        in_documents(&document_queries),
        in_documents(&document_keys),
    );
    let mut found = Found {
        output: Vec::new(),
        lse: Vec::new(),
        weights: Vec::new(),
        dropped: Vec::new(),
        empty: Vec::new(),
    };
    for b in 0..case.b {
        let real = case.lengths.as_ref().map_or(lk, |lengths| lengths[b]);
        // The place, within its document, of the key at which each query stands.
        let stands: Vec<i64> = queries
            .iter()
            .map(|&(document, place)| {
                let real_keys = keys[..real].iter().filter(|key| key.0 == document).count();
                place
                    + match case.causal {
                        Some(Causal::TopLeft) | Some(Causal::Square) => 0,
                        Some(Causal::Offset(n)) => n,
                        _ => real_keys as i64 - document_queries[document] as i64,
                    }
            })
            .collect();
        let ahead = |i: usize, j: usize| keys[j].1 - stands[i];
        for h in 0..case.h {
            let group = h * case.hkv / case.h;
            let q = Matrix::head(&case.q, b * case.h + h, lq, case.dk);
            let k = Matrix::head(&case.k, b * case.hkv + group, lk, case.dk);
            let v = Matrix::head(&case.v, b * case.hkv + group, lk, case.dv);
            let scale = match case.scale {
                Scale::Factor(factor) => factor,
                Scale::InverseSqrt => (case.dk as f64).powf(-0.5),
            };
            let mut s = q.map(|x| x * scale).times(&k.transposed());
            if let Some(cap) = case.softcap {
                s = s.map(|x| cap * (1.0 - 2.0 / ((2.0 * x / cap).exp() + 1.0)));
            }
            if let Some(bias) = &case.bias {
                s = s.plus(&Matrix::by(lq, lk, |i, j| bias.at([b, h, i, j])));
            }
            if let Some(slopes) = &case.alibi {
                let same = |i: usize, j: usize| queries[i].0 == keys[j].0;
                s = s.plus(&Matrix::by(lq, lk, |i, j| match same(i, j) {
                    true => -slopes[h] * ahead(i, j).abs() as f64,
                    false => 0.0, // dropped below
                }));
            }
            let hide = |hidden: bool| if hidden { f64::NEG_INFINITY } else { 0.0 };
            for (keeps, mask) in &case.masks {
                s = s.plus(&Matrix::by(lq, lk, |i, j| {
                    hide(mask.at([b, h, i, j]) != *keeps)
                }));
            }
            if case.causal.is_some() {
                s = s.plus(&Matrix::by(lq, lk, |i, j| hide(ahead(i, j) > 0)));
            }
            if let Some(window) = case.window {
                let back = window.back.map_or(i64::MAX, |n| n as i64);
                let forward = window.forward.map_or(i64::MAX, |n| n as i64);
                s = s.plus(&Matrix::by(lq, lk, |i, j| {
                    hide(ahead(i, j) < -back || ahead(i, j) > forward)
                }));
            }
            s = s.plus(&Matrix::by(lq, lk, |_, j| hide(j >= real)));
            s = s.plus(&Matrix::by(lq, lk, |i, j| hide(queries[i].0 != keys[j].0)));

            // log-softmax, keys added one by one from the right
            let lse: Vec<f64> = (0..lq)
                .map(|i| {
                    (0..lk)
                        .rev()
                        .fold(f64::NEG_INFINITY, |sum, j| log_add(sum, s.at(i, j)))
                })
                .collect();
            let with_sink: Vec<f64> = lse
                .iter()
                .map(|&lse| match &case.sinks {
                    Some(sinks) => log_add(lse, sinks[h]),
                    None => lse,
                })
                .collect();
            let weights = Matrix::by(lq, lk, |i, j| match s.at(i, j) == f64::NEG_INFINITY {
                true => 0.0,
                false => (s.at(i, j) - with_sink[i]).exp(),
            });
            let dropped = Matrix::by(lq, lk, |i, j| {
                let Some(Dropout { p, seed }) = case.dropout else {
                    return weights.at(i, j);
                };
                // absolute positions: those in the call, not in the document
                let first: usize = document_keys[..queries[i].0].iter().sum();
                let query = first as i64 + stands[i];
                match word(seed, b, h, query, j) < p {
                    true => 0.0,
                    false => weights.at(i, j) / (1.0 - p),
                }
            });
            for (i, lse) in lse.iter().enumerate() {
                if *lse == f64::NEG_INFINITY {
                    found.empty.push([b, h, i]);
                }
            }
            found.output.extend(dropped.times(&v).data);
            found.lse.extend(lse);
            found.weights.extend(weights.data);
            found.dropped.extend(dropped.data);
        }
    }
    found
}

/// ln(eᵃ + eᵇ)
fn log_add(a: f64, b: f64) -> f64 {
    let (low, high) = if a < b { (a, b) } else { (b, a) };
    if low == f64::NEG_INFINITY {
        return high;
    }
    high + (low - high).exp().ln_1p()
}

/// Philox 4×32-10, as a share of 2³².
fn word(seed: u64, b: usize, h: usize, query: i64, j: usize) -> f64 {
    let low = |x: u64| x & 0xFFFF_FFFF;
    let (mut x, mut y) = (low(j as u64 / 4), low(query as u64));
    let (mut z, mut w) = (low(h as u64), low(b as u64));
    let (mut k, mut l) = (low(seed), seed >> 32);
    for _ in 0..10 {
        let (m, n) = (x * 0xD251_1F53, z * 0xCD9E_8D57);
        (x, y, z, w) = ((n >> 32) ^ y ^ k, low(n), (m >> 32) ^ w ^ l, low(m));
        (k, l) = (low(k + 0x9E37_79B9), low(l + 0xBB67_AE85));
    }
    [x, y, z, w][j % 4] as f64 / 4_294_967_296.0
}

fn compare(case: &Case) {
    let expected = naive(case);
    let output = case.forward();
    // The second definition adds logarithms one by one: each of up to L + 1 additions rounds a
    // number the size of lse again, and the weights hang on it. Bounded by L more stages.
    let bound = bound(case, 2 + case.lk, 0.0);
    assert_eq!(output.empty_rows, expected.empty, "{case:?}");
    assert_near(output.output.data(), &expected.output, bound.output, case);
    assert_near(output.lse.data(), &expected.lse, bound.lse, case);
    let steps = case.steps();
    let weights = steps.get(StepName::Weights).unwrap();
    assert_near(weights.data(), &expected.weights, bound.weights, case);
    if let Some(dropout) = case.dropout {
        let dropped = steps.get(StepName::Dropped).unwrap();
        let bound = bound.weights / (1.0 - dropout.p);
        assert_near(dropped.data(), &expected.dropped, bound, case);
    }
}

#[test]
fn three_thousand_small_configurations() {
    let mut empty = 0;
    for seed in 0..3000 {
        let case = Case::random(&mut Rng(seed), false);
        compare(&case);
        empty += usize::from(!case.forward().empty_rows.is_empty());
    }
    // The generator does make empty rows, and not everywhere.
    assert!(
        (300..2700).contains(&empty),
        "{empty} cases with empty rows"
    );
}

#[test]
fn lengths_around_blocks() {
    for seed in 0..60 {
        compare(&Case::random(&mut Rng(10_000 + seed), true));
    }
}

#[test]
fn plain_attention_of_many_sizes() {
    for seed in 0..300 {
        compare(&Case::plain(&mut Rng(20_000 + seed), seed % 30 == 0));
    }
}

/// Empty rows as an error list exactly the rows that keep no key.
#[test]
fn empty_rows_as_an_error() {
    for seed in 0..500 {
        let case = Case::random(&mut Rng(30_000 + seed), false);
        let strict = Attention {
            empty_rows: EmptyRows::Error,
            ..case.attention()
        };
        let empty = naive(&case).empty;
        let rows = case.b * case.h * case.lq;
        let found = definition::forward(&strict, &case.inputs());
        let by_steps = steps(&strict, &case.inputs());
        match empty.first() {
            None => assert!(found.is_ok() && by_steps.is_ok()),
            Some(&first) => {
                let expected = Error::EmptyRows { rows, first, empty };
                assert_eq!(found.unwrap_err(), expected);
                assert_eq!(by_steps.unwrap_err(), expected);
            }
        }
    }
}

/// Whether the design's text refuses these options.
fn refused(case: &Case) -> bool {
    let misfit = |shape: &[usize]| {
        let full = case.scores();
        let aligned = &full[4 - shape.len()..];
        shape
            .iter()
            .zip(aligned)
            .any(|(&n, &axis)| n != 1 && n != axis)
    };
    let not_all = |lengths: &[usize], axis: usize| lengths.iter().sum::<usize>() != axis;
    matches!(case.scale, Scale::Factor(factor) if !factor.is_finite())
        || case
            .softcap
            .is_some_and(|cap| !(cap > 0.0 && cap < f64::INFINITY))
        || case.bias.as_ref().is_some_and(|bias| misfit(&bias.shape))
        || case.masks.iter().any(|(_, mask)| misfit(&mask.shape))
        || case.alibi.as_ref().is_some_and(|slopes| {
            slopes.len() != case.h || slopes.iter().any(|slope| !slope.is_finite())
        })
        || case
            .sinks
            .as_ref()
            .is_some_and(|sinks| sinks.len() != case.h)
        || case.lengths.as_ref().is_some_and(|lengths| {
            lengths.len() != case.b || lengths.iter().any(|&length| length > case.lk)
        })
        || case
            .documents
            .as_ref()
            .is_some_and(|(queries, keys)| not_all(queries, case.lq) || not_all(keys, case.lk))
        || case
            .dropout
            .is_some_and(|dropout| !(dropout.p >= 0.0 && dropout.p < 1.0))
        || case.causal == Some(Causal::Square)
            && match &case.documents {
                Some((queries, keys)) => queries != keys,
                None => case.lq != case.lk,
            }
}

/// Something of the options changed, often to what does not fit.
fn disturb(case: &mut Case, rng: &mut Rng) {
    let odd = rng.pick(&[
        0.0,
        -0.0,
        -1.0,
        1.0,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
    ]);
    let wrong_shape = |case: &Case, rng: &mut Rng| {
        let mut shape = case.broadcast_shape(rng);
        if !shape.is_empty() {
            let axis = rng.below(shape.len());
            shape[axis] = rng.below(4);
        }
        shape
    };
    match rng.below(10) {
        0 => case.scale = Scale::Factor(odd),
        1 => case.softcap = Some(odd),
        2 => {
            let shape = wrong_shape(case, rng);
            let n = shape.iter().product();
            case.bias = Some(Array::new(&shape, rng.reals(n)));
        }
        3 => {
            let shape = wrong_shape(case, rng);
            let n: usize = shape.iter().product();
            case.masks.push((true, Array::new(&shape, vec![true; n])));
        }
        4 => case.alibi = Some(vec![rng.pick(&[odd, 0.5]); rng.below(case.h + 2)]),
        5 => case.sinks = Some(vec![1.0; rng.below(case.h + 2)]),
        6 => {
            let count = rng.pick(&[case.b, case.b, case.b + 1]);
            case.lengths = Some((0..count).map(|_| rng.below(case.lk + 2)).collect());
        }
        7 => {
            let mut queries = rng.split(case.lq, 2);
            let mut keys = rng.split(case.lk, 2);
            queries[0] += rng.below(2);
            keys[1] += rng.below(2);
            case.documents = Some((queries, keys));
        }
        8 => case.dropout = Some(Dropout { p: odd, seed: 3 }),
        _ => case.causal = Some(Causal::Square),
    }
}

#[test]
fn what_is_refused_and_what_is_not() {
    let mut refusals = 0;
    for seed in 0..2000 {
        let mut rng = Rng(40_000 + seed);
        let mut case = Case::random(&mut rng, false);
        disturb(&mut case, &mut rng);
        let found = definition::forward(&case.attention(), &case.inputs());
        assert_eq!(found.is_err(), refused(&case), "{found:?} {case:?}");
        if let Err(error) = found {
            refusals += 1;
            let by_steps = steps(&case.attention(), &case.inputs()).unwrap_err();
            // compared as text: NaN is not equal to itself
            assert_eq!(by_steps.to_string(), error.to_string());
        } else {
            compare(&case);
        }
    }
    assert!((500..1700).contains(&refusals), "{refusals} refusals");
}
