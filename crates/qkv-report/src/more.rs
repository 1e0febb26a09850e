//! What can be shown beside a calculation.

use qkv_check::Recomputed;
use qkv_check::decode::Decoded;
use qkv_check::permute::Permuted;

/// What else is shown; nothing by default.
#[derive(Clone, Debug, Default)]
pub struct More {
    /// What common mistakes would have given ([`qkv_check::contrast`]).
    pub contrast: Vec<Recomputed>,
    /// The same tokens in another order ([`qkv_check::permute::permute`]).
    pub permuted: Option<Permuted>,
    /// A run with a cache beside one without.
    pub decoded: Option<Decoded>,
}
