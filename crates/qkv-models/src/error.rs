//! What can be wrong with a model, its files or a text, with the data to say so.

use std::fmt;
use std::path::Path;

/// Result of everything in this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a model was refused. Every message names the file, what was found, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system does not give a file.
    #[error("{path}: cannot be read: {}", qkv_io::reason(.source))]
    Io {
        /// The file or folder.
        path: String,
        /// What the system says.
        source: std::io::Error,
    },
    /// A safetensors file.
    #[error(transparent)]
    File(Box<qkv_io::Error>),
    /// A file that is damaged, or is something else than it should be.
    #[error("{path}: {found}; {remedy}")]
    Damaged {
        /// The file.
        path: String,
        /// What is wrong, with the place.
        found: String,
        /// What to do.
        remedy: &'static str,
    },
    /// Nothing of this name.
    #[error("{model}: no such model; looked for {}", looked.join(", "))]
    NotFound {
        /// What was asked for.
        model: String,
        /// Where it was looked for.
        looked: Vec<String>,
    },
    /// The hub could not give it.
    #[error("{model}: not found here, and not fetched from {endpoint}: {found}")]
    Hub {
        /// What was asked for.
        model: String,
        /// Who was asked.
        endpoint: String,
        /// What was said.
        found: String,
    },
    /// A kind of model that is not known.
    #[error("{path}: model_type {found} is not supported; these are: {}", crate::FAMILIES.join(", "))]
    Family {
        /// The file that says it.
        path: String,
        /// The type.
        found: String,
    },
    /// A key of the configuration.
    #[error("{path}: {key} {found}; {remedy}")]
    Config {
        /// The file.
        path: String,
        /// The key, with those around it before it: `rope_parameters.rope_type`.
        key: String,
        /// What is wrong with it: `is "longrope"`.
        found: String,
        /// What to do.
        remedy: String,
    },
    /// A tensor that the configuration asks for is not there.
    #[error("{path}: the tensor {name} is missing, of {expected}; {remedy}")]
    Missing {
        /// The weights' file.
        path: String,
        /// The tensor.
        name: String,
        /// Its shape by the configuration.
        expected: Expected,
        /// What to do.
        remedy: String,
    },
    /// A tensor has another shape than the configuration says.
    #[error("{path}: the tensor {name} has shape {found:?}, but the configuration says {expected}")]
    Shape {
        /// The weights' file.
        path: String,
        /// The tensor.
        name: String,
        /// Its shape.
        found: Vec<usize>,
        /// Its shape by the configuration.
        expected: Expected,
    },
    /// A tensor of a layer that the model as configured does not have.
    #[error(
        "{path}: the tensor {name} belongs to a layer, but a {family} model as configured has no use \
         for it{more}; the configuration and the weights do not belong together, or this variant is \
         not supported"
    )]
    Unused {
        /// The weights' file.
        path: String,
        /// The tensor.
        name: String,
        /// The kind of model.
        family: String,
        /// How many more there are, empty or starting with ` (`.
        more: String,
    },
    /// A weight that is no number.
    #[error(
        "{path}: the tensor {name} holds {value} at {index:?}; a model with such a weight computes \
         nothing: download it again or ask who made it"
    )]
    NotFinite {
        /// The weights' file.
        path: String,
        /// The tensor.
        name: String,
        /// NaN, inf or -inf.
        value: f32,
        /// Where, an index on each axis.
        index: Vec<usize>,
    },
    /// A text that the model cannot take.
    #[error("{what} {found}; {remedy}")]
    Text {
        /// What of it.
        what: &'static str,
        /// What is wrong.
        found: String,
        /// What to do.
        remedy: String,
    },
    /// The attention refused.
    #[error(transparent)]
    Attention(Box<qkv::Error>),
    /// candle refused.
    #[error("while computing: {0}")]
    Candle(Box<candle_core::Error>),
}

macro_rules! boxed {
    ($($variant:ident $source:ty),*) => {$(
        impl From<$source> for Error {
            fn from(error: $source) -> Error {
                Error::$variant(Box::new(error))
            }
        }
    )*};
}
boxed!(File qkv_io::Error, Attention qkv::Error, Candle candle_core::Error);

impl Error {
    pub(crate) fn io(path: &Path, source: std::io::Error) -> Error {
        Error::Io {
            path: path.display().to_string(),
            source,
        }
    }
}

/// A shape by the configuration: each axis with the keys that say its length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected(pub Vec<(&'static str, usize)>);

impl Expected {
    pub(crate) fn shape(&self) -> Vec<usize> {
        self.0.iter().map(|(_, size)| *size).collect()
    }
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let axes: Vec<String> = self
            .0
            .iter()
            .map(|(name, size)| format!("{name} = {size}"))
            .collect();
        write!(f, "[{}]", axes.join(", "))
    }
}
