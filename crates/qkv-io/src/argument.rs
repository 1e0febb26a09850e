//! Array arguments: a literal, a file, an array in a file, or standard input.

use std::fs::{self, File};
use std::io::{self, Cursor, Read};
use std::path::Path;

use crate::array::Array;
use crate::detect::{self, Format, Kind};
use crate::error::{Error, Result};
use crate::literal::{self, parse_literal};
use crate::npy::Npy;
use crate::source::{Source, read_up_to, unreadable};
use crate::{npz, safetensors, text};

/// Most that is read from standard input, from a pipe, or as text.
pub const MAX_STREAM: u64 = 4 << 30;

/// Reads an array argument: a literal (`1 0; 0 1`, `[[1,0],[0,1]]`), a file, an array in a file
/// (`a.npz:name`, `a.safetensors:name`, `a.json:name`), or `-` for standard input (`-:name` for an
/// array in it).
///
/// A text is a literal if it begins with a bracket, is one number, or holds nothing but numbers
/// between blanks, commas and semicolons; a file of such a name is given as `./1`.
///
/// # Errors
/// Says what was found, where, and what to do.
///
/// ```
/// let array = qkv_io::read_argument("1 0; 0 1", &mut std::io::empty())?;
/// assert_eq!(array.shape, [2, 2]);
/// let array = qkv_io::read_argument("-", &mut &b"[[1, 2]]"[..])?;
/// assert_eq!(array.shape, [1, 2]);
/// # Ok::<(), qkv_io::Error>(())
/// ```
pub fn read_argument(argument: &str, stdin: &mut dyn Read) -> Result<Array> {
    let name = argument.strip_prefix("-:");
    if argument == "-" || name.is_some() {
        return read_stream(stdin, name, "standard input");
    }
    if literal::looks_like_literal(argument) {
        return parse_literal(argument);
    }
    if fs::metadata(argument).is_ok() {
        return read_file(Path::new(argument), None);
    }
    // The name after the last colon that leaves the path of a file.
    for (at, _) in argument.rmatch_indices(':') {
        let path = Path::new(&argument[..at]);
        if path.is_file() {
            return read_file(path, Some(&argument[at + 1..]));
        }
    }
    let literal = literal::resembles_literal(argument)
        .then(|| parse_literal(argument).err().map(Box::new))
        .flatten();
    Err(Error::NotFound {
        path: argument.to_owned(),
        literal,
    })
}

/// Reads an array from a file; its content tells the format, never its extension.
///
/// `name` chooses among the arrays of an npz, safetensors or JSON file; without it the file must
/// hold exactly one.
///
/// # Errors
/// Says what was found, at which byte or place, and what to do.
///
/// ```
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("q.csv");
/// std::fs::write(&path, "d0,d1\n1,0\n0,1\n")?;
/// assert_eq!(qkv_io::read_file(&path, None)?.shape, [2, 2]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn read_file(path: &Path, name: Option<&str>) -> Result<Array> {
    let origin = path.display().to_string();
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(Error::NotFound {
                path: origin,
                literal: None,
            });
        }
        Err(_) if path.is_dir() => return Err(Error::Folder { path: origin }),
        Err(source) => {
            return Err(Error::Io {
                action: "open",
                path: origin,
                source,
            });
        }
    };
    let metadata = file.metadata().map_err(|e| unreadable(&origin, e))?;
    if metadata.is_dir() {
        return Err(Error::Folder { path: origin });
    }
    if !metadata.is_file() {
        return read_stream(&mut file, name, &origin);
    }
    read_source(
        Source {
            stream: &mut file,
            len: metadata.len(),
            origin: &origin,
        },
        name,
    )
}

/// Reads an array from the bytes of a file; `origin` is its name in messages.
///
/// # Errors
/// Says what was found, at which byte or place, and what to do.
///
/// ```
/// let error = qkv_io::read_bytes(b"GGUF\x03\0\0\0", None, "q.npy").unwrap_err().to_string();
/// assert!(error.starts_with("q.npy: this is a GGUF file, not npy (byte 0: 47 47 55 46)"));
/// ```
pub fn read_bytes(bytes: &[u8], name: Option<&str>, origin: &str) -> Result<Array> {
    let stream = &mut Cursor::new(bytes);
    read_source(
        Source {
            stream,
            len: bytes.len() as u64,
            origin,
        },
        name,
    )
}

/// Reads all of a stream, within bounds.
fn read_stream(stream: &mut dyn Read, name: Option<&str>, origin: &str) -> Result<Array> {
    let mut stream = stream;
    let bytes = read_up_to(&mut stream, MAX_STREAM + 1, 0, origin)?;
    too_large(
        bytes.len() as u64,
        origin,
        "the input",
        "save it as a file first",
    )?;
    read_bytes(&bytes, name, origin)
}

fn too_large(size: u64, origin: &str, what: &'static str, remedy: &'static str) -> Result<()> {
    if size <= MAX_STREAM {
        return Ok(());
    }
    let (size, limit) = (size.into(), MAX_STREAM.into());
    Err(Error::TooLarge {
        origin: origin.to_owned(),
        what,
        size,
        limit,
        remedy,
    })
}

/// Reads whatever the source turns out to be.
fn read_source(mut source: Source<'_>, name: Option<&str>) -> Result<Array> {
    let head = source.read_at(0, detect::HEAD as u64)?;
    match detect::kind(&head, source.origin)? {
        Kind::Zip => npz::read(&mut source, name),
        Kind::Safetensors => safetensors::read(&mut source, name),
        Kind::Npy => {
            if let Some(name) = name {
                let (origin, name) = (source.origin.to_owned(), name.to_owned());
                return Err(Error::NameGiven {
                    origin,
                    format: Format::Npy,
                    name,
                });
            }
            source.seek(0)?;
            let Source {
                stream,
                len,
                origin,
            } = source;
            Npy {
                stream,
                len,
                reserve: len,
                origin,
            }
            .read()
        }
        Kind::Text => {
            too_large(
                source.len,
                source.origin,
                "the text",
                "save the array as npy",
            )?;
            let bytes = source.read_at(0, source.len)?;
            text::read(&bytes, name, source.origin)
        }
    }
}
