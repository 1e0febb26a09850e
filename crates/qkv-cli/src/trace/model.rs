//! Real models.

use crate::args::TraceArgs;
use crate::error::{Error, Result};
use qkv_trace::Source;

/// A model that is loaded.
#[cfg(feature = "models")]
pub struct Model(std::sync::Arc<qkv_models::Opened>);

#[cfg(feature = "models")]
fn wrong(error: qkv_models::Error) -> Error {
    let argument = match &error {
        qkv_models::Error::Text {
            what: "the picture",
            ..
        } => "--pixels",
        qkv_models::Error::Text { .. } => "TEXT",
        _ => "MODEL",
    };
    Error::trace(argument)(qkv_trace::Error::Source(Box::new(error)))
}

/// Loads a model.
#[cfg(feature = "models")]
pub fn load(name: &str) -> Result<Model> {
    let path = qkv_models::find(name).map_err(wrong)?;
    let opened = qkv_models::open(&path).map_err(wrong)?;
    Ok(Model(std::sync::Arc::new(opened)))
}

/// Refuses a text that the model cannot take.
#[cfg(feature = "models")]
pub fn check(Model(opened): &Model, text: &str) -> Result<()> {
    let ids = opened.tokens.encode(text).map_err(wrong)?;
    opened.model.check_text(&ids).map_err(wrong)
}

/// Runs a model over texts, as one batch.
#[cfg(feature = "models")]
pub fn read(Model(opened): &Model, args: &TraceArgs, texts: &[String]) -> Result<Box<dyn Source>> {
    use crate::args::Side;
    use qkv_models::{Batch, Padding, Recording};

    let texts = texts.iter().map(|text| opened.tokens.encode(text));
    let texts = texts
        .collect::<std::result::Result<Vec<_>, _>>()
        .map_err(wrong)?;
    let padding = match args.reading.pad {
        Some(Side::Left) => Padding::Left,
        Some(Side::Right) => Padding::Right,
        None if opened.model.config().causal => Padding::Left,
        None => Padding::Right,
    };
    let batch = Batch::new(&texts, padding, opened.tokens.padding()).map_err(wrong)?;
    let options = options(args);
    let recording = match args.reading.generate {
        Some(tokens) if padding == Padding::Right && texts.len() > 1 => {
            return Err(Error::Conflict {
                argument: "--generate",
                other: format!("--pad right, with {tokens} tokens to come behind the padding"),
                remedy: "fill up on the left",
            });
        }
        Some(tokens) => Recording::generate(opened, &batch, tokens, options),
        None => Recording::new(opened, &batch, options),
    };
    Ok(Box::new(recording.map_err(wrong)?))
}

/// Runs a model over a picture.
#[cfg(feature = "models")]
pub fn look(
    Model(opened): &Model,
    args: &TraceArgs,
    pixels: &[f32],
    shape: &[usize],
) -> Result<Box<dyn Source>> {
    let (opened, batch) = opened.image(pixels, shape).map_err(wrong)?;
    let opened = std::sync::Arc::new(opened);
    let recording = qkv_models::Recording::new(&opened, &batch, options(args));
    Ok(Box::new(recording.map_err(wrong)?))
}

#[cfg(feature = "models")]
fn options(args: &TraceArgs) -> qkv::Options {
    qkv::Options {
        threads: args.reading.threads.and_then(std::num::NonZeroUsize::new),
        ..qkv::Options::default()
    }
}

/// There is no model.
#[cfg(not(feature = "models"))]
pub enum Model {}

/// No text can be checked without a model.
#[cfg(not(feature = "models"))]
pub fn check(model: &Model, _: &str) -> Result<()> {
    match *model {}
}

/// Nothing is read without a model.
#[cfg(not(feature = "models"))]
pub fn read(model: &Model, _: &TraceArgs, _: &[String]) -> Result<Box<dyn Source>> {
    match *model {}
}

/// Nothing is looked at without a model.
#[cfg(not(feature = "models"))]
pub fn look(model: &Model, _: &TraceArgs, _: &[f32], _: &[usize]) -> Result<Box<dyn Source>> {
    match *model {}
}

/// Whether this command runs models.
#[cfg(feature = "models")]
pub fn available(_: &str) -> Result<()> {
    Ok(())
}

/// Says how to have models.
#[cfg(not(feature = "models"))]
pub fn available(name: &str) -> Result<()> {
    Err(absent(name))
}

/// Says how to have models.
#[cfg(not(feature = "models"))]
pub fn load(name: &str) -> Result<Model> {
    Err(absent(name))
}

#[cfg(not(feature = "models"))]
fn absent(name: &str) -> Error {
    let shown = qkv_io::shown(name);
    Error::Value {
        argument: "MODEL",
        value: format!("\"{shown}\" without models"),
        remedy:
            "this command was built without them and shows traces (.safetensors) and --weights; \
                 cargo build --release -p qkv-cli --features models builds one that runs models"
                .into(),
    }
}
