//! Memory that ends, or begins, where the process may not read or write any more.
#![allow(dead_code, unsafe_code, clippy::unwrap_used)] // each test file uses a part

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use std::ffi::c_void;
use std::ptr::null_mut;

/// More than any page of the machines this runs on.
const PAGE: usize = 65536;

/// Which end of the data is at the inaccessible page.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Edge {
    Begin,
    End,
}

/// A copy of some data, with inaccessible pages on both sides and one edge right at them.
pub struct Pages<T> {
    map: *mut c_void,
    size: usize,
    data: *mut T,
    count: usize,
}

impl<T: Copy> Pages<T> {
    /// That may be read only.
    pub fn holding(data: &[T], edge: Edge) -> Self {
        let pages = Pages::writable(data, edge);
        let middle = pages.size - 2 * PAGE;
        // SAFETY: the pages between the outer two are this mapping's.
        unsafe {
            let first = pages.map.cast::<u8>().add(PAGE).cast();
            mprotect(first, middle, MprotectFlags::READ).unwrap();
        }
        pages
    }

    /// That may be written, too.
    pub fn writable(data: &[T], edge: Edge) -> Self {
        let bytes = size_of_val(data);
        let middle = bytes.next_multiple_of(PAGE).max(PAGE);
        let size = middle + 2 * PAGE;
        // SAFETY: a new mapping, of which only the middle becomes accessible; the copy fits in
        // it, and is aligned since its distance from a page's edge is a multiple of its alignment.
        unsafe {
            let nothing = ProtFlags::empty();
            let map = mmap_anonymous(null_mut(), size, nothing, MapFlags::PRIVATE).unwrap();
            let begin = map.cast::<u8>().add(PAGE);
            let both = MprotectFlags::READ | MprotectFlags::WRITE;
            mprotect(begin.cast(), middle, both).unwrap();
            let skipped = if edge == Edge::End { middle - bytes } else { 0 };
            let to = begin.add(skipped).cast::<T>();
            to.copy_from_nonoverlapping(data.as_ptr(), data.len());
            Pages {
                map,
                size,
                data: to,
                count: data.len(),
            }
        }
    }

    pub fn data(&self) -> &[T] {
        // SAFETY: initialised by the constructor, and changed through `data_mut` only.
        unsafe { std::slice::from_raw_parts(self.data, self.count) }
    }

    /// Of writable pages.
    pub fn data_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `data`, and borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.data, self.count) }
    }

    /// The number right behind the data, or right before it: ends the process.
    pub fn outside(&self, edge: Edge) -> T {
        let at = match edge {
            Edge::Begin => self.data.wrapping_sub(1),
            Edge::End => self.data.wrapping_add(self.count),
        };
        // SAFETY: none; that is what the caller tests.
        unsafe { at.read_volatile() }
    }
}

impl<T> Drop for Pages<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping of the constructor, which nobody borrows any more.
        unsafe { munmap(self.map, self.size).unwrap() };
    }
}
