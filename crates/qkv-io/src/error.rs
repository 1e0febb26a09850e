//! Why an array could not be read or a file not be written.

use std::fmt;
use std::io;

use crate::detect::Format;
use crate::fault::{Place, TextFault};
use crate::shown::{many, shown, shown_shape, shown_within};
use crate::system::reason;

/// A named array that a file holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// Its shape, where known.
    pub shape: Option<Vec<usize>>,
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.shape {
            Some(shape) => write!(f, "{} {}", entry_name(&self.name), shown_shape(shape)),
            None => f.write_str(&entry_name(&self.name)),
        }
    }
}

/// A name among others.
fn entry_name(name: &str) -> String {
    shown_within(name, 60)
}

/// The first few of a list of entries.
fn listing(entries: &[Entry]) -> String {
    const SHOWN: usize = 12;
    if entries.is_empty() {
        return "none".to_owned();
    }
    let mut text = entries
        .iter()
        .take(SHOWN)
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(", ");
    if entries.len() > SHOWN {
        text.push_str(&format!(" and {} more", entries.len() - SHOWN));
    }
    text
}

/// The first bytes of something, in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .map(|b| format!("{b:02X}"))
        .collect::<Vec<_>>()
        .join(" ")
}

/// Ways in which reading or writing an array fails.
///
/// Each variant holds data (`origin` is the file, `standard input` or `argument`); its text says
/// what was found, where, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system refused.
    #[error("could not {action} {}: {}", shown(.path), reason(.source))]
    Io {
        /// What was attempted.
        action: &'static str,
        /// The file.
        path: String,
        /// What the system said.
        source: io::Error,
    },
    /// There is no such file.
    #[error("there is no file \"{}\"; check the path", shown(.path))]
    NoFile {
        /// The path that was tried.
        path: String,
    },
    /// There is no such file, and the argument is no literal either.
    #[error("there is no file \"{}\"{}", shown(.path), literal_note(.literal))]
    NotFound {
        /// The path that was tried.
        path: String,
        /// Why the same text is no literal, if it resembles one.
        literal: Option<Box<Error>>,
    },
    /// A folder where a file is needed.
    #[error("{} is a folder; name a file in it", shown(.path))]
    Folder {
        /// The folder.
        path: String,
    },
    /// A file cannot be written for want of its folder.
    #[error(
        "could not write {}: there is no folder {}; make the folder first, or correct the path",
        shown(.path), shown(.folder)
    )]
    NoFolder {
        /// The file.
        path: String,
        /// The folder.
        folder: String,
    },
    /// A device where a file is needed.
    #[error("{} is a device, not a file; give a file, or - for standard input", shown(.path))]
    Device {
        /// The device.
        path: String,
    },
    /// A file was written to while it was in use.
    #[error(
        "{} was changed while its numbers were in use; run again when nothing writes to it",
        shown(.path)
    )]
    Changed {
        /// The file.
        path: String,
    },
    /// Nothing to read.
    #[error("{} is empty (0 bytes); write or download it again", shown(.origin))]
    Empty {
        /// What was read.
        origin: String,
    },
    /// A format that was recognised and is not read here.
    #[error(
        "{}: this is {format}, not {expected} (byte {offset}: {}); {remedy}",
        shown(.origin), hex(.bytes)
    )]
    Foreign {
        /// What was read.
        origin: String,
        /// What it is.
        format: Format,
        /// What its name promises, or what is read here.
        expected: &'static str,
        /// Where the format shows.
        offset: u64,
        /// The bytes it was told from.
        bytes: Vec<u8>,
        /// What to do.
        remedy: String,
    },
    /// Nothing that is known.
    #[error(
        "{}: the format is not known (byte 0: {}); give npy, npz, safetensors, csv or json",
        shown(.origin), hex(.bytes)
    )]
    Unknown {
        /// What was read.
        origin: String,
        /// How it begins.
        bytes: Vec<u8>,
    },
    /// Text in an encoding other than UTF-8.
    #[error(
        "{}: this is {encoding} text (byte {offset}: {}); save it as UTF-8",
        shown(.origin), hex(.bytes)
    )]
    Encoding {
        /// What was read.
        origin: String,
        /// The encoding, as far as it can be told.
        encoding: &'static str,
        /// The first byte that shows it.
        offset: u64,
        /// The bytes there.
        bytes: Vec<u8>,
    },
    /// Numbers typed as text that cannot be read.
    #[error("{}, {place}: {fault}", shown(.origin))]
    Text {
        /// What was read.
        origin: String,
        /// Where.
        place: Place,
        /// What is wrong and how to correct it.
        fault: TextFault,
    },
    /// A file of a known format whose contents contradict it.
    #[error("{}: {format} damaged at byte {offset}: {found}; {remedy}", shown(.origin))]
    Damaged {
        /// What was read.
        origin: String,
        /// Its format.
        format: Format,
        /// Where.
        offset: u64,
        /// What is there.
        found: String,
        /// What to do.
        remedy: &'static str,
    },
    /// A member of a zip that is stored in a way that is not read.
    #[error("{}: member {} (byte {offset}) is {how}; {remedy}", shown(.origin), entry_name(.name))]
    Packed {
        /// What was read.
        origin: String,
        /// The member.
        name: String,
        /// Where it starts.
        offset: u64,
        /// How it is stored.
        how: String,
        /// What to do.
        remedy: &'static str,
    },
    /// A file that ends too early.
    #[error(
        "{}: {format} file is {} short (expected {expected} of {part}, \
         which starts at byte {offset}, found {found}); download again or write it again",
        shown(.origin), many(.expected.saturating_sub(*.found), "byte")
    )]
    Short {
        /// What was read.
        origin: String,
        /// Its format.
        format: Format,
        /// The part that is cut off: "data" or "header".
        part: &'static str,
        /// Where that part starts.
        offset: u64,
        /// Bytes it should have.
        expected: u128,
        /// Bytes it has.
        found: u128,
    },
    /// A file that goes on after its end.
    #[error(
        "{}: {format} file goes on for {} after its data, which ends at byte {offset}; \
         it was written twice or joined: write it again",
        shown(.origin), many(*.extra, "byte")
    )]
    Long {
        /// What was read.
        origin: String,
        /// Its format.
        format: Format,
        /// Where the data ends.
        offset: u64,
        /// Bytes after it.
        extra: u64,
    },
    /// An element type that is not read.
    #[error(
        "{}: {format} array at byte {offset} has element type {}; {remedy}",
        shown(.origin), shown_within(.dtype, 60)
    )]
    Dtype {
        /// What was read.
        origin: String,
        /// Its format.
        format: Format,
        /// Where the type is stated (or the data lies).
        offset: u64,
        /// The type, as the file states it.
        dtype: String,
        /// What to do.
        remedy: &'static str,
    },
    /// No array of that name.
    #[error(
        "{}: no array is named \"{}\" in this {format} file; it holds, closest first: {}",
        shown(.origin), entry_name(.name), listing(.available)
    )]
    NoSuchArray {
        /// What was read.
        origin: String,
        /// Its format.
        format: Format,
        /// The name that was asked for.
        name: String,
        /// What there is, closest first.
        available: Vec<Entry>,
    },
    /// A file that could hold arrays but holds none.
    #[error("{}: this {format} file holds no array; write it again with one", shown(.origin))]
    NoArrays {
        /// What was read.
        origin: String,
        /// Its format.
        format: Format,
    },
    /// Several arrays and no name.
    #[error(
        "{}: this {format} file holds {}; say which, as {}:NAME: {}",
        shown(.origin), many(.available.len(), "array"), address(.origin), listing(.available)
    )]
    NameNeeded {
        /// What was read.
        origin: String,
        /// Its format.
        format: Format,
        /// What there is.
        available: Vec<Entry>,
    },
    /// A name for a file that holds one array without a name.
    #[error(
        "{}: {} {format} file holds one array without a name; leave out \":{}\"",
        shown(.origin), format.article(), entry_name(.name)
    )]
    NameGiven {
        /// What was read.
        origin: String,
        /// Its format.
        format: Format,
        /// The name that was asked for.
        name: String,
    },
    /// More than memory holds.
    #[error(
        "{}: there is no memory for {}; free some or give a smaller array",
        shown(.origin), many(*.size, "byte")
    )]
    Memory {
        /// What was read.
        origin: String,
        /// How many bytes were to be read.
        size: u64,
    },
    /// More than is read.
    #[error("{}: {what} has {}; {remedy}", shown(.origin), too_many(.size, *.limit, .unit))]
    TooLarge {
        /// What was read.
        origin: String,
        /// Which part.
        what: &'static str,
        /// What its size counts.
        unit: &'static str,
        /// Its size, unless only what is allowed was read.
        size: Option<u128>,
        /// What is allowed.
        limit: u128,
        /// What to do.
        remedy: &'static str,
    },
    /// An integer without an equal in 64-bit floating point.
    #[error(
        "the integer {value} at {} has no equal among 64-bit floating-point numbers; \
         keep integers within ±9007199254740992", shown_shape(.index)
    )]
    Inexact {
        /// Index per axis, counting from 0.
        index: Vec<usize>,
        /// The integer.
        value: i128,
    },
    /// A value that is neither 0 nor 1 nor a truth value.
    #[error(
        "the value {} at {} is neither 0 nor 1; a mask holds only 0, 1, true, false",
        shown_within(.value, 40), shown_shape(.index)
    )]
    NotBool {
        /// Index per axis, counting from 0.
        index: Vec<usize>,
        /// The value.
        value: String,
    },
    /// Values that do not fill their shape.
    #[error(
        "array \"{}\" of shape {} was given {}; give as many as the shape says",
        entry_name(.name), shown_shape(.shape), many(*.found, "value")
    )]
    Shape {
        /// The array to be written.
        name: String,
        /// Its shape.
        shape: Vec<usize>,
        /// How many values came.
        found: usize,
    },
    /// A name that cannot be used in the file.
    #[error("the array name \"{}\" {says}; choose another", entry_name(.name))]
    Name {
        /// The name.
        name: String,
        /// What is wrong with it.
        says: &'static str,
    },
}

/// A size and what is allowed.
fn too_many(size: &Option<u128>, limit: u128, unit: &str) -> String {
    match size {
        Some(size) => format!("{}, more than {limit}", many(*size, unit)),
        None => format!("more than {}", many(limit, unit)),
    }
}

/// What standard input is called in messages.
pub(crate) const STDIN: &str = "standard input";

/// How an argument names what was read.
fn address(origin: &str) -> String {
    if origin == STDIN {
        "-".to_owned()
    } else {
        shown(origin)
    }
}

/// What a missing file adds about the literal it may have been.
fn literal_note(literal: &Option<Box<Error>>) -> String {
    match literal {
        Some(error) => format!("; and read as a literal it fails: {error}"),
        None => "; check the path (a literal looks like \"1 0; 0 1\" or [[1,0],[0,1]])".to_owned(),
    }
}

/// The result of reading or writing an array.
pub type Result<T> = std::result::Result<T, Error>;
