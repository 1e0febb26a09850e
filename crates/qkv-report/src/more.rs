//! What can be shown beside a calculation.

use qkv_check::Recomputed;

/// What else is shown; nothing by default.
#[derive(Clone, Debug, Default)]
pub struct More {
    /// What common mistakes would have given ([`qkv_check::contrast`]).
    pub contrast: Vec<Recomputed>,
}
