//! From a path to a model: configuration, tokenizer and weights, each checked against the others.

use crate::config::Config;
use crate::error::{Error, Result};
use crate::families;
use crate::files;
use crate::gguf::{self, Gguf};
use crate::keys::Keys;
use crate::model::Model;
use crate::tokens::Tokens;
use crate::weights::Weights;
use qkv::position::Pairing;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// A model with its tokenizer.
#[derive(Debug)]
pub struct Opened {
    /// The model.
    pub model: Model,
    /// Its tokenizer.
    pub tokens: Tokens,
    /// What it is called: `owner/name` on the hub, else the folder's or the file's name.
    pub name: String,
    /// Where it was found.
    pub path: PathBuf,
}

/// Opens a folder with config.json, weights and tokenizer.json, or a GGUF file.
///
/// # Errors
/// Says which file is missing, damaged, or does not fit the others; keys of the configuration that
/// change attention and are not supported are refused by name.
pub fn open(path: &Path) -> Result<Opened> {
    let metadata = std::fs::metadata(path).map_err(|error| Error::io(path, error))?;
    let (model, tokens) = if metadata.is_dir() {
        folder(path)?
    } else if metadata.is_file() {
        gguf_file(path)?
    } else {
        return Err(Error::Damaged {
            path: path.display().to_string(),
            found: "is a device or a pipe, not a file".into(),
            remedy: "give a model's folder, or a GGUF file",
        });
    };
    Ok(Opened {
        model,
        tokens,
        name: name(path),
        path: path.to_owned(),
    })
}

/// What a model is called: a repository of the hub as `owner/name`, else the folder's or the file's name
/// as it was given. A link is not followed: the hub's cache has the contents under other names.
fn name(path: &Path) -> String {
    let of_hub = |path: &Path| {
        let snapshots = path.parent().filter(|up| up.ends_with("snapshots"))?;
        let repository = snapshots.parent()?.file_name()?.to_str()?;
        Some(repository.strip_prefix("models--")?.replace("--", "/"))
    };
    let of_path = |path: &Path| {
        let file = path.file_name().map(|file| file.to_string_lossy().into());
        of_hub(path).or(file)
    };
    let whole = || path.canonicalize().ok().and_then(|whole| of_path(&whole));
    of_path(path)
        .or_else(whole)
        .unwrap_or_else(|| path.display().to_string())
}

fn folder(path: &Path) -> Result<(Model, Tokens)> {
    let config_path = path.join("config.json");
    if !files::is_there(&config_path)? {
        return Err(Error::Damaged {
            path: path.display().to_string(),
            found: "config.json is missing".into(),
            remedy: "give the folder that config.json, the weights and tokenizer.json are in, or a GGUF file",
        });
    }
    let json = files::json(&config_path)?;
    let shown = config_path.display().to_string();
    let Value::Object(map) = json else {
        return Err(Error::Damaged {
            path: shown,
            found: "is no JSON object".into(),
            remedy: "download it again",
        });
    };
    let config = config(&shown, &map)?;
    let tokens = match &config.image {
        Some(cut) => Tokens::of_patches(cut)?,
        None => Tokens::in_folder(path)?,
    };
    let mut weights = Weights::in_folder(path)?;
    Ok((families::load(config, &mut weights)?, tokens))
}

/// What a configuration says, with every key used, harmless, or refused.
pub(crate) fn config(path: &str, map: &Map<String, Value>) -> Result<Config> {
    let keys = Keys::new(path, map);
    let family = keys.word("model_type")?.ok_or_else(|| {
        keys.wrong(
            "model_type",
            "is missing".into(),
            "it says what kind of model this is",
        )
    })?;
    if !families::FAMILIES.contains(&family) {
        return Err(Error::Family {
            path: path.to_owned(),
            found: family.to_owned(),
        });
    }
    keys.only("is_encoder_decoder", &Value::Bool(false))?;
    let mut config = families::config(&keys, family)?;
    // Sizes are multiplied with each other; none is as large as to overflow.
    let most = 1 << 40;
    let largest = [
        config.width.saturating_mul(config.vocabulary),
        config
            .heads
            .saturating_mul(config.head_dim)
            .saturating_mul(config.width),
        config.inner.saturating_mul(config.width),
        config.layers.len().saturating_mul(1 << 20),
        // Weights and patches are a few million numbers, and each patch gets a name.
        config
            .image
            .map_or(0, |cut| cut.tokens().saturating_mul(1 << 20)),
    ];
    if let Some(size) = largest.into_iter().find(|size| *size > most) {
        let found = format!("and other sizes make a tensor of {size} numbers or as many layers");
        return Err(keys.wrong("hidden_size", found, "no such model is read"));
    }
    config.ignored = keys.finish(false)?;
    Ok(config)
}

fn gguf_file(path: &Path) -> Result<(Model, Tokens)> {
    use std::io::Read;
    let mut head = Vec::new();
    let file = std::fs::File::open(path).map_err(|error| Error::io(path, error))?;
    file.take(4)
        .read_to_end(&mut head)
        .map_err(|error| Error::io(path, error))?;
    if head != *b"GGUF" {
        // Its reader knows what the file is instead.
        let other = qkv_io::TensorFile::open(path);
        return Err(match other {
            Ok(_) => Error::Damaged {
                path: path.display().to_string(),
                found: "these are weights without a configuration".into(),
                remedy: "give the folder with config.json and tokenizer.json",
            },
            Err(error) => error.into(),
        });
    }
    let mut gguf = Gguf::open(path)?;
    let map = gguf::json(&mut gguf)?;
    let shown = path.display().to_string();
    let mut config = config(&shown, &map)?;
    // Converters order the rows of q and k of this architecture for neighbouring pairs.
    if config.family == "llama" {
        for rotary in config
            .layers
            .iter_mut()
            .filter_map(|layer| layer.rotary.as_mut())
        {
            rotary.pairing = Pairing::Interleaved;
        }
    }
    let tokens = Tokens::in_gguf(&gguf)?;
    gguf.alias = gguf::alias(&map);
    gguf.meta.clear();
    let mut weights = Weights::in_gguf(gguf);
    Ok((families::load(config, &mut weights)?, tokens))
}
