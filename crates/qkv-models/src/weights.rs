//! The weights of a model by name, from wherever they are: each is checked against the configuration
//! before memory is taken for it, and for numbers that are none.

use crate::error::{Error, Expected, Result};
use crate::gguf::Gguf;
use candle_core::{Device, Tensor};
use qkv_io::{TensorFile, Values};
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The file of weights that are in one.
pub(crate) const SINGLE: &str = "model.safetensors";

/// The file that names those of weights in several.
pub(crate) const INDEX: &str = "model.safetensors.index.json";

/// Where the weights are.
enum Place {
    /// One or several safetensors files, and which of them has a tensor.
    Files {
        files: Vec<TensorFile>,
        of: HashMap<String, usize>,
    },
    Gguf(Box<Gguf>),
}

/// The weights of a model.
pub(crate) struct Weights {
    place: Place,
    path: String,
    taken: BTreeSet<String>,
}

/// A tensor's axes, each with the keys that say its length.
pub(crate) type Axes<'a> = &'a [(&'static str, usize)];

impl Weights {
    /// Those of a folder: `model.safetensors`, or the files that `model.safetensors.index.json` names.
    pub(crate) fn in_folder(folder: &Path) -> Result<Weights> {
        let single = folder.join(SINGLE);
        let index = folder.join(INDEX);
        let (path, files) = if crate::files::is_there(&single)? {
            (single.clone(), vec![single])
        } else if crate::files::is_there(&index)? {
            let files = indexed(folder, &index)?;
            (index, files)
        } else {
            return Err(no_weights(folder));
        };
        let mut of = HashMap::new();
        let mut open = Vec::with_capacity(files.len());
        for (at, file) in files.iter().enumerate() {
            let file = TensorFile::open(file)?;
            of.extend(file.names().map(|name| (name.to_owned(), at)));
            open.push(file);
        }
        Ok(Weights {
            place: Place::Files { files: open, of },
            path: path.display().to_string(),
            taken: BTreeSet::new(),
        })
    }

    pub(crate) fn in_gguf(gguf: Gguf) -> Weights {
        Weights {
            path: gguf.path().to_owned(),
            place: Place::Gguf(Box::new(gguf)),
            taken: BTreeSet::new(),
        }
    }

    /// Whether the weights are a GGUF's, whose norms hold Gemma's "+ 1" already.
    pub(crate) fn is_gguf(&self) -> bool {
        matches!(self.place, Place::Gguf(_))
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.shape(name).is_some()
    }

    fn shape(&self, name: &str) -> Option<Vec<usize>> {
        match &self.place {
            Place::Files { files, of } => files.get(*of.get(name)?)?.shape(name).map(<[_]>::to_vec),
            Place::Gguf(gguf) => gguf.shape(name),
        }
    }

    /// The first of some prefixes under which there is a tensor; the first of all where there is none,
    /// so that the message names it.
    pub(crate) fn prefix(&self, prefixes: &[&'static str], tensor: &str) -> &'static str {
        let found = prefixes
            .iter()
            .find(|prefix| self.has(&format!("{prefix}{tensor}")));
        found.or(prefixes.first()).copied().unwrap_or_default()
    }

    /// Reads a tensor as `f32`, of the shape that the configuration says.
    pub(crate) fn take(&mut self, name: &str, axes: Axes<'_>) -> Result<Tensor> {
        let expected = Expected(axes.to_vec());
        let Some(found) = self.shape(name) else {
            return Err(self.missing(name, expected));
        };
        if found != expected.shape() {
            return Err(Error::Shape {
                path: self.path.clone(),
                name: name.to_owned(),
                found,
                expected,
            });
        }
        let values = match &mut self.place {
            Place::Files { files, of } => {
                let file = of.get(name).and_then(|at| files.get_mut(*at));
                let file = file.ok_or_else(|| Error::Missing {
                    path: self.path.clone(),
                    name: name.to_owned(),
                    expected,
                    remedy: "download the model again".into(),
                })?;
                single(file.read(name)?.values, &self.path, name)?
            }
            Place::Gguf(gguf) => gguf.read(name)?,
        };
        if let Some(at) = values.iter().position(|x| !x.is_finite()) {
            return Err(Error::NotFinite {
                path: self.path.clone(),
                name: name.to_owned(),
                value: values[at],
                index: index_of(at, &found),
            });
        }
        self.taken.insert(name.to_owned());
        Ok(Tensor::from_vec(values, found, &Device::Cpu)?)
    }

    /// A vector, such as the gain of a norm.
    pub(crate) fn vector(&mut self, name: &str, axis: (&'static str, usize)) -> Result<Arc<[f32]>> {
        Ok(self.take(name, &[axis])?.to_vec1::<f32>()?.into())
    }

    /// A vector under either of two names: old files call a norm's gain gamma and its bias beta.
    pub(crate) fn vector_of(
        &mut self,
        names: [&str; 2],
        axis: (&'static str, usize),
    ) -> Result<Arc<[f32]>> {
        let name = if self.has(names[0]) || !self.has(names[1]) {
            names[0]
        } else {
            names[1]
        };
        self.vector(name, axis)
    }

    fn missing(&self, name: &str, expected: Expected) -> Error {
        let remedy = match &self.place {
            Place::Files { files, .. } if files.len() > 1 => {
                "download the files that the index names"
            }
            _ => {
                "the configuration and the weights do not belong together, or the download is not whole"
            }
        };
        Error::Missing {
            path: self.path.clone(),
            name: name.to_owned(),
            expected,
            remedy: remedy.into(),
        }
    }

    /// Refuses tensors of layers that nobody took: a norm or a bias that the configuration does not
    /// speak of would change what the model does. `harmless` are ends of names of buffers.
    pub(crate) fn finish(&self, layers: &str, harmless: &[&str], family: &str) -> Result<()> {
        let names: Vec<&str> = match &self.place {
            Place::Files { of, .. } => of.keys().map(String::as_str).collect(),
            Place::Gguf(gguf) => gguf.names().collect(),
        };
        // A GGUF has nothing that is not part of the model.
        let of_layer = |name: &str| self.is_gguf() || name.starts_with(layers);
        let mut left: Vec<&str> = names
            .into_iter()
            .filter(|name| of_layer(name) && !self.taken.contains(*name))
            .filter(|name| !harmless.iter().any(|end| name.ends_with(end)))
            .collect();
        left.sort_unstable();
        let Some(first) = left.first() else {
            return Ok(());
        };
        Err(Error::Unused {
            path: self.path.clone(),
            name: (*first).to_owned(),
            family: family.to_owned(),
            more: match left.len() {
                1 => String::new(),
                n => format!(" (nor for {} more)", n - 1),
            },
        })
    }
}

/// Numbers of a float type in single precision.
fn single(values: Values, path: &str, name: &str) -> Result<Vec<f32>> {
    Ok(match values {
        Values::F32(v) => v,
        Values::F16(v) => v.iter().map(|x| x.to_f32()).collect(),
        Values::Bf16(v) => v.iter().map(|x| x.to_f32()).collect(),
        Values::F64(v) => v.iter().map(|x| *x as f32).collect(),
        other => {
            return Err(Error::Damaged {
                path: path.to_owned(),
                found: format!("the tensor {name} holds {}", other.dtype()),
                remedy: "weights are floating-point numbers; quantized ones are read from GGUF only",
            });
        }
    })
}

fn index_of(mut at: usize, shape: &[usize]) -> Vec<usize> {
    let mut index = vec![0; shape.len()];
    for axis in (0..shape.len()).rev() {
        index[axis] = at % shape[axis].max(1);
        at /= shape[axis].max(1);
    }
    index
}

/// The files that an index names, in order; each lies in the folder.
pub(crate) fn indexed(folder: &Path, index: &Path) -> Result<Vec<PathBuf>> {
    let damaged = |found: &str| Error::Damaged {
        path: index.display().to_string(),
        found: found.to_owned(),
        remedy: "download it again",
    };
    let json = crate::files::json(index)?;
    let map = json.get("weight_map").and_then(|map| map.as_object());
    let map = map.ok_or_else(|| damaged("weight_map is missing"))?;
    let mut files = BTreeSet::new();
    for file in map.values() {
        let file = file
            .as_str()
            .ok_or_else(|| damaged("weight_map names no files"))?;
        if file.contains(['/', '\\']) || file.starts_with('.') {
            return Err(damaged("weight_map names a file of another folder"));
        }
        files.insert(folder.join(file));
    }
    if files.is_empty() {
        return Err(damaged("weight_map names no files"));
    }
    Ok(files.into_iter().collect())
}

fn no_weights(folder: &Path) -> Error {
    let others = [
        "pytorch_model.bin",
        "tf_model.h5",
        "flax_model.msgpack",
        "model.onnx",
    ];
    let other = others.iter().find(|name| folder.join(name).is_file());
    let (found, remedy) = match other {
        Some(other) => (
            format!("there is {other}, but no model.safetensors"),
            "nothing is unpickled here; convert it with transformers: \
             AutoModel.from_pretrained(FOLDER).save_pretrained(NEW)",
        ),
        None => (
            "neither model.safetensors nor model.safetensors.index.json is there".into(),
            "give the folder that config.json and the weights are in, or a GGUF file",
        ),
    };
    Error::Damaged {
        path: folder.display().to_string(),
        found,
        remedy,
    }
}
