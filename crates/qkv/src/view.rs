//! Strided views of somebody's numbers, and the dtypes they may have.

use crate::error::{Error, Result, Shape};
use half::{bf16, f16};
use std::fmt;
use std::ops::Deref;

/// The number formats that attention reads and writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DType {
    /// IEEE half precision: 11 significant bits, largest 65504.
    F16,
    /// bfloat16: 8 significant bits, the range of `f32`.
    Bf16,
    /// IEEE single precision: 24 significant bits.
    F32,
    /// IEEE double precision: 53 significant bits.
    F64,
}

mod sealed {
    pub trait Sealed {}
}

/// A number that attention reads and writes: `f16`, `bf16`, `f32` or `f64`.
pub trait Element: Copy + Send + Sync + 'static + sealed::Sealed {
    /// Which one.
    const DTYPE: DType;
    /// The same value in `f64`; exact.
    fn to_f64(self) -> f64;
    /// The nearest value of this type, ties to even.
    fn from_f64(value: f64) -> Self;
}

macro_rules! element {
    ($t:ty, $dtype:ident, $to:expr, $from:expr) => {
        impl sealed::Sealed for $t {}
        impl Element for $t {
            const DTYPE: DType = DType::$dtype;
            fn to_f64(self) -> f64 {
                $to(self)
            }
            fn from_f64(value: f64) -> Self {
                $from(value)
            }
        }
    };
}
element!(f16, F16, f16::to_f64, |v| f16::from_f32(to_odd(v)));
element!(bf16, Bf16, bf16::to_f64, |v| bf16::from_f32(to_odd(v)));
element!(f32, F32, f64::from, |v| v as f32);
element!(f64, F64, |v| v, |v| v);

/// The value in `f32`; of the two neighbours where it is neither, the one with an odd last bit.
/// Rounding that to a narrower type gives the nearest value: to the nearest `f32` first would
/// round twice, as would `f16::from_f64` itself.
fn to_odd(value: f64) -> f32 {
    let nearest = value as f32;
    let back = f64::from(nearest);
    let bits = nearest.to_bits();
    if back == value || value.is_nan() || bits & 1 == 1 {
        nearest
    } else if back.abs() < value.abs() {
        f32::from_bits(bits + 1)
    } else {
        f32::from_bits(bits - 1)
    }
}

/// A read-only view of four axes, `[batch, heads, length, head_dim]`, into data that may be
/// strided: transposed, sliced, reversed (negative strides) or repeated (stride 0).
///
/// The constructors check that every element the view can name lies inside the data.
///
/// ```
/// use qkv::View;
/// // [length, heads, head_dim] in memory, seen as [1, heads, length, head_dim] without a copy
/// let data = [1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
/// let blhd = View::new(&data, &[1, 2, 2, 2])?;
/// let bhld = blhd.swap_axes(1, 2);
/// assert_eq!(bhld.get([0, 0, 1, 0]), 5.0);
/// # Ok::<(), qkv::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct View<'a, T> {
    data: &'a [T],
    offset: usize,
    shape: [usize; 4],
    strides: [isize; 4],
}

impl<'a, T: Copy> View<'a, T> {
    /// A row-major view of all of `data`. Shapes of fewer than four axes get leading ones, so
    /// `[length, head_dim]` is `[1, 1, length, head_dim]`.
    ///
    /// # Errors
    /// [`Error::Rank`] for more than four axes, [`Error::Count`] if the data has another number
    /// of elements.
    #[inline]
    pub fn new(data: &'a [T], shape: &[usize]) -> Result<Self> {
        // Not number by number: small calls make many views.
        let full = match *shape {
            [a, b, c, d] => [a, b, c, d],
            [b, c, d] => [1, b, c, d],
            [c, d] => [1, 1, c, d],
            [d] => [1, 1, 1, d],
            [] => [1; 4],
            _ => return Err(*too_many_axes(shape)),
        };
        if element_count(&full) != Some(data.len()) {
            return Err(*other_count("view", shape, data.len()));
        }
        // Cannot overflow where it is used: the product of non-empty axes is data.len().
        let along_c = full[3] as isize;
        let along_b = along_c.saturating_mul(full[2] as isize);
        let along_a = along_b.saturating_mul(full[1] as isize);
        Ok(View {
            data,
            offset: 0,
            shape: full,
            strides: [along_a, along_b, along_c, 1],
        })
    }

    /// A view with strides of its own, in elements; `offset` is where element `[0, 0, 0, 0]` is.
    /// Without elements, neither matters.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] if the view can name an element outside `data`.
    pub fn strided(
        data: &'a [T],
        offset: usize,
        shape: [usize; 4],
        strides: [isize; 4],
    ) -> Result<Self> {
        if shape.contains(&0) {
            // Nothing is anywhere, so what was given may be any numbers, which overflow where they
            // are multiplied.
            return Ok(View {
                data,
                offset: 0,
                shape,
                strides: [0, 0, 0, 1],
            });
        }
        let (mut low, mut high) = (offset as i128, offset as i128);
        for axis in 0..4 {
            let reach = (shape[axis] as i128 - 1).saturating_mul(strides[axis] as i128);
            if reach < 0 {
                low = low.saturating_add(reach);
            } else {
                high = high.saturating_add(reach);
            }
        }
        if low < 0 || high >= data.len() as i128 {
            return Err(Error::OutOfBounds {
                argument: "view",
                shape: shape.into(),
                strides: strides.to_vec(),
                offset,
                reach: if low < 0 { low } else { high }.clamp(i64::MIN.into(), i64::MAX.into())
                    as i64,
                found: data.len(),
            });
        }
        Ok(View {
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

    /// All of the data, and where element `[0, 0, 0, 0]` is in it.
    pub(crate) fn raw(&self) -> (&'a [T], usize) {
        (self.data, self.offset)
    }

    /// The element at `[batch, head, position, column]`.
    ///
    /// # Panics
    /// If an index is outside the shape, as indexing a slice does.
    pub fn get(&self, index: [usize; 4]) -> T {
        let mut at = self.offset as isize;
        for axis in 0..4 {
            assert!(
                index[axis] < self.shape[axis],
                "index {index:?} is outside shape {:?}",
                self.shape
            );
            at += index[axis] as isize * self.strides[axis];
        }
        self.data[at as usize]
    }

    /// The same elements with two axes exchanged: `swap_axes(1, 2)` sees `[batch, length, heads,
    /// head_dim]` (BLHD) as `[batch, heads, length, head_dim]` (BHLD).
    ///
    /// # Panics
    /// If an axis is not below 4.
    #[must_use]
    pub fn swap_axes(mut self, a: usize, b: usize) -> Self {
        self.shape.swap(a, b);
        self.strides.swap(a, b);
        self
    }

    /// Of one axis only the elements `start..start + len`.
    ///
    /// ```
    /// let view = qkv::View::new(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &[3, 2])?;
    /// let last = view.narrow(2, 2, 1);
    /// assert_eq!((last.shape(), last.get([0, 0, 0, 1])), ([1, 1, 1, 2], 6.0));
    /// # Ok::<(), qkv::Error>(())
    /// ```
    ///
    /// # Panics
    /// If the axis has fewer elements.
    #[must_use]
    pub fn narrow(mut self, axis: usize, start: usize, len: usize) -> Self {
        let end = start.checked_add(len);
        assert!(
            end.is_some_and(|end| end <= self.shape[axis]),
            "{len} elements from {start} of axis {axis} of shape {:?}",
            self.shape
        );
        self.shape[axis] = len;
        if !self.shape.contains(&0) {
            let offset = self.offset as isize + start as isize * self.strides[axis];
            self.offset = offset as usize;
        }
        self
    }

    /// The same elements in an axis of length 1 repeated to fit `shape`; `None` if an axis is
    /// neither 1 nor equal.
    #[must_use]
    pub fn broadcast(mut self, shape: [usize; 4]) -> Option<Self> {
        for axis in 0..4 {
            if self.shape[axis] != shape[axis] {
                if self.shape[axis] != 1 {
                    return None;
                }
                self.shape[axis] = shape[axis];
                self.strides[axis] = 0;
            }
        }
        Some(self)
    }
}

/// A view of numbers of any dtype, for arguments that may differ in dtype from q, k and v.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum AnyView<'a> {
    /// Half precision.
    F16(View<'a, f16>),
    /// bfloat16.
    Bf16(View<'a, bf16>),
    /// Single precision.
    F32(View<'a, f32>),
    /// Double precision.
    F64(View<'a, f64>),
}

macro_rules! each {
    ($any:expr, $view:ident => $body:expr) => {
        match $any {
            AnyView::F16($view) => $body,
            AnyView::Bf16($view) => $body,
            AnyView::F32($view) => $body,
            AnyView::F64($view) => $body,
        }
    };
}

impl<'a> AnyView<'a> {
    /// Sizes of the four axes.
    pub fn shape(&self) -> [usize; 4] {
        each!(self, view => view.shape())
    }

    /// The element at an index, exactly, in `f64`.
    ///
    /// # Panics
    /// If an index is outside the shape.
    pub fn get(&self, index: [usize; 4]) -> f64 {
        each!(self, view => view.get(index).to_f64())
    }

    /// As [`View::narrow`].
    ///
    /// # Panics
    /// If the axis has fewer elements.
    #[must_use]
    pub fn narrow(self, axis: usize, start: usize, len: usize) -> Self {
        match self {
            AnyView::F16(view) => AnyView::F16(view.narrow(axis, start, len)),
            AnyView::Bf16(view) => AnyView::Bf16(view.narrow(axis, start, len)),
            AnyView::F32(view) => AnyView::F32(view.narrow(axis, start, len)),
            AnyView::F64(view) => AnyView::F64(view.narrow(axis, start, len)),
        }
    }

    /// As [`View::broadcast`].
    #[must_use]
    pub fn broadcast(self, shape: [usize; 4]) -> Option<Self> {
        Some(match self {
            AnyView::F16(view) => AnyView::F16(view.broadcast(shape)?),
            AnyView::Bf16(view) => AnyView::Bf16(view.broadcast(shape)?),
            AnyView::F32(view) => AnyView::F32(view.broadcast(shape)?),
            AnyView::F64(view) => AnyView::F64(view.broadcast(shape)?),
        })
    }
}

macro_rules! any_view_from {
    ($($t:ty => $variant:ident),*) => {$(
        impl<'a> From<View<'a, $t>> for AnyView<'a> {
            fn from(view: View<'a, $t>) -> Self {
                AnyView::$variant(view)
            }
        }
    )*};
}
any_view_from!(f16 => F16, bf16 => Bf16, f32 => F32, f64 => F64);

/// An owned row-major array of any number of axes: what functions return.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor<T> {
    shape: Axes,
    data: Vec<T>,
}

/// Sizes of axes, the usual number of them without memory of their own: small calls are many.
#[derive(Clone)]
enum Axes {
    Few([usize; 4], usize),
    Many(Box<[usize]>),
}

impl From<&[usize]> for Axes {
    #[inline]
    fn from(sizes: &[usize]) -> Self {
        match *sizes {
            [] => Axes::Few([0; 4], 0),
            [a] => Axes::Few([a, 0, 0, 0], 1),
            [a, b] => Axes::Few([a, b, 0, 0], 2),
            [a, b, c] => Axes::Few([a, b, c, 0], 3),
            [a, b, c, d] => Axes::Few([a, b, c, d], 4),
            _ => Axes::Many(sizes.into()),
        }
    }
}

impl Deref for Axes {
    type Target = [usize];
    #[inline]
    fn deref(&self) -> &[usize] {
        match self {
            Axes::Few(sizes, count) => &sizes[..*count],
            Axes::Many(sizes) => sizes,
        }
    }
}

impl PartialEq for Axes {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl fmt::Debug for Axes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: Copy> Tensor<T> {
    /// Takes row-major data of the given shape.
    ///
    /// # Errors
    /// [`Error::Count`] if the data has another number of elements.
    pub fn new(shape: &[usize], data: Vec<T>) -> Result<Self> {
        if element_count(shape) != Some(data.len()) {
            return Err(*other_count("tensor", shape, data.len()));
        }
        Ok(Tensor {
            shape: shape.into(),
            data,
        })
    }

    /// `value` everywhere. The shape is one that inputs already have, so it is not checked.
    pub(crate) fn filled(shape: &[usize], value: T) -> Self {
        Tensor {
            shape: shape.into(),
            data: vec![value; element_count(shape).unwrap_or(usize::MAX)],
        }
    }

    /// Data of a shape that inputs already have, so it is not checked.
    pub(crate) fn of<const N: usize>(shape: [usize; N], data: Vec<T>) -> Self {
        let shape = shape[..].into();
        Tensor { shape, data }
    }

    /// Sizes of the axes.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The elements, row-major.
    pub fn data(&self) -> &[T] {
        &self.data
    }

    /// The elements, row-major, to be changed.
    pub fn data_mut(&mut self) -> &mut [T] {
        &mut self.data
    }

    /// The elements, row-major, without a copy.
    pub fn into_data(self) -> Vec<T> {
        self.data
    }

    fn position(&self, index: &[usize]) -> usize {
        assert!(
            index.len() == self.shape.len()
                && index.iter().zip(self.shape.iter()).all(|(i, n)| i < n),
            "index {index:?} is outside shape {:?}",
            self.shape
        );
        index
            .iter()
            .zip(self.shape.iter())
            .fold(0, |at, (i, n)| at * n + i)
    }

    /// The element at an index.
    ///
    /// # Panics
    /// If the index is outside the shape.
    pub fn at(&self, index: &[usize]) -> T {
        self.data[self.position(index)]
    }

    /// The element at an index, to be changed.
    ///
    /// # Panics
    /// If the index is outside the shape.
    pub fn at_mut(&mut self, index: &[usize]) -> &mut T {
        let position = self.position(index);
        &mut self.data[position]
    }

    /// The last axis at the given leading indices, for example row i of a matrix.
    ///
    /// # Panics
    /// If an index is outside the shape, or not exactly one axis is left.
    pub fn row(&self, index: &[usize]) -> &[T] {
        let width = self.shape.last().copied().unwrap_or(1);
        assert!(
            index.len() + 1 == self.shape.len()
                && index.iter().zip(self.shape.iter()).all(|(i, n)| i < n),
            "row {index:?} is outside shape {:?}",
            self.shape
        );
        let start = index
            .iter()
            .zip(self.shape.iter())
            .fold(0, |at, (i, n)| at * n + i)
            * width;
        &self.data[start..start + width]
    }

    /// A view of four axes, with leading ones where there are fewer.
    ///
    /// # Errors
    /// [`Error::Rank`] for more than four axes.
    pub fn view(&self) -> Result<View<'_, T>> {
        View::new(&self.data, &self.shape)
    }
}

/// Product of the sizes, `None` where it does not fit.
#[inline]
pub(crate) fn element_count(shape: &[usize]) -> Option<usize> {
    let (mut product, mut fits) = (1usize, true);
    for &size in shape {
        let (next, overflows) = product.overflowing_mul(size);
        (product, fits) = (next, fits & !overflows);
    }
    if fits && isize::try_from(product).is_ok() {
        return Some(product);
    }
    // A product that is too large for a while may still be 0.
    shape.contains(&0).then_some(0)
}

// Errors are made out of line, and boxed: written to where a view would be, they would keep the
// view in memory, where it would be copied from place to place.

#[cold]
fn too_many_axes(shape: &[usize]) -> Box<Error> {
    Box::new(Error::Rank {
        argument: "view",
        shape: shape.into(),
        expected: "at most 4 are possible, [batch, heads, length, head_dim]",
    })
}

#[cold]
fn other_count(argument: &'static str, shape: &[usize], found: usize) -> Box<Error> {
    let needed = element_count(shape);
    Box::new(Error::Count {
        argument,
        shape: Shape::from(shape),
        needed: needed.map_or("more than memory can address".into(), |n| n.to_string()),
        found,
    })
}
