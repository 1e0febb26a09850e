//! Real models.

use crate::args::TraceArgs;
use crate::error::{Error, Result};
use qkv_trace::Source;

/// Runs a model over the text.
#[cfg(feature = "models")]
pub fn open(name: &str, args: &TraceArgs) -> Result<Box<dyn Source>> {
    use crate::args::Side;
    use qkv_models::{Batch, Padding, Recording};
    use std::sync::Arc;

    let wrong =
        |error: qkv_models::Error| Error::trace("MODEL")(qkv_trace::Error::Source(Box::new(error)));
    if args.texts.is_empty() {
        return Err(Error::Missing {
            argument: "TEXT".into(),
            remedy: "give the text that the model reads, in quotes".into(),
        });
    }
    let path = qkv_models::find(name).map_err(wrong)?;
    let opened = Arc::new(qkv_models::open(&path).map_err(wrong)?);
    let mut texts = Vec::new();
    for text in &args.texts {
        texts.push(opened.tokens.encode(text).map_err(wrong)?);
    }
    let padding = match args.reading.pad {
        Some(Side::Left) => Padding::Left,
        Some(Side::Right) => Padding::Right,
        None if opened.model.config().causal => Padding::Left,
        None => Padding::Right,
    };
    let batch = Batch::new(&texts, padding, opened.tokens.padding()).map_err(wrong)?;
    let options = qkv::Options::default();
    let recording = match args.reading.generate {
        Some(tokens) if padding == Padding::Right && texts.len() > 1 => {
            return Err(Error::Conflict {
                argument: "--generate",
                other: format!("--pad right, with {tokens} tokens to come behind the padding"),
                remedy: "fill up on the left",
            });
        }
        Some(tokens) => Recording::generate(&opened, &batch, tokens, options),
        None => Recording::new(&opened, &batch, options),
    };
    Ok(Box::new(recording.map_err(wrong)?))
}

/// Says how to have models.
#[cfg(not(feature = "models"))]
pub fn open(name: &str, _: &TraceArgs) -> Result<Box<dyn Source>> {
    let shown = qkv_io::shown(name);
    Err(Error::Value {
        argument: "MODEL",
        value: format!("\"{shown}\" without models"),
        remedy:
            "this command was built without them and shows traces (.safetensors) and --weights; \
                 cargo build --release -p qkv-cli --features models builds one that runs models"
                .into(),
    })
}
