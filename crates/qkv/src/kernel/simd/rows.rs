//! Read-only rows of numbers at a regular distance, and memory aligned for the registers.

use super::super::real::Real;
use std::ops::Range;

/// `count` rows of `width` neighbouring numbers, `stride` apart, inside one slice.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a, T> {
    data: &'a [T],
    start: isize,
    stride: isize,
    count: usize,
    width: usize,
}

impl<'a, T> Rows<'a, T> {
    /// # Panics
    /// If a row is not inside `data`.
    #[inline]
    pub fn new(data: &'a [T], start: usize, stride: isize, count: usize, width: usize) -> Self {
        if count == 0 || width == 0 {
            return Rows {
                data: &[],
                start: 0,
                stride: 0,
                count,
                width,
            };
        }
        let last = start as i128 + (count as i128 - 1) * stride as i128;
        let room = data.len() as i128 - width as i128;
        assert!(
            start as i128 <= room && (0..=room).contains(&last),
            "{count} rows of {width} from {start}, {stride} apart, in {} numbers",
            data.len()
        );
        Rows {
            data,
            start: start as isize,
            // The stride of a single row may be any number, even one that multiples of overflow.
            stride: if count == 1 { width as isize } else { stride },
            count,
            width,
        }
    }

    /// Number of rows.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Numbers in a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Distance from one row to the next.
    pub fn stride(&self) -> isize {
        self.stride
    }

    /// Some of the rows.
    ///
    /// # Panics
    /// If there are not so many.
    pub fn part(mut self, rows: Range<usize>) -> Self {
        assert!(rows.start <= rows.end && rows.end <= self.count);
        self.count = rows.len();
        if !rows.is_empty() {
            self.start += rows.start as isize * self.stride;
        }
        self
    }

    /// All rows as one slice, if they follow each other without a gap.
    pub fn flat(&self) -> Option<&'a [T]> {
        let gapless = self.stride == self.width as isize || self.count <= 1;
        let length = self.count * self.width;
        (gapless && length > 0).then(|| &self.data[self.start as usize..][..length])
    }

    /// One row.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn row(&self, index: usize) -> &'a [T] {
        assert!(index < self.count);
        let from = (self.start + index as isize * self.stride) as usize;
        &self.data[from..from + self.width]
    }

    /// What the rows lie in, and where row 0 begins in it.
    pub(super) fn data(&self) -> &'a [T] {
        self.data
    }

    /// See [`Rows::data`].
    pub(super) fn start(&self) -> usize {
        self.start as usize
    }

    /// Where row 0 begins; row i begins `i·stride` further, and `width` numbers of each are
    /// readable for i < `count`.
    pub(super) fn pointer(&self) -> *const T {
        self.data.as_ptr().wrapping_offset(self.start)
    }
}

/// 64 bytes that begin at a multiple of 64.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// Numbers that begin at a multiple of 64 bytes. Starts empty and only grows.
pub struct Aligned<T> {
    lines: Vec<Line>,
    numbers: std::marker::PhantomData<T>,
}

impl<T> Default for Aligned<T> {
    fn default() -> Self {
        Aligned {
            lines: Vec::new(),
            numbers: std::marker::PhantomData,
        }
    }
}

impl<T: Real> Aligned<T> {
    /// At least `count` numbers, of any value.
    pub fn get(&mut self, count: usize) -> &mut [T] {
        let needed = (count * size_of::<T>()).div_ceil(64);
        if self.lines.len() < needed {
            // Nothing in it is needed any more.
            self.lines = vec![Line([0; 64]); needed];
        }
        // SAFETY: the lines are initialised bytes, of which every pattern is an f32 or f64, the
        // only types that are `Real`, and are aligned for both.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), count) }
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.lines.len() * 64
    }
}
