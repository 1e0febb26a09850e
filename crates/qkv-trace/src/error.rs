//! What can be wrong with a trace.

use qkv_io::{shown, shown_shape};

/// Result of everything in this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a source, a file or a question about them was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Facts that contradict each other.
    #[error("{what}: {found}; {remedy}")]
    Facts {
        /// Which fact.
        what: &'static str,
        /// What it says, and what that contradicts.
        found: String,
        /// What to do.
        remedy: &'static str,
    },
    /// An array of another shape than the facts say.
    #[error(
        "{name}: shape {} where the facts say {}; give both from one run",
        shown_shape(.found), shown_shape(.expected)
    )]
    Shape {
        /// The array.
        name: String,
        /// The shape that the facts say.
        expected: Vec<usize>,
        /// Its shape.
        found: Vec<usize>,
    },
    /// A layer, head, batch entry or row that is not there.
    #[error("{what} {asked} is not there; there are {available}")]
    NotThere {
        /// Which of these.
        what: &'static str,
        /// What was asked for.
        asked: usize,
        /// What there is, in words.
        available: String,
    },
    /// Something that was not recorded.
    #[error("{kind}: not kept of layer {layer}; {remedy}")]
    NotKept {
        /// What, as `--keep` spells it.
        kind: &'static str,
        /// The layer.
        layer: usize,
        /// What to do.
        remedy: &'static str,
    },
    /// A residual that was not recorded.
    #[error("{kind}: {stage} was not kept; record it with --keep")]
    NoResidual {
        /// What, as `--keep` spells it.
        kind: &'static str,
        /// Its name in a trace file.
        stage: String,
    },
    /// A statistic that is not known.
    #[error("the statistic \"{}\" is not possible; {remedy}", shown(.asked))]
    Statistic {
        /// What was asked for.
        asked: String,
        /// What to do.
        remedy: String,
    },
    /// A file whose notes do not say what it is.
    #[error("{}: {found}; {remedy}", shown(.origin))]
    NoTrace {
        /// The file.
        origin: String,
        /// What is missing or wrong.
        found: String,
        /// What to do.
        remedy: &'static str,
    },
    /// Reading or writing a file failed.
    #[error(transparent)]
    Io(Box<qkv_io::Error>),
    /// A source that computes could not.
    #[error("{0}")]
    Source(Box<dyn std::error::Error + Send + Sync>),
}

impl From<qkv_io::Error> for Error {
    fn from(error: qkv_io::Error) -> Error {
        Error::Io(Box::new(error))
    }
}
