//! Rotary, ALiBi and left padding together with attention. More in `tests/positions.rs`.

use crate::common::*;
use qkv::position::{Pairing, Positions, Rotary, Scaling, slopes};
use qkv::{Alibi, Attention, Block, Causal, Inputs, Mask, Place, Result, Scale, StepName, View};

/// huggingface/transformers#25199, #34741, #31859; TinyLlama#24
#[test]
fn b050_the_pairing_decides() -> Result<()> {
    let x = [1.0, 2.0, 3.0, 4.0];
    let rotate = |pairing, x: &[f64]| {
        let rotary = Rotary {
            pairing,
            ..Rotary::default()
        };
        rotary.apply(View::new(x, &[1, 4])?, &Positions::From(1))
    };
    let halves = rotate(Pairing::Halves, &x)?;
    let right = [-1.984111, 1.959901, 2.462378, 4.0198];
    assert_near(halves.data(), &right, 5e-7, &"halves");
    let interleaved = rotate(Pairing::Interleaved, &x)?;
    let right = [-1.14264, 1.922076, 2.959851, 4.0298];
    assert_near(interleaved.data(), &right, 5e-7, &"interleaved");
    // Permuted columns repair it: halves of [x0, x2, x1, x3] is interleaved of x, permuted alike.
    let permuted = rotate(Pairing::Halves, &[1.0, 3.0, 2.0, 4.0])?;
    let back = [0, 2, 1, 3].map(|c| permuted.data()[c]);
    assert_bits(&back, interleaved.data(), &"permuted");
    Ok(())
}

/// sbryngelson/ANEForge PR 58, TransformerLens PR 910
#[test]
fn b053_llama_3_rescales_frequencies() -> Result<()> {
    let plain = Rotary {
        base: 500000.0,
        ..Rotary::default()
    };
    let llama = Rotary {
        scaling: Scaling::Llama3 {
            factor: 8.0,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_length: 8192.0,
        },
        ..plain
    };
    let (plain, llama) = (
        plain.inverse_frequencies(128)?,
        llama.inverse_frequencies(128)?,
    );
    assert_near(&[llama[20]], &[1.656044e-2], 5e-9, &20);
    assert_eq!(llama[20], plain[20]);
    assert_near(
        &[llama[32], plain[32]],
        &[5.248462e-4, 1.414214e-3],
        5e-10,
        &32,
    );
    assert_near(&[llama[40]], &[3.428102e-5], 5e-12, &40);
    assert_eq!(llama[40], plain[40] / 8.0);
    Ok(())
}

/// huggingface/transformers#18478, nnsight PR 673, unsloth PR 4078
#[test]
fn b056_a_short_prompt_alone_and_padded_on_the_left() -> Result<()> {
    let (long, short, width, heads) = (5, 3, 4, 2);
    let mut rng = Rng(56);
    let numbers: Vec<Vec<f64>> = (0..3)
        .map(|_| rng.reals(2 * heads * long * width))
        .collect();
    let whole = |n: usize| View::new(&numbers[n], &[2, heads, long, width]);
    // The last three tokens of entry 0, alone.
    let alone = |n: usize| {
        let strides = [1, (long * width) as isize, width as isize, 1];
        View::strided(&numbers[n], 2 * width, [1, heads, short, width], strides)
    };
    let keep = [[false, false, true, true, true], [true; 5]].concat();
    let mask = Mask::keep(View::new(&keep, &[2, 1, 1, long])?);
    let block = |place, masks| Block {
        rotary: Some(Rotary::default()),
        place,
        attention: Attention {
            causal: Some(Causal::Square),
            masks,
            ..Attention::default()
        },
        ..Block::default()
    };
    let positions = vec![vec![0, 0, 0, 1, 2], vec![0, 1, 2, 3, 4]];
    let in_batch = block(Place::Given(positions), vec![mask]);
    let in_batch = in_batch.steps(&Inputs::new(whole(0)?, whole(1)?, whole(2)?)?)?;
    let by_itself = block(Place::default(), Vec::new());
    let by_itself = by_itself.steps(&Inputs::new(alone(0)?, alone(1)?, alone(2)?)?)?;
    for name in [StepName::QRotated, StepName::KRotated] {
        let (found, expected) = (in_batch.get(name).unwrap(), by_itself.get(name).unwrap());
        for h in 0..heads {
            for t in 0..short {
                let expected = expected.row(&[0, h, t]);
                assert_bits(found.row(&[0, h, t + 2]), expected, &(name, h, t));
            }
        }
    }
    // Padding moves the keys, so sums may be taken in another order: numbers up to 2.5 in size.
    let name = StepName::Output;
    let (found, expected) = (in_batch.get(name).unwrap(), by_itself.get(name).unwrap());
    for h in 0..heads {
        for t in 0..short {
            let expected = expected.row(&[0, h, t]);
            assert_near(found.row(&[0, h, t + 2]), expected, 64.0 * U, &(h, t));
        }
        assert_eq!(found.row(&[0, h, 0]), [0.0; 4]);
    }
    let empty: Vec<[usize; 3]> = in_batch.empty_rows().to_vec();
    assert_eq!(empty, [[0, 0, 0], [0, 0, 1], [0, 1, 0], [0, 1, 1]]);
    Ok(())
}

/// paiml/aprender PR 2143, meta-pytorch/attention-gym PR 86
#[test]
fn b063_alibi_slopes_and_sign() -> Result<()> {
    let eight = [
        0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.0078125, 0.00390625,
    ];
    assert_eq!(slopes(8), eight);
    let weights = |slope: f64| {
        let attention = Attention {
            scale: Scale::Factor(1.0),
            alibi: Some(Alibi {
                slopes: vec![slope],
            }),
            ..Attention::default()
        };
        weights_of(&tensor(&[3, 3], &[0.0; 9]), &attention)
    };
    let right = [0.186324, 0.307196, 0.50648];
    assert_near(weights(0.5)?.row(&[2]), &right, 5e-7, &"last row");
    // The faults: the other sign, and the exponent from 0 (slope 1).
    let flipped = [0.50648, 0.307196, 0.186324];
    assert_near(weights(-0.5)?.row(&[2]), &flipped, 5e-7, &"flipped");
    assert!((weights(1.0)?.at(&[2, 0]) - right[0]).abs() > 0.05);
    // The distance counts both ways.
    let found = weights(0.5)?;
    let middle = [0.274069, 0.451863, 0.274069];
    assert_near(found.row(&[1]), &middle, 5e-7, &"middle row");
    Ok(())
}
