//! A safetensors file that is opened once and read tensor by tensor, as models need it.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

use crate::array::Array;
use crate::detect::Format;
use crate::error::{Entry, Error, Result};
use crate::safetensors;
use crate::safetensors_header::Tensor;
use crate::source::Source;

/// A safetensors file whose header has been read and checked; [`read_file`](crate::read_file) reads
/// the header anew for each array.
///
/// ```
/// use qkv_io::TensorFile;
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("x.safetensors");
/// qkv_io::write_safetensors(&path, &[("a", &[2], &[1.0, 2.0]), ("b", &[1], &[3.0])], &[])?;
/// let mut file = TensorFile::open(&path)?;
/// assert_eq!(file.shape("a"), Some(&[2][..]));
/// assert_eq!(file.read("b")?.to_f64()?, [3.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct TensorFile {
    file: File,
    len: u64,
    origin: String,
    /// Where the tensors' bytes begin.
    data: u64,
    tensors: HashMap<String, Tensor>,
}

impl TensorFile {
    /// Opens a file, and reads and checks its header; no tensor is read.
    ///
    /// # Errors
    /// A file that is no safetensors is refused with its real format, a damaged or short one with
    /// the byte.
    pub fn open(path: &Path) -> Result<Self> {
        let safetensors::Opened {
            file,
            len,
            tensors,
            data,
            ..
        } = safetensors::open(path)?;
        let named = tensors.into_iter().map(|t| (t.name.clone(), t));
        Ok(TensorFile {
            tensors: named.collect(),
            file,
            len,
            data,
            origin: path.display().to_string(),
        })
    }

    /// The names of the tensors, in no order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// The shape of a tensor, if there is one of this name.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.tensors.get(name).map(|tensor| &tensor.shape[..])
    }

    /// Reads a tensor; memory is taken for bytes that the file has.
    ///
    /// # Errors
    /// A name that the file does not have, a type that is not read, and the system's refusals.
    pub fn read(&mut self, name: &str) -> Result<Array> {
        let Some(tensor) = self.tensors.get(name) else {
            return Err(Error::NoSuchArray {
                origin: self.origin.clone(),
                format: Format::Safetensors,
                name: name.to_owned(),
                available: self
                    .tensors
                    .values()
                    .map(|tensor| Entry {
                        name: tensor.name.clone(),
                        shape: Some(tensor.shape.clone()),
                    })
                    .collect(),
            });
        };
        let found = safetensors::place(&self.origin, tensor, self.data)?;
        let mut source = Source {
            stream: &mut self.file,
            len: self.len,
            origin: &self.origin,
            most: u64::MAX,
        };
        safetensors::read_found(&mut source, found)
    }
}
