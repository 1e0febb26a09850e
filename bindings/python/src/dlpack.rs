//! DLPack: how array libraries hand each other memory.
//!
//! Three ways in, cheapest first: the table of C functions that a type may carry (torch from 2.10
//! on: some ten nanoseconds a tensor), the versioned capsule, the older capsule. The layouts
//! below are those of the DLPack specification, version 1.

#![allow(unsafe_code)]

use crate::array::{Kind, Raw, refused_axes};
use crate::error::type_error;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyCapsule, PyType};
use pyo3::{ffi, intern};
use std::ffi::{CStr, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::Mutex;

#[repr(C)]
#[derive(Clone, Copy)]
struct Version {
    major: u32,
    minor: u32,
}

/// The major version whose layouts these are.
const MAJOR: u32 = 1;

#[repr(C)]
#[derive(Clone, Copy)]
struct Device {
    kind: i32,
    index: i32,
}

/// Memory of this process: plain, or pinned for a GPU to read.
const CPU: [i32; 2] = [1, 3];

#[repr(C)]
#[derive(Clone, Copy, PartialEq)]
struct DataType {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Tensor {
    data: *mut c_void,
    device: Device,
    rank: i32,
    dtype: DataType,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

#[repr(C)]
struct Managed {
    tensor: Tensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Managed)>,
}

#[repr(C)]
struct ManagedVersioned {
    version: Version,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut ManagedVersioned)>,
    flags: u64,
    tensor: Tensor,
}

const READ_ONLY: u64 = 1;

/// The table of C functions of a type.
#[repr(C)]
pub struct Exchange {
    version: Version,
    older: *const Exchange,
    allocate: *const c_void,
    export: *const c_void,
    import: Option<unsafe extern "C" fn(*mut ManagedVersioned, *mut *mut ffi::PyObject) -> c_int>,
    borrow: Option<unsafe extern "C" fn(*mut ffi::PyObject, *mut Tensor) -> c_int>,
    stream: *const c_void,
}

const EXCHANGE: &CStr = c"dlpack_exchange_api";

/// Types that carry such a table, which lives as long as the process.
static KNOWN: Mutex<Vec<(Py<PyType>, usize)>> = Mutex::new(Vec::new());

/// The table of an object's type, if it has one that is understood here.
pub fn exchange(object: &Bound<'_, PyAny>) -> PyResult<Option<&'static Exchange>> {
    let py = object.py();
    let kind = object.get_type();
    let mut known = match KNOWN.lock() {
        Ok(known) => known,
        Err(poisoned) => poisoned.into_inner(),
    };
    if let Some((_, table)) = known.iter().find(|(seen, _)| seen.is(&kind)) {
        let table = *table as *const Exchange;
        // SAFETY: non-null only if checked below; the specification says it lives for ever.
        return Ok(unsafe { table.as_ref() });
    }
    let mut table: *const Exchange = null();
    if let Ok(capsule) = kind.getattr(intern!(py, "__dlpack_c_exchange_api__")) {
        table = capsule
            .cast::<PyCapsule>()?
            .pointer_checked(Some(EXCHANGE))?
            .as_ptr()
            .cast();
        // SAFETY: a capsule of this name holds a table that starts with version and older one.
        while let Some(found) = unsafe { table.as_ref() }
            && found.version.major != MAJOR
        {
            table = found.older;
        }
    }
    known.push((kind.unbind(), table as usize));
    // SAFETY: as above.
    Ok(unsafe { table.as_ref() })
}

/// A tensor whose memory holds its numbers: torch has views that mean the negative of what lies
/// there, and its table of functions does not say so.
pub fn resolved<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    match object.call_method0(intern!(py, "is_neg")) {
        Ok(negative) if negative.is_truthy()? => object.call_method0(intern!(py, "resolve_neg")),
        _ => Ok(object.clone()),
    }
}

/// An object's memory, by its type's table.
pub fn borrowed(argument: &str, object: &Bound<'_, PyAny>, table: &Exchange) -> PyResult<Raw> {
    let py = object.py();
    // A gradient that is asked for and silently not recorded would be a wrong result.
    if object
        .getattr(intern!(py, "requires_grad"))
        .is_ok_and(|flag| flag.is_truthy().unwrap_or(false))
        && grad_is_on(py)
    {
        return Err(type_error(
            argument,
            "it requires a gradient, which this function does not record",
            "call it on .detach(), or use qkv.torch, whose functions record it",
        ));
    }
    let Some(borrow) = table.borrow else {
        return protocol(argument, object).map(|(raw, _)| raw);
    };
    let mut tensor = empty();
    // SAFETY: the object has the type that the table belongs to, and the tensor is ours.
    if unsafe { borrow(object.as_ptr(), &mut tensor) } != 0 {
        let why = PyErr::fetch(py).value(py).to_string();
        return Err(type_error(
            argument,
            why.lines().next().unwrap_or_default(),
            "give a plain tensor in the memory of the CPU",
        ));
    }
    // SAFETY: shape and strides are valid while the object is untouched; they are copied here.
    unsafe { raw(argument, &tensor, true) }
}

/// Whether torch records gradients here.
fn grad_is_on(py: Python<'_>) -> bool {
    py.import(intern!(py, "torch"))
        .and_then(|torch| torch.call_method0(intern!(py, "is_grad_enabled")))
        .and_then(|on| on.is_truthy())
        .unwrap_or(true)
}

/// An object's memory by `__dlpack__`, and the capsule that keeps it: left unconsumed, it gives
/// the memory back when it goes.
pub fn protocol<'py>(
    argument: &str,
    object: &Bound<'py, PyAny>,
) -> PyResult<(Raw, Bound<'py, PyAny>)> {
    let py = object.py();
    let method = intern!(py, "__dlpack__");
    let newest = [("max_version", (MAJOR, 0))].into_py_dict(py)?;
    let capsule = match object.call_method(method, (), Some(&newest)) {
        Err(error) if error.is_instance_of::<PyTypeError>(py) => object.call_method0(method)?,
        other => other?,
    };
    let held = capsule.cast::<PyCapsule>().map_err(|_| {
        type_error(
            argument,
            "what its __dlpack__ returns is no capsule",
            "pass a NumPy array",
        )
    })?;
    const VERSIONED: &CStr = c"dltensor_versioned";
    const OLDER: &CStr = c"dltensor";
    let raw = if held.is_valid_checked(Some(VERSIONED)) {
        let managed: *mut ManagedVersioned = held.pointer_checked(Some(VERSIONED))?.as_ptr().cast();
        // SAFETY: a capsule of this name holds this layout, of which the version is always valid.
        let managed = unsafe { &*managed };
        if managed.version.major != MAJOR {
            return Err(type_error(
                argument,
                format!("DLPack of version {}", managed.version.major),
                "version 1 is understood here",
            ));
        }
        // SAFETY: the capsule keeps shape and strides.
        unsafe { raw(argument, &managed.tensor, managed.flags & READ_ONLY == 0)? }
    } else {
        let managed = held.pointer_checked(Some(OLDER)).map_err(|_| {
            type_error(
                argument,
                "its DLPack capsule was used before, or is something else",
                "let __dlpack__ return a new one each time",
            )
        })?;
        let managed: *mut Managed = managed.as_ptr().cast();
        // SAFETY: a capsule of this name holds this layout, and keeps shape and strides. The older
        // protocol does not say whether it may be written.
        unsafe { raw(argument, &(*managed).tensor, false)? }
    };
    Ok((raw, capsule))
}

fn empty() -> Tensor {
    Tensor {
        data: null_mut(),
        device: Device { kind: 0, index: 0 },
        rank: 0,
        dtype: DataType {
            code: 0,
            bits: 0,
            lanes: 0,
        },
        shape: null_mut(),
        strides: null_mut(),
        byte_offset: 0,
    }
}

fn dtype(kind: Kind) -> DataType {
    let (code, bits) = match kind {
        Kind::F16 => (2, 16),
        Kind::Bf16 => (4, 16),
        Kind::F32 => (2, 32),
        Kind::F64 => (2, 64),
        Kind::Bool => (6, 8),
    };
    DataType {
        code,
        bits,
        lanes: 1,
    }
}

/// # Safety
/// Shape and strides point to as many numbers as there are axes, or strides are null.
unsafe fn raw(argument: &str, tensor: &Tensor, writable: bool) -> PyResult<Raw> {
    if !CPU.contains(&tensor.device.kind) {
        return Err(type_error(
            argument,
            "it is not in the memory of the CPU",
            "move it there first, for example with .cpu()",
        ));
    }
    let Some(kind) = Kind::ALL
        .into_iter()
        .find(|&kind| dtype(kind) == tensor.dtype)
    else {
        let DataType { code, bits, lanes } = tensor.dtype;
        let names = [
            "int", "uint", "float", "handle", "bfloat", "complex", "bool",
        ];
        let mut name = match names.get(usize::from(code)) {
            Some(name) => format!("{name}{bits}"),
            None => format!("of {bits} bits (DLPack code {code})"),
        };
        if lanes != 1 {
            name = format!("{name}x{lanes}");
        }
        return Err(Kind::refused(argument, &name));
    };
    const MOST_AXES: usize = 64; // NumPy's and torch's
    let rank = match usize::try_from(tensor.rank) {
        Ok(rank) if rank <= MOST_AXES => rank,
        _ => {
            return Err(PyValueError::new_err(format!(
                "{argument}: {} axes; at most 4 are possible",
                tensor.rank
            )));
        }
    };
    // SAFETY: as the caller promises.
    let axes = |numbers: *mut i64| match rank {
        0 => &[][..],
        _ => unsafe { std::slice::from_raw_parts(numbers, rank) },
    };
    let sizes = axes(tensor.shape)
        .iter()
        .map(|&size| usize::try_from(size))
        .collect::<Result<Vec<usize>, _>>()
        .map_err(|_| {
            PyValueError::new_err(format!(
                "{argument}: shape {:?}; the library that made it describes it wrongly",
                axes(tensor.shape)
            ))
        })?;
    if rank > 4 {
        return Err(refused_axes(argument, &sizes));
    }
    let start = tensor.data.cast::<u8>();
    let offset = tensor.byte_offset as usize;
    if start.addr().checked_add(offset).is_none() {
        return Err(PyValueError::new_err(format!(
            "{argument}: offset {offset} in bytes; the library that made it describes it wrongly"
        )));
    }
    let mut raw = Raw {
        // Nothing lies at an offset from no memory.
        start: if start.is_null() {
            start
        } else {
            start.wrapping_add(offset)
        },
        kind,
        rank,
        shape: [1; 4],
        strides: [0; 4],
        writable,
    };
    let mut next = 1_isize;
    for axis in (0..rank).rev() {
        let at = 4 - rank + axis;
        raw.shape[at] = sizes[axis];
        raw.strides[at] = if tensor.strides.is_null() {
            next
        } else {
            axes(tensor.strides)[axis] as isize
        };
        next = next.saturating_mul(sizes[axis] as isize);
    }
    Ok(raw)
}

/// A tensor of a library's own type over memory that is handed to it.
pub fn give<T: Send + 'static>(
    py: Python<'_>,
    table: &Exchange,
    kind: Kind,
    shape: &[usize],
    mut data: Vec<T>,
) -> PyResult<Py<PyAny>> {
    struct Kept<T> {
        managed: ManagedVersioned,
        axes: Vec<i64>,
        data: Vec<T>,
    }
    unsafe extern "C" fn delete<T>(managed: *mut ManagedVersioned) {
        // SAFETY: the context is the box made below, and the owner calls this once.
        drop(unsafe { Box::from_raw((*managed).context.cast::<Kept<T>>()) });
    }
    let Some(import) = table.import else {
        return Err(PyTypeError::new_err(
            "this library takes no tensors by DLPack; pass NumPy arrays",
        ));
    };
    let mut strides = vec![1_i64; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis] * shape[axis].max(1) as i64;
    }
    let mut axes: Vec<i64> = shape.iter().map(|&n| n as i64).collect();
    axes.extend(strides);
    let tensor = Tensor {
        data: data.as_mut_ptr().cast(),
        device: Device {
            kind: CPU[0],
            index: 0,
        },
        rank: shape.len() as i32,
        dtype: dtype(kind),
        shape: axes.as_mut_ptr(),
        strides: axes.as_mut_ptr().wrapping_add(shape.len()),
        byte_offset: 0,
    };
    let kept = Box::into_raw(Box::new(Kept {
        managed: ManagedVersioned {
            version: Version {
                major: MAJOR,
                minor: 0,
            },
            context: null_mut(),
            deleter: Some(delete::<T>),
            flags: 0,
            tensor,
        },
        axes,
        data,
    }));
    let mut object = null_mut();
    // SAFETY: the box is whole, and moving vectors into it moved none of their numbers. The library
    // owns it from here on and calls `delete`.
    unsafe {
        (*kept).managed.context = kept.cast();
        debug_assert!(
            (*kept).axes.len() == 2 * shape.len() && (*kept).data.capacity() < usize::MAX
        );
        if import(&raw mut (*kept).managed, &mut object) != 0 {
            return Err(PyErr::fetch(py));
        }
        Ok(Bound::from_owned_ptr(py, object).unbind())
    }
}
