//! What else the caller asked for.

use super::nested::{Nested, Number};
use crate::More;
use qkv::StepName;
use qkv_check::decode::{Against, Decoded};
use qkv_check::permute::Permuted;
use qkv_check::{Mistake, NextToken, Recomputed, WrongScale};
use serde::Serialize;
use serde_json::{Value, json};

/// A key for each.
#[derive(Serialize)]
pub(super) struct Beside<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    contrast: Vec<Contrast<'a>>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    tokens: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    next_token: Option<Labels<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    permute: Option<Permute<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    decode: Option<Decode<'a>>,
}

impl<'a> Beside<'a> {
    pub(super) fn new(more: &'a More) -> Self {
        let decoded = more.decoded.as_ref();
        Beside {
            contrast: more.contrast.iter().map(Contrast::new).collect(),
            tokens: &more.tokens,
            next_token: more.next_token.as_ref().map(Labels::new),
            permute: more.permuted.as_ref().map(Permute::new),
            decode: decoded
                .filter(|decoded| decoded.against == Against::FullRun)
                .map(Decode::new),
        }
    }
}

#[derive(Serialize)]
struct Contrast<'a> {
    id: &'static str,
    parameters: Value,
    weights: Nested<'a>,
    output: Nested<'a>,
    max_abs_error: Number,
}

impl<'a> Contrast<'a> {
    fn new(wrong: &'a Recomputed) -> Self {
        Contrast {
            id: wrong.mistake.id(),
            parameters: parameters(wrong),
            weights: Nested::new(&wrong.weights),
            output: Nested::new(&wrong.output),
            max_abs_error: Number(wrong.max_abs_error),
        }
    }
}

#[derive(Serialize)]
struct Labels<'a> {
    labels: &'a [Vec<Option<usize>>],
    sees_own_label: &'a [[usize; 3]],
}

impl<'a> Labels<'a> {
    fn new(next: &'a NextToken) -> Self {
        Labels {
            labels: &next.labels,
            sees_own_label: &next.sees_own_label,
        }
    }
}

#[derive(Serialize)]
struct Permute<'a> {
    order: &'a [usize],
    output: Option<Nested<'a>>,
    max_abs_difference: Number,
    bound: Number,
    equal: bool,
    options: Vec<Value>,
}

impl<'a> Permute<'a> {
    fn new(permuted: &'a Permuted) -> Self {
        let causes = permuted.causes.iter().map(|(option, difference)| {
            json!({
                "option": option.as_str(),
                "max_abs_difference": Number(*difference),
                "responsible": *difference > permuted.bound,
            })
        });
        Permute {
            order: &permuted.order,
            output: permuted.steps.get(StepName::Output).map(Nested::new),
            max_abs_difference: Number(permuted.difference),
            bound: Number(permuted.bound),
            equal: permuted.is_same(),
            options: causes.collect(),
        }
    }
}

#[derive(Serialize)]
struct Decode<'a> {
    last_row: Nested<'a>,
    max_abs_difference: Number,
    equal: bool,
}

impl<'a> Decode<'a> {
    fn new(decoded: &'a Decoded) -> Self {
        Decode {
            last_row: Nested::new(&decoded.output),
            max_abs_difference: Number(decoded.difference),
            equal: decoded.is_equal(),
        }
    }
}

fn parameters(wrong: &Recomputed) -> Value {
    match wrong.mistake {
        Mistake::Scale(WrongScale::Missing) => json!({"scale": Number(wrong.factor)}),
        Mistake::Scale(WrongScale::ModelWidth(width)) => {
            json!({"scale": Number(wrong.factor), "model_width": width})
        }
        _ => json!({}),
    }
}
