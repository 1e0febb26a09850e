//! Llama, Mistral, Qwen 2 and Qwen 3: decoders with rotary positions, RMS norms and gated dense layers.

use super::{activation, groups, linear, share, sliding};
use crate::config::{Config, LayerConfig};
use crate::dense::{Mlp, Norm, NormKind};
use crate::error::Result;
use crate::keys::Keys;
use crate::model::{Around, Embedding, Layer, Model};
use crate::rope::Rope;
use crate::weights::Weights;
use qkv::Window;
use serde_json::json;

/// What is the same in all decoders of this kind, Gemma among them, without layers; `head_dim` where the
/// key is left out, or else the width's share.
pub(super) fn base(
    keys: &Keys<'_>,
    family: &str,
    head_dim: Option<usize>,
    (activation_key, usual): (&str, &str),
) -> Result<Config> {
    let width = keys.needed("hidden_size")?;
    let heads = keys.needed("num_attention_heads")?;
    let head_dim = match keys.count("head_dim")?.or(head_dim) {
        Some(head_dim) => head_dim,
        None => share(keys, width, heads, "num_attention_heads")?,
    };
    Ok(Config {
        family: family.into(),
        width,
        heads,
        kv_heads: groups(keys, "num_key_value_heads", heads)?,
        head_dim,
        inner: keys.needed("intermediate_size")?,
        vocabulary: keys.needed("vocab_size")?,
        positions: keys.count("max_position_embeddings")?,
        causal: true,
        softcap: None,
        norm: NormKind::Rms,
        eps: keys.number("rms_norm_eps")?.unwrap_or(1e-6),
        qk_norm: false,
        activation: activation(keys, activation_key, usual)?,
        embedding_factor: 1.0,
        logit_softcap: None,
        tied: false,
        layers: Vec::new(),
        padding: None,
        kinds: 0,
        biased: false,
        mlp_bias: false,
        image: None,
        ignored: Vec::new(),
    })
}

pub(super) fn config(keys: &Keys<'_>, family: &str) -> Result<Config> {
    let own = (family == "qwen3").then_some(128);
    let base = base(keys, family, own, ("hidden_act", "silu"))?;
    let layers = keys.layers("num_hidden_layers")?;
    let (head_dim, positions) = (base.head_dim, base.positions);
    let rope = Rope {
        keys,
        head_dim,
        positions,
    };
    let rotary = rope.same(10_000.0)?;
    // Layers of Qwen below `max_window_layers` see everything.
    let (window, first) = match family {
        "qwen2" | "qwen3" => {
            let below = keys.get("max_window_layers").and_then(|n| n.as_u64());
            let on = keys.flag("use_sliding_window")?.unwrap_or(false);
            let window = keys.count("sliding_window")?.unwrap_or(4096);
            (on.then_some(window), below.map_or(28, |n| n as usize))
        }
        "mistral" => (keys.count("sliding_window")?, 0),
        _ => {
            keys.only("sliding_window", &json!(null))?;
            (None, 0)
        }
    };
    let sliding = sliding(keys, layers, |layer| window.is_some() && layer >= first)?;
    if sliding.contains(&true) && window.is_none() {
        return Err(keys.wrong(
            "layer_types",
            "holds sliding_attention, but no window is in force".into(),
            "give sliding_window and use_sliding_window",
        ));
    }
    for key in ["attention_bias", "qkv_bias"] {
        if family == "mistral" || family == "qwen2" && key == "attention_bias" {
            keys.only(key, &json!(family == "qwen2"))?;
        }
    }
    let biased = match family {
        "qwen2" => true,
        "mistral" => false,
        _ => keys.flag("attention_bias")?.unwrap_or(false),
    };
    let layer = |sliding| LayerConfig {
        rotary: Some(rotary),
        window: window.filter(|_| sliding).map(|window| Window {
            back: Some(window - 1),
            forward: None,
        }),
        scale: 1.0 / (head_dim as f64).sqrt(),
    };
    Ok(Config {
        qk_norm: family == "qwen3",
        tied: keys.flag("tie_word_embeddings")?.unwrap_or(false),
        layers: sliding.into_iter().map(layer).collect(),
        biased,
        mlp_bias: keys.flag("mlp_bias")?.unwrap_or(false),
        ..base
    })
}

/// An RMS norm under a name; `more` is added to the stored gain.
pub(super) fn rms_norm(
    weights: &mut Weights,
    name: &str,
    axis: (&'static str, usize),
    eps: f64,
    more: f32,
) -> Result<Norm> {
    let gain = weights.vector(&format!("{name}.weight"), axis)?;
    Ok(Norm {
        kind: NormKind::Rms,
        gain: gain.iter().map(|gain| gain + more).collect(),
        bias: None,
        eps,
    })
}

pub(super) fn load(config: Config, weights: &mut Weights) -> Result<Model> {
    load_with(config, weights, 0.0, |weights, name, norm| {
        let attention = Around {
            before: Some(norm(weights, &format!("{name}input_layernorm"))?),
            ..Around::default()
        };
        let dense = Around {
            before: Some(norm(weights, &format!("{name}post_attention_layernorm"))?),
            ..Around::default()
        };
        Ok([attention, dense])
    })
}

/// A function that reads one norm of the model's width.
pub(super) type ReadNorm<'a> = &'a dyn Fn(&mut Weights, &str) -> Result<Norm>;

/// Reads the weights of a decoder whose norms stand where `around` says.
pub(super) fn load_with(
    config: Config,
    weights: &mut Weights,
    more: f32,
    around: impl Fn(&mut Weights, &str, ReadNorm<'_>) -> Result<[Around; 2]>,
) -> Result<Model> {
    let family = config.family.clone();
    let width = ("hidden_size", config.width);
    let q = (
        "num_attention_heads·head_dim",
        config.heads * config.head_dim,
    );
    let kv = (
        "num_key_value_heads·head_dim",
        config.kv_heads * config.head_dim,
    );
    let head_dim = ("head_dim", config.head_dim);
    let inner = ("intermediate_size", config.inner);
    let vocabulary = ("vocab_size", config.vocabulary);
    let eps = config.eps;
    let norm = move |weights: &mut Weights, name: &str| rms_norm(weights, name, width, eps, more);
    let prefix = weights.prefix(&["model.", ""], "embed_tokens.weight");
    let embedding = Embedding {
        tokens: weights.take(
            &format!("{prefix}embed_tokens.weight"),
            &[vocabulary, width],
        )?,
        learned: None,
        kind: None,
        norm: None,
        patches: None,
    };
    let mut layers = Vec::new();
    for at in 0..config.layers.len() {
        let name = format!("{prefix}layers.{at}.");
        let of = |part: &str| format!("{name}{part}");
        let [attention, dense] = around(weights, &name, &norm)?;
        let of_head = |weights: &mut Weights, part: &str| -> Result<Option<Norm>> {
            match config.qk_norm {
                true => Ok(Some(rms_norm(weights, &of(part), head_dim, eps, more)?)),
                false => Ok(None),
            }
        };
        let (bias, mlp_bias) = (config.biased, config.mlp_bias);
        // Qwen 2 has no bias behind attention.
        let o_bias = bias && family != "qwen2";
        layers.push(Layer {
            q: linear(weights, &of("self_attn.q_proj"), &[q, width], bias)?,
            k: linear(weights, &of("self_attn.k_proj"), &[kv, width], bias)?,
            v: linear(weights, &of("self_attn.v_proj"), &[kv, width], bias)?,
            o: linear(weights, &of("self_attn.o_proj"), &[width, q], o_bias)?,
            q_norm: of_head(weights, "self_attn.q_norm")?,
            k_norm: of_head(weights, "self_attn.k_norm")?,
            attention,
            mlp: Mlp::Gated {
                gate: linear(weights, &of("mlp.gate_proj"), &[inner, width], mlp_bias)?,
                up: linear(weights, &of("mlp.up_proj"), &[inner, width], mlp_bias)?,
                down: linear(weights, &of("mlp.down_proj"), &[width, inner], mlp_bias)?,
                activation: config.activation,
            },
            dense,
        });
    }
    let last = Some(norm(weights, &format!("{prefix}norm"))?);
    let head = crate::model::head(&config, weights, &embedding, &[vocabulary, width])?;
    weights.finish(
        &format!("{prefix}layers."),
        &["rotary_emb.inv_freq", "rope_freqs.weight"],
        &family,
    )?;
    Ok(Model {
        config,
        embedding,
        layers,
        norm: last,
        head,
    })
}
