//! What heads do, as numbers: averages over rows, over one text or many.
//!
//! A row counts if it keeps a key and its query is no padding. A NaN in a row makes every average
//! over that row NaN. A weight that is large for one row, one text or one head proves little; that is
//! why [`HeadsBy`] puts a control beside each statistic, the same average with another key as target.

mod by;
mod heads_by;
mod pair;
mod survey;
mod targets;

pub use by::By;
pub use heads_by::{HeadsBy, Ranked, Ranking};
pub use survey::{HeadStatistics, Survey};

/// An average that is still being taken.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mean {
    sum: f64,
    /// Values so far.
    pub count: usize,
}

impl Mean {
    /// One more value.
    pub fn add(&mut self, value: f64) {
        self.sum += value;
        self.count += 1;
    }

    /// The average; none without a value.
    pub fn value(self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }
}

/// Rows of weights that are taken from a source at a time, so that a head need not be whole in
/// memory.
pub(crate) fn rows_at_a_time(keys: usize) -> usize {
    const NUMBERS: usize = 1 << 20;
    (NUMBERS / keys.max(1)).max(1)
}
