//! Which files are written, and what is printed.

use crate::args::{TraceFormat, TraceOutputArgs};
use crate::arrays::Reader;
use crate::error::{Error, Result};
use crate::output;
use qkv_io::shown;
use std::path::{Path, PathBuf};

/// A file, and the option that names it.
pub type Named = (&'static str, PathBuf);

/// Files by what they hold.
#[derive(Debug, Default)]
pub struct Targets {
    /// A trace.
    pub trace: Option<Named>,
    /// A page.
    pub html: Option<Named>,
    /// A drawing.
    pub svg: Option<Named>,
    /// What would be printed.
    pub text: Option<Named>,
    format: Option<TraceFormat>,
}

impl Targets {
    /// From --html, --svg, -o, --format and --json.
    pub fn new(args: &TraceOutputArgs) -> Result<Targets> {
        let mut targets = Targets {
            html: args.html.clone().map(|file| ("--html", file)),
            svg: args.svg.clone().map(|file| ("--svg", file)),
            format: match (args.format, args.json) {
                (Some(TraceFormat::Text), true) => {
                    return Err(Error::Conflict {
                        argument: "--json",
                        other: "another --format".into(),
                        remedy: "--json is short for --format json: leave one of them out",
                    });
                }
                (_, true) => Some(TraceFormat::Json),
                (format, false) => format,
            },
            ..Targets::default()
        };
        let Some(file) = args.file.clone().filter(|file| file != Path::new("-")) else {
            return Ok(targets);
        };
        let ending = file.extension().map(|ending| ending.to_ascii_lowercase());
        let twice = |argument: &'static str| Error::Conflict {
            argument: "-o",
            other: argument.into(),
            remedy: "both name a file of the same kind: leave one out",
        };
        match ending.as_deref().and_then(|ending| ending.to_str()) {
            Some("safetensors") => targets.trace = Some(("-o", file)),
            Some("html" | "htm") if targets.html.is_some() => return Err(twice("--html")),
            Some("html" | "htm") => targets.html = Some(("-o", file)),
            Some("svg") if targets.svg.is_some() => return Err(twice("--svg")),
            Some("svg") => targets.svg = Some(("-o", file)),
            Some("txt") => targets.set_text(file, TraceFormat::Text)?,
            Some("json") => targets.set_text(file, TraceFormat::Json)?,
            _ => {
                return Err(Error::Value {
                    argument: "-o",
                    value: format!("the ending of {}", shown(&file.to_string_lossy())),
                    remedy: "use .safetensors, .html, .svg, .json or .txt".into(),
                });
            }
        }
        Ok(targets)
    }

    fn set_text(&mut self, file: PathBuf, format: TraceFormat) -> Result<()> {
        if self.format.is_some_and(|asked| asked != format) {
            return Err(Error::Value {
                argument: "-o",
                value: format!("{} with another --format", shown(&file.to_string_lossy())),
                remedy: "leave out --format, or give the file the ending of that format".into(),
            });
        }
        self.text = Some(("-o", file));
        self.format = Some(format);
        Ok(())
    }

    /// What is printed, or written as text: what was asked for, or text where no file is written or
    /// heads were ranked.
    pub fn printed(&self, ranked: bool) -> Option<TraceFormat> {
        let file = self.trace.is_some() || self.html.is_some() || self.svg.is_some();
        self.format
            .or_else(|| (!file || ranked).then_some(TraceFormat::Text))
    }

    /// The files that are written, each with the option that names it.
    pub fn files(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        [&self.trace, &self.html, &self.svg, &self.text]
            .into_iter()
            .flatten()
            .map(|(argument, file)| (*argument, file.as_path()))
    }

    /// Refuses to overwrite an input.
    pub fn check_inputs(&self, reader: &Reader<'_>, model: Option<&str>) -> Result<()> {
        for (argument, file) in self.files() {
            output::refuse_input(argument, reader, file)?;
            let same = |model: &str| {
                let (a, b) = (Path::new(model).canonicalize(), file.canonicalize());
                matches!((a, b), (Ok(a), Ok(b)) if a == b)
            };
            if model.is_some_and(same) {
                return Err(Error::Conflict {
                    argument,
                    other: format!(
                        "{}, which is also the input",
                        shown(&file.to_string_lossy())
                    ),
                    remedy: "name another file",
                });
            }
        }
        Ok(())
    }
}
