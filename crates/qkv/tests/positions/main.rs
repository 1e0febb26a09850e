//! Positions: known faults with their right values, identities, and every refusal.

mod refusals;
mod scaling;

use proptest::prelude::*;
use qkv::position::{Pairing, Positions, Rotary, Scaling, from_padding, sinusoidal, slopes};
use qkv::{Alibi, Attention, Causal, Inputs, Mask, Result, Tensor, View, definition};

/// Half the distance from 1 to the next `f64`: the relative error of one rounding.
const U: f64 = f64::EPSILON / 2.0;

const HALVES: Rotary = Rotary {
    pairing: Pairing::Halves,
    base: 10000.0,
    dim: None,
    scaling: Scaling::None,
};

const INTERLEAVED: Rotary = Rotary {
    pairing: Pairing::Interleaved,
    ..HALVES
};

const LLAMA_3: Rotary = Rotary {
    base: 500000.0,
    scaling: Scaling::Llama3 {
        factor: 8.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_length: 8192.0,
    },
    ..HALVES
};

#[track_caller]
fn assert_near(found: &[f64], expected: &[f64], bound: f64) {
    assert_eq!(found.len(), expected.len());
    for (index, (f, e)) in found.iter().zip(expected).enumerate() {
        assert!(
            (f - e).abs() <= bound,
            "{index}: {f} is not {e} within {bound}"
        );
    }
}

/// One token of one head, at a position.
fn rotate(rotary: &Rotary, x: &[f64], position: i64) -> Result<Vec<f64>> {
    let x = View::new(x, &[1, x.len()])?;
    Ok(rotary.apply(x, &Positions::From(position))?.into_data())
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn norm(a: &[f64]) -> f64 {
    dot(a, a).sqrt()
}

/// How far the computed q·k, q rotated to m and k to n, may be from the exact one of the same
/// frequencies, all at most 1.
///
/// The angle m·f is rounded once, so it is off by |m|·U at most; sin and cos by 2U more (a library
/// good to one unit in the last place has U); a product and a sum add 2U. With (a, b) of length
/// r, each of a·cos − b·sin and a·sin + b·cos is therefore off by (|a| + |b|)·(|m| + 4)·U
/// ≤ √2·r·(|m| + 4)·U, the pair by 2r·(|m| + 4)·U. By Cauchy-Schwarz over the pairs, q·k is off by
/// |q|·|k|·2(|m| + |n| + 8)·U from the rotations and |q|·|k|·d·U from its own products and sums.
/// The 1 covers second-order terms.
fn dot_bound(q: &[f64], k: &[f64], m: i64, n: i64) -> f64 {
    let positions = m.unsigned_abs() as f64 + n.unsigned_abs() as f64;
    norm(q) * norm(k) * U * (2.0 * (positions + 8.0) + q.len() as f64 + 1.0)
}

// Known faults

/// Pairs (i, i + d/2) against (2i, 2i + 1): huggingface/transformers#25199.
#[test]
fn b050_the_two_pairings() -> Result<()> {
    let x = [1.0, 2.0, 3.0, 4.0];
    let halves = [-1.984111, 1.959901, 2.462378, 4.0198];
    let interleaved = [-1.14264, 1.922076, 2.959851, 4.0298];
    assert_near(&rotate(&HALVES, &x, 1)?, &halves, 5e-7);
    assert_near(&rotate(&INTERLEAVED, &x, 1)?, &interleaved, 5e-7);
    assert_eq!(Rotary::default(), HALVES);
    Ok(())
}

/// Llama 3's frequencies not rescaled: TransformerLens PR 910.
///
/// In NumPy:
/// ```python
/// f = 5e5 ** (-np.arange(0, 128, 2) / 128)
/// s = (8192 * f / (2 * np.pi) - 1) / (4 - 1)
/// np.where(s > 1, f, np.where(s < 0, f / 8, (1 - s) * f / 8 + s * f))
/// ```
#[test]
fn b053_llama_3_frequencies() -> Result<()> {
    let frequencies = LLAMA_3.inverse_frequencies(128)?;
    assert_eq!(frequencies.len(), 64);
    let expected = [
        (0, 1.0),
        (20, 0.016560440080994446),  // as without scaling
        (28, 0.003211445994752591),  // the last as without scaling
        (29, 0.002166570763503359),  // the first on the ramp
        (32, 0.0005248461609929547), // from 1.414214e-3
        (34, 0.0001785078127679964), // the last on the ramp
        (35, 9.556212353964683e-05), // the first divided by 8
        (40, 3.428102195952591e-05), // divided by 8
        (63, 3.068925988914511e-07), // divided by 8
    ];
    for (i, value) in expected {
        // base^x is off by 2U·ln(base)·x at most for the rounded exponent x < 1, some roundings
        // follow, and the ramp's subtractions can make 8 times as much of them.
        let bound = 8.0 * (2.0 * 500000_f64.ln() + 10.0) * U * value;
        assert_near(&[frequencies[i]], &[value], bound);
    }
    Ok(())
}

/// The angle in half precision: EleutherAI/gpt-neox#1003.
#[test]
fn b054_angles_are_computed_in_f64() -> Result<()> {
    let mut x = [half::f16::ZERO; 32];
    x[1] = half::f16::ONE;
    let rotated = HALVES.apply(View::new(&x, &[1, 32])?, &Positions::From(1857))?;
    // cos 1044.267841; in f16 the product 1857·0.5625 is 1045 and gives −.408165
    assert_near(&[rotated.at(&[0, 0, 0, 1])], &[0.306693], 5e-7);
    assert_near(&[rotated.at(&[0, 0, 0, 17])], &[0.951809], 5e-7);
    Ok(())
}

/// Left padding without positions from the mask: huggingface/transformers#18478.
#[test]
fn b056_positions_from_padding() {
    let cases: [(&[u8], &[Option<usize>]); 6] = [
        (&[0, 0, 1, 1, 1], &[None, None, Some(0), Some(1), Some(2)]),
        (
            &[1, 1, 1, 1, 1],
            &[Some(0), Some(1), Some(2), Some(3), Some(4)],
        ),
        (&[1, 1, 0], &[Some(0), Some(1), None]),
        (&[0, 1, 0, 1], &[None, Some(0), None, Some(1)]),
        (&[0, 0], &[None, None]),
        (&[], &[]),
    ];
    for (kept, expected) in cases {
        let row: Vec<bool> = kept.iter().map(|&k| k == 1).collect();
        assert_eq!(from_padding(&row), expected, "{kept:?}");
    }
}

/// A short prompt gives the same alone and padded on the left in a batch.
#[test]
fn b056_a_padded_prompt_equals_the_prompt_alone() -> Result<()> {
    const WIDTH: usize = 4;
    let kept = [[false, false, true, true, true], [true; 5]];
    let numbers: Vec<f64> = (0..2 * 5 * WIDTH).map(|n| (n as f64 * 0.7).sin()).collect();
    let x = View::new(&numbers, &[2, 1, 5, WIDTH])?;
    let alone = View::new(&numbers[2 * WIDTH..5 * WIDTH], &[3, WIDTH])?;

    let each = kept.map(|row| {
        let positions = from_padding(&row).into_iter();
        positions.map(|p| p.map_or(0, |p| p as i64)).collect()
    });
    let in_batch = HALVES.apply(x, &Positions::Each(&each))?;
    let by_itself = HALVES.apply(alone, &Positions::From(0))?;
    for t in 0..3 {
        assert_eq!(in_batch.row(&[0, 0, t + 2]), by_itself.row(&[0, 0, t]));
    }

    let keep = kept.concat();
    let causal = Attention {
        causal: Some(Causal::Square),
        ..Attention::default()
    };
    let padded = Attention {
        masks: vec![Mask::keep(View::new(&keep, &[2, 1, 1, 5])?)],
        ..causal.clone()
    };
    let attend = |attention: &Attention<'_>, rotated: &Tensor<f64>, v| {
        let inputs = Inputs::new(rotated.view()?, rotated.view()?, v)?;
        definition::forward(attention, &inputs)
    };
    let in_batch = attend(&padded, &in_batch, x)?.output;
    let by_itself = attend(&causal, &by_itself, alone)?.output;
    for t in 0..3 {
        // The same numbers in other places: three keys' sums may come in another order.
        let (found, expected) = (in_batch.row(&[0, 0, t + 2]), by_itself.row(&[0, 0, t]));
        assert_near(found, expected, 16.0 * U);
    }
    Ok(())
}

/// The exponent off by one, the sign turned: paiml/aprender PR 2143, attention-gym PR 86.
#[test]
fn b063_slopes_of_8_heads_and_their_sign() -> Result<()> {
    let eight = [
        0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.0078125, 0.00390625,
    ];
    assert_eq!(slopes(8), eight);

    let (zeros, v) = ([0.0; 3], [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]);
    let scores_of_zero = View::new(&zeros, &[3, 1])?;
    let inputs = Inputs::new(scores_of_zero, scores_of_zero, View::new(&v, &[3, 3])?)?;
    let attention = Attention {
        alibi: Some(Alibi {
            slopes: slopes(8)[..1].to_vec(),
        }),
        ..Attention::default()
    };
    // v is the identity, so the output is the weights.
    let weights = definition::forward(&attention, &inputs)?.output;
    assert_near(
        weights.row(&[0, 0, 2]),
        &[0.186324, 0.307196, 0.50648],
        5e-7,
    );
    Ok(())
}

// ALiBi

/// By hand from the paper's rule. Exponents of 2: n heads, n a power of two, have −8/n, −16/n, …, −8.
#[test]
fn slopes_of_any_head_count() {
    let cases: [(usize, &[f64]); 7] = [
        (0, &[]),
        (1, &[-8.0]),
        (2, &[-4.0, -8.0]),
        // 2 heads −4 −8; 4 heads −2 −4 −6 −8, every second: −2 −6, the first one
        (3, &[-4.0, -8.0, -2.0]),
        // 4 heads −2 −4 −6 −8; 8 heads −1 … −8, every second: −1 −3 −5 −7, the first two
        (6, &[-2.0, -4.0, -6.0, -8.0, -1.0, -3.0]),
        // 8 heads −1 … −8; 16 heads −.5 −1 −1.5 …, every second: −.5 −1.5 −2.5 −3.5 …
        (
            12,
            &[
                -1.0, -2.0, -3.0, -4.0, -5.0, -6.0, -7.0, -8.0, -0.5, -1.5, -2.5, -3.5,
            ],
        ),
        // 16 heads −.5 −1 … −8; 32 heads −.25 −.5 −.75 …, every second: −.25 −.75 −1.25 −1.75 …
        (
            20,
            &[
                -0.5, -1.0, -1.5, -2.0, -2.5, -3.0, -3.5, -4.0, -4.5, -5.0, -5.5, -6.0, -6.5, -7.0,
                -7.5, -8.0, -0.25, -0.75, -1.25, -1.75,
            ],
        ),
    ];
    for (heads, exponents) in cases {
        let expected: Vec<f64> = exponents.iter().map(|e: &f64| e.exp2()).collect();
        assert_eq!(slopes(heads), expected, "{heads} heads");
    }
}

// Sinusoidal

#[test]
fn sinusoidal_by_hand() {
    // width 4: frequencies 1 and 1/100
    let table = sinusoidal(3, 4, 0);
    assert_eq!(table.shape(), [3, 4]);
    assert_eq!(table.row(&[0]), [0.0, 1.0, 0.0, 1.0]);
    let one = [0.841470985, 0.540302306, 0.009999833, 0.999950000];
    let two = [0.909297427, -0.416146837, 0.019998667, 0.999800007];
    assert_near(table.row(&[1]), &one, 5e-10);
    assert_near(table.row(&[2]), &two, 5e-10);
}

#[test]
fn sinusoidal_of_odd_width_ends_with_a_sine() {
    // width 5: frequencies 1, 10000^(−2/5) = .0251189, 10000^(−4/5) = .000630957
    let table = sinusoidal(1, 5, 2);
    let expected = [
        0.909297427,
        -0.416146837,
        0.050216599,
        0.998738351,
        0.001261914,
    ];
    assert_near(table.row(&[0]), &expected, 5e-10);
    assert_eq!(sinusoidal(2, 1, 0).data(), [0.0, 1_f64.sin()]);
}

#[test]
fn sinusoidal_from_a_start_is_the_rest_of_the_table() {
    let (whole, rest) = (sinusoidal(9, 6, 0), sinusoidal(4, 6, 5));
    assert_eq!(rest.data(), &whole.data()[5 * 6..]);
}

#[test]
fn sinusoidal_without_rows_or_columns_is_empty() {
    assert_eq!(sinusoidal(0, 4, 1).shape(), [0, 4]);
    assert_eq!(sinusoidal(4, 0, 1).shape(), [4, 0]);
}

// Rotary

#[test]
fn default_frequencies() -> Result<()> {
    let frequencies = HALVES.inverse_frequencies(8)?;
    assert_near(&frequencies, &[1.0, 0.1, 0.01, 0.001], 8.0 * U);
    assert_eq!(INTERLEAVED.inverse_frequencies(8)?, frequencies);
    Ok(())
}

#[test]
fn linear_scaling_by_4_is_positions_by_4() -> Result<()> {
    let linear = Rotary {
        scaling: Scaling::Linear { factor: 4.0 },
        ..HALVES
    };
    let x = [0.3, -1.7, 2.2, 0.9, -0.4, 1.1];
    for position in [-3, 0, 1, 2, 500] {
        // 4 is a power of two, so the two round alike.
        assert_eq!(
            rotate(&linear, &x, 4 * position)?,
            rotate(&HALVES, &x, position)?
        );
    }
    Ok(())
}

#[test]
fn partial_rotary_leaves_the_rest_bit_for_bit() -> Result<()> {
    let x = [
        1.0,
        2.0,
        3.0,
        4.0,
        -0.0,
        f64::NAN,
        f64::MIN_POSITIVE / 2.0,
        1e300,
    ];
    for whole in [HALVES, INTERLEAVED] {
        let partial = Rotary {
            dim: Some(4),
            ..whole
        };
        let rotated = rotate(&partial, &x, 1)?;
        // The frequencies are those of 4 columns, and the pairs stay within them.
        assert_eq!(rotated[..4], rotate(&whole, &x[..4], 1)?);
        for column in 4..8 {
            assert_eq!(rotated[column].to_bits(), x[column].to_bits());
        }
    }
    Ok(())
}

#[test]
fn position_0_changes_nothing() -> Result<()> {
    let x = [1.0, -2.0, 3.5, 1e-300, 1e300, 0.0];
    for rotary in [HALVES, INTERLEAVED, LLAMA_3] {
        assert_eq!(rotate(&rotary, &x, 0)?, x);
    }
    Ok(())
}

#[test]
fn nan_and_infinity_stay_within_their_pair() -> Result<()> {
    let x = [f64::NAN, 1.0, 2.0, f64::INFINITY, 3.0, 4.0];
    let rotated = rotate(&INTERLEAVED, &x, 5)?;
    let finite: Vec<bool> = rotated.iter().map(|value| value.is_finite()).collect();
    assert_eq!(finite, [false, false, false, false, true, true]);
    Ok(())
}

#[test]
fn every_batch_entry_head_and_token_has_its_own_position() -> Result<()> {
    // [batch, heads, length, head_dim] = [2, 3, 4, 6], and the same kept as [batch, length, heads, …]
    let numbers: Vec<f64> = (0..2 * 3 * 4 * 6).map(|n| (n as f64 * 1.3).cos()).collect();
    let x = View::new(&numbers, &[2, 3, 4, 6])?;
    let strided = View::new(&numbers, &[2, 4, 3, 6])?.swap_axes(1, 2);
    let each = [vec![0, 1, 2, 3], vec![7, -2, 7, 100]];
    for x in [x, strided] {
        let rotated = INTERLEAVED.apply(x, &Positions::Each(&each))?;
        assert_eq!(rotated.shape(), [2, 3, 4, 6]);
        let continued = INTERLEAVED.apply(x, &Positions::From(-1))?;
        for b in 0..2 {
            for h in 0..3 {
                for t in 0..4 {
                    let row: Vec<f64> = (0..6).map(|c| x.get([b, h, t, c])).collect();
                    let alone = rotate(&INTERLEAVED, &row, each[b][t])?;
                    assert_eq!(rotated.row(&[b, h, t]), alone);
                    let alone = rotate(&INTERLEAVED, &row, t as i64 - 1)?;
                    assert_eq!(continued.row(&[b, h, t]), alone);
                }
            }
        }
    }
    Ok(())
}

#[test]
fn axes_of_length_0_give_empty_results() -> Result<()> {
    for shape in [[0, 2, 3, 4], [1, 0, 3, 4], [1, 2, 0, 4]] {
        let none: [f32; 0] = [];
        let rotated = HALVES.apply(View::new(&none, &shape)?, &Positions::From(9))?;
        assert_eq!(rotated.shape(), shape);
    }
    Ok(())
}

fn vector(width: usize) -> impl Strategy<Value = Vec<f64>> {
    prop::collection::vec(-4.0..4.0, width)
}

fn pair_and_vectors(count: usize) -> impl Strategy<Value = (Rotary, Vec<Vec<f64>>)> {
    let rotary = prop::sample::select(vec![HALVES, INTERLEAVED, LLAMA_3]);
    let vectors =
        (1_usize..=16).prop_flat_map(move |pairs| prop::collection::vec(vector(2 * pairs), count));
    (rotary, vectors)
}

proptest! {
    #[test]
    fn q_dot_k_depends_on_the_distance_only(
        (rotary, vectors) in pair_and_vectors(2),
        m in -5000_i64..5000,
        n in -5000_i64..5000,
        shift in -100_000_i64..100_000,
    ) {
        let (q, k) = (&vectors[0], &vectors[1]);
        let at = dot(&rotate(&rotary, q, m)?, &rotate(&rotary, k, n)?);
        let shifted = dot(&rotate(&rotary, q, m + shift)?, &rotate(&rotary, k, n + shift)?);
        let bound = dot_bound(q, k, m, n) + dot_bound(q, k, m + shift, n + shift);
        prop_assert!((at - shifted).abs() <= bound, "{at} and {shifted}, bound {bound}");
    }

    #[test]
    fn the_length_of_a_pair_stays(
        (rotary, vectors) in pair_and_vectors(1),
        position in -1_000_000_i64..1_000_000,
    ) {
        let (x, pairs) = (&vectors[0], vectors[0].len() / 2);
        let rotated = rotate(&rotary, x, position)?;
        for i in 0..pairs {
            let (left, right) = match rotary.pairing {
                Pairing::Halves => (i, i + pairs),
                Pairing::Interleaved => (2 * i, 2 * i + 1),
            };
            let (before, after) = (x[left].hypot(x[right]), rotated[left].hypot(rotated[right]));
            // A rotation by the rounded angle is still one: only sin, cos (2U), product and sum
            // (2U) count, 2r·4U as in dot_bound, and hypot twice.
            prop_assert!((before - after).abs() <= 12.0 * U * before, "{before}, {after}");
        }
    }

    #[test]
    fn halves_of_permuted_columns_are_interleaved(x in vector(12), position in -9999_i64..9999) {
        // Column 2i goes to i and column 2i + 1 to i + 6, as weights are converted.
        let place = |column: usize| column / 2 + column % 2 * 6;
        let mut permuted = vec![0.0; 12];
        for column in 0..12 {
            permuted[place(column)] = x[column];
        }
        let halves = rotate(&HALVES, &permuted, position)?;
        let interleaved = rotate(&INTERLEAVED, &x, position)?;
        for column in 0..12 {
            prop_assert_eq!(halves[place(column)], interleaved[column]);
        }
    }

    #[test]
    fn turning_back_gives_what_was((rotary, vectors) in pair_and_vectors(1), p in -5000_i64..5000) {
        let x = &vectors[0];
        let back = rotate(&rotary, &rotate(&rotary, x, p)?, -p)?;
        // The two angles round alike and cancel; 2r·4U for each rotation as in dot_bound.
        let bound = 17.0 * U * norm(x);
        for (found, expected) in back.iter().zip(x) {
            prop_assert!((found - expected).abs() <= bound, "{found}, {expected}");
        }
    }
}
