//! The families of models: each says what its configuration means, and where its weights are.

mod bert;
mod decoder;
mod gemma;
mod gpt2;
mod modernbert;
mod vit;

use crate::config::Config;
use crate::dense::{Activation, Linear, Norm, NormKind};
use crate::error::Result;
use crate::keys::Keys;
use crate::model::Model;
use crate::weights::{Axes, Weights};

/// The kinds of models that are supported, as `model_type` names them.
pub const FAMILIES: &[&str] = &[
    "bert",
    "roberta",
    "distilbert",
    "modernbert",
    "gpt2",
    "llama",
    "mistral",
    "qwen2",
    "qwen3",
    "gemma2",
    "gemma3_text",
    "vit",
];

/// What a configuration says; the family is one of [`FAMILIES`].
pub(crate) fn config(keys: &Keys<'_>, family: &str) -> Result<Config> {
    match family {
        "bert" | "roberta" | "distilbert" => bert::config(keys, family),
        "modernbert" => modernbert::config(keys),
        "gpt2" => gpt2::config(keys),
        "gemma2" | "gemma3_text" => gemma::config(keys, family),
        "vit" => vit::config(keys),
        _ => decoder::config(keys, family),
    }
}

/// Reads the weights that a configuration asks for.
pub(crate) fn load(config: Config, weights: &mut Weights) -> Result<Model> {
    if let Some(cut) = config.image {
        return vit::load(config, cut, weights);
    }
    match config.family.as_str() {
        "bert" | "roberta" | "distilbert" => bert::load(config, weights),
        "modernbert" => modernbert::load(config, weights),
        "gpt2" => gpt2::load(config, weights),
        "gemma2" | "gemma3_text" => gemma::load(config, weights),
        _ => decoder::load(config, weights),
    }
}

/// The activation that a key names.
fn activation(keys: &Keys<'_>, key: &str, default: &str) -> Result<Activation> {
    Ok(match keys.word(key)?.unwrap_or(default) {
        "gelu" => Activation::Gelu,
        "gelu_new" | "gelu_fast" | "gelu_pytorch_tanh" => Activation::GeluTanh,
        "silu" | "swish" => Activation::Silu,
        "relu" => Activation::Relu,
        other => {
            let remedy = "gelu, gelu_new, gelu_pytorch_tanh, silu and relu are supported";
            return Err(keys.wrong(key, format!("is {other:?}"), remedy));
        }
    })
}

/// The width of a head where no key says it.
fn share(keys: &Keys<'_>, width: usize, heads: usize, heads_key: &str) -> Result<usize> {
    if width.is_multiple_of(heads) {
        return Ok(width / heads);
    }
    let found = format!("is {heads}, which does not divide the width {width}");
    Err(keys.wrong(
        heads_key,
        found,
        "give head_dim, or as many heads as divide the width",
    ))
}

/// Query heads in groups that share a key and value head.
fn groups(keys: &Keys<'_>, key: &str, heads: usize) -> Result<usize> {
    let kv_heads = keys.count(key)?.unwrap_or(heads);
    if heads.is_multiple_of(kv_heads) {
        return Ok(kv_heads);
    }
    let found = format!("is {kv_heads}, which does not divide the {heads} query heads");
    Err(keys.wrong(
        key,
        found,
        "each key and value head serves as many query heads",
    ))
}

/// Which layers have a sliding window: those that `layer_types` names, or `is_sliding` says.
fn sliding(
    keys: &Keys<'_>,
    layers: usize,
    is_sliding: impl Fn(usize) -> bool,
) -> Result<Vec<bool>> {
    let Some(types) = keys.get("layer_types") else {
        return Ok((0..layers).map(is_sliding).collect());
    };
    let wrong = |found: String| {
        keys.wrong(
            "layer_types",
            found,
            "full_attention or sliding_attention for each layer is needed",
        )
    };
    let types = types.as_array().ok_or_else(|| wrong("is no list".into()))?;
    if types.len() != layers {
        return Err(wrong(format!(
            "has {} entries for {layers} layers",
            types.len()
        )));
    }
    let each = types.iter().map(|kind| match kind.as_str() {
        Some("full_attention") => Ok(false),
        Some("sliding_attention") => Ok(true),
        _ => Err(wrong(format!("holds {kind}"))),
    });
    each.collect()
}

/// A dense layer of `[outputs, inputs]` under a name, with a bias where there is to be one.
fn linear(weights: &mut Weights, name: &str, axes: Axes<'_>, bias: bool) -> Result<Linear> {
    let weight = weights.take(&format!("{name}.weight"), axes)?;
    let bias = match bias {
        true => Some(weights.take(&format!("{name}.bias"), &axes[..1])?),
        false => None,
    };
    Ok(Linear { weight, bias })
}

/// A layer norm under a name.
fn layer_norm(
    weights: &mut Weights,
    name: &str,
    axis: (&'static str, usize),
    eps: f64,
    bias: bool,
) -> Result<Norm> {
    let of = |new: &str, old: &str| [format!("{name}.{new}"), format!("{name}.{old}")];
    let [gain, gamma] = of("weight", "gamma");
    let [shift, beta] = of("bias", "beta");
    Ok(Norm {
        kind: NormKind::Layer,
        gain: weights.vector_of([&gain, &gamma], axis)?,
        bias: match bias {
            true => Some(weights.vector_of([&shift, &beta], axis)?),
            false => None,
        },
        eps,
    })
}
