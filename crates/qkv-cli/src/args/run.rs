//! What `qkv run` takes.

use super::values;
use super::{AttentionArgs, EngineArgs, InputArgs, Language, NormArgs, PositionArgs};
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// Arrays, options, results.
#[derive(Args, Debug)]
pub struct RunArgs {
    /// Arrays.
    #[command(flatten)]
    pub inputs: InputArgs,
    /// Norms.
    #[command(flatten)]
    pub norms: NormArgs,
    /// Options of attention.
    #[command(flatten)]
    pub attention: AttentionArgs,
    /// Positions.
    #[command(flatten)]
    pub position: PositionArgs,
    /// Gradients.
    #[command(flatten)]
    pub gradient: RunGradientArgs,
    /// Threads at most; as many as there are cores if left out
    #[arg(long, value_name = "N", value_parser = values::threads, allow_negative_numbers = true, help_heading = "Computing")]
    pub threads: Option<usize>,
    /// Instruction set, order of sums.
    #[command(flatten)]
    pub engine: EngineArgs,
    /// Results.
    #[command(flatten)]
    pub output: RunOutputArgs,
}

/// Whether gradients are computed, and from what.
#[derive(Args, Debug)]
#[command(next_help_heading = "Gradients")]
pub struct RunGradientArgs {
    /// Computes the gradients too: grad_q, grad_k, grad_v, and those of --bias and --sinks
    ///
    /// They are those of Σ output·grad-output. Each has the axes and the layout of what it is the
    /// gradient of, the cached keys and values first, and the number format of q.
    #[arg(long)]
    pub backward: bool,
    /// Gradient of the loss by the output, with the output's axes; 1 everywhere if left out
    #[arg(long, value_name = "ARRAY", value_parser = values::array, allow_hyphen_values = true)]
    pub grad_output: Option<String>,
}

/// What is written, and where.
#[derive(Args, Debug)]
#[command(next_help_heading = "Output")]
pub struct RunOutputArgs {
    /// Writes to a file, whose ending decides the format: .safetensors, .npy, .npz or .json
    ///
    /// The arrays in it are output, lse, weights and gradients; npy holds the output alone. The file is
    /// replaced only when the whole result is there, and never one of the inputs. Without -o a
    /// summary is printed.
    #[arg(short = 'o', long = "output", value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Adds lse, the logarithm of each row's sum of exp(score)
    #[arg(long)]
    pub lse: bool,
    /// Adds the weights, L_q × L_k for each head
    #[arg(long)]
    pub weights: bool,
    /// Format of the result: safetensors, npy, npz or json; with -o - to standard output
    #[arg(long, value_name = "FORMAT", value_enum, hide_possible_values = true)]
    pub format: Option<FileFormat>,
    /// Short for --format json: all numbers, and on standard output unless -o names a file
    #[arg(long)]
    pub json: bool,
    /// Language of the summary, en or zh; that of the environment if left out
    #[arg(long, value_name = "LANG", value_enum, hide_possible_values = true)]
    pub lang: Option<Language>,
    /// Decimals of the summary, 0 to 17
    #[arg(long, value_name = "N", value_parser = values::digits, default_value_t = 4, allow_negative_numbers = true)]
    pub digits: usize,
    /// Shows no progress; it is shown in a terminal only, and for long work
    #[arg(long)]
    pub quiet: bool,
}

/// The formats of arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FileFormat {
    /// All arrays, any number format
    Safetensors,
    /// The output alone
    Npy,
    /// All arrays
    Npz,
    /// All arrays, in decimals
    Json,
}
