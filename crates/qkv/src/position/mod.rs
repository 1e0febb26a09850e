//! Where tokens stand, and how attention is told: rotary, sinusoidal, ALiBi.
//!
//! ```text
//! rotary      q, k  ← R(position)·q, R(position)·k     before q·k; only distances remain in it
//! sinusoidal  x     ← x + table[position]              before the projections
//! ALiBi       score ← score − slope·distance           after the scale
//! ```
//!
//! [`Rotary`] turns queries and keys, [`sinusoidal()`] makes the table, [`slopes`] gives the slopes
//! of [`Alibi`](crate::Alibi). Everything is computed in `f64`: a position times a frequency in
//! half precision is off by whole radians within a few thousand tokens.

pub mod alibi;
pub mod rotary;
pub mod scaling;
pub mod sinusoidal;

pub use alibi::slopes;
pub use rotary::{Pairing, Positions, Rotary};
pub use scaling::Scaling;
pub use sinusoidal::sinusoidal;

/// position(t) = number of kept tokens before t; none where t itself is padding.
///
/// `kept` is one row of a padding mask, `true` for a token and `false` for padding; the result is
/// as long. Padding may be on the left, on the right, or between. A row without padding counts
/// 0, 1, 2, …, so a prompt has the same positions alone and in a padded batch.
///
/// ```
/// use qkv::position::{Positions, from_padding};
/// let row = from_padding(&[false, false, true, true, true]);
/// assert_eq!(row, [None, None, Some(0), Some(1), Some(2)]);
///
/// // Rotary needs a number everywhere; a dropped key may have any.
/// let numbers: Vec<i64> = row.iter().map(|p| p.map_or(0, |p| p as i64)).collect();
/// let each = [numbers, vec![0, 1, 2, 3, 4]];
/// let positions = Positions::Each(&each);
/// # assert!(matches!(positions, Positions::Each([first, _]) if first == &[0, 0, 0, 1, 2]));
/// ```
pub fn from_padding(kept: &[bool]) -> Vec<Option<usize>> {
    let mut next = 0;
    let mut positions = Vec::with_capacity(kept.len());
    for &is_token in kept {
        positions.push(is_token.then_some(next));
        next += usize::from(is_token);
    }
    positions
}
