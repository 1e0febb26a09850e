//! The tokenizer that a GGUF's `tokenizer.ggml.*` describe, as a tokenizer.json.

use crate::error::{Error, Result};
use crate::gguf::{Gguf, Meta};
use serde_json::{Map, Value, json};
use std::collections::HashMap;

/// Types of tokens.
const CONTROL: i64 = 3;
const USER_DEFINED: i64 = 4;

/// The description in the words of tokenizer.json.
pub(super) fn json(gguf: &Gguf) -> Result<Value> {
    let reader = Reader { gguf };
    let tokens = match reader.get("tokens") {
        Some(Meta::Texts(tokens)) => tokens,
        _ => {
            return Err(reader.wrong(
                "tokens",
                "is missing",
                "the file has no tokenizer; convert it again",
            ));
        }
    };
    let none = Vec::new();
    let types = match reader.get("token_type") {
        Some(Meta::Wholes(types)) => types,
        _ => &none,
    };
    let vocabulary: HashMap<&str, usize> = tokens
        .iter()
        .enumerate()
        .map(|(id, token)| (token.as_str(), id))
        .collect();
    let (model, before, normalizer, decoder) = match reader.text("model") {
        Some("gpt2") => {
            let before = reader.before()?;
            let merges = reader.merges(&vocabulary)?;
            let byte_level = json!({"type": "ByteLevel", "add_prefix_space": false,
                "trim_offsets": true, "use_regex": false});
            (
                bpe(&vocabulary, merges, false, Value::Null),
                before,
                Value::Null,
                byte_level,
            )
        }
        Some("llama") => {
            let merges = reader.merges_by_score(tokens, types, &vocabulary)?;
            let unknown = reader.id("unknown_token_id").and_then(|id| tokens.get(id));
            let unknown = unknown.map_or(Value::Null, |token| json!(token));
            let blanks = json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"});
            let normalizer = match reader.flag("add_space_prefix").unwrap_or(true) {
                true => json!({"type": "Sequence",
                    "normalizers": [{"type": "Prepend", "prepend": "▁"}, blanks]}),
                false => blanks,
            };
            let decoder = json!({"type": "Sequence", "decoders": [
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                {"type": "ByteFallback"}, {"type": "Fuse"}]});
            (
                bpe(&vocabulary, merges, true, unknown),
                Value::Null,
                normalizer,
                decoder,
            )
        }
        other => {
            let found = format!("is {:?}", other.unwrap_or("missing"));
            let remedy = "gpt2 and llama are read; give the Hugging Face folder of this model";
            return Err(reader.wrong("model", &found, remedy));
        }
    };
    let added: Vec<Value> = tokens
        .iter()
        .enumerate()
        .filter(|(id, _)| matches!(types.get(*id), Some(&CONTROL | &USER_DEFINED)))
        .map(|(id, token)| {
            let special = types.get(id) == Some(&CONTROL);
            json!({"id": id, "content": token, "single_word": false, "lstrip": false,
                "rstrip": false, "normalized": false, "special": special})
        })
        .collect();
    Ok(json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added,
        "normalizer": normalizer, "pre_tokenizer": before,
        "post_processor": reader.around(tokens)?, "decoder": decoder, "model": model,
    }))
}

fn bpe(
    vocabulary: &HashMap<&str, usize>,
    merges: Vec<[&str; 2]>,
    fallback: bool,
    unknown: Value,
) -> Value {
    let vocabulary: Map<String, Value> = vocabulary
        .iter()
        .map(|(token, id)| ((*token).to_owned(), json!(id)))
        .collect();
    json!({"type": "BPE", "dropout": null, "unk_token": unknown, "continuing_subword_prefix": null,
        "end_of_word_suffix": null, "fuse_unk": fallback, "byte_fallback": fallback,
        "ignore_merges": false, "vocab": vocabulary, "merges": merges})
}

struct Reader<'a> {
    gguf: &'a Gguf,
}

impl<'a> Reader<'a> {
    fn get(&self, key: &str) -> Option<&'a Meta> {
        self.gguf.meta.get(&format!("tokenizer.ggml.{key}"))
    }

    fn wrong(&self, key: &str, found: &str, remedy: &str) -> Error {
        Error::Config {
            path: self.gguf.path().to_owned(),
            key: format!("tokenizer.ggml.{key}"),
            found: found.to_owned(),
            remedy: remedy.to_owned(),
        }
    }

    fn text(&self, key: &str) -> Option<&'a str> {
        match self.get(key) {
            Some(Meta::Text(text)) => Some(text),
            _ => None,
        }
    }

    fn flag(&self, key: &str) -> Option<bool> {
        match self.get(key) {
            Some(Meta::Bool(flag)) => Some(*flag),
            _ => None,
        }
    }

    fn id(&self, key: &str) -> Option<usize> {
        match self.get(key) {
            Some(Meta::Whole(id)) => usize::try_from(*id).ok(),
            _ => None,
        }
    }

    /// How a byte-level vocabulary cuts texts before it merges.
    fn before(&self) -> Result<Value> {
        let bytes = |regex: bool| {
            json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
                "use_regex": regex})
        };
        let split = |regex: &str| json!({"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": false});
        let sequence = |parts: Vec<Value>| json!({"type": "Sequence", "pretokenizers": parts});
        let words = |digits: &str| {
            format!(
                "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{{L}}\\p{{N}}]?\\p{{L}}+|{digits}| \
                 ?[^\\s\\p{{L}}\\p{{N}}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
            )
        };
        Ok(match self.text("pre").unwrap_or("default") {
            "gpt-2" | "gpt2" => bytes(true),
            "smollm" => sequence(vec![
                json!({"type": "Digits", "individual_digits": true}),
                bytes(true),
            ]),
            "llama-bpe" | "llama3" | "llama-v3" => {
                sequence(vec![split(&words("\\p{N}{1,3}")), bytes(false)])
            }
            "qwen2" => sequence(vec![split(&words("\\p{N}")), bytes(false)]),
            other => {
                let remedy = "gpt-2, smollm, llama-bpe and qwen2 are known; give the Hugging Face \
                              folder of this model";
                return Err(self.wrong("pre", &format!("is {other:?}"), remedy));
            }
        })
    }

    /// Pairs that are merged, as the file lists them.
    fn merges(&self, vocabulary: &HashMap<&str, usize>) -> Result<Vec<[&'a str; 2]>> {
        let Some(Meta::Texts(merges)) = self.get("merges") else {
            return Err(self.wrong("merges", "is missing", "convert the model again"));
        };
        let pair = |merge: &'a String| {
            let (left, right) = merge.split_once(' ')?;
            let known = |piece: &str| vocabulary.contains_key(piece);
            let whole = format!("{left}{right}");
            (known(left) && known(right) && known(&whole)).then_some([left, right])
        };
        merges
            .iter()
            .map(|merge| {
                pair(merge).ok_or_else(|| {
                    let found =
                        format!("holds {merge:?}, which does not merge two tokens to a third");
                    self.wrong("merges", &found, "convert the model again")
                })
            })
            .collect()
    }

    /// SentencePiece merges the pair that gives the piece of the highest score: every way to cut a
    /// piece in two is a merge, ordered by the piece's score.
    fn merges_by_score(
        &self,
        tokens: &'a [String],
        types: &[i64],
        vocabulary: &HashMap<&str, usize>,
    ) -> Result<Vec<[&'a str; 2]>> {
        let Some(Meta::Floats(scores)) = self.get("scores") else {
            return Err(self.wrong("scores", "is missing", "convert the model again"));
        };
        if scores.len() != tokens.len() {
            let found = format!("has {} numbers for {} tokens", scores.len(), tokens.len());
            return Err(self.wrong("scores", &found, "convert the model again"));
        }
        let mut order: Vec<usize> = (0..tokens.len())
            .filter(|id| types.get(*id).is_none_or(|kind| *kind == 1))
            .collect();
        order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]).then(a.cmp(b)));
        let mut merges = Vec::new();
        for id in order {
            let piece = tokens[id].as_str();
            let mut cuts: Vec<(usize, usize, [&str; 2])> = piece
                .char_indices()
                .skip(1)
                .filter_map(|(at, _)| {
                    let (left, right) = piece.split_at(at);
                    Some((
                        *vocabulary.get(left)?,
                        *vocabulary.get(right)?,
                        [left, right],
                    ))
                })
                .collect();
            cuts.sort_unstable();
            merges.extend(cuts.into_iter().map(|(_, _, cut)| cut));
        }
        Ok(merges)
    }

    /// Tokens put before and behind every text.
    fn around(&self, tokens: &[String]) -> Result<Value> {
        let mut single = vec![json!({"Sequence": {"id": "A", "type_id": 0}})];
        let mut special = Map::new();
        for (flag, key, first) in [
            ("add_bos_token", "bos_token_id", true),
            ("add_eos_token", "eos_token_id", false),
        ] {
            let default = first && self.text("model") == Some("llama");
            if !self.flag(flag).unwrap_or(default) {
                continue;
            }
            let found = self.id(key).and_then(|id| Some((id, tokens.get(id)?)));
            let Some((id, token)) = found else {
                let remedy = "a token of the vocabulary is needed; convert the model again";
                return Err(self.wrong(key, "names no token", remedy));
            };
            let part = json!({"SpecialToken": {"id": token, "type_id": 0}});
            let at = if first { 0 } else { single.len() };
            single.insert(at, part);
            special.insert(
                token.clone(),
                json!({"id": token, "ids": [id], "tokens": [token]}),
            );
        }
        Ok(json!({"type": "TemplateProcessing", "single": single,
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": special}))
    }
}
