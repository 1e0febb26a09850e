//! Choosing one of several named arrays.

use crate::detect::Format;
use crate::error::{Entry, Error, Result};

/// The position of the array that is asked for; without a name, of the only one.
pub(crate) fn choose(
    origin: &str,
    format: Format,
    name: Option<&str>,
    entries: &[Entry],
) -> Result<usize> {
    let origin = || origin.to_owned();
    match name {
        _ if entries.is_empty() => Err(Error::NoArrays {
            origin: origin(),
            format,
        }),
        None if entries.len() == 1 => Ok(0),
        None => Err(Error::NameNeeded {
            origin: origin(),
            format,
            available: entries.to_vec(),
        }),
        Some(name) => entries.iter().position(|e| e.name == name).ok_or_else(|| {
            let mut available = entries.to_vec();
            available.sort_by_cached_key(|entry| distance(name, &entry.name));
            Error::NoSuchArray {
                origin: origin(),
                format,
                name: name.to_owned(),
                available,
            }
        }),
    }
}

/// Letters to insert, remove or exchange to get from one name to the other (Levenshtein),
/// regardless of case.
fn distance(a: &str, b: &str) -> usize {
    const COMPARED: usize = 128;
    let letters = |s: &str| -> Vec<char> {
        s.chars()
            .take(COMPARED)
            .map(|c| c.to_ascii_lowercase())
            .collect()
    };
    let (a, b) = (letters(a), letters(b));
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let exchanged = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = exchanged.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
