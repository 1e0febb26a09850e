//! Rows of a head on demand.

use crate::{Error, Facts, Kind, Result, Stage};
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

    /// Numbers in a row of the residual at a stage, the model's width; none where it cannot be given.
    fn residual_width(&self, _stage: Stage) -> Option<usize> {
        None
    }

    /// Puts rows of the residual into `out`, `rows.len()` times as many numbers as
    /// [`residual_width`](Source::residual_width) says. Rows are those of queries.
    ///
    /// # Errors
    /// As of [`rows`](Source::rows).
    fn residual(
        &mut self,
        stage: Stage,
        _entry: usize,
        _rows: Range<usize>,
        _out: &mut Vec<f32>,
    ) -> Result<()> {
        Err(no_residual("resid", stage))
    }

    /// Whether [`residual_norms`](Source::residual_norms) can give them.
    fn has_residual_norms(&self, stage: Stage) -> bool {
        self.residual_width(stage).is_some()
    }

    /// Puts the size of rows of the residual into `out`: ‖x‖ = √Σx², one number a row.
    ///
    /// # Errors
    /// As of [`rows`](Source::rows).
    fn residual_norms(
        &mut self,
        stage: Stage,
        entry: usize,
        rows: Range<usize>,
        out: &mut Vec<f32>,
    ) -> Result<()> {
        let width = self.residual_width(stage);
        let width = width.ok_or_else(|| no_residual("resid_norm", stage))?;
        let mut numbers = Vec::new();
        self.residual(stage, entry, rows, &mut numbers)?;
        out.clear();
        out.extend(numbers.chunks(width.max(1)).map(|row| {
            let squares = row.iter().map(|x| f64::from(*x).powi(2));
            squares.sum::<f64>().sqrt() as f32
        }));
        Ok(())
    }

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

/// That the residual was not kept.
pub(crate) fn no_residual(kind: &'static str, stage: Stage) -> Error {
    Error::NoResidual {
        kind,
        stage: stage.key(),
    }
}
