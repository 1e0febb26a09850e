//! What can be shown beside the calculation.

use super::values::{self, Indices, Tokens};
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
    /// Runs again with the tokens in this order, and shows what becomes of the outputs
    ///
    /// A list of all indices, for example 1,0,2: token i of the second run is the listed one of
    /// the first. Masks and bias move along. Options that tell positions are tried one by one.
    #[arg(
        long,
        value_name = "I,...",
        value_parser = values::indices, allow_negative_numbers = true
    )]
    pub permute: Option<Indices>,
    /// Names the tokens: rows and columns carry them
    ///
    /// Words between blanks, or a JSON list for tokens that hold blanks: [\"the\", \" cat\"]. One
    /// for each key, cached ones first (with --context: for each token of --x). Under a mask it is
    /// told which tokens each position sees.
    #[arg(long, value_name = "WORDS", value_parser = values::tokens, allow_hyphen_values = true)]
    pub tokens: Option<Tokens>,
    /// Shows the token that each position is trained to predict, and warns of a mask that shows it
    ///
    /// The label of a position is the next token. For self-attention.
    #[arg(long)]
    pub next_token: bool,
    /// Explains the step of the last token, with the keys and values of those before it cached
    ///
    /// With --x: all tokens but the last run first and fill the cache. The row of the step is
    /// compared with the last row of a run over all tokens.
    #[arg(long)]
    pub decode: bool,
}
