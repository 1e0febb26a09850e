//! Rows of a head on demand.

use crate::{Facts, Kind, Result};
use std::ops::Range;

/// Which head of which layer, for which batch entry. All count from 0, and are the model's own
/// numbers also where only some of its layers and heads were recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The batch entry.
    pub entry: usize,
    /// The layer.
    pub layer: usize,
    /// The query head; for [`Kind::K`], [`Kind::V`] and [`Kind::RotatedK`] the key and value head.
    pub head: usize,
}

/// What a model did, a head at a time.
///
/// Callers ask for layers in ascending order, and come back to an earlier layer rarely: a source may
/// compute a layer when it is first asked for, drop it when a later one is, and take long to go back.
/// Within a layer any order of entries, heads and rows is quick.
pub trait Source {
    /// Tokens, layers, heads, conventions.
    fn facts(&self) -> &Facts;

    /// Whether [`rows`](Source::rows) can give this of a layer.
    fn has(&self, kind: Kind, layer: usize) -> bool;

    /// Puts rows of a head into `out`, in place of what is there, `rows.len()` times as many numbers
    /// as [`Facts::width`] says.
    ///
    /// Rows count from 0 to [`Facts::rows`] for what queries have, and to the number of keys for
    /// [`Kind::K`], [`Kind::V`] and [`Kind::RotatedK`]. A row that keeps no key has the weights 0.
    ///
    /// # Errors
    /// If the place or the rows are not there, if this was not kept, or if computing fails.
    fn rows(
        &mut self,
        kind: Kind,
        place: Place,
        rows: Range<usize>,
        out: &mut Vec<f32>,
    ) -> Result<()>;

    /// What there is to say once the source has been looked at, as it is printed: name and value. A
    /// model says how far its weights are from the output of its fast path, and what comes next in a
    /// batch entry.
    ///
    /// # Errors
    /// If computing fails.
    fn closing(&mut self, _entry: usize) -> Result<Vec<(String, String)>> {
        Ok(Vec::new())
    }
}
