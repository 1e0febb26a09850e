//! Files that are cut off, do not fit each other, or ask for the impossible: an error that says what, no
//! panic, and no memory by the file's word.

#[path = "common/gguf.rs"]
mod gguf;

mod common;

use candle_core::quantized::gguf_file::Value as GgufValue;
use common::{Failure, model};
use qkv_models::open;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// What opening says; a model that opens is a failure of the test.
fn refused(path: &Path) -> Result<String, Failure> {
    match open(path) {
        Ok(_) => Err(format!("{} opened", path.display()).into()),
        Err(error) => Ok(error.to_string()),
    }
}

#[track_caller]
fn says(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "{part:?} is not in: {message}");
    }
}

/// A model whose configuration was changed.
fn changed(name: &str, changes: &[(&str, Value)]) -> Result<tempfile::TempDir, Failure> {
    let folder = model(name)?;
    let path = folder.path().join("config.json");
    let mut config: Value = serde_json::from_slice(&fs::read(&path)?)?;
    for (key, value) in changes {
        config[*key] = value.clone();
    }
    fs::write(&path, config.to_string())?;
    Ok(folder)
}

fn refused_with(name: &str, changes: &[(&str, Value)]) -> Result<String, Failure> {
    refused(changed(name, changes)?.path())
}

#[test]
fn cut_off_at_every_hundredth() -> Result<(), Failure> {
    let folder = model("qwen2")?;
    for file in ["config.json", "model.safetensors", "tokenizer.json"] {
        let path = folder.path().join(file);
        let whole = fs::read(&path)?;
        for percent in 0..100 {
            // The last line's end may be missing.
            fs::write(&path, &whole[..whole.len() * percent / 100])?;
            let message = refused(folder.path())?;
            says(&message, &[file]);
            assert!(!message.contains("EOF while"), "{message}");
        }
        fs::write(&path, whole)?;
    }
    open(folder.path())?;
    let path = folder.path().join("model.gguf");
    gguf::write(&path, "qwen2", "qwen2", &gguf::meta("qwen2", "qwen2")?)?;
    let whole = fs::read(&path)?;
    for percent in 0..100 {
        fs::write(&path, &whole[..whole.len() * percent / 100])?;
        says(&refused(&path)?, &["model.gguf"]);
    }
    Ok(())
}

#[test]
fn bytes_of_a_header_changed() -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("model.gguf");
    gguf::write(&path, "qwen3", "qwen3", &gguf::meta("qwen3", "qwen3")?)?;
    let whole = fs::read(&path)?;
    let times: usize = std::env::var("QKV_TEST_TIMES")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(1);
    let mut state = 1_u64;
    for _ in 0..60 * times {
        let mut bytes = whole.clone();
        for _ in 0..3 {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            let at = (state >> 33) as usize % 12_000.min(bytes.len());
            bytes[at] = (state >> 20) as u8;
        }
        fs::write(&path, &bytes)?;
        // Some changes are harmless; none may panic or take memory that the file does not have.
        let _ = open(&path);
    }
    Ok(())
}

#[test]
fn sizes_that_do_not_fit() -> Result<(), Failure> {
    // B075: the configuration's own width of a head counts, and the message names both.
    let message = refused_with("qwen3", &[("head_dim", json!(8))])?;
    says(
        &message,
        &[
            "q_proj.weight",
            "[64, 32]",
            "num_attention_heads·head_dim = 32",
        ],
    );
    let message = refused_with("bert", &[("vocab_size", json!(291))])?;
    says(
        &message,
        &["word_embeddings.weight", "[290, 32]", "vocab_size = 291"],
    );
    let message = refused_with("gpt2", &[("n_layer", json!(2))])?;
    says(&message, &["transformer.h.2.", "no use"]);
    let message = refused_with("gpt2", &[("n_layer", json!(4))])?;
    says(&message, &["h.3.", "missing"]);
    let message = refused_with("llama", &[("num_key_value_heads", json!(3))])?;
    says(&message, &["num_key_value_heads", "is 3", "4 query heads"]);
    // A bias that the configuration does not speak of would change what the model does.
    let message = refused_with("llama", &[("attention_bias", json!(false))])?;
    says(&message, &["self_attn.k_proj.bias", "no use"]);
    Ok(())
}

#[test]
fn absurd_sizes() -> Result<(), Failure> {
    for (name, key, value, part) in [
        (
            "bert",
            "num_hidden_layers",
            json!(2_000_000_000),
            "at most 10000",
        ),
        ("bert", "hidden_size", json!(2_000_000_000), "hidden_size"),
        ("gpt2", "n_layer", json!(-1), "is -1"),
        ("gpt2", "n_embd", json!(1e300), "is 1e"),
        (
            "llama",
            "vocab_size",
            json!(u64::MAX),
            "is 18446744073709551615",
        ),
        (
            "llama",
            "intermediate_size",
            json!(1_u64 << 31),
            "intermediate_size = 2147483648",
        ),
        ("llama", "num_attention_heads", json!(0), "is 0"),
        ("mistral", "sliding_window", json!(0), "sliding_window is 0"),
        (
            "gemma3",
            "query_pre_attn_scalar",
            json!(0.0),
            "query_pre_attn_scalar is 0",
        ),
        (
            "llama",
            "rms_norm_eps",
            json!("tiny"),
            "rms_norm_eps is \"tiny\"",
        ),
    ] {
        says(&refused_with(name, &[(key, value)])?, &[part]);
    }
    Ok(())
}

#[test]
fn keys_that_change_attention_are_refused_by_name() -> Result<(), Failure> {
    for (name, key, value) in [
        ("llama", "rope_interleaved", json!(true)),
        ("llama", "attention_multiplier", json!(0.5)),
        ("llama", "sliding_window", json!(5)),
        ("llama", "alibi", json!(true)),
        ("bert", "position_embedding_type", json!("relative_key")),
        ("bert", "is_decoder", json!(true)),
        ("gpt2", "add_cross_attention", json!(true)),
        ("gemma3", "use_bidirectional_attention", json!(true)),
        (
            "qwen2",
            "layer_types",
            json!(["full_attention", "chunked_attention", "full_attention"]),
        ),
        ("llama", "num_local_experts", json!(8)),
        (
            "llama",
            "quantization_config",
            json!({"quant_method": "gptq"}),
        ),
        ("llama", "hidden_act", json!("xielu")),
        (
            "llama",
            "rope_parameters",
            json!({"rope_type": "longrope", "factor": 2.0}),
        ),
        (
            "llama",
            "rope_parameters",
            json!({"rope_type": "linear", "factor": 2.0, "fastness": 1}),
        ),
        ("llama", "rope_parameters", json!({"rope_type": "linear"})),
        ("llama", "partial_rotary_factor", json!(0.5)),
        ("gemma3", "attn_logit_softcapping", json!(30.0)),
    ] {
        let message = refused_with(name, &[(key, value)])?;
        says(&message, &["config.json", key]);
    }
    // What is off, or has nothing to do with attention, is not.
    let harmless = [
        ("rope_interleaved", json!(false)),
        ("use_alibi", json!(null)),
        ("favourite_colour", json!("blue")),
    ];
    let opened = open(changed("llama", &harmless)?.path())?;
    assert_eq!(opened.model.config().ignored, ["favourite_colour"]);
    says(
        &refused_with("llama", &[("model_type", json!("mamba"))])?,
        &["mamba", "llama", "bert"],
    );
    Ok(())
}

/// Writes one value into the middle of a model's tensor data.
fn poisoned(value: f32) -> Result<tempfile::TempDir, Failure> {
    let folder = model("bert")?;
    let path = folder.path().join("model.safetensors");
    let mut bytes = fs::read(&path)?;
    let at = bytes.len() - 4 * 1000;
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    fs::write(&path, bytes)?;
    Ok(folder)
}

#[test]
fn weights_that_are_no_numbers() -> Result<(), Failure> {
    for (value, shown) in [(f32::NAN, "NaN"), (f32::INFINITY, "inf")] {
        says(
            &refused(poisoned(value)?.path())?,
            &[shown, "the tensor", "at ["],
        );
    }
    Ok(())
}

#[test]
fn missing_files() -> Result<(), Failure> {
    for (file, remedy) in [
        ("config.json", "give the folder"),
        ("tokenizer.json", "download it"),
        ("model.safetensors", "give the folder"),
    ] {
        let folder = model("llama")?;
        fs::remove_file(folder.path().join(file))?;
        says(&refused(folder.path())?, &[file, remedy]);
    }
    let folder = model("bert")?;
    fs::remove_file(folder.path().join("tokenizer.json"))?;
    fs::write(folder.path().join("vocab.txt"), "[PAD]\n")?;
    says(&refused(folder.path())?, &["vocab.txt alone"]);
    fs::remove_file(folder.path().join("model.safetensors"))?;
    Ok(())
}

/// A pipe would be waited for for ever; a link to nothing and a loop of links are no absence.
#[cfg(unix)]
#[test]
fn names_that_are_no_files() -> Result<(), Failure> {
    use std::os::unix::fs::symlink;
    let folder = model("llama")?;
    let path = |name: &str| folder.path().join(name);
    let made = std::process::Command::new("mkfifo")
        .arg(path("pipe"))
        .status()?;
    assert!(made.success());
    says(
        &refused(&path("pipe"))?,
        &["pipe", "not a file", "a GGUF file"],
    );
    symlink(path("one"), path("two"))?;
    symlink(path("two"), path("one"))?;
    let found = qkv_models::find(&path("one").to_string_lossy());
    says(
        &found.err().ok_or("found")?.to_string(),
        &["cannot be read"],
    );
    for file in ["config.json", "tokenizer.json", "model.safetensors"] {
        let kept = fs::read(path(file))?;
        fs::remove_file(path(file))?;
        symlink(path("nothing"), path(file))?;
        says(
            &refused(folder.path())?,
            &[file, "a link to something that is not there"],
        );
        fs::remove_file(path(file))?;
        fs::write(path(file), kept)?;
    }
    fs::remove_file(path("config.json"))?;
    symlink(path("one"), path("config.json"))?;
    says(&refused(folder.path())?, &["config.json: cannot be read"]);
    Ok(())
}

#[test]
fn b109_pytorch_under_another_name() -> Result<(), Failure> {
    let folder = model("bert")?;
    let path = folder.path().join("model.safetensors");
    fs::write(&path, b"PK\x03\x04\x14\x00\x08\x08")?;
    says(&refused(folder.path())?, &["zip"]);
    fs::rename(&path, folder.path().join("pytorch_model.bin"))?;
    says(
        &refused(folder.path())?,
        &["pytorch_model.bin", "convert it"],
    );
    Ok(())
}

#[test]
fn b111_interrupted_download() -> Result<(), Failure> {
    let folder = model("bert")?;
    let path = folder.path().join("model.safetensors");
    let bytes = fs::read(&path)?;
    fs::write(&path, &bytes[..bytes.len() - 16])?;
    says(&refused(folder.path())?, &["16 bytes short"]);
    Ok(())
}

#[test]
fn b118_places_in_a_gguf() -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("model.gguf");
    let mut meta = gguf::meta("qwen2", "qwen2")?;
    meta.push(("general.alignment".into(), GgufValue::U32(0)));
    gguf::write(&path, "qwen2", "qwen2", &meta)?;
    says(
        &refused(&path)?,
        &["general.alignment is 0, ", "no power of two"],
    );
    meta.pop();
    gguf::write(&path, "qwen2", "qwen2", &meta)?;
    let mut bytes = fs::read(&path)?;
    // The place of the last tensor that the header names is the eight bytes before the data.
    let name = b"token_embd.weight";
    let at = bytes
        .windows(name.len())
        .position(|part| part == name)
        .ok_or("no such tensor")?;
    let place = at + name.len() + 4 + 16 + 4;
    let far = (bytes.len() as u64).next_multiple_of(32);
    bytes[place..place + 8].copy_from_slice(&far.to_le_bytes());
    fs::write(&path, &bytes)?;
    says(&refused(&path)?, &["token_embd.weight", "are missing"]);
    bytes[place..place + 8].copy_from_slice(&u64::MAX.to_le_bytes());
    fs::write(&path, &bytes)?;
    says(&refused(&path)?, &["token_embd.weight"]);
    Ok(())
}

#[test]
fn headers_of_gguf_that_promise_too_much() -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("model.gguf");
    let head = |tensors: u64, entries: u64, rest: &[u8]| {
        let mut bytes = b"GGUF\x03\0\0\0".to_vec();
        bytes.extend(tensors.to_le_bytes());
        bytes.extend(entries.to_le_bytes());
        bytes.extend(rest);
        bytes
    };
    // A text of 2^60 bytes, an array of 2^61 numbers, as many tensors.
    let mut text = 1_u64.to_le_bytes().to_vec();
    text.extend(b"k\x08\0\0\0");
    text.extend((1_u64 << 60).to_le_bytes());
    let mut array = 1_u64.to_le_bytes().to_vec();
    array.extend(b"k\x09\0\0\0\x06\0\0\0");
    array.extend((1_u64 << 61).to_le_bytes());
    for bytes in [
        head(u64::MAX, 0, &[]),
        head(0, 1 << 40, &[0; 64]),
        head(0, 1, &text),
        head(0, 1, &array),
    ] {
        fs::write(&path, bytes)?;
        says(&refused(&path)?, &["GGUF, byte", "left"]);
    }
    fs::write(&path, b"GGUF\x00\0\0\x03")?;
    says(&refused(&path)?, &["version"]);
    let mut meta = gguf::meta("qwen2", "qwen2")?;
    for (key, value, part) in [
        (
            "qwen2.attention.clamp_kqv",
            GgufValue::F32(8.0),
            "clamp_kqv",
        ),
        (
            "qwen2.rope.scaling.type",
            GgufValue::String("su".into()),
            "su",
        ),
        (
            "qwen2.rope.dimension_count",
            GgufValue::U32(4),
            "dimension_count",
        ),
    ] {
        meta.push((key.into(), value));
        gguf::write(&path, "qwen2", "qwen2", &meta)?;
        says(&refused(&path)?, &[part]);
        meta.pop();
    }
    meta[0].1 = GgufValue::String("rwkv6".into());
    gguf::write(&path, "qwen2", "qwen2", &meta)?;
    says(&refused(&path)?, &["rwkv6", "llama"]);
    Ok(())
}
