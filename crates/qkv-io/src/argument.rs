//! Array arguments: a literal, a file, an array in a file, or standard input.

use std::fs::{self, File};
use std::io::{self, Cursor, IsTerminal, Read};
use std::path::Path;

use crate::array::Array;
use crate::detect::{self, Format, Kind};
use crate::error::{Entry, Error, Result, STDIN};
use crate::literal::{self, parse_literal};
use crate::map::{self, Mapped};
use crate::npy::Npy;
use crate::source::{Source, read_onto, read_up_to, unreadable};
use crate::{npz, safetensors, text};

/// Most bytes that are read from standard input, from a pipe, or as text.
pub const MAX_STREAM: u64 = 4 << 30;

/// Bytes of a stream that are not its values: a header, other arrays' names.
const AROUND: u64 = 1 << 20;

/// Reads an array argument: a literal (`1 0; 0 1`, `[[1,0],[0,1]]`), a file, an array in a file
/// (`a.npz:name`, `a.safetensors:name`, `a.json:name`), or `-` for standard input (`-:name` for an
/// array in it).
///
/// One line of standard input is read as an argument is; several lines are read as a file is, and
/// an argument of several lines that a file would be read differently from is refused.
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
    read_argument_within(argument, stdin, u64::MAX)
}

/// As [`read_argument`], of an array of at most `most` values.
///
/// What holds more is refused before memory is taken for it.
///
/// # Errors
/// As for [`read_argument`].
///
/// ```
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("x.safetensors");
/// qkv_io::write_safetensors(&path, &[("x", &[3], &[1.0, 2.0, 3.0])], &[])?;
/// let path = path.to_string_lossy();
/// let error = qkv_io::read_argument_within(&path, &mut std::io::empty(), 2).unwrap_err();
/// assert!(error.to_string().contains("has 3 values, more than 2"), "{error}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn read_argument_within(argument: &str, stdin: &mut dyn Read, most: u64) -> Result<Array> {
    match Meaning::of(argument)? {
        Meaning::Stream(name) => read_stream(stdin, name, STDIN, most),
        Meaning::Literal => parse_literal(argument),
        Meaning::File(path, name) => read_path(path, name, most),
    }
}

/// An array as it was given.
#[derive(Debug)]
pub enum Given {
    /// Read, or typed.
    Read(Array),
    /// In its file.
    Mapped(Mapped),
}

/// As [`read_argument_within`], but the numbers of a large npy or safetensors file stay where they
/// are if they can be used so; such an array may have more than `most` values.
///
/// # Errors
/// As for [`read_argument`].
///
/// ```
/// use qkv_io::{Given, open_argument_within};
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("x.safetensors");
/// qkv_io::write_safetensors(&path, &[("x", &[1 << 18], &vec![0.5; 1 << 18])], &[])?;
/// let path = path.to_string_lossy();
/// let Given::Mapped(x) = open_argument_within(&path, &mut std::io::empty(), 2)? else {
///     return Err("this is large enough".into());
/// };
/// assert_eq!(x.shape(), [1 << 18]);
/// assert_eq!(x.values::<f64>().map(|values| values[7]), Some(0.5));
/// x.check_unchanged()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn open_argument_within(argument: &str, stdin: &mut dyn Read, most: u64) -> Result<Given> {
    if let Meaning::File(path, name) = Meaning::of(argument)?
        && let Some(mapped) = map::map(path, name)
    {
        return Ok(Given::Mapped(mapped));
    }
    read_argument_within(argument, stdin, most).map(Given::Read)
}

/// What an array argument means.
enum Meaning<'a> {
    /// Standard input, and the name of an array in it.
    Stream(Option<&'a str>),
    Literal,
    /// A file, and the name of an array in it.
    File(&'a Path, Option<&'a str>),
}

impl<'a> Meaning<'a> {
    fn of(argument: &'a str) -> Result<Self> {
        let name = argument.strip_prefix("-:");
        if argument == "-" || name.is_some() {
            return Ok(Meaning::Stream(name));
        }
        if literal::looks_like_literal(argument) {
            return Ok(Meaning::Literal);
        }
        match fs::metadata(argument) {
            Ok(_) => return Ok(Meaning::File(Path::new(argument), None)),
            Err(error) if is_no_path(&error) => {}
            Err(error) => return Err(unreadable(argument, error)),
        }
        // The name after the last colon that leaves the path of a file.
        for (at, _) in argument.rmatch_indices(':') {
            let path = Path::new(&argument[..at]);
            if path.is_file() {
                return Ok(Meaning::File(path, Some(&argument[at + 1..])));
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
}

/// Whether a text is no path of anything, rather than one that may not be looked at.
fn is_no_path(error: &io::Error) -> bool {
    use io::ErrorKind as E;
    matches!(
        error.kind(),
        E::NotFound | E::NotADirectory | E::InvalidFilename | E::InvalidInput
    )
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
    read_path(path, name, u64::MAX)
}

/// The named arrays of the file that an argument names; none for a literal, standard input, or a
/// file that holds one array without a name.
///
/// # Errors
/// As for [`read_argument`].
///
/// ```
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("x.json");
/// std::fs::write(&path, r#"{"q": [[1, 0]], "k": [[0, 1]]}"#)?;
/// let entries = qkv_io::arrays_in(&path.to_string_lossy())?;
/// let names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
/// assert_eq!(names, ["k", "q"]);
/// assert!(qkv_io::arrays_in("1 0; 0 1")?.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn arrays_in(argument: &str) -> Result<Vec<Entry>> {
    // No array has this name, so that every reader says which there are.
    const NOBODY: &str = "\0";
    let Meaning::File(path, None) = Meaning::of(argument)? else {
        return Ok(Vec::new());
    };
    match read_path(path, Some(NOBODY), u64::MAX) {
        Err(Error::NoSuchArray { mut available, .. }) => {
            available.sort_by(|a, b| a.name.cmp(&b.name));
            Ok(available)
        }
        Ok(_) | Err(Error::NameGiven { .. }) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Opens what may be read as a file: no folder, and no device that may never end.
pub(crate) fn open_regular(path: &Path) -> Result<File> {
    let origin = path.display().to_string();
    let metadata = fs::metadata(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Error::NoFile {
            path: origin.clone(),
        },
        _ => unreadable(&origin, error),
    })?;
    if metadata.is_dir() {
        return Err(Error::Folder { path: origin });
    }
    let file = File::open(path).map_err(|error| unreadable(&origin, error))?;
    if is_device(&metadata) && !file.is_terminal() {
        return Err(Error::Device { path: origin });
    }
    Ok(file)
}

fn read_path(path: &Path, name: Option<&str>, most: u64) -> Result<Array> {
    let origin = path.display().to_string();
    let mut file = open_regular(path)?;
    let metadata = file
        .metadata()
        .map_err(|error| unreadable(&origin, error))?;
    // What the system makes up as it is read, such as /proc/version, says that it has no length.
    if !metadata.is_file() || metadata.len() == 0 {
        return read_stream(&mut file, name, &origin, most);
    }
    read_source(
        Source {
            stream: &mut file,
            len: metadata.len(),
            origin: &origin,
            most,
        },
        name,
    )
}

/// Whether something is a device such as /dev/zero, which holds no array and may never end.
#[cfg(unix)]
pub(crate) fn is_device(metadata: &fs::Metadata) -> bool {
    use std::os::unix::fs::FileTypeExt;
    metadata.file_type().is_char_device() || metadata.file_type().is_block_device()
}

#[cfg(not(unix))]
pub(crate) fn is_device(_: &fs::Metadata) -> bool {
    false
}

/// Most bytes of a file that is no array, such as texts for a model.
const MOST_TEXT: u64 = 1 << 30;

/// Reads a text in UTF-8 from a file that holds no array, without the mark of its encoding that some
/// editors put in front.
///
/// # Errors
/// A folder, a device that may never end, more than a GiB, and bytes that are no UTF-8.
///
/// ```
/// let error = qkv_io::read_text("nosuch.txt".as_ref()).unwrap_err();
/// assert_eq!(error.to_string(), "there is no file \"nosuch.txt\"; check the path");
/// ```
pub fn read_text(path: &Path) -> Result<String> {
    let origin = path.display().to_string();
    let mut file = open_regular(path)?;
    let bytes = read_up_to(&mut file, MOST_TEXT + 1, 0, &origin)?;
    if bytes.len() as u64 > MOST_TEXT {
        let remedy = "split it into several files";
        return Err(too_large(None, MOST_TEXT, &origin, "the text", remedy));
    }
    Ok(text::utf8(&bytes, &origin)?.to_owned())
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
    read_bytes_within(bytes, name, origin, u64::MAX)
}

fn read_bytes_within(bytes: &[u8], name: Option<&str>, origin: &str, most: u64) -> Result<Array> {
    let stream = &mut Cursor::new(bytes);
    read_source(
        Source {
            stream,
            len: bytes.len() as u64,
            origin,
            most,
        },
        name,
    )
}

/// Reads all of a stream, within bounds; what cannot be an array is given up at its first bytes.
fn read_stream(
    mut stream: &mut dyn Read,
    name: Option<&str>,
    origin: &str,
    most: u64,
) -> Result<Array> {
    let mut bytes = read_up_to(&mut stream, detect::HEAD as u64, 0, origin)?;
    let (limit, remedy) = match detect::kind(&bytes, origin)? {
        Kind::Text => (most_text(most), "save the array as npy"),
        _ => {
            let values = most.saturating_mul(size_of::<f64>() as u64);
            (
                values.saturating_add(AROUND).min(MAX_STREAM),
                "save it as a file first",
            )
        }
    };
    let rest = limit.saturating_sub(bytes.len() as u64).saturating_add(1);
    read_onto(&mut bytes, &mut stream, rest, origin)?;
    if bytes.len() as u64 > limit {
        return Err(too_large(None, limit, origin, "the input", remedy));
    }
    read_bytes_within(&bytes, name, origin, most)
}

/// Bytes of a text that may hold so many values: each has a digit and a separator.
fn most_text(most: u64) -> u64 {
    most.saturating_mul(2).min(MAX_STREAM)
}

fn too_large(
    size: Option<u64>,
    limit: u64,
    origin: &str,
    what: &'static str,
    remedy: &'static str,
) -> Error {
    Error::TooLarge {
        origin: origin.to_owned(),
        what,
        unit: "byte",
        size: size.map(u128::from),
        limit: limit.into(),
        remedy,
    }
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
                most,
            } = source;
            Npy {
                stream,
                len,
                reserve: len,
                origin,
                most,
            }
            .read()
        }
        Kind::Text => {
            let limit = most_text(source.most);
            if source.len > limit {
                let remedy = "save the array as npy";
                let size = Some(source.len);
                return Err(too_large(size, limit, source.origin, "the text", remedy));
            }
            let bytes = source.read_at(0, source.len)?;
            text::read(&bytes, name, source.origin)
        }
    }
}
