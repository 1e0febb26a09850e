//! A trace file as a source.

use super::{notes, top_key, top_keys_key};
use crate::arrays::{not_kept, span};
use crate::source::no_residual;
use crate::{Error, Facts, Kind, Place, Result, Source, Stage};
use qkv_io::{Given, Values};
use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// A trace that was written earlier. Arrays are read, or mapped, when they are first asked for; those
/// of one layer are held at a time.
#[derive(Debug)]
pub struct TraceFile {
    facts: Facts,
    path: PathBuf,
    /// Names and shapes of the file's arrays.
    shapes: HashMap<String, Vec<usize>>,
    layer: usize,
    held: HashMap<String, Given>,
}

impl TraceFile {
    /// Opens a file and checks its notes and the shapes of its arrays.
    ///
    /// # Errors
    /// If it is no safetensors file, is damaged, or does not say what a trace says.
    pub fn open(path: &Path) -> Result<TraceFile> {
        let origin = path.display().to_string();
        let (entries, notes) = qkv_io::safetensors_notes(path)?;
        let facts = notes::facts(&notes, &origin)?;
        let shapes: HashMap<String, Vec<usize>> = entries
            .into_iter()
            .map(|entry| (entry.name, entry.shape.unwrap_or_default()))
            .collect();
        let stages = Stage::around(&facts.layers).into_iter();
        for stage in stages.chain([Stage::Normed]) {
            let rows = [facts.entries(), facts.rows()];
            check(&shapes, stage.norm_key(), &rows)?;
            // The width is known from here only.
            let width = shapes.get(&stage.key()).and_then(|shape| shape.last());
            let [entries, rows] = rows;
            check(&shapes, stage.key(), &[entries, rows, *width.unwrap_or(&0)])?;
        }
        for &layer in &facts.layers {
            for kind in Kind::ALL {
                check(&shapes, kind.key(layer), &facts.shape(kind))?;
            }
            let [entries, heads, rows, _] = facts.shape(Kind::Weights);
            let top = [entries, heads, rows, facts.top.unwrap_or(0)];
            check(&shapes, top_key(layer), &top)?;
            check(&shapes, top_keys_key(layer), &top)?;
            if shapes.contains_key(&top_key(layer)) != shapes.contains_key(&top_keys_key(layer)) {
                return Err(Error::NoTrace {
                    origin,
                    found: format!(
                        "layer {layer} has only one of {} and {}",
                        top_key(layer),
                        top_keys_key(layer)
                    ),
                    remedy: "write it again",
                });
            }
        }
        Ok(TraceFile {
            layer: facts.layers[0],
            facts,
            path: path.to_owned(),
            shapes,
            held: HashMap::new(),
        })
    }

    fn given(&mut self, name: &str, layer: usize) -> Result<&Given> {
        if layer != self.layer {
            self.held.clear();
            self.layer = layer;
        }
        if !self.held.contains_key(name) {
            let argument = format!("{}:{name}", self.path.display());
            let given = qkv_io::open_argument_within(&argument, &mut std::io::empty(), u64::MAX)?;
            self.held.insert(name.to_owned(), given);
        }
        self.held
            .get(name)
            .ok_or_else(|| not_kept(Kind::Weights, layer))
    }

    fn numbers(&mut self, name: &str, layer: usize, span: Range<usize>) -> Result<Vec<f32>> {
        let origin = self.path.display().to_string();
        let read = match self.given(name, layer)? {
            Given::Mapped(mapped) => mapped.values::<f32>().and_then(|values| values.get(span)),
            Given::Read(array) => match &array.values {
                Values::F32(values) => values.get(span),
                _ => None,
            },
        };
        read.map(<[f32]>::to_vec).ok_or_else(|| Error::NoTrace {
            origin,
            found: format!("{name} does not hold f32 numbers"),
            remedy: "write it again",
        })
    }

    /// Rows of an array with one row for each query, of so many numbers.
    fn stage(
        &mut self,
        name: &str,
        stage: Stage,
        entry: usize,
        rows: Range<usize>,
        width: usize,
    ) -> Result<Vec<f32>> {
        let layer = match stage {
            Stage::Into(layer) | Stage::OutOf(layer) => layer,
            Stage::Normed => self.facts.layers.last().copied().unwrap_or(0),
        };
        let first = entry * self.facts.rows();
        self.numbers(
            name,
            layer,
            (first + rows.start) * width..(first + rows.end) * width,
        )
    }

    /// Whole rows from the largest weights.
    fn rows_of_top(&mut self, place: Place, rows: Range<usize>, out: &mut Vec<f32>) -> Result<()> {
        let layer = place.layer;
        let top = self.facts.top.unwrap_or(0);
        let keys = self.facts.keys();
        let whole = span(&self.facts, Kind::Weights, place, &rows);
        let part = whole.start / keys.max(1) * top..whole.end / keys.max(1) * top;
        let weights = self.numbers(&top_key(layer), layer, part.clone())?;
        let origin = self.path.display().to_string();
        let wrong = |found: String| Error::NoTrace {
            origin: origin.clone(),
            found,
            remedy: "write it again",
        };
        let name = top_keys_key(layer);
        let places = match self.given(&name, layer)? {
            Given::Read(array) => match &array.values {
                Values::I64(values) => values.get(part),
                _ => None,
            },
            Given::Mapped(_) => None,
        };
        let places = places.ok_or_else(|| wrong(format!("{name} does not hold whole numbers")))?;
        out.clear();
        out.resize(rows.len() * keys, 0.0);
        for (at, (weight, key)) in weights.iter().zip(places).enumerate() {
            match usize::try_from(*key) {
                Ok(key) if key < keys => out[at / top.max(1) * keys + key] = *weight,
                _ if *key == -1 => {}
                _ => {
                    return Err(wrong(format!(
                        "{name} has the key {key} where there are {keys}"
                    )));
                }
            }
        }
        Ok(())
    }
}

fn check(shapes: &HashMap<String, Vec<usize>>, name: String, expected: &[usize]) -> Result<()> {
    match shapes.get(&name) {
        Some(found) if found != expected => Err(Error::Shape {
            name,
            expected: expected.to_vec(),
            found: found.clone(),
        }),
        _ => Ok(()),
    }
}

impl Source for TraceFile {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn has(&self, kind: Kind, layer: usize) -> bool {
        let top = kind == Kind::Weights && self.shapes.contains_key(&top_key(layer));
        top || self.shapes.contains_key(&kind.key(layer))
    }

    fn residual_width(&self, stage: Stage) -> Option<usize> {
        self.shapes.get(&stage.key())?.last().copied()
    }

    fn residual(
        &mut self,
        stage: Stage,
        entry: usize,
        rows: Range<usize>,
        out: &mut Vec<f32>,
    ) -> Result<()> {
        let width = self.residual_width(stage);
        let width = width.ok_or_else(|| no_residual("resid", stage))?;
        *out = self.stage(&stage.key(), stage, entry, rows, width)?;
        Ok(())
    }

    fn has_residual_norms(&self, stage: Stage) -> bool {
        self.shapes.contains_key(&stage.norm_key())
    }

    fn residual_norms(
        &mut self,
        stage: Stage,
        entry: usize,
        rows: Range<usize>,
        out: &mut Vec<f32>,
    ) -> Result<()> {
        if !self.has_residual_norms(stage) {
            return Err(no_residual("resid_norm", stage));
        }
        *out = self.stage(&stage.norm_key(), stage, entry, rows, 1)?;
        Ok(())
    }

    fn rows(
        &mut self,
        kind: Kind,
        place: Place,
        rows: Range<usize>,
        out: &mut Vec<f32>,
    ) -> Result<()> {
        self.facts.check_rows(kind, place, &rows)?;
        let name = kind.key(place.layer);
        if self.shapes.contains_key(&name) {
            let span = span(&self.facts, kind, place, &rows);
            *out = self.numbers(&name, place.layer, span)?;
            return Ok(());
        }
        if kind == Kind::Weights && self.shapes.contains_key(&top_key(place.layer)) {
            return self.rows_of_top(place, rows, out);
        }
        Err(not_kept(kind, place.layer))
    }
}
