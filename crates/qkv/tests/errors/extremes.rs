//! Nothing to do, and positions as far as the types go.

use crate::common::*;
use crate::*;
use qkv::position::Rotary;
use qkv::{
    Alibi, AnyView, Attention, Bias, Block, Causal, Documents, Dropout, KeyLengths, Mask, Sinks,
    StepName, View, Window, definition, steps,
};

#[test]
fn axes_of_length_0() {
    for [b, h, hkv, lq, lk, dv] in [
        [0, 2, 1, 3, 4, 2],
        [1, 0, 0, 3, 4, 2],
        [1, 0, 2, 3, 4, 2],
        [1, 2, 1, 0, 4, 2],
        [1, 2, 1, 3, 0, 2],
        [1, 2, 1, 3, 4, 0],
        [0, 0, 0, 0, 0, 0],
    ] {
        let what = [b, h, hkv, lq, lk, dv];
        let (q, k, v) = ([b, h, lq, 2], [b, hkv, lk, 2], [b, hkv, lk, dv]);
        let inputs = inputs_of(&q, &k, &v).unwrap();
        for (n, attention) in with_every_option(h, b, lq, lk).iter().enumerate() {
            let found = definition::forward(attention, &inputs)
                .unwrap_or_else(|error| panic!("{error}: {what:?} {n}"));
            assert_eq!(found.output.shape(), [b, h, lq, dv]);
            assert_eq!(found.lse.shape(), [b, h, lq]);
            if lk == 0 {
                assert_eq!(found.empty_rows.len(), b * h * lq);
                assert!(found.output.data().iter().all(|x| *x == 0.0));
                assert!(found.lse.data().iter().all(|x| *x == f64::NEG_INFINITY));
            }
            let steps = steps(attention, &inputs).unwrap();
            let weights = steps.get(StepName::Weights).unwrap();
            assert_eq!(weights.shape(), [b, h, lq, lk]);
            assert_eq!(steps.get(StepName::Output).unwrap(), &found.output);
            let grad = ones(&[b, h, lq, dv]);
            let gradients = definition::backward(attention, &inputs, grad).unwrap();
            assert_eq!(gradients.k.shape(), k);
            let places = definition::places(attention, &inputs).unwrap();
            assert_eq!(places.queries.len(), b);
            let merged = definition::merge(&[found.clone(), found.clone()], None).unwrap();
            assert_eq!(merged.empty_rows, found.empty_rows);
        }
    }
}

/// No option, and each by itself with sizes that fit.
fn with_every_option(h: usize, b: usize, lq: usize, lk: usize) -> Vec<Attention<'static>> {
    let none = Attention::default;
    vec![
        none(),
        Attention {
            causal: Some(Causal::BottomRight),
            window: Some(Window {
                back: Some(0),
                forward: Some(0),
            }),
            ..none()
        },
        Attention {
            alibi: Some(Alibi {
                slopes: vec![0.5; h],
            }),
            sinks: Some(Sinks(vec![0.5; h])),
            dropout: Some(Dropout { p: 0.5, seed: 1 }),
            ..none()
        },
        Attention {
            lengths: Some(KeyLengths(vec![lk; b])),
            documents: Some(Documents::with_key_lengths(vec![lq], vec![lk]).unwrap()),
            causal: Some(Causal::TopLeft),
            ..none()
        },
        Attention {
            masks: vec![Mask::drop(View::new(&[false], &[1]).unwrap())],
            bias: Some(Bias(AnyView::from(ones(&[1])))),
            softcap: Some(3.0),
            ..none()
        },
    ]
}

/// Offsets and windows as far as the types go, with everything that counts by positions.
#[test]
fn positions_as_far_as_the_types_go() {
    let inputs = fitting(); // queries 3, keys 5
    let plain = definition::forward(&Attention::default(), &inputs).unwrap();
    let no_window = Window {
        back: Some(usize::MAX),
        forward: Some(usize::MAX),
    };
    let at_own_place = Window {
        back: Some(0),
        forward: Some(0),
    };
    let documents = Documents::with_key_lengths(vec![1, 2], vec![2, 3]).unwrap();
    for offset in [
        i64::MAX,
        i64::MAX - 1,
        1 << 62,
        7,
        -7,
        -(1 << 62),
        i64::MIN + 1,
        i64::MIN,
    ] {
        for packed in [false, true] {
            for (window, open) in [
                (None, true),
                (Some(no_window), true),
                (Some(at_own_place), false),
            ] {
                let attention = Attention {
                    causal: Some(Causal::Offset(offset)),
                    window,
                    documents: packed.then(|| documents.clone()),
                    ..Attention::default()
                };
                let what = (offset, packed, window);
                let found = tried(&attention).unwrap();
                match offset > 0 && open {
                    true if !packed => assert_results_same(&found, &plain, &what),
                    true => assert!(found.empty_rows.is_empty(), "{what:?}"),
                    false => assert_eq!(found.empty_rows.len(), 24, "{what:?}"),
                }
                // ALiBi, dropout, lengths and sinks besides: no overflow, no NaN.
                let all = Attention {
                    alibi: Some(Alibi {
                        slopes: vec![0.5, -0.5, 0.0, 1e300],
                    }),
                    dropout: Some(Dropout { p: 0.5, seed: 3 }),
                    lengths: Some(KeyLengths(vec![5, 2])),
                    sinks: Some(Sinks(vec![0.0; 4])),
                    ..attention
                };
                let finite = Attention {
                    alibi: Some(Alibi {
                        slopes: vec![0.5, -0.5, 0.0, 0.1],
                    }),
                    ..all.clone()
                };
                let found = tried(&finite).unwrap();
                assert!(
                    found.output.data().iter().all(|x| x.is_finite()),
                    "{what:?}"
                );
                tried(&all).unwrap(); // 1e300·2^63 may overflow to −inf: a score as any other
                // Rotary embeddings refuse what they cannot tell apart, and nothing else.
                let block = Block {
                    rotary: Some(Rotary::default()),
                    attention: finite,
                    ..Block::default()
                };
                let rotated = block.steps(&inputs);
                assert_eq!(rotated.is_ok(), offset.unsigned_abs() < 1 << 53, "{what:?}");
            }
        }
    }
    for window in [
        no_window,
        Window {
            back: None,
            forward: Some(usize::MAX),
        },
        Window {
            back: Some(usize::MAX),
            forward: None,
        },
        Window {
            back: None,
            forward: None,
        },
    ] {
        let attention = Attention {
            window: Some(window),
            ..Attention::default()
        };
        assert_results_same(&tried(&attention).unwrap(), &plain, &window);
    }
}

/// Positions beyond 2³² count modulo 2³² for dropout, as its definition says.
#[test]
fn dropout_far_away() {
    let inputs = fitting();
    let at = |offset: i64| {
        let attention = Attention {
            causal: Some(Causal::Offset(offset)),
            dropout: Some(Dropout { p: 0.5, seed: 8 }),
            ..Attention::default()
        };
        definition::forward(&attention, &inputs).unwrap()
    };
    let near = at(10);
    assert_results_same(&at(10 + (1 << 32)), &near, &"2^32");
    assert_results_same(&at(10 + (7 << 33)), &near, &"7·2^33");
    assert_ne!(at(11), near);
    assert_ne!(at((1 << 32) - 5), near);
    let dropout = Dropout { p: 0.5, seed: 8 };
    let word = |position| {
        (0..64)
            .map(|j| definition::drops(dropout, 0, 0, position, j))
            .collect::<Vec<_>>()
    };
    assert_eq!(word(-1), word((1 << 32) - 1));
    assert_ne!(word(-1), word(1));
    for j in [usize::MAX, usize::MAX - 1, 1 << 34] {
        for position in [i64::MAX, i64::MIN] {
            // no overflow
            definition::drops(dropout, usize::MAX, usize::MAX, position, j);
        }
    }
}
