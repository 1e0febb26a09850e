//! JSON: nested lists of numbers, or an object of such lists.
//!
//! The lists themselves are read by [`crate::literal`], so that the decimals are kept as typed.

use std::collections::HashMap;

use serde_json::value::RawValue;

use crate::array::Array;
use crate::detect::Format;
use crate::error::{Entry, Error, Result};
use crate::fault::{Place, TextFault};
use crate::lists::parse_lists;
use crate::literal;
use crate::names;

/// Axes a JSON list may have.
pub(crate) const JSON_DEPTH: usize = 32;

/// Objects inside objects that are searched.
const OBJECT_DEPTH: usize = 4;

/// Reads a list of lists.
pub(crate) fn read_list(text: &str, origin: &str) -> Result<Array> {
    literal::parse_typed(text, origin, JSON_DEPTH, true)
}

/// Reads one list of an object.
///
/// Names of inner objects are joined by points, and a list of `{"name": …, "values": …}` objects
/// counts as named lists.
pub(crate) fn read_object(text: &str, name: Option<&str>, origin: &str) -> Result<Array> {
    let mut found = Vec::new();
    let document = Document { text, origin };
    document.collect(text, "", OBJECT_DEPTH, &mut found)?;
    found.sort_by_key(|(_, list)| list.as_ptr() as usize);
    let entries: Vec<Entry> = found
        .iter()
        .map(|(name, _)| Entry {
            name: name.clone(),
            shape: None,
        })
        .collect();
    let list = found[names::choose(origin, Format::Json, name, &entries)?].1;
    let (line, column) = document.place(list);
    parse_lists(list, origin, JSON_DEPTH).map_err(|error| moved(error, line, column))
}

/// The same error, for text that starts at another place.
fn moved(error: Error, from_line: usize, from_column: usize) -> Error {
    match error {
        Error::Text {
            origin,
            place: Place::Character { line, column },
            fault,
        } => {
            let column = if line == 1 {
                column + from_column - 1
            } else {
                column
            };
            let place = Place::Character {
                line: line + from_line - 1,
                column,
            };
            Error::Text {
                origin,
                place,
                fault,
            }
        }
        other => other,
    }
}

struct Document<'a> {
    text: &'a str,
    origin: &'a str,
}

impl<'a> Document<'a> {
    /// Line and character, from 1, where a part of the text starts.
    fn place(&self, part: &str) -> (usize, usize) {
        let at = (part.as_ptr() as usize).saturating_sub(self.text.as_ptr() as usize);
        let before = self.text.get(..at).unwrap_or("");
        let last = before.rsplit('\n').next().unwrap_or("");
        (before.matches('\n').count() + 1, last.chars().count() + 1)
    }

    /// Adds the lists in an object, with their names.
    fn collect(
        &self,
        object: &'a str,
        prefix: &str,
        depth: usize,
        found: &mut Vec<(String, &'a str)>,
    ) -> Result<()> {
        let fields: HashMap<String, &'a RawValue> =
            serde_json::from_str(object).map_err(|error| {
                let (line, column) = self.place(object);
                let place = Place::Character {
                    line: error.line(),
                    column: error.column().max(1),
                };
                let fault = TextFault::Syntax {
                    says: error.to_string(),
                };
                moved(
                    Error::Text {
                        origin: self.origin.to_owned(),
                        place,
                        fault,
                    },
                    line,
                    column,
                )
            })?;
        for (key, value) in fields {
            let value = value.get();
            let name = if prefix.is_empty() {
                key
            } else {
                format!("{prefix}.{key}")
            };
            if value.starts_with('{') && depth > 1 {
                self.collect(value, &name, depth - 1, found)?;
            } else if value.starts_with('[') && value[1..].trim_start().starts_with('{') {
                found.extend(named_lists(value));
            } else if value.starts_with(['[', '-'])
                || value.starts_with(|c: char| c.is_ascii_digit())
            {
                found.push((name, value));
            }
        }
        Ok(())
    }
}

/// The lists of `[{"name": …, "values": …}, …]`.
fn named_lists<'a>(list: &'a str) -> Vec<(String, &'a str)> {
    let objects: Vec<HashMap<String, &'a RawValue>> =
        serde_json::from_str(list).unwrap_or_default();
    let named = |object: HashMap<String, &'a RawValue>| -> Option<(String, &'a str)> {
        let name = serde_json::from_str(object.get("name")?.get()).ok()?;
        Some((name, object.get("values")?.get()))
    };
    objects.into_iter().filter_map(named).collect()
}
