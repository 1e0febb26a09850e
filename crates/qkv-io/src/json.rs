//! JSON: nested lists of numbers, or an object of such lists.
//!
//! The lists themselves are read by [`crate::literal`], so that the decimals are kept as typed.

use std::collections::HashSet;
use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::error::Category;
use serde_json::value::RawValue;

use crate::array::Array;
use crate::detect::Format;
use crate::error::{Entry, Error, Result};
use crate::fault::{Place, TextFault};
use crate::lists::{Lists, parse_lists};
use crate::literal;
use crate::names;
use crate::shown::shown_within;

/// Objects inside objects that are searched.
const OBJECT_DEPTH: usize = 4;

/// Reads a list of lists.
pub(crate) fn read_list(text: &str, origin: &str) -> Result<Array> {
    literal::parse_typed(text, origin, Lists::Json, true)
}

/// Reads one list of an object.
///
/// Names of inner objects are joined by points, and a list of `{"name": …, "values": …}` objects
/// counts as named lists.
pub(crate) fn read_object(text: &str, name: Option<&str>, origin: &str) -> Result<Array> {
    let mut found = Vec::new();
    let document = Document { text, origin };
    document.collect(text, "", OBJECT_DEPTH, &mut found)?;
    let entries: Vec<Entry> = found
        .iter()
        .map(|(name, _)| Entry {
            name: name.clone(),
            shape: None,
        })
        .collect();
    let (name, list) = &found[names::choose(origin, Format::Json, name, &entries)?];
    let (line, column) = document.place(list);
    if found.iter().filter(|(other, _)| other == name).count() > 1 {
        let says = format!("several lists have the name \"{}\"", shown_within(name, 60));
        let place = Place::Character { line, column };
        let fault = TextFault::Syntax { says };
        return Err(Error::Text {
            origin: origin.to_owned(),
            place,
            fault,
        });
    }
    parse_lists(list, origin, Lists::Json).map_err(|error| moved(error, line, column))
}

/// Reads JSON of any kind; `origin` is its name in messages.
///
/// # Errors
/// Says where it is not valid.
///
/// ```
/// let error = qkv_io::parse_json("[\"a\",", "t.json").unwrap_err().to_string();
/// assert!(error.starts_with("t.json, line 1, character 5: not valid: the text ends"), "{error}");
/// ```
pub fn parse_json(text: &str, origin: &str) -> Result<Value> {
    if text.trim().is_empty() {
        return Err(Error::Empty {
            origin: origin.to_owned(),
        });
    }
    serde_json::from_str(text).map_err(|error| Error::Text {
        origin: origin.to_owned(),
        place: Place::Character {
            line: error.line(),
            column: error.column().max(1),
        },
        fault: TextFault::Syntax {
            says: in_words(&error),
        },
    })
}

/// What a parser found wrong with JSON, in plain words.
pub(crate) fn in_words(error: &serde_json::Error) -> String {
    match error.classify() {
        Category::Eof => "the text ends in the middle: a bracket or a quotation mark is still open".to_owned(),
        // The name that comes twice, as `Fields` says it.
        Category::Data if error.to_string().starts_with(TWICE) => {
            let says = error.to_string();
            says.split(" at line ").next().unwrap_or(&says).to_owned()
        }
        Category::Data => "something else stands here than belongs here".to_owned(),
        Category::Syntax | Category::Io => "JSON does not go on like this (a comma, a colon, a \
             quotation mark or a bracket is missing, or this is no value: numbers have no sign + and \
             no needless 0, and nan and inf stand in quotation marks)"
            .to_owned(),
    }
}

/// How the message about a name that comes twice begins.
const TWICE: &str = "the name \"";

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
        let Fields(fields) = serde_json::from_str(object).map_err(|error| {
            let (line, column) = self.place(object);
            let place = Place::Character {
                line: error.line(),
                column: error.column().max(1),
            };
            let fault = TextFault::Syntax {
                says: in_words(&error),
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
fn named_lists(list: &str) -> Vec<(String, &str)> {
    let objects: Vec<Fields<'_>> = serde_json::from_str(list).unwrap_or_default();
    let named = |object: &Fields<'_>| -> Option<(String, usize)> {
        let at = |key| object.0.iter().position(|(name, _)| name == key);
        let name = serde_json::from_str(object.0[at("name")?].1.get()).ok()?;
        Some((name, at("values")?))
    };
    objects
        .iter()
        .filter_map(|object| named(object).map(|(name, at)| (name, object.0[at].1.get())))
        .collect()
}

/// The fields of an object as they stand, none of which may come twice.
pub(crate) struct Fields<'a>(pub(crate) Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Vec<(String, &'de RawValue)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(
                self,
                mut map: M,
            ) -> std::result::Result<Self::Value, M::Error> {
                let mut fields: Self::Value = Vec::new();
                let mut seen = HashSet::new();
                while let Some((key, value)) = map.next_entry::<String, &RawValue>()? {
                    if !seen.insert(key.clone()) {
                        let key = shown_within(&key, 60);
                        return Err(de::Error::custom(format!("{TWICE}{key}\" comes twice")));
                    }
                    fields.push((key, value));
                }
                Ok(fields)
            }
        }
        deserializer.deserialize_map(InOrder).map(Fields)
    }
}
