//! GGUF files made of the small models: as converters write them, but in full precision.

use crate::common::{Failure, data};
use candle_core::quantized::gguf_file::{self, Value};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};
use std::fs::File;
use std::path::Path;

/// Tensors of a model's layers: ours, theirs.
const PARTS: &[(&str, &str)] = &[
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.o_proj", "attn_output"),
    ("self_attn.q_norm", "attn_q_norm"),
    ("self_attn.k_norm", "attn_k_norm"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
    ("input_layernorm", "attn_norm"),
    ("pre_feedforward_layernorm", "ffn_norm"),
    ("post_feedforward_layernorm", "post_ffw_norm"),
];

fn name(of: &str, gemma: bool) -> Option<String> {
    let plain = |name: &str| match name {
        "model.embed_tokens.weight" => Some("token_embd.weight".to_owned()),
        "model.norm.weight" => Some("output_norm.weight".to_owned()),
        "lm_head.weight" => Some("output.weight".to_owned()),
        _ => None,
    };
    if let Some(name) = plain(of) {
        return Some(name);
    }
    let (layer, part) = of.strip_prefix("model.layers.")?.split_once('.')?;
    let (part, end) = part.rsplit_once('.')?;
    let theirs = match part {
        "post_attention_layernorm" if gemma => "post_attention_norm",
        "post_attention_layernorm" => "ffn_norm",
        _ => PARTS.iter().find(|(ours, _)| *ours == part)?.1,
    };
    Some(format!("blk.{layer}.{theirs}.{end}"))
}

/// The rows of q or k as converters order them for neighbouring pairs.
fn permuted(x: &Tensor, heads: usize) -> candle_core::Result<Tensor> {
    let rows = x.dim(0)?;
    let rest: usize = x.elem_count() / rows;
    x.reshape((heads, 2, rows / heads / 2, rest))?
        .transpose(1, 2)?
        .contiguous()?
        .reshape(x.shape())
}

/// Metadata as pairs.
pub type Meta = Vec<(String, Value)>;

/// The metadata of one of the small models.
pub fn meta(model: &str, kind: &str) -> Result<Meta, Failure> {
    let config: serde_json::Value =
        serde_json::from_slice(&std::fs::read(data().join(model).join("config.json"))?)?;
    let tokenizer: serde_json::Value =
        serde_json::from_slice(&std::fs::read(data().join("tokenizer.json"))?)?;
    let size = |key: &str| Value::U32(config[key].as_u64().unwrap_or(0) as u32);
    let mut meta: Meta = vec![("general.architecture".into(), Value::String(kind.into()))];
    for (theirs, ours) in [
        ("block_count", "num_hidden_layers"),
        ("embedding_length", "hidden_size"),
        ("feed_forward_length", "intermediate_size"),
        ("attention.head_count", "num_attention_heads"),
        ("attention.head_count_kv", "num_key_value_heads"),
        ("context_length", "max_position_embeddings"),
        ("attention.key_length", "head_dim"),
        ("attention.sliding_window", "sliding_window"),
    ] {
        if config[ours].as_u64().is_some() {
            meta.push((format!("{kind}.{theirs}"), size(ours)));
        }
    }
    let eps = config["rms_norm_eps"].as_f64().unwrap_or(1e-6) as f32;
    meta.push((
        format!("{kind}.attention.layer_norm_rms_epsilon"),
        Value::F32(eps),
    ));
    let mut tokens = vec![String::new(); 290];
    for (token, id) in tokenizer["model"]["vocab"]
        .as_object()
        .into_iter()
        .flatten()
    {
        tokens[id.as_u64().unwrap_or(0) as usize] = token.clone();
    }
    let texts = |texts: Vec<String>| Value::Array(texts.into_iter().map(Value::String).collect());
    let merges = tokenizer["model"]["merges"]
        .as_array()
        .into_iter()
        .flatten();
    let merges = merges.map(|merge| match merge.as_str() {
        Some(merge) => merge.to_owned(),
        None => format!(
            "{} {}",
            merge[0].as_str().unwrap_or(""),
            merge[1].as_str().unwrap_or("")
        ),
    });
    let types = (0..290)
        .map(|id| Value::I32(if id == 0 { 3 } else { 1 }))
        .collect();
    meta.push(("tokenizer.ggml.model".into(), Value::String("gpt2".into())));
    meta.push(("tokenizer.ggml.pre".into(), Value::String("gpt-2".into())));
    meta.push(("tokenizer.ggml.tokens".into(), texts(tokens)));
    meta.push(("tokenizer.ggml.merges".into(), texts(merges.collect())));
    meta.push(("tokenizer.ggml.token_type".into(), Value::Array(types)));
    Ok(meta)
}

/// Writes a GGUF of one of the small models.
pub fn write(path: &Path, model: &str, kind: &str, meta: &Meta) -> Result<(), Failure> {
    let gemma = kind.starts_with("gemma");
    let stored =
        candle_core::safetensors::load(data().join(model).join("model.safetensors"), &Device::Cpu)?;
    let mut names: Vec<&String> = stored.keys().collect();
    names.sort();
    let mut tensors = Vec::new();
    for of in names {
        let mut x = stored[of].to_dtype(candle_core::DType::F32)?;
        if kind == "llama" && of.contains("q_proj") {
            x = permuted(&x, 4)?;
        }
        if kind == "llama" && of.contains("k_proj") {
            x = permuted(&x, 2)?;
        }
        if gemma && of.contains("norm") {
            x = (x + 1.0)?;
        }
        let name = name(of, gemma).ok_or_else(|| format!("{of} has no name in GGUF"))?;
        tensors.push((name, QTensor::quantize(&x, GgmlDType::F32)?));
    }
    if model == "llama-llama3" {
        // Waves of 2π·10^pair beside the original length 16: the first is between 16/4 and 16.
        let between = (16.0 / std::f32::consts::TAU - 1.0) / 3.0;
        let first = 1.0 / ((1.0 - between) / 8.0 + between);
        let factors = Tensor::new(&[first, 8.0, 8.0, 8.0], &Device::Cpu)?;
        let factors = QTensor::quantize(&factors, GgmlDType::F32)?;
        tensors.push(("rope_freqs.weight".into(), factors));
    }
    let tensors: Vec<(&str, &QTensor)> =
        tensors.iter().map(|(name, x)| (name.as_str(), x)).collect();
    let meta: Vec<(&str, &Value)> = meta
        .iter()
        .map(|(key, value)| (key.as_str(), value))
        .collect();
    gguf_file::write(&mut File::create(path)?, &meta, &tensors)?;
    Ok(())
}
