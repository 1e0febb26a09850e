//! How much memory a run may take.

use crate::error::{Error, Result};

/// The most, in GiB.
const LIMIT: u32 = 4;

/// Refuses more than the limit; `what` needs it.
pub fn allow(
    numbers: u128,
    bytes_each: u128,
    what: impl Fn() -> String,
    remedy: &'static str,
) -> Result<()> {
    let bytes = numbers.saturating_mul(bytes_each);
    if bytes <= u128::from(LIMIT) << 30 {
        return Ok(());
    }
    Err(Error::Memory {
        what: what(),
        gib: bytes as f64 / f64::from(1 << 30),
        limit: LIMIT,
        remedy,
    })
}

/// The sizes that a run's steps follow from.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    pub batch: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub queries: usize,
    pub keys: usize,
    pub dk: usize,
    pub dv: usize,
    /// Columns after W_O, 0 without.
    pub width: usize,
}

impl Sizes {
    /// Numbers in all steps.
    fn numbers(self, steps_per_score: u128) -> u128 {
        let product = |sizes: &[usize]| {
            let batch = self.batch as u128;
            sizes
                .iter()
                .fold(batch, |product, &size| product.saturating_mul(size as u128))
        };
        let rows = product(&[self.heads, self.queries]);
        [
            product(&[self.heads, self.queries, self.keys]).saturating_mul(steps_per_score),
            // As given, normed, rotated.
            product(&[self.heads, self.queries, self.dk]).saturating_mul(3),
            product(&[self.kv_heads, self.keys, self.dk]).saturating_mul(3),
            product(&[self.kv_heads, self.keys, self.dv]),
            product(&[self.heads, self.queries, self.dv]).saturating_mul(2),
            rows.saturating_mul(3),
            product(&[self.queries, self.width]).saturating_mul(2),
        ]
        .into_iter()
        .fold(0, u128::saturating_add)
    }

    /// Refuses a run whose steps need more than is taken.
    pub fn check(self, steps_per_score: u128, bytes_each: u128) -> Result<()> {
        let Sizes {
            batch,
            heads,
            queries,
            keys,
            ..
        } = self;
        let what = || {
            format!(
                "the steps of [batch, heads, queries, keys] = [{batch}, {heads}, {queries}, {keys}]"
            )
        };
        let remedy = "explain fewer queries, keys or heads at a time";
        allow(self.numbers(steps_per_score), bytes_each, what, remedy)
    }
}
