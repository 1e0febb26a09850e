//! Absolute positions as sines and cosines, added to the tokens.

use crate::view::Tensor;

/// ```text
/// table[t, 2i]   = sin((start + t) / 10000^(2i/width))
/// table[t, 2i+1] = cos((start + t) / 10000^(2i/width))
/// ```
///
/// Shape `[length, width]`, angles in radians. Row t belongs to the token at position
/// `start + t`; `start` is above 0 when earlier tokens are cached. Sines and cosines alternate; an
/// odd width ends with a sine. Some programs put all sines first: reorder the columns for those.
///
/// Source: Vaswani et al., *Attention Is All You Need*, 2017 (arXiv 1706.03762), section 3.5.
///
/// ```
/// use qkv::position::sinusoidal;
/// let table = sinusoidal(2, 4, 0);
/// assert_eq!(table.row(&[0]), [0.0, 1.0, 0.0, 1.0]);
/// let (fast, slow) = (1.0_f64, 0.01_f64); // 10000^0 and 10000^(−2/4)
/// let expected = [fast.sin(), fast.cos(), slow.sin(), slow.cos()];
/// for (found, expected) in table.row(&[1]).iter().zip(expected) {
///     assert!((found - expected).abs() < 1e-15);
/// }
/// ```
///
/// # Panics
/// If `length·width` numbers do not fit in memory.
pub fn sinusoidal(length: usize, width: usize, start: usize) -> Tensor<f64> {
    let mut table = Tensor::filled(&[length, width], 0.0);
    for t in 0..length {
        let position = start as f64 + t as f64;
        for column in 0..width {
            let even = column - column % 2;
            let angle = position / 10000_f64.powf(even as f64 / width as f64);
            *table.at_mut(&[t, column]) = if column == even {
                angle.sin()
            } else {
                angle.cos()
            };
        }
    }
    table
}
