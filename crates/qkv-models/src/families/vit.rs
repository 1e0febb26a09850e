//! ViT: an encoder of pictures, cut into patches; norms before each part, learned positions.

use super::{activation, layer_norm, linear, share};
use crate::config::{Config, LayerConfig};
use crate::dense::{Linear, Mlp, NormKind};
use crate::error::Result;
use crate::image::{Cut, Patches};
use crate::keys::Keys;
use crate::model::{Around, Embedding, Layer, Learned, Model};
use crate::weights::Weights;

/// Two sizes where there may be one for both.
fn pair(keys: &Keys<'_>, key: &str, default: usize) -> Result<[usize; 2]> {
    let Some(list) = keys.get(key).and_then(|value| value.as_array()) else {
        let one = keys.count(key)?.unwrap_or(default);
        return Ok([one; 2]);
    };
    let sizes: Vec<usize> = list
        .iter()
        .filter_map(|size| usize::try_from(size.as_u64()?).ok())
        .filter(|size| (1..1 << 20).contains(size))
        .collect();
    match sizes[..] {
        [height, width] if list.len() == 2 => Ok([height, width]),
        _ => {
            let found = format!(
                "is {}",
                qkv_io::shown(&keys.get(key).map_or(String::new(), ToString::to_string))
            );
            Err(keys.wrong(key, found, "one size is needed, or height and width"))
        }
    }
}

pub(super) fn config(keys: &Keys<'_>) -> Result<Config> {
    let (width, heads) = (
        keys.needed("hidden_size")?,
        keys.needed("num_attention_heads")?,
    );
    let head_dim = share(keys, width, heads, "num_attention_heads")?;
    let image = pair(keys, "image_size", 224)?;
    let patch = pair(keys, "patch_size", 16)?;
    let cut = Cut {
        channels: keys.count("num_channels")?.unwrap_or(3),
        image,
        patch,
    };
    if (0..2).any(|axis| !image[axis].is_multiple_of(patch[axis])) {
        let found = format!("is {patch:?}, which does not divide the image of {image:?}");
        return Err(keys.wrong("patch_size", found, "whole patches are needed"));
    }
    for key in ["encoder_stride", "pooler_output_size"] {
        keys.count(key)?;
    }
    keys.word("pooler_act")?;
    let layer = LayerConfig {
        rotary: None,
        window: None,
        scale: 1.0 / (head_dim as f64).sqrt(),
    };
    let tokens = cut.tokens();
    Ok(Config {
        family: "vit".into(),
        width,
        heads,
        kv_heads: heads,
        head_dim,
        inner: keys.needed("intermediate_size")?,
        vocabulary: tokens,
        positions: Some(tokens),
        causal: false,
        softcap: None,
        norm: NormKind::Layer,
        eps: keys.number("layer_norm_eps")?.unwrap_or(1e-12),
        qk_norm: false,
        activation: activation(keys, "hidden_act", "gelu")?,
        embedding_factor: 1.0,
        logit_softcap: None,
        tied: false,
        layers: vec![layer; keys.layers("num_hidden_layers")?],
        padding: None,
        kinds: 0,
        biased: keys.flag("qkv_bias")?.unwrap_or(true),
        mlp_bias: true,
        image: Some(cut),
        ignored: Vec::new(),
    })
}

pub(super) fn load(config: Config, cut: Cut, weights: &mut Weights) -> Result<Model> {
    let width = ("hidden_size", config.width);
    let inner = ("intermediate_size", config.inner);
    let eps = config.eps;
    let prefix = weights.prefix(&["", "vit."], "embeddings.cls_token");
    let embeddings = format!("{prefix}embeddings.");
    let one = ("1", 1);
    let first = weights.take(&format!("{embeddings}cls_token"), &[one, one, width])?;
    let projection = format!("{embeddings}patch_embeddings.projection");
    let weight = weights.take(
        &format!("{projection}.weight"),
        &[
            width,
            ("num_channels", cut.channels),
            ("patch_size", cut.patch[0]),
            ("patch_size", cut.patch[1]),
        ],
    )?;
    let table = weights.take(
        &format!("{embeddings}position_embeddings"),
        &[one, ("patches + 1", cut.tokens()), width],
    )?;
    let patches = Patches {
        cut,
        first: first.reshape((1, config.width))?,
        projection: Linear {
            weight: weight.flatten_from(1)?,
            bias: Some(weights.take(&format!("{projection}.bias"), &[width])?),
        },
    };
    let embedding = Embedding {
        // Those of a picture take its place.
        tokens: patches.first.clone(),
        learned: Some(Learned {
            table: table.squeeze(0)?,
            first: 0,
        }),
        kind: None,
        norm: None,
        patches: Some(patches),
    };
    let stack = format!("{prefix}encoder.layer.");
    let mut layers = Vec::new();
    for at in 0..config.layers.len() {
        let name = |part: &str| format!("{stack}{at}.{part}");
        let square = [width, width];
        let mut norm = |part: &str| -> Result<Around> {
            Ok(Around {
                before: Some(layer_norm(weights, &name(part), width, eps, true)?),
                ..Around::default()
            })
        };
        let (attention, dense) = (norm("layernorm_before")?, norm("layernorm_after")?);
        let mut of = |part: &str| {
            let name = name(&format!("attention.attention.{part}"));
            linear(weights, &name, &square, config.biased)
        };
        let (q, k, v) = (of("query")?, of("key")?, of("value")?);
        layers.push(Layer {
            q,
            k,
            v,
            o: linear(weights, &name("attention.output.dense"), &square, true)?,
            q_norm: None,
            k_norm: None,
            attention,
            mlp: Mlp::Plain {
                up: linear(weights, &name("intermediate.dense"), &[inner, width], true)?,
                down: linear(weights, &name("output.dense"), &[width, inner], true)?,
                activation: config.activation,
            },
            dense,
        });
    }
    let last = format!("{prefix}layernorm");
    let norm = Some(layer_norm(weights, &last, width, eps, true)?);
    weights.finish(&stack, &[], "vit")?;
    Ok(Model {
        config,
        embedding,
        layers,
        norm,
        head: None,
    })
}
