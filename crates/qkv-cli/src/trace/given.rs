//! Weights and tokens from elsewhere.

use crate::args::GivenArgs;
use crate::arrays::Reader;
use crate::error::{Error, Result};
use qkv_io::shown;
use qkv_trace::{GivenWeights, Source, Token, readable};
use serde_json::Value;
use std::path::Path;

/// An option that says more about --weights.
pub fn alone(args: &GivenArgs) -> Option<&'static str> {
    match (&args.tokens, args.kv_heads) {
        (Some(_), _) => Some("--tokens"),
        (_, Some(_)) => Some("--kv-heads"),
        _ => None,
    }
}

/// The weights of --weights with the tokens of --tokens.
pub fn open(args: &GivenArgs, weights: &str, reader: &mut Reader<'_>) -> Result<Box<dyn Source>> {
    let weights = reader.given("--weights", weights)?;
    let Texts { keys, queries } = match &args.tokens {
        Some(text) => tokens(text)?,
        None => Texts::default(),
    };
    let source = GivenWeights::new(weights, keys, queries).map_err(Error::trace("--weights"))?;
    let Some(kv_heads) = args.kv_heads else {
        return Ok(Box::new(source));
    };
    let source = source.with_facts(|facts| facts.kv_heads = kv_heads);
    Ok(Box::new(source.map_err(Error::trace("--kv-heads"))?))
}

/// Tokens of the keys, and of the queries where these are others.
#[derive(Default)]
struct Texts {
    keys: Option<Vec<Vec<Token>>>,
    queries: Option<Vec<Vec<Token>>>,
}

/// From a file of JSON, from JSON, or words.
fn tokens(text: &str) -> Result<Texts> {
    let is_json = text.trim_start().starts_with(['[', '{']);
    if Path::new(text).exists() {
        let read = qkv_io::read_text(Path::new(text)).map_err(Error::io("--tokens"))?;
        let json = qkv_io::parse_json(&read, text).map_err(Error::io("--tokens"))?;
        return of_json(&json);
    }
    if is_json {
        let json = qkv_io::parse_json(text, "argument").map_err(Error::io("--tokens"))?;
        return of_json(&json);
    }
    // A name of a file that is not there is no text of one word.
    if text.ends_with(".json") {
        return Err(Error::io("--tokens")(qkv_io::Error::NoFile {
            path: text.to_owned(),
        }));
    }
    let words: Vec<String> = text.split_whitespace().map(Into::into).collect();
    let one = words.iter().map(|word| Token::new(word)).collect();
    Ok(Texts {
        keys: Some(vec![one]),
        queries: None,
    })
}

fn bad(value: &str, says: &str) -> Error {
    Error::Value {
        argument: "--tokens",
        value: format!("\"{}\" ({says})", shown(value)),
        remedy: "give a JSON list of texts, a list of such lists for a batch, or {\"keys\": […], \
                 \"queries\": […]}"
            .into(),
    }
}

fn of_json(json: &Value) -> Result<Texts> {
    let list = |value: &Value| {
        batch(value).ok_or_else(|| bad(&value.to_string(), "it is no list of tokens"))
    };
    let Value::Object(fields) = json else {
        return Ok(Texts {
            keys: Some(list(json)?),
            queries: None,
        });
    };
    let keys = fields.get("keys").or_else(|| fields.get("tokens"));
    let keys = keys.ok_or_else(|| bad(&json.to_string(), "it has no \"keys\""))?;
    Ok(Texts {
        keys: Some(list(keys)?),
        queries: fields.get("queries").map(list).transpose()?,
    })
}

/// A list of tokens, or of such lists.
fn batch(value: &Value) -> Option<Vec<Vec<Token>>> {
    let items = value.as_array()?;
    if items.first().is_some_and(Value::is_array) {
        return items.iter().map(text).collect();
    }
    Some(vec![text(value)?])
}

/// Tokens, each a text or an object with its text, its id and whether it is padding.
fn text(value: &Value) -> Option<Vec<Token>> {
    let tokens: Option<Vec<Token>> = value.as_array()?.iter().map(token).collect();
    let mut tokens = tokens?;
    let pieces: Vec<String> = tokens.iter().map(|token| token.text.clone()).collect();
    for (token, text) in tokens.iter_mut().zip(readable(&pieces)) {
        token.text = text;
    }
    Some(tokens)
}

fn token(value: &Value) -> Option<Token> {
    match value {
        Value::String(text) => Some(Token::new(text)),
        Value::Object(fields) => Some(Token {
            text: fields.get("text")?.as_str()?.to_owned(),
            id: match fields.get("id") {
                Some(id) => Some(u32::try_from(id.as_u64()?).ok()?),
                None => None,
            },
            padding: match fields.get("padding") {
                Some(padding) => padding.as_bool()?,
                None => false,
            },
        }),
        _ => None,
    }
}
