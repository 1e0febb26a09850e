//! Tokens as vocabularies spell them, made readable.

/// Pieces of a vocabulary as readable texts, one each.
///
/// Byte-level pieces, told by "Ġ" for a blank or "Ċ" for a line's end, are bytes, one a character;
/// they are joined to text, and a character whose bytes several pieces share stands whole at the first
/// of these. "▁" is a blank. What is neither stays as it is.
///
/// ```
/// use qkv_trace::readable;
/// let pieces = ["The", "Ġcat", "ĠðŁ", "ĺĢ", "!"].map(str::to_owned);
/// assert_eq!(readable(&pieces), ["The", " cat", " 😀", "", "!"]);
/// let pieces = ["▁an", "im", "##al"].map(str::to_owned);
/// assert_eq!(readable(&pieces), [" an", "im", "##al"]);
/// ```
pub fn readable(pieces: &[String]) -> Vec<String> {
    let is_marked = |piece: &String| piece.starts_with(['Ġ', 'Ċ']);
    if !pieces.iter().any(is_marked) {
        return pieces.iter().map(|piece| piece.replace('▁', " ")).collect();
    }
    let bytes: Vec<Option<Vec<u8>>> = pieces
        .iter()
        .map(|piece| piece.chars().map(byte).collect())
        .collect();
    let mut texts = vec![String::new(); pieces.len()];
    let mut open: Vec<u8> = Vec::new();
    let mut opened_at = 0;
    for (at, piece) in pieces.iter().enumerate() {
        // A piece that is no bytes is a special token in plain text.
        let Some(bytes) = &bytes[at] else {
            close(&mut open, &mut texts[opened_at]);
            texts[at].clone_from(piece);
            continue;
        };
        for &byte in bytes {
            if open.is_empty() {
                opened_at = at;
            }
            open.push(byte);
            match std::str::from_utf8(&open) {
                Ok(text) => {
                    texts[opened_at].push_str(text);
                    open.clear();
                }
                Err(error) if error.error_len().is_some() => {
                    close(&mut open, &mut texts[opened_at]);
                }
                Err(_) => {}
            }
        }
    }
    close(&mut open, &mut texts[opened_at]);
    texts
}

/// Bytes that make no character.
fn close(open: &mut Vec<u8>, text: &mut String) {
    if !open.is_empty() {
        text.push_str(&String::from_utf8_lossy(open));
        open.clear();
    }
}

/// The byte that a character of a byte-level vocabulary stands for: printable ones for themselves,
/// the others, in order, are the characters from U+0100 on.
fn byte(c: char) -> Option<u8> {
    let itself = |b: u8| matches!(b, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    let code = u32::from(c);
    if let Ok(byte) = u8::try_from(code)
        && itself(byte)
    {
        return Some(byte);
    }
    let mut others = (0..=255_u8).filter(|byte| !itself(*byte));
    others.nth(code.checked_sub(0x100)? as usize)
}
