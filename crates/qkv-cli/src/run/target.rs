//! What is written where.

use crate::args::{FileFormat, RunOutputArgs};
use crate::error::{Error, Result};
use qkv::DType;
use qkv_io::{Encoding, shown};
use std::path::{Path, PathBuf};

/// The endings of files.
const ENDINGS: &str = ".safetensors, .npy, .npz or .json";

/// Where the arrays go.
#[derive(Debug)]
pub struct Target {
    /// The file, or standard output.
    pub file: Option<PathBuf>,
    /// The format of the arrays; `None` for a summary of them.
    pub encoding: Option<Encoding>,
}

impl Target {
    /// From --format, --json and -o.
    pub fn new(args: &RunOutputArgs, backward: bool) -> Result<Self> {
        let asked = match (args.format, args.json) {
            (Some(format), true) if format != FileFormat::Json => {
                return Err(Error::Conflict {
                    argument: "--json",
                    other: "another --format".into(),
                    remedy: "--json is short for --format json: leave one of them out",
                });
            }
            (_, true) => Some(FileFormat::Json),
            (format, false) => format,
        };
        let asked = asked.map(encoding);
        let file = args.file.clone().filter(|file| file != Path::new("-"));
        let found = match &file {
            Some(path) => Some(of_file(path, asked)?),
            None => asked,
        };
        if found == Some(Encoding::Npy) {
            let more = [
                ("--lse", args.lse),
                ("--weights", args.weights),
                ("--backward", backward),
            ];
            if let Some((argument, _)) = more.iter().find(|(_, given)| *given) {
                return Err(Error::Conflict {
                    argument,
                    other: "npy, which holds the output alone".into(),
                    remedy: "use .safetensors or .npz for several arrays",
                });
            }
        }
        if found.is_none() && args.weights {
            return Err(Error::Alone {
                argument: "--weights",
                needed: "-o or --format",
                remedy: "a summary shows no weights: name a file, or add --json",
            });
        }
        Ok(Target {
            file,
            encoding: found,
        })
    }

    /// Refuses a format that does not have the output's number format.
    pub fn check_dtype(&self, dtype: DType) -> Result<()> {
        let no_name = matches!(self.encoding, Some(Encoding::Npy | Encoding::Npz));
        if dtype != DType::Bf16 || !no_name {
            return Ok(());
        }
        Err(Error::Value {
            argument: if self.file.is_some() {
                "-o"
            } else {
                "--format"
            },
            value: "bf16 in npy".into(),
            remedy: "npy cannot name that number format: use .safetensors".into(),
        })
    }
}

fn of_file(path: &Path, asked: Option<Encoding>) -> Result<Encoding> {
    let shown = shown(&path.to_string_lossy());
    let refuse = |value: String, remedy: String| {
        Err(Error::Value {
            argument: "-o",
            value,
            remedy,
        })
    };
    match (ending(path), asked) {
        (Ok(Some(found)), Some(asked)) if found != asked => refuse(
            format!("{shown} with --format {}", name(asked)),
            "leave out --format, or give the file the ending of that format".into(),
        ),
        (Ok(Some(encoding)), _) | (Ok(None), Some(encoding)) => Ok(encoding),
        (Ok(None), None) => refuse(
            format!("\"{shown}\" without an ending"),
            format!("end it in {ENDINGS}, or add --format"),
        ),
        (Err(()), _) => refuse(format!("the ending of {shown}"), format!("use {ENDINGS}")),
    }
}

/// The format that a file's ending stands for; `None` without an ending.
fn ending(path: &Path) -> std::result::Result<Option<Encoding>, ()> {
    let Some(ending) = path.extension() else {
        return Ok(None);
    };
    match ending.to_ascii_lowercase().to_str() {
        Some("safetensors") => Ok(Some(Encoding::Safetensors)),
        Some("npy") => Ok(Some(Encoding::Npy)),
        Some("npz") => Ok(Some(Encoding::Npz)),
        Some("json") => Ok(Some(Encoding::Json)),
        _ => Err(()),
    }
}

fn encoding(format: FileFormat) -> Encoding {
    match format {
        FileFormat::Safetensors => Encoding::Safetensors,
        FileFormat::Npy => Encoding::Npy,
        FileFormat::Npz => Encoding::Npz,
        FileFormat::Json => Encoding::Json,
    }
}

fn name(encoding: Encoding) -> &'static str {
    match encoding {
        Encoding::Safetensors => "safetensors",
        Encoding::Npy => "npy",
        Encoding::Npz => "npz",
        Encoding::Json => "json",
    }
}
