//! Named arrays as bytes of a file, written value by value, so that an array need never be whole in
//! memory.

use std::collections::BTreeMap;
use std::io::{self, Write};

use half::{bf16, f16};
use serde_json::{Map, Value, json};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use crate::array::Values;
use crate::npy;

/// A format that arrays are written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// One array; bf16 has no name in it.
    Npy,
    /// A zip of npy files, not compressed.
    Npz,
    /// Any types.
    Safetensors,
    /// An object of nested lists; what is not finite is a word.
    Json,
}

/// Some values that follow each other in an array.
#[derive(Debug, Clone, Copy)]
pub enum Chunk<'a> {
    /// IEEE half precision.
    F16(&'a [f16]),
    /// Brain floating point.
    Bf16(&'a [bf16]),
    /// Single precision.
    F32(&'a [f32]),
    /// Double precision.
    F64(&'a [f64]),
    /// Signed integers of 32 bits.
    I32(&'a [i32]),
    /// Signed integers.
    I64(&'a [i64]),
    /// Unsigned integers.
    U64(&'a [u64]),
    /// Truth values.
    Bool(&'a [bool]),
}

/// Slices of numbers are chunks of their type.
macro_rules! from_slice {
    ($($variant:ident $type:ty),*) => {$(
        impl<'a> From<&'a [$type]> for Chunk<'a> {
            fn from(values: &'a [$type]) -> Self {
                Chunk::$variant(values)
            }
        }
    )*};
}
from_slice!(F16 f16, Bf16 bf16, F32 f32, F64 f64, I32 i32, I64 i64, U64 u64, Bool bool);

impl<'a> From<&'a Values> for Chunk<'a> {
    fn from(values: &'a Values) -> Self {
        match values {
            Values::F16(v) => Chunk::F16(v),
            Values::Bf16(v) => Chunk::Bf16(v),
            Values::F32(v) => Chunk::F32(v),
            Values::F64(v) => Chunk::F64(v),
            Values::I64(v) => Chunk::I64(v),
            Values::U64(v) => Chunk::U64(v),
            Values::Bool(v) => Chunk::Bool(v),
        }
    }
}

/// Runs one expression for whichever slice the chunk is.
macro_rules! each {
    ($chunk:expr, $v:ident => $body:expr) => {
        match $chunk {
            Chunk::F16($v) => $body,
            Chunk::Bf16($v) => $body,
            Chunk::F32($v) => $body,
            Chunk::F64($v) => $body,
            Chunk::I32($v) => $body,
            Chunk::I64($v) => $body,
            Chunk::U64($v) => $body,
            Chunk::Bool($v) => $body,
        }
    };
}

impl Chunk<'_> {
    pub(crate) fn len(self) -> usize {
        each!(self, v => v.len())
    }

    /// The type's name: `f16`, `bf16`, `f32`, `f64`, `i32`, `i64`, `u64` or `bool`.
    pub fn dtype(self) -> &'static str {
        match self {
            Chunk::F16(_) => "f16",
            Chunk::Bf16(_) => "bf16",
            Chunk::F32(_) => "f32",
            Chunk::F64(_) => "f64",
            Chunk::I32(_) => "i32",
            Chunk::I64(_) => "i64",
            Chunk::U64(_) => "u64",
            Chunk::Bool(_) => "bool",
        }
    }

    fn write_bytes(self, out: &mut dyn Write) -> io::Result<()> {
        /// Values of `N` bytes each, some thousand at a time.
        fn write<T: Copy, const N: usize>(
            values: &[T],
            bytes: impl Fn(T) -> [u8; N],
            out: &mut dyn Write,
        ) -> io::Result<()> {
            let mut buffer = Vec::with_capacity(N << 12);
            for part in values.chunks(1 << 12) {
                buffer.clear();
                buffer.extend(part.iter().flat_map(|&value| bytes(value)));
                out.write_all(&buffer)?;
            }
            Ok(())
        }
        match self {
            Chunk::F16(v) => write(v, f16::to_le_bytes, out),
            Chunk::Bf16(v) => write(v, bf16::to_le_bytes, out),
            Chunk::F32(v) => write(v, f32::to_le_bytes, out),
            Chunk::F64(v) => write(v, f64::to_le_bytes, out),
            Chunk::I32(v) => write(v, i32::to_le_bytes, out),
            Chunk::I64(v) => write(v, i64::to_le_bytes, out),
            Chunk::U64(v) => write(v, u64::to_le_bytes, out),
            Chunk::Bool(v) => write(v, |value| [u8::from(value)], out),
        }
    }
}

/// Takes the next values of an array.
pub type Sink<'s> = dyn FnMut(Chunk<'_>) -> io::Result<()> + 's;

/// Hands all values of an array to a sink.
pub type Source<'a> = Box<dyn FnOnce(&mut Sink<'_>) -> io::Result<()> + 'a>;

/// An array that is about to be written.
pub struct Encoded<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its type, as [`Chunk::dtype`] has it.
    pub dtype: &'static str,
    /// Its shape.
    pub shape: &'a [usize],
    /// Gives all of its values in row-major order, in as many chunks as it likes.
    pub values: Source<'a>,
}

impl<'a> Encoded<'a> {
    /// An array that is in memory.
    pub fn whole(name: &'a str, shape: &'a [usize], values: impl Into<Chunk<'a>>) -> Self {
        let values = values.into();
        Encoded {
            name,
            dtype: values.dtype(),
            shape,
            values: Box::new(move |sink| sink(values)),
        }
    }

    fn count(&self) -> usize {
        self.shape.iter().product()
    }

    fn byte_size(&self) -> usize {
        self.count().saturating_mul(size(self.dtype))
    }

    /// Hands all values on, and sees to it that they are as many as the shape says.
    fn write(self, sink: &mut Sink<'_>) -> io::Result<()> {
        let (name, dtype, count) = (self.name, self.dtype, self.count());
        let mut found = 0;
        (self.values)(&mut |chunk| {
            found += chunk.len();
            if chunk.dtype() != dtype || found > count {
                return Err(io::Error::other(format!(
                    "{name} has other values than announced"
                )));
            }
            sink(chunk)
        })?;
        if found < count {
            return Err(io::Error::other(format!(
                "{name} has fewer values than announced"
            )));
        }
        Ok(())
    }
}

/// Bytes of a value.
fn size(dtype: &str) -> usize {
    match dtype {
        "bool" => 1,
        "f16" | "bf16" => 2,
        "f32" | "i32" => 4,
        _ => 8,
    }
}

/// Writes arrays of different names in a format.
///
/// `notes` go in front of the arrays in JSON, and among the metadata of a safetensors file, as text.
///
/// # Errors
/// Those of `out` and of what gives the values, and of a format that cannot hold them: npy holds
/// one array, and neither npy nor npz holds bf16.
///
/// ```
/// use qkv_io::{Encoded, Encoding, encode};
/// let mut file = Vec::new();
/// let array = Encoded::whole("x", &[1, 2], &[0.5_f32, f32::NEG_INFINITY][..]);
/// encode(&mut file, Encoding::Json, vec![array], &[])?;
/// assert_eq!(file, b"{\"x\":[[0.5,\"-inf\"]]}\n");
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn encode(
    out: &mut dyn Write,
    encoding: Encoding,
    arrays: Vec<Encoded<'_>>,
    notes: &[(&str, Value)],
) -> io::Result<()> {
    match encoding {
        Encoding::Safetensors => safetensors(out, arrays, notes),
        Encoding::Json => json_object(out, arrays, notes),
        Encoding::Npz => npz(out, arrays),
        Encoding::Npy => {
            let mut arrays = arrays.into_iter();
            match (arrays.next(), arrays.next()) {
                (Some(array), None) => npy(out, array),
                _ => Err(io::Error::other("an npy file holds one array")),
            }
        }
    }
}

/// Wider types come first, so that each value lies at a multiple of its size.
fn safetensors(
    out: &mut dyn Write,
    mut arrays: Vec<Encoded<'_>>,
    notes: &[(&str, Value)],
) -> io::Result<()> {
    arrays.sort_by_key(|array| std::cmp::Reverse(size(array.dtype)));
    let mut header = Map::new();
    if !notes.is_empty() {
        let text = |note: &Value| note.as_str().map_or(note.to_string(), Into::into);
        let notes: BTreeMap<_, _> = notes.iter().map(|(key, note)| (*key, text(note))).collect();
        header.insert("__metadata__".into(), json!(notes));
    }
    let mut start = 0_usize;
    for array in &arrays {
        let end = start.saturating_add(array.byte_size());
        let entry = json!({
            "dtype": array.dtype.to_uppercase(),
            "shape": array.shape,
            "data_offsets": [start, end],
        });
        header.insert(array.name.to_owned(), entry);
        start = end;
    }
    let mut header = Value::Object(header).to_string().into_bytes();
    header.resize(header.len().next_multiple_of(8), b' ');
    out.write_all(&(header.len() as u64).to_le_bytes())?;
    out.write_all(&header)?;
    for array in arrays {
        array.write(&mut |chunk| chunk.write_bytes(out))?;
    }
    Ok(())
}

fn npy(out: &mut dyn Write, array: Encoded<'_>) -> io::Result<()> {
    let Some(header) = npy::header_bytes(array.dtype, array.shape) else {
        let says = format!("npy has no name for {}; use safetensors", array.dtype);
        return Err(io::Error::other(says));
    };
    out.write_all(&header)?;
    array.write(&mut |chunk| chunk.write_bytes(out))
}

fn npz(out: &mut dyn Write, arrays: Vec<Encoded<'_>>) -> io::Result<()> {
    let mut zip = ZipWriter::new_stream(out);
    let options = SimpleFileOptions::default()
        .compression_method(CompressionMethod::Stored)
        .large_file(true);
    for array in arrays {
        zip.start_file(format!("{}.npy", array.name), options)?;
        npy(&mut zip, array)?;
    }
    zip.finish()?.flush()
}

fn json_object(
    out: &mut dyn Write,
    arrays: Vec<Encoded<'_>>,
    notes: &[(&str, Value)],
) -> io::Result<()> {
    out.write_all(b"{")?;
    let mut comma = "";
    for (key, note) in notes {
        write!(out, "{comma}{}:{note}", Value::from(*key))?;
        comma = ",";
    }
    for array in arrays {
        write!(out, "{comma}{}:", Value::from(array.name))?;
        comma = ",";
        json_lists(out, array)?;
    }
    out.write_all(b"}\n")
}

/// Lists in lists, as deep as the array has axes.
fn json_lists(out: &mut dyn Write, array: Encoded<'_>) -> io::Result<()> {
    let shape = array.shape;
    if shape.contains(&0) {
        write!(out, "{}", hollow(shape))?;
        return array.write(&mut |_| Ok(()));
    }
    // How many values a list of each depth holds.
    let sizes: Vec<usize> = (0..shape.len())
        .map(|axis| shape[axis..].iter().product())
        .collect();
    let mut at = 0_usize;
    array.write(&mut |chunk| {
        each!(chunk, values => values.iter().try_for_each(|value| {
            if at > 0 {
                out.write_all(b",")?;
            }
            for _ in sizes.iter().filter(|&size| at.is_multiple_of(*size)) {
                out.write_all(b"[")?;
            }
            value.write_json(out)?;
            at += 1;
            for _ in sizes.iter().filter(|&size| at.is_multiple_of(*size)) {
                out.write_all(b"]")?;
            }
            Ok(())
        }))
    })
}

/// Lists without a value.
fn hollow(shape: &[usize]) -> Value {
    match shape.split_first() {
        None | Some((0, _)) => json!([]),
        Some((&length, inner)) => (0..length).map(|_| hollow(inner)).collect(),
    }
}

/// A value in JSON.
trait Json {
    fn write_json(&self, out: &mut dyn Write) -> io::Result<()>;
}

macro_rules! json_plain {
    ($($type:ty),*) => {$(
        impl Json for $type {
            fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
                write!(out, "{self}")
            }
        }
    )*};
}
json_plain!(i32, i64, u64, bool);

/// The shortest decimal that is read as the same number; a word for what is not finite.
macro_rules! json_float {
    ($($type:ty),*) => {$(
        impl Json for $type {
            fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
                if self.is_nan() {
                    out.write_all(b"\"nan\"")
                } else if self.is_infinite() {
                    out.write_all(if *self > 0.0 { b"\"inf\"" } else { b"\"-inf\"" })
                } else {
                    write!(out, "{self:?}")
                }
            }
        }
    )*};
}
json_float!(f32, f64);

impl Json for f16 {
    fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        self.to_f32().write_json(out)
    }
}

impl Json for bf16 {
    fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        self.to_f32().write_json(out)
    }
}
