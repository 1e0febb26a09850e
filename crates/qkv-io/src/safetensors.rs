//! safetensors: eight bytes of header length, a JSON header, then the bytes.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

use crate::argument::open_regular;
use crate::array::Array;
use crate::bytes::{self, Element};
use crate::detect::{self, Format, Kind};
use crate::error::{Entry, Error, Result};
use crate::names;
use crate::npz;
use crate::safetensors_header::{self, Tensor};
use crate::shown::shown_within;
use crate::source::{Source, unreadable};

/// Longest header that the format allows.
pub(crate) const MAX_HEADER: u64 = 100_000_000;

/// Texts of a file, by name.
pub type Notes = HashMap<String, String>;

const FORMAT: Format = Format::Safetensors;
const REMEDY: &str = "download it again or write it again";

/// Where a tensor lies in the source.
pub(crate) struct Found {
    pub(crate) element: Element,
    pub(crate) shape: Vec<usize>,
    pub(crate) start: u64,
    pub(crate) size: u64,
}

/// Finds one tensor; only the header is read.
pub(crate) fn find(source: &mut Source<'_>, name: Option<&str>) -> Result<Found> {
    let (mut tensors, _, data) = header(source)?;
    tensors.sort_by(|a, b| a.name.cmp(&b.name));
    let entries: Vec<Entry> = tensors
        .iter()
        .map(|tensor| Entry {
            name: tensor.name.clone(),
            shape: Some(tensor.shape.clone()),
        })
        .collect();
    let tensor = tensors.swap_remove(names::choose(source.origin, FORMAT, name, &entries)?);
    place(source.origin, &tensor, data)
}

/// Where a tensor of the header lies, if its type is one that is read.
pub(crate) fn place(origin: &str, tensor: &Tensor, data: u64) -> Result<Found> {
    let Some(element) = element(&tensor.dtype) else {
        if !safetensors_header::is_known(&tensor.dtype) {
            return Err(Error::Damaged {
                origin: origin.to_owned(),
                format: FORMAT,
                offset: 8 + tensor.at as u64,
                found: format!(
                    "the dtype of tensor {} is not known: {}",
                    shown_within(&tensor.name, 60),
                    shown_within(&tensor.dtype, 40)
                ),
                remedy: "download it again, or write it as BF16, F16, F32 or F64",
            });
        }
        return Err(Error::Dtype {
            origin: origin.to_owned(),
            format: FORMAT,
            offset: 8 + tensor.at as u64,
            dtype: tensor.dtype.clone(),
            remedy: "convert it to BF16, F16, F32 or F64 first (x.float() in PyTorch)",
        });
    };
    Ok(Found {
        element,
        shape: tensor.shape.clone(),
        start: data + tensor.start,
        size: tensor.end - tensor.start,
    })
}

/// Reads one tensor; only the header and its own bytes are read.
pub(crate) fn read(source: &mut Source<'_>, name: Option<&str>) -> Result<Array> {
    let found = find(source, name)?;
    read_found(source, found)
}

/// Reads the bytes of a tensor that was found.
pub(crate) fn read_found(source: &mut Source<'_>, found: Found) -> Result<Array> {
    let Found {
        element,
        shape,
        start,
        size,
    } = found;
    source.allow(&shape, "the tensor")?;
    let raw = source.read_at(start, size)?;
    let values = bytes::values(element, false, &raw).map_err(|fault| match fault {
        bytes::Fault::NoTruth(at) => {
            let found = format!("{} is no truth value", raw[at]);
            source.damaged(FORMAT, start + at as u64, found, "save it as integers")
        }
        bytes::Fault::Memory(size) => source.memory(size),
    })?;
    Ok(Array {
        shape,
        values,
        decimals: None,
    })
}

/// The arrays of a file, by name, and its notes (`__metadata__`); only the header is read.
///
/// # Errors
/// If it is no safetensors file or its header is damaged or cut off.
///
/// ```
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("x.safetensors");
/// qkv_io::write_safetensors(&path, &[("x", &[2], &[1.0, 2.0])], &[("model", "toy")])?;
/// let (arrays, notes) = qkv_io::safetensors_notes(&path)?;
/// assert_eq!((arrays[0].name.as_str(), notes["model"].as_str()), ("x", "toy"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn safetensors_notes(path: &Path) -> Result<(Vec<Entry>, Notes)> {
    let mut opened = open(path)?;
    opened.tensors.sort_by(|a, b| a.name.cmp(&b.name));
    let entries = opened.tensors.into_iter().map(|tensor| Entry {
        name: tensor.name,
        shape: Some(tensor.shape),
    });
    Ok((entries.collect(), opened.notes))
}

/// A file and its header.
pub(crate) struct Opened {
    pub(crate) file: File,
    pub(crate) len: u64,
    pub(crate) tensors: Vec<Tensor>,
    notes: Notes,
    /// Where the tensors' bytes begin.
    pub(crate) data: u64,
}

/// Opens a file that has to be safetensors, and reads and checks its header.
pub(crate) fn open(path: &Path) -> Result<Opened> {
    let origin = path.display().to_string();
    let mut file = open_regular(path)?;
    let len = file
        .metadata()
        .map_err(|error| unreadable(&origin, error))?
        .len();
    let mut source = Source {
        stream: &mut file,
        len,
        origin: &origin,
        most: u64::MAX,
    };
    let head = source.read_at(0, detect::HEAD as u64)?;
    let format = match detect::kind(&head, &origin)? {
        Kind::Safetensors => None,
        Kind::Npy => Some(Format::Npy),
        // Its directory tells whether PyTorch wrote it.
        Kind::Zip => npz::read(&mut source, None).map(|_| Some(Format::Npz))?,
        Kind::Text => Some(Format::Rows),
    };
    if let Some(format) = format {
        return Err(Error::Foreign {
            origin,
            format,
            expected: FORMAT.name(),
            offset: 0,
            bytes: head.into_iter().take(8).collect(),
            remedy: "give a safetensors file".into(),
        });
    }
    let (tensors, notes, data) = header(&mut source)?;
    Ok(Opened {
        file,
        len,
        tensors,
        notes,
        data,
    })
}

/// Reads and checks the header; also tells where the data starts.
fn header(source: &mut Source<'_>) -> Result<(Vec<Tensor>, Notes, u64)> {
    let prefix = source.read_at(0, 8)?;
    let Some((length, _)) = prefix.split_first_chunk::<8>() else {
        return Err(short(source, "header", 0, 8, prefix.len() as u64));
    };
    let length = u64::from_le_bytes(*length);
    if length > MAX_HEADER {
        let found = format!("a header of {length} bytes, where at most {MAX_HEADER} are allowed");
        return Err(source.damaged(FORMAT, 0, found, REMEDY));
    }
    let data = 8 + length;
    if source.len < data {
        return Err(short(source, "header", 8, length, source.len - 8));
    }
    let text = source.read_at(8, length)?;
    let (tensors, notes) = safetensors_header::parse(&text)
        .map_err(|fault| source.damaged(FORMAT, 8 + fault.at as u64, fault.found, REMEDY))?;
    let expected = tensors.last().map_or(0, |last| last.end);
    let found = source.len - data;
    if found < expected {
        return Err(short(source, "data", data, expected, found));
    }
    if found > expected {
        return Err(Error::Long {
            origin: source.origin.to_owned(),
            format: FORMAT,
            offset: data + expected,
            extra: found - expected,
        });
    }
    Ok((tensors, notes, data))
}

fn short(source: &Source<'_>, part: &'static str, offset: u64, expected: u64, found: u64) -> Error {
    let origin = source.origin.to_owned();
    let (expected, found) = (expected.into(), found.into());
    Error::Short {
        origin,
        format: FORMAT,
        part,
        offset,
        expected,
        found,
    }
}

/// The element types that are read.
fn element(dtype: &str) -> Option<Element> {
    Some(match dtype {
        "BOOL" => Element::Bool,
        "U8" => Element::U8,
        "I8" => Element::I8,
        "I16" => Element::I16,
        "U16" => Element::U16,
        "F16" => Element::F16,
        "BF16" => Element::Bf16,
        "I32" => Element::I32,
        "U32" => Element::U32,
        "F32" => Element::F32,
        "F64" => Element::F64,
        "I64" => Element::I64,
        "U64" => Element::U64,
        _ => return None,
    })
}
