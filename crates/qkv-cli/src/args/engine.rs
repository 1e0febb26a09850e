//! How the fast path computes.

use super::values;
use clap::Args;
use qkv::Isa;

/// Instruction set, order of sums.
#[derive(Args, Debug)]
#[command(next_help_heading = "Computing")]
pub struct EngineArgs {
    /// Instruction set: avx512bf16, avx512, avx2 or portable; the best of this processor if left out
    ///
    /// Results have the same bits for any number of threads, but not for another instruction set.
    /// The environment variable QKV_ISA says the same for all runs.
    #[arg(long, value_name = "ISA", value_parser = values::isa)]
    pub isa: Option<Isa>,
    /// Lets one or two queries a key and value head sum scores in another order, which is faster
    ///
    /// It gives up that a query alone has the bits of the same query among others: a decoded token
    /// is then the row of a prefill within rounding only. Threads and batches change no bit still.
    #[arg(long)]
    pub any_order: bool,
}
