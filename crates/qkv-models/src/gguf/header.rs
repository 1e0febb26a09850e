//! The header of a GGUF file: metadata, then names, shapes and places of the tensors.

use crate::error::{Error, Result};
use candle_core::Device;
use candle_core::quantized::{GgmlDType, ggml_file::qtensor_from_ggml};
use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::Path;

/// A value of the metadata; whole numbers of every width are one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Meta {
    Whole(i128),
    Float(f64),
    Bool(bool),
    Text(String),
    Texts(Vec<String>),
    Wholes(Vec<i64>),
    Floats(Vec<f32>),
    /// Arrays of something that no model here needs.
    Other,
}

impl fmt::Display for Meta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Meta::Whole(whole) => write!(f, "{whole}"),
            Meta::Float(float) => write!(f, "{float}"),
            Meta::Bool(flag) => write!(f, "{flag}"),
            Meta::Text(text) => write!(f, "\"{}\"", qkv_io::shown(text)),
            Meta::Texts(each) => write!(f, "a list of {} texts", each.len()),
            Meta::Wholes(each) => write!(f, "a list of {} whole numbers", each.len()),
            Meta::Floats(each) => write!(f, "a list of {} numbers", each.len()),
            Meta::Other => f.write_str("a list"),
        }
    }
}

/// Where a tensor lies, and how its numbers are stored.
#[derive(Clone, Debug)]
struct Stored {
    dtype: GgmlDType,
    /// Row-major: the file has the fastest axis first.
    shape: Vec<usize>,
    start: u64,
    size: usize,
}

/// A GGUF file whose header has been read and checked.
#[derive(Debug)]
pub(crate) struct Gguf {
    file: File,
    path: String,
    pub(crate) meta: HashMap<String, Meta>,
    tensors: HashMap<String, Stored>,
    /// Names that the families use, to the file's.
    pub(crate) alias: HashMap<String, String>,
}

/// Most entries of an array of the metadata: vocabularies have up to some 300,000.
const MOST: u64 = 1 << 22;

const AGAIN: &str = "download it again or convert it again";

/// Reads a stream and counts, so that a fault has a place and no length reaches beyond the end.
struct Cursor<'a> {
    stream: BufReader<&'a File>,
    at: u64,
    len: u64,
    path: &'a str,
}

impl Cursor<'_> {
    fn wrong(&self, found: String) -> Error {
        Error::Damaged {
            path: self.path.to_owned(),
            found: format!("GGUF, byte {}: {found}", self.at),
            remedy: AGAIN,
        }
    }

    fn bytes<const N: usize>(&mut self, what: &str) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.room(N as u64, what)?;
        self.stream
            .read_exact(&mut bytes)
            .map_err(|error| Error::io(Path::new(self.path), error))?;
        self.at += N as u64;
        Ok(bytes)
    }

    /// Refuses a length that reaches beyond the end.
    fn room(&self, bytes: u64, what: &str) -> Result<()> {
        let left = self.len.saturating_sub(self.at);
        if bytes <= left {
            return Ok(());
        }
        Err(self.wrong(format!("{what} of {bytes} bytes, where {left} are left")))
    }

    fn u32(&mut self, what: &str) -> Result<u32> {
        Ok(u32::from_le_bytes(self.bytes(what)?))
    }

    fn u64(&mut self, what: &str) -> Result<u64> {
        Ok(u64::from_le_bytes(self.bytes(what)?))
    }

    fn text(&mut self, what: &str) -> Result<String> {
        let len = self.u64(what)?;
        self.room(len, what)?;
        // Not beyond what the file holds, so never more than the file is long.
        let mut bytes = vec![0; len as usize];
        self.stream
            .read_exact(&mut bytes)
            .map_err(|error| Error::io(Path::new(self.path), error))?;
        self.at += len;
        // Some files have pieces of characters in their vocabulary.
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// A value of one of the format's types but arrays.
    fn scalar(&mut self, kind: u32, what: &str) -> Result<Meta> {
        Ok(match kind {
            0 => Meta::Whole(self.bytes::<1>(what)?[0].into()),
            1 => Meta::Whole(i8::from_le_bytes(self.bytes(what)?).into()),
            2 => Meta::Whole(u16::from_le_bytes(self.bytes(what)?).into()),
            3 => Meta::Whole(i16::from_le_bytes(self.bytes(what)?).into()),
            4 => Meta::Whole(self.u32(what)?.into()),
            5 => Meta::Whole(i32::from_le_bytes(self.bytes(what)?).into()),
            6 => Meta::Float(f32::from_le_bytes(self.bytes(what)?).into()),
            7 => Meta::Bool(self.bytes::<1>(what)?[0] != 0),
            8 => Meta::Text(self.text(what)?),
            10 => Meta::Whole(self.u64(what)?.into()),
            11 => Meta::Whole(i64::from_le_bytes(self.bytes(what)?).into()),
            12 => Meta::Float(f64::from_le_bytes(self.bytes(what)?)),
            other => return Err(self.wrong(format!("{what} has the unknown type {other}"))),
        })
    }

    fn value(&mut self, what: &str) -> Result<Meta> {
        let kind = self.u32(what)?;
        if kind != 9 {
            return self.scalar(kind, what);
        }
        let kind = self.u32(what)?;
        let count = self.u64(what)?;
        let each = match kind {
            0 | 1 | 7 => 1,
            2 | 3 => 2,
            4..=6 => 4,
            8 | 10 | 11 | 12 => 8,
            9 => return Err(self.wrong(format!("{what} is an array of arrays"))),
            other => return Err(self.wrong(format!("{what} has the unknown type {other}"))),
        };
        self.room(count.saturating_mul(each), what)?;
        if count > MOST {
            return Err(self.wrong(format!(
                "{what} has {count} entries, where at most {MOST} are read"
            )));
        }
        let mut texts = Vec::new();
        let mut wholes = Vec::new();
        let mut floats = Vec::new();
        for _ in 0..count {
            match self.scalar(kind, what)? {
                Meta::Text(text) => texts.push(text),
                Meta::Whole(whole) => wholes.push(i64::try_from(whole).unwrap_or(i64::MAX)),
                Meta::Bool(flag) => wholes.push(flag.into()),
                Meta::Float(float) => floats.push(float as f32),
                _ => {}
            }
        }
        Ok(match kind {
            8 => Meta::Texts(texts),
            6 | 12 => Meta::Floats(floats),
            0..=7 | 10 | 11 => Meta::Wholes(wholes),
            _ => Meta::Other,
        })
    }
}

impl Gguf {
    /// Opens a file, and reads and checks its header.
    pub(crate) fn open(path: &Path) -> Result<Gguf> {
        let file = File::open(path).map_err(|error| Error::io(path, error))?;
        let len = file
            .metadata()
            .map_err(|error| Error::io(path, error))?
            .len();
        let path = path.display().to_string();
        let mut cursor = Cursor {
            stream: BufReader::new(&file),
            at: 0,
            len,
            path: &path,
        };
        if &cursor.bytes::<4>("the mark GGUF")? != b"GGUF" {
            cursor.at = 0;
            return Err(cursor.wrong("the mark GGUF is missing".into()));
        }
        let version = cursor.u32("the version")?;
        if !(2..=3).contains(&version) {
            let found = format!(
                "version {version}; 2 and 3 are read (a file of the other byte order has 50331648)"
            );
            return Err(cursor.wrong(found));
        }
        let tensors = cursor.u64("the number of tensors")?;
        let entries = cursor.u64("the number of metadata entries")?;
        // An entry has at least a length, a type and a byte; a tensor a length, two numbers, a place.
        let least = entries
            .saturating_mul(13)
            .saturating_add(tensors.saturating_mul(24));
        cursor.room(least, "a header with that many entries")?;
        let mut meta = HashMap::new();
        for _ in 0..entries {
            let key = cursor.text("the name of a metadata entry")?;
            let value = cursor.value(&key)?;
            if meta.insert(key.clone(), value).is_some() {
                return Err(cursor.wrong(format!("{key} is there twice")));
            }
        }
        let alignment = match meta.get("general.alignment") {
            None => 32,
            Some(Meta::Whole(n)) if *n > 0 && *n <= 1 << 20 && (*n as u64).is_power_of_two() => {
                *n as u64
            }
            Some(other) => {
                let found = format!("general.alignment is {other}, which is no power of two");
                return Err(cursor.wrong(found));
            }
        };
        let mut stored = Vec::new();
        for _ in 0..tensors {
            stored.push(tensor(&mut cursor)?);
        }
        let data = cursor.at.next_multiple_of(alignment);
        let mut tensors = HashMap::new();
        for (name, mut tensor) in stored {
            if tensor.start % alignment != 0 {
                let found = format!(
                    "the tensor {name} starts at {}, not at a multiple of {alignment}",
                    tensor.start
                );
                return Err(cursor.wrong(found));
            }
            let start = data.checked_add(tensor.start);
            let end = start.and_then(|start| start.checked_add(tensor.size as u64));
            let (Some(start), Some(end)) = (start, end) else {
                return Err(cursor.wrong(format!("the tensor {name} starts beyond any file")));
            };
            if end > len {
                let found = format!(
                    "the tensor {name} ends at byte {end}, but the file has {len}: {} are missing",
                    end - len
                );
                return Err(cursor.wrong(found));
            }
            tensor.start = start;
            if tensors.insert(name.clone(), tensor).is_some() {
                return Err(cursor.wrong(format!("the tensor {name} is there twice")));
            }
        }
        Ok(Gguf {
            file,
            path,
            meta,
            tensors,
            alias: HashMap::new(),
        })
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// The names of the tensors, as the families call them where they have one.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let known: HashMap<&str, &str> = self
            .alias
            .iter()
            .map(|(ours, file)| (file.as_str(), ours.as_str()))
            .collect();
        let names = self.tensors.keys().map(String::as_str);
        names.map(move |name| known.get(name).copied().unwrap_or(name))
    }

    fn find(&self, name: &str) -> Option<&Stored> {
        self.tensors
            .get(self.alias.get(name).map_or(name, String::as_str))
    }

    pub(crate) fn shape(&self, name: &str) -> Option<Vec<usize>> {
        self.find(name).map(|tensor| tensor.shape.clone())
    }

    /// The numbers of a tensor in single precision, row-major.
    pub(crate) fn read(&mut self, name: &str) -> Result<Vec<f32>> {
        let Some(tensor) = self.find(name).cloned() else {
            return Err(Error::Damaged {
                path: self.path.clone(),
                found: format!("the tensor {name} is missing"),
                remedy: AGAIN,
            });
        };
        let io = |error| Error::io(Path::new(&self.path), error);
        self.file.seek(SeekFrom::Start(tensor.start)).map_err(io)?;
        let mut bytes = vec![0; tensor.size];
        self.file.read_exact(&mut bytes).map_err(io)?;
        let tensor = qtensor_from_ggml(tensor.dtype, &bytes, tensor.shape, &Device::Cpu)?;
        Ok(tensor.dequantize(&Device::Cpu)?.flatten_all()?.to_vec1()?)
    }
}

/// Name, shape, type and place of one tensor; the place counts from where the data begins.
fn tensor(cursor: &mut Cursor<'_>) -> Result<(String, Stored)> {
    let name = cursor.text("the name of a tensor")?;
    let axes = cursor.u32(&name)?;
    if !(1..=4).contains(&axes) {
        return Err(cursor.wrong(format!(
            "the tensor {name} has {axes} axes, where 1 to 4 are possible"
        )));
    }
    let mut shape = Vec::new();
    for _ in 0..axes {
        let size = cursor.u64(&name)?;
        shape.push(usize::try_from(size).unwrap_or(usize::MAX));
    }
    shape.reverse();
    let kind = cursor.u32(&name)?;
    let Some(dtype) = dtype(kind) else {
        return Err(cursor.wrong(format!(
            "the tensor {name} is stored in the format number {kind}, which is not read; F32, F16, \
             BF16, Q4_0 to Q8_0 and Q2_K to Q8_K are"
        )));
    };
    let start = cursor.u64(&name)?;
    let count = shape
        .iter()
        .try_fold(1_usize, |product, &size| product.checked_mul(size))
        .filter(|count| *count > 0 && *count < 1 << 48);
    let size = count.filter(|count| count.is_multiple_of(dtype.block_size()));
    let Some(size) = size.map(|count| count / dtype.block_size() * dtype.type_size()) else {
        return Err(cursor.wrong(format!(
            "the tensor {name} has the shape {shape:?}, which is empty, too large, or no multiple of a \
             block of {} numbers",
            dtype.block_size()
        )));
    };
    Ok((
        name,
        Stored {
            dtype,
            shape,
            start,
            size,
        },
    ))
}

fn dtype(kind: u32) -> Option<GgmlDType> {
    Some(match kind {
        0 => GgmlDType::F32,
        1 => GgmlDType::F16,
        2 => GgmlDType::Q4_0,
        3 => GgmlDType::Q4_1,
        6 => GgmlDType::Q5_0,
        7 => GgmlDType::Q5_1,
        8 => GgmlDType::Q8_0,
        9 => GgmlDType::Q8_1,
        10 => GgmlDType::Q2K,
        11 => GgmlDType::Q3K,
        12 => GgmlDType::Q4K,
        13 => GgmlDType::Q5K,
        14 => GgmlDType::Q6K,
        15 => GgmlDType::Q8K,
        30 => GgmlDType::BF16,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b117_sizes_are_stored_reversed() -> std::result::Result<(), Box<dyn std::error::Error>> {
        let mut bytes = b"GGUF\x03\0\0\0".to_vec();
        bytes.extend([1_u64, 0].map(u64::to_le_bytes).concat());
        bytes.extend(1_u64.to_le_bytes());
        bytes.extend(b"t\x02\0\0\0");
        bytes.extend([3_u64, 2].map(u64::to_le_bytes).concat());
        // Single precision, at the start of the data.
        bytes.extend([0; 4 + 8]);
        bytes.resize(bytes.len().next_multiple_of(32), 0);
        bytes.extend(
            [1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0]
                .map(f32::to_le_bytes)
                .concat(),
        );
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("b117.gguf");
        std::fs::write(&path, bytes)?;
        let mut gguf = Gguf::open(&path)?;
        assert_eq!(gguf.shape("t"), Some(vec![2, 3]));
        assert_eq!(gguf.read("t")?, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        Ok(())
    }
}
