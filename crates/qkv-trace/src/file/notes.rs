//! Facts as the notes of a file.

use crate::{Error, Facts, Queries, Result, Token};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::HashMap;

/// What is said of the arrays' axes.
#[derive(Serialize, Deserialize)]
struct Shape {
    layers: Vec<usize>,
    heads: Vec<usize>,
    all_heads: usize,
    kv_heads: usize,
    head_dim: usize,
    value_dim: usize,
    /// The keys that the rows' queries come from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rows: Option<Vec<usize>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    top: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scale: Option<f64>,
}

/// The notes of these facts.
pub(super) fn of(facts: &Facts) -> Vec<(&'static str, Value)> {
    let pairs = |pairs: &[(String, String)]| -> Value {
        let pairs = pairs.iter();
        let object: Map<String, Value> = pairs
            .map(|(name, value)| (name.clone(), json!(value)))
            .collect();
        Value::Object(object)
    };
    let shape = Shape {
        layers: facts.layers.clone(),
        heads: facts.heads.clone(),
        all_heads: facts.all_heads,
        kv_heads: facts.kv_heads,
        head_dim: facts.head_dim,
        value_dim: facts.value_dim,
        rows: match &facts.queries {
            Queries::OfKeys(rows) => Some(rows.clone()),
            Queries::Elsewhere(_) => None,
        },
        top: facts.top,
        scale: facts.scale,
    };
    let mut notes = vec![
        ("made_by", json!(concat!("qkv ", env!("CARGO_PKG_VERSION")))),
        ("model", json!(facts.model)),
        ("tokens", texts(&facts.tokens)),
        ("shape", json!(shape)),
        ("conventions", pairs(&facts.conventions)),
        ("versions", pairs(&facts.versions)),
    ];
    if let Queries::Elsewhere(tokens) = &facts.queries {
        notes.push(("query_tokens", texts(tokens)));
    }
    let all = || facts.tokens.iter().flatten();
    if all().all(|token| token.id.is_some()) {
        let ids = each(&facts.tokens, |token| json!(token.id));
        notes.push(("token_ids", ids));
    }
    if all().any(|token| token.padding) {
        notes.push(("padding", each(&facts.tokens, |token| json!(token.padding))));
    }
    notes
}

fn texts(tokens: &[Vec<Token>]) -> Value {
    each(tokens, |token| json!(token.text))
}

/// A list for one batch entry, a list of lists for several.
fn each(tokens: &[Vec<Token>], value: impl Fn(&Token) -> Value) -> Value {
    let mut lists = tokens
        .iter()
        .map(|text| Value::Array(text.iter().map(&value).collect()));
    match (tokens.len(), lists.next()) {
        (1, Some(only)) => only,
        (_, first) => Value::Array(first.into_iter().chain(lists).collect()),
    }
}

/// The facts that notes hold.
pub(super) fn facts(notes: &HashMap<String, String>, origin: &str) -> Result<Facts> {
    let wrong = |found: String| Error::NoTrace {
        origin: origin.to_owned(),
        found,
        remedy: "give a file that qkv trace wrote, a model's folder in place of its weights' file, or weights with --weights and --tokens",
    };
    let note = |name: &str| {
        let text = notes.get(name);
        text.ok_or_else(|| wrong(format!("its notes have no \"{name}\"")))
    };
    let bad = |name: &str| wrong(format!("its note \"{name}\" is not as a trace has it"));
    let shape: Shape = serde_json::from_str(note("shape")?).map_err(|_| bad("shape"))?;
    let mut tokens: Vec<Vec<Token>> = lists::<String>(note("tokens")?)
        .ok_or_else(|| bad("tokens"))?
        .into_iter()
        .map(|texts| texts.iter().map(|text| Token::new(text)).collect())
        .collect();
    if let Some(ids) = notes.get("token_ids") {
        let ids = lists::<u32>(ids).ok_or_else(|| bad("token_ids"))?;
        fill(&mut tokens, ids, |token, id| token.id = Some(id)).ok_or_else(|| bad("token_ids"))?;
    }
    if let Some(padding) = notes.get("padding") {
        let padding = lists::<bool>(padding).ok_or_else(|| bad("padding"))?;
        let set = |token: &mut Token, padding| token.padding = padding;
        fill(&mut tokens, padding, set).ok_or_else(|| bad("padding"))?;
    }
    let queries = match (shape.rows, notes.get("query_tokens")) {
        (Some(rows), _) => Queries::OfKeys(rows),
        (None, Some(texts)) => {
            let texts = lists::<String>(texts).ok_or_else(|| bad("query_tokens"))?;
            let tokens = |texts: Vec<String>| texts.iter().map(|text| Token::new(text)).collect();
            Queries::Elsewhere(texts.into_iter().map(tokens).collect())
        }
        (None, None) => return Err(bad("shape")),
    };
    let pairs = |name: &str| -> Result<Vec<(String, String)>> {
        let Some(text) = notes.get(name) else {
            return Ok(Vec::new());
        };
        let object: Map<String, Value> = serde_json::from_str(text).map_err(|_| bad(name))?;
        let pair = |(name, value): (String, Value)| Some((name, value.as_str()?.to_owned()));
        let pairs: Option<Vec<_>> = object.into_iter().map(pair).collect();
        pairs.ok_or_else(|| bad(name))
    };
    let facts = Facts {
        model: notes.get("model").cloned().unwrap_or_default(),
        layers: shape.layers,
        heads: shape.heads,
        all_heads: shape.all_heads,
        kv_heads: shape.kv_heads,
        head_dim: shape.head_dim,
        value_dim: shape.value_dim,
        tokens,
        queries,
        scale: shape.scale,
        top: shape.top,
        conventions: pairs("conventions")?,
        versions: pairs("versions")?,
    };
    facts.check().map_err(|error| wrong(error.to_string()))?;
    Ok(facts)
}

/// A list, or a list of lists.
fn lists<T: for<'de> Deserialize<'de>>(text: &str) -> Option<Vec<Vec<T>>> {
    if let Ok(several) = serde_json::from_str(text) {
        return Some(several);
    }
    serde_json::from_str(text).ok().map(|one| vec![one])
}

fn fill<T>(
    tokens: &mut [Vec<Token>],
    values: Vec<Vec<T>>,
    set: impl Fn(&mut Token, T),
) -> Option<()> {
    if tokens.len() != values.len() {
        return None;
    }
    for (tokens, values) in tokens.iter_mut().zip(values) {
        if tokens.len() != values.len() {
            return None;
        }
        for (token, value) in tokens.iter_mut().zip(values) {
            set(token, value);
        }
    }
    Some(())
}
