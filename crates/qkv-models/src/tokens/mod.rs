//! Texts to tokens, and tokens to texts that can be read.

mod gguf;
mod readable;

use crate::error::{Error, Result};
use crate::files;
use crate::gguf::Gguf;
use readable::Pieces;
use serde_json::Value;
use std::path::Path;
use tokenizers::Tokenizer;

/// A model's tokenizer.
#[derive(Clone, Debug)]
pub struct Tokens {
    tokenizer: Tokenizer,
    pieces: Pieces,
}

impl Tokens {
    /// Reads `tokenizer.json` of a folder.
    pub(crate) fn in_folder(folder: &Path) -> Result<Tokens> {
        let path = folder.join("tokenizer.json");
        if !files::is_there(&path)? {
            let others = ["vocab.txt", "vocab.json", "tokenizer.model", "spiece.model"];
            let other = others.iter().find(|name| folder.join(name).is_file());
            let found = match other {
                Some(other) => format!(
                    "tokenizer.json is missing; {other} alone does not say how to cut texts"
                ),
                None => "tokenizer.json is missing".into(),
            };
            return Err(Error::Damaged {
                path: folder.display().to_string(),
                found,
                remedy: "download it, or write it with transformers: \
                         AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)",
            });
        }
        Tokens::from_json(&files::json(&path)?, &path.display().to_string())
    }

    /// Rebuilds the tokenizer that a GGUF's metadata describe.
    pub(crate) fn in_gguf(gguf: &Gguf) -> Result<Tokens> {
        Tokens::from_json(&gguf::json(gguf)?, gguf.path())
    }

    pub(crate) fn from_json(json: &Value, path: &str) -> Result<Tokens> {
        let damaged = |error: tokenizers::Error| Error::Damaged {
            path: path.to_owned(),
            found: format!("is no tokenizer that can be read: {error}"),
            remedy: "download it again",
        };
        let mut tokenizer = Tokenizer::from_bytes(json.to_string()).map_err(damaged)?;
        // Some are stored as they were trained: cut off at 128 tokens, and filled up to as many.
        tokenizer.with_padding(None);
        tokenizer.with_truncation(None).map_err(damaged)?;
        Ok(Tokens {
            pieces: Pieces::of(json),
            tokenizer,
        })
    }

    /// The tokens of a text, with those that the model wants around it.
    ///
    /// # Errors
    /// If the tokenizer refuses the text, or finds no token in it.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        let refused = |found: String| Error::Text {
            what: "the text",
            found,
            remedy: "give another text".into(),
        };
        let encoding = self
            .tokenizer
            .encode(text, true)
            .map_err(|error| refused(format!("is refused by the tokenizer: {error}")))?;
        if encoding.get_ids().is_empty() {
            return Err(refused("has no tokens".into()));
        }
        Ok(encoding.get_ids().to_vec())
    }

    /// A token to fill up shorter texts with; which one makes no difference, since nothing sees it.
    pub fn padding(&self) -> u32 {
        let names = ["[PAD]", "<pad>", "<|endoftext|>", "</s>"];
        let known = names
            .iter()
            .find_map(|name| self.tokenizer.token_to_id(name));
        known.unwrap_or(0)
    }

    /// A token by itself, in quotes; one that holds a part of a character, as its bytes: `<E7 8C>`.
    pub(crate) fn text(&self, id: u32) -> String {
        let bytes = self.bytes(id);
        match std::str::from_utf8(&bytes) {
            Ok(text) => format!("{text:?}"),
            Err(_) => {
                let each: Vec<String> = bytes.iter().map(|byte| format!("{byte:02X}")).collect();
                format!("<{}>", each.join(" "))
            }
        }
    }

    fn bytes(&self, id: u32) -> Vec<u8> {
        let piece = self.tokenizer.id_to_token(id);
        let piece = piece.unwrap_or_else(|| format!("<{id}>"));
        let added = self.tokenizer.get_added_vocabulary();
        self.pieces
            .bytes(&piece, added.simple_id_to_token(id).is_some())
    }

    /// The readable text of each token. A character whose bytes are shared by several tokens stands at
    /// the first of them, so that all together are the text.
    pub fn texts(&self, ids: &[u32]) -> Vec<String> {
        let pieces: Vec<Vec<u8>> = ids.iter().map(|id| self.bytes(*id)).collect();
        qkv_trace::joined(&pieces)
    }
}
