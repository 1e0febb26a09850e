//! The options in force, as the command line names them.

use super::nested::{Grid, Number, numbers};
use crate::{Origin, Subject};
use qkv::position::{Pairing, Rotary, Scaling};
use qkv::{Attention, Bias, Causal, EmptyRows, Mask, Place, RmsNorm, StepName, View, Window};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

/// Options by name, in order.
pub(super) struct Options<'a>(Vec<(String, Given<'a>)>);

impl<'a> Options<'a> {
    fn put(&mut self, name: &str, value: impl Into<Given<'a>>) {
        let value = value.into();
        // Sinusoidal and rotary positions both have an offset, the same one.
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) => *known = value,
            None => self.0.push((name.to_owned(), value)),
        }
    }
}

impl Serialize for Options<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

/// The value of an option; those that may be as large as the scores stay where they are.
enum Given<'a> {
    Small(Value),
    Bias(&'a Bias<'a>),
    Mask(&'a Mask<'a>),
    /// What is kept (or dropped) by all of several masks.
    Masks {
        shape: [usize; 4],
        views: Vec<View<'a, bool>>,
        keeps: bool,
    },
}

impl From<Value> for Given<'_> {
    fn from(value: Value) -> Self {
        Given::Small(value)
    }
}

impl From<Number> for Given<'_> {
    fn from(number: Number) -> Self {
        Given::Small(json!(number))
    }
}

impl Serialize for Given<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Given::Small(value) => value.serialize(serializer),
            Given::Bias(bias) => {
                Grid::new(bias.0.shape(), |at| Number(bias.0.get(at))).serialize(serializer)
            }
            Given::Mask(mask) => {
                let view = mask.view();
                Grid::new(view.shape(), |at| view.get(at)).serialize(serializer)
            }
            Given::Masks {
                shape,
                views,
                keeps,
            } => {
                let kept = |at| views.iter().all(|view| view.get(at) == *keeps);
                Grid::new(*shape, |at| kept(at) == *keeps).serialize(serializer)
            }
        }
    }
}

/// The options in force by the names of the command line.
pub(super) fn options<'a>(subject: &'a Subject<'a>) -> Options<'a> {
    let block = subject.block;
    let mut options = Options(Vec::new());
    let axis = |name, at: usize| {
        let shape = subject.steps.get(name).map_or(&[][..], |t| t.shape());
        shape.get(at).copied().unwrap_or(0)
    };
    options.put("heads", json!(axis(StepName::Q, 1)));
    options.put("kv_heads", json!(axis(StepName::K, 1)));
    options.put(
        "scale",
        Number(block.attention.scale.factor(axis(StepName::Q, 3))),
    );
    if subject.past_len > 0 {
        options.put("past", json!(subject.past_len));
    }
    for (name, norm) in [("q_norm", &block.q_norm), ("k_norm", &block.k_norm)] {
        if let Some(RmsNorm { gain, eps }) = norm {
            options.put(name, numbers(gain));
            options.put(&format!("{name}_eps"), Number(*eps));
        }
    }
    let mut positions = Vec::new();
    if let Origin::Projected { layer, .. } = subject.origin {
        if let Some(start) = layer.sinusoidal {
            positions.push("sinusoidal");
            options.put("position_offset", json!(start));
        }
        if layer.residual {
            options.put("residual", json!(true));
        }
    }
    if let Some(rotary) = &block.rotary {
        positions.push(match rotary.pairing {
            Pairing::Halves => "rotary",
            Pairing::Interleaved => "rotary-interleaved",
        });
        put_rotary(rotary, &block.place, &mut options);
    }
    match positions[..] {
        [] => {}
        [one] => options.put("position", json!(one)),
        _ => options.put("position", json!(positions)),
    }
    put_attention(subject, &block.attention, &mut options);
    options
}

fn put_rotary(rotary: &Rotary, place: &Place, options: &mut Options<'_>) {
    options.put("rotary_base", Number(rotary.base));
    if let Some(dim) = rotary.dim {
        options.put("rotary_dim", json!(dim));
    }
    match rotary.scaling {
        Scaling::Linear { factor } => {
            options.put(
                "rotary_scaling",
                json!({"kind": "linear", "factor": factor}),
            );
        }
        Scaling::Llama3 {
            factor,
            low_freq_factor,
            high_freq_factor,
            original_length,
        } => options.put(
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
        Place::Counted { start } => options.put("position_offset", json!(start)),
        Place::Given(places) => options.put("positions", json!(places)),
    }
}

fn put_attention<'a>(
    subject: &'a Subject<'a>,
    attention: &'a Attention<'a>,
    options: &mut Options<'a>,
) {
    if let Some(cap) = attention.softcap {
        options.put("softcap", Number(cap));
    }
    if let Some(bias) = &attention.bias {
        options.put("bias", Given::Bias(bias));
    }
    if let Some(alibi) = &attention.alibi {
        options.put("alibi", numbers(&alibi.slopes));
    }
    for kind in [true, false] {
        let masks: Vec<&Mask<'_>> = attention
            .masks
            .iter()
            .filter(|mask| mask.true_keeps() == kind)
            .collect();
        if let Some(value) = together(subject, &masks) {
            options.put(if kind { "keep" } else { "drop" }, value);
        }
    }
    match attention.causal {
        Some(Causal::Square | Causal::TopLeft) => options.put("causal", json!("top-left")),
        Some(Causal::BottomRight) => options.put("causal", json!("bottom-right")),
        Some(Causal::Offset(offset)) => options.put("causal", json!(offset)),
        None => {}
    }
    if let Some(Window { back, forward }) = attention.window {
        let side = |side: Option<usize>| side.map_or(json!("inf"), |n| json!(n));
        options.put(
            "window",
            json!({"back": side(back), "forward": side(forward)}),
        );
    }
    if let Some(lengths) = &attention.lengths {
        options.put("kv_lengths", json!(lengths.0));
    }
    if let Some(documents) = &attention.documents {
        let (queries, keys) = (documents.queries(), documents.keys());
        if queries == keys {
            options.put("documents", json!(queries));
        } else {
            options.put("documents", json!({"queries": queries, "keys": keys}));
        }
    }
    if let Some(sinks) = &attention.sinks {
        options.put("sinks", numbers(&sinks.0));
    }
    if let Some(dropout) = attention.dropout {
        options.put("dropout", Number(dropout.p));
        options.put("seed", json!(dropout.seed));
    }
    options.put(
        "empty_rows",
        json!(match attention.empty_rows {
            EmptyRows::Zero => "zero",
            EmptyRows::Error => "error",
        }),
    );
}

/// One mask as it was given; several of one kind as the one mask that they amount to.
fn together<'a>(subject: &'a Subject<'a>, masks: &[&'a Mask<'a>]) -> Option<Given<'a>> {
    let (first, rest) = masks.split_first()?;
    if rest.is_empty() {
        return Some(Given::Mask(first));
    }
    let scores = subject.steps.get(StepName::Scores)?;
    let shape: [usize; 4] = scores.shape().try_into().ok()?;
    let views = masks
        .iter()
        .filter_map(|mask| mask.view().broadcast(shape))
        .collect();
    Some(Given::Masks {
        shape,
        views,
        keeps: first.true_keeps(),
    })
}
