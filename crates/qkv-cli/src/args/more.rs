//! What can be shown beside the calculation.

use clap::Args;

/// What else to show.
#[derive(Args, Debug)]
#[command(next_help_heading = "Beside the calculation")]
pub struct MoreArgs {
    /// Shows what common mistakes would have given, beside the right numbers
    ///
    /// Softmax over the queries, softmax over the whole matrix, no scale, √d_model instead of
    /// √d_k, and the mask inverted; each with why it is wrong and how to recognise it. JSON gets
    /// a key "contrast".
    #[arg(long)]
    pub contrast: bool,
}
