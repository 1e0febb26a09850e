//! Writing a trace, layer by layer.

use super::{notes, top_key, top_keys_key};
use crate::statistics::rows_at_a_time;
use crate::{Error, Facts, Kind, Place, Result, Source, strongest};
use qkv_io::{Chunk, Encoded, Encoding, Sink, encode};
use std::cell::RefCell;
use std::io;
use std::path::Path;

/// What of each head is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keep {
    /// These, where the source has them.
    pub kinds: Vec<Kind>,
    /// So many of the largest weights of each row, in place of all.
    pub top: Option<usize>,
}

impl Keep {
    /// Reads a list such as `q,k,weights` or `top:16`.
    ///
    /// # Errors
    /// [`Error::Statistic`] for what is not known.
    pub fn parse(text: &str) -> std::result::Result<Keep, String> {
        let mut keep = Keep {
            kinds: Vec::new(),
            top: None,
        };
        for word in text.split(',').map(str::trim) {
            if let Some(count) = word.strip_prefix("top:") {
                let count = count.parse().ok().filter(|count| *count > 0);
                keep.top = Some(count.ok_or("after top: give how many, for example top:16")?);
                continue;
            }
            let kind = Kind::ALL.into_iter().find(|kind| kind.name() == word);
            let names = Kind::ALL.map(Kind::name).join(", ");
            let kind =
                kind.ok_or_else(|| format!("give some of {names} and top:N, with commas between"))?;
            if !keep.kinds.contains(&kind) {
                keep.kinds.push(kind);
            }
        }
        Ok(keep)
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
    for &layer in &facts.layers {
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
    }
    if parts.is_empty() {
        let kind = keep.kinds.first().map_or("weights", |kind| kind.name());
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
}

impl Part {
    fn new(name: String, what: What, layer: usize, facts: &Facts) -> Part {
        let shape = match what {
            What::All(kind) => facts.shape(kind),
            What::Top | What::TopKeys => {
                let [entries, heads, rows, _] = facts.shape(Kind::Weights);
                [entries, heads, rows, facts.top.unwrap_or(0)]
            }
        };
        Part {
            name,
            what,
            layer,
            shape: shape.to_vec(),
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
                    if let Err(error) = source.rows(kind, place, range, &mut numbers) {
                        let says = error.to_string();
                        *self.error.borrow_mut() = Some(error);
                        return Err(io::Error::other(says));
                    }
                    take(&numbers)?;
                }
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
