//! What can be shown beside a calculation.

use qkv_check::decode::Decoded;
use qkv_check::permute::Permuted;
use qkv_check::{NextToken, Recomputed};

/// What else is shown; nothing by default.
#[derive(Clone, Debug, Default)]
pub struct More {
    /// What common mistakes would have given ([`qkv_check::contrast`]).
    pub contrast: Vec<Recomputed>,
    /// The same tokens in another order ([`qkv_check::permute::permute`]).
    pub permuted: Option<Permuted>,
    /// A run with a cache beside one without.
    pub decoded: Option<Decoded>,
    /// The tokens: one for each key, cached ones first, or where keys come from a context one for
    /// each query. Empty if they have no names.
    pub tokens: Vec<String>,
    /// What each position is trained to predict ([`qkv_check::next_token`]).
    pub next_token: Option<NextToken>,
}
