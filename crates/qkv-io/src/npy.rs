//! npy, numpy's own format: a header that is a Python dictionary, then the bytes.

use std::io::Read;

use crate::array::Array;
use crate::bytes;
use crate::detect::Format;
use crate::error::{Error, Result, hex};
use crate::npy_header::{self, Fault, Header};
use crate::shown::shown_shape;
use crate::source::{self, read_up_to};

/// How every npy begins.
pub(crate) const MAGIC: &[u8] = b"\x93NUMPY";

/// Headers longer than this are damaged: numpy itself refuses more than 10 000 bytes.
const MAX_HEADER: u64 = 1 << 20;

/// An npy being read front to back; `len` bytes are said to be there, `reserve` surely are.
pub(crate) struct Npy<'a, R> {
    pub(crate) stream: R,
    pub(crate) len: u64,
    pub(crate) reserve: u64,
    pub(crate) origin: &'a str,
    /// Most values that are read.
    pub(crate) most: u64,
}

/// The bytes in front of the values, or `None` for a type that npy cannot name.
pub(crate) fn header_bytes(dtype: &str, shape: &[usize]) -> Option<Vec<u8>> {
    let descr = match dtype {
        "f16" => "<f2",
        "f32" => "<f4",
        "f64" => "<f8",
        "i32" => "<i4",
        "i64" => "<i8",
        "u64" => "<u8",
        "bool" => "|b1",
        _ => return None,
    };
    let axes: String = shape.iter().map(|length| format!("{length}, ")).collect();
    let axes = match shape.len() {
        1 => axes.trim_end(),
        _ => axes.trim_end_matches(", "),
    };
    let mut text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({axes}), }}");
    // The values start at a multiple of 64 bytes.
    const BEFORE: usize = 10;
    let padded = (BEFORE + text.len() + 1).next_multiple_of(64) - BEFORE - 1;
    text.extend(std::iter::repeat_n(' ', padded - text.len()));
    text.push('\n');
    let length = u16::try_from(text.len()).ok()?;
    let mut bytes = MAGIC.to_vec();
    bytes.extend([1, 0]);
    bytes.extend(length.to_le_bytes());
    bytes.extend(text.into_bytes());
    Some(bytes)
}

impl<R: Read> Npy<'_, R> {
    /// Reads the whole array.
    pub(crate) fn read(&mut self) -> Result<Array> {
        let header = self.header()?;
        let Header {
            element,
            big_endian,
            column_major,
            shape,
            data,
        } = header;
        let Some(size) = bytes::byte_size(&shape, element.size()) else {
            return Err(self.damaged(
                data,
                format!(
                    "the shape {} has more values than can be counted",
                    shown_shape(&shape)
                ),
                "write it again",
            ));
        };
        let (expected, found) = (size as u64, self.len.saturating_sub(data));
        if found < expected {
            return Err(self.short("data", data, expected, found));
        }
        if found > expected {
            return Err(self.long(data + expected, found - expected));
        }
        source::allow(&shape, self.most, self.origin, "the array")?;
        let raw = read_up_to(&mut self.stream, expected, self.reserve, self.origin)?;
        if (raw.len() as u64) < expected {
            return Err(self.short("data", data, expected, raw.len() as u64));
        }
        // The length that was stated may itself be wrong.
        let extra = read_up_to(&mut self.stream, 1, 0, self.origin)?;
        if !extra.is_empty() {
            return Err(self.long(data + expected, 1));
        }
        let memory = |size| Error::Memory {
            origin: self.origin.to_owned(),
            size,
        };
        let values = bytes::values(element, big_endian, &raw).map_err(|fault| match fault {
            bytes::Fault::NoTruth(at) => self.damaged(
                data + at as u64,
                format!("{} is no truth value", raw[at]),
                "save it as integers, or write it again",
            ),
            bytes::Fault::Memory(size) => memory(size),
        })?;
        drop(raw);
        let values = if column_major && shape.len() > 1 {
            values.column_to_row_major(&shape).map_err(memory)?
        } else {
            values
        };
        Ok(Array {
            shape,
            values,
            decimals: None,
        })
    }

    /// Reads the header.
    pub(crate) fn header(&mut self) -> Result<Header> {
        let start = self.exactly(0, 8)?;
        if !start.starts_with(MAGIC) {
            let found = format!(
                "{} where an npy begins with {}",
                hex(&start[..6]),
                hex(MAGIC)
            );
            return Err(self.damaged(0, found, "save it with numpy.save"));
        }
        let (major, minor) = (start[6], start[7]);
        let (prefix, length) = match major {
            1 => (10, self.exactly(8, 2)?),
            2 | 3 => (12, self.exactly(8, 4)?),
            _ => {
                return Err(self.damaged(
                    6,
                    format!("version {major}.{minor}, where 1, 2 and 3 are known"),
                    "save it with numpy.save",
                ));
            }
        };
        let length = length
            .iter()
            .rev()
            .fold(0_u64, |n, &b| (n << 8) | u64::from(b));
        if length > MAX_HEADER {
            return Err(self.damaged(
                8,
                format!("a header of {length} bytes, more than {MAX_HEADER}"),
                "write it again",
            ));
        }
        let text = self.exactly(prefix, length)?;
        npy_header::parse(&text, prefix + length).map_err(|fault| match fault {
            Fault::Damaged(at, found) => {
                self.damaged(prefix + at as u64, found, "save it again with numpy.save")
            }
            Fault::Dtype(at, dtype) => Error::Dtype {
                origin: self.origin.to_owned(),
                format: Format::Npy,
                offset: prefix + at as u64,
                remedy: npy_header::dtype_remedy(&dtype),
                dtype,
            },
        })
    }

    /// The next `count` bytes of the header.
    fn exactly(&mut self, offset: u64, count: u64) -> Result<Vec<u8>> {
        let found = self.len.saturating_sub(offset);
        if found < count {
            return Err(self.short("header", offset, count, found));
        }
        let bytes = read_up_to(&mut self.stream, count, count, self.origin)?;
        if (bytes.len() as u64) < count {
            return Err(self.short("header", offset, count, bytes.len() as u64));
        }
        Ok(bytes)
    }

    fn short(&self, part: &'static str, offset: u64, expected: u64, found: u64) -> Error {
        let origin = self.origin.to_owned();
        let (expected, found) = (expected.into(), found.into());
        Error::Short {
            origin,
            format: Format::Npy,
            part,
            offset,
            expected,
            found,
        }
    }

    fn long(&self, offset: u64, extra: u64) -> Error {
        Error::Long {
            origin: self.origin.to_owned(),
            format: Format::Npy,
            offset,
            extra,
        }
    }

    fn damaged(&self, offset: u64, found: String, remedy: &'static str) -> Error {
        Error::Damaged {
            origin: self.origin.to_owned(),
            format: Format::Npy,
            offset,
            found,
            remedy,
        }
    }
}
