//! Real models.

use crate::args::TraceArgs;
use crate::error::{Error, Result};
use qkv_io::shown;
use qkv_trace::Source;

/// Runs a model over the text.
pub fn open(name: &str, _: &TraceArgs) -> Result<Box<dyn Source>> {
    Err(Error::Value {
        argument: "MODEL",
        value: format!("\"{}\" without models", shown(name)),
        remedy: "this command was built without them: it shows traces (.safetensors) and --weights"
            .into(),
    })
}
