//! How the fast path computes.

use super::values;
use clap::Args;
use qkv::Isa;

/// The instruction set.
#[derive(Args, Debug)]
#[command(next_help_heading = "Computing")]
pub struct EngineArgs {
    /// Instruction set: avx512, avx2 or portable; the best of this processor if left out
    ///
    /// Results have the same bits for any number of threads, but not for another instruction set.
    /// The environment variable QKV_ISA says the same for all runs.
    #[arg(long, value_name = "ISA", value_parser = values::isa)]
    pub isa: Option<Isa>,
}
