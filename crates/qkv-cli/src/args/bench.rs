//! What `qkv bench` takes.

use super::EngineArgs;
use super::values;
use crate::suite::Case;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// Which cases, how, against whom.
#[derive(Args, Debug)]
pub struct BenchArgs {
    /// Cases, with commas between; all if left out
    ///
    /// encoder-long, bert-short, vision: an encoder's; prefill-1k, prefill-4k, long-16k: causal,
    /// with shared key and value heads; window-4k: 512 keys back; mla-1k: d_k 192, d_v 128; cross,
    /// cross-img: 77 text tokens and an image; decode-1, decode-batch: one query against many keys,
    /// decode-1-cache, decode-batch-cache: in a cache of qkv; tiny-2, tiny-16: the cost of a call.
    /// Only where they are named: faults-b034, faults-b077, faults-b079, faults-b079-causal,
    /// faults-b081, faults-b084, shapes that people reported as slow or large elsewhere.
    #[arg(long, value_name = "CASE,...", value_parser = values::case, value_delimiter = ',', help_heading = "What")]
    pub case: Vec<&'static Case>,
    /// Mask over all scores, with commas between: none, bool, float
    ///
    /// bool keeps four of five keys, float adds a number to each score. What a case has of its own
    /// (causality, a window) stays.
    #[arg(
        long,
        value_name = "KIND,...",
        value_enum,
        value_delimiter = ',',
        default_value = "none",
        hide_possible_values = true,
        help_heading = "What"
    )]
    pub mask: Vec<MaskKind>,
    /// Number format: f32, f64, bf16 or f16
    #[arg(long, value_name = "DTYPE", value_enum, default_value_t = Dtype::F32, hide_default_value = true, hide_possible_values = true, help_heading = "What")]
    pub dtype: Dtype,
    /// forward or backward; forward if left out
    ///
    /// Backward computes the gradients of q, k and v from the output, lse and a gradient of the
    /// output; the forward pass is outside the clock, for others too.
    #[arg(long, value_name = "MODE", value_enum, default_value_t = Mode::Forward, hide_default_value = true, hide_possible_values = true, help_heading = "What")]
    pub mode: Mode,
    /// Numbers of threads, with commas between; 1 if left out
    #[arg(long, value_name = "N,...", value_parser = values::threads, value_delimiter = ',', default_value = "1", hide_default_value = true, allow_negative_numbers = true, help_heading = "Computing")]
    pub threads: Vec<usize>,
    /// Instruction set, order of sums.
    #[command(flatten)]
    pub engine: EngineArgs,
    /// Milliseconds that each case is repeated for
    #[arg(long, value_name = "MS", value_parser = values::count, default_value_t = 500, allow_negative_numbers = true, help_heading = "Computing")]
    pub repeat: usize,
    /// Others to run in turns with: torch, onnxruntime, openvino
    ///
    /// They are those that $PYTHON, or else python3, finds. Each runs its fastest operator; what
    /// it computes is compared with qkv's result first, and is left out if it differs. A ratio is
    /// the CPU time of the other divided by qkv's: above 1, qkv is faster.
    #[arg(
        long,
        value_name = "NAME,...",
        value_enum,
        value_delimiter = ',',
        hide_possible_values = true,
        help_heading = "Against others"
    )]
    pub against: Vec<Peer>,
    /// Prints one JSON object a line, for programs
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Writes the JSON lines to a file too, or to a new one in a folder
    ///
    /// A first line says which machine, versions and date they are of.
    #[arg(
        short = 'o',
        long = "output",
        value_name = "FILE",
        help_heading = "Output"
    )]
    pub file: Option<PathBuf>,
    /// Prints how many bytes one call takes beyond its output: what is asked of a fresh process
    #[arg(long, hide = true)]
    pub extra_bytes: bool,
}

/// A mask over all scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MaskKind {
    /// None
    None,
    /// Keeps or drops
    Bool,
    /// Adds
    Float,
}

impl MaskKind {
    /// As --mask has it.
    pub fn name(self) -> &'static str {
        match self {
            MaskKind::None => "none",
            MaskKind::Bool => "bool",
            MaskKind::Float => "float",
        }
    }
}

/// A number format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Dtype {
    /// Single precision
    F32,
    /// Double precision
    F64,
    /// Half precision
    F16,
    /// Brain floating point
    Bf16,
}

impl Dtype {
    /// As --dtype has it.
    pub fn name(self) -> &'static str {
        match self {
            Dtype::F32 => "f32",
            Dtype::F64 => "f64",
            Dtype::F16 => "f16",
            Dtype::Bf16 => "bf16",
        }
    }
}

/// What is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// The output
    Forward,
    /// The gradient
    Backward,
}

impl Mode {
    /// As --mode has it.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Forward => "forward",
            Mode::Backward => "backward",
        }
    }
}

/// Somebody else's attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Peer {
    /// PyTorch
    Torch,
    /// ONNX Runtime
    Onnxruntime,
    /// OpenVINO
    Openvino,
}

impl Peer {
    /// As --against has it, and as Python calls it.
    pub fn name(self) -> &'static str {
        match self {
            Peer::Torch => "torch",
            Peer::Onnxruntime => "onnxruntime",
            Peer::Openvino => "openvino",
        }
    }

    /// What has to be installed for it.
    pub fn packages(self) -> &'static str {
        match self {
            Peer::Torch => "numpy torch",
            Peer::Onnxruntime => "numpy onnx onnxruntime",
            Peer::Openvino => "numpy openvino",
        }
    }
}
