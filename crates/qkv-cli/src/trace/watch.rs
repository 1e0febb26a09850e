//! A source that stops at Ctrl-C.

use crate::interrupt;
use qkv_trace::{Error, Facts, Kind, Place, Result, Source, Stage};
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

    fn residual_width(&self, stage: Stage) -> Option<usize> {
        self.0.residual_width(stage)
    }

    fn residual(
        &mut self,
        stage: Stage,
        entry: usize,
        rows: Range<usize>,
        out: &mut Vec<f32>,
    ) -> Result<()> {
        stop_if_asked()?;
        self.0.residual(stage, entry, rows, out)
    }

    fn has_residual_norms(&self, stage: Stage) -> bool {
        self.0.has_residual_norms(stage)
    }

    fn residual_norms(
        &mut self,
        stage: Stage,
        entry: usize,
        rows: Range<usize>,
        out: &mut Vec<f32>,
    ) -> Result<()> {
        stop_if_asked()?;
        self.0.residual_norms(stage, entry, rows, out)
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
        stop_if_asked()?;
        self.0.rows(kind, place, rows, out)
    }
}

fn stop_if_asked() -> Result<()> {
    interrupt::check().map_err(|error| Error::Source(error.to_string().into()))
}
