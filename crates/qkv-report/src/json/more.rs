//! What else the caller asked for.

use super::{number, values};
use crate::More;
use qkv::StepName;
use qkv_check::decode::Against;
use qkv_check::permute::Permuted;
use qkv_check::{Mistake, Recomputed, WrongScale};
use serde_json::{Value, json};

/// Adds a key for each.
pub(super) fn put(more: &More, run: &mut Value) {
    if !more.contrast.is_empty() {
        run["contrast"] = more.contrast.iter().map(contrast).collect();
    }
    if !more.tokens.is_empty() {
        run["tokens"] = json!(more.tokens);
    }
    if let Some(next) = &more.next_token {
        run["next_token"] = json!({
            "labels": next.labels,
            "sees_own_label": next.sees_own_label,
        });
    }
    if let Some(permuted) = &more.permuted {
        run["permute"] = permute(permuted);
    }
    if let Some(decoded) = &more.decoded
        && decoded.against == Against::FullRun
    {
        run["decode"] = json!({
            "last_row": values(&decoded.output),
            "max_abs_difference": number(decoded.difference),
            "equal": decoded.is_equal(),
        });
    }
}

fn permute(permuted: &Permuted) -> Value {
    let causes = permuted.causes.iter().map(|(option, difference)| {
        json!({
            "option": option.as_str(),
            "max_abs_difference": number(*difference),
            "responsible": *difference > permuted.bound,
        })
    });
    json!({
        "order": permuted.order,
        "output": permuted.steps.get(StepName::Output).map(values),
        "max_abs_difference": number(permuted.difference),
        "bound": number(permuted.bound),
        "equal": permuted.is_same(),
        "options": causes.collect::<Value>(),
    })
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
