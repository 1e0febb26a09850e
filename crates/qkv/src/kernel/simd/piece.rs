//! Parts of an array that threads write apart from one another, and sums on their way there.

use super::super::real::{Real, Stored};
use super::convert::Holds;
use super::values::sums_stride;
use crate::view_mut::ViewMut;
use std::marker::PhantomData;

/// The exclusive right to write some elements of an array: what a [`ViewMut`] is, but one that can
/// be cut along its axes. No two indices are the same element, so the parts share none.
pub struct Piece<'a, T> {
    first: *mut T,
    shape: [usize; 4],
    strides: [isize; 4],
    borrowed: PhantomData<&'a mut [T]>,
}

// SAFETY: as `&mut [T]`, since no other piece has an element of this one.
unsafe impl<T: Send> Send for Piece<'_, T> {}

impl<'a, T: Copy> Piece<'a, T> {
    /// All of it.
    pub fn of(view: ViewMut<'a, T>) -> Self {
        let (first, shape, strides) = view.into_raw();
        Piece {
            first,
            shape,
            strides,
            borrowed: PhantomData,
        }
    }

    /// Sizes of the four axes.
    pub fn shape(&self) -> [usize; 4] {
        self.shape
    }

    /// Takes the first `count` along an axis away; the rest stays.
    ///
    /// # Panics
    /// If there are not so many.
    pub fn take(&mut self, axis: usize, count: usize) -> Piece<'a, T> {
        assert!(count <= self.shape[axis]);
        let mut taken = Piece { ..*self };
        taken.shape[axis] = count;
        // May leave the array behind its last element; such a pointer is never used.
        let step = (count as isize).wrapping_mul(self.strides[axis]);
        self.first = self.first.wrapping_offset(step);
        self.shape[axis] -= count;
        taken
    }
}

/// What becomes of sums.
pub struct Give<'s, T> {
    /// Row i at `i·sums_stride(width)`, the rows of the piece in the order of its axes.
    pub sums: &'s [T],
    /// What they are multiplied by.
    pub factor: T,
    /// Whether they are added to what is there; else they take its place.
    pub add: bool,
}

/// `piece = factor·sums`, with +0 for −0, or `piece += factor·sums`, rounded once.
///
/// # Panics
/// If there are fewer sums than the piece has rows.
#[inline(always)]
pub(super) unsafe fn give<V: Holds<E>, E: Stored<Real = V::T>>(
    args: &Give<'_, V::T>,
    piece: &mut Piece<'_, E>,
) {
    let [batch, heads, length, width] = piece.shape;
    let stride = sums_stride(width);
    assert!(args.sums.len() >= batch * heads * length * stride);
    if width == 0 {
        return;
    }
    let mut from = args.sums.as_ptr();
    for b in 0..batch as isize {
        for h in 0..heads as isize {
            for i in 0..length as isize {
                let [of_b, of_h, of_i, of_c] = piece.strides;
                let to = piece.first.wrapping_offset(b * of_b + h * of_h + i * of_i);
                // SAFETY: an index of the shape is an element of this piece and of no other; all
                // loads lie in `sums`.
                unsafe {
                    if of_c == 1 || width == 1 {
                        row::<V, E>(args, from, to, width);
                    } else {
                        for c in 0..width {
                            let to = to.wrapping_offset(c as isize * of_c);
                            let x = *from.add(c) * args.factor;
                            let before = if args.add { (*to).widen() } else { V::T::ZERO };
                            *to = E::narrow(before + x);
                        }
                    }
                    from = from.add(stride);
                }
            }
        }
    }
}

/// One row of neighbouring columns.
#[inline(always)]
unsafe fn row<V: Holds<E>, E: Stored<Real = V::T>>(
    args: &Give<'_, V::T>,
    from: *const V::T,
    to: *mut E,
    width: usize,
) {
    unsafe {
        let (factor, zero) = (V::splat(args.factor), V::splat(V::T::ZERO));
        let mut at = 0;
        while at + V::LANES <= width {
            let before = if args.add { V::widen(to.add(at)) } else { zero };
            let x = V::load(from.add(at)).mul(factor);
            before.add(x).narrow(to.add(at));
            at += V::LANES;
        }
        if at < width {
            let n = width - at;
            let before = if args.add {
                V::widen_first(to.add(at), n)
            } else {
                zero
            };
            let x = V::load_first(from.add(at), n).mul(factor);
            before.add(x).narrow_first(to.add(at), n);
        }
    }
}
