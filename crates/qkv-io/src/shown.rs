//! The one place that makes text from outside fit for a message: nothing in it acts on a terminal,
//! and nothing in it is longer than somebody reads.

use std::fmt::Display;

/// Characters of a name, a path or a value that a message shows.
const LONGEST: usize = 160;

/// Axes of a shape that a message shows.
const AXES: usize = 12;

/// A text from outside as a message shows it: what would act on a terminal (control characters,
/// changes of writing direction) is spelled out, and the middle of a long text is left out.
///
/// ```
/// use qkv_io::shown;
/// assert_eq!(shown("weights/第一层.npz"), "weights/第一层.npz");
/// assert_eq!(shown("\x1b[31mred\u{202e}"), "<U+001B>[31mred<U+202E>");
/// assert!(shown(&"x".repeat(100_000)).chars().count() <= 160);
/// ```
pub fn shown(text: &str) -> String {
    shown_within(text, LONGEST)
}

/// As [`shown`], of at most `most` characters (not fewer than 40).
pub fn shown_within(text: &str, most: usize) -> String {
    let most = most.max(40);
    let mut length = 0;
    let safe = text.chars().all(|c| {
        length += 1;
        length <= most && !acts(c)
    });
    if safe {
        return text.to_owned();
    }
    let spelled: Vec<String> = text.chars().map(spelled).collect();
    let width = |piece: &String| piece.chars().count();
    if spelled.iter().map(width).sum::<usize>() <= most {
        return spelled.concat();
    }
    let note = format!("… ({} characters) …", spelled.len());
    let room = most.saturating_sub(note.chars().count());
    let fitting = |pieces: &mut dyn Iterator<Item = &String>, room: usize| {
        let mut used = 0;
        pieces
            .take_while(|piece| {
                used += width(piece);
                used <= room
            })
            .count()
    };
    let head = fitting(&mut spelled.iter(), room * 3 / 5);
    let tail = fitting(&mut spelled[head..].iter().rev(), room - room * 3 / 5);
    let (start, end) = (&spelled[..head], &spelled[spelled.len() - tail..]);
    format!("{}{note}{}", start.concat(), end.concat())
}

/// A shape as a message shows it: `[2, 3]`, and only the first axes of a great many.
///
/// ```
/// assert_eq!(qkv_io::shown_shape(&[2, 3]), "[2, 3]");
/// assert_eq!(qkv_io::shown_shape(&[1; 4000]), "[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, … (4000 axes)]");
/// ```
pub fn shown_shape(shape: &[usize]) -> String {
    if shape.len() <= AXES {
        return format!("{shape:?}");
    }
    let first: Vec<String> = shape[..AXES].iter().map(ToString::to_string).collect();
    format!("[{}, … ({} axes)]", first.join(", "), shape.len())
}

/// A number of things in words: `1 value`, `2 values`.
///
/// ```
/// assert_eq!(qkv_io::many(1_u64, "value"), "1 value");
/// assert_eq!(qkv_io::many(0_usize, "value"), "0 values");
/// ```
pub fn many<T: Display + PartialEq + From<u8>>(count: T, thing: &str) -> String {
    let plural = if count == T::from(1) { "" } else { "s" };
    format!("{count} {thing}{plural}")
}

/// A character, spelled out if it would act on a terminal.
fn spelled(c: char) -> String {
    match c {
        '\n' => "\\n".to_owned(),
        '\r' => "\\r".to_owned(),
        '\t' => "\\t".to_owned(),
        c if acts(c) => format!("<U+{:04X}>", u32::from(c)),
        c => c.to_string(),
    }
}

/// Whether a character does something rather than being seen.
fn acts(c: char) -> bool {
    c.is_control()
        || matches!(
            u32::from(c),
            // Marks, embeddings, overrides and isolates of writing direction.
            0x061C | 0x200E | 0x200F | 0x202A..=0x202E | 0x2066..=0x2069
            // Line and paragraph separators, and what has no width.
            | 0x2028 | 0x2029 | 0x200B | 0x2060..=0x2064 | 0xFEFF
            // Deprecated format characters, interlinear annotations, tags.
            | 0x206A..=0x206F | 0xFFF9..=0xFFFB | 0xE0000..=0xE007F
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_acts_is_spelled_out() {
        let text = "a\u{1b}b\u{7f}c\u{9b}d\u{202e}e\u{2066}f\ng\r\th\u{200b}i\0";
        let shown = shown(text);
        assert_eq!(
            shown,
            "a<U+001B>b<U+007F>c<U+009B>d<U+202E>e<U+2066>f\\ng\\r\\th<U+200B>i<U+0000>"
        );
        assert_eq!(super::shown(&shown), shown);
    }

    #[test]
    fn ends_of_a_long_text_are_seen() {
        for most in [40, 80, 160, 1000] {
            for text in [
                "y".repeat(120_000),
                "\u{1b}".repeat(5000),
                "字".repeat(1001),
            ] {
                let text = format!("start{text}end.npy");
                let shown = shown_within(&text, most);
                assert!(
                    shown.starts_with("start") && shown.ends_with("end.npy"),
                    "{shown}"
                );
                assert!(shown.contains(&format!("({} characters)", text.chars().count())));
                assert!(
                    shown.chars().count() <= most && !shown.chars().any(acts),
                    "{shown}"
                );
                assert_eq!(shown_within(&shown, most), shown);
            }
        }
    }
}
