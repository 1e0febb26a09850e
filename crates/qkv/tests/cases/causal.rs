//! Causality, windows, caches, documents.

use crate::common::*;
use qkv::{
    Attention, Causal, Documents, EmptyRows, Error, Inputs, Mask, Result, StepName, View, Window,
    definition, steps,
};

pub fn causal(causal: Causal) -> Attention<'static> {
    Attention {
        causal: Some(causal),
        ..Attention::default()
    }
}

/// Weights of 1/3 and 1/5 are rounded, five products and sums of numbers up to 5 follow.
const THIRDS: f64 = 5.0 * 8.0 * U;

const ONE_TO_FIVE: [f64; 5] = [1.0, 2.0, 3.0, 4.0, 5.0];

/// pytorch/pytorch#108108. The two values are also the outputs A and B of B005
/// (microsoft/onnxruntime#29020).
#[test]
fn b001_causal_alignment_is_named() -> Result<()> {
    let top_left = uniform(2, &ONE_TO_FIVE, &causal(Causal::TopLeft))?;
    assert_eq!(top_left, [1.0, 1.5]);
    let bottom_right = uniform(2, &ONE_TO_FIVE, &causal(Causal::BottomRight))?;
    assert_eq!(bottom_right, [2.5, 3.0]);
    let offset = uniform(2, &ONE_TO_FIVE, &causal(Causal::Offset(3)))?;
    assert_eq!(offset, bottom_right);

    let error = uniform(2, &ONE_TO_FIVE, &causal(Causal::Square)).unwrap_err();
    assert!(matches!(
        error,
        Error::CausalAlignment {
            queries: 2,
            keys: 5,
            ..
        }
    ));
    let message = error.to_string();
    for part in ["2 queries", "5 keys", "top-left", "bottom-right", "offset"] {
        assert!(message.contains(part), "{part:?} is not in {message:?}");
    }
    // With as many keys as queries nothing needs naming.
    let square = uniform(5, &ONE_TO_FIVE, &causal(Causal::Square))?;
    assert_near(&square, &[1.0, 1.5, 2.0, 2.5, 3.0], THIRDS, &"square");
    Ok(())
}

/// Dao-AILab/flash-attention#1778
#[test]
fn b003_more_queries_than_keys() -> Result<()> {
    let (zeros, v) = ([0.0; 5], [10.0, 20.0]);
    let inputs = Inputs::new(
        View::new(&zeros, &[5, 1])?,
        View::new(&zeros[..2], &[2, 1])?,
        View::new(&v, &[2, 1])?,
    )?;
    let bottom_right = definition::forward(&causal(Causal::BottomRight), &inputs)?;
    assert_eq!(bottom_right.output.data(), [0.0, 0.0, 0.0, 10.0, 15.0]);
    assert_eq!(bottom_right.empty_rows, [[0, 0, 0], [0, 0, 1], [0, 0, 2]]);
    let lse = bottom_right.lse.data();
    assert_eq!(
        lse[..4],
        [[f64::NEG_INFINITY; 3].as_slice(), &[0.0]].concat()
    );

    let top_left = definition::forward(&causal(Causal::TopLeft), &inputs)?;
    assert_eq!(top_left.output.data(), [10.0, 15.0, 15.0, 15.0, 15.0]);
    assert!(top_left.empty_rows.is_empty());

    let strict = Attention {
        empty_rows: EmptyRows::Error,
        ..causal(Causal::BottomRight)
    };
    let error = definition::forward(&strict, &inputs).unwrap_err();
    assert!(error.to_string().starts_with("3 of 5 rows keep no key"));
    Ok(())
}

/// huggingface/candle#2153
#[test]
fn b007_several_tokens_after_a_cache() -> Result<()> {
    let heads = 32;
    let zeros = vec![0.0; heads * 3];
    let new = View::new(&zeros, &[1, heads, 3, 1])?;
    let past = View::new(&zeros[..heads * 2], &[1, heads, 2, 1])?;
    let inputs = Inputs::new(new, new, new)?.with_past(past, past)?;

    let all = steps(&causal(Causal::BottomRight), &inputs)?;
    let masked = all.get(StepName::Masked).unwrap();
    assert_eq!(masked.shape(), [1, heads, 3, 5]);
    for h in 0..heads {
        for (i, row) in ["11100", "11110", "11111"].iter().enumerate() {
            let kept: String = masked.row(&[0, h, i]).iter().map(kept_or_not).collect();
            assert_eq!(kept, *row, "head {h}, query {i}");
        }
    }

    let square = [true; 9];
    let attention = Attention {
        masks: vec![Mask::keep(View::new(&square, &[3, 3])?)],
        ..Attention::default()
    };
    let message = steps(&attention, &inputs).unwrap_err().to_string();
    for part in [
        "keep",
        "[1, 1, 3, 3]",
        "[1, 32, 3, 5]",
        "2 cached keys come first",
        "add a column for each",
    ] {
        assert!(message.contains(part), "{part:?} is not in {message:?}");
    }
    // A bare causal mask is refused for the same reason, and the message counts the cache.
    let message = steps(&causal(Causal::Square), &inputs)
        .unwrap_err()
        .to_string();
    assert!(message.contains("3 queries against 5 keys (2 of them cached)"));
    Ok(())
}

fn kept_or_not(masked: &f64) -> char {
    match *masked == f64::NEG_INFINITY {
        true => '0',
        false => '1',
    }
}

/// Mikyx-1/TinyLLM PR 18, mlx-node PR 24, hyprstream PR 1521
#[test]
fn b009_a_cache_neither_unmasks_nor_hides() -> Result<()> {
    let zeros = [0.0; 5];
    let run = |past: usize, new: usize, attention: &Attention<'_>| -> Result<Vec<f64>> {
        let part = |from: usize, len: usize| View::new(&ONE_TO_FIVE[from..from + len], &[len, 1]);
        let zero = |len: usize| View::new(&zeros[..len], &[len, 1]);
        let inputs = Inputs::new(zero(new)?, zero(new)?, part(past, new)?)?
            .with_past(zero(past)?, part(0, past)?)?;
        Ok(definition::forward(attention, &inputs)?.output.into_data())
    };
    let bottom_right = causal(Causal::BottomRight);
    assert_eq!(run(0, 4, &bottom_right)?, [1.0, 1.5, 2.0, 2.5]);
    assert_eq!(run(0, 4, &Attention::default())?, [2.5; 4]); // the fault
    assert_eq!(run(3, 2, &bottom_right)?, [2.5, 3.0]);
    assert_eq!(run(3, 2, &causal(Causal::TopLeft))?, [1.0, 1.5]); // the fault
    assert_eq!(run(3, 2, &causal(Causal::Offset(3)))?, [2.5, 3.0]);
    Ok(())
}

/// pytorch/pytorch#99282, #118972, #100709
#[test]
fn b030_causal_holds_whatever_else_is_asked() -> Result<()> {
    let mut rng = Rng(30);
    let numbers = rng.reals(3 * 2 * 3 * 8);
    let part = |n: usize| View::new(&numbers[n * 48..(n + 1) * 48], &[2, 1, 3, 8]);
    let inputs = Inputs::new(part(0)?, part(1)?, part(2)?)?;
    // The last key of entry 0 and the first of entry 1 are padding: row 0 of entry 1 is empty.
    let padding = [true, true, false, false, true, true];
    for padded in [false, true] {
        let mut attention = causal(Causal::Square);
        if padded {
            attention.masks = vec![Mask::keep(View::new(&padding, &[2, 1, 1, 3])?)];
        }
        let output = definition::forward(&attention, &inputs)?;
        let all = steps(&attention, &inputs)?;
        assert_bits(
            all.get(StepName::Output).unwrap().data(),
            output.output.data(),
            &padded,
        );
        assert_bits(
            all.get(StepName::Lse).unwrap().data(),
            output.lse.data(),
            &padded,
        );
        let weights = all.get(StepName::Weights).unwrap();
        for [b, h, i, j] in places([2, 1, 3, 3]) {
            let visible = j <= i && (!padded || padding[b * 3 + j]);
            assert_eq!(
                weights.at(&[b, h, i, j]) > 0.0,
                visible,
                "{b} {i} {j} {padded}"
            );
        }
        assert_eq!(output.empty_rows.len(), usize::from(padded));
        assert_eq!(all.empty_rows(), output.empty_rows);
    }
    Ok(())
}

/// huggingface/transformers#29623, vllm#3385, mlx-lm PR 390
#[test]
fn b060_both_meanings_of_a_window_of_two() -> Result<()> {
    let window = |back| Attention {
        window: Some(Window {
            back: Some(back),
            forward: None,
        }),
        ..causal(Causal::Square)
    };
    // W keys, the own one included
    let keys = uniform(5, &ONE_TO_FIVE, &window(1))?;
    assert_near(&keys, &[1.0, 1.5, 2.5, 3.5, 4.5], THIRDS, &1);
    // W keys before the own one
    let before = uniform(5, &ONE_TO_FIVE, &window(2))?;
    assert_near(&before, &[1.0, 1.5, 2.0, 3.0, 4.0], THIRDS, &2);

    let scores = tensor(&[5, 5], &[0.0; 25]);
    for (back, counts) in [(1, [1, 2, 2, 2, 2]), (2, [1, 2, 3, 3, 3])] {
        let weights = weights_of(&scores, &window(back))?;
        let kept = |i| weights.row(&[i]).iter().filter(|&&w| w > 0.0).count();
        assert_eq!([0, 1, 2, 3, 4].map(kept), counts);
    }
    Ok(())
}

/// ServiceNow/Fast-LLM PR 177, nanoVLM PR 204, axolotl PR 3796
#[test]
fn b067_packed_documents_do_not_see_each_other() -> Result<()> {
    let packed = Attention {
        documents: Some(Documents::new(vec![2, 3])),
        ..causal(Causal::Square)
    };
    let right = uniform(5, &ONE_TO_FIVE, &packed)?;
    assert_near(&right, &[1.0, 1.5, 3.0, 3.5, 4.0], THIRDS, &"packed");
    let leaking = uniform(5, &ONE_TO_FIVE, &causal(Causal::Square))?;
    assert_near(&leaking, &[1.0, 1.5, 2.0, 2.5, 3.0], THIRDS, &"leaking");
    // A document may be empty, and all alignments are the same within square documents.
    for alignment in [Causal::TopLeft, Causal::BottomRight, Causal::Offset(0)] {
        let packed = Attention {
            documents: Some(Documents::new(vec![0, 2, 0, 3, 0])),
            ..causal(alignment)
        };
        assert_eq!(uniform(5, &ONE_TO_FIVE, &packed)?, right);
    }
    Ok(())
}

/// Dao-AILab/flash-attention#1537, #1619
#[test]
fn b068_empty_sequences_in_a_packed_batch() -> Result<()> {
    let mut rng = Rng(68);
    let (zeros, v) = (vec![0.0; 9 * 8], rng.reals(3 * 8 * 2));
    let inputs = Inputs::new(
        View::new(&zeros[..18], &[1, 9, 2, 1])?,
        View::new(&zeros[..24], &[1, 3, 8, 1])?,
        View::new(&v, &[1, 3, 8, 2])?,
    )?;
    let lengths = Documents::with_key_lengths(vec![0, 1, 0, 1], vec![0, 3, 0, 5])?;
    for alignment in [None, Some(Causal::BottomRight)] {
        let attention = Attention {
            documents: Some(lengths.clone()),
            causal: alignment,
            ..Attention::default()
        };
        let output = definition::forward(&attention, &inputs)?;
        assert_eq!(output.output.shape(), [1, 9, 2, 2]);
        assert!(output.empty_rows.is_empty());
        for h in 0..9 {
            for (i, keys) in [0..3, 3..8].into_iter().enumerate() {
                for c in 0..2 {
                    let count = keys.len() as f64;
                    let sum: f64 = keys.clone().map(|j| v[(h / 3 * 8 + j) * 2 + c]).sum();
                    let found = output.output.at(&[0, h, i, c]);
                    // five numbers up to 2.5 in size, summed in another way
                    assert_near(&[found], &[sum / count], 2.5 * 16.0 * U, &(h, i, c));
                }
            }
        }
    }
    Ok(())
}

/// huggingface/transformers#25420, #36536, ggml-org/llama.cpp#7859
#[test]
fn b096_step_by_step_is_one_pass() -> Result<()> {
    b096::<f32>()?;
    b096::<half::bf16>()
}

/// Not only close: the same bits.
fn b096<T: qkv::Element>() -> Result<()> {
    let (tokens, width) = (9, 4);
    let mut rng = Rng(96);
    let numbers: Vec<T> = (0..3 * tokens * width)
        .map(|_| T::from_f64(3.0 * rng.real()))
        .collect();
    let part = |which: usize, from: usize, len: usize| {
        let from = (which * tokens + from) * width;
        View::new(&numbers[from..from + len * width], &[len, width])
    };
    let attention = causal(Causal::BottomRight);
    let whole = Inputs::new(
        part(0, 0, tokens)?,
        part(1, 0, tokens)?,
        part(2, 0, tokens)?,
    )?;
    let whole = definition::forward(&attention, &whole)?;
    for t in 0..tokens {
        let step = Inputs::new(part(0, t, 1)?, part(1, t, 1)?, part(2, t, 1)?)?
            .with_past(part(1, 0, t)?, part(2, 0, t)?)?;
        let step = definition::forward(&attention, &step)?;
        assert_bits(step.output.data(), whole.output.row(&[0, 0, t]), &t);
        assert_bits(step.lse.data(), &[whole.lse.at(&[0, 0, t])], &t);
    }
    Ok(())
}
