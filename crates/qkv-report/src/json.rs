//! Every intermediate in full precision, for programs.

mod more;

use crate::{Origin, Subject};
use qkv::position::{Pairing, Rotary, Scaling};
use qkv::{
    Attention, Causal, EmptyRows, FiniteDifference, Mask, Place, RmsNorm, StepName, Tensor, Window,
};
use serde_json::{Map, Value, json};

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
pub fn json(subject: &Subject<'_>) -> Value {
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
    let mut run = json!({
        "shapes": shapes,
        "options": options(subject),
        "steps": listed(steps.iter().map(|(name, tensor)| (name.as_str(), tensor))),
        "empty_rows": steps.empty_rows(),
    });
    if let Some(backward) = &subject.backward {
        let gradients = backward.gradients.iter();
        run["gradients"] = listed(gradients.map(|(name, tensor)| (name.as_str(), tensor)));
        if let Some(check) = backward.difference {
            run["finite_difference"] = difference(check);
        }
    }
    more::put(&subject.more, &mut run);
    run
}

/// Arrays by name.
fn listed<'a>(arrays: impl Iterator<Item = (&'static str, &'a Tensor<f64>)>) -> Value {
    arrays
        .map(|(name, tensor)| {
            json!({
                "name": name,
                "shape": tensor.shape(),
                "values": values(tensor),
            })
        })
        .collect()
}

fn difference(check: &FiniteDifference) -> Value {
    json!({
        "of": check.of.as_str(),
        "index": check.index,
        "value": number(check.value),
        "step": number(check.step),
        "loss_plus": number(check.plus),
        "loss_minus": number(check.minus),
        "quotient": number(check.quotient),
        "gradient": number(check.gradient),
    })
}

fn values(tensor: &Tensor<f64>) -> Value {
    nested(
        tensor.shape(),
        &mut tensor.data().iter().map(|v| number(*v)),
    )
}

/// Takes the numbers one by one, row-major, into arrays of the shape.
fn nested(shape: &[usize], numbers: &mut impl Iterator<Item = Value>) -> Value {
    match shape.split_first() {
        Some((&len, inner)) => (0..len).map(|_| nested(inner, numbers)).collect(),
        None => numbers.next().unwrap_or(Value::Null),
    }
}

fn number(value: f64) -> Value {
    if value.is_nan() {
        json!("nan")
    } else if value == f64::INFINITY {
        json!("inf")
    } else if value == f64::NEG_INFINITY {
        json!("-inf")
    } else {
        json!(value)
    }
}

fn numbers(values: &[f64]) -> Value {
    values.iter().map(|value| number(*value)).collect()
}

/// The options in force by the names of the command line.
fn options(subject: &Subject<'_>) -> Value {
    let block = subject.block;
    let mut options = Map::new();
    let mut put = |name: &str, value: Value| {
        options.insert(name.into(), value);
    };
    let axis = |name, at: usize| {
        let shape = subject.steps.get(name).map_or(&[][..], |t| t.shape());
        shape.get(at).copied().unwrap_or(0)
    };
    put("heads", json!(axis(StepName::Q, 1)));
    put("kv_heads", json!(axis(StepName::K, 1)));
    put(
        "scale",
        number(block.attention.scale.factor(axis(StepName::Q, 3))),
    );
    if subject.past_len > 0 {
        put("past", json!(subject.past_len));
    }
    for (name, norm) in [("q_norm", &block.q_norm), ("k_norm", &block.k_norm)] {
        if let Some(RmsNorm { gain, eps }) = norm {
            put(name, numbers(gain));
            put(&format!("{name}_eps"), number(*eps));
        }
    }
    let mut positions = Vec::new();
    if let Origin::Projected { layer, .. } = subject.origin {
        if let Some(start) = layer.sinusoidal {
            positions.push("sinusoidal");
            put("position_offset", json!(start));
        }
        if layer.residual {
            put("residual", json!(true));
        }
    }
    if let Some(rotary) = &block.rotary {
        positions.push(match rotary.pairing {
            Pairing::Halves => "rotary",
            Pairing::Interleaved => "rotary-interleaved",
        });
        put_rotary(rotary, &block.place, &mut put);
    }
    match positions[..] {
        [] => {}
        [one] => put("position", json!(one)),
        _ => put("position", json!(positions)),
    }
    put_attention(subject, &block.attention, &mut put);
    Value::Object(options)
}

fn put_rotary(rotary: &Rotary, place: &Place, put: &mut impl FnMut(&str, Value)) {
    put("rotary_base", number(rotary.base));
    if let Some(dim) = rotary.dim {
        put("rotary_dim", json!(dim));
    }
    match rotary.scaling {
        Scaling::Linear { factor } => {
            put(
                "rotary_scaling",
                json!({"kind": "linear", "factor": factor}),
            );
        }
        Scaling::Llama3 {
            factor,
            low_freq_factor,
            high_freq_factor,
            original_length,
        } => put(
            "rotary_scaling",
            json!({
                "kind": "llama3",
                "factor": factor,
                "low_freq_factor": low_freq_factor,
                "high_freq_factor": high_freq_factor,
                "original_length": original_length,
            }),
        ),
        _ => {}
    }
    match place {
        Place::Counted { start } => put("position_offset", json!(start)),
        Place::Given(places) => put("positions", json!(places)),
    }
}

fn put_attention(
    subject: &Subject<'_>,
    attention: &Attention<'_>,
    put: &mut impl FnMut(&str, Value),
) {
    if let Some(cap) = attention.softcap {
        put("softcap", number(cap));
    }
    if let Some(bias) = &attention.bias {
        let shape = bias.0.shape();
        let mut values = indices(shape).map(|at| number(bias.0.get(at)));
        put("bias", nested(&shape, &mut values));
    }
    if let Some(alibi) = &attention.alibi {
        put("alibi", numbers(&alibi.slopes));
    }
    for kind in [true, false] {
        let masks: Vec<&Mask<'_>> = attention
            .masks
            .iter()
            .filter(|mask| mask.true_keeps() == kind)
            .collect();
        if let Some(value) = together(subject, &masks) {
            put(if kind { "keep" } else { "drop" }, value);
        }
    }
    match attention.causal {
        Some(Causal::Square | Causal::TopLeft) => put("causal", json!("top-left")),
        Some(Causal::BottomRight) => put("causal", json!("bottom-right")),
        Some(Causal::Offset(offset)) => put("causal", json!(offset)),
        None => {}
    }
    if let Some(Window { back, forward }) = attention.window {
        let side = |side: Option<usize>| side.map_or(json!("inf"), |n| json!(n));
        put(
            "window",
            json!({"back": side(back), "forward": side(forward)}),
        );
    }
    if let Some(lengths) = &attention.lengths {
        put("kv_lengths", json!(lengths.0));
    }
    if let Some(documents) = &attention.documents {
        let (queries, keys) = (documents.queries(), documents.keys());
        if queries == keys {
            put("documents", json!(queries));
        } else {
            put("documents", json!({"queries": queries, "keys": keys}));
        }
    }
    if let Some(sinks) = &attention.sinks {
        put("sinks", numbers(&sinks.0));
    }
    if let Some(dropout) = attention.dropout {
        put("dropout", number(dropout.p));
        put("seed", json!(dropout.seed));
    }
    put(
        "empty_rows",
        json!(match attention.empty_rows {
            EmptyRows::Zero => "zero",
            EmptyRows::Error => "error",
        }),
    );
}

/// One mask as it was given; several of one kind as the one mask that they amount to.
fn together(subject: &Subject<'_>, masks: &[&Mask<'_>]) -> Option<Value> {
    let (first, rest) = masks.split_first()?;
    if rest.is_empty() {
        let shape = first.view().shape();
        let mut values = indices(shape).map(|at| json!(first.view().get(at)));
        return Some(nested(&shape, &mut values));
    }
    let scores = subject.steps.get(StepName::Scores)?;
    let shape: [usize; 4] = scores.shape().try_into().ok()?;
    let views: Vec<_> = masks
        .iter()
        .filter_map(|mask| mask.view().broadcast(shape))
        .collect();
    let keeps = first.true_keeps();
    let mut values = indices(shape).map(|at| {
        let kept = views.iter().all(|view| view.get(at) == keeps);
        json!(kept == keeps)
    });
    Some(nested(&shape, &mut values))
}

/// All indices of a shape, row-major.
fn indices([a, b, c, d]: [usize; 4]) -> impl Iterator<Item = [usize; 4]> {
    (0..a).flat_map(move |a| {
        (0..b).flat_map(move |b| (0..c).flat_map(move |c| (0..d).map(move |d| [a, b, c, d])))
    })
}
