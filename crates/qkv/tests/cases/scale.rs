//! The scale and the axis of the softmax.

use crate::common::*;
use qkv::{Attention, Result, Scale};

fn scaled(factor: f64) -> Attention<'static> {
    Attention {
        scale: Scale::Factor(factor),
        ..Attention::default()
    }
}

/// The weights of one query of width d against two keys with these dot products.
fn two_keys(d: usize, raw: [f64; 2], attention: &Attention<'_>) -> Result<Vec<f64>> {
    let mut q = vec![0.0; d];
    q[d - 1] = 1.0;
    let mut k = vec![0.0; 2 * d];
    (k[d - 1], k[2 * d - 1]) = (raw[0], raw[1]);
    let v = tensor(&[2, 2], &[1.0, 0.0, 0.0, 1.0]);
    let output = attend(attention, &tensor(&[1, d], &q), &tensor(&[2, d], &k), &v)?;
    Ok(output.output.into_data())
}

/// PetrochukM/PyTorch-NLP#2, nerminnuraydogan/vision-transformer#1
#[test]
fn b035_softmax_runs_over_the_keys() -> Result<()> {
    let weights = weights_of(&tensor(&[2, 2], &[1.0, 2.0, 3.0, 5.0]), &scaled(1.0))?;
    let right = [0.268941, 0.731059, 0.119203, 0.880797];
    assert_near(weights.data(), &right, 5e-7, &"over keys");
    // The fault: over queries, that is over the keys of the transposed scores.
    let columns = weights_of(&tensor(&[2, 2], &[1.0, 3.0, 2.0, 5.0]), &scaled(1.0))?;
    let wrong = [0.119203, 0.880797, 0.047426, 0.952574];
    assert_near(columns.data(), &wrong, 5e-7, &"over queries");
    Ok(())
}

/// Graylab/DL4Proteins-notebooks#12, train-llm-from-scratch PR 3
#[test]
fn b038_the_scale_is_the_heads_width() -> Result<()> {
    let right = two_keys(16, [4.0, 0.0], &Attention::default())?;
    assert_near(&right, &[0.731059, 0.268941], 5e-7, &"1/sqrt(16)");
    let by_model = two_keys(16, [4.0, 0.0], &scaled(0.125))?;
    assert_near(&by_model, &[0.622459, 0.377541], 5e-7, &"1/sqrt(64)");
    Ok(())
}

/// mlc-ai/mlc-llm PR 3426, delzac/cntkx#10
#[test]
fn b040_the_scale_left_out() -> Result<()> {
    let right = two_keys(64, [8.0, 0.0], &Attention::default())?;
    assert_near(&right, &[0.731059, 0.268941], 5e-7, &"1/8");
    let missing = two_keys(64, [8.0, 0.0], &scaled(1.0))?;
    assert_near(&missing, &[0.999665, 0.000335], 5e-7, &"1");
    Ok(())
}

/// facebookresearch/xformers#522, allennlp PR 5360
#[test]
fn b043_t5_has_no_scale() -> Result<()> {
    let t5 = two_keys(64, [2.0, 0.0], &scaled(1.0))?;
    assert_near(&t5, &[0.880797, 0.119203], 5e-7, &"1");
    let default = two_keys(64, [2.0, 0.0], &Attention::default())?;
    assert_near(&default, &[0.562177, 0.437823], 5e-7, &"1/8");
    // Any finite number is possible, also 0 and below.
    assert_eq!(two_keys(64, [2.0, 0.0], &scaled(0.0))?, [0.5, 0.5]);
    let negative = two_keys(64, [2.0, 0.0], &scaled(-1.0))?;
    assert_near(&negative, &[0.119203, 0.880797], 5e-7, &"-1");
    Ok(())
}
