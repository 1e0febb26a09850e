//! Arrays that lie in memory in every way that a view allows.

use half::{bf16, f16};
use qkv::{AnyView, Element, View};

/// What lies between the elements of a view: a number that would be noticed.
pub trait Gap: Copy {
    const GAP: Self;
}

impl Gap for f16 {
    const GAP: f16 = f16::NAN;
}
impl Gap for bf16 {
    const GAP: bf16 = bf16::NAN;
}
impl Gap for f32 {
    const GAP: f32 = f32::NAN;
}
impl Gap for f64 {
    const GAP: f64 = f64::NAN;
}
impl Gap for bool {
    const GAP: bool = true;
}

/// Data with a layout: shape `[b, h, l, d]`, and how it lies in memory. The data ends and begins
/// with an element of the view.
#[derive(Clone, Debug)]
pub struct Array<T> {
    pub data: Vec<T>,
    pub offset: usize,
    pub shape: [usize; 4],
    pub strides: [isize; 4],
}

/// How an array lies in memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Layout {
    Plain,
    /// `[batch, length, heads, head_dim]`
    Blhd,
    /// The length axis runs backwards.
    Reversed,
    /// Every second column.
    Gaps,
    /// Columns run along the length.
    Transposed,
    /// The columns run backwards.
    Backwards,
    /// A gap behind each row.
    Padded,
    /// Very far apart: the batch is inside the columns, and all axes run backwards.
    Inside,
}

pub const LAYOUTS: [Layout; 8] = [
    Layout::Plain,
    Layout::Blhd,
    Layout::Reversed,
    Layout::Gaps,
    Layout::Transposed,
    Layout::Backwards,
    Layout::Padded,
    Layout::Inside,
];

impl<T: Gap> Array<T> {
    pub fn new(shape: [usize; 4], layout: Layout, value: impl FnMut([usize; 4]) -> T) -> Self {
        Array::shared(shape, [false; 4], layout, value)
    }

    /// Axes that are `shared` have one element that serves all: their stride is 0.
    pub fn shared(
        shape: [usize; 4],
        shared: [bool; 4],
        layout: Layout,
        mut value: impl FnMut([usize; 4]) -> T,
    ) -> Self {
        let stored: [usize; 4] = std::array::from_fn(|axis| {
            if shared[axis] {
                shape[axis].min(1)
            } else {
                shape[axis]
            }
        });
        let [b, h, l, d] = stored.map(|n| n as isize);
        let mut strides = match layout {
            Layout::Plain => [h * l * d, l * d, d, 1],
            Layout::Blhd => [l * h * d, d, h * d, 1],
            Layout::Reversed => [h * l * d, l * d, -d, 1],
            Layout::Gaps => [h * l * 2 * d, l * 2 * d, 2 * d, 2],
            Layout::Transposed => [h * l * d, l * d, 1, l],
            Layout::Backwards => [h * l * d, l * d, d, -1],
            Layout::Padded => [h * l * (d + 3), l * (d + 3), d + 3, 1],
            Layout::Inside => [-3, -3 * b, -3 * b * h, -3 * b * h * l],
        };
        let (mut offset, mut reach) = (0, 0);
        for axis in 0..4 {
            if shared[axis] {
                strides[axis] = 0;
            }
            let end = (stored[axis] as isize - 1).max(0) * strides[axis];
            offset -= end.min(0);
            reach += end.abs();
        }
        let empty = stored.contains(&0);
        let mut array = Array {
            data: vec![T::GAP; if empty { 0 } else { reach as usize + 1 }],
            offset: if empty { 0 } else { offset as usize },
            shape,
            strides,
        };
        for b in 0..stored[0] {
            for h in 0..stored[1] {
                for l in 0..stored[2] {
                    for d in 0..stored[3] {
                        let at = array.position([b, h, l, d]);
                        array.data[at] = value([b, h, l, d]);
                    }
                }
            }
        }
        array
    }

    pub fn position(&self, index: [usize; 4]) -> usize {
        let mut at = self.offset as isize;
        for axis in 0..4 {
            at += index[axis] as isize * self.strides[axis];
        }
        at as usize
    }

    pub fn get(&self, index: [usize; 4]) -> T {
        self.data[self.position(index)]
    }

    pub fn view(&self) -> View<'_, T> {
        View::strided(&self.data, self.offset, self.shape, self.strides).unwrap()
    }

    /// Axes that one element serves.
    pub fn shared_axes(&self) -> [bool; 4] {
        self.strides.map(|stride| stride == 0)
    }

    /// The same numbers in another layout and type.
    pub fn map<U: Gap>(&self, layout: Layout, to: impl Fn(T) -> U) -> Array<U> {
        Array::shared(self.shape, self.shared_axes(), layout, |index| {
            to(self.get(index))
        })
    }

    /// Elements `from..to` of an axis, row-major. An axis of length 1 serves all and stays, if
    /// `of` is not 1 itself.
    pub fn part(&self, axis: usize, from: usize, to: usize, of: usize) -> Array<T> {
        if self.shape[axis] == 1 && of != 1 {
            return self.map(Layout::Plain, |x| x);
        }
        let mut shape = self.shape;
        shape[axis] = to - from;
        Array::new(shape, Layout::Plain, |mut index| {
            index[axis] += from;
            self.get(index)
        })
    }
}

/// Numbers of any type.
#[derive(Clone, Debug)]
pub enum AnyArray {
    F16(Array<f16>),
    Bf16(Array<bf16>),
    F32(Array<f32>),
    F64(Array<f64>),
}

impl AnyArray {
    pub fn view(&self) -> AnyView<'_> {
        match self {
            AnyArray::F16(array) => array.view().into(),
            AnyArray::Bf16(array) => array.view().into(),
            AnyArray::F32(array) => array.view().into(),
            AnyArray::F64(array) => array.view().into(),
        }
    }
}

/// Whether two slices have the same bits, any NaN counting as any other.
pub fn same_bits<T: Element>(a: &[T], b: &[T]) -> bool {
    a.len() == b.len()
        && a.iter().zip(b).all(|(a, b)| {
            let (a, b) = (a.to_f64(), b.to_f64());
            a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
        })
}
