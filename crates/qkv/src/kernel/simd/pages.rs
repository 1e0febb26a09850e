//! Memory for long caches, on large pages where the system has them.

use crate::view::Element;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// A large page: through small ones, decoding was slower by a tenth.
const LARGE_PAGE: usize = 2 << 20;

/// From so many bytes on; below, what is left over of the last page would be felt.
const LARGE: usize = 4 * LARGE_PAGE;

/// Of smaller memory, a line of the cache.
const LINE: usize = 64;

/// A slice of numbers, 0 at first, aligned to a line, or, where it is large, to a large page, for
/// which Linux is asked then. What has not been touched takes no memory.
pub struct Pages<T> {
    bytes: Vec<u8>,
    /// Bytes before the first number.
    offset: usize,
    len: usize,
    numbers: PhantomData<T>,
}

impl<T: Element> Pages<T> {
    /// `len` zeros.
    ///
    /// # Panics
    /// If they are more than memory can address, as a vector would.
    pub fn zeros(len: usize) -> Self {
        let needed = len.saturating_mul(size_of::<T>());
        let alignment = if needed >= LARGE { LARGE_PAGE } else { LINE };
        // Wherever the allocator begins; the last page is whole.
        let room = match needed {
            0 => 0,
            _ => needed.saturating_add(2 * alignment - 1) / alignment * alignment,
        };
        let bytes = vec![0; room];
        let offset = match needed {
            0 => 0,
            _ => bytes.as_ptr().align_offset(alignment),
        };
        assert!(offset.saturating_add(needed) <= bytes.len());
        if needed >= LARGE {
            ask_for_large_pages(&bytes[offset..][..needed]);
        }
        Pages {
            bytes,
            offset,
            len,
            numbers: PhantomData,
        }
    }
}

/// Before the memory is touched for the first time.
fn ask_for_large_pages(bytes: &[u8]) {
    #[cfg(target_os = "linux")]
    {
        use rustix::mm::{Advice, madvise};
        let at = bytes.as_ptr().cast_mut().cast();
        // SAFETY: this advice changes neither contents nor access, only what lies behind them.
        // A system that does not follow it has small pages, which is as good but for speed.
        let _ = unsafe { madvise(at, bytes.len(), Advice::LinuxHugepage) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = bytes;
}

impl<T: Element> Deref for Pages<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        if self.len == 0 {
            return &[];
        }
        let at = self.bytes[self.offset..].as_ptr().cast();
        // SAFETY: the vector, which never changes its size, holds `len` numbers from `offset` on,
        // which is a multiple of 64 bytes in memory. Every pattern of bits is an `Element`: the
        // trait is sealed, and all of them are floating-point numbers.
        unsafe { std::slice::from_raw_parts(at, self.len) }
    }
}

impl<T: Element> DerefMut for Pages<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        if self.len == 0 {
            return &mut [];
        }
        let at = self.bytes[self.offset..].as_mut_ptr().cast();
        // SAFETY: as above, and borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(at, self.len) }
    }
}

impl<T: Element> Clone for Pages<T> {
    fn clone(&self) -> Self {
        let mut copy = Pages::zeros(self.len);
        copy.copy_from_slice(self);
        copy
    }
}

impl<T: Element + std::fmt::Debug> std::fmt::Debug for Pages<T> {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (**self).fmt(to)
    }
}
