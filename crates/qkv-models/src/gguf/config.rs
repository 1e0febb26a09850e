//! The metadata of a GGUF in the words of Hugging Face's config.json, and the names of its tensors.

use super::{Gguf, Meta, factors};
use crate::error::{Error, Result};
use serde_json::{Map, Value, json};
use std::collections::HashMap;

/// What is told by the file, key by key behind the architecture's name, and what config.json calls it.
const KEYS: &[(&str, &str)] = &[
    ("block_count", "num_hidden_layers"),
    ("embedding_length", "hidden_size"),
    ("feed_forward_length", "intermediate_size"),
    ("attention.head_count", "num_attention_heads"),
    ("attention.head_count_kv", "num_key_value_heads"),
    ("attention.key_length", "head_dim"),
    ("attention.layer_norm_rms_epsilon", "rms_norm_eps"),
    ("attention.sliding_window", "sliding_window"),
    ("attn_logit_softcapping", "attn_logit_softcapping"),
    ("final_logit_softcapping", "final_logit_softcapping"),
    ("context_length", "max_position_embeddings"),
];

/// Keys that say nothing more, or are looked at by name below.
const OTHER: &[&str] = &[
    "vocab_size",
    "attention.value_length",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.scaling.type",
    "rope.scaling.factor",
    "rope.scaling.original_context_length",
    "rope.scaling.finetuned",
];

/// The configuration that a GGUF's metadata and tensors say.
pub(crate) fn json(gguf: &mut Gguf) -> Result<Map<String, Value>> {
    let written_out = match gguf.shape(factors::TENSOR) {
        Some(_) => Some(gguf.read(factors::TENSOR)?),
        None => None,
    };
    let gguf = &*gguf;
    let wrong = |key: &str, found: String, remedy: &str| Error::Config {
        path: gguf.path().to_owned(),
        key: key.to_owned(),
        found,
        remedy: remedy.to_owned(),
    };
    let Some(Meta::Text(kind)) = gguf.meta.get("general.architecture") else {
        let remedy = "the file does not say what model it holds; convert it again";
        return Err(wrong("general.architecture", "is missing".into(), remedy));
    };
    let family = match kind.as_str() {
        "llama" | "qwen2" | "qwen3" | "gemma2" => kind.as_str(),
        "gemma3" => "gemma3_text",
        other => {
            let remedy = "of GGUF files llama, qwen2, qwen3, gemma2 and gemma3 are read";
            return Err(wrong(
                "general.architecture",
                format!("is \"{}\"", qkv_io::shown(other)),
                remedy,
            ));
        }
    };
    let mut config = Map::new();
    config.insert("model_type".into(), family.into());
    let around = format!("{kind}.");
    for (key, value) in &gguf.meta {
        let Some(short) = key.strip_prefix(&around) else {
            continue;
        };
        if let Some((_, name)) = KEYS.iter().find(|(known, _)| *known == short) {
            let value = number(value)
                .ok_or_else(|| wrong(key, format!("is {value}"), "one number is needed"))?;
            config.insert((*name).to_owned(), value);
        } else if !OTHER.contains(&short) && *value != Meta::Whole(0) {
            let remedy = "this key is not supported and may change the attention";
            return Err(wrong(key, format!("is {value}"), remedy));
        }
    }
    if let Some(shape) = gguf.shape("token_embd.weight")
        && let [vocabulary, _] = shape[..]
    {
        config.insert("vocab_size".into(), vocabulary.into());
    }
    let of = |key: &str| gguf.meta.get(&format!("{around}{key}")).and_then(number);
    let size = |key: &str| config.get(key).and_then(Value::as_u64).unwrap_or(0);
    let (width, heads) = (size("hidden_size"), size("num_attention_heads"));
    let head_dim = match size("head_dim") {
        0 => width.checked_div(heads).unwrap_or(0),
        given => given,
    };
    for key in ["attention.value_length", "rope.dimension_count"] {
        if let Some(value) = of(key).filter(|value| value.as_u64() != Some(head_dim)) {
            let remedy = format!("only {head_dim}, the width of a head, is supported");
            return Err(wrong(
                &format!("{around}{key}"),
                format!("is {value}"),
                &remedy,
            ));
        }
    }
    let tied = !gguf.names().any(|name| name == "output.weight");
    let gemma = kind.starts_with("gemma");
    let layers = size("num_hidden_layers");
    config.insert("tie_word_embeddings".into(), tied.into());
    config.insert("head_dim".into(), head_dim.into());
    if gemma {
        // The largest model of each kind scales by the width's share of a head, not by a head's width.
        let largest = if kind == "gemma2" { 46 } else { 62 };
        let scalar = if layers == largest {
            width.checked_div(heads).unwrap_or(0)
        } else {
            head_dim
        };
        config.insert("query_pre_attn_scalar".into(), scalar.into());
        config.insert("hidden_activation".into(), "gelu_pytorch_tanh".into());
    } else {
        config.insert("hidden_act".into(), "silu".into());
        // Qwen 2 has its biases without being asked.
        if kind != "qwen2" {
            let biased = gguf.names().any(|name| name == "blk.0.attn_q.bias");
            config.insert("attention_bias".into(), biased.into());
        }
    }
    if config.contains_key("sliding_window") && kind == "qwen2" {
        config.insert("use_sliding_window".into(), true.into());
    }
    let base = of("rope.freq_base").unwrap_or_else(|| json!(10000.0));
    let told = scaling(gguf, &around, &of, &wrong)?;
    let scaling = match (&written_out, told) {
        (None, told) => told,
        (Some(factors), None) if kind == "llama" => {
            let fitted = factors::scaling(factors, base.as_f64().unwrap_or(0.0));
            let fitted = fitted.ok_or_else(|| {
                let found = "holds factors of another scaling than that of Llama 3";
                let remedy = "give the model's Hugging Face folder, whose config.json names it";
                wrong(factors::TENSOR, found.into(), remedy)
            })?;
            Some(fitted).filter(|fitted| !fitted.is_null())
        }
        (Some(_), _) => {
            let remedy =
                "only files of the architecture llama without another scaling are read with it";
            return Err(wrong(factors::TENSOR, "is there".into(), remedy));
        }
    };
    config.insert("rope_theta".into(), base);
    if let Some(scaling) = scaling {
        config.insert("rope_scaling".into(), scaling);
    }
    Ok(config)
}

fn scaling(
    gguf: &Gguf,
    around: &str,
    of: &dyn Fn(&str) -> Option<Value>,
    wrong: &dyn Fn(&str, String, &str) -> Error,
) -> Result<Option<Value>> {
    let key = format!("{around}rope.scaling.type");
    let kind = match gguf.meta.get(&key) {
        None => return Ok(None),
        Some(Meta::Text(kind)) => kind.as_str(),
        Some(other) => return Err(wrong(&key, format!("is {other}"), "a word is needed")),
    };
    let mut scaling = Map::new();
    match kind {
        "none" => return Ok(None),
        "linear" | "yarn" => scaling.insert("rope_type".into(), kind.into()),
        other => {
            let remedy = "none, linear and yarn are supported";
            return Err(wrong(
                &key,
                format!("is \"{}\"", qkv_io::shown(other)),
                remedy,
            ));
        }
    };
    if let Some(factor) = of("rope.scaling.factor") {
        scaling.insert("factor".into(), factor);
    }
    if kind == "yarn"
        && let Some(length) = of("rope.scaling.original_context_length")
    {
        scaling.insert("original_max_position_embeddings".into(), length);
    }
    Ok(Some(scaling.into()))
}

fn number(value: &Meta) -> Option<Value> {
    match value {
        Meta::Whole(whole) => u64::try_from(*whole).ok().map(Value::from),
        Meta::Float(float) => Some(Value::from(*float)),
        // One number a layer, where all are the same.
        Meta::Wholes(each) => {
            let first = *each.first()?;
            let same = each.iter().all(|n| *n == first);
            same.then(|| u64::try_from(first).ok().map(Value::from))?
        }
        _ => None,
    }
}

/// The names that the families use, to the file's: what converters to GGUF made of them.
pub(crate) fn alias(config: &Map<String, Value>) -> HashMap<String, String> {
    let family = config.get("model_type").and_then(Value::as_str);
    let gemma = family.is_some_and(|family| family.starts_with("gemma"));
    let layers = config.get("num_hidden_layers").and_then(Value::as_u64);
    let mut alias: HashMap<String, String> = [
        ("model.embed_tokens.weight", "token_embd.weight"),
        ("model.norm.weight", "output_norm.weight"),
        ("lm_head.weight", "output.weight"),
    ]
    .map(|(ours, file)| (ours.to_owned(), file.to_owned()))
    .into();
    let norms: &[(&str, &str)] = if gemma {
        &[
            ("input_layernorm", "attn_norm"),
            ("post_attention_layernorm", "post_attention_norm"),
            ("pre_feedforward_layernorm", "ffn_norm"),
            ("post_feedforward_layernorm", "post_ffw_norm"),
        ]
    } else {
        &[
            ("input_layernorm", "attn_norm"),
            ("post_attention_layernorm", "ffn_norm"),
        ]
    };
    let parts = [
        ("self_attn.q_proj", "attn_q"),
        ("self_attn.k_proj", "attn_k"),
        ("self_attn.v_proj", "attn_v"),
        ("self_attn.o_proj", "attn_output"),
        ("self_attn.q_norm", "attn_q_norm"),
        ("self_attn.k_norm", "attn_k_norm"),
        ("mlp.gate_proj", "ffn_gate"),
        ("mlp.up_proj", "ffn_up"),
        ("mlp.down_proj", "ffn_down"),
    ];
    // No model has as many layers; the configuration is checked later.
    for layer in 0..layers.unwrap_or(0).min(10_000) {
        for (ours, file) in parts.iter().chain(norms) {
            for end in ["weight", "bias"] {
                let ours = format!("model.layers.{layer}.{ours}.{end}");
                alias.insert(ours, format!("blk.{layer}.{file}.{end}"));
            }
        }
    }
    alias
}
