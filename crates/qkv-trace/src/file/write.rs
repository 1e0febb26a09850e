//! Writing a trace, layer by layer.

use super::{notes, top_key, top_keys_key};
use crate::statistics::rows_at_a_time;
use crate::{Error, Facts, Kind, Place, Result, Source, Stage, strongest};
use qkv_io::{Chunk, Encoded, Encoding, Sink, encode};
use std::cell::RefCell;
use std::io;
use std::ops::Range;
use std::path::Path;

/// What of each head is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keep {
    /// These, where the source has them.
    pub kinds: Vec<Kind>,
    /// So many of the largest weights of each row, in place of all.
    pub top: Option<usize>,
    /// The residual around each layer, in the model's width.
    pub residual: bool,
    /// Its sizes, one number a token.
    pub residual_norms: bool,
}

/// Everything that is there, all weights rather than the largest.
impl Default for Keep {
    fn default() -> Keep {
        Keep {
            kinds: Kind::ALL.to_vec(),
            top: None,
            residual: true,
            residual_norms: true,
        }
    }
}

impl Keep {
    /// Reads a list such as `q,k,weights`, `top:16` or `resid,resid_norm`.
    ///
    /// # Errors
    /// [`Error::Statistic`] for what is not known.
    pub fn parse(text: &str) -> std::result::Result<Keep, String> {
        let mut keep = Keep {
            kinds: Vec::new(),
            top: None,
            residual: false,
            residual_norms: false,
        };
        for word in text.split(',').map(str::trim) {
            if let Some(count) = word.strip_prefix("top:") {
                let count = count.parse().ok().filter(|count| *count > 0);
                keep.top = Some(count.ok_or("after top: give how many, for example top:16")?);
                continue;
            }
            match word {
                "resid" => keep.residual = true,
                "resid_norm" => keep.residual_norms = true,
                _ => keep.add(word)?,
            }
        }
        Ok(keep)
    }

    fn add(&mut self, word: &str) -> std::result::Result<(), String> {
        let kind = Kind::ALL.into_iter().find(|kind| kind.name() == word);
        let kind = kind.ok_or_else(|| {
            let names = Kind::ALL.map(Kind::name).join(", ");
            format!("give some of {names}, resid, resid_norm and top:N, with commas between")
        })?;
        if !self.kinds.contains(&kind) {
            self.kinds.push(kind);
        }
        Ok(())
    }
}
/// Writes what a source has to a file, which appears only when it is whole.
///
/// Layers are asked for in ascending order, each once; memory is some rows and, for
/// [`Keep::top`], one layer's keys. What a layer does not have, such as rotary positions, is left out.
///
/// # Errors
/// Those of the source and of the system, and if nothing of what is asked for is there.
pub fn write(path: &Path, source: &mut dyn Source, keep: &Keep) -> Result<()> {
    let all = source.facts().clone();
    let mut facts = all.clone();
    facts.top = keep
        .top
        .or(all.top.filter(|_| keep.kinds.contains(&Kind::Weights)));
    let mut parts = Vec::new();
    let stages = Stage::around(&facts.layers);
    for &layer in &facts.layers {
        let last = facts.layers.last() == Some(&layer);
        let kinds = Kind::ALL
            .into_iter()
            .filter(|kind| keep.kinds.contains(kind));
        for kind in kinds.filter(|kind| source.has(*kind, layer)) {
            parts.push(Part::new(kind.key(layer), What::All(kind), layer, &facts));
        }
        if keep.top.is_some() && source.has(Kind::Weights, layer) {
            parts.push(Part::new(top_key(layer), What::Top, layer, &facts));
            parts.push(Part::new(top_keys_key(layer), What::TopKeys, layer, &facts));
        }
        let own = stages.iter().copied().chain([Stage::Normed]);
        for stage in own.filter(|stage| stage.is_of(layer, last)) {
            if let Some(width) = source.residual_width(stage).filter(|_| keep.residual) {
                let shape = vec![facts.entries(), facts.rows(), width];
                parts.push(Part::of(stage.key(), What::Residual(stage), layer, shape));
            }
            if keep.residual_norms && source.has_residual_norms(stage) {
                let shape = vec![facts.entries(), facts.rows()];
                parts.push(Part::of(stage.norm_key(), What::Norms(stage), layer, shape));
            }
        }
    }
    if parts.is_empty() {
        let kind = match keep.kinds.first() {
            Some(kind) => kind.name(),
            None if keep.residual => "resid",
            None if keep.residual_norms => "resid_norm",
            None => "weights",
        };
        return Err(Error::NotKept {
            kind,
            layer: facts.layers[0],
            remedy: "ask for something that the source has",
        });
    }
    let walk = Walk {
        source: RefCell::new(source),
        facts: &facts,
        top: keep.top.unwrap_or(0),
        keys: RefCell::default(),
        error: RefCell::default(),
    };
    let encoded = parts.iter().map(|part| walk.encoded(part)).collect();
    let notes = notes::of(&facts);
    let written = qkv_io::write_file_with(path, |file| {
        encode(file, Encoding::Safetensors, encoded, &notes)
    });
    match walk.error.into_inner() {
        Some(error) => Err(error),
        None => Ok(written?),
    }
}

/// An array of the file.
struct Part {
    name: String,
    what: What,
    layer: usize,
    shape: Vec<usize>,
}

#[derive(Clone, Copy)]
enum What {
    All(Kind),
    Top,
    TopKeys,
    Residual(Stage),
    Norms(Stage),
}

impl Part {
    fn new(name: String, what: What, layer: usize, facts: &Facts) -> Part {
        let shape = match what {
            What::All(kind) => facts.shape(kind),
            _ => {
                let [entries, heads, rows, _] = facts.shape(Kind::Weights);
                [entries, heads, rows, facts.top.unwrap_or(0)]
            }
        };
        Part::of(name, what, layer, shape.to_vec())
    }

    fn of(name: String, what: What, layer: usize, shape: Vec<usize>) -> Part {
        Part {
            name,
            what,
            layer,
            shape,
        }
    }
}

/// One walk over the source, which the arrays take their numbers from in turn.
struct Walk<'a> {
    source: RefCell<&'a mut dyn Source>,
    facts: &'a Facts,
    top: usize,
    /// Keys of the largest weights of the layer that was written last.
    keys: RefCell<Vec<i32>>,
    error: RefCell<Option<Error>>,
}

impl Walk<'_> {
    fn encoded<'b>(&'b self, part: &'b Part) -> Encoded<'b> {
        Encoded {
            name: &part.name,
            dtype: match part.what {
                What::TopKeys => "i32",
                _ => "f32",
            },
            shape: &part.shape,
            values: Box::new(move |sink| match part.what {
                What::All(kind) => self.walk(kind, part.layer, &mut |rows| sink(Chunk::F32(rows))),
                What::Top => self.top(part.layer, sink),
                What::TopKeys => sink(Chunk::I32(&self.keys.take())),
                What::Residual(stage) => {
                    let width = part.shape.last().copied().unwrap_or(1);
                    self.stage(width, sink, |source, entry, rows, out| {
                        source.residual(stage, entry, rows, out)
                    })
                }
                What::Norms(stage) => self.stage(1, sink, |source, entry, rows, out| {
                    source.residual_norms(stage, entry, rows, out)
                }),
            }),
        }
    }

    fn walk(
        &self,
        kind: Kind,
        layer: usize,
        take: &mut dyn FnMut(&[f32]) -> io::Result<()>,
    ) -> io::Result<()> {
        let rows = self.facts.rows_of(kind);
        let step = rows_at_a_time(self.facts.width(kind));
        let mut numbers = Vec::new();
        let mut source = self.source.borrow_mut();
        for entry in 0..self.facts.entries() {
            for head in self.facts.heads_of(kind) {
                let place = Place { entry, layer, head };
                for start in (0..rows).step_by(step) {
                    let range = start..rows.min(start + step);
                    let given = source.rows(kind, place, range, &mut numbers);
                    self.noted(given)?;
                    take(&numbers)?;
                }
            }
        }
        Ok(())
    }

    /// Keeps an error of the source for later.
    fn noted(&self, given: Result<()>) -> io::Result<()> {
        given.map_err(|error| {
            let says = error.to_string();
            *self.error.borrow_mut() = Some(error);
            io::Error::other(says)
        })
    }

    /// Rows of a stage, or one number of each.
    fn stage(
        &self,
        width: usize,
        sink: &mut Sink<'_>,
        give: impl Fn(&mut dyn Source, usize, Range<usize>, &mut Vec<f32>) -> Result<()>,
    ) -> io::Result<()> {
        let rows = self.facts.rows();
        let step = rows_at_a_time(width);
        let mut numbers = Vec::new();
        let mut source = self.source.borrow_mut();
        for entry in 0..self.facts.entries() {
            for start in (0..rows).step_by(step) {
                let range = start..rows.min(start + step);
                self.noted(give(&mut **source, entry, range, &mut numbers))?;
                sink(Chunk::F32(&numbers))?;
            }
        }
        Ok(())
    }

    fn top(&self, layer: usize, sink: &mut Sink<'_>) -> io::Result<()> {
        let keys = self.facts.keys().max(1);
        let mut weights = Vec::new();
        self.walk(Kind::Weights, layer, &mut |rows| {
            weights.clear();
            let mut kept = self.keys.borrow_mut();
            for row in rows.chunks(keys) {
                let links = strongest(row, self.top);
                let left = self.top - links.len();
                weights.extend(links.iter().map(|link| link.weight));
                weights.extend(std::iter::repeat_n(0.0, left));
                kept.extend(links.iter().map(|link| link.key as i32));
                kept.extend(std::iter::repeat_n(-1, left));
            }
            sink(Chunk::F32(&weights))
        })
    }
}
