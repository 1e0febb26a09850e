//! Arrays in the number format that they have, for what is computed in that format.

use super::{Seen, shape};
use crate::error::{Error, Result};
use qkv::{AnyView, DType, Element, View};
use qkv_io::half::{bf16, f16};
use qkv_io::{Array, Given, InFile, Values, shown_shape};
use std::borrow::Cow;

/// q, k or v as it was given.
#[derive(Debug)]
pub struct Stored {
    pub argument: &'static str,
    /// Its shape in the file.
    pub shape: Vec<usize>,
    pub seen: Seen,
    pub(super) given: Given,
}

/// A number format that the fast path reads and writes.
pub trait Number: qkv::Float + InFile {
    /// The values, if they are of this type.
    fn slice(values: &Values) -> Option<&[Self]>;
}

macro_rules! number {
    ($($t:ty => $values:ident),*) => {$(
        impl Number for $t {
            fn slice(values: &Values) -> Option<&[$t]> {
                match values {
                    Values::$values(values) => Some(values),
                    _ => None,
                }
            }
        }
    )*};
}
number!(f16 => F16, bf16 => Bf16, f32 => F32, f64 => F64);

/// The format of an array; numbers typed as text, and whole numbers, take that of others.
pub fn dtype_of(array: &Array) -> Option<DType> {
    if array.decimals.is_some() {
        return None;
    }
    match &array.values {
        Values::F16(_) => Some(DType::F16),
        Values::Bf16(_) => Some(DType::Bf16),
        Values::F32(_) => Some(DType::F32),
        Values::F64(_) => Some(DType::F64),
        Values::I64(_) | Values::U64(_) | Values::Bool(_) => None,
    }
}

/// As numpy and PyTorch call it in short.
pub fn name(dtype: DType) -> &'static str {
    match dtype {
        DType::F16 => "f16",
        DType::Bf16 => "bf16",
        DType::F32 => "f32",
        DType::F64 => "f64",
    }
}

/// The one format of all arrays that have one; f64 where none has.
pub fn common_dtype(arrays: &[&Stored]) -> Result<DType> {
    let mut known = arrays
        .iter()
        .filter_map(|array| Some((array.argument, array.dtype()?)));
    let Some((first, dtype)) = known.next() else {
        return Ok(DType::F64);
    };
    match known.find(|(_, other)| *other != dtype) {
        None => Ok(dtype),
        Some((argument, other)) => Err(Error::Value {
            argument,
            value: format!("{} beside {} of {first}", name(other), name(dtype)),
            remedy: format!(
                "attention is computed in one number format: convert one of them, for example \
                 x{} ({argument})",
                match dtype {
                    DType::F16 => ".astype('float16')",
                    DType::Bf16 => ".to(torch.bfloat16)",
                    DType::F32 => ".astype('float32')",
                    DType::F64 => ".astype('float64')",
                }
            ),
        }),
    }
}

impl Stored {
    fn dtype(&self) -> Option<DType> {
        match &self.given {
            Given::Read(array) => dtype_of(array),
            Given::Mapped(mapped) => Some(match mapped.dtype() {
                "f16" => DType::F16,
                "bf16" => DType::Bf16,
                "f32" => DType::F32,
                _ => DType::F64,
            }),
        }
    }

    /// Bytes of a copy in the format `T`, 0 if none is needed.
    pub fn copied_bytes<T: Number>(&self) -> u128 {
        if self.in_place::<T>().is_some() {
            return 0;
        }
        let values = shape(&self.given).iter().map(|&n| n as u128);
        values.product::<u128>() * size_of::<T>() as u128
    }

    fn in_place<T: Number>(&self) -> Option<&[T]> {
        match &self.given {
            Given::Read(array) => T::slice(&array.values),
            Given::Mapped(mapped) => mapped.values::<T>(),
        }
    }

    /// The numbers to compute with: as they are, or widened from half precision. What was typed is
    /// rounded to `dtype` first.
    pub fn numbers<T: Number>(&self, dtype: DType) -> Result<Cow<'_, [T]>> {
        if let Some(values) = self.in_place::<T>() {
            return Ok(Cow::Borrowed(values));
        }
        fn widened<E: Element, T: Element>(from: &[E], to: &mut Vec<T>) {
            to.extend(from.iter().map(|x| T::from_f64(x.to_f64())));
        }
        let mut numbers = self.room()?;
        match &self.given {
            Given::Mapped(mapped) => {
                if let Some(values) = mapped.values::<f16>() {
                    widened(values, &mut numbers);
                } else if let Some(values) = mapped.values::<bf16>() {
                    widened(values, &mut numbers);
                }
            }
            Given::Read(array) => match &array.values {
                Values::F16(values) => widened(values, &mut numbers),
                Values::Bf16(values) => widened(values, &mut numbers),
                _ => {
                    for value in array.to_f64().map_err(Error::io(self.argument))? {
                        numbers.push(T::from_f64(self.rounded(value, dtype)?));
                    }
                }
            },
        }
        Ok(Cow::Owned(numbers))
    }

    /// A typed number in a narrower format; too large a one is refused rather than made infinite.
    fn rounded(&self, value: f64, dtype: DType) -> Result<f64> {
        let rounded = match dtype {
            DType::F16 => Element::to_f64(<f16 as Element>::from_f64(value)),
            DType::Bf16 => Element::to_f64(<bf16 as Element>::from_f64(value)),
            DType::F32 => f64::from(value as f32),
            DType::F64 => value,
        };
        if rounded.is_infinite() && value.is_finite() {
            return Err(Error::Value {
                argument: self.argument,
                value: format!("{value:e} in {}", name(dtype)),
                remedy:
                    "it is too large for the number format of the other arrays: give a smaller \
                         one, or all arrays as float64"
                        .into(),
            });
        }
        Ok(rounded)
    }

    fn room<T>(&self) -> Result<Vec<T>> {
        let count: usize = self.shape.iter().product();
        let mut numbers = Vec::new();
        match numbers.try_reserve_exact(count) {
            Ok(()) => Ok(numbers),
            Err(_) => Err(Error::Room {
                argument: self.argument,
                what: format!("the numbers of shape {}", shown_shape(&self.shape)),
                bytes: count as u128 * size_of::<T>() as u128,
                remedy: "give a smaller array",
            }),
        }
    }

    /// Refuses a file that was changed meanwhile.
    pub fn check_unchanged(&self) -> Result<()> {
        check_unchanged(self.argument, &self.given)
    }
}

fn check_unchanged(argument: &'static str, given: &Given) -> Result<()> {
    match given {
        Given::Mapped(mapped) => mapped.check_unchanged().map_err(Error::io(argument)),
        Given::Read(_) => Ok(()),
    }
}

/// Numbers for the scores.
pub struct BiasArray {
    pub(super) argument: &'static str,
    /// Of floating-point numbers.
    pub(super) given: Given,
}

/// Runs one expression for the numbers, of whichever type.
macro_rules! each {
    ($given:expr, $v:ident => $body:expr) => {
        match $given {
            Given::Read(array) => match &array.values {
                Values::F16($v) => $body,
                Values::Bf16($v) => $body,
                Values::F32($v) => $body,
                Values::F64($v) => $body,
                Values::I64(_) | Values::U64(_) | Values::Bool(_) => {
                    let $v: &[f64] = &[];
                    $body
                }
            },
            Given::Mapped(mapped) => {
                if let Some($v) = mapped.values::<f16>() {
                    $body
                } else if let Some($v) = mapped.values::<bf16>() {
                    $body
                } else if let Some($v) = mapped.values::<f32>() {
                    $body
                } else {
                    let $v = mapped.values::<f64>().unwrap_or_default();
                    $body
                }
            }
        }
    };
}

impl BiasArray {
    /// `[batch, heads, queries, keys]`.
    pub fn view(&self) -> Result<AnyView<'_>> {
        let about = Error::about(self.argument);
        each!(&self.given, values => {
            View::new(values, shape(&self.given)).map(AnyView::from).map_err(about)
        })
    }

    /// As it was given.
    pub fn shape(&self) -> &[usize] {
        shape(&self.given)
    }

    /// Whether there are no numbers but 0 and 1, and both.
    pub fn is_0_and_1(&self) -> bool {
        let (mut zeros, mut ones) = (false, false);
        each!(&self.given, values => values.iter().all(|value| {
            let value = Element::to_f64(*value);
            zeros |= value == 0.0;
            ones |= value == 1.0;
            value == 0.0 || value == 1.0
        })) && zeros
            && ones
    }

    pub fn check_unchanged(&self) -> Result<()> {
        check_unchanged(self.argument, &self.given)
    }
}
