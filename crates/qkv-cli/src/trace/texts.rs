//! A file of texts, one a line.

use super::model::{self, Model};
use super::watch::Watched;
use crate::args::TraceArgs;
use crate::error::{Error, Result};
use crate::run::progress::Progress;
use qkv_trace::{Chosen, HeadsBy, Selection};
use std::path::Path;

/// The lines that hold something.
pub fn lines(file: &Path) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(file).map_err(|source| {
        Error::io("--texts")(qkv_io::Error::Io {
            action: "read",
            path: file.display().to_string(),
            source,
        })
    })?;
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    let lines: Vec<String> = lines.map(str::to_owned).collect();
    if lines.is_empty() {
        return Err(Error::Value {
            argument: "--texts",
            value: "a file without a text".into(),
            remedy: "put one text on each line".into(),
        });
    }
    Ok(lines)
}

/// Adds what the model does on each text, one after the other.
pub fn add(
    heads: &mut HeadsBy,
    (model, texts): (&Model, &[String]),
    args: &TraceArgs,
    selection: &Selection,
) -> Result<()> {
    if selection.rows.is_some() {
        return Err(Error::Conflict {
            argument: "--rows",
            other: "--texts".into(),
            remedy: "rows are those of one text: leave one out",
        });
    }
    let progress = Progress::new(texts.len() as u64, "texts", true);
    for text in texts {
        let mut source = model::read(model, args, std::slice::from_ref(text))?;
        let mut watched = Watched(source.as_mut());
        let mut chosen = Chosen::new(&mut watched, selection).map_err(Error::trace("--texts"))?;
        heads.add(&mut chosen).map_err(Error::trace("--texts"))?;
        progress.add(1);
    }
    Ok(())
}
