//! The list of members at the end of a zip, for what the library that reads zips does not tell: of
//! two members of one name it knows the last only.

use std::collections::HashSet;

use crate::error::Result;
use crate::source::Source;

/// How an entry of the list begins.
const ENTRY: &[u8] = b"PK\x01\x02";

/// Bytes of an entry before its name.
const FIXED: usize = 46;

/// Longest list that is searched.
const MAX_DIRECTORY: u64 = 64 << 20;

/// The first name that comes twice, with the byte where its second entry is; `start` is where the
/// list starts.
pub(crate) fn twice(source: &mut Source<'_>, start: u64) -> Result<Option<(String, u64)>> {
    let list = source.read_at(start, MAX_DIRECTORY)?;
    let mut seen = HashSet::new();
    let mut at = 0;
    while let Some(entry) = list.get(at..).filter(|rest| rest.starts_with(ENTRY)) {
        let length = |from: usize| {
            let bytes = entry.get(from..from + 2)?;
            Some(usize::from(bytes[0]) | usize::from(bytes[1]) << 8)
        };
        let (Some(name), Some(extra), Some(comment)) = (length(28), length(30), length(32)) else {
            break;
        };
        let Some(bytes) = entry.get(FIXED..FIXED + name) else {
            break;
        };
        if !seen.insert(bytes) {
            let name = String::from_utf8_lossy(bytes).into_owned();
            return Ok(Some((name, start + at as u64)));
        }
        at += FIXED + name + extra + comment;
    }
    Ok(None)
}
