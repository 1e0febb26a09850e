//! safetensors: eight bytes of header length, a JSON header, then the bytes.

use safetensors::Dtype;
use safetensors::tensor::Metadata;

use crate::array::Array;
use crate::bytes::{self, Element};
use crate::detect::Format;
use crate::error::{Entry, Error, Result};
use crate::names;
use crate::source::Source;

/// Longest header that the format allows.
pub(crate) const MAX_HEADER: u64 = 100_000_000;

const FORMAT: Format = Format::Safetensors;
const REMEDY: &str = "download it again or write it again";

/// Reads one tensor; only the header and its own bytes are read.
pub(crate) fn read(source: &mut Source<'_>, name: Option<&str>) -> Result<Array> {
    let (metadata, data) = header(source)?;
    let mut entries: Vec<Entry> = metadata
        .tensors()
        .into_iter()
        .map(|(name, info)| Entry {
            name,
            shape: Some(info.shape.clone()),
        })
        .collect();
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    let name = &entries[names::choose(source.origin, FORMAT, name, &entries)?].name;
    let Some(info) = metadata.info(name) else {
        return Err(Error::NoArrays {
            origin: source.origin.to_owned(),
            format: FORMAT,
        });
    };
    let (start, end) = info.data_offsets;
    let start = data + start as u64;
    let Some(element) = element(info.dtype) else {
        return Err(Error::Dtype {
            origin: source.origin.to_owned(),
            format: FORMAT,
            offset: start,
            dtype: format!("{:?}", info.dtype),
            remedy: "convert it to BF16, F16, F32 or F64 first (x.float() in PyTorch)",
        });
    };
    let raw = source.read_at(start, data + end as u64 - start)?;
    let expected = bytes::byte_size(&info.shape, element.size());
    if expected != Some(raw.len()) {
        let found = format!(
            "tensor {name} has {} bytes for shape {:?}",
            raw.len(),
            info.shape
        );
        return Err(source.damaged(FORMAT, start, found, REMEDY));
    }
    let values = bytes::values(element, false, &raw).map_err(|at| {
        let found = format!("{} is no truth value", raw[at]);
        source.damaged(FORMAT, start + at as u64, found, "save it as integers")
    })?;
    Ok(Array {
        shape: info.shape.clone(),
        values,
        decimals: None,
    })
}

/// Reads and checks the header; also tells where the data starts.
fn header(source: &mut Source<'_>) -> Result<(Metadata, u64)> {
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
    let metadata: Metadata = serde_json::from_slice(&text).map_err(|error| {
        let before: usize = text
            .split_inclusive(|&b| b == b'\n')
            .take(error.line().saturating_sub(1))
            .map(<[u8]>::len)
            .sum();
        let at = 8 + (before + error.column().saturating_sub(1)) as u64;
        source.damaged(FORMAT, at, format!("in the header: {error}"), REMEDY)
    })?;
    let (expected, found) = (metadata.data_len() as u64, source.len - data);
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
    Ok((metadata, data))
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
fn element(dtype: Dtype) -> Option<Element> {
    Some(match dtype {
        Dtype::BOOL => Element::Bool,
        Dtype::U8 => Element::U8,
        Dtype::I8 => Element::I8,
        Dtype::I16 => Element::I16,
        Dtype::U16 => Element::U16,
        Dtype::F16 => Element::F16,
        Dtype::BF16 => Element::Bf16,
        Dtype::I32 => Element::I32,
        Dtype::U32 => Element::U32,
        Dtype::F32 => Element::F32,
        Dtype::F64 => Element::F64,
        Dtype::I64 => Element::I64,
        Dtype::U64 => Element::U64,
        _ => return None,
    })
}
