//! GPT-2: a decoder with learned positions; its dense layers are stored the other way round.

use super::{activation, layer_norm, share};
use crate::config::{Config, LayerConfig};
use crate::dense::{Linear, Mlp, NormKind};
use crate::error::Result;
use crate::keys::Keys;
use crate::model::{Around, Embedding, Layer, Learned, Model};
use crate::weights::{Axes, Weights};
use serde_json::json;

pub(super) fn config(keys: &Keys<'_>) -> Result<Config> {
    keys.only("add_cross_attention", &json!(false))?;
    let (width, heads) = (keys.needed("n_embd")?, keys.needed("n_head")?);
    let layers = keys.layers("n_layer")?;
    let positions = match keys.count("n_positions")? {
        Some(positions) => positions,
        None => keys.needed("n_ctx")?,
    };
    keys.only("n_ctx", &json!(positions))?;
    let head_dim = share(keys, width, heads, "n_head")?;
    let scale = match keys.flag("scale_attn_weights")? {
        Some(false) => 1.0,
        _ => 1.0 / (head_dim as f64).sqrt(),
    };
    let by_layer = keys.flag("scale_attn_by_inverse_layer_idx")? == Some(true);
    let layer = |at: usize| LayerConfig {
        rotary: None,
        window: None,
        scale: if by_layer {
            scale / (at + 1) as f64
        } else {
            scale
        },
    };
    Ok(Config {
        family: "gpt2".into(),
        width,
        heads,
        kv_heads: heads,
        head_dim,
        inner: keys.count("n_inner")?.unwrap_or(4 * width),
        vocabulary: keys.needed("vocab_size")?,
        positions: Some(positions),
        causal: true,
        softcap: None,
        norm: NormKind::Layer,
        eps: keys.number("layer_norm_epsilon")?.unwrap_or(1e-5),
        qk_norm: false,
        activation: activation(keys, "activation_function", "gelu_new")?,
        embedding_factor: 1.0,
        logit_softcap: None,
        tied: keys.flag("tie_word_embeddings")?.unwrap_or(true),
        layers: (0..layers).map(layer).collect(),
        padding: None,
        kinds: 0,
        biased: true,
        mlp_bias: true,
        image: None,
        ignored: Vec::new(),
    })
}

/// A layer stored as `[inputs, outputs]`.
fn transposed(weights: &mut Weights, name: &str, axes: Axes<'_>) -> Result<Linear> {
    let weight = weights.take(&format!("{name}.weight"), axes)?.t()?;
    let bias = Some(weights.take(&format!("{name}.bias"), &axes[1..])?);
    Ok(Linear { weight, bias })
}

pub(super) fn load(config: Config, weights: &mut Weights) -> Result<Model> {
    let (width, eps) = (("n_embd", config.width), config.eps);
    let inner = ("n_inner", config.inner);
    let vocabulary = ("vocab_size", config.vocabulary);
    let prefix = weights.prefix(&["transformer.", ""], "wte.weight");
    let embedding = Embedding {
        tokens: weights.take(&format!("{prefix}wte.weight"), &[vocabulary, width])?,
        learned: Some(Learned {
            table: weights.take(
                &format!("{prefix}wpe.weight"),
                &[("n_positions", config.positions.unwrap_or(0)), width],
            )?,
            first: 0,
        }),
        kind: None,
        norm: None,
        patches: None,
    };
    let mut layers = Vec::new();
    for at in 0..config.layers.len() {
        let name = |part: &str| format!("{prefix}h.{at}.{part}");
        let fused = transposed(
            weights,
            &name("attn.c_attn"),
            &[width, ("3·n_embd", 3 * width.1)],
        )?;
        let part = |index: usize| -> Result<Linear> {
            let start = index * width.1;
            Ok(Linear {
                weight: fused.weight.narrow(0, start, width.1)?,
                bias: match &fused.bias {
                    Some(bias) => Some(bias.narrow(0, start, width.1)?),
                    None => None,
                },
            })
        };
        let mut norm = |part: &str| -> Result<Around> {
            Ok(Around {
                before: Some(layer_norm(weights, &name(part), width, eps, true)?),
                ..Around::default()
            })
        };
        let (attention, dense) = (norm("ln_1")?, norm("ln_2")?);
        layers.push(Layer {
            q: part(0)?,
            k: part(1)?,
            v: part(2)?,
            o: transposed(weights, &name("attn.c_proj"), &[width, width])?,
            q_norm: None,
            k_norm: None,
            attention,
            mlp: Mlp::Plain {
                up: transposed(weights, &name("mlp.c_fc"), &[width, inner])?,
                down: transposed(weights, &name("mlp.c_proj"), &[inner, width])?,
                activation: config.activation,
            },
            dense,
        });
    }
    let norm = Some(layer_norm(
        weights,
        &format!("{prefix}ln_f"),
        width,
        eps,
        true,
    )?);
    let head = crate::model::head(&config, weights, &embedding, &[vocabulary, width])?;
    let buffers = [".attn.bias", ".attn.masked_bias"];
    weights.finish(&format!("{prefix}h."), &buffers, "gpt2")?;
    Ok(Model {
        config,
        embedding,
        layers,
        norm,
        head,
    })
}
