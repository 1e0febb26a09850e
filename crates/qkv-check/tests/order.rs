//! Other orders of tokens, and steps of decoding.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use qkv::position::{Pairing, Rotary, slopes};
use qkv::{
    Alibi, Attention, Bias, Block, Causal, Dropout, Inputs, KeyLengths, Layer, Linear, Mask,
    RmsNorm, StepName, Steps, Tensor, View, Window,
};
use qkv_check::decode::{against_full_run, against_one_call, last_query, prefill};
use qkv_check::permute::{Permuted, Positional, Source, permute};

fn numbers(n: usize, seed: usize) -> Vec<f64> {
    let number = |n: usize| ((n * 37 + seed * 101) % 29) as f64 / 9.0 - 1.5;
    (1..=n).map(number).collect()
}

fn tensor(shape: &[usize], seed: usize) -> Tensor<f64> {
    Tensor::new(shape, numbers(shape.iter().product(), seed)).unwrap()
}

fn layer(block: Block<'_>, sinusoidal: Option<usize>) -> Layer<'_> {
    let linear = |name, shape: [usize; 2], seed| {
        let bias = Some(numbers(shape[1], seed + 50));
        Linear::new(name, tensor(&shape, seed), bias).unwrap()
    };
    Layer {
        q: linear("W_Q", [3, 8], 1),
        k: linear("W_K", [3, 4], 2),
        v: linear("W_V", [3, 6], 3),
        heads: 4,
        kv_heads: 2,
        sinusoidal,
        block: Block {
            output: Some(linear("W_O", [12, 3], 4)),
            ..block
        },
        residual: true,
    }
}

fn plain(attention: Attention<'_>) -> Block<'_> {
    Block {
        attention,
        ..Block::default()
    }
}

fn permuted(layer: &Layer<'_>, order: &[usize]) -> Permuted {
    let x = tensor(&[2, 5, 3], 7);
    let steps = layer.steps(&x, None, None).unwrap();
    permute(Source::Tokens { layer, x: &x }, &steps, order).unwrap()
}

#[test]
fn without_positions_the_rows_move_with_the_tokens() {
    let keep: Vec<bool> = (0..25).map(|n| n % 3 != 1).collect();
    let bias = numbers(20, 9);
    let attention = Attention {
        masks: vec![Mask::keep(View::new(&keep, &[5, 5]).unwrap())],
        bias: Some(Bias(View::new(&bias, &[4, 1, 5]).unwrap().into())),
        ..Attention::default()
    };
    let layer = layer(plain(attention), None);
    let moved = permuted(&layer, &[3, 0, 4, 1, 2]);
    assert!(moved.is_same() && moved.difference <= 1e-14, "{moved:?}");
    assert!(moved.bound < 1e-13 && moved.causes.is_empty());
    // Whole rows, through W_O and the residual.
    let first = layer.steps(&tensor(&[2, 5, 3], 7), None, None).unwrap();
    let [was, is] = [&first, &moved.steps].map(|steps| steps.get(StepName::Residual).unwrap());
    for c in 0..3 {
        assert!((was.at(&[1, 3, c]) - is.at(&[1, 0, c])).abs() < 1e-12);
    }
}

#[test]
fn each_positional_option_ends_it_and_is_named() {
    let rotary = |pairing| Block {
        rotary: Some(Rotary {
            pairing,
            ..Rotary::default()
        }),
        ..Block::default()
    };
    let with = |change: fn(&mut Attention<'_>)| {
        let mut attention = Attention::default();
        change(&mut attention);
        plain(attention)
    };
    let cases: [(Positional, Block<'_>, Option<usize>); 9] = [
        (Positional::Sinusoidal, Block::default(), Some(0)),
        (Positional::Rotary, rotary(Pairing::Halves), None),
        (Positional::Rotary, rotary(Pairing::Interleaved), None),
        (
            Positional::Alibi,
            with(|a| a.alibi = Some(Alibi { slopes: slopes(4) })),
            None,
        ),
        (
            Positional::Causal,
            with(|a| a.causal = Some(Causal::Square)),
            None,
        ),
        (
            Positional::Window,
            with(|a| {
                a.window = Some(Window {
                    back: Some(1),
                    forward: None,
                })
            }),
            None,
        ),
        (
            Positional::Lengths,
            with(|a| a.lengths = Some(KeyLengths(vec![4, 3]))),
            None,
        ),
        (
            Positional::Documents,
            with(|a| a.documents = Some(qkv::Documents::new(vec![2, 3]))),
            None,
        ),
        (
            Positional::Dropout,
            with(|a| a.dropout = Some(Dropout { p: 0.5, seed: 1 })),
            None,
        ),
    ];
    for (option, block, sinusoidal) in cases {
        let moved = permuted(&layer(block, sinusoidal), &[3, 0, 4, 1, 2]);
        assert!(!moved.is_same(), "{option:?}");
        let [(named, difference)] = moved.causes[..] else {
            panic!("{:?}", moved.causes);
        };
        assert_eq!(named, option);
        assert!((difference - moved.difference).abs() < 1e-12, "{option:?}");
        assert!(moved.without <= moved.bound, "{option:?} {}", moved.without);
    }
}

/// A mirror keeps all distances: ALiBi is in force and changes nothing, the causal mask does.
#[test]
fn of_several_options_the_responsible_ones_are_told() {
    let attention = Attention {
        alibi: Some(Alibi { slopes: slopes(4) }),
        causal: Some(Causal::Square),
        ..Attention::default()
    };
    let moved = permuted(&layer(plain(attention), None), &[4, 3, 2, 1, 0]);
    let [(Positional::Alibi, alibi), (Positional::Causal, causal)] = moved.causes[..] else {
        panic!("{:?}", moved.causes);
    };
    assert!(alibi <= moved.bound && causal > 0.1 && moved.difference > 0.1);
}

#[test]
fn q_k_and_v_move_together() {
    let [q, k, v] = [1, 2, 3].map(|seed| tensor(&[1, 1, 4, 2], seed));
    let block = Block::default();
    let inputs = Inputs::new(q.view().unwrap(), k.view().unwrap(), v.view().unwrap());
    let steps = block.steps(&inputs.unwrap()).unwrap();
    let source = Source::Given {
        block: &block,
        q: &q,
        k: &k,
        v: &v,
    };
    let moved = permute(source, &steps, &[1, 2, 3, 0]).unwrap();
    assert!(moved.is_same());
    let (was, is) = (
        steps.get(StepName::Output).unwrap(),
        moved.steps.get(StepName::Output).unwrap(),
    );
    assert!((was.at(&[0, 0, 0, 1]) - is.at(&[0, 0, 3, 1])).abs() < 1e-15);
    assert!((was.at(&[0, 0, 1, 1]) - is.at(&[0, 0, 0, 1])).abs() < 1e-15);
}

fn decoded(layer: &Layer<'_>) -> (Steps, Steps) {
    let x = tensor(&[2, 5, 3], 7);
    let full = layer.steps(&x, None, None).unwrap();
    let last = prefill(layer, &x).unwrap().unwrap();
    assert_eq!(last.past_k.shape(), [2, 2, 4, 2]);
    let mut alone = layer.clone();
    alone.block.attention = last_query(&layer.block.attention, 5);
    let step = alone.steps(&last.x, None, Some((&last.past_k, &last.past_v)));
    (full, step.unwrap())
}

/// B108, and with everything that tells positions: the same bits.
#[test]
fn b108_a_decode_step_is_the_last_row_of_the_full_run() {
    let keep: Vec<bool> = (0..25).map(|n| n % 7 != 3).collect();
    let bias = numbers(25, 9);
    for causal in [
        None,
        Some(Causal::Square),
        Some(Causal::BottomRight),
        Some(Causal::Offset(-1)),
    ] {
        for (sinusoidal, lengths) in [(None, None), (Some(3), Some(KeyLengths(vec![5, 4])))] {
            let attention = Attention {
                causal,
                lengths,
                masks: vec![Mask::keep(View::new(&keep, &[5, 5]).unwrap())],
                bias: Some(Bias(View::new(&bias, &[5, 5]).unwrap().into())),
                alibi: Some(Alibi { slopes: slopes(4) }),
                window: Some(Window {
                    back: Some(3),
                    forward: None,
                }),
                dropout: Some(Dropout { p: 0.25, seed: 5 }),
                ..Attention::default()
            };
            let block = Block {
                attention,
                k_norm: Some(RmsNorm::new(vec![1.0, 2.0])),
                rotary: Some(Rotary::default()),
                ..Block::default()
            };
            let (full, step) = decoded(&layer(block, sinusoidal));
            let same = against_full_run(&full, &step).unwrap();
            assert!(same.is_equal(), "{causal:?} {}", same.difference);
            let (full, step) = (
                full.get(StepName::Residual).unwrap(),
                step.get(StepName::Residual).unwrap(),
            );
            assert_eq!(full.row(&[1, 4]), step.row(&[1, 0]));
        }
    }
}

#[test]
fn a_step_that_forgets_an_option_is_told_apart() {
    let layer = layer(
        plain(Attention {
            causal: Some(Causal::Offset(-1)),
            ..Attention::default()
        }),
        None,
    );
    let x = tensor(&[2, 5, 3], 7);
    let full = layer.steps(&x, None, None).unwrap();
    let last = prefill(&layer, &x).unwrap().unwrap();
    let mut alone = layer.clone();
    alone.block.attention.causal = None;
    let step = alone
        .steps(&last.x, None, Some((&last.past_k, &last.past_v)))
        .unwrap();
    assert!(!against_full_run(&full, &step).unwrap().is_equal());
    assert_eq!(prefill(&layer, &tensor(&[2, 1, 3], 7)).unwrap(), None);
}

#[test]
fn a_cache_and_one_call_agree() {
    let [q, k, v, past_k, past_v] =
        [1, 2, 3, 4, 5].map(|seed| tensor(&[1, 2, if seed > 3 { 3 } else { 1 }, 2], seed));
    let block = Block {
        rotary: Some(Rotary::default()),
        ..plain(Attention {
            causal: Some(Causal::BottomRight),
            ..Attention::default()
        })
    };
    let inputs = Inputs::new(q.view().unwrap(), k.view().unwrap(), v.view().unwrap()).unwrap();
    let inputs = inputs
        .with_past(past_k.view().unwrap(), past_v.view().unwrap())
        .unwrap();
    let steps = block.steps(&inputs).unwrap();
    let same = against_one_call(&block, &steps).unwrap().unwrap();
    assert!(same.is_equal());
    assert_eq!(same.output.shape(), [1, 2, 1, 2]);
}
