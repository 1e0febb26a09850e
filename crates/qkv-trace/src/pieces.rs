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
    let bytes: Vec<Vec<u8>> = pieces
        .iter()
        .map(|piece| {
            let bytes: Option<Vec<u8>> = piece.chars().map(byte_of).collect();
            // A piece that is no bytes is a special token in plain text.
            bytes.unwrap_or_else(|| piece.as_bytes().to_vec())
        })
        .collect();
    joined(&bytes)
}

/// The byte that a character of a byte-level vocabulary stands for: printable ones for themselves,
/// the others, in order, are the characters from U+0100 on.
///
/// ```
/// use qkv_trace::byte_of;
/// assert_eq!([byte_of('a'), byte_of('Ġ'), byte_of('猫')], [Some(b'a'), Some(b' '), None]);
/// ```
pub fn byte_of(c: char) -> Option<u8> {
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

/// Pieces of bytes as texts, one each: every character stands where its first byte is, and bytes that
/// make none are �.
///
/// ```
/// let pieces = [b"a \xe7".to_vec(), b"\x8c\xab!".to_vec(), b"\xff".to_vec()];
/// assert_eq!(qkv_trace::joined(&pieces), ["a 猫", "!", "�"]);
/// ```
pub fn joined(pieces: &[Vec<u8>]) -> Vec<String> {
    let mut owner = Vec::new();
    for (at, piece) in pieces.iter().enumerate() {
        owner.extend(std::iter::repeat_n(at, piece.len()));
    }
    let mut texts = vec![String::new(); pieces.len()];
    let mut at = 0;
    for chunk in pieces.concat().utf8_chunks() {
        for c in chunk.valid().chars() {
            texts[owner[at]].push(c);
            at += c.len_utf8();
        }
        if !chunk.invalid().is_empty() {
            texts[owner[at]].push(char::REPLACEMENT_CHARACTER);
            at += chunk.invalid().len();
        }
    }
    texts
}
