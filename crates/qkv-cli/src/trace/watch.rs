//! A source that stops at Ctrl-C.

use crate::interrupt;
use qkv_trace::{Error, Facts, Kind, Place, Result, Source};
use std::ops::Range;

/// The source, as long as nobody wants the command to end.
pub struct Watched<'a>(pub &'a mut dyn Source);

impl Source for Watched<'_> {
    fn facts(&self) -> &Facts {
        self.0.facts()
    }

    fn has(&self, kind: Kind, layer: usize) -> bool {
        self.0.has(kind, layer)
    }

    fn closing(&mut self, entry: usize) -> Result<Vec<(String, String)>> {
        self.0.closing(entry)
    }

    fn rows(
        &mut self,
        kind: Kind,
        place: Place,
        rows: Range<usize>,
        out: &mut Vec<f32>,
    ) -> Result<()> {
        interrupt::check().map_err(|error| Error::Source(error.to_string().into()))?;
        self.0.rows(kind, place, rows, out)
    }
}
