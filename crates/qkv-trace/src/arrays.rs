//! A source that holds its numbers.

use crate::{Error, Facts, Kind, Place, Result, Source};
use std::collections::HashMap;
use std::ops::Range;

/// Arrays in memory, one a kind and layer.
#[derive(Clone, Debug)]
pub struct Arrays {
    facts: Facts,
    held: HashMap<(Kind, usize), Vec<f32>>,
}

impl Arrays {
    /// Of these facts, without any array yet.
    ///
    /// # Errors
    /// Those of [`Facts::check`].
    pub fn new(facts: Facts) -> Result<Arrays> {
        facts.check()?;
        Ok(Arrays {
            facts,
            held: HashMap::new(),
        })
    }

    /// With a layer's array, row-major, of the shape that [`Facts::shape`] says.
    ///
    /// # Errors
    /// If it has another number of values, or if there is no such layer.
    pub fn with(mut self, kind: Kind, layer: usize, values: Vec<f32>) -> Result<Arrays> {
        let place = Place {
            entry: 0,
            layer,
            head: self.facts.heads_of(kind)[0],
        };
        self.facts.check_rows(kind, place, &(0..0))?;
        let expected = self.facts.shape(kind);
        if values.len() != expected.iter().product::<usize>() {
            return Err(Error::Shape {
                name: kind.key(layer),
                expected: expected.to_vec(),
                found: vec![values.len()],
            });
        }
        self.held.insert((kind, layer), values);
        Ok(self)
    }

    /// With a layer's weights, `[entries, heads, queries, keys]`.
    ///
    /// # Errors
    /// As [`with`](Arrays::with).
    pub fn with_weights(self, layer: usize, values: Vec<f32>) -> Result<Arrays> {
        self.with(Kind::Weights, layer, values)
    }
}

impl Source for Arrays {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn has(&self, kind: Kind, layer: usize) -> bool {
        self.held.contains_key(&(kind, layer))
    }

    fn rows(
        &mut self,
        kind: Kind,
        place: Place,
        rows: Range<usize>,
        out: &mut Vec<f32>,
    ) -> Result<()> {
        self.facts.check_rows(kind, place, &rows)?;
        let values = self
            .held
            .get(&(kind, place.layer))
            .ok_or_else(|| not_kept(kind, place.layer))?;
        out.clear();
        out.extend_from_slice(&values[span(&self.facts, kind, place, &rows)]);
        Ok(())
    }
}

/// Where rows of a head lie in a layer's array.
pub(crate) fn span(facts: &Facts, kind: Kind, place: Place, rows: &Range<usize>) -> Range<usize> {
    let heads = facts.heads_of(kind);
    let head = heads
        .iter()
        .position(|head| *head == place.head)
        .unwrap_or(0);
    let [_, count, all, width] = facts.shape(kind);
    let first = (place.entry * count + head) * all;
    (first + rows.start) * width..(first + rows.end) * width
}

/// That an array was not kept.
pub(crate) fn not_kept(kind: Kind, layer: usize) -> Error {
    Error::NotKept {
        kind: kind.name(),
        layer,
        remedy: "record it with --keep",
    }
}
