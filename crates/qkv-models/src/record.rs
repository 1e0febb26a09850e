//! What a model's attention did with a text: a source of traces that runs the model as it is looked at.
//!
//! Kept are the layers' inputs, and everything of the layer that is looked at; scores and weights are
//! computed a few rows at a time, from the very queries and keys that the fast path took. Of generated
//! texts queries, keys, values and outputs of every layer are kept, stitched from the steps.

use crate::error::{Error, Result};
use crate::model::{Batch, Model, Pass, Taken};
use crate::op::{AttentionOp, with_views};
use crate::open::Opened;
use crate::tokens::Tokens;
use candle_core::{IndexOp, Tensor};
use qkv::{Cache, Inputs, Options, Part};
use qkv_trace::{Facts, Kind, Place, Queries, Source, Stage, Token};
use rayon::prelude::*;
use std::ops::Range;
use std::sync::Arc;

/// Rows that one thread computes at a time.
const ROWS: usize = 96;

/// Texts up to so many tokens have every row of weights that is asked for compared with the output,
/// longer ones one row of each request.
const COMPARE_ALL: usize = 512;

/// How far the weights that were handed out are from what the fast path computed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Agreement {
    /// Largest difference between Σ weight·value and the attention's output.
    pub largest: f32,
    /// Rows that were compared.
    pub rows: usize,
}

/// One layer.
#[derive(Default)]
struct Slot {
    /// What went in, once it is known.
    input: Option<Tensor>,
    taken: Option<Taken>,
}

/// A model's attention on a batch of texts.
pub struct Recording {
    opened: Arc<Opened>,
    facts: Facts,
    pass: Pass,
    slots: Vec<Slot>,
    /// What the last layer gave, once it ran.
    output: Option<Tensor>,
    agreement: Agreement,
}

impl Recording {
    /// Of texts as they are. The model runs as far as it is looked at.
    ///
    /// # Errors
    /// Tokens that the vocabulary does not have, texts that are too long, and refusals of candle.
    pub fn new(opened: &Arc<Opened>, batch: &Batch, options: Options) -> Result<Recording> {
        let model = &opened.model;
        model.check(batch)?;
        let mut recording = Recording {
            opened: opened.clone(),
            facts: facts(opened, batch),
            pass: model.pass(batch, 0, options)?,
            slots: (0..model.layers.len()).map(|_| Slot::default()).collect(),
            output: None,
            agreement: Agreement::default(),
        };
        let x = model.embed(batch, 0)?;
        recording.enter(0, x)?;
        Ok(recording)
    }

    /// Of texts that the model continues by `tokens` tokens, the likeliest one each time. Every token is
    /// one step with cached keys and values; its row is the one of that step, and the last token gets its
    /// row, too.
    ///
    /// # Errors
    /// As [`new`](Recording::new); a model without a head, and texts that get too long.
    pub fn generate(
        opened: &Arc<Opened>,
        batch: &Batch,
        tokens: usize,
        options: Options,
    ) -> Result<Recording> {
        let model = &opened.model;
        let config = &model.config;
        let mut batch = batch.clone();
        model.check(&batch)?;
        let mut steps: Vec<Vec<(Tensor, Taken)>> =
            model.layers.iter().map(|_| Vec::new()).collect();
        let (kv_heads, width) = (config.kv_heads, config.head_dim);
        let cache = || Cache::<f32>::new(batch.entries(), kv_heads, width, width);
        let mut caches: Vec<Cache<f32>> = model.layers.iter().map(|_| cache()).collect();
        let mut outputs = Vec::new();
        for step in 0..=tokens {
            let start = caches.first().map_or(0, Cache::len);
            let pass = model.pass(&batch, start, options)?;
            let mut x = model.embed(&batch, start)?;
            for (at, (cache, steps)) in caches.iter_mut().zip(&mut steps).enumerate() {
                let (next, taken) = model.layer(at, &x, &pass, Some(cache))?;
                steps.push((std::mem::replace(&mut x, next), taken));
            }
            if step < tokens {
                batch.push(&likeliest(model, &x)?);
                model.check(&batch)?;
            }
            outputs.push(x);
        }
        let mut recording = Recording {
            opened: opened.clone(),
            facts: facts(opened, &batch),
            pass: model.pass(&batch, 0, options)?,
            slots: Vec::new(),
            output: Some(Tensor::cat(&outputs, 1)?),
            agreement: Agreement::default(),
        };
        for steps in steps {
            let stitched = |part: &dyn Fn(&Taken) -> Tensor| -> Result<Tensor> {
                let parts: Vec<Tensor> = steps.iter().map(|(_, taken)| part(taken)).collect();
                Ok(Tensor::cat(&parts, 2)?)
            };
            let taken = Taken {
                q: stitched(&|taken| taken.q.clone())?,
                k: stitched(&|taken| taken.k.clone())?,
                v: stitched(&|taken| taken.v.clone())?,
                rotated_q: stitched(&|taken| taken.rotated_q.clone())?,
                rotated_k: stitched(&|taken| taken.rotated_k.clone())?,
                z: stitched(&|taken| taken.z.clone())?,
            };
            let inputs: Vec<&Tensor> = steps.iter().map(|(x, _)| x).collect();
            recording.slots.push(Slot {
                input: Some(Tensor::cat(&inputs, 1)?),
                taken: Some(taken),
            });
        }
        Ok(recording)
    }

    /// The residual at a stage, `[batch, length, width]`.
    fn at(&mut self, stage: Stage) -> Result<Tensor> {
        let last = self.slots.len().saturating_sub(1);
        let into = match stage {
            Stage::Into(layer) => layer,
            Stage::OutOf(layer) if layer < last => layer + 1,
            Stage::OutOf(_) => return self.run_to_end(),
            Stage::Normed => {
                let x = self.run_to_end()?;
                return self.opened.model.last_norm(&x);
            }
        };
        self.reach(into)?;
        match self.slots.get(into).and_then(|slot| slot.input.clone()) {
            Some(x) => Ok(x),
            None => Err(candle_core::Error::Msg(format!("layer {into} did not run")).into()),
        }
    }

    /// The model's vocabulary.
    pub fn tokens(&self) -> &Tokens {
        &self.opened.tokens
    }

    /// How far the weights that were handed out so far are from what the fast path computed.
    pub fn agreement(&self) -> Agreement {
        self.agreement
    }

    /// The likeliest next tokens of a batch entry, each with its probability.
    ///
    /// # Errors
    /// A model without a head, and refusals of candle.
    pub fn next_tokens(&mut self, entry: usize, most: usize) -> Result<Vec<(u32, f32)>> {
        let x = self.run_to_end()?;
        // Padding may be on the right: the last token is the last that is kept.
        let last = self
            .facts
            .tokens
            .get(entry)
            .and_then(|tokens| tokens.iter().rposition(|token| !token.padding));
        let x = x.narrow(0, entry, 1)?.narrow(1, last.unwrap_or(0), 1)?;
        let model = &self.opened.model;
        let logits: Vec<f32> = model
            .logits(&model.last_norm(&x)?)?
            .flatten_all()?
            .to_vec1()?;
        let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = logits.iter().map(|x| f64::from(x - largest).exp()).sum();
        let mut order: Vec<usize> = (0..logits.len()).collect();
        order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]));
        let share = |id: usize| (f64::from(logits[id] - largest).exp() / sum) as f32;
        Ok(order
            .into_iter()
            .take(most)
            .map(|id| (id as u32, share(id)))
            .collect())
    }

    fn run_to_end(&mut self) -> Result<Tensor> {
        if let Some(output) = &self.output {
            return Ok(output.clone());
        }
        let last = self.slots.len().saturating_sub(1);
        self.run(last)?;
        match &self.output {
            Some(output) => Ok(output.clone()),
            None => Ok(self.opened.model.embedding.tokens.clone()),
        }
    }

    /// Keeps a layer's input.
    fn enter(&mut self, layer: usize, x: Tensor) -> Result<()> {
        match self.slots.get_mut(layer) {
            Some(slot) => slot.input = Some(x),
            None => self.output = Some(x),
        }
        Ok(())
    }

    /// Runs the layers before one, as far as they did not run yet.
    fn reach(&mut self, layer: usize) -> Result<()> {
        let known = |slots: &[Slot]| slots.iter().rposition(|slot| slot.input.is_some());
        while let Some(at) = known(&self.slots).filter(|at| *at < layer) {
            self.run(at)?;
        }
        Ok(())
    }

    /// Runs a layer whose input is known, and keeps what its attention did in place of another's.
    fn run(&mut self, layer: usize) -> Result<()> {
        self.reach(layer)?;
        let Some(x) = self.slots.get(layer).and_then(|slot| slot.input.clone()) else {
            return Ok(());
        };
        for slot in &mut self.slots {
            slot.taken = None;
        }
        let (next, taken) = self.opened.model.layer(layer, &x, &self.pass, None)?;
        self.slots[layer].taken = Some(taken);
        self.enter(layer + 1, next)
    }

    fn taken(&mut self, layer: usize) -> Result<Taken> {
        if self.slots[layer].taken.is_none() {
            self.run(layer)?;
        }
        match &self.slots[layer].taken {
            Some(taken) => Ok(taken.clone()),
            None => Err(candle_core::Error::Msg(format!("layer {layer} did not run")).into()),
        }
    }

    /// Scores or weights of some rows of one head, from the queries and keys that the fast path took.
    fn computed(
        &self,
        taken: &Taken,
        weigh: bool,
        place: Place,
        rows: Range<usize>,
        out: &mut Vec<f32>,
    ) -> Result<()> {
        let keys = self.facts.keys();
        let op = AttentionOp {
            attention: self.opened.model.attention(place.layer),
            keep: self.pass.keep().cloned(),
            options: self.pass.options(),
            heads_last: false,
        };
        let mut run = |[q, k, v]: [qkv::View<'_, f32>; 3]| -> qkv::Result<()> {
            let inputs = Inputs::new(q, k, v)?;
            let attention = op.with_mask()?;
            out.resize(rows.len() * keys, 0.0);
            out.par_chunks_mut(ROWS * keys)
                .enumerate()
                .try_for_each(|(chunk, out)| {
                    let first = rows.start + chunk * ROWS;
                    let part = Part {
                        batch: place.entry..place.entry + 1,
                        heads: place.head..place.head + 1,
                        queries: first..(first + ROWS).min(rows.end),
                        keys: 0..keys,
                    };
                    let numbers = if weigh {
                        qkv::weights(&attention, &inputs, &op.options, &part)?
                    } else {
                        qkv::scores(&attention, &inputs, &op.options, &part)?
                    };
                    out.copy_from_slice(numbers.data());
                    Ok(())
                })
        };
        with_views([&taken.rotated_q, &taken.rotated_k, &taken.v], |views| {
            run(views).map_err(candle_core::Error::wrap)
        })?;
        Ok(())
    }

    /// Compares rows of weights with the output that the fast path computed.
    fn compare(
        &mut self,
        taken: &Taken,
        place: Place,
        rows: Range<usize>,
        weights: &[f32],
    ) -> Result<()> {
        let keys = self.facts.keys();
        let kv_head = self.facts.kv_head(place.head);
        let matrix = |x: &Tensor, head: usize| -> Result<Vec<f32>> {
            Ok(x.i((place.entry, head))?
                .contiguous()?
                .flatten_all()?
                .to_vec1()?)
        };
        let all = keys <= COMPARE_ALL;
        let first = if all {
            rows.start
        } else {
            rows.end.saturating_sub(1).max(rows.start)
        };
        if first >= rows.end {
            return Ok(());
        }
        let v = matrix(&taken.v, kv_head)?;
        let width = self.facts.value_dim;
        let z: Vec<f32> = taken
            .z
            .i((place.entry, place.head))?
            .narrow(0, first, rows.end - first)?
            .contiguous()?
            .flatten_all()?
            .to_vec1()?;
        let from = (first - rows.start) * keys;
        for (weights, z) in weights[from..].chunks(keys).zip(z.chunks(width)) {
            let mut sum = vec![0.0_f64; width];
            for (weight, v) in weights.iter().zip(v.chunks(width)) {
                // A dropped key is not read: its value may be anything.
                if *weight != 0.0 {
                    for (sum, v) in sum.iter_mut().zip(v) {
                        *sum += f64::from(*weight) * f64::from(*v);
                    }
                }
            }
            for (sum, z) in sum.iter().zip(z) {
                let difference = (sum - f64::from(*z)).abs() as f32;
                // NaN against a number is a difference.
                if difference.is_nan() || difference > self.agreement.largest {
                    self.agreement.largest = difference;
                }
            }
            self.agreement.rows += 1;
        }
        Ok(())
    }

    fn give(
        &mut self,
        kind: Kind,
        place: Place,
        rows: Range<usize>,
        out: &mut Vec<f32>,
    ) -> Result<()> {
        let taken = self.taken(place.layer)?;
        out.clear();
        let stored = match kind {
            Kind::Scores => return self.computed(&taken, false, place, rows, out),
            Kind::Weights => {
                self.computed(&taken, true, place, rows.clone(), out)?;
                return self.compare(&taken, place, rows, out);
            }
            Kind::Q => &taken.q,
            Kind::K => &taken.k,
            Kind::V => &taken.v,
            Kind::RotatedQ => &taken.rotated_q,
            Kind::RotatedK => &taken.rotated_k,
            Kind::Z => &taken.z,
        };
        let head = stored.i((place.entry, place.head))?;
        let part = head.narrow(0, rows.start, rows.len())?.contiguous()?;
        out.extend(part.flatten_all()?.to_vec1::<f32>()?);
        Ok(())
    }
}

impl Source for Recording {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn has(&self, kind: Kind, layer: usize) -> bool {
        let layer = self.opened.model.config.layers.get(layer);
        match kind {
            Kind::RotatedQ | Kind::RotatedK => layer.is_some_and(|layer| layer.rotary.is_some()),
            _ => layer.is_some(),
        }
    }

    fn residual_width(&self, stage: Stage) -> Option<usize> {
        let config = &self.opened.model.config;
        let there = match stage {
            Stage::Into(layer) | Stage::OutOf(layer) => layer < config.layers.len(),
            Stage::Normed => self.opened.model.norm.is_some(),
        };
        there.then_some(config.width)
    }

    fn residual(
        &mut self,
        stage: Stage,
        entry: usize,
        rows: Range<usize>,
        out: &mut Vec<f32>,
    ) -> qkv_trace::Result<()> {
        if self.residual_width(stage).is_none() {
            return Err(qkv_trace::Error::NoResidual {
                kind: "resid",
                stage: stage.key(),
            });
        }
        let mut give = || -> Result<()> {
            let x = self.at(stage)?.i(entry)?;
            let part = x.narrow(0, rows.start, rows.len())?.contiguous()?;
            out.clear();
            out.extend(part.flatten_all()?.to_vec1::<f32>()?);
            Ok(())
        };
        give().map_err(wrapped)
    }

    fn closing(&mut self, entry: usize) -> qkv_trace::Result<Vec<(String, String)>> {
        let mut says = Vec::new();
        let Agreement { largest, rows } = self.agreement;
        if rows > 0 {
            let largest = match largest {
                0.0 => "0".into(),
                _ => format!("{largest:.1e}"),
            };
            let value = format!("largest difference {largest}, {rows} rows compared");
            says.push((
                "weights times values, beside the output of the fast path".into(),
                value,
            ));
        }
        if self.opened.model.has_head() {
            let next = self.next_tokens(entry, 3).map_err(wrapped)?;
            let each = next.iter().map(|(id, share)| {
                let text = self.opened.tokens.text(*id);
                format!("{text} {share:.4}")
            });
            says.push(("next token".into(), each.collect::<Vec<_>>().join(", ")));
        }
        Ok(says)
    }

    fn rows(
        &mut self,
        kind: Kind,
        place: Place,
        rows: Range<usize>,
        out: &mut Vec<f32>,
    ) -> qkv_trace::Result<()> {
        self.facts.check_rows(kind, place, &rows)?;
        self.give(kind, place, rows, out).map_err(wrapped)
    }
}

fn wrapped(error: Error) -> qkv_trace::Error {
    qkv_trace::Error::Source(Box::new(error))
}

/// The likeliest token behind the last place of each text.
fn likeliest(model: &Model, x: &Tensor) -> Result<Vec<u32>> {
    let last = x.narrow(1, x.dim(1)? - 1, 1)?;
    let logits = model.logits(&model.last_norm(&last)?)?.squeeze(1)?;
    Ok(logits.argmax(candle_core::D::Minus1)?.to_vec1()?)
}

fn facts(opened: &Opened, batch: &Batch) -> Facts {
    let config = &opened.model.config;
    let texts = batch.ids().iter().zip(batch.kept()).map(|(ids, kept)| {
        let texts = opened.tokens.texts(ids);
        let tokens = ids.iter().zip(texts).zip(kept);
        tokens
            .map(|((id, text), kept)| Token {
                id: Some(*id),
                text,
                padding: !kept,
            })
            .collect()
    });
    let scales: Vec<f64> = config.layers.iter().map(|layer| layer.scale).collect();
    Facts {
        model: opened.name.clone(),
        layers: (0..config.layers.len()).collect(),
        heads: (0..config.heads).collect(),
        all_heads: config.heads,
        kv_heads: config.kv_heads,
        head_dim: config.head_dim,
        value_dim: config.head_dim,
        tokens: texts.collect(),
        queries: Queries::OfKeys((0..batch.places()).collect()),
        scale: scales
            .first()
            .copied()
            .filter(|first| scales.iter().all(|scale| scale == first)),
        top: None,
        conventions: config.conventions(),
        versions: vec![
            ("qkv".into(), env!("CARGO_PKG_VERSION").into()),
            ("candle-core".into(), "0.11.1".into()),
        ],
    }
}
