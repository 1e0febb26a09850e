//! Where a result is written: a strided view that is allowed to change its data.

use crate::error::{Error, Result};
use crate::view::View;

/// A view of four axes that may be written, `[batch, heads, length, head_dim]`, strided as a
/// [`View`] may be, so that the layout `[batch, length, heads, head_dim]` is written in place.
///
/// The constructors check that every element lies inside the data, and that no two indices are
/// the same element.
///
/// ```
/// use qkv::ViewMut;
/// let mut data = [0.0_f32; 8];
/// // [length, heads, head_dim] in memory, written as [1, heads, length, head_dim]
/// let blhd = ViewMut::new(&mut data, &[1, 2, 2, 2])?;
/// assert_eq!(blhd.swap_axes(1, 2).shape(), [1, 2, 2, 2]);
/// # Ok::<(), qkv::Error>(())
/// ```
#[derive(Debug)]
pub struct ViewMut<'a, T> {
    data: &'a mut [T],
    offset: usize,
    shape: [usize; 4],
    strides: [isize; 4],
}

impl<'a, T: Copy> ViewMut<'a, T> {
    /// A row-major view of all of `data`, with leading ones as in [`View::new`].
    ///
    /// # Errors
    /// Those of [`View::new`].
    #[inline]
    pub fn new(data: &'a mut [T], shape: &[usize]) -> Result<Self> {
        let view = View::new(data, shape)?;
        let (shape, strides) = (view.shape(), view.strides());
        Ok(ViewMut {
            data,
            offset: 0,
            shape,
            strides,
        })
    }

    /// A view with strides of its own, in elements; `offset` is where element `[0, 0, 0, 0]` is.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] if the view can name an element outside `data`,
    /// [`Error::Overlap`] if two indices may be the same element.
    pub fn strided(
        data: &'a mut [T],
        offset: usize,
        shape: [usize; 4],
        strides: [isize; 4],
    ) -> Result<Self> {
        let view = View::strided(data, offset, shape, strides)?;
        let (offset, strides) = (view.raw().1, view.strides());
        if !shape.contains(&0) {
            // From the smallest stride on, each must step over all that the smaller ones reach.
            let mut axes = [0, 1, 2, 3];
            axes.sort_by_key(|&axis| strides[axis].unsigned_abs());
            let mut reach = 0u128;
            for axis in axes.into_iter().filter(|&axis| shape[axis] > 1) {
                let stride = strides[axis].unsigned_abs() as u128;
                if stride <= reach {
                    return Err(Error::Overlap {
                        argument: "output",
                        shape: shape.into(),
                        strides: strides.to_vec(),
                    });
                }
                reach += stride * (shape[axis] as u128 - 1);
            }
        }
        Ok(ViewMut {
            data,
            offset,
            shape,
            strides,
        })
    }

    /// Sizes of the four axes.
    pub fn shape(&self) -> [usize; 4] {
        self.shape
    }

    /// Distance in elements between neighbours along each axis.
    pub fn strides(&self) -> [isize; 4] {
        self.strides
    }

    /// The same elements with two axes exchanged, as [`View::swap_axes`].
    ///
    /// # Panics
    /// If an axis is not below 4.
    #[must_use]
    pub fn swap_axes(mut self, a: usize, b: usize) -> Self {
        self.shape.swap(a, b);
        self.strides.swap(a, b);
        self
    }

    /// Pointer to element `[0, 0, 0, 0]`, shape and strides.
    pub(crate) fn into_raw(mut self) -> (*mut T, [usize; 4], [isize; 4]) {
        self.raw_mut()
    }

    /// As [`ViewMut::into_raw`], for as long as the view is borrowed.
    pub(crate) fn raw_mut(&mut self) -> (*mut T, [usize; 4], [isize; 4]) {
        (
            self.data.as_mut_ptr().wrapping_add(self.offset),
            self.shape,
            self.strides,
        )
    }
}
