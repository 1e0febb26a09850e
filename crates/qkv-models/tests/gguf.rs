//! GGUF files hold the same models as folders do: order of rows, gains of norms, keys, tokenizer.

#[path = "common/gguf.rs"]
mod gguf;

mod common;

use candle_core::quantized::gguf_file::Value;
use common::{Failure, batch, data, model};
use qkv_models::{Batch, Padding, open};

/// Largest difference between the hidden states of a folder and of a GGUF.
fn difference(name: &str, kind: &str, more: &[(&str, Value)]) -> Result<f32, Failure> {
    let folder = model(name)?;
    let file = folder.path().join("model.gguf");
    let mut meta = gguf::meta(name, kind)?;
    for (key, value) in more {
        meta.push((format!("{kind}.{key}"), value.clone()));
    }
    gguf::write(&file, name, kind, &meta)?;
    let batch = batch(&data().join(name).join("numbers.safetensors"))?;
    let [a, b] = [open(folder.path())?, open(&file)?];
    let text = "The animal didn't cross the street: 猫 12";
    assert_eq!(a.tokens.encode(text)?, b.tokens.encode(text)?);
    assert_eq!(b.tokens.texts(&b.tokens.encode(text)?).concat(), text);
    let mut largest = 0.0_f32;
    let states = a
        .model
        .hidden_states(&batch)?
        .into_iter()
        .zip(b.model.hidden_states(&batch)?);
    for (a, b) in states {
        let difference = (a - b)?.abs()?.flatten_all()?.max(0)?.to_scalar::<f32>()?;
        largest = if difference <= largest {
            largest
        } else {
            difference
        };
    }
    Ok(largest)
}

/// States of a few units, through three layers: far below what one wrong row would do.
const NEAR: f32 = 1e-4;

#[test]
fn rows_of_llama_are_ordered_for_neighbouring_pairs() -> Result<(), Failure> {
    let linear = [
        ("rope.scaling.type", Value::String("linear".into())),
        ("rope.scaling.factor", Value::F32(3.0)),
    ];
    let found = difference("llama-linear", "llama", &linear)?;
    assert!(found <= NEAR, "{found}");
    let yarn = [
        ("rope.scaling.type", Value::String("yarn".into())),
        ("rope.scaling.factor", Value::F32(4.0)),
        ("rope.scaling.original_context_length", Value::U32(16)),
    ];
    let found = difference("llama-yarn", "llama", &yarn)?;
    assert!(found <= NEAR, "{found}");
    // Factors of the frequencies, one for each pair, in place of a scaling by name.
    let found = difference("llama-llama3", "llama", &[])?;
    assert!(found <= NEAR, "{found}");
    Ok(())
}

#[test]
fn rows_of_qwen_are_not() -> Result<(), Failure> {
    for (name, kind) in [("qwen2", "qwen2"), ("qwen3", "qwen3")] {
        let found = difference(name, kind, &[])?;
        assert!(found <= NEAR, "{name}: {found}");
    }
    Ok(())
}

#[test]
fn gains_of_gemma_hold_the_one_already() -> Result<(), Failure> {
    // The small model's scale and pattern are others than the file can say.
    let folder = model("gemma2")?;
    let file = folder.path().join("model.gguf");
    let meta = gguf::meta("gemma2", "gemma2")?;
    gguf::write(&file, "gemma2", "gemma2", &meta)?;
    let opened = open(&file)?;
    let config = opened.model.config();
    assert_eq!(config.layers[0].scale, 0.25);
    assert!(config.layers[0].window.is_some() && config.layers[1].window.is_none());
    let batch = Batch::new(&[vec![5]], Padding::Right, 0)?;
    let [a, b] = [open(folder.path())?, opened];
    // One token has one weight whatever the scale: the norms are all that could differ.
    let states = a
        .model
        .hidden_states(&batch)?
        .into_iter()
        .zip(b.model.hidden_states(&batch)?);
    for (a, b) in states {
        let difference = (a - b)?.abs()?.flatten_all()?.max(0)?.to_scalar::<f32>()?;
        assert!(difference <= NEAR, "{difference}");
    }
    Ok(())
}
