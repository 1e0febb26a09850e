//! Somebody's memory, seen as the engine's views.
//!
//! With [`dlpack`](crate::dlpack) and [`results`](crate::results) the only place with `unsafe`. What
//! makes a view sound is checked here: dtype and byte order, alignment, strides in whole elements,
//! bytes of truth values, and that an output does not lie over an input. What nobody can check is
//! that another thread does not write to the memory meanwhile; NumPy and torch ask the same.

#![allow(unsafe_code)]

use crate::arguments::in_order;
use crate::dlpack::{self, Exchange};
use crate::error::{bad_value, named, type_error, value_error};
use crate::results::hand_over;
use half::{bf16, f16};
use numpy::npyffi::PyArray_CheckExact;
use numpy::{PyArrayDescr, PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::IntoPyDict;
use qkv::{AnyView, Error, View, ViewMut};
use std::ops::Range;

/// The dtypes that attention knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    F16,
    Bf16,
    F32,
    F64,
    Bool,
}

impl Kind {
    pub const ALL: [Kind; 5] = [Kind::F16, Kind::Bf16, Kind::F32, Kind::F64, Kind::Bool];

    pub fn name(self) -> &'static str {
        match self {
            Kind::F16 => "float16",
            Kind::Bf16 => "bfloat16",
            Kind::F32 => "float32",
            Kind::F64 => "float64",
            Kind::Bool => "bool",
        }
    }

    pub fn size(self) -> usize {
        match self {
            Kind::Bool => 1,
            Kind::F16 | Kind::Bf16 => 2,
            Kind::F32 => 4,
            Kind::F64 => 8,
        }
    }

    /// A `TypeError` about a dtype that is none of these.
    pub fn refused(argument: &str, name: &str) -> PyErr {
        type_error(
            argument,
            format!("dtype {name}"),
            "attention takes float16, bfloat16, float32 and float64 (masks: bool); convert it, for \
             example with .astype(numpy.float32)",
        )
    }
}

/// A number in memory.
pub trait Item: Copy {
    const KIND: Kind;
}
impl Item for f16 {
    const KIND: Kind = Kind::F16;
}
impl Item for bf16 {
    const KIND: Kind = Kind::Bf16;
}
impl Item for f32 {
    const KIND: Kind = Kind::F32;
}
impl Item for f64 {
    const KIND: Kind = Kind::F64;
}
impl Item for bool {
    const KIND: Kind = Kind::Bool;
}

/// What a library says about its memory.
pub struct Raw {
    /// Element `[0, 0, 0, 0]`.
    pub start: *mut u8,
    pub kind: Kind,
    /// Axes that there are; in `shape` and `strides` they are the last.
    pub rank: usize,
    pub shape: [usize; 4],
    /// In elements.
    pub strides: [isize; 4],
    pub writable: bool,
}

/// Which library results go to: that of q.
#[derive(Clone, Copy)]
pub enum Home {
    NumPy,
    Library(&'static Exchange),
}

/// Memory that is kept alive, of known dtype, aligned and in native byte order.
pub struct Array {
    raw: Raw,
    pub home: Home,
    /// Whether it is not the memory that was given.
    copied: bool,
    /// Keeps the memory.
    _owner: Py<PyAny>,
}

// SAFETY: the memory stays where it is as long as the owner lives, on whatever thread.
unsafe impl Send for Array {}
// SAFETY: as above; through a shared reference it is only read.
unsafe impl Sync for Array {}

/// An error about too many axes.
pub fn refused_axes(argument: &str, shape: &[usize]) -> PyErr {
    PyValueError::new_err(format!(
        "{argument}: shape {shape:?} has {} axes; at most 4 are possible",
        shape.len()
    ))
}

impl Array {
    /// An array of NumPy, or of a library that speaks DLPack, without a copy unless its bytes cannot
    /// be read as they lie.
    ///
    /// # Errors
    /// `TypeError` for what is no array or has a dtype that attention does not know, `ValueError` for
    /// more than four axes.
    pub fn new(argument: &str, object: &Bound<'_, PyAny>) -> PyResult<Array> {
        if let Ok(array) = object.cast::<PyUntypedArray>() {
            return Self::of_numpy(argument, array);
        }
        let py = object.py();
        let (raw, home, owner) = if let Some(table) = dlpack::exchange(object)? {
            let object = dlpack::resolved(object)?;
            let raw = dlpack::borrowed(argument, &object, table)?;
            (raw, Home::Library(table), object)
        } else if object.hasattr(intern!(py, "__dlpack__"))? {
            let (raw, capsule) = dlpack::protocol(argument, object)?;
            (raw, Home::NumPy, capsule)
        } else {
            return Err(type_error(
                argument,
                format!("{} is no array", named(object)?),
                match argument {
                    "keep" | "drop" => {
                        "give an array of bool, for example numpy.array(…, dtype=bool)"
                    }
                    _ => {
                        "give an array of NumPy, torch or another library that speaks DLPack, for \
                         example numpy.array(…, dtype=numpy.float32)"
                    }
                },
            ));
        };
        raw.check(argument)?;
        if !raw.is_aligned() {
            return Err(PyValueError::new_err(format!(
                "{argument}: its memory does not start at a multiple of {} bytes, as {} must; \
                 pass a copy",
                raw.kind.size(),
                raw.kind.name()
            )));
        }
        Ok(Array {
            raw,
            home,
            copied: false,
            _owner: owner.unbind(),
        })
    }

    fn of_numpy(argument: &str, array: &Bound<'_, PyUntypedArray>) -> PyResult<Array> {
        let py = array.py();
        // SAFETY: a live object, looked at with the interpreter held.
        let plain = unsafe { PyArray_CheckExact(py, array.as_ptr()) } != 0;
        if !plain && is_masked(array)? {
            return Err(type_error(
                argument,
                "a masked array, whose mask attention would not see",
                "give its .data (or .filled(…)), and what to leave out as keep= or drop=",
            ));
        }
        let dtype = array.dtype();
        let Some(kind) = kind_of(&dtype)? else {
            return Err(Kind::refused(argument, &dtype.str()?.to_string_lossy()));
        };
        let rank = array.ndim();
        if rank > 4 {
            return Err(refused_axes(argument, array.shape()));
        }
        let size = kind.size() as isize;
        let whole = array.strides().iter().all(|stride| stride % size == 0);
        // SAFETY: a live array object, read with the interpreter held.
        let fields = unsafe { &(*array.as_array_ptr()).fields };
        let mut raw = Raw {
            start: fields.data.cast(),
            kind,
            rank,
            shape: [1; 4],
            strides: [0; 4],
            writable: fields.flags & numpy::npyffi::NPY_ARRAY_WRITEABLE != 0,
        };
        if dtype.is_native_byteorder() == Some(false) || !whole || !raw.is_aligned() {
            let native = dtype.call_method1(intern!(py, "newbyteorder"), ("=",))?;
            let keywords = [("order", "C")].into_py_dict(py)?;
            let copy = array.call_method(intern!(py, "astype"), (native,), Some(&keywords))?;
            let mut copied = Self::of_numpy(argument, copy.cast()?)?;
            copied.raw.writable = false; // what is written there would be lost
            copied.copied = true;
            return Ok(copied);
        }
        for axis in 0..rank {
            raw.shape[4 - rank + axis] = array.shape()[axis];
            raw.strides[4 - rank + axis] = array.strides()[axis] / size;
        }
        raw.check(argument)?;
        Ok(Array {
            raw,
            home: Home::NumPy,
            copied: false,
            _owner: array.clone().into_any().unbind(),
        })
    }

    pub fn kind(&self) -> Kind {
        self.raw.kind
    }

    /// Axes that were given.
    pub fn rank(&self) -> usize {
        self.raw.rank
    }

    /// Sizes of the axes that were given.
    pub fn shape(&self) -> &[usize] {
        self.raw.last_axes()
    }

    /// The same with heads before lengths, where three or four axes have them the other way round.
    pub fn heads_first(self, swapped: bool) -> Array {
        if swapped && self.raw.rank > 2 {
            self.with_axes_exchanged(1, 2)
        } else {
            self
        }
    }

    /// The same with two of the four axes exchanged.
    pub fn with_axes_exchanged(mut self, a: usize, b: usize) -> Array {
        self.raw.shape.swap(a, b);
        self.raw.strides.swap(a, b);
        self
    }

    /// Sizes of the four axes, leading ones included.
    pub fn sizes(&self) -> [usize; 4] {
        self.raw.shape
    }

    /// The numbers, four axes.
    ///
    /// # Errors
    /// [`Error::Option`] if they are of another type.
    pub fn view<T: Item>(&self) -> qkv::Result<View<'_, T>> {
        let (first, count, offset) = self.raw.span::<T>()?;
        let data = if count == 0 {
            &[]
        } else {
            // SAFETY: the span lies between the first and the last element, which the library says
            // exist; dtype, byte order and alignment were checked; the owner keeps the memory.
            unsafe { std::slice::from_raw_parts(first, count) }
        };
        View::strided(data, offset, self.raw.shape, self.raw.strides)
    }

    /// The numbers, to be written.
    ///
    /// # Errors
    /// [`Error::Option`] for another type, [`Error::Overlap`] for strides that name an element
    /// twice.
    pub fn view_mut<T: Item>(&mut self) -> qkv::Result<ViewMut<'_, T>> {
        let (first, count, offset) = self.raw.span::<T>()?;
        let data = if count == 0 {
            &mut []
        } else {
            // SAFETY: as in `view`; that it may be written, and lies over no input, was checked by
            // `for_output`.
            unsafe { std::slice::from_raw_parts_mut(first, count) }
        };
        ViewMut::strided(data, offset, self.raw.shape, self.raw.strides)
    }

    /// Checks that the array may be written beside those that are read.
    ///
    /// # Errors
    /// `ValueError` if it is read-only, was copied, or shares memory with one of them.
    pub fn for_output(self, argument: &str, inputs: &[(&str, &Array)]) -> PyResult<Array> {
        if !self.raw.writable {
            return Err(bad_value(
                argument,
                "a read-only, misaligned or foreign-endian array",
                "give one that can be written in place",
            ));
        }
        let own = self.raw.bytes();
        for (name, input) in inputs {
            let other = input.raw.bytes();
            if own.start < other.end && other.start < own.end {
                return Err(bad_value(
                    argument,
                    format!("memory that it shares with {name}"),
                    "give an array of its own",
                ));
            }
        }
        Ok(self)
    }

    /// Numbers of any float dtype.
    ///
    /// # Errors
    /// [`Error::Option`] for truth values.
    pub fn any_view(&self) -> qkv::Result<AnyView<'_>> {
        Ok(match self.raw.kind {
            Kind::F16 => self.view::<f16>()?.into(),
            Kind::Bf16 => self.view::<bf16>()?.into(),
            Kind::F32 => self.view::<f32>()?.into(),
            Kind::F64 | Kind::Bool => self.view::<f64>()?.into(),
        })
    }

    /// A row-major copy in memory of its own, with the axes that were given.
    ///
    /// # Errors
    /// Those of handing numbers to NumPy.
    pub fn copied(&self, py: Python<'_>) -> PyResult<Array> {
        fn copy<T: Item + Send + Sync + 'static>(array: &Array, py: Python<'_>) -> PyResult<Array> {
            let numbers = in_order(array.view::<T>().map_err(value_error)?).collect();
            let copy = hand_over::<T>(py, Home::NumPy, array.shape(), numbers)?;
            Array::new("copy", copy.bind(py))
        }
        match self.raw.kind {
            Kind::F16 => copy::<f16>(self, py),
            Kind::Bf16 => copy::<bf16>(self, py),
            Kind::F32 => copy::<f32>(self, py),
            Kind::F64 => copy::<f64>(self, py),
            Kind::Bool => copy::<bool>(self, py),
        }
    }

    /// Checks that truth values are 0 or 1, as the language needs: a byte seen as `bool` may be any.
    ///
    /// # Errors
    /// `TypeError` for another dtype, `ValueError` for another byte.
    pub fn with_truths_checked(self, argument: &str) -> PyResult<Array> {
        if self.raw.kind != Kind::Bool {
            return Err(type_error(
                argument,
                format!("dtype {}", self.raw.kind.name()),
                "a mask is an array of bool; numbers to add to the scores go to bias=",
            ));
        }
        let [a, b, c, width] = self.raw.shape;
        let strides = self.raw.strides;
        let row_is_packed = strides[3] == 1;
        let mut bits = 0_u8;
        if self.raw.shape.contains(&0) {
            return Ok(self);
        }
        // An axis of stride 0 repeats what was seen.
        let once = |size: usize, stride: isize| if stride == 0 { 1 } else { size as isize };
        for i in 0..once(a, strides[0]) {
            for j in 0..once(b, strides[1]) {
                for k in 0..once(c, strides[2]) {
                    let row = self
                        .raw
                        .start
                        .wrapping_offset(i * strides[0] + j * strides[1] + k * strides[2]);
                    if row_is_packed {
                        // SAFETY: a row of the array.
                        let row = unsafe { std::slice::from_raw_parts(row, width) };
                        bits |= row.iter().fold(0, |bits, byte| bits | byte);
                    } else {
                        for l in 0..once(width, strides[3]) {
                            // SAFETY: an element of the array.
                            bits |= unsafe { *row.wrapping_offset(l * strides[3]) };
                        }
                    }
                }
            }
        }
        if bits > 1 {
            return Err(bad_value(
                argument,
                "a bool array with bytes other than 0 and 1",
                "make it with a comparison, for example mask.view(numpy.uint8) != 0",
            ));
        }
        Ok(self)
    }
}

impl Raw {
    /// What the views need: that the memory is there, and lies in the address space. A library may
    /// claim anything, and a tensor that only stands for one has no memory.
    fn check(&self, argument: &str) -> PyResult<()> {
        if self.shape.contains(&0) {
            return Ok(());
        }
        if self.start.is_null() {
            return Err(type_error(
                argument,
                format!("its memory is not there (shape {:?})", self.last_axes()),
                "give an array that holds its numbers, not one that only stands for it or was freed",
            ));
        }
        if self.fits() {
            return Ok(());
        }
        Err(PyValueError::new_err(format!(
            "{argument}: shape {:?} with strides {:?} in elements reaches outside of all memory; the \
             library that made it describes it wrongly",
            self.last_axes(),
            &self.strides[4 - self.rank..]
        )))
    }

    /// Whether a slice can hold all elements: sizes and bytes fit `isize`, addresses do not wrap.
    fn fits(&self) -> bool {
        let (mut low, mut high) = (0_isize, 1_isize);
        for (size, stride) in self.shape.into_iter().zip(self.strides) {
            let reach = match isize::try_from(size) {
                Ok(size) => (size - 1).checked_mul(stride),
                Err(_) => None,
            };
            let end = if stride < 0 { &mut low } else { &mut high };
            match reach.and_then(|reach| end.checked_add(reach)) {
                Some(sum) => *end = sum,
                None => return false,
            }
        }
        let bytes = |elements: isize| elements.checked_mul(self.kind.size() as isize);
        let (Some(low), Some(high)) = (bytes(low), bytes(high)) else {
            return false;
        };
        let start = self.start.addr();
        high.checked_sub(low).is_some()
            && start.checked_add_signed(low).is_some()
            && start.checked_add_signed(high).is_some()
    }

    fn last_axes(&self) -> &[usize] {
        &self.shape[4 - self.rank..]
    }

    fn is_aligned(&self) -> bool {
        self.shape.contains(&0) || (self.start as usize).is_multiple_of(self.kind.size())
    }

    /// The first element in memory, how many from there to the last, and which of them is
    /// `[0, 0, 0, 0]`.
    fn span<T: Item>(&self) -> qkv::Result<(*mut T, usize, usize)> {
        if T::KIND != self.kind {
            return Err(Error::Option {
                option: "dtype",
                value: self.kind.name().into(),
                remedy: "all of q, k and v need the same",
            });
        }
        if self.shape.contains(&0) {
            return Ok((std::ptr::null_mut(), 0, 0));
        }
        let range = self.range();
        let first = self.start.cast::<T>().wrapping_offset(range.start);
        Ok((first, range.len(), range.start.unsigned_abs()))
    }

    /// From the first to one past the last element, counted from `[0, 0, 0, 0]`.
    fn range(&self) -> Range<isize> {
        let (mut low, mut high) = (0, 0);
        for (size, stride) in self.shape.into_iter().zip(self.strides) {
            let reach = (size as isize - 1) * stride; // fits, as `check` saw
            if reach < 0 {
                low += reach;
            } else {
                high += reach;
            }
        }
        low..high + 1
    }

    /// Addresses from the first byte to one past the last.
    fn bytes(&self) -> Range<usize> {
        if self.shape.contains(&0) {
            return 0..0;
        }
        let size = self.kind.size() as isize;
        let range = self.range();
        let at = |element: isize| (self.start as usize).wrapping_add_signed(element * size);
        at(range.start)..at(range.end)
    }
}

#[pyfunction]
#[doc = include_str!("docs/address.txt")]
pub fn address(array: &Bound<'_, PyAny>) -> PyResult<Option<usize>> {
    let array = Array::new("array", array)?;
    Ok((!array.copied).then_some(array.raw.start as usize))
}

/// NumPy's numbers for the dtypes, and for the first that does not come with it.
const BOOL: i32 = 0;
const FLOAT: i32 = 11;
const DOUBLE: i32 = 12;
const HALF: i32 = 23;
const OTHERS: i32 = 256;

/// Whether an array of a class of its own is one of NumPy's masked ones.
fn is_masked(array: &Bound<'_, PyUntypedArray>) -> PyResult<bool> {
    let py = array.py();
    let masked = py.import(intern!(py, "numpy.ma"))?;
    array.is_instance(&masked.getattr(intern!(py, "MaskedArray"))?)
}

fn kind_of(dtype: &Bound<'_, PyArrayDescr>) -> PyResult<Option<Kind>> {
    Ok(match dtype.num() {
        BOOL => Some(Kind::Bool),
        FLOAT => Some(Kind::F32),
        DOUBLE => Some(Kind::F64),
        HALF => Some(Kind::F16),
        other if other >= OTHERS && dtype.itemsize() == 2 => {
            (dtype.typeobj().name()? == "bfloat16").then_some(Kind::Bf16)
        }
        _ => None,
    })
}
