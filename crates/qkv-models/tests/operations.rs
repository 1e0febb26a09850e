//! The operations for candle models: forward and derivative beside candle's own operations.

use candle_core::{DType, Device, Tensor, Var};
use qkv::position::{Pairing, Positions, Rotary};
use qkv::{Attention, Causal, Window};
use qkv_models::{AttentionOp, Keep, RotaryOp};

type Failure = Box<dyn std::error::Error>;

/// Numbers of both signs, the same each time.
fn drawn(shape: &[usize], seed: u64) -> candle_core::Result<Var> {
    let mut state = seed;
    let count: usize = shape.iter().product();
    let values: Vec<f64> = (0..count)
        .map(|_| {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (state >> 11) as f64 / (1_u64 << 53) as f64 * 2.0 - 1.0
        })
        .collect();
    Var::from_vec(values, shape, &Device::Cpu)
}

/// In `f64`: sums of some tens of products of numbers below 1.
const NEAR: f64 = 1e-13;

fn difference(a: &Tensor, b: &Tensor) -> candle_core::Result<f64> {
    assert_eq!(a.dims(), b.dims());
    let each: Vec<f64> = (a - b)?.abs()?.flatten_all()?.to_vec1()?;
    Ok(each
        .into_iter()
        .fold(0.0, |most, x| if x <= most { most } else { x }))
}

/// Attention by candle's operations; 0 in `keep` drops a key.
fn plain(q: &Tensor, k: &Tensor, v: &Tensor, keep: &Tensor) -> candle_core::Result<Tensor> {
    let group = q.dim(1)? / k.dim(1)?;
    let repeated = |x: &Tensor| -> candle_core::Result<Tensor> {
        let (batch, heads, keys, width) = x.dims4()?;
        x.unsqueeze(2)?
            .broadcast_as((batch, heads, group, keys, width))?
            .reshape((batch, heads * group, keys, width))?
            .contiguous()
    };
    let q = q.contiguous()?;
    let scores = (q.matmul(&repeated(k)?.t()?)? * (1.0 / (q.dim(3)? as f64).sqrt()))?;
    let dropped = ((keep.ones_like()? - keep)? * -1e300)?;
    let exponentials = scores.broadcast_add(&dropped)?.exp()?;
    let sums = exponentials.sum_keepdim(3)?;
    exponentials.broadcast_div(&sums)?.matmul(&repeated(v)?)
}

#[test]
fn attention_and_its_derivative() -> Result<(), Failure> {
    let (batch, heads, kv_heads, length, width, value_width) = (2, 6, 3, 5, 8, 7);
    // Strided: [batch, length, heads, width] in memory, as projections give them.
    let [q, k, v] = [
        drawn(&[batch, length, heads, width], 1)?,
        drawn(&[batch, length, kv_heads, width], 2)?,
        drawn(&[batch, length, kv_heads, value_width], 3)?,
    ];
    let turned = |x: &Tensor| x.transpose(1, 2);
    let mut kept = vec![true; batch * length];
    kept[length] = false;
    let op = |heads_last| -> Result<AttentionOp, Failure> {
        Ok(AttentionOp {
            attention: Attention {
                causal: Some(Causal::Square),
                window: Some(Window {
                    back: Some(2),
                    forward: None,
                }),
                ..Attention::default()
            },
            keep: Some(Keep::new([batch, 1, 1, length], kept.clone())?),
            heads_last,
            ..AttentionOp::default()
        })
    };
    let mask: Vec<f64> = (0..batch * length * length)
        .map(|at| {
            let (entry, i, j) = (at / (length * length), at / length % length, at % length);
            // A row that keeps no key is left to the operation: here it keeps its own.
            let empty = entry == 1 && i == 0;
            f64::from(u8::from(
                j <= i && i <= j + 2 && (kept[entry * length + j] || empty),
            ))
        })
        .collect();
    let mask = Tensor::from_vec(mask, (batch, 1, length, length), &Device::Cpu)?;
    let output = op(false)?.apply(&turned(&q)?, &turned(&k)?, &turned(&v)?)?;
    let expected = plain(&turned(&q)?, &turned(&k)?, &turned(&v)?, &mask)?;
    // All rows but the empty one, which is zero.
    let seen = drawn(&[batch, heads, length, value_width], 4)?;
    let mut weights: Vec<f64> = seen.flatten_all()?.to_vec1()?;
    let zero: Vec<f64> = output.get(1)?.narrow(1, 0, 1)?.flatten_all()?.to_vec1()?;
    assert!(zero.iter().all(|x| *x == 0.0));
    for head in 0..heads {
        let at = ((heads + head) * length) * value_width;
        weights[at..at + value_width].fill(0.0);
    }
    let seen = Tensor::from_vec(weights, (batch, heads, length, value_width), &Device::Cpu)?;
    assert!(difference(&(&output * &seen)?, &(&expected * &seen)?)? <= NEAR);
    let last = op(true)?.apply(&turned(&q)?, &turned(&k)?, &turned(&v)?)?;
    assert_eq!(
        difference(&last.transpose(1, 2)?.contiguous()?, &output)?,
        0.0
    );
    let expected = (&expected * &seen)?.sum_all()?.backward()?;
    for found in [
        (&output * &seen)?.sum_all()?.backward()?,
        (last.transpose(1, 2)? * &seen)?.sum_all()?.backward()?,
    ] {
        for x in [&q, &k, &v] {
            let (Some(found), Some(expected)) = (found.get(x), expected.get(x)) else {
                return Err("a gradient is missing".into());
            };
            let off = difference(found, expected)?;
            assert!(off <= NEAR, "{off}");
        }
    }
    Ok(())
}

#[test]
fn rotary_and_its_derivative() -> Result<(), Failure> {
    let x = drawn(&[2, 3, 4, 6], 5)?;
    let positions = [vec![0, 1, 2, 3], vec![7, 8, 9, 10]];
    for pairing in [Pairing::Halves, Pairing::Interleaved] {
        let rotary = Rotary {
            pairing,
            ..Rotary::default()
        };
        let op = RotaryOp::new(&rotary, 6, 2, 4, &Positions::Each(&positions))?;
        let turned = op.apply(&x)?;
        // Lengths stay; the derivative of ½‖R·x‖² is then x itself.
        let gradient = (turned.sqr()?.sum_all()? * 0.5)?.backward()?;
        let off = difference(gradient.get(&x).ok_or("no gradient")?, &x)?;
        assert!(off <= NEAR, "{off}");
        assert!(difference(&turned, &x)? > 0.1);
    }
    Ok(())
}

#[test]
fn what_does_not_fit_is_refused() -> Result<(), Failure> {
    let q = drawn(&[1, 2, 3, 4], 6)?;
    let flat = q.flatten_to(1)?;
    let says = |error: Result<Tensor, candle_core::Error>| {
        error
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default()
    };
    let message = says(AttentionOp::default().apply(&flat, &flat, &flat));
    assert!(message.contains("4 axes"), "{message}");
    let half = q.to_dtype(DType::F32)?;
    let message = says(AttentionOp::default().apply(&q, &half, &half));
    assert!(message.contains("one type"), "{message}");
    let other = drawn(&[1, 2, 3, 5], 7)?;
    let message = says(AttentionOp::default().apply(&q, &other, &other));
    assert!(message.contains("head_dim"), "{message}");
    Ok(())
}
