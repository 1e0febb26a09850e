//! Gemma 2 and 3: as Llama, with norms on both sides of each part, windows in most layers, embeddings
//! multiplied by √width, and gains stored less one.

use super::decoder::{self, load_with};
use super::sliding;
use crate::config::{Config, LayerConfig};
use crate::error::Result;
use crate::keys::Keys;
use crate::model::{Around, Model};
use crate::rope::Rope;
use crate::weights::Weights;
use qkv::Window;
use serde_json::json;

pub(super) fn config(keys: &Keys<'_>, family: &str) -> Result<Config> {
    let third = family == "gemma3_text";
    let activation = ("hidden_activation", "gelu_pytorch_tanh");
    let base = decoder::base(keys, family, Some(256), activation)?;
    let layers = keys.layers("num_hidden_layers")?;
    let (head_dim, positions) = (base.head_dim, base.positions);
    keys.only("use_bidirectional_attention", &json!(false))?;
    if third {
        // Gemma 3 is made without; transformers reads the key and does not use it.
        keys.only("attn_logit_softcapping", &json!(null))?;
    }
    let rope = Rope {
        keys,
        head_dim,
        positions,
    };
    let [full, local] = if third {
        let full = ("rope_theta", 1_000_000.0);
        rope.by_type(full, ("rope_local_base_freq", 10_000.0), true)?
    } else {
        [rope.same(10_000.0)?; 2]
    };
    let old = keys.count("sliding_window_pattern")?;
    let pattern = match third {
        true => keys.count("_sliding_window_pattern")?.or(old).unwrap_or(6),
        false => 2,
    };
    let sliding = sliding(keys, layers, |layer| !(layer + 1).is_multiple_of(pattern))?;
    let window = keys.count("sliding_window")?.unwrap_or(4096);
    let scalar = keys.number("query_pre_attn_scalar")?.unwrap_or(256.0);
    if scalar <= 0.0 {
        let found = format!("is {scalar}");
        return Err(keys.wrong("query_pre_attn_scalar", found, "a number above 0 is needed"));
    }
    let layer = |sliding| LayerConfig {
        rotary: Some(if sliding { local } else { full }),
        window: sliding.then_some(Window {
            back: Some(window - 1),
            forward: None,
        }),
        scale: 1.0 / scalar.sqrt(),
    };
    // Where the key is left out, Gemma 2 has its own caps; null is none.
    let cap = |key: &str, default: f64| -> Result<Option<f64>> {
        let given = keys.number(key)?;
        Ok(given.or_else(|| (!third && !keys.is_null(key)).then_some(default)))
    };
    let (softcap, logit_softcap) = (
        cap("attn_logit_softcapping", 50.0)?,
        cap("final_logit_softcapping", 30.0)?,
    );
    keys.word("hidden_act")?;
    Ok(Config {
        softcap,
        qk_norm: third,
        embedding_factor: (base.width as f64).sqrt(),
        logit_softcap,
        biased: keys.flag("attention_bias")?.unwrap_or(false),
        tied: keys.flag("tie_word_embeddings")?.unwrap_or(true),
        layers: sliding.into_iter().map(layer).collect(),
        ..base
    })
}

pub(super) fn load(config: Config, weights: &mut Weights) -> Result<Model> {
    let more = if weights.is_gguf() { 0.0 } else { 1.0 };
    load_with(config, weights, more, |weights, name, norm| {
        let mut both = |before: &str, branch: &str| -> Result<Around> {
            Ok(Around {
                before: Some(norm(weights, &format!("{name}{before}"))?),
                branch: Some(norm(weights, &format!("{name}{branch}"))?),
                sum: None,
            })
        };
        Ok([
            both("input_layernorm", "post_attention_layernorm")?,
            both("pre_feedforward_layernorm", "post_feedforward_layernorm")?,
        ])
    })
}
