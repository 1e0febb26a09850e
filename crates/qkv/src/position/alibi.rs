//! Attention with linear biases: how steep each head is.

/// ```text
/// slope(h) = 2^(−8(h+1)/n)              n = heads a power of two
/// slope(h) = 2^(−8(h+1)/p)              h < p  ┐ otherwise, p the power of two below n:
/// slope(h) = 2^(−8(2(h−p)+1)/(2p))      h ≥ p  ┘ every second slope of 2p heads fills up
/// ```
///
/// One slope a head, h counted from 0, all above 0 and below 1, per token of distance; attention
/// subtracts slope·distance from the scores (see [`Alibi`](crate::Alibi)). No heads, no slopes.
///
/// Source: Press, Smith, Lewis, *Train Short, Test Long*, 2022 (arXiv 2108.12409), section 3, and
/// its published code for head counts that are not powers of two.
///
/// ```
/// use qkv::position::slopes;
/// assert_eq!(slopes(4), [0.25, 0.0625, 0.015625, 0.00390625]);
/// assert_eq!(slopes(3), [0.0625, 0.00390625, 0.25]); // those of 2 heads, then the first of 4
/// ```
pub fn slopes(heads: usize) -> Vec<f64> {
    let Some(log) = heads.checked_ilog2() else {
        return Vec::new();
    };
    let power = 1_usize << log;
    let slope = |h: usize, of: f64| (-8.0 * (h as f64 + 1.0) / of).exp2();
    let mut slopes = Vec::with_capacity(heads);
    for h in 0..power {
        slopes.push(slope(h, power as f64));
    }
    for h in power..heads {
        slopes.push(slope(2 * (h - power), 2.0 * power as f64));
    }
    slopes
}
