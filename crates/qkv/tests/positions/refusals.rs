//! What a rotary embedding refuses, and in which words.

use super::{HALVES, rotate};
use qkv::position::{Positions, Rotary, Scaling};
use qkv::{Error, Result, View};

#[track_caller]
fn refused(rotary: &Rotary, head_dim: usize, expected: &str) {
    let message = |result: Option<Error>| result.map(|error| error.to_string());
    let expected = Some(expected.to_string());
    assert_eq!(message(rotary.check(head_dim).err()), expected);
    assert_eq!(
        message(rotary.inverse_frequencies(head_dim).err()),
        expected
    );
    let x = vec![0.0; head_dim];
    assert_eq!(message(rotate(rotary, &x, 0).err()), expected);
}

#[test]
fn impossible_dims_are_refused() -> Result<()> {
    let remedy = "is not possible; give an even number from 2 up to the columns of a head";
    for (dim, head_dim) in [(3, 8), (10, 8), (0, 8), (1, 8), (2, 1), (2, 0)] {
        let rotary = Rotary {
            dim: Some(dim),
            ..HALVES
        };
        let columns = if head_dim == 1 { "column" } else { "columns" };
        let expected = format!("rotary dim: {dim} of {head_dim} {columns} {remedy}");
        refused(&rotary, head_dim, &expected);
    }
    for head_dim in [0, 1, 7] {
        let columns = if head_dim == 1 { "column" } else { "columns" };
        let expected = format!("rotary dim: {head_dim} of {head_dim} {columns} {remedy}");
        refused(&HALVES, head_dim, &expected);
    }
    for dim in [2, 4, 6, 8] {
        let rotary = Rotary {
            dim: Some(dim),
            ..HALVES
        };
        assert_eq!(rotary.check(8)?, dim);
    }
    let odd_head = Rotary {
        dim: Some(6),
        ..HALVES
    };
    assert_eq!(odd_head.check(7)?, 6);
    Ok(())
}

const NOT_ABOVE_ZERO: [f64; 5] = [0.0, -1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY];

#[test]
fn impossible_bases_are_refused() {
    for base in NOT_ABOVE_ZERO {
        let rotary = Rotary { base, ..HALVES };
        let expected = format!("rotary base: {base} is not possible; give a finite number above 0");
        refused(&rotary, 4, &expected);
    }
}

#[test]
fn impossible_scalings_are_refused() {
    let refused = |scaling, expected: &str| refused(&Rotary { scaling, ..HALVES }, 4, expected);
    let llama = |values: [f64; 4]| Scaling::Llama3 {
        factor: values[0],
        low_freq_factor: values[1],
        high_freq_factor: values[2],
        original_length: values[3],
    };
    let remedy = "is not possible; give a finite number above 0";
    for value in NOT_ABOVE_ZERO {
        refused(
            Scaling::Linear { factor: value },
            &format!("rotary scaling: factor {value} {remedy}"),
        );
        let names = [
            "factor",
            "low_freq_factor",
            "high_freq_factor",
            "original_length",
        ];
        for (at, name) in names.into_iter().enumerate() {
            let mut values = [8.0, 1.0, 4.0, 8192.0];
            values[at] = value;
            refused(
                llama(values),
                &format!("rotary scaling: {name} {value} {remedy}"),
            );
        }
    }
    for (low, high) in [(4.0, 1.0), (2.0, 2.0)] {
        refused(
            llama([8.0, low, high, 8192.0]),
            &format!(
                "rotary scaling: high_freq_factor {high} with low_freq_factor {low} is not \
                 possible; the high one must be above the low one; check for exchanged values"
            ),
        );
    }
}

#[test]
fn wrong_numbers_of_positions_are_refused() -> Result<()> {
    let x = [0.0; 12];
    let x = View::new(&x, &[2, 1, 3, 2])?;
    let lists = "one list for each batch entry";
    let tokens = "one for each token of a batch entry, padding included";
    let cases: [(&[Vec<i64>], usize, usize, &str); 5] = [
        (&[], 0, 2, lists),
        (&[vec![0, 1, 2]], 1, 2, lists),
        (&[vec![0, 1, 2], vec![0, 1, 2], vec![0, 1, 2]], 3, 2, lists),
        (&[vec![0, 1, 2], vec![0, 1]], 2, 3, tokens),
        (&[vec![0, 1, 2, 3], vec![0, 1, 2]], 4, 3, tokens),
    ];
    for (each, found, expected, meaning) in cases {
        let error = HALVES.apply(x, &Positions::Each(each)).err();
        assert_eq!(
            error.map(|error| error.to_string()),
            Some(format!(
                "positions: {found} value{} given, but {expected} needed: {meaning}",
                if found == 1 { "" } else { "s" }
            ))
        );
    }
    Ok(())
}

#[test]
fn positions_that_f64_cannot_tell_apart_are_refused() -> Result<()> {
    const FARTHEST: i64 = 1 << 53;
    let x = [0.0; 4];
    let x = View::new(&x, &[2, 2])?;
    let apply = |positions: &Positions<'_>| HALVES.apply(x, positions);
    assert!(apply(&Positions::From(FARTHEST - 1)).is_ok());
    assert!(apply(&Positions::From(-FARTHEST)).is_ok());
    assert!(apply(&Positions::Each(&[vec![-FARTHEST, FARTHEST]])).is_ok());
    for positions in [
        Positions::From(FARTHEST),
        Positions::From(i64::MAX),
        Positions::From(-FARTHEST - 1),
        Positions::Each(&[vec![0, FARTHEST + 1]]),
        Positions::Each(&[vec![i64::MIN, 0]]),
    ] {
        let error = apply(&positions).err();
        assert!(
            matches!(
                error,
                Some(Error::Option {
                    option: "positions",
                    ..
                })
            ),
            "{positions:?}: {error:?}"
        );
    }
    Ok(())
}
