//! Where a result goes and how it looks: format, file, language, colour, width.

use crate::args::{Color, Format, Language, OutputArgs};
use crate::arrays::Reader;
use crate::error::{Error, Result};
use qkv_io::shown;
use qkv_report::{Lang, Settings, Subject};
use std::env;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

/// What is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Text,
    Markdown,
    Latex,
    Html,
    Json,
    Safetensors,
}

impl Kind {
    fn of(format: Format) -> Kind {
        match format {
            Format::Text => Kind::Text,
            Format::Markdown => Kind::Markdown,
            Format::Latex => Kind::Latex,
            Format::Html => Kind::Html,
            Format::Json => Kind::Json,
        }
    }

    /// As --format has it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Text => "text",
            Kind::Markdown => "markdown",
            Kind::Latex => "latex",
            Kind::Html => "html",
            Kind::Json => "json",
            Kind::Safetensors => "safetensors",
        }
    }
}

/// What a file may hold, which its ending says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// What is told, in any format.
    Told,
    /// That, or the steps as arrays.
    Steps,
}

impl Holds {
    fn endings(self) -> &'static str {
        match self {
            Holds::Told => ".txt, .md, .tex, .html or .json",
            Holds::Steps => ".txt, .md, .tex, .html, .json or .safetensors",
        }
    }
}

/// What is written, and where.
#[derive(Debug)]
pub struct Target {
    kind: Kind,
    file: Option<PathBuf>,
}

impl Target {
    /// From --format, --json and -o.
    pub fn new(args: &OutputArgs, holds: Holds) -> Result<Self> {
        let asked = match (args.format, args.json) {
            (Some(format), true) if format != Format::Json => {
                return Err(Error::Conflict {
                    argument: "--json",
                    other: "another --format".into(),
                    remedy: "--json is short for --format json: leave one of them out",
                });
            }
            (_, true) => Some(Format::Json),
            (format, false) => format,
        };
        let asked = asked.map(Kind::of);
        let file = args.file.clone().filter(|file| file != Path::new("-"));
        let Some(path) = &file else {
            return Ok(Target {
                kind: asked.unwrap_or(Kind::Text),
                file,
            });
        };
        let kind = match (ending(path, holds)?, asked) {
            (Some(kind), Some(asked)) if kind != asked => {
                return Err(Error::Value {
                    argument: "-o",
                    value: format!(
                        "{} with --format {}",
                        shown(&path.to_string_lossy()),
                        asked.name()
                    ),
                    remedy: "leave out --format, or give the file the ending of that format".into(),
                });
            }
            (Some(kind), _) | (None, Some(kind)) => kind,
            (None, None) => {
                return Err(Error::Value {
                    argument: "-o",
                    value: format!("\"{}\" without an ending", shown(&path.to_string_lossy())),
                    remedy: format!("end it in {}, or add --format", holds.endings()),
                });
            }
        };
        Ok(Target { kind, file })
    }

    /// Bytes that the result takes for each number of a step, besides the text itself.
    pub fn bytes_each(&self) -> u128 {
        match self.kind {
            // The numbers, their bytes, and the file with all of them.
            Kind::Safetensors => 24,
            _ => 8,
        }
    }

    /// Whether the result is the worked calculation rather than its numbers.
    pub fn is_for_people(&self) -> bool {
        !matches!(self.kind, Kind::Json | Kind::Safetensors)
    }

    /// What is written.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Where it is written, if not to standard output.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Refuses to overwrite an input.
    pub fn check_inputs(&self, reader: &Reader<'_>) -> Result<()> {
        match &self.file {
            None => Ok(()),
            Some(file) => refuse_input("-o", reader, file),
        }
    }

    /// Writes the result.
    pub fn write(&self, subject: &Subject<'_>, settings: &Settings) -> Result<()> {
        match self.kind {
            Kind::Text => self.write_bytes(qkv_report::text(subject, settings).as_bytes()),
            Kind::Markdown => self.write_bytes(qkv_report::markdown(subject, settings).as_bytes()),
            Kind::Latex => self.write_bytes(qkv_report::latex(subject, settings).as_bytes()),
            Kind::Html => self.write_bytes(qkv_report::html(subject, settings).as_bytes()),
            Kind::Json => self.write_with(|mut out| {
                qkv_report::write_json(subject, &mut out)?;
                out.write_all(b"\n")
            }),
            Kind::Safetensors => self.write_steps(subject),
        }
    }

    /// Writes what a check found, told in the kind that is asked for.
    pub fn write_found(&self, tell: impl FnOnce(Kind) -> String) -> Result<()> {
        self.write_bytes(tell(self.kind).as_bytes())
    }

    fn write_bytes(&self, bytes: &[u8]) -> Result<()> {
        self.write_with(|out| out.write_all(bytes))
    }

    /// Writes piece by piece.
    fn write_with(&self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
        match &self.file {
            None => print_with(write),
            Some(file) => qkv_io::write_file_with(file, write).map_err(Error::io("-o")),
        }
    }

    fn write_steps(&self, subject: &Subject<'_>) -> Result<()> {
        let steps = subject
            .steps
            .iter()
            .map(|(name, tensor)| (name.as_str(), tensor));
        let gradients = subject.backward.iter().flat_map(|backward| {
            let gradients = backward.gradients.iter();
            gradients.map(|(name, tensor)| (name.as_str(), tensor))
        });
        let arrays: Vec<_> = steps
            .chain(gradients)
            .map(|(name, tensor)| (name, tensor.shape(), tensor.data()))
            .collect();
        let empty_rows = format!("{:?}", subject.steps.empty_rows());
        let metadata = [
            ("made_by", concat!("qkv ", env!("CARGO_PKG_VERSION"))),
            ("empty_rows", empty_rows.as_str()),
        ];
        match &self.file {
            Some(file) => {
                qkv_io::write_safetensors(file, &arrays, &metadata).map_err(Error::io("-o"))
            }
            None => Ok(()),
        }
    }
}

/// Refuses files that could not be written, or that would overwrite each other, before the work
/// that fills them; each with the option that names it.
pub fn check_places<'a>(
    files: impl IntoIterator<Item = (&'static str, Option<&'a Path>)>,
) -> Result<()> {
    let mut checked: Vec<(&str, &Path)> = Vec::new();
    for (argument, file) in files {
        let Some(file) = file.filter(|file| *file != Path::new("-")) else {
            continue;
        };
        qkv_io::check_place(file).map_err(Error::io(argument))?;
        let twice = checked.iter().find(|(_, other)| is_same(other, file));
        if let Some((other, _)) = twice {
            return Err(Error::Conflict {
                argument,
                other: format!(
                    "{other}, which names {} too",
                    shown(&file.to_string_lossy())
                ),
                remedy: "name another file",
            });
        }
        checked.push((argument, file));
    }
    Ok(())
}

/// Whether two paths name one file, which need not be there.
fn is_same(one: &Path, other: &Path) -> bool {
    let place = |path: &Path| {
        path.canonicalize().ok().or_else(|| {
            let folder = path.parent()?;
            let here = if folder.as_os_str().is_empty() {
                Path::new(".")
            } else {
                folder
            };
            Some(here.canonicalize().ok()?.join(path.file_name()?))
        })
    };
    matches!((place(one), place(other)), (Some(one), Some(other)) if one == other)
}

/// Refuses to overwrite a file that an option was read from.
pub fn refuse_input(argument: &'static str, reader: &Reader<'_>, file: &Path) -> Result<()> {
    match reader.reader_of(file) {
        None => Ok(()),
        Some(other) => Err(Error::Conflict {
            argument,
            other: format!(
                "{}, which is also the input of {other}",
                shown(&file.to_string_lossy())
            ),
            remedy: "name another file",
        }),
    }
}

/// Writes to standard output.
pub fn print(bytes: &[u8]) -> Result<()> {
    print_with(|out| out.write_all(bytes))
}

/// As [`print`], piece by piece.
pub fn print_with(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    write(&mut out)
        .and_then(|()| out.flush())
        .map_err(Error::Stdout)
}

/// A line for people beside the result; if standard error is gone, nobody reads it.
pub fn remark(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// The format that a file's ending stands for; `None` without an ending.
fn ending(path: &Path, holds: Holds) -> Result<Option<Kind>> {
    let Some(ending) = path.extension() else {
        return Ok(None);
    };
    match ending.to_ascii_lowercase().to_str() {
        Some("txt") => Ok(Some(Kind::Text)),
        Some("md" | "markdown") => Ok(Some(Kind::Markdown)),
        Some("json") => Ok(Some(Kind::Json)),
        Some("safetensors") if holds == Holds::Steps => Ok(Some(Kind::Safetensors)),
        Some("html" | "htm") => Ok(Some(Kind::Html)),
        Some("tex") => Ok(Some(Kind::Latex)),
        _ => Err(Error::Value {
            argument: "-o",
            value: format!("the ending of {}", shown(&path.to_string_lossy())),
            remedy: format!("use {}", holds.endings()),
        }),
    }
}

/// The language asked for, or that of the environment.
pub fn language(asked: Option<Language>) -> Lang {
    match asked {
        Some(Language::En) => Lang::En,
        Some(Language::Zh) => Lang::Zh,
        None => {
            let locale = ["LC_ALL", "LC_MESSAGES", "LANG"]
                .iter()
                .filter_map(|name| env::var(name).ok())
                .find(|value| !value.is_empty());
            match locale {
                Some(locale) if locale.to_lowercase().starts_with("zh") => Lang::Zh,
                _ => Lang::En,
            }
        }
    }
}

/// How the text looks.
pub fn settings(args: &OutputArgs, rows: &[usize]) -> Settings {
    let to_terminal = io::stdout().is_terminal() && args.file.is_none();
    Settings {
        lang: language(args.lang),
        digits: args.digits,
        width: args.width.unwrap_or_else(|| width(to_terminal)),
        color: color(args.color, to_terminal),
        rows: (!rows.is_empty()).then(|| rows.to_vec()),
    }
}

fn width(to_terminal: bool) -> usize {
    let columns = to_terminal
        .then(terminal_size::terminal_size)
        .flatten()
        .map(|(terminal_size::Width(columns), _)| usize::from(columns));
    columns.map_or(80, |columns| columns.clamp(40, 120))
}

/// <https://no-color.org> and <https://bixense.com/clicolors>.
fn color(asked: Color, to_terminal: bool) -> bool {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
    match asked {
        Color::Always => true,
        Color::Never => false,
        Color::Auto if set("NO_COLOR").is_some() => false,
        Color::Auto if set("CLICOLOR_FORCE").is_some_and(|value| value != "0") => true,
        Color::Auto => {
            to_terminal
                && set("CLICOLOR").is_none_or(|value| value != "0")
                && set("TERM").is_none_or(|value| value != "dumb")
        }
    }
}
