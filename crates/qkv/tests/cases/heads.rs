//! Heads split, merged and grouped.

use crate::common::*;
use qkv::layer::{merge_heads, split_heads};
use qkv::{Attention, Inputs, Result, View, definition};

/// jsbaan/transformer-from-scratch PR 6, ajhalthor/Transformer-Neural-Network#8, opacus PR 825
#[test]
fn b044_heads_are_merged_token_by_token() -> Result<()> {
    let memory = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
    let merged = merge_heads(&tensor(&[1, 2, 2, 2], &memory))?;
    assert_eq!(merged.shape(), [1, 2, 4]);
    assert_eq!(merged.row(&[0, 0]), [1.0, 2.0, 5.0, 6.0]);
    assert_eq!(merged.row(&[0, 1]), [3.0, 4.0, 7.0, 8.0]);
    // The fault reads the memory as it lies: token 0 would be [1, 2, 3, 4].
    let reshaped = tensor(&[1, 2, 4], &memory);
    assert_eq!(reshaped.row(&[0, 0]), [1.0, 2.0, 3.0, 4.0]);
    Ok(())
}

/// hyunwoongko/transformer#15, reczoo/FuxiCTR#30
#[test]
fn b045_heads_are_columns() -> Result<()> {
    let x = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0];
    let heads = split_heads(&tensor(&[1, 2, 4], &x), 2, "x")?;
    assert_eq!(heads.shape(), [1, 2, 2, 2]);
    assert_eq!(heads.data(), [0.0, 1.0, 4.0, 5.0, 2.0, 3.0, 6.0, 7.0]);
    assert_eq!(merge_heads(&heads)?.data(), x);
    // The fault: a view straight to (heads, tokens, width) has tokens mixed up in head 0.
    let direct = View::new(&x, &[1, 2, 2, 2])?;
    let head_0 = [[0, 0], [0, 1], [1, 0], [1, 1]].map(|[t, c]| direct.get([0, 0, t, c]));
    assert_eq!(head_0, [0.0, 1.0, 2.0, 3.0]);
    // Several entries, tokens and heads of unequal sizes: there and back.
    let numbers = Rng(45).reals(2 * 3 * 4 * 5);
    let x = tensor(&[2, 3, 20], &numbers);
    let heads = split_heads(&x, 4, "x")?;
    for [b, h, t, c] in places([2, 4, 3, 5]) {
        assert_eq!(heads.at(&[b, h, t, c]), x.at(&[b, t, h * 5 + c]));
    }
    assert_eq!(merge_heads(&heads)?, x);
    Ok(())
}

/// onnx/onnx PR 7274, ekzhang/jax-js PR 180, apple/ml-hypercloning#1
#[test]
fn b047_each_kv_head_serves_its_neighbours() -> Result<()> {
    let (zeros, v) = ([0.0; 4], [10.0, 20.0]);
    let inputs = Inputs::new(
        View::new(&zeros, &[4, 1, 1])?,
        View::new(&zeros[..2], &[2, 1, 1])?,
        View::new(&v, &[2, 1, 1])?,
    )?;
    let output = definition::forward(&Attention::default(), &inputs)?;
    assert_eq!(output.output.data(), [10.0, 10.0, 20.0, 20.0]);
    // The fault, by hand: v tiled to four heads.
    let tiled = [10.0, 20.0, 10.0, 20.0];
    let inputs = Inputs::new(
        View::new(&zeros, &[4, 1, 1])?,
        View::new(&zeros, &[4, 1, 1])?,
        View::new(&tiled, &[4, 1, 1])?,
    )?;
    let output = definition::forward(&Attention::default(), &inputs)?;
    assert_eq!(output.output.data(), tiled);
    Ok(())
}

/// TransformerLensOrg/TransformerLens PR 1768, #980, PR 810
#[test]
fn b049_head_9_of_14_uses_kv_head_1_of_2() -> Result<()> {
    let zeros = [0.0; 14];
    let v = [1.0, 2.0];
    let inputs = Inputs::new(
        View::new(&zeros, &[14, 1, 1])?,
        View::new(&zeros[..2], &[2, 1, 1])?,
        View::new(&v, &[2, 1, 1])?,
    )?;
    assert_eq!(inputs.kv_head(9), 1);
    let output = definition::forward(&Attention::default(), &inputs)?;
    for h in 0..14 {
        assert_eq!(inputs.kv_head(h), h / 7);
        assert_eq!(output.output.at(&[0, h, 0, 0]), v[h / 7], "head {h}");
    }
    Ok(())
}
