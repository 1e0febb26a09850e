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
    stream
        .take(count)
        .read_to_end(&mut bytes)
        .map_err(|e| unreadable(origin, e))?;
    Ok(bytes)
}

/// The error for a failed read.
pub(crate) fn unreadable(origin: &str, source: io::Error) -> Error {
    Error::Io {
        action: "read",
        path: origin.to_owned(),
        source,
    }
}
