//! Weights from elsewhere, in memory or where they lie in a file.

use crate::arrays::{not_kept, span};
use crate::{Error, Facts, Kind, Place, Result, Source, Token};
use qkv_io::{Given, Values};
use std::ops::Range;

/// An array of weights as a source: `[queries, keys]`, `[heads, …]`, `[layers, heads, …]` or
/// `[layers, batch, heads, queries, keys]`, in any format of numbers.
#[derive(Debug)]
pub struct GivenWeights {
    facts: Facts,
    weights: Given,
}

impl GivenWeights {
    /// Weights with the tokens of their keys, `[entry][key]`; without tokens these are numbered.
    ///
    /// # Errors
    /// If the array has another number of axes, is empty, or does not fit the tokens.
    ///
    /// ```
    /// use qkv_trace::{GivenWeights, Source, Token};
    /// let weights = qkv_io::parse_literal("1 0; 0.25 0.75")?;
    /// let tokens = vec![vec![Token::new("a"), Token::new("b")]];
    /// let source = GivenWeights::new(qkv_io::Given::Read(weights), Some(tokens), None)?;
    /// assert_eq!((source.facts().rows(), source.facts().keys()), (2, 2));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn new(
        weights: Given,
        tokens: Option<Vec<Vec<Token>>>,
        queries: Option<Vec<Vec<Token>>>,
    ) -> Result<GivenWeights> {
        let shape = match &weights {
            Given::Read(array) => array.shape.clone(),
            Given::Mapped(mapped) => mapped.shape().to_vec(),
        };
        let whole = match shape[..] {
            [rows, keys] => [1, 1, 1, rows, keys],
            [heads, rows, keys] => [1, 1, heads, rows, keys],
            [layers, heads, rows, keys] => [layers, 1, heads, rows, keys],
            [layers, entries, heads, rows, keys] => [layers, entries, heads, rows, keys],
            _ => {
                return Err(Error::Facts {
                    what: "weights",
                    found: format!("shape {}", qkv_io::shown_shape(&shape)),
                    remedy: "give [queries, keys], [heads, queries, keys], [layers, heads, queries, \
                             keys] or [layers, batch, heads, queries, keys]",
                });
            }
        };
        if whole.contains(&0) {
            return Err(Error::Facts {
                what: "weights",
                found: format!("shape {} holds nothing", qkv_io::shown_shape(&shape)),
                remedy: "check what wrote it",
            });
        }
        let [_, entries, _, _, keys] = whole;
        let numbered = || {
            let text: Vec<Token> = (0..keys)
                .map(|key| Token::new(&format!("k{key}")))
                .collect();
            vec![text; entries]
        };
        let tokens = tokens.unwrap_or_else(numbered);
        let facts = match queries {
            None => Facts::of_weights(&whole, tokens)?,
            Some(queries) => Facts::of_cross_weights(&whole, tokens, queries)?,
        };
        facts.check()?;
        Ok(GivenWeights { facts, weights })
    }

    /// The facts, for what else is known of the model, such as its key and value heads.
    ///
    /// # Errors
    /// If what was changed does not fit: see [`Facts::check`].
    pub fn with_facts(mut self, change: impl FnOnce(&mut Facts)) -> Result<GivenWeights> {
        let shape = self.facts.shape(Kind::Weights);
        change(&mut self.facts);
        self.facts.check()?;
        if self.facts.shape(Kind::Weights) == shape {
            return Ok(self);
        }
        Err(Error::Shape {
            name: "weights".into(),
            expected: self.facts.shape(Kind::Weights).to_vec(),
            found: shape.to_vec(),
        })
    }
}

impl Source for GivenWeights {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn has(&self, kind: Kind, layer: usize) -> bool {
        kind == Kind::Weights && self.facts.layers.contains(&layer)
    }

    fn rows(
        &mut self,
        kind: Kind,
        place: Place,
        rows: Range<usize>,
        out: &mut Vec<f32>,
    ) -> Result<()> {
        self.facts.check_rows(kind, place, &rows)?;
        if kind != Kind::Weights {
            return Err(not_kept(kind, place.layer));
        }
        let layer: usize = self.facts.shape(kind).iter().product();
        let within = span(&self.facts, kind, place, &rows);
        // Layers are numbered from 0 without a gap.
        let start = place.layer * layer;
        let span = start + within.start..start + within.end;
        out.clear();
        match &self.weights {
            Given::Read(array) => match &array.values {
                Values::F16(v) => extend(out, &v[span], |x| x.to_f32()),
                Values::Bf16(v) => extend(out, &v[span], |x| x.to_f32()),
                Values::F32(v) => extend(out, &v[span], |x| x),
                Values::F64(v) => extend(out, &v[span], |x| x as f32),
                Values::I64(v) => extend(out, &v[span], |x| x as f32),
                Values::U64(v) => extend(out, &v[span], |x| x as f32),
                Values::Bool(v) => extend(out, &v[span], |x| f32::from(u8::from(x))),
            },
            Given::Mapped(mapped) => {
                use qkv_io::half::{bf16, f16};
                let found = match mapped.dtype() {
                    "f16" => mapped
                        .values::<f16>()
                        .map(|v| extend(out, &v[span], |x| x.to_f32())),
                    "bf16" => mapped
                        .values::<bf16>()
                        .map(|v| extend(out, &v[span], |x| x.to_f32())),
                    "f32" => mapped.values::<f32>().map(|v| extend(out, &v[span], |x| x)),
                    _ => mapped
                        .values::<f64>()
                        .map(|v| extend(out, &v[span], |x| x as f32)),
                };
                found.ok_or_else(|| not_kept(kind, place.layer))?;
            }
        }
        Ok(())
    }
}

fn extend<T: Copy>(out: &mut Vec<f32>, values: &[T], number: impl Fn(T) -> f32) {
    out.extend(values.iter().map(|value| number(*value)));
}
