//! How far a search is.

use std::sync::atomic::{AtomicU64, Ordering};

/// Explanations that were tried, of those that are to be: another thread may look at any time.
#[derive(Debug, Default)]
pub struct Watch {
    tried: AtomicU64,
    all: AtomicU64,
}

impl Watch {
    /// How many were tried, and of how many that are known so far.
    pub fn progress(&self) -> (u64, u64) {
        let all = self.all.load(Ordering::Relaxed);
        (self.tried.load(Ordering::Relaxed).min(all), all)
    }

    pub(crate) fn more(&self, count: usize) {
        self.all.fetch_add(count as u64, Ordering::Relaxed);
    }

    pub(crate) fn tried(&self) {
        self.tried.fetch_add(1, Ordering::Relaxed);
    }
}
