//! Which weights dropout drops: Philox 4×32-10, a counter-based generator.
//!
//! Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).

use crate::attention::Dropout;

/// Whether dropout drops the weight of key j for the query at position `position` (P(i) in
/// [`definition`](super)).
///
/// The key is the seed, the counter is (⌊j/4⌋, position, head, batch), each modulo 2³², and word
/// j mod 4 of the result u is compared: dropped if u < p·2³².
///
/// ```
/// use qkv::{Dropout, definition::drops};
/// let dropout = Dropout { p: 0.25, seed: 7 };
/// let dropped = (0..4000).filter(|&j| drops(dropout, 0, 0, 0, j)).count();
/// assert!((900..1100).contains(&dropped));
/// ```
pub fn drops(dropout: Dropout, batch: usize, head: usize, position: i64, j: usize) -> bool {
    let counter = [(j / 4) as u32, position as u32, head as u32, batch as u32];
    let key = [dropout.seed as u32, (dropout.seed >> 32) as u32];
    let word = philox(counter, key)[j % 4];
    f64::from(word) < dropout.p * 4_294_967_296.0
}

fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..10 {
        let a = u64::from(counter[0]) * 0xD251_1F53;
        let b = u64::from(counter[2]) * 0xCD9E_8D57;
        counter = [
            (b >> 32) as u32 ^ counter[1] ^ key[0],
            b as u32,
            (a >> 32) as u32 ^ counter[3] ^ key[1],
            a as u32,
        ];
        key = [
            key[0].wrapping_add(0x9E37_79B9),
            key[1].wrapping_add(0xBB67_AE85),
        ];
    }
    counter
}

#[cfg(test)]
mod tests {
    use super::philox;

    /// Known answers published with the generator (Random123's kat_vectors).
    #[test]
    fn philox_known_answers() {
        assert_eq!(
            philox([0; 4], [0; 2]),
            [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]
        );
        assert_eq!(
            philox([u32::MAX; 4], [u32::MAX; 2]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        assert_eq!(
            philox(
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0]
            ),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }
}
