//! Arrays: queries, keys, values, and how their axes are read.

use super::values;
use clap::{Args, ValueEnum};

/// The arrays that attention itself works on.
#[derive(Args, Debug)]
#[command(next_help_heading = "Inputs")]
pub struct InputArgs {
    /// Queries: [L,d], [H,L,d] or [B,H,L,d]
    ///
    /// An ARRAY is a literal, "1 0; 0 1" or [[1,0],[0,1]], or a file: a.npy, a.npz:name,
    /// a.safetensors:name, a.csv, a.json, or - for standard input (one argument only).
    /// Blanks or commas part numbers, semicolons or new lines part rows: "1;2;3" is a column,
    /// typed here or piped in. In a file such a line could be a row of a table and is refused.
    /// With --heads queries are [L,H·d] or [B,L,H·d] and are split.
    #[arg(long, value_name = "ARRAY", value_parser = values::array, allow_hyphen_values = true)]
    pub q: Option<String>,
    /// Keys, with as many columns as the queries
    #[arg(long, value_name = "ARRAY", value_parser = values::array, allow_hyphen_values = true)]
    pub k: Option<String>,
    /// Values, one row for each key
    #[arg(long, value_name = "ARRAY", value_parser = values::array, allow_hyphen_values = true)]
    pub v: Option<String>,
    /// Cached keys that come before the others
    ///
    /// Axes as for --k; with --x (of explain) they are [P,H_kv·d_k] or [B,P,H_kv·d_k], or 4 axes in the
    /// --layout. They count as normed and rotated already.
    #[arg(long, value_name = "ARRAY", value_parser = values::array, allow_hyphen_values = true)]
    pub past_k: Option<String>,
    /// Cached values, one row for each cached key
    #[arg(long, value_name = "ARRAY", value_parser = values::array, allow_hyphen_values = true)]
    pub past_v: Option<String>,
    /// Query heads: q is then [L,N·d] or [B,L,N·d] and is split
    ///
    /// Columns h·d to (h+1)·d of a token are head h. With --x (of explain) the default is 1.
    #[arg(long, value_name = "N", value_parser = values::count, allow_negative_numbers = true)]
    pub heads: Option<usize>,
    /// Key and value heads, a divisor of --heads; as many as --heads if left out
    ///
    /// Query head h uses key and value head ⌊h / (heads / kv-heads)⌋.
    #[arg(long, value_name = "N", value_parser = values::count, allow_negative_numbers = true)]
    pub kv_heads: Option<usize>,
    /// Order of the axes of q, k, v and of cached ones
    ///
    /// B is the batch, H the heads, L the length, D the width of a head. Arrays of two axes are
    /// the same in both.
    #[arg(long, value_name = "LAYOUT", value_enum, default_value_t = Layout::Bhld, hide_default_value = true)]
    pub layout: Layout,
}

/// The order of an array's axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Layout {
    /// [B,H,L,d] and [H,L,d] (the default)
    Bhld,
    /// [B,L,H,d] and [L,H,d]
    Blhd,
}
