//! BERT, RoBERTa and DistilBERT: encoders with learned positions and the norm behind each sum.

use super::{activation, layer_norm, linear, share};
use crate::config::{Config, LayerConfig};
use crate::dense::{Mlp, NormKind};
use crate::error::Result;
use crate::keys::Keys;
use crate::model::{Around, Embedding, Layer, Learned, Model};
use crate::weights::Weights;
use serde_json::json;

/// How a family calls its keys.
struct Names {
    width: &'static str,
    layers: &'static str,
    heads: &'static str,
    inner: &'static str,
}

fn names(family: &str) -> Names {
    if family == "distilbert" {
        return Names {
            width: "dim",
            layers: "n_layers",
            heads: "n_heads",
            inner: "hidden_dim",
        };
    }
    Names {
        width: "hidden_size",
        layers: "num_hidden_layers",
        heads: "num_attention_heads",
        inner: "intermediate_size",
    }
}

pub(super) fn config(keys: &Keys<'_>, family: &str) -> Result<Config> {
    let names = names(family);
    keys.only("position_embedding_type", &json!("absolute"))?;
    keys.only("is_decoder", &json!(false))?;
    keys.only("add_cross_attention", &json!(false))?;
    keys.only("embedding_size", &json!(keys.needed(names.width)?))?;
    // Stored either way as a table of weights.
    keys.flag("sinusoidal_pos_embds")?;
    keys.flag("tie_word_embeddings")?;
    let (width, heads) = (keys.needed(names.width)?, keys.needed(names.heads)?);
    let head_dim = share(keys, width, heads, names.heads)?;
    let layer = LayerConfig {
        rotary: None,
        window: None,
        scale: 1.0 / (head_dim as f64).sqrt(),
    };
    let kinds = match family {
        "distilbert" => 0,
        _ => keys.count("type_vocab_size")?.unwrap_or(2),
    };
    let act = if family == "distilbert" {
        "activation"
    } else {
        "hidden_act"
    };
    let padding = match family {
        "roberta" => Some(match keys.get("pad_token_id") {
            Some(id) => id
                .as_u64()
                .and_then(|id| u32::try_from(id).ok())
                .ok_or_else(|| {
                    keys.wrong(
                        "pad_token_id",
                        format!("is {id}"),
                        "a token's number is needed",
                    )
                })?,
            None => 1,
        }),
        _ => None,
    };
    Ok(Config {
        family: family.into(),
        width,
        heads,
        kv_heads: heads,
        head_dim,
        inner: keys.needed(names.inner)?,
        vocabulary: keys.needed("vocab_size")?,
        positions: Some(keys.needed("max_position_embeddings")?),
        causal: false,
        softcap: None,
        norm: NormKind::Layer,
        eps: keys.number("layer_norm_eps")?.unwrap_or(1e-12),
        qk_norm: false,
        activation: activation(keys, act, "gelu")?,
        embedding_factor: 1.0,
        logit_softcap: None,
        tied: false,
        layers: vec![layer; keys.layers(names.layers)?],
        padding,
        kinds,
        biased: true,
        mlp_bias: true,
        image: None,
        ignored: Vec::new(),
    })
}

pub(super) fn load(config: Config, weights: &mut Weights) -> Result<Model> {
    let family = config.family.clone();
    let distil = family == "distilbert";
    let Names {
        width: width_key,
        inner: inner_key,
        ..
    } = names(&family);
    let (width, inner) = ((width_key, config.width), (inner_key, config.inner));
    let prefixes: &[&str] = match family.as_str() {
        "distilbert" => &["", "distilbert."],
        "roberta" => &["", "roberta."],
        _ => &["", "bert."],
    };
    let prefix = weights.prefix(prefixes, "embeddings.word_embeddings.weight");
    let eps = config.eps;
    let positions = ("max_position_embeddings", config.positions.unwrap_or(0));
    let embeddings = format!("{prefix}embeddings.");
    let kind = match config.kinds {
        0 => None,
        kinds => {
            let axes = [("type_vocab_size", kinds), width];
            let table =
                weights.take(&format!("{embeddings}token_type_embeddings.weight"), &axes)?;
            Some(table.get(0)?)
        }
    };
    let embedding = Embedding {
        tokens: weights.take(
            &format!("{embeddings}word_embeddings.weight"),
            &[("vocab_size", config.vocabulary), width],
        )?,
        learned: Some(Learned {
            table: weights.take(
                &format!("{embeddings}position_embeddings.weight"),
                &[positions, width],
            )?,
            // RoBERTa counts from the number of its padding token on.
            first: config.padding.map_or(0, |id| id as usize + 1),
        }),
        kind,
        norm: Some(layer_norm(
            weights,
            &format!("{embeddings}LayerNorm"),
            width,
            eps,
            true,
        )?),
        patches: None,
    };
    let (stack, [q, k, v, o], [sum, up, down, out]) = if distil {
        (
            format!("{prefix}transformer.layer."),
            [
                "attention.q_lin",
                "attention.k_lin",
                "attention.v_lin",
                "attention.out_lin",
            ],
            ["sa_layer_norm", "ffn.lin1", "ffn.lin2", "output_layer_norm"],
        )
    } else {
        (
            format!("{prefix}encoder.layer."),
            [
                "attention.self.query",
                "attention.self.key",
                "attention.self.value",
                "attention.output.dense",
            ],
            [
                "attention.output.LayerNorm",
                "intermediate.dense",
                "output.dense",
                "output.LayerNorm",
            ],
        )
    };
    let mut layers = Vec::new();
    for at in 0..config.layers.len() {
        let name = |part: &str| format!("{stack}{at}.{part}");
        let square = [width, width];
        layers.push(Layer {
            q: linear(weights, &name(q), &square, true)?,
            k: linear(weights, &name(k), &square, true)?,
            v: linear(weights, &name(v), &square, true)?,
            o: linear(weights, &name(o), &square, true)?,
            q_norm: None,
            k_norm: None,
            attention: Around {
                sum: Some(layer_norm(weights, &name(sum), width, eps, true)?),
                ..Around::default()
            },
            mlp: Mlp::Plain {
                up: linear(weights, &name(up), &[inner, width], true)?,
                down: linear(weights, &name(down), &[width, inner], true)?,
                activation: config.activation,
            },
            dense: Around {
                sum: Some(layer_norm(weights, &name(out), width, eps, true)?),
                ..Around::default()
            },
        });
    }
    weights.finish(&stack, &[], &family)?;
    Ok(Model {
        config,
        embedding,
        layers,
        norm: None,
        head: None,
    })
}
