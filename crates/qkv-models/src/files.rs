//! Small files of a model: JSON of a bounded size.

use crate::error::{Error, Result};
use serde_json::Value;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::Path;

/// Longest JSON file that is read: the largest tokenizers have some 30 MB.
const MOST: u64 = 200 << 20;

/// Whether something of this name is there; what the system keeps from us, and a link to nothing, are
/// no absence.
pub(crate) fn is_there(path: &Path) -> Result<bool> {
    match fs::metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() != ErrorKind::NotFound => Err(Error::io(path, error)),
        Err(_) if path.is_symlink() => Err(Error::Damaged {
            path: path.display().to_string(),
            found: "is a link to something that is not there".into(),
            remedy: "download it again",
        }),
        Err(_) => Ok(false),
    }
}

/// The bytes of a file that is no longer than a tokenizer may be.
pub(crate) fn bytes(path: &Path) -> Result<Vec<u8>> {
    let metadata = fs::metadata(path).map_err(|error| Error::io(path, error))?;
    let damaged = |found: String, remedy| Error::Damaged {
        path: path.display().to_string(),
        found,
        remedy,
    };
    if !metadata.is_file() {
        return Err(damaged("is no file".into(), "give a file"));
    }
    if metadata.len() > MOST {
        let found = format!(
            "has {} bytes, where at most {MOST} are read",
            metadata.len()
        );
        return Err(damaged(found, "give the file that belongs there"));
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|error| Error::io(path, error))?;
    file.take(MOST)
        .read_to_end(&mut bytes)
        .map_err(|error| Error::io(path, error))?;
    Ok(bytes)
}

/// A JSON file.
pub(crate) fn json(path: &Path) -> Result<Value> {
    let origin = path.display().to_string();
    let no_json = |origin, at| Error::Damaged {
        path: origin,
        found: format!("is no JSON at {at}"),
        remedy: "download it again",
    };
    let bytes = bytes(path)?;
    let text = std::str::from_utf8(&bytes)
        .map_err(|error| no_json(origin.clone(), format!("byte {}", error.valid_up_to())))?;
    qkv_io::parse_json(text, &origin).map_err(|error| match error {
        qkv_io::Error::Text {
            place,
            fault: qkv_io::TextFault::Syntax { says },
            ..
        } => no_json(origin, format!("{place}: {says}")),
        other => other.into(),
    })
}
