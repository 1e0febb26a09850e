//! One array as somebody gave it.

use std::fmt::{Display, LowerExp};

use half::{bf16, f16};

use crate::bytes::room;
use crate::error::{Error, Result};
use crate::shown::shown_shape;

/// One array: its shape, its values in row-major order, and how it was typed.
#[derive(Debug, Clone, PartialEq)]
pub struct Array {
    /// Length of each axis; empty for a single number.
    pub shape: Vec<usize>,
    /// The values, row-major: the last axis runs fastest.
    pub values: Values,
    /// For numbers typed as text, the decimals of each: `0.3302` has 4, `12` has 0, `1.5e3` has
    /// −2, `3e-5` has 5; nan and inf have `i32::MAX`. `None` for binary files and truth values.
    pub decimals: Option<Vec<i32>>,
}

/// Values in the type they were stored in; integers of fewer than 64 bits are widened.
#[derive(Debug, Clone, PartialEq)]
pub enum Values {
    /// IEEE half precision.
    F16(Vec<f16>),
    /// Brain floating point.
    Bf16(Vec<bf16>),
    /// Single precision.
    F32(Vec<f32>),
    /// Double precision; also all numbers typed as text.
    F64(Vec<f64>),
    /// Signed integers.
    I64(Vec<i64>),
    /// Unsigned integers.
    U64(Vec<u64>),
    /// Truth values.
    Bool(Vec<bool>),
}

/// Runs one expression for whichever vector the values are.
macro_rules! each {
    ($values:expr, $v:ident => $body:expr) => {
        match $values {
            Values::F16($v) => $body,
            Values::Bf16($v) => $body,
            Values::F32($v) => $body,
            Values::F64($v) => $body,
            Values::I64($v) => $body,
            Values::U64($v) => $body,
            Values::Bool($v) => $body,
        }
    };
}

impl Values {
    /// How many there are.
    pub fn len(&self) -> usize {
        each!(self, v => v.len())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The type's name: `f16`, `bf16`, `f32`, `f64`, `i64`, `u64` or `bool`.
    pub fn dtype(&self) -> &'static str {
        match self {
            Values::F16(_) => "f16",
            Values::Bf16(_) => "bf16",
            Values::F32(_) => "f32",
            Values::F64(_) => "f64",
            Values::I64(_) => "i64",
            Values::U64(_) => "u64",
            Values::Bool(_) => "bool",
        }
    }

    /// The same values in row-major order, if they are in column-major order of `shape` now; or
    /// the bytes that there is no memory for.
    pub(crate) fn column_to_row_major(self, shape: &[usize]) -> std::result::Result<Values, u64> {
        each!(self, v => Ok(row_major(&v, shape)?.into()))
    }
}

/// A vector is values of its type.
macro_rules! from_vec {
    ($($variant:ident $type:ty),*) => {$(
        impl From<Vec<$type>> for Values {
            fn from(values: Vec<$type>) -> Self {
                Values::$variant(values)
            }
        }
    )*};
}
from_vec!(F16 f16, Bf16 bf16, F32 f32, F64 f64, I64 i64, U64 u64, Bool bool);

/// Reorders values whose first axis runs fastest so that the last does.
fn row_major<T: Copy>(values: &[T], shape: &[usize]) -> std::result::Result<Vec<T>, u64> {
    let mut out = room(values.len())?;
    let mut strides = Vec::with_capacity(shape.len());
    let mut stride = 1;
    for &length in shape {
        strides.push(stride);
        stride *= length;
    }
    let mut index = vec![0; shape.len()];
    let mut at = 0;
    while out.len() < values.len() {
        out.push(values[at]);
        for axis in (0..shape.len()).rev() {
            index[axis] += 1;
            at += strides[axis];
            if index[axis] < shape[axis] {
                break;
            }
            at -= strides[axis] * shape[axis];
            index[axis] = 0;
        }
    }
    Ok(out)
}

/// The index on each axis of the value at `at` in row-major order.
fn index_of(mut at: usize, shape: &[usize]) -> Vec<usize> {
    let mut index = vec![0; shape.len()];
    for axis in (0..shape.len()).rev() {
        let length = shape[axis].max(1);
        index[axis] = at % length;
        at /= length;
    }
    index
}

impl Array {
    /// How many values the array holds.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Room for all values as `f64`.
    fn room(&self) -> Result<Vec<f64>> {
        room(self.len()).map_err(|size| Error::Memory {
            origin: format!("the array of shape {}", shown_shape(&self.shape)),
            size,
        })
    }

    /// The type of the values: `f16`, `bf16`, `f32`, `f64`, `i64`, `u64` or `bool`.
    pub fn dtype(&self) -> &'static str {
        self.values.dtype()
    }

    /// The values as 64-bit floating-point numbers, exactly; true is 1 and false is 0.
    ///
    /// # Errors
    /// An integer without an equal in 64-bit floating point is refused with its index.
    ///
    /// ```
    /// let array = qkv_io::parse_literal("[[1.5, 2], [3, -inf]]")?;
    /// assert_eq!(array.shape, [2, 2]);
    /// assert_eq!(array.to_f64()?, [1.5, 2.0, 3.0, f64::NEG_INFINITY]);
    /// # Ok::<(), qkv_io::Error>(())
    /// ```
    pub fn to_f64(&self) -> Result<Vec<f64>> {
        let inexact = |at, value| Error::Inexact {
            index: index_of(at, &self.shape),
            value,
        };
        let mut numbers = self.room()?;
        match &self.values {
            Values::F16(v) => numbers.extend(v.iter().map(|x| x.to_f64())),
            Values::Bf16(v) => numbers.extend(v.iter().map(|x| x.to_f64())),
            Values::F32(v) => numbers.extend(v.iter().map(|&x| f64::from(x))),
            Values::F64(v) => numbers.extend(v),
            Values::Bool(v) => numbers.extend(v.iter().map(|&x| f64::from(u8::from(x)))),
            Values::I64(v) => exact(v, |x| *x as f64, inexact, &mut numbers)?,
            Values::U64(v) => exact(v, |x| *x as f64, inexact, &mut numbers)?,
        }
        Ok(numbers)
    }

    /// The values as truth values: 0 is false, 1 is true.
    ///
    /// # Errors
    /// Anything but 0, 1, true and false is refused with its index.
    ///
    /// ```
    /// assert_eq!(qkv_io::parse_literal("1 0; 0 1")?.to_bools()?, [true, false, false, true]);
    /// let error = qkv_io::parse_literal("1 0; 0 0.5")?.to_bools().unwrap_err();
    /// assert!(error.to_string().starts_with("the value 0.5 at [1, 1] is neither 0 nor 1"));
    /// # Ok::<(), qkv_io::Error>(())
    /// ```
    pub fn to_bools(&self) -> Result<Vec<bool>> {
        fn truths<T: Display + LowerExp>(
            shape: &[usize],
            values: &[T],
            truth: impl Fn(&T) -> Option<bool>,
        ) -> Result<Vec<bool>> {
            let mut truths = Vec::new();
            for (at, value) in values.iter().enumerate() {
                let refused = || Error::NotBool {
                    index: index_of(at, shape),
                    value: short(value),
                };
                truths.push(truth(value).ok_or_else(refused)?);
            }
            Ok(truths)
        }
        let float = |x: f64| {
            if x == 0.0 {
                Some(false)
            } else {
                (x == 1.0).then_some(true)
            }
        };
        let shape = &self.shape;
        match &self.values {
            Values::F16(v) => truths(shape, v, |x| float(x.to_f64())),
            Values::Bf16(v) => truths(shape, v, |x| float(x.to_f64())),
            Values::F32(v) => truths(shape, v, |x| float(f64::from(*x))),
            Values::F64(v) => truths(shape, v, |x| float(*x)),
            Values::I64(v) => truths(shape, v, |x| u64::try_from(*x).ok().and_then(bit)),
            Values::U64(v) => truths(shape, v, |x| bit(*x)),
            Values::Bool(v) => Ok(v.clone()),
        }
    }
}

/// A number without rows of zeros: 1e-300 rather than 0.000….
fn short(value: &(impl Display + LowerExp)) -> String {
    const LONGEST: usize = 20;
    let plain = value.to_string();
    if plain.len() <= LONGEST {
        plain
    } else {
        format!("{value:e}")
    }
}

/// 0 and 1 as truth values.
fn bit(x: u64) -> Option<bool> {
    (x <= 1).then_some(x == 1)
}

/// Integers as floating-point numbers, or the first that has no equal.
fn exact<T: Copy + Into<i128>>(
    values: &[T],
    convert: impl Fn(&T) -> f64,
    inexact: impl Fn(usize, i128) -> Error,
    numbers: &mut Vec<f64>,
) -> Result<()> {
    for (at, x) in values.iter().enumerate() {
        let (value, integer): (f64, i128) = (convert(x), (*x).into());
        if value as i128 != integer {
            return Err(inexact(at, integer));
        }
        numbers.push(value);
    }
    Ok(())
}
