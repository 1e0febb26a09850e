//! The words of the command line, one place for all commands.

mod backward;
mod bench;
mod check;
mod engine;
mod exercise;
mod help;
mod inputs;
mod layer;
mod masks;
mod more;
mod output;
mod run;
mod trace;
mod values;

pub use backward::BackwardArgs;
pub use bench::{BenchArgs, Dtype, MaskKind, Mode, Peer};
pub use check::{CheckArgs, ClaimArgs};
pub use engine::EngineArgs;
pub use exercise::{ExerciseArgs, Problem};
pub use inputs::{InputArgs, Layout};
pub use layer::{LayerArgs, NormArgs, WidthArgs};
pub use masks::{AttentionArgs, Empty, PositionArgs, PositionKind};
pub use more::MoreArgs;
pub use output::{Color, Format, Language, OutputArgs};
pub use run::{FileFormat, RunArgs, RunGradientArgs, RunOutputArgs};
#[cfg(feature = "models")]
pub use trace::Side;
pub use trace::{
    GivenArgs, Sink, TraceArgs, TraceFormat, TraceOutputArgs, numbers as trace_numbers,
};
pub use values::{Indices, Init, Lengths, Tokens};

use clap::{Args, Parser, Subcommand};

/// Attention from queries, keys and values, with every step to see.
#[derive(Debug, Parser)]
#[command(
    name = "qkv",
    version,
    propagate_version = true,
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = help::SHORT,
    after_long_help = help::MAIN,
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show the whole worked calculation of one attention
    ///
    /// Every number from the queries, keys and values (or the tokens and weights that make them)
    /// to the output, each step with its formula, its shape and what it means. Without arrays the
    /// built-in example of two tokens is worked: Q = K = [[1,0],[0,1]], V = [[2,0],[0,4]].
    #[command(after_long_help = help::EXPLAIN, after_help = help::EXPLAIN_SHORT)]
    Explain(Box<ExplainArgs>),
    /// Say whether somebody else's numbers are right, and if not, why
    ///
    /// Their scores, weights or output are compared with the right ones, with a bound that says
    /// what rounding can do. If they differ, every known way to get attention wrong is tried, alone
    /// and in pairs, and those that explain every number are named.
    #[command(after_long_help = help::CHECK, after_help = help::CHECK_SHORT)]
    Check(Box<CheckArgs>),
    /// Compute attention over files, fast
    ///
    /// softmax(scale·q·kᵀ + masks)·v of arrays in the number format that they have. Large npy and
    /// safetensors files are used where they are, without a copy.
    #[command(after_long_help = help::RUN, after_help = help::RUN_SHORT)]
    Run(Box<RunArgs>),
    /// Show what the heads of a model did: which token looks at which
    ///
    /// A run's weights, from a trace file or from elsewhere, as heat maps and strongest links, as a
    /// ranking of heads by what they look at, as one page for a browser, or as a file to compare.
    #[command(after_long_help = help::TRACE, after_help = help::TRACE_SHORT)]
    Trace(Box<TraceArgs>),
    /// Measure how fast this machine computes attention
    ///
    /// Each case of the suite is run many times, and held against what the machine was measured to
    /// do at most: fused multiply-adds, or reading memory where that rules. With --against, others
    /// run the same in turns.
    #[command(after_long_help = help::BENCH, after_help = help::BENCH_SHORT)]
    Bench(Box<BenchArgs>),
    /// Print completions for a shell
    ///
    /// For example: qkv completions bash > ~/.local/share/bash-completion/completions/qkv
    Completions {
        /// The shell
        #[arg(value_enum, value_name = "SHELL")]
        shell: clap_complete::Shell,
    },
    /// Print the manual page, in roff
    ///
    /// For example: qkv man explain | man -l -
    Man {
        /// The command whose page to print; that of qkv itself if left out
        #[arg(value_name = "COMMAND")]
        command: Option<String>,
    },
}

/// What `qkv explain` takes.
#[derive(Args, Debug)]
pub struct ExplainArgs {
    /// Arrays.
    #[command(flatten)]
    pub inputs: InputArgs,
    /// Projections.
    #[command(flatten)]
    pub layer: LayerArgs,
    /// Widths of drawn weights.
    #[command(flatten)]
    pub widths: WidthArgs,
    /// Options of attention.
    #[command(flatten)]
    pub attention: AttentionArgs,
    /// Positions.
    #[command(flatten)]
    pub position: PositionArgs,
    /// The gradient.
    #[command(flatten)]
    pub gradient: BackwardArgs,
    /// What else to show.
    #[command(flatten)]
    pub more: MoreArgs,
    /// Sheet and key.
    #[command(flatten)]
    pub exercise: ExerciseArgs,
    /// Format, language, look.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Query to work out in full, from 0; a list or repeated gives several
    ///
    /// Left out: all of a small input, one of a large one. JSON and safetensors always hold
    /// every row.
    #[arg(
        long,
        value_name = "I",
        value_parser = values::indices, allow_negative_numbers = true,
        help_heading = "Output"
    )]
    pub row: Vec<Indices>,
}

impl ExplainArgs {
    /// The queries of --row, of one list or several.
    pub fn rows(&self) -> Vec<usize> {
        self.row
            .iter()
            .flat_map(|Indices(rows)| rows)
            .copied()
            .collect()
    }
}
