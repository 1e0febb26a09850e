//! A filled-in exercise sheet.

use super::DIFFERENT;
use crate::args::{CheckArgs, Cli, Command};
use crate::error::{Error, Result};
use crate::explain;
use crate::output::{Kind, Target};
use clap::Parser;
use qkv_report::{BadSheet, Settings, Sheet, sheet_findings, sheet_json};
use std::path::Path;

/// Reads the sheet, works its problem out and corrects it; the language is the sheet's own if none
/// is asked for.
pub fn run(args: &CheckArgs, path: &str, target: &Target, settings: &Settings) -> Result<u8> {
    let files = (!args.files.is_empty()).then_some("FILE");
    if let Some(option) = super::dumps::alone(args).or(files) {
        return Err(Error::Conflict {
            argument: option,
            other: "--sheet".into(),
            remedy: "the sheet holds its problem: leave it out",
        });
    }
    let text = qkv_io::read_text(Path::new(path)).map_err(Error::io("--sheet"))?;
    let sheet = Sheet::read(&text).map_err(bad)?;
    let words = ["qkv".to_owned()]
        .into_iter()
        .chain(sheet.command.iter().cloned());
    let damaged = || bad(BadSheet::Damaged("\"command\"".into()));
    let Ok(Cli {
        command: Command::Explain(explain),
    }) = Cli::try_parse_from(words)
    else {
        return Err(damaged());
    };
    let lang = match args.report.lang {
        None => sheet.lang,
        Some(_) => settings.lang,
    };
    let settings = Settings {
        lang,
        ..settings.clone()
    };
    let correction = explain::correct(*explain, &sheet, &settings)?.map_err(bad)?;
    target.write_found(|kind| match kind {
        Kind::Json => format!("{}\n", sheet_json(&correction, lang)),
        _ => super::rendered(&sheet_findings(&correction, lang), kind, &settings),
    })?;
    Ok(if correction.all_right() { 0 } else { DIFFERENT })
}

fn bad(sheet: BadSheet) -> Error {
    Error::Usage(format!("--sheet: {sheet}"))
}
