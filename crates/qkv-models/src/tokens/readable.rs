//! What the pieces of a vocabulary stand for.

use qkv_trace::byte_of;
use serde_json::Value;

/// How a vocabulary writes bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pieces {
    /// Each byte as a character of its own, blanks as Ġ: GPT-2, Llama 3, Qwen.
    Bytes,
    /// Blanks as ▁, bytes without a piece as <0x0A>: SentencePiece.
    Sentence,
    /// As they are; BERT's pieces inside words begin with ##.
    Plain,
}

impl Pieces {
    /// What a tokenizer.json says.
    pub(super) fn of(json: &Value) -> Pieces {
        let of = |part: &str| json.get(part).map(Value::to_string).unwrap_or_default();
        let (decoder, before) = (of("decoder"), of("pre_tokenizer"));
        if decoder.contains("\"ByteLevel\"") || before.contains("\"ByteLevel\"") {
            Pieces::Bytes
        } else if (decoder + &before + &of("normalizer")).contains('▁') {
            Pieces::Sentence
        } else {
            Pieces::Plain
        }
    }

    /// The bytes of a piece; added tokens are written as they are.
    pub(super) fn bytes(self, piece: &str, literal: bool) -> Vec<u8> {
        match self {
            _ if literal => piece.as_bytes().to_vec(),
            Pieces::Plain => piece.as_bytes().to_vec(),
            Pieces::Sentence => match hexadecimal(piece) {
                Some(byte) => vec![byte],
                None => piece.replace('▁', " ").into_bytes(),
            },
            Pieces::Bytes => {
                let mut bytes = Vec::new();
                for c in piece.chars() {
                    match byte_of(c) {
                        Some(byte) => bytes.push(byte),
                        None => bytes.extend(c.to_string().into_bytes()),
                    }
                }
                bytes
            }
        }
    }
}

/// The byte of `<0x0A>`.
fn hexadecimal(piece: &str) -> Option<u8> {
    let digits = piece.strip_prefix("<0x")?.strip_suffix('>')?;
    (digits.len() == 2).then(|| u8::from_str_radix(digits, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_each_kind() {
        assert_eq!(Pieces::Bytes.bytes("Ġcat", false), b" cat");
        assert_eq!(Pieces::Bytes.bytes("ĊçĮ«", false), b"\n\xe7\x8c\xab");
        assert_eq!(Pieces::Bytes.bytes("<|é|>", true), "<|é|>".as_bytes());
        assert_eq!(Pieces::Sentence.bytes("▁cat", false), b" cat");
        assert_eq!(Pieces::Sentence.bytes("<0x0A>", false), b"\n");
        assert_eq!(Pieces::Plain.bytes("##ing", false), b"##ing");
    }
}
