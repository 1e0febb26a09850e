//! Heads for programs.

use super::{MapView, is_aside, residual, weights};
use qkv_trace::{
    Facts, HeadStatistics, Mean, Queries, Ranked, Result, Source, Survey, Token, strongest,
};
use serde_json::{Map, Value, json};

/// What the heads did, as JSON.
///
/// ```text
/// {"model", "shape": {"layers": […], "heads": […], "kv_heads", "head_dim", "queries", "keys", "batch"},
///  "tokens": […], "queries": [own key or null, …], "conventions": {…}, "versions": {…},
///  "first_set_aside", "top": null,
///  "heads": [{"layer", "head", "kv_head", "entropy", "distance", "first", "previous", "own", "rows",
///             "empty_rows", "nan_rows", "sums": [low, high]}, …],
///  "heads_by": [{"by", "texts", "control", "heads": [{"layer", "head", "mean", "control", "rows"}, …]}],
///  "residual_norms": [{"stage", "norms": [of each query, …]}, …],
///  "weights": [{"layer", "head", "rows": [[…], …], "links": [[{"key", "weight"}, …], …]}, …]}
/// ```
///
/// `weights` are there where few heads were asked for. Averages without a row are null; numbers that
/// are not finite are the words "nan", "inf" and "-inf". A stage has its name in a trace file; the norms
/// are there where a model ran or a trace kept them.
///
/// # Errors
/// Those of the source.
pub fn map_json(source: &mut dyn Source, view: &MapView) -> Result<Value> {
    let survey = Survey::of(source, view.entry, view.without_first)?;
    let facts = source.facts().clone();
    let mut object = of_facts(&facts, view.entry);
    object.insert("first_set_aside".into(), json!(view.without_first));
    object.insert("heads".into(), statistics(&facts, &survey));
    if !view.rankings.is_empty() {
        let rankings = view.rankings.iter().map(|ranking| {
            json!({
                "by": ranking.by.to_string(),
                "texts": view.texts,
                "control": ranking.control,
                "heads": ranking.heads.iter().map(ranked).collect::<Vec<_>>(),
            })
        });
        object.insert("heads_by".into(), rankings.collect());
    }
    let sizes = residual::sizes(source, view.entry)?;
    if !sizes.is_empty() {
        let sizes = sizes.iter().map(|sizes| {
            let norms: Value = sizes.norms.iter().copied().map(exact).collect();
            json!({"stage": sizes.stage.key(), "norms": norms})
        });
        object.insert("residual_norms".into(), sizes.collect());
    }
    if view.few_heads || survey.heads.len() == 1 {
        let mut heads = Vec::new();
        for (place, _) in &survey.heads {
            let weights = weights(source, *place)?;
            let rows = weights.chunks(facts.keys().max(1));
            let links = rows.clone().enumerate().map(|(row, weights)| -> Value {
                let links = strongest(weights, view.links + 1).into_iter();
                links
                    .filter(|link| !is_aside(&facts, view, row, link.key))
                    .take(view.links)
                    .map(|link| json!({"key": link.key, "weight": exact(link.weight)}))
                    .collect()
            });
            let links: Vec<Value> = links.collect();
            let rows = rows.map(|row| row.iter().copied().map(exact).collect::<Value>());
            heads.push(json!({
                "layer": place.layer,
                "head": place.head,
                "rows": rows.collect::<Vec<_>>(),
                "links": links,
            }));
        }
        object.insert("weights".into(), Value::Array(heads));
    }
    Ok(Value::Object(object))
}

fn of_facts(facts: &Facts, entry: usize) -> Map<String, Value> {
    let texts =
        |tokens: &[Token]| -> Vec<Value> { tokens.iter().map(|token| json!(token.text)).collect() };
    let pairs = |pairs: &[(String, String)]| -> Value {
        let pairs = pairs
            .iter()
            .map(|(name, value)| (name.clone(), json!(value)));
        Value::Object(pairs.collect())
    };
    let mut object = Map::new();
    object.insert("model".into(), json!(facts.model));
    let shape = json!({
        "layers": facts.layers,
        "heads": facts.heads,
        "kv_heads": facts.kv_heads,
        "head_dim": facts.head_dim,
        "queries": facts.rows(),
        "keys": facts.keys(),
        "batch": facts.entries(),
    });
    object.insert("shape".into(), shape);
    let tokens = facts.tokens.get(entry).map_or(&[][..], |tokens| tokens);
    object.insert("tokens".into(), json!(texts(tokens)));
    match &facts.queries {
        Queries::OfKeys(of) => object.insert("queries".into(), json!(of)),
        Queries::Elsewhere(tokens) => {
            let own = tokens.get(entry).map_or(&[][..], |tokens| tokens);
            object.insert("query_tokens".into(), json!(texts(own)))
        }
    };
    object.insert("conventions".into(), pairs(&facts.conventions));
    object.insert("versions".into(), pairs(&facts.versions));
    object.insert("top".into(), json!(facts.top));
    object
}

/// The statistics of every head.
fn statistics(facts: &Facts, survey: &Survey) -> Value {
    let heads = survey.heads.iter().map(|(place, head)| {
        let HeadStatistics {
            entropy,
            distance,
            first,
            previous,
            own,
            rows,
            nan_rows,
            empty_rows,
            sums,
            ..
        } = *head;
        json!({
            "layer": place.layer,
            "head": place.head,
            "kv_head": facts.kv_head(place.head),
            "entropy": mean(entropy),
            "distance": mean(distance),
            "first": mean(first),
            "previous": mean(previous),
            "own": mean(own),
            "rows": rows,
            "empty_rows": empty_rows,
            "nan_rows": nan_rows,
            "sums": sums.map(|(low, high)| [finite(low), finite(high)]),
        })
    });
    heads.collect()
}

fn ranked(head: &Ranked) -> Value {
    json!({
        "layer": head.layer,
        "head": head.head,
        "mean": head.mean.map(finite),
        "control": head.control.map(finite),
        "rows": head.rows,
    })
}

fn mean(mean: Mean) -> Option<Value> {
    mean.value().map(finite)
}

/// The shortest decimal that is the same f32.
fn exact(value: f32) -> Value {
    if !value.is_finite() {
        return finite(f64::from(value));
    }
    // The decimal, not the f64 that equals the f32: that has twice as many digits.
    let text = format!("{value:?}");
    text.parse()
        .map_or_else(|_| json!(value), |value: f64| json!(value))
}

fn finite(value: f64) -> Value {
    match value {
        value if value.is_nan() => json!("nan"),
        f64::INFINITY => json!("inf"),
        f64::NEG_INFINITY => json!("-inf"),
        value => json!(value),
    }
}
