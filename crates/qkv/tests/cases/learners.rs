//! Worked examples of pages for learners.

use crate::common::*;
use qkv::{
    Attention, Block, Causal, Inputs, Layer, Linear, Result, StepName, Steps, Tensor, View, steps,
};

fn linear(name: &'static str, rows: usize, columns: usize, weight: &[f64]) -> Result<Linear> {
    Linear::new(name, tensor(&[rows, columns], weight), None)
}

fn step(steps: &Steps, name: StepName) -> Tensor<f64> {
    steps.get(name).unwrap().clone()
}

/// The built-in example of two tokens.
#[test]
fn two_tokens_by_hand() -> Result<()> {
    let (qk, v) = ([1.0, 0.0, 0.0, 1.0], [2.0, 0.0, 0.0, 4.0]);
    let identity = View::new(&qk, &[2, 2])?;
    let inputs = Inputs::new(identity, identity, View::new(&v, &[2, 2])?)?;
    let all = steps(&Attention::default(), &inputs)?;
    let names: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
    let expected = [
        "q", "k", "v", "scores", "scaled", "max", "exp", "sum", "weights", "output", "lse",
    ];
    assert_eq!(names, expected);
    let root = std::f64::consts::FRAC_1_SQRT_2;
    let near = |name, expected: &[f64]| assert_near(step(&all, name).data(), expected, 5e-5, &name);
    near(StepName::Scaled, &[root, 0.0, 0.0, root]);
    near(StepName::Weights, &[0.6698, 0.3302, 0.3302, 0.6698]);
    near(StepName::Output, &[1.3395, 1.3210, 0.6605, 2.6790]);
    near(StepName::Max, &[root, root]);
    near(StepName::Exp, &[1.0, 0.4931, 0.4931, 1.0]);
    near(StepName::Sum, &[1.4931, 1.4931]);
    near(StepName::Lse, &[1.1079, 1.1079]); // .7071 + ln 1.4931
    assert_eq!(step(&all, StepName::Scores).data(), qk);
    assert_eq!(step(&all, StepName::Max).shape(), [1, 1, 2]);
    assert_eq!(step(&all, StepName::Weights).shape(), [1, 1, 2, 2]);
    Ok(())
}

/// omkarchebale.vercel.app, self-attention from scratch
#[test]
fn b103_keys_of_a_projection() -> Result<()> {
    let identity = [1.0, 0.0, 0.0, 1.0];
    let layer = Layer {
        q: linear("W_Q", 2, 2, &identity)?,
        k: linear("W_K", 2, 2, &[1.0, 1.0, 0.0, 1.0])?,
        v: linear("W_V", 2, 2, &identity)?,
        heads: 1,
        kv_heads: 1,
        sinusoidal: None,
        block: Block::default(),
        residual: false,
    };
    let x = tensor(&[1, 3, 2], &[1.0, 0.0, 0.0, 2.0, 1.0, 1.0]);
    let all = layer.steps(&x, None, None)?;
    assert_eq!(
        step(&all, StepName::K).data(),
        [1.0, 1.0, 0.0, 2.0, 1.0, 2.0]
    );
    let weights = [
        0.401112, 0.197776, 0.401112, 0.108383, 0.445808, 0.445808, 0.248255, 0.248255, 0.50349,
    ];
    assert_near(
        step(&all, StepName::Weights).data(),
        &weights,
        5e-7,
        &"weights",
    );
    let output = [0.802224, 0.796664, 0.554192, 1.337425, 0.751745, 1.0];
    assert_near(
        step(&all, StepName::Output).data(),
        &output,
        5e-7,
        &"output",
    );
    Ok(())
}

/// fchollet/keras-resources#53
#[test]
fn b105_without_projections() -> Result<()> {
    let x = [1.0, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0];
    let x = View::new(&x, &[3, 4])?;
    let all = steps(&Attention::default(), &Inputs::new(x, x, x)?)?;
    let weights = [
        0.50648, 0.186324, 0.307196, 0.232697, 0.383652, 0.383652, 0.211942, 0.211942, 0.576117,
    ];
    assert_near(
        step(&all, StepName::Weights).data(),
        &weights,
        5e-7,
        &"weights",
    );
    let row_0 = [0.50648, 0.49352, 0.307196, 0.813676];
    assert_near(
        step(&all, StepName::Output).row(&[0, 0, 0]),
        &row_0,
        5e-7,
        &"row 0",
    );
    Ok(())
}

/// ai.stackexchange: what Q, K and V are at each step of generation.
#[test]
fn b108_one_new_token_against_a_growing_cache() -> Result<()> {
    let mut rng = Rng(108);
    let (width, heads, kv_heads, head) = (5, 4, 2, 3);
    let mut weight = |name, columns| {
        let numbers = rng.reals(width * columns);
        linear(name, width, columns, &numbers)
    };
    let mut layer = Layer {
        q: weight("W_Q", heads * head)?,
        k: weight("W_K", kv_heads * head)?,
        v: weight("W_V", kv_heads * head)?,
        heads,
        kv_heads,
        sinusoidal: None,
        block: Block {
            attention: Attention {
                causal: Some(Causal::BottomRight),
                ..Attention::default()
            },
            concatenate: true,
            ..Block::default()
        },
        residual: false,
    };
    let tokens = rng.reals(4 * width);
    let x =
        |from: usize, to: usize| tensor(&[1, to - from, width], &tokens[from * width..to * width]);
    // Plain, with rotary positions, and with sinusoidal ones.
    for positions in 0..3 {
        layer.block.rotary = None;
        layer.sinusoidal = (positions == 2).then_some(0);
        if positions == 1 {
            // head is odd: turn the first two columns
            layer.block.rotary = Some(qkv::position::Rotary {
                dim: Some(2),
                ..Default::default()
            });
        }
        let prompt = layer.steps(&x(0, 3), None, None)?;
        let cached_k = prompt
            .get(StepName::KRotated)
            .or(prompt.get(StepName::K))
            .unwrap();
        let cached_v = step(&prompt, StepName::V);
        assert_eq!(cached_k.shape(), [1, kv_heads, 3, head]);
        let next = layer.steps(&x(3, 4), None, Some((cached_k, &cached_v)))?;
        assert_eq!(step(&next, StepName::Q).shape(), [1, heads, 1, head]);
        assert_eq!(step(&next, StepName::K).shape(), [1, kv_heads, 4, head]);
        assert_eq!(step(&next, StepName::V).shape(), [1, kv_heads, 4, head]);
        assert_eq!(step(&next, StepName::Weights).shape(), [1, heads, 1, 4]);

        let whole = layer.steps(&x(0, 4), None, None)?;
        let (whole, next) = (
            step(&whole, StepName::Concatenated),
            step(&next, StepName::Concatenated),
        );
        assert_bits(next.row(&[0, 0]), whole.row(&[0, 3]), &positions);
    }
    Ok(())
}
