//! The layer around attention: tokens, weights, output projection, residual.

use super::values::{self, Init};
use clap::Args;

/// Tokens and weights.
#[derive(Args, Debug)]
#[command(next_help_heading = "Layer")]
pub struct LayerArgs {
    /// Tokens, [L,D] or [B,L,D], from which weights make q, k and v
    #[arg(long, value_name = "ARRAY", value_parser = values::array, allow_hyphen_values = true)]
    pub x: Option<String>,
    /// Tokens that keys and values are made from instead of --x: cross-attention
    #[arg(long, value_name = "ARRAY", value_parser = values::array, allow_hyphen_values = true)]
    pub context: Option<String>,
    /// Query weight, [D,H·d_k], used as x·W
    ///
    /// nn.Linear stores weights the other way round, [out,in]: transpose those first.
    #[arg(long, value_name = "ARRAY", value_parser = values::array, allow_hyphen_values = true)]
    pub wq: Option<String>,
    /// Key weight, [D,H_kv·d_k]
    #[arg(long, value_name = "ARRAY", value_parser = values::array, allow_hyphen_values = true)]
    pub wk: Option<String>,
    /// Value weight, [D,H_kv·d_v]
    #[arg(long, value_name = "ARRAY", value_parser = values::array, allow_hyphen_values = true)]
    pub wv: Option<String>,
    /// Output weight, [H·d_v,D]; also with --q --k --v
    #[arg(long, value_name = "ARRAY", value_parser = values::array, allow_hyphen_values = true)]
    pub wo: Option<String>,
    /// Bias of the queries, one number for each column of --wq
    #[arg(long, value_name = "ARRAY", value_parser = values::array, allow_hyphen_values = true)]
    pub bq: Option<String>,
    /// Bias of the keys
    #[arg(long, value_name = "ARRAY", value_parser = values::array, allow_hyphen_values = true)]
    pub bk: Option<String>,
    /// Bias of the values
    #[arg(long, value_name = "ARRAY", value_parser = values::array, allow_hyphen_values = true)]
    pub bv: Option<String>,
    /// Bias of the output weight
    #[arg(long, value_name = "ARRAY", value_parser = values::array, allow_hyphen_values = true)]
    pub bo: Option<String>,
    /// Draws the weights that are not given: normal:STD, uniform:A or xavier
    ///
    /// normal:STD has mean 0 and standard deviation STD, uniform:A lies from -A to A, xavier is
    /// uniform with A = √(6/(rows+columns)). W_Q, W_K and W_V are drawn where they are missing;
    /// W_O too with more than one head or with --residual. The same --seed gives the same weights
    /// on every machine, and each weight its own, whichever others are given.
    #[arg(long, value_name = "KIND", value_parser = values::init)]
    pub init: Option<Init>,
    /// Widths of drawn weights, which each command takes in its own way.
    #[arg(skip)]
    pub widths: WidthArgs,
    /// Adds x to the result
    #[arg(long)]
    pub residual: bool,
    /// Norms.
    #[command(flatten)]
    pub norms: NormArgs,
}

/// Norms of queries and keys.
#[derive(Args, Debug)]
#[command(next_help_heading = "Norms")]
pub struct NormArgs {
    /// Gains of an RMS norm of the queries, one for each column of a head, before rotary
    #[arg(long, value_name = "ARRAY", value_parser = values::array, allow_hyphen_values = true)]
    pub q_norm: Option<String>,
    /// Gains of an RMS norm of the keys
    #[arg(long, value_name = "ARRAY", value_parser = values::array, allow_hyphen_values = true)]
    pub k_norm: Option<String>,
}

/// Widths of drawn weights.
#[derive(Args, Clone, Copy, Debug, Default)]
#[command(next_help_heading = "Layer")]
pub struct WidthArgs {
    /// Width of a query and key head of drawn weights; D/heads if left out
    #[arg(long, value_name = "N", value_parser = values::count, allow_negative_numbers = true)]
    pub dk: Option<usize>,
    /// Width of a value head of drawn weights; d_k if left out
    #[arg(long, value_name = "N", value_parser = values::count, allow_negative_numbers = true)]
    pub dv: Option<usize>,
}
