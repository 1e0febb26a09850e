//! What else the caller asked for.

use super::{number, values};
use crate::More;
use qkv_check::{Mistake, Recomputed, WrongScale};
use serde_json::{Value, json};

/// Adds a key for each.
pub(super) fn put(more: &More, run: &mut Value) {
    if !more.contrast.is_empty() {
        run["contrast"] = more.contrast.iter().map(contrast).collect();
    }
}

fn contrast(wrong: &Recomputed) -> Value {
    json!({
        "id": wrong.mistake.id(),
        "parameters": parameters(wrong),
        "weights": values(&wrong.weights),
        "output": values(&wrong.output),
        "max_abs_error": number(wrong.max_abs_error),
    })
}

fn parameters(wrong: &Recomputed) -> Value {
    match wrong.mistake {
        Mistake::Scale(WrongScale::Missing) => json!({"scale": number(wrong.factor)}),
        Mistake::Scale(WrongScale::ModelWidth(width)) => {
            json!({"scale": number(wrong.factor), "model_width": width})
        }
        _ => json!({}),
    }
}
