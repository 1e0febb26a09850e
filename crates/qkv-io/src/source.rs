//! Bytes that are read: a file or memory, with a known length.

use std::io::{self, Read, Seek, SeekFrom};

use crate::detect::Format;
use crate::error::{Error, Result};

/// What can be read and moved about in.
pub(crate) trait Stream: Read + Seek {}
impl<T: Read + Seek> Stream for T {}

/// A file or memory, its length and its name in messages.
pub(crate) struct Source<'a> {
    pub(crate) stream: &'a mut dyn Stream,
    pub(crate) len: u64,
    pub(crate) origin: &'a str,
    /// Most values that are read.
    pub(crate) most: u64,
}

impl Source<'_> {
    /// Moves to a byte.
    pub(crate) fn seek(&mut self, offset: u64) -> Result<()> {
        self.stream
            .seek(SeekFrom::Start(offset))
            .map(drop)
            .map_err(|e| unreadable(self.origin, e))
    }

    /// The bytes from `offset` on, fewer than `count` where the source ends; memory is taken only
    /// for bytes that are there.
    pub(crate) fn read_at(&mut self, offset: u64, count: u64) -> Result<Vec<u8>> {
        self.seek(offset)?;
        let count = count.min(self.len.saturating_sub(offset));
        read_up_to(&mut self.stream, count, count, self.origin)
    }

    /// Refuses an array of more values than are read.
    pub(crate) fn allow(&self, shape: &[usize], what: &'static str) -> Result<()> {
        allow(shape, self.most, self.origin, what)
    }

    /// There is no memory for so many bytes.
    pub(crate) fn memory(&self, size: u64) -> Error {
        Error::Memory {
            origin: self.origin.to_owned(),
            size,
        }
    }

    /// An error at a byte of this source.
    pub(crate) fn damaged(
        &self,
        format: Format,
        offset: u64,
        found: impl Into<String>,
        remedy: &'static str,
    ) -> Error {
        Error::Damaged {
            origin: self.origin.to_owned(),
            format,
            offset,
            found: found.into(),
            remedy,
        }
    }
}

/// Refuses an array of more values than are read.
pub(crate) fn allow(shape: &[usize], most: u64, origin: &str, what: &'static str) -> Result<()> {
    let size = shape.iter().fold(1_u128, |product, &size| {
        product.saturating_mul(size as u128)
    });
    if size <= u128::from(most) {
        return Ok(());
    }
    Err(Error::TooLarge {
        origin: origin.to_owned(),
        what,
        unit: "value",
        size: Some(size),
        limit: most.into(),
        remedy: "give a part of it",
    })
}

/// Reads at most `count` bytes; `reserve` is how many are believed to come.
pub(crate) fn read_up_to(
    stream: &mut impl Read,
    count: u64,
    reserve: u64,
    origin: &str,
) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let memory = || Error::Memory {
        origin: origin.to_owned(),
        size: count,
    };
    let reserve = usize::try_from(reserve.min(count)).map_err(|_| memory())?;
    bytes.try_reserve_exact(reserve).map_err(|_| memory())?;
    read_onto(&mut bytes, stream, count, origin)?;
    Ok(bytes)
}

/// Reads at most `count` bytes after those that are there.
pub(crate) fn read_onto(
    bytes: &mut Vec<u8>,
    stream: &mut impl Read,
    count: u64,
    origin: &str,
) -> Result<()> {
    match stream.take(count).read_to_end(bytes) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::OutOfMemory => Err(Error::Memory {
            origin: origin.to_owned(),
            // What was read did not fit once more.
            size: (bytes.len() as u64).saturating_mul(2),
        }),
        Err(error) => Err(unreadable(origin, error)),
    }
}

/// The error for a failed read.
pub(crate) fn unreadable(origin: &str, source: io::Error) -> Error {
    Error::Io {
        action: "read",
        path: origin.to_owned(),
        source,
    }
}
