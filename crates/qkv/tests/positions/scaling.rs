//! Frequencies that a model for short texts gets for longer ones, beside those of transformers 5.24.0
//! (single precision) for 64 columns and base 10000.

use qkv::position::{Positions, Rotary, Scaling};
use qkv::{Error, View};

/// In single precision a power of the base is some roundings off.
const NEAR: f64 = 1e-6;

fn check(scaling: Scaling, expected: &[(usize, f64)]) -> Result<(), Error> {
    let rotary = Rotary {
        scaling,
        ..Rotary::default()
    };
    let found = rotary.inverse_frequencies(64)?;
    for &(i, expected) in expected {
        let error = (found[i] - expected).abs() / expected;
        assert!(error < NEAR, "pair {i}: {} for {expected}", found[i]);
    }
    Ok(())
}

fn yarn(whole: bool) -> Scaling {
    Scaling::Yarn {
        factor: 4.0,
        beta_fast: 32.0,
        beta_slow: 1.0,
        original_length: 512.0,
        whole,
        magnitude: Scaling::yarn_magnitude(4.0),
    }
}

#[test]
fn yarn_ramps_over_the_pairs() -> Result<(), Error> {
    // Pairs 0 to 3 are kept, those from 16 on are divided by 4.
    let kept = [
        (0, 1.0),
        (3, 4.216965139e-1),
        (16, 2.499999944e-3),
        (31, 3.333803761e-5),
    ];
    check(yarn(true), &kept)?;
    check(yarn(false), &kept)?;
    check(
        yarn(true),
        &[
            (4, 2.979838550e-1),
            (9, 4.903154075e-2),
            (15, 4.103142768e-3),
        ],
    )?;
    check(
        yarn(false),
        &[
            (4, 3.014064729e-1),
            (9, 4.812072590e-2),
            (15, 3.573614405e-3),
        ],
    )
}

#[test]
fn yarn_makes_queries_and_keys_larger() -> Result<(), Error> {
    let magnitude = 1.138629436111989;
    assert!((yarn(true).magnitude() - magnitude).abs() < 1e-15);
    let x = [3.0, 4.0];
    let rotary = Rotary {
        scaling: yarn(true),
        ..Rotary::default()
    };
    let turned = rotary.apply(View::new(&x, &[1, 2])?, &Positions::From(5))?;
    let size = turned.data().iter().map(|x| x * x).sum::<f64>().sqrt();
    assert!((size - 5.0 * magnitude).abs() < 1e-14);
    Ok(())
}

#[test]
fn dynamic_changes_nothing_before_its_length() -> Result<(), Error> {
    let dynamic = |length| Scaling::Dynamic {
        factor: 4.0,
        original_length: 512.0,
        length,
    };
    let plain = Rotary::default().inverse_frequencies(64)?;
    for length in [1.0, 512.0] {
        let rotary = Rotary {
            scaling: dynamic(length),
            ..Rotary::default()
        };
        assert_eq!(rotary.inverse_frequencies(64)?, plain);
    }
    check(
        dynamic(2000.0),
        &[
            (0, 1.0),
            (1, 6.909973621e-1),
            (16, 2.701609163e-3),
            (31, 1.056254587e-5),
        ],
    )
}

#[test]
fn impossible_scalings_are_refused() {
    let refused = |rotary: Rotary, says: &str| {
        let error = rotary.check(64).err().map(|error| error.to_string());
        assert!(
            error.as_ref().is_some_and(|error| error.contains(says)),
            "{error:?}"
        );
    };
    let of = |scaling| Rotary {
        scaling,
        ..Rotary::default()
    };
    refused(
        Rotary {
            base: 1.0,
            ..of(yarn(true))
        },
        "rotary base: 1",
    );
    refused(
        of(Scaling::Yarn {
            factor: 4.0,
            beta_fast: 1.0,
            beta_slow: 32.0,
            original_length: 512.0,
            whole: true,
            magnitude: 1.0,
        }),
        "beta_fast 1 with beta_slow 32",
    );
    refused(
        of(Scaling::Dynamic {
            factor: 0.5,
            original_length: 512.0,
            length: 512.0,
        }),
        "factor 0.5",
    );
}
