//! Every intermediate in full precision, for programs.

mod more;
mod nested;
mod options;

use crate::Subject;
use more::Beside;
use nested::Nested;
pub(crate) use nested::Number;
use options::{Options, options};
use qkv::{FiniteDifference, StepName, Tensor};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::io::{self, Write};

/// The run as JSON.
///
/// ```text
/// {"shapes": {"q": […], "k": […], "v": […], "output": […]},
///  "options": {…},
///  "steps": [{"name": …, "shape": […], "values": …}, …],
///  "empty_rows": [[batch, head, query], …]}
/// ```
///
/// With a gradient there are two more: `"gradients"`, listed as the steps are, and, if one entry was
/// checked, `"finite_difference": {"of": …, "index": […], "value": …, "step": …, "loss_plus": …,
/// "loss_minus": …, "quotient": …, "gradient": …}`.
///
/// What else the caller asked for has a key of its own: `"contrast": [{"id": …, "parameters": {…},
/// "weights": …, "output": …, "max_abs_error": …}, …]`, where the error is the largest difference to
/// the right output; `"permute": {"order": […], "output": …, "max_abs_difference": …, "bound": …,
/// "equal": …, "options": [{"option": …, "max_abs_difference": …, "responsible": …}, …]}`;
/// `"tokens": [words…]`; `"next_token": {"labels": [[key or null, …], …], "sees_own_label":
/// [[batch, head, query], …]}`; `"decode": {"last_row": …, "max_abs_difference": …, "equal": …}`.
///
/// `values` are nested as `shape` says. Numbers are the run's `f64`, bit for bit; those that are
/// not finite are the strings `"inf"`, `"-inf"` and `"nan"`. A step or an option that is not in
/// force is absent; options have the names that the command line gives them.
///
/// Written number by number, so that nothing but the run itself is in memory.
///
/// # Errors
/// When `out` refuses.
pub fn write_json(subject: &Subject<'_>, out: impl Write) -> io::Result<()> {
    serde_json::to_writer(out, &Run::new(subject)).map_err(io::Error::from)
}

/// What [`write_json`] writes, as a value: for runs that are small.
pub fn json(subject: &Subject<'_>) -> Value {
    json!(Run::new(subject))
}

/// Everything there is to say, in its order.
#[derive(Serialize)]
struct Run<'a> {
    shapes: Map<String, Value>,
    options: Options<'a>,
    steps: Vec<Listed<'a>>,
    empty_rows: &'a [[usize; 3]],
    #[serde(skip_serializing_if = "Option::is_none")]
    gradients: Option<Vec<Listed<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    finite_difference: Option<Value>,
    #[serde(flatten)]
    more: Beside<'a>,
}

impl<'a> Run<'a> {
    fn new(subject: &'a Subject<'a>) -> Self {
        let steps = subject.steps;
        let mut shapes = Map::new();
        for (key, name) in [
            ("q", StepName::Q),
            ("k", StepName::K),
            ("v", StepName::V),
            ("output", StepName::Output),
        ] {
            if let Some(tensor) = steps.get(name) {
                shapes.insert(key.into(), json!(tensor.shape()));
            }
        }
        let backward = subject.backward.as_ref();
        Run {
            shapes,
            options: options(subject),
            steps: listed(steps.iter().map(|(name, tensor)| (name.as_str(), tensor))),
            empty_rows: steps.empty_rows(),
            gradients: backward.map(|backward| {
                let gradients = backward.gradients.iter();
                listed(gradients.map(|(name, tensor)| (name.as_str(), tensor)))
            }),
            finite_difference: backward
                .and_then(|backward| backward.difference)
                .map(difference),
            more: Beside::new(&subject.more),
        }
    }
}

/// An array by name.
#[derive(Serialize)]
struct Listed<'a> {
    name: &'static str,
    shape: &'a [usize],
    values: Nested<'a>,
}

fn listed<'a>(arrays: impl Iterator<Item = (&'static str, &'a Tensor<f64>)>) -> Vec<Listed<'a>> {
    arrays
        .map(|(name, tensor)| Listed {
            name,
            shape: tensor.shape(),
            values: Nested::new(tensor),
        })
        .collect()
}

fn difference(check: &FiniteDifference) -> Value {
    json!({
        "of": check.of.as_str(),
        "index": check.index,
        "value": Number(check.value),
        "step": Number(check.step),
        "loss_plus": Number(check.plus),
        "loss_minus": Number(check.minus),
        "quotient": Number(check.quotient),
        "gradient": Number(check.gradient),
    })
}
