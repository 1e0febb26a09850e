//! Words of a text whose tokens are pieces of words.

use crate::Token;
use std::ops::Range;

/// A word, and the tokens that it consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    /// Its text, without blanks and marks of the vocabulary around it.
    pub text: String,
    /// Its tokens.
    pub tokens: Range<usize>,
}

/// The words of a text, in order; what holds no letter and no digit is none.
///
/// A token continues the word before it if it begins with "##", or with a letter or digit after
/// another where the vocabulary writes blanks in front of words. Scripts that have no blanks between words count each
/// token as a word. Padding is left out.
///
/// ```
/// use qkv_trace::{Token, words};
/// let tokens: Vec<Token> = ["The", " ani", "mal", " didn", "'t"].map(Token::new).into();
/// let found: Vec<String> = words(&tokens).into_iter().map(|word| word.text).collect();
/// assert_eq!(found, ["The", "animal", "didn", "'t"]);
/// ```
pub fn words(tokens: &[Token]) -> Vec<Word> {
    let spaced = tokens.iter().any(|token| token.text.starts_with(is_blank));
    let mut words: Vec<Word> = Vec::new();
    for (at, token) in tokens
        .iter()
        .enumerate()
        .filter(|(_, token)| !token.padding)
    {
        let piece = token.text.trim_matches(is_blank);
        match words.last_mut() {
            Some(word) if word.tokens.end == at && continues(&word.text, &token.text, spaced) => {
                word.text.push_str(piece.trim_start_matches("##"));
                word.tokens.end = at + 1;
            }
            _ => words.push(Word {
                text: piece.to_owned(),
                tokens: at..at + 1,
            }),
        }
    }
    words.retain(|word| word.text.contains(char::is_alphanumeric));
    words
}

/// The places of a word in a text: exactly as written, or else in capitals and small letters of any
/// kind.
pub(crate) fn places_of(word: &str, words: &[Word]) -> Vec<Range<usize>> {
    let all = |fits: &dyn Fn(&str) -> bool| -> Vec<Range<usize>> {
        let fitting = words.iter().filter(|found| fits(&found.text));
        fitting.map(|found| found.tokens.clone()).collect()
    };
    let exact = all(&|text| text == word);
    if !exact.is_empty() {
        return exact;
    }
    let word = word.to_lowercase();
    all(&|text| text.to_lowercase() == word)
}

fn is_blank(c: char) -> bool {
    c.is_whitespace() || c == '▁'
}

fn continues(word: &str, text: &str, spaced: bool) -> bool {
    let mut chars = text.chars();
    match chars.next() {
        Some('#') if text.starts_with("##") && text.len() > 2 => true,
        Some(first) => {
            let in_word = word.ends_with(char::is_alphanumeric) && first.is_alphanumeric();
            spaced && in_word && !is_unspaced(first)
        }
        // The rest of a character that stands at the token before.
        None => true,
    }
}

/// Scripts without blanks between words: Chinese, Japanese, Thai, Lao, Khmer, Burmese.
fn is_unspaced(c: char) -> bool {
    matches!(c,
        '\u{e00}'..='\u{eff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}'
        | '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' | '\u{f900}'..='\u{faff}'
        | '\u{20000}'..='\u{3ffff}')
}
