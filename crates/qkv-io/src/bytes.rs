//! The one place that turns little- and big-endian bytes into values and back.

use half::{bf16, f16};

use crate::array::Values;

/// An element type as binary files store it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Element {
    F16,
    Bf16,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    Bool,
}

impl Element {
    /// Bytes per element.
    pub(crate) fn size(self) -> usize {
        match self {
            Element::I8 | Element::U8 | Element::Bool => 1,
            Element::F16 | Element::Bf16 | Element::I16 | Element::U16 => 2,
            Element::F32 | Element::I32 | Element::U32 => 4,
            Element::F64 | Element::I64 | Element::U64 => 8,
        }
    }
}

/// Bytes of one shape, or `None` where the product overflows.
pub(crate) fn byte_size(shape: &[usize], element_size: usize) -> Option<usize> {
    // A zero anywhere makes the product zero, but the other lengths must still be sane.
    let rest = shape
        .iter()
        .filter(|&&n| n != 0)
        .try_fold(element_size, |p, &n| p.checked_mul(n))?;
    Some(if shape.contains(&0) { 0 } else { rest })
}

/// Why bytes are no values.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The byte at this offset is no truth value.
    NoTruth(usize),
    /// There is no memory for this many bytes of values.
    Memory(u64),
}

/// An empty vector with room for `count` values, or the bytes that there is no memory for.
pub(crate) fn room<T>(count: usize) -> Result<Vec<T>, u64> {
    let mut values = Vec::new();
    match values.try_reserve_exact(count) {
        Ok(()) => Ok(values),
        Err(_) => Err((count as u64).saturating_mul(size_of::<T>() as u64)),
    }
}

/// Elements of `N` bytes each, converted one by one.
fn convert<const N: usize, T>(
    bytes: &[u8],
    big_endian: bool,
    from_le: impl Fn([u8; N]) -> T,
) -> Result<Vec<T>, Fault> {
    let (chunks, _) = bytes.as_chunks::<N>();
    let mut values = room(chunks.len()).map_err(Fault::Memory)?;
    let one = |chunk: &[u8; N]| {
        let mut chunk = *chunk;
        if big_endian {
            chunk.reverse();
        }
        from_le(chunk)
    };
    values.extend(chunks.iter().map(one));
    Ok(values)
}

/// The values that bytes hold.
pub(crate) fn values(element: Element, big_endian: bool, bytes: &[u8]) -> Result<Values, Fault> {
    let be = big_endian;
    Ok(match element {
        Element::F16 => Values::F16(convert(bytes, be, f16::from_le_bytes)?),
        Element::Bf16 => Values::Bf16(convert(bytes, be, bf16::from_le_bytes)?),
        Element::F32 => Values::F32(convert(bytes, be, f32::from_le_bytes)?),
        Element::F64 => Values::F64(convert(bytes, be, f64::from_le_bytes)?),
        Element::I8 => Values::I64(convert(bytes, be, |b| i8::from_le_bytes(b).into())?),
        Element::I16 => Values::I64(convert(bytes, be, |b| i16::from_le_bytes(b).into())?),
        Element::I32 => Values::I64(convert(bytes, be, |b| i32::from_le_bytes(b).into())?),
        Element::I64 => Values::I64(convert(bytes, be, i64::from_le_bytes)?),
        Element::U8 => Values::U64(convert(bytes, be, |b| u8::from_le_bytes(b).into())?),
        Element::U16 => Values::U64(convert(bytes, be, |b| u16::from_le_bytes(b).into())?),
        Element::U32 => Values::U64(convert(bytes, be, |b| u32::from_le_bytes(b).into())?),
        Element::U64 => Values::U64(convert(bytes, be, u64::from_le_bytes)?),
        Element::Bool => match bytes.iter().position(|&b| b > 1) {
            Some(at) => return Err(Fault::NoTruth(at)),
            None => Values::Bool(convert(bytes, be, |[b]: [u8; 1]| b == 1)?),
        },
    })
}
