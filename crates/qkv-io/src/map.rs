//! Arrays whose numbers stay in their file: the system brings pages of it into memory as they are
//! read, and nothing is copied.
//!
//! Only numbers that lie in a file as they lie in memory can be used so: npy and safetensors,
//! row-major, little-endian, each at a multiple of its size. All others are read.

use std::fs::{self, File, Metadata};
use std::path::Path;
use std::time::SystemTime;

use bytemuck::AnyBitPattern;
use half::{bf16, f16};
use memmap2::Mmap;

use crate::argument::is_device;
use crate::bytes::{Element, byte_size};
use crate::detect::{self, Kind};
use crate::error::{Error, Result};
use crate::npy::Npy;
use crate::safetensors;
use crate::source::Source;

/// Smaller files are read: that is as fast, and a copy cannot change.
const SMALLEST: u64 = 1 << 20;

/// An array in a file that is mapped into memory.
///
/// Whoever changes the file meanwhile changes the numbers, and whoever shortens it ends this process
/// (the system has no page to give). So what is computed from the numbers is worth something only if
/// [`check_unchanged`](Mapped::check_unchanged) says so afterwards; files that are replaced by a
/// rename, as all files written by this crate are, do no harm.
#[derive(Debug)]
pub struct Mapped {
    map: Mmap,
    start: usize,
    size: usize,
    dtype: &'static str,
    shape: Vec<usize>,
    file: File,
    origin: String,
    /// Length and time of the last change when it was mapped.
    state: (u64, Option<SystemTime>),
}

/// A number that can be read in a mapped file.
pub trait InFile: AnyBitPattern + sealed::Sealed {}

mod sealed {
    pub trait Sealed {
        const NAME: &str;
    }
}

macro_rules! in_file {
    ($($type:ty => $dtype:literal),*) => {$(
        impl sealed::Sealed for $type {
            const NAME: &str = $dtype;
        }
        impl InFile for $type {}
    )*};
}
in_file!(f16 => "f16", bf16 => "bf16", f32 => "f32", f64 => "f64");

/// Maps an array of a file; `None` if it has to be read, also where reading will say why it cannot.
pub(crate) fn map(path: &Path, name: Option<&str>) -> Option<Mapped> {
    if cfg!(target_endian = "big") {
        return None;
    }
    let metadata = fs::metadata(path).ok()?;
    if !metadata.is_file() || is_device(&metadata) || metadata.len() < SMALLEST {
        return None;
    }
    let mut file = File::open(path).ok()?;
    let metadata = file.metadata().ok()?;
    let place = Place::find(&mut file, metadata.len(), name)?;
    let map = map_file(&file)?;
    let end = place.start.checked_add(place.size)?;
    let mapped = Mapped {
        map,
        start: place.start,
        size: place.size,
        dtype: dtype(place.element)?,
        shape: place.shape,
        origin: path.display().to_string(),
        state: state(&metadata),
        file,
    };
    // The file may have become shorter between the two looks.
    (end <= mapped.map.len() && mapped.is_aligned()).then_some(mapped)
}

/// The whole file as bytes.
///
/// A slice promises that its bytes stay as they are, which no system can promise for a file. What
/// others do to it meanwhile is as [`Mapped`] says: any bytes are numbers of the types in
/// [`InFile`], so no value can be invalid, and nothing that decides about memory is read from here
/// (headers are read, and checked, before).
#[allow(unsafe_code)]
fn map_file(file: &File) -> Option<Mmap> {
    // SAFETY: the only demand is that nobody changes the file while it is mapped; see above.
    unsafe { Mmap::map(file) }.ok()
}

fn state(metadata: &Metadata) -> (u64, Option<SystemTime>) {
    (metadata.len(), metadata.modified().ok())
}

/// The name of a type that numbers are computed in.
fn dtype(element: Element) -> Option<&'static str> {
    Some(match element {
        Element::F16 => "f16",
        Element::Bf16 => "bf16",
        Element::F32 => "f32",
        Element::F64 => "f64",
        _ => return None,
    })
}

/// Where in a file an array lies.
struct Place {
    element: Element,
    shape: Vec<usize>,
    start: usize,
    size: usize,
}

impl Place {
    fn find(file: &mut File, len: u64, name: Option<&str>) -> Option<Place> {
        let mut source = Source {
            stream: file,
            len,
            origin: "",
            most: u64::MAX,
        };
        let head = source.read_at(0, detect::HEAD as u64).ok()?;
        match (detect::kind(&head, "").ok()?, name) {
            (Kind::Npy, None) => {
                source.seek(0).ok()?;
                let header = Npy {
                    stream: source.stream,
                    len,
                    reserve: len,
                    origin: "",
                    most: u64::MAX,
                }
                .header()
                .ok()?;
                let row_major = !header.column_major || header.shape.len() < 2;
                let size = byte_size(&header.shape, header.element.size())?;
                let whole = len.checked_sub(header.data)? == size as u64;
                (whole && row_major && !header.big_endian).then_some(Place {
                    element: header.element,
                    shape: header.shape,
                    start: usize::try_from(header.data).ok()?,
                    size,
                })
            }
            (Kind::Safetensors, _) => {
                let found = safetensors::find(&mut source, name).ok()?;
                Some(Place {
                    element: found.element,
                    shape: found.shape,
                    start: usize::try_from(found.start).ok()?,
                    size: usize::try_from(found.size).ok()?,
                })
            }
            _ => None,
        }
    }
}

impl Mapped {
    /// Length of each axis.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The type of the values: `f16`, `bf16`, `f32` or `f64`.
    pub fn dtype(&self) -> &'static str {
        self.dtype
    }

    fn bytes(&self) -> &[u8] {
        self.map
            .get(self.start..self.start + self.size)
            .unwrap_or_default()
    }

    /// Whether the values can be used as they lie.
    fn is_aligned(&self) -> bool {
        match self.dtype {
            "f16" => self.values::<f16>().is_some(),
            "bf16" => self.values::<bf16>().is_some(),
            "f32" => self.values::<f32>().is_some(),
            _ => self.values::<f64>().is_some(),
        }
    }

    /// The values, row-major, if this is their type.
    pub fn values<T: InFile>(&self) -> Option<&[T]> {
        if self.dtype() != T::NAME {
            return None;
        }
        bytemuck::try_cast_slice(self.bytes()).ok()
    }

    /// Refuses a file that somebody has written to since it was mapped.
    ///
    /// # Errors
    /// [`Error::Changed`], and the system's refusals.
    pub fn check_unchanged(&self) -> Result<()> {
        let metadata = self.file.metadata().map_err(|source| Error::Io {
            action: "read",
            path: self.origin.clone(),
            source,
        })?;
        if state(&metadata) == self.state {
            return Ok(());
        }
        Err(Error::Changed {
            path: self.origin.clone(),
        })
    }
}
