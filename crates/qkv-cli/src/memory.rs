//! How much memory a run may take, told from its sizes before anything is drawn or computed.

use crate::error::{Error, Result};

/// The most, in GiB.
const LIMIT: u32 = 4;

/// The most in bytes.
const MOST: u128 = (LIMIT as u128) << 30;

/// Values of all arrays that are read. While one is read it is there as bytes, as typed values and
/// in `f64`, its text perhaps too.
pub const MOST_VALUES: u64 = (MOST / 32) as u64;

/// Values that are read where they stay in the format that they have: half of the memory that is
/// free, while an array of 64-bit numbers is there as bytes too.
pub fn most_values() -> u64 {
    free().map_or(MOST_VALUES, |bytes| bytes / 2 / 16)
}

/// Refuses a run that takes so many bytes if they are not there.
pub fn check_room(argument: &'static str, what: String, bytes: u128) -> Result<()> {
    if free().is_none_or(|free| bytes <= free.into()) && is_free(bytes) {
        return Ok(());
    }
    Err(Error::Room {
        argument,
        what,
        bytes,
        remedy: "compute fewer queries, heads or batch entries at a time",
    })
}

/// Bytes that the system could give without taking them from others, where it says so.
fn free() -> Option<u64> {
    let info = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// Bytes that an explanation for people takes for each column of a head: a sum over columns is kept
/// with all its terms, however few of them are shown.
const BYTES_OF_A_TERM: u128 = 300;

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
    /// Numbers in all weights.
    pub weights: u128,
}

/// What is done with the steps.
#[derive(Clone, Copy, Debug)]
pub struct Use {
    /// How many steps have a number for every query and key.
    pub steps_per_score: u128,
    /// How often all steps are held.
    pub copies: u128,
    /// Bytes for each number of a step.
    pub bytes_each: u128,
    /// Whether they are worked out for people.
    pub for_people: bool,
}

/// The options whose values are the cause of sizes.
#[derive(Clone, Copy, Debug)]
pub struct Causes {
    /// Of the numbers of queries and keys.
    pub lengths: &'static str,
    /// Of the widths of heads, and what to do about them.
    pub widths: (&'static str, &'static str),
}

impl Sizes {
    /// Numbers for each query and key.
    fn of_scores(self, wanted: Use) -> u128 {
        self.product(&[self.heads, self.queries, self.keys])
            .saturating_mul(wanted.steps_per_score)
    }

    /// Numbers in the other steps.
    fn of_rows(self) -> u128 {
        [
            // As given, normed, rotated.
            self.product(&[self.heads, self.queries, self.dk])
                .saturating_mul(3),
            self.product(&[self.kv_heads, self.keys, self.dk])
                .saturating_mul(3),
            self.product(&[self.kv_heads, self.keys, self.dv]),
            self.product(&[self.heads, self.queries, self.dv])
                .saturating_mul(2),
            self.product(&[self.heads, self.queries]).saturating_mul(3),
            self.product(&[self.queries, self.width]).saturating_mul(2),
        ]
        .into_iter()
        .fold(0, u128::saturating_add)
    }

    fn product(self, sizes: &[usize]) -> u128 {
        let batch = self.batch as u128;
        sizes
            .iter()
            .fold(batch, |product, &size| product.saturating_mul(size as u128))
    }

    /// Refuses a run that needs more than is taken, or more than there is.
    pub fn check(self, wanted: Use, causes: Causes) -> Result<()> {
        let bytes = |numbers: u128| {
            numbers
                .saturating_mul(wanted.copies)
                .saturating_mul(wanted.bytes_each)
        };
        let terms = if wanted.for_people {
            let columns = (self.dk as u128) + (self.dv as u128) + (self.width as u128);
            columns.saturating_mul(BYTES_OF_A_TERM)
        } else {
            0
        };
        let lengths = bytes(self.of_scores(wanted));
        let widths = bytes(self.of_rows())
            .saturating_add(self.weights.saturating_mul(8))
            .saturating_add(terms);
        let needed = lengths.saturating_add(widths);
        if needed <= MOST && is_free(needed) {
            return Ok(());
        }
        let Sizes {
            batch,
            heads,
            queries,
            keys,
            dk,
            dv,
            ..
        } = self;
        let (argument, remedy, what) = if lengths >= widths {
            (
                causes.lengths,
                "explain fewer queries, keys or heads at a time",
                format!(
                    "the steps of [batch, heads, queries, keys] = \
                     [{batch}, {heads}, {queries}, {keys}]"
                ),
            )
        } else {
            let (argument, remedy) = causes.widths;
            let plural = if heads == 1 { "" } else { "s" };
            (
                argument,
                remedy,
                format!("weights and steps of {heads} head{plural} with d_k = {dk} and d_v = {dv}"),
            )
        };
        Err(if needed > MOST {
            Error::Memory {
                argument,
                what,
                gib: needed as f64 / f64::from(1 << 30),
                limit: LIMIT,
                remedy,
            }
        } else {
            Error::Room {
                argument,
                what,
                bytes: needed,
                remedy,
            }
        })
    }
}

/// Whether the system would give so many bytes, and some that are taken on the way.
fn is_free(bytes: u128) -> bool {
    let with_growth = bytes + bytes / 4;
    usize::try_from(with_growth)
        .is_ok_and(|bytes| Vec::<u8>::new().try_reserve_exact(bytes).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: Sizes = Sizes {
        batch: 1,
        heads: 1,
        kv_heads: 1,
        queries: 2,
        keys: 2,
        dk: 2,
        dv: 2,
        width: 0,
        weights: 0,
    };

    fn argument(sizes: Sizes) -> Option<&'static str> {
        let wanted = Use {
            steps_per_score: 4,
            copies: 1,
            bytes_each: 8,
            for_people: true,
        };
        let causes = Causes {
            lengths: "--q",
            widths: ("--dk", "draw narrower ones"),
        };
        match sizes.check(wanted, causes) {
            Ok(()) => None,
            Err(Error::Memory { argument, .. }) => Some(argument),
            Err(_) => Some("another error"),
        }
    }

    #[test]
    fn the_larger_part_is_the_cause() {
        assert_eq!(argument(SIZES), None);
        let long = Sizes {
            queries: 1 << 17,
            keys: 1 << 17,
            ..SIZES
        };
        assert_eq!(argument(long), Some("--q"));
        let wide = Sizes {
            dk: 1 << 24,
            ..SIZES
        };
        assert_eq!(argument(wide), Some("--dk"));
        let weights = Sizes {
            weights: 1 << 30,
            ..SIZES
        };
        assert_eq!(argument(weights), Some("--dk"));
        let endless = Sizes {
            heads: usize::MAX,
            queries: usize::MAX,
            keys: usize::MAX,
            dk: usize::MAX,
            ..SIZES
        };
        assert_eq!(argument(endless), Some("--q"));
    }
}
