//! Everything that can end a command, each with the argument it is about.

use qkv_io::{reason, shown, shown_shape};
use std::io;

/// Result of everything in this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a command ended. Messages start with the argument and end with what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An array could not be read, or a file not be written.
    #[error("{argument}: {source}")]
    Io {
        /// The option.
        argument: &'static str,
        /// What happened.
        source: Box<qkv_io::Error>,
    },
    /// A trace, or a question about it, was refused.
    #[error("{argument}: {source}")]
    Trace {
        /// The option.
        argument: &'static str,
        /// What happened.
        source: Box<qkv_trace::Error>,
    },
    /// The engine refused.
    #[error("{argument}: {}{}", without_name(.source), axes_note(.source))]
    Engine {
        /// The option that its message is about.
        argument: &'static str,
        /// What it said.
        source: Box<qkv::Error>,
    },
    /// An array of a number of axes that it may not have.
    #[error("{argument}: shape {} has {}; {remedy}", shown_shape(.shape), axes(.shape.len()))]
    Axes {
        /// The option.
        argument: &'static str,
        /// The array's shape.
        shape: Vec<usize>,
        /// What is expected.
        remedy: String,
    },
    /// An array whose shape does not fit another's.
    #[error(
        "{argument}: shape {} does not fit {other}, {}: {remedy}",
        shown_shape(.shape), shown_shape(.other_shape)
    )]
    Shapes {
        /// The option.
        argument: &'static str,
        /// The array's shape.
        shape: Vec<usize>,
        /// What it has to fit.
        other: String,
        /// The shape of that.
        other_shape: Vec<usize>,
        /// What to do.
        remedy: String,
    },
    /// Two options that exclude each other.
    #[error("{argument}: cannot be used with {other}; {remedy}")]
    Conflict {
        /// The option.
        argument: &'static str,
        /// The other.
        other: String,
        /// What to do.
        remedy: &'static str,
    },
    /// An option that needs another.
    #[error("{argument}: missing; {remedy}")]
    Missing {
        /// What is missing.
        argument: String,
        /// What to do.
        remedy: String,
    },
    /// An option that means nothing without another.
    #[error("{argument}: has no meaning without {needed}; {remedy}")]
    Alone {
        /// The option.
        argument: &'static str,
        /// What it needs.
        needed: &'static str,
        /// What to do.
        remedy: &'static str,
    },
    /// A value that an option cannot have here.
    #[error("{argument}: {value} is not possible; {remedy}")]
    Value {
        /// The option.
        argument: &'static str,
        /// The value.
        value: String,
        /// What to do.
        remedy: String,
    },
    /// More memory than is taken without asking.
    #[error(
        "{argument}: {what} need about {gib:.1} GiB, more than the {limit} GiB that are taken; {remedy}"
    )]
    Memory {
        /// The option whose value is the cause.
        argument: &'static str,
        /// What needs it, with its shape.
        what: String,
        /// How much it needs.
        gib: f64,
        /// What is allowed.
        limit: u32,
        /// What to do.
        remedy: &'static str,
    },
    /// A problem that makes no exercise.
    #[error("--exercise: {0}")]
    NoExercise(#[from] qkv_report::NoExercise),
    /// Less memory than is needed.
    #[error(
        "{argument}: {what} need about {}, and there is not so much memory; {remedy}, or free some",
        amount(*.bytes)
    )]
    Room {
        /// The option whose value is the cause.
        argument: &'static str,
        /// What needs it.
        what: String,
        /// How much it needs.
        bytes: u128,
        /// What to do.
        remedy: &'static str,
    },
    /// The words of the command line make no sense.
    #[error("{0}")]
    Usage(String),
    /// No command at all: the help.
    #[error("{0}")]
    NoCommand(String),
    /// Somebody pressed Ctrl-C.
    #[error("interrupted")]
    Interrupted,
    /// Standard output went away or is full.
    #[error("could not write to standard output: {}", reason(.0))]
    Stdout(io::Error),
}

impl Error {
    /// Whether the reader of a pipe has simply seen enough.
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, Error::Stdout(source) if source.kind() == io::ErrorKind::BrokenPipe)
    }

    /// From the engine, with the option that the message is about.
    pub fn engine(names: Names) -> impl Fn(qkv::Error) -> Error {
        move |source| {
            let argument = names.argument(&source);
            Error::Engine {
                argument,
                source: Box::new(source),
            }
        }
    }

    /// The system gives no such number of threads.
    pub fn threads(threads: usize) -> Error {
        Error::Value {
            argument: "--threads",
            value: threads.to_string(),
            remedy: "the system gives no more threads: ask for fewer".into(),
        }
    }

    /// From reading or writing for this option.
    pub fn io(argument: &'static str) -> impl Fn(qkv_io::Error) -> Error {
        move |source| Error::Io {
            argument,
            source: Box::new(source),
        }
    }

    /// From a trace, about this option.
    pub fn trace(argument: &'static str) -> impl Fn(qkv_trace::Error) -> Error {
        move |source| Error::Trace {
            argument,
            source: Box::new(source),
        }
    }

    /// From the engine, about this option.
    pub fn about(argument: &'static str) -> impl Fn(qkv::Error) -> Error {
        move |source| Error::Engine {
            argument,
            source: Box::new(source),
        }
    }
}

/// Which options q, k and v stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// --q, --k, --v.
    Given,
    /// --wq, --wk, --wv make them from --x.
    Projected,
}

impl Names {
    /// The option that an error of the engine is about.
    fn argument(self, error: &qkv::Error) -> &'static str {
        use qkv::Error as E;
        match error {
            E::Mismatch { left, right, .. } => match (*left, *right) {
                ("x", "the attention's output") => "--residual",
                // The past is what was added to arrays that are there.
                (past @ ("past k" | "past v"), _) => self.option(past),
                (_, right) => self.option(right),
            },
            E::Groups { .. } if self == Names::Given => "--k",
            E::Groups { .. } => "--kv-heads",
            E::CausalAlignment { .. } => "--causal",
            E::EmptyRows { .. } => "--empty-rows",
            E::Count { argument, .. }
            | E::OutOfBounds { argument, .. }
            | E::Rank { argument, .. }
            | E::Broadcast { argument, .. }
            | E::ListLength { argument, .. } => self.option(argument),
            E::Option { option, .. } => self.option(option),
            _ => "attention",
        }
    }

    /// The option of an argument of the engine.
    fn option(self, argument: &str) -> &'static str {
        let given = self == Names::Given;
        match argument {
            "q" | "head_dim" => {
                if given {
                    "--q"
                } else {
                    "--wq"
                }
            }
            "k" => {
                if given {
                    "--k"
                } else {
                    "--wk"
                }
            }
            "v" => {
                if given {
                    "--v"
                } else {
                    "--wv"
                }
            }
            "W_Q" => "--wq",
            "W_K" => "--wk",
            "W_V" => "--wv",
            "W_O" => "--wo",
            "x" => "--x",
            "context" => "--context",
            "past k" => "--past-k",
            "past v" => "--past-v",
            "q_norm" => "--q-norm",
            "k_norm" => "--k-norm",
            "keep" => "--keep",
            "drop" => "--drop",
            "bias" => "--bias",
            "alibi" => "--alibi",
            "sinks" => "--sinks",
            "scale" => "--scale",
            "softcap" => "--softcap",
            "dropout" => "--dropout",
            "lengths" => "--kv-lengths",
            "documents" => "--documents",
            "heads" => "--heads",
            "isa" => "--isa",
            "QKV_ISA" => "QKV_ISA",
            "residual" => "--residual",
            "rotary dim" => "--rotary-dim",
            "rotary base" => "--rotary-base",
            "rotary scaling" => "--rotary-scaling",
            "positions" => "--position-offset",
            _ => "attention",
        }
    }
}

/// The engine's message without the argument it starts with, since the option says that already.
fn without_name(error: &qkv::Error) -> String {
    use qkv::Error as E;
    if let E::Option {
        option,
        value,
        remedy,
    } = error
        && *option != "head_dim"
    {
        return format!("{} is not possible; {remedy}", shown(value));
    }
    let text = error.to_string();
    let name = match error {
        E::Count { argument, .. }
        | E::OutOfBounds { argument, .. }
        | E::Rank { argument, .. }
        | E::Broadcast { argument, .. }
        | E::ListLength { argument, .. } => argument,
        E::CausalAlignment { .. } => "causal",
        _ => return text,
    };
    match text
        .strip_prefix(name)
        .and_then(|text| text.strip_prefix(": "))
    {
        Some(rest) => rest.to_owned(),
        None => text,
    }
}

/// What the shapes of q, k and v in a message are: arrays of fewer axes have leading ones there.
fn axes_note(error: &qkv::Error) -> &'static str {
    match error {
        qkv::Error::Mismatch {
            left_shape,
            right_shape,
            ..
        } if left_shape.0.len() == 4 && right_shape.0.len() == 4 => {
            " (shapes are [batch, heads, length, width])"
        }
        _ => "",
    }
}

fn amount(bytes: u128) -> String {
    const MIB: u128 = 1 << 20;
    format!("{} MiB", bytes.div_ceil(MIB))
}

fn axes(count: usize) -> String {
    if count == 1 {
        "1 axis".into()
    } else {
        format!("{count} axes")
    }
}
