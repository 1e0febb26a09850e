//! A file of texts, one a line.

use super::model::{self, Model};
use super::watch::Watched;
use crate::args::TraceArgs;
use crate::error::{Error, Result};
use crate::run::progress::Progress;
use qkv_trace::{Chosen, HeadsBy, Selection};
use std::path::Path;

/// A text and its line, counted from 1.
pub type Line = (usize, String);

/// The lines that hold something.
pub fn lines(file: &Path) -> Result<Vec<Line>> {
    let text = qkv_io::read_text(file).map_err(Error::io("--texts"))?;
    let lines = (1..).zip(text.lines().map(str::to_owned));
    let lines: Vec<Line> = lines.filter(|(_, line)| !line.trim().is_empty()).collect();
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
    (model, texts): (&Model, &[Line]),
    args: &TraceArgs,
    selection: &Selection,
) -> Result<()> {
    let progress = Progress::new(texts.len() as u64, "texts", true);
    // None is read before all can be: the last line may come after an hour.
    for (line, text) in texts {
        model::check(model, text).map_err(|error| at_line(error, *line))?;
    }
    for (line, text) in texts {
        let source = model::read(model, args, std::slice::from_ref(text));
        let mut source = source.map_err(|error| at_line(error, *line))?;
        let mut watched = Watched(source.as_mut());
        let mut chosen = Chosen::new(&mut watched, selection).map_err(Error::trace("--texts"))?;
        heads.add(&mut chosen).map_err(Error::trace("--texts"))?;
        progress.add(1);
    }
    Ok(())
}

/// What is wrong with a line of the file.
pub fn at_line(error: Error, line: usize) -> Error {
    match error {
        Error::Trace { source, .. } => {
            let says = format!("line {line}: {source}");
            Error::trace("--texts")(qkv_trace::Error::Source(says.into()))
        }
        other => other,
    }
}
