//! The results as arrays, in a file or on standard output.

use super::Run;
use super::progress::Progress;
use super::slices::{Gradients, Rows};
use crate::arrays::{Number, Stored, dtype_name};
use crate::error::{Error, Names, Result};
use crate::{interrupt, output};
use qkv::{Attention, DType, Element, GradientName, Inputs, Part};
use qkv_io::half::{bf16, f16};
use qkv_io::{Chunk, Encoded, Encoding, Sink, encode};
use rayon::prelude::*;
use serde_json::{Value, json};
use std::io;

/// Bytes of weights that are computed at a time by a thread.
const BYTES_OF_WEIGHTS: usize = 4 << 20;

/// Values that are converted at a time.
const CONVERTED: usize = 1 << 16;

/// What was computed, and from what.
pub struct Results<'a, T: Number> {
    pub run: &'a Run<'a>,
    /// The number format of q.
    pub dtype: DType,
    pub attention: &'a Attention<'a>,
    pub inputs: &'a Inputs<'a, T>,
    /// In the layout of q.
    pub output: &'a [T],
    pub rows: &'a Rows,
    pub gradients: Option<&'a Gradients<T>>,
    /// As it was given.
    pub bias_shape: Option<&'a [usize]>,
    pub milliseconds: f64,
}

impl<T: Number> Results<'_, T>
where
    for<'c> Chunk<'c>: From<&'c [T]>,
{
    /// The output's axes: those of q, with the width of v.
    pub fn output_shape(&self) -> Vec<usize> {
        let mut shape = self.run.arrays.q.shape.clone();
        let side_by_side = self.run.split && shape.len() < 4;
        let heads = if side_by_side { self.inputs.heads() } else { 1 };
        if let Some(width) = shape.last_mut() {
            *width = heads * self.inputs.value_dim();
        }
        shape
    }

    /// `[batch, heads, queries]`, without the axes that q does not have.
    fn rows_shape(&self) -> Vec<usize> {
        let [batch, heads, queries, _] = self.inputs.scores_shape();
        let heads_apart = usize::from(self.run.split && self.run.arrays.q.shape.len() < 4);
        match self.run.arrays.q.shape.len() + heads_apart {
            2 => vec![queries],
            3 => vec![heads, queries],
            _ => vec![batch, heads, queries],
        }
    }

    /// The gradients by name, each with its shape.
    pub fn named_gradients(&self) -> Vec<(&'static str, Vec<usize>, &[T])> {
        let Some(found) = self.gradients else {
            return Vec::new();
        };
        let arrays = &self.run.arrays;
        let cached = self.inputs.past_len();
        let with_cached = |array: &Stored| {
            let mut shape = array.shape.clone();
            // Axes that the array does not have are the first ones, and heads that are split lie
            // in the last.
            let place = match (self.run.split && shape.len() < 4, array.seen.swapped) {
                (false, true) => shape.len().saturating_sub(3),
                _ => shape.len().saturating_sub(2),
            };
            if let Some(length) = shape.get_mut(place) {
                *length += cached;
            }
            shape
        };
        let mut named = vec![
            (GradientName::GradQ, arrays.q.shape.clone(), &found.q.0[..]),
            (GradientName::GradK, with_cached(&arrays.k), &found.k.0),
            (GradientName::GradV, with_cached(&arrays.v), &found.v.0),
        ];
        if let (Some(numbers), Some(shape)) = (&found.bias, self.bias_shape) {
            named.push((GradientName::GradBias, shape.to_vec(), numbers));
        }
        if let Some(numbers) = &found.sinks {
            named.push((GradientName::GradSinks, vec![numbers.len()], numbers));
        }
        let named = named.into_iter();
        named
            .map(|(name, shape, numbers)| (name.as_str(), shape, numbers))
            .collect()
    }

    /// All shapes by name.
    pub fn shapes(&self) -> Value {
        let arrays = &self.run.arrays;
        json!({
            "q": arrays.q.shape,
            "k": arrays.k.shape,
            "v": arrays.v.shape,
            "output": self.output_shape(),
        })
    }

    /// Writes them all, or nothing.
    pub fn write(&self, encoding: Encoding, check: impl Fn() -> Result<()>) -> Result<()> {
        let target = self.run.target;
        let args = &self.run.args.output;
        let isa = self.run.workers.options.isa();
        let mut notes = vec![
            ("made_by", json!(concat!("qkv ", env!("CARGO_PKG_VERSION")))),
            ("shapes", self.shapes()),
            ("dtype", json!(dtype_name(self.dtype))),
            (
                "path",
                json!(
                    isa.map_err(Error::engine(Names::Given))?
                        .of(T::DTYPE)
                        .name()
                ),
            ),
            ("empty_rows", json!(self.rows.empty)),
        ];
        if target.file.is_none() {
            // A file has the same bytes for the same numbers.
            notes.push(("threads", json!(self.run.workers.threads)));
            notes.push(("ms", json!(self.milliseconds)));
        }
        let output_shape = self.output_shape();
        let rows_shape = self.rows_shape();
        let mut weights_shape = rows_shape.clone();
        weights_shape.push(self.inputs.keys());
        let gradients = self.named_gradients();
        // What ends the writing, if it is not the system.
        let mut fault = None;
        let mut arrays = vec![Encoded {
            name: "output",
            dtype: dtype_name(self.dtype),
            shape: &output_shape,
            values: Box::new(|sink| self.rounded(self.output, sink)),
        }];
        for (name, shape, numbers) in &gradients {
            arrays.push(Encoded {
                name,
                dtype: dtype_name(self.dtype),
                shape,
                values: Box::new(|sink| self.rounded(numbers, sink)),
            });
        }
        if args.lse {
            arrays.push(Encoded {
                name: "lse",
                dtype: match T::DTYPE {
                    DType::F64 => "f64",
                    DType::F16 | DType::Bf16 | DType::F32 => "f32",
                },
                shape: &rows_shape,
                values: Box::new(|sink| {
                    self.rows.lse.chunks(CONVERTED).try_for_each(|values| {
                        if T::DTYPE == DType::F64 {
                            return sink(Chunk::F64(values));
                        }
                        let values: Vec<f32> = values.iter().map(|&x| x as f32).collect();
                        sink(Chunk::F32(&values))
                    })
                }),
            });
        }
        if args.weights {
            arrays.push(Encoded {
                name: "weights",
                dtype: dtype_name(T::DTYPE),
                shape: &weights_shape,
                values: Box::new(|sink| {
                    // The weights are made of the inputs too.
                    let done = self.weights(sink)?.and_then(|()| check());
                    done.map_err(|error| {
                        fault = Some(error);
                        io::Error::other("not written")
                    })
                }),
            });
        }
        let written = match &target.file {
            Some(file) => {
                qkv_io::write_file_with(file, |out| encode(out, encoding, arrays, &notes))
                    .map_err(Error::io("-o"))
            }
            None => output::print_with(|out| encode(out, encoding, arrays, &notes)),
        };
        match fault {
            Some(fault) => Err(fault),
            None => written,
        }
    }

    /// Numbers in the number format of q.
    fn rounded(&self, numbers: &[T], sink: &mut Sink<'_>) -> io::Result<()> {
        numbers.chunks(CONVERTED).try_for_each(|values| {
            let rounded = values.iter().map(|x| x.to_f64());
            match self.dtype {
                dtype if dtype == T::DTYPE => sink(values.into()),
                DType::F16 => {
                    let values: Vec<f16> = rounded.map(Element::from_f64).collect();
                    sink(Chunk::F16(&values))
                }
                DType::Bf16 => {
                    let values: Vec<bf16> = rounded.map(Element::from_f64).collect();
                    sink(Chunk::Bf16(&values))
                }
                DType::F32 | DType::F64 => sink(values.into()),
            }
        })
    }

    /// The weights, some rows at a time; the inner error is not of the system.
    fn weights(&self, sink: &mut Sink<'_>) -> io::Result<Result<()>> {
        let [batch, heads, queries, keys] = self.inputs.scores_shape();
        let step = (BYTES_OF_WEIGHTS / (keys * size_of::<T>()).max(1)).clamp(1, queries.max(1));
        let parts: Vec<Part> = (0..batch)
            .flat_map(|b| (0..heads).map(move |h| (b, h)))
            .flat_map(|(b, h)| {
                (0..queries).step_by(step).map(move |start| Part {
                    batch: b..b + 1,
                    heads: h..h + 1,
                    queries: start..(start + step).min(queries),
                    keys: 0..keys,
                })
            })
            .collect();
        let workers = self.run.workers;
        let progress = Progress::new(
            (batch * heads * queries) as u64,
            "weights",
            self.run.shows_progress(parts.len() / workers.threads),
        );
        let one = |part: &Part| qkv::weights(self.attention, self.inputs, &workers.options, part);
        for parts in parts.chunks(workers.threads) {
            if let Err(error) = interrupt::check() {
                return Ok(Err(error));
            }
            let found: qkv::Result<Vec<_>> = match parts {
                [part] => one(part).map(|weights| vec![weights]),
                parts => workers.run(|| parts.par_iter().map(one).collect()),
            };
            match found.map_err(Error::engine(Names::Given)) {
                Err(error) => return Ok(Err(error)),
                Ok(found) => found
                    .iter()
                    .try_for_each(|weights| sink(weights.data().into()))?,
            }
            let rows = parts.iter().map(|part| part.queries.len() as u64);
            progress.add(rows.sum());
        }
        Ok(Ok(()))
    }
}
