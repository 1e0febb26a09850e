//! ModernBERT: an encoder with rotary positions, windows in most layers and gated dense layers.

use super::{activation, layer_norm, share, sliding};
use crate::config::{Config, LayerConfig};
use crate::dense::{Linear, Mlp, NormKind};
use crate::error::Result;
use crate::keys::Keys;
use crate::model::{Around, Embedding, Layer, Model};
use crate::rope::Rope;
use crate::weights::Weights;
use qkv::Window;
use serde_json::json;

pub(super) fn config(keys: &Keys<'_>) -> Result<Config> {
    for key in ["attention_bias", "mlp_bias", "norm_bias"] {
        keys.only(key, &json!(false))?;
    }
    keys.only("position_embedding_type", &json!("absolute"))?;
    keys.flag("tie_word_embeddings")?;
    let width = keys.needed("hidden_size")?;
    let heads = keys.needed("num_attention_heads")?;
    let layers = keys.layers("num_hidden_layers")?;
    let head_dim = share(keys, width, heads, "num_attention_heads")?;
    let positions = keys.count("max_position_embeddings")?;
    let rope = Rope {
        keys,
        head_dim,
        positions,
    };
    let [full, local] = rope.by_type(
        ("global_rope_theta", 160_000.0),
        ("local_rope_theta", 10_000.0),
        false,
    )?;
    let every = keys.count("global_attn_every_n_layers")?.unwrap_or(3);
    let sliding = sliding(keys, layers, |layer| layer % every != 0)?;
    // Half of it on either side of the own key.
    let half = keys.count("local_attention")?.unwrap_or(128) / 2;
    let layer = |sliding| LayerConfig {
        rotary: Some(if sliding { local } else { full }),
        window: sliding.then_some(Window {
            back: Some(half),
            forward: Some(half),
        }),
        scale: 1.0 / (head_dim as f64).sqrt(),
    };
    Ok(Config {
        family: "modernbert".into(),
        width,
        heads,
        kv_heads: heads,
        head_dim,
        inner: keys.needed("intermediate_size")?,
        vocabulary: keys.needed("vocab_size")?,
        positions,
        causal: false,
        softcap: None,
        norm: NormKind::Layer,
        eps: match keys.number("layer_norm_eps")? {
            Some(eps) => keys.number("norm_eps")?.unwrap_or(eps),
            None => keys.number("norm_eps")?.unwrap_or(1e-5),
        },
        qk_norm: false,
        activation: activation(keys, "hidden_activation", "gelu")?,
        embedding_factor: 1.0,
        logit_softcap: None,
        tied: false,
        layers: sliding.into_iter().map(layer).collect(),
        padding: None,
        kinds: 0,
        biased: false,
        mlp_bias: false,
        image: None,
        ignored: Vec::new(),
    })
}

pub(super) fn load(config: Config, weights: &mut Weights) -> Result<Model> {
    let width = ("hidden_size", config.width);
    let prefix = weights.prefix(&["", "model."], "embeddings.tok_embeddings.weight");
    let eps = config.eps;
    let norm = |weights: &mut Weights, name: &str| {
        layer_norm(weights, &format!("{prefix}{name}"), width, eps, false)
    };
    let embedding = Embedding {
        tokens: weights.take(
            &format!("{prefix}embeddings.tok_embeddings.weight"),
            &[("vocab_size", config.vocabulary), width],
        )?,
        learned: None,
        kind: None,
        norm: Some(norm(weights, "embeddings.norm")?),
        patches: None,
    };
    let plain = |weight| Linear { weight, bias: None };
    let inner = config.inner;
    let mut layers = Vec::new();
    for at in 0..config.layers.len() {
        let name = |part: &str| format!("{prefix}layers.{at}.{part}.weight");
        let fused = weights.take(
            &name("attn.Wqkv"),
            &[("3·hidden_size", 3 * config.width), width],
        )?;
        let part = |index: usize| fused.narrow(0, index * config.width, config.width);
        let both = weights.take(
            &name("mlp.Wi"),
            &[("2·intermediate_size", 2 * inner), width],
        )?;
        layers.push(Layer {
            q: plain(part(0)?),
            k: plain(part(1)?),
            v: plain(part(2)?),
            o: plain(weights.take(&name("attn.Wo"), &[width, width])?),
            q_norm: None,
            k_norm: None,
            // The embeddings' norm is that of the first layer.
            attention: Around {
                before: match at {
                    0 => None,
                    _ => Some(norm(weights, &format!("layers.{at}.attn_norm"))?),
                },
                ..Around::default()
            },
            mlp: Mlp::Gated {
                gate: plain(both.narrow(0, 0, inner)?),
                up: plain(both.narrow(0, inner, inner)?),
                down: plain(weights.take(&name("mlp.Wo"), &[width, ("intermediate_size", inner)])?),
                activation: config.activation,
            },
            dense: Around {
                before: Some(norm(weights, &format!("layers.{at}.mlp_norm"))?),
                ..Around::default()
            },
        });
    }
    let last = Some(norm(weights, "final_norm")?);
    weights.finish(&format!("{prefix}layers."), &[], "modernbert")?;
    Ok(Model {
        config,
        embedding,
        layers,
        norm: last,
        head: None,
    })
}
