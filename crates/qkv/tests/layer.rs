//! The layer against its formula, written out with small matrices.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::*;
use qkv::position::{Pairing, Rotary, sinusoidal};
use qkv::{
    Attention, Block, Causal, Inputs, KeyLengths, Layer, Linear, Place, RmsNorm, StepName, Steps,
    Tensor, View, definition,
};

/// A few hundred roundings of numbers below 100 lie between the two ways to compute a layer here.
const BOUND: f64 = 100.0 * 300.0 * U;

type Rows = Vec<Vec<f64>>;

struct Weights {
    w: [Rows; 4],
    b: [Vec<f64>; 4],
}

/// Width 5, four heads over two, head width 6, value width 3, context width `context`.
fn weights(rng: &mut Rng, context: usize) -> Weights {
    let mut matrix =
        |rows: usize, columns: usize| -> Rows { (0..rows).map(|_| rng.reals(columns)).collect() };
    let w = [
        matrix(5, 24),
        matrix(context, 12),
        matrix(context, 6),
        matrix(12, 5),
    ];
    let b = [24, 12, 6, 5].map(|n| rng.reals(n));
    Weights { w, b }
}

fn linear(weights: &Weights, n: usize) -> Linear {
    let name = ["W_Q", "W_K", "W_V", "W_O"][n];
    let (rows, columns) = (weights.w[n].len(), weights.w[n][0].len());
    let weight = tensor(&[rows, columns], &weights.w[n].concat());
    Linear::new(name, weight, Some(weights.b[n].clone())).unwrap()
}

fn layer(weights: &Weights, attention: Attention<'static>) -> Layer<'static> {
    Layer {
        q: linear(weights, 0),
        k: linear(weights, 1),
        v: linear(weights, 2),
        heads: 4,
        kv_heads: 2,
        sinusoidal: None,
        block: Block {
            attention,
            output: Some(linear(weights, 3)),
            ..Block::default()
        },
        residual: true,
    }
}

/// x·W + b
fn times(x: &Rows, weights: &Weights, n: usize) -> Rows {
    x.iter()
        .map(|row| {
            (0..weights.b[n].len())
                .map(|o| {
                    let products = row.iter().zip(&weights.w[n]).map(|(x, w)| x * w[o]);
                    weights.b[n][o] + products.sum::<f64>()
                })
                .collect()
        })
        .collect()
}

/// Head h of the columns.
fn head(x: &Rows, h: usize, width: usize) -> Rows {
    let columns = h * width..(h + 1) * width;
    x.iter().map(|row| row[columns.clone()].to_vec()).collect()
}

fn rms_normed(x: &Rows, gain: &[f64]) -> Rows {
    let normed = |row: &Vec<f64>| {
        let squares: f64 = row.iter().map(|x| x * x).sum();
        let root = (squares / row.len() as f64 + 1e-6).sqrt();
        row.iter().zip(gain).map(|(x, g)| g * x / root).collect()
    };
    x.iter().map(normed).collect()
}

/// Columns 2i and 2i + 1 of the first four turned by place·100^(−2i/4).
fn turned(x: &Rows, first: i64) -> Rows {
    let turn = |(t, row): (usize, &Vec<f64>)| {
        let mut row = row.clone();
        for i in 0..2 {
            let angle = (first + t as i64) as f64 * [1.0, 0.1][i];
            let (a, b) = (row[2 * i], row[2 * i + 1]);
            row[2 * i] = a * angle.cos() - b * angle.sin();
            row[2 * i + 1] = a * angle.sin() + b * angle.cos();
        }
        row
    };
    x.iter().enumerate().map(turn).collect()
}

/// softmax(q·kᵀ/√6)·v, causal or not.
fn attended(q: &Rows, k: &Rows, v: &Rows, causal: bool) -> Rows {
    let row = |(i, q): (usize, &Vec<f64>)| -> Vec<f64> {
        let last = if causal { i } else { k.len() - 1 };
        let exp: Vec<f64> = k[..=last]
            .iter()
            .map(|k| (q.iter().zip(k).map(|(q, k)| q * k).sum::<f64>() / 6_f64.sqrt()).exp())
            .collect();
        let sum: f64 = exp.iter().sum();
        (0..v[0].len())
            .map(|c| exp.iter().zip(v).map(|(e, v)| e / sum * v[c]).sum())
            .collect()
    };
    q.iter().enumerate().map(row).collect()
}

fn side_by_side(heads: &[Rows]) -> Rows {
    (0..heads[0].len())
        .map(|t| heads.iter().flat_map(|head| head[t].clone()).collect())
        .collect()
}

fn sum(a: &Rows, b: &Rows) -> Rows {
    let add = |(a, b): (&Vec<f64>, &Vec<f64>)| a.iter().zip(b).map(|(a, b)| a + b).collect();
    a.iter().zip(b).map(add).collect()
}

fn get(steps: &Steps, name: StepName) -> &Tensor<f64> {
    steps.get(name).unwrap_or_else(|| panic!("no {name}"))
}

fn rows(data: &[f64], width: usize) -> Rows {
    data.chunks(width).map(<[f64]>::to_vec).collect()
}

fn rotary() -> Rotary {
    Rotary {
        pairing: Pairing::Interleaved,
        base: 100.0,
        dim: Some(4),
        ..Rotary::default()
    }
}

/// Norms, rotary from place 7, causality, output projection and residual.
#[test]
fn self_attention_by_its_formula() {
    let mut rng = Rng(1);
    let weights = weights(&mut rng, 5);
    let (gain_q, gain_k) = (rng.reals(6), rng.reals(6));
    let mut layer = layer(
        &weights,
        Attention {
            causal: Some(Causal::Square),
            ..Attention::default()
        },
    );
    layer.block.q_norm = Some(RmsNorm::new(gain_q.clone()));
    layer.block.k_norm = Some(RmsNorm::new(gain_k.clone()));
    layer.block.rotary = Some(rotary());
    layer.block.place = Place::Counted { start: 7 };
    let x = rng.reals(2 * 3 * 5);
    let steps = layer.steps(&tensor(&[2, 3, 5], &x), None, None).unwrap();

    let names: Vec<String> = steps.iter().map(|(name, _)| name.to_string()).collect();
    let expected = "q k v q_normed k_normed q_rotated k_rotated scores scaled masked max exp sum \
                    weights output lse concatenated projected residual";
    assert_eq!(names.join(" "), expected);
    for b in 0..2 {
        let x = rows(&x[b * 15..(b + 1) * 15], 5);
        let (q, k, v) = (
            times(&x, &weights, 0),
            times(&x, &weights, 1),
            times(&x, &weights, 2),
        );
        let mut heads = Vec::new();
        for h in 0..4 {
            let (q, k, v) = (head(&q, h, 6), head(&k, h / 2, 6), head(&v, h / 2, 3));
            let (q, k) = (rms_normed(&q, &gain_q), rms_normed(&k, &gain_k));
            let rotated = (turned(&q, 7), turned(&k, 7));
            let output = attended(&rotated.0, &rotated.1, &v, true);
            for t in 0..3 {
                let near = |name, head, row: &Vec<f64>| {
                    let found = get(&steps, name).row(&[b, head, t]);
                    assert_near(found, row, BOUND, &(name, b, h, t));
                };
                near(StepName::QNormed, h, &q[t]);
                near(StepName::KNormed, h / 2, &k[t]);
                near(StepName::QRotated, h, &rotated.0[t]);
                near(StepName::KRotated, h / 2, &rotated.1[t]);
                near(StepName::V, h / 2, &v[t]);
                near(StepName::Output, h, &output[t]);
            }
            heads.push(output);
        }
        let concatenated = side_by_side(&heads);
        let projected = times(&concatenated, &weights, 3);
        let residual = sum(&x, &projected);
        for t in 0..3 {
            let near = |name, row: &Vec<f64>| {
                assert_near(get(&steps, name).row(&[b, t]), row, BOUND, &(name, b, t));
            };
            near(StepName::Concatenated, &concatenated[t]);
            near(StepName::Projected, &projected[t]);
            near(StepName::Residual, &residual[t]);
        }
    }
}

/// Keys and values from a context of another length and width, positions added to both.
#[test]
fn cross_attention_by_its_formula() {
    let mut rng = Rng(2);
    let weights = weights(&mut rng, 4);
    let mut layer = layer(&weights, Attention::default());
    layer.sinusoidal = Some(3);
    layer.residual = false;
    let (x, context) = (rng.reals(2 * 3 * 5), rng.reals(2 * 6 * 4));
    let (tokens, others) = (tensor(&[2, 3, 5], &x), tensor(&[2, 6, 4], &context));
    let steps = layer.steps(&tokens, Some(&others), None).unwrap();
    let table = |length, width, start| rows(sinusoidal(length, width, start).data(), width);
    for b in 0..2 {
        let x = sum(&rows(&x[b * 15..(b + 1) * 15], 5), &table(3, 5, 3));
        let context = sum(&rows(&context[b * 24..(b + 1) * 24], 4), &table(6, 4, 0));
        let q = times(&x, &weights, 0);
        let (k, v) = (times(&context, &weights, 1), times(&context, &weights, 2));
        let heads: Vec<Rows> = (0..4)
            .map(|h| {
                let (q, k, v) = (head(&q, h, 6), head(&k, h / 2, 6), head(&v, h / 2, 3));
                attended(&q, &k, &v, false)
            })
            .collect();
        let projected = times(&side_by_side(&heads), &weights, 3);
        for t in 0..3 {
            let found = get(&steps, StepName::XPositioned).row(&[b, t]);
            assert_near(found, &x[t], BOUND, &(b, t));
            let found = get(&steps, StepName::Projected).row(&[b, t]);
            assert_near(found, &projected[t], BOUND, &(b, t));
        }
        for t in 0..6 {
            let found = get(&steps, StepName::ContextPositioned).row(&[b, t]);
            assert_near(found, &context[t], BOUND, &(b, t));
        }
    }
    assert!(steps.get(StepName::Residual).is_none());
}

/// A prompt in pieces of any size, each after the cache of those before: the same bits.
#[test]
fn a_cached_layer_is_one_pass() {
    for seed in 0..20 {
        let mut rng = Rng(300 + seed);
        let weights = weights(&mut rng, 5);
        let causal = Attention {
            causal: Some(Causal::BottomRight),
            ..Attention::default()
        };
        let mut layer = layer(&weights, causal);
        layer.block.q_norm = Some(RmsNorm::new(rng.reals(6)));
        layer.block.k_norm = Some(RmsNorm::new(rng.reals(6)));
        layer.block.rotary = Some(rotary());
        layer.block.place = Place::Counted {
            start: rng.below(9) as i64 - 4,
        };
        layer.sinusoidal = rng.chance(0.5).then_some(2);
        let (batch, length) = (1 + rng.below(2), 2 + rng.below(6));
        let x = tensor(&[batch, length, 5], &rng.reals(batch * length * 5));
        let whole = layer.steps(&x, None, None).unwrap();
        let mut cache: Option<(Tensor<f64>, Tensor<f64>)> = None;
        let mut first = 0;
        for count in rng.split(length, 3) {
            let piece: Vec<f64> = (0..batch)
                .flat_map(|b| (first..first + count).map(move |t| (b, t)))
                .flat_map(|(b, t)| x.row(&[b, t]).to_vec())
                .collect();
            let piece = tensor(&[batch, count, 5], &piece);
            let past = cache.as_ref().map(|(k, v)| (k, v));
            let steps = layer.steps(&piece, None, past).unwrap();
            let found = get(&steps, StepName::Residual);
            let expected = get(&whole, StepName::Residual);
            for b in 0..batch {
                for t in 0..count {
                    let expected = expected.row(&[b, first + t]);
                    assert_bits(found.row(&[b, t]), expected, &(seed, b, first + t));
                }
            }
            let k = get(&steps, StepName::KRotated).clone();
            cache = Some((k, get(&steps, StepName::V).clone()));
            first += count;
        }
    }
}

/// Rotary scores depend on distances only: another start changes them within rounding, and
/// given places that count are counted ones.
#[test]
fn places_shift_without_effect() {
    let mut rng = Rng(4);
    let (q, k, v) = (rng.reals(2 * 4 * 6), rng.reals(4 * 6), rng.reals(4 * 3));
    let inputs = Inputs::new(
        View::new(&q, &[2, 4, 6]).unwrap(),
        View::new(&k, &[1, 4, 6]).unwrap(),
        View::new(&v, &[1, 4, 3]).unwrap(),
    )
    .unwrap();
    let run = |place| {
        let block = Block {
            rotary: Some(rotary()),
            place,
            ..Block::default()
        };
        block.steps(&inputs).unwrap()
    };
    let from_0 = run(Place::default());
    let given = run(Place::Given(vec![vec![0, 1, 2, 3]]));
    assert_eq!(given, from_0);
    let from_50 = run(Place::Counted { start: 50 });
    assert_eq!(run(Place::Given(vec![vec![50, 51, 52, 53]])), from_50);
    let (found, expected) = (
        get(&from_50, StepName::Scores),
        get(&from_0, StepName::Scores),
    );
    assert_near(found.data(), expected.data(), BOUND, &"from 50");
    let rotated = [&from_50, &from_0].map(|steps| get(steps, StepName::QRotated).data());
    assert!(
        rotated[0]
            .iter()
            .zip(rotated[1])
            .any(|(a, b)| (a - b).abs() > 0.1)
    );
    let plain = definition::forward(&Attention::default(), &inputs).unwrap();
    assert_ne!(get(&from_0, StepName::Output), &plain.output);
}

/// Without a token in common, a query stands where the alignment says.
#[test]
fn places_follow_the_alignment() {
    let ones = [1.0; 24];
    let view = |length: usize| View::new(&ones[..length * 4], &[length, 4]).unwrap();
    let inputs = Inputs::new(view(2), view(5), view(5)).unwrap();
    let turned = |attention: Attention<'static>| {
        let block = Block {
            rotary: Some(Rotary::default()),
            attention,
            ..Block::default()
        };
        let steps = block.steps(&inputs).unwrap();
        let q = get(&steps, StepName::QRotated).row(&[0, 0, 0]).to_vec();
        let k = get(&steps, StepName::KRotated).clone();
        // all tokens are alike: query 0 equals the key at its place
        (0..5).find(|&j| k.row(&[0, 0, j]) == q)
    };
    let causal = |causal| Attention {
        causal: Some(causal),
        ..Attention::default()
    };
    assert_eq!(turned(causal(Causal::TopLeft)), Some(0));
    assert_eq!(turned(causal(Causal::BottomRight)), Some(3));
    assert_eq!(turned(causal(Causal::Offset(1))), Some(1));
    assert_eq!(turned(Attention::default()), Some(3));
    assert_eq!(turned(causal(Causal::Offset(9))), None);
    let lengths = Attention {
        lengths: Some(KeyLengths(vec![4])),
        ..causal(Causal::BottomRight)
    };
    assert_eq!(turned(lengths), Some(2));
}
