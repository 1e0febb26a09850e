//! A model, and the way of tokens through it.
//!
//! ```text
//! x = norm(factor·tokens + positions + kind)                             embedding
//! x = sum(x + branch(attention(before(x)))) ┐ each norm where the family ┌ a layer
//! x = sum(x + branch(dense(before(x))))     ┘ has it                     └
//! logits = head(norm(x))
//! ```

use crate::config::Config;
use crate::dense::{Linear, Mlp, Norm};
use crate::error::{Error, Result};
use crate::image::Patches;
use crate::op::{AttentionOp, Keep, RotaryOp, with_views};
use crate::weights::{Axes, Weights};
use candle_core::{Device, Tensor};
use qkv::position::{Positions, Rotary, Scaling, from_padding};
use qkv::{Attention, Cache, Causal, Options, Scale, ViewMut};

/// Norms around one part of a layer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Around {
    /// On what goes in.
    pub(crate) before: Option<Norm>,
    /// On what comes out, before it is added.
    pub(crate) branch: Option<Norm>,
    /// On the sum.
    pub(crate) sum: Option<Norm>,
}

impl Around {
    fn before(&self, x: &Tensor) -> Result<Tensor> {
        normed(&self.before, x)
    }

    /// The sum of x and a part's output.
    fn after(&self, x: &Tensor, output: &Tensor) -> Result<Tensor> {
        normed(&self.sum, &(x + normed(&self.branch, output)?)?)
    }
}

fn normed(norm: &Option<Norm>, x: &Tensor) -> Result<Tensor> {
    match norm {
        Some(norm) => norm.forward(x),
        None => Ok(x.clone()),
    }
}

/// One layer.
#[derive(Clone, Debug)]
pub(crate) struct Layer {
    pub(crate) q: Linear,
    pub(crate) k: Linear,
    pub(crate) v: Linear,
    pub(crate) o: Linear,
    pub(crate) q_norm: Option<Norm>,
    pub(crate) k_norm: Option<Norm>,
    pub(crate) attention: Around,
    pub(crate) mlp: Mlp,
    pub(crate) dense: Around,
}

/// Learned positions.
#[derive(Clone, Debug)]
pub(crate) struct Learned {
    pub(crate) table: Tensor,
    /// The row of position 0.
    pub(crate) first: usize,
}

/// From tokens to numbers.
#[derive(Clone, Debug)]
pub(crate) struct Embedding {
    pub(crate) tokens: Tensor,
    pub(crate) learned: Option<Learned>,
    pub(crate) kind: Option<Tensor>,
    pub(crate) norm: Option<Norm>,
    /// Of pictures: what embeds their patches, in place of a table of tokens.
    pub(crate) patches: Option<Patches>,
}

/// A model whose weights are in memory.
#[derive(Clone, Debug)]
pub struct Model {
    pub(crate) config: Config,
    pub(crate) embedding: Embedding,
    pub(crate) layers: Vec<Layer>,
    pub(crate) norm: Option<Norm>,
    pub(crate) head: Option<Linear>,
}

/// The layer that gives logits: the embeddings' own weights, those of a head, or none.
pub(crate) fn head(
    config: &Config,
    weights: &mut Weights,
    embedding: &Embedding,
    axes: Axes<'_>,
) -> Result<Option<Linear>> {
    let weight = if config.tied {
        Some(embedding.tokens.clone())
    } else if weights.has("lm_head.weight") {
        Some(weights.take("lm_head.weight", axes)?)
    } else {
        None
    };
    Ok(weight.map(|weight| Linear { weight, bias: None }))
}

/// Tokens of one or several texts, filled up to one length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    ids: Vec<Vec<u32>>,
    kept: Vec<Vec<bool>>,
}

/// On which side shorter texts are filled up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Padding {
    /// After the text.
    #[default]
    Right,
    /// Before the text, as generation needs it.
    Left,
}

impl Batch {
    /// Fills up the shorter of some texts with `pad`.
    ///
    /// ```
    /// use qkv_models::{Batch, Padding};
    /// let batch = Batch::new(&[vec![5, 6, 7], vec![8]], Padding::Left, 0)?;
    /// assert_eq!(batch.ids()[1], [0, 0, 8]);
    /// assert_eq!(batch.kept()[1], [false, false, true]);
    /// # Ok::<(), qkv_models::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no text, or one without tokens.
    pub fn new(texts: &[Vec<u32>], padding: Padding, pad: u32) -> Result<Batch> {
        let longest = texts.iter().map(Vec::len).max().unwrap_or(0);
        if texts.iter().any(Vec::is_empty) || longest == 0 {
            return Err(Error::Text {
                what: "the text",
                found: "has no tokens".into(),
                remedy: "give a text".into(),
            });
        }
        let fill = |text: &Vec<u32>| {
            let missing = longest - text.len();
            let fill = (vec![pad; missing], vec![false; missing]);
            let own = (text.clone(), vec![true; text.len()]);
            let (first, second) = match padding {
                Padding::Left => (fill, own),
                Padding::Right => (own, fill),
            };
            ([first.0, second.0].concat(), [first.1, second.1].concat())
        };
        let (ids, kept) = texts.iter().map(fill).unzip();
        Ok(Batch { ids, kept })
    }

    /// The tokens, `[entry][place]`.
    pub fn ids(&self) -> &[Vec<u32>] {
        &self.ids
    }

    /// Whether a place is a token, and no padding.
    pub fn kept(&self) -> &[Vec<bool>] {
        &self.kept
    }

    /// Texts.
    pub fn entries(&self) -> usize {
        self.ids.len()
    }

    /// Places of each text, padding included.
    pub fn places(&self) -> usize {
        self.ids.first().map_or(0, Vec::len)
    }

    /// Adds a token to each text.
    pub(crate) fn push(&mut self, tokens: &[u32]) {
        for ((ids, kept), token) in self.ids.iter_mut().zip(&mut self.kept).zip(tokens) {
            ids.push(*token);
            kept.push(true);
        }
    }

    fn is_padded(&self) -> bool {
        self.kept.iter().flatten().any(|kept| !kept)
    }

    /// The positions of the places from `start` on; padding has 0.
    fn positions(&self, start: usize) -> Vec<Vec<i64>> {
        let each = self.kept.iter().map(|kept| {
            let all = from_padding(kept);
            all[start..]
                .iter()
                .map(|p| p.map_or(0, |p| p as i64))
                .collect()
        });
        each.collect()
    }

    /// A mask over the keys, where there is padding.
    pub(crate) fn keep(&self) -> Result<Option<Keep>> {
        if !self.is_padded() {
            return Ok(None);
        }
        let shape = [self.entries(), 1, 1, self.places()];
        Ok(Some(Keep::new(shape, self.kept.concat())?))
    }
}

/// What one layer's attention did, every axis as `[batch, heads, length, head_dim]`.
#[derive(Clone, Debug)]
pub(crate) struct Taken {
    /// Before rotary positions.
    pub(crate) q: Tensor,
    pub(crate) k: Tensor,
    pub(crate) v: Tensor,
    /// After rotary positions; the same tensors where a layer has none.
    pub(crate) rotated_q: Tensor,
    pub(crate) rotated_k: Tensor,
    /// The weighted sum of values.
    pub(crate) z: Tensor,
}

/// What the layers of one pass share: which places it is about, angles, and the mask.
pub(crate) struct Pass {
    angles: Vec<(Rotary, RotaryOp)>,
    keep: Option<Keep>,
    options: Options,
}

impl Pass {
    pub(crate) fn keep(&self) -> Option<&Keep> {
        self.keep.as_ref()
    }

    pub(crate) fn options(&self) -> Options {
        self.options
    }
}

impl Model {
    /// What the model is.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Whether the model can say what comes next.
    pub fn has_head(&self) -> bool {
        self.head.is_some()
    }

    /// Refuses a text with tokens that the vocabulary does not have, or with more than there are
    /// positions for.
    ///
    /// # Errors
    /// Says how many tokens it has, and how many it may have.
    pub fn check_text(&self, ids: &[u32]) -> Result<()> {
        self.check(&Batch::new(&[ids.to_vec()], Padding::Right, 0)?)
    }

    /// Refuses tokens that the vocabulary does not have, and texts that are too long.
    pub(crate) fn check(&self, batch: &Batch) -> Result<()> {
        if let Some(cut) = &self.config.image
            && self.embedding.tokens.dim(0)? != cut.tokens()
        {
            return Err(Error::Text {
                what: "the text",
                found: format!(
                    "is given to a {} model, which looks at pictures",
                    self.config.family
                ),
                remedy: "give it a picture: --pixels to the command, Opened::image elsewhere"
                    .into(),
            });
        }
        if let Some(id) = batch
            .ids
            .iter()
            .flatten()
            .find(|id| **id as usize >= self.config.vocabulary)
        {
            return Err(Error::Text {
                what: "the token",
                found: format!(
                    "{id} is not in the vocabulary of {}",
                    self.config.vocabulary
                ),
                remedy: "the tokenizer and the model do not belong together".into(),
            });
        }
        if let (Some(learned), Some(rows)) = (&self.embedding.learned, self.config.positions) {
            let most = rows.saturating_sub(learned.first);
            let longest = batch
                .kept
                .iter()
                .map(|kept| kept.iter().filter(|k| **k).count());
            if let Some(tokens) = longest.max().filter(|tokens| *tokens > most) {
                return Err(Error::Text {
                    what: "the text",
                    found: format!("has {tokens} tokens, and the model has positions for {most}"),
                    remedy: format!("give a text of at most {most} tokens"),
                });
            }
        }
        Ok(())
    }

    /// What the layers share when they go over the places from `start` on.
    pub(crate) fn pass(&self, batch: &Batch, start: usize, options: Options) -> Result<Pass> {
        let positions = batch.positions(start);
        let length = batch.places() - start;
        let longest = batch.positions(0).into_iter().flatten().max().unwrap_or(0) + 1;
        let mut angles: Vec<(Rotary, RotaryOp)> = Vec::new();
        for rotary in self.config.layers.iter().filter_map(|layer| layer.rotary) {
            if angles.iter().any(|(known, _)| *known == rotary) {
                continue;
            }
            let mut now = rotary;
            if let Scaling::Dynamic { length, .. } = &mut now.scaling {
                *length = longest as f64;
            }
            let positions = Positions::Each(&positions);
            let op = RotaryOp::new(
                &now,
                self.config.head_dim,
                batch.entries(),
                length,
                &positions,
            )?;
            angles.push((rotary, op));
        }
        Ok(Pass {
            angles,
            keep: batch.keep()?,
            options,
        })
    }

    /// The embeddings of the places from `start` on, `[batch, length, width]`.
    pub(crate) fn embed(&self, batch: &Batch, start: usize) -> Result<Tensor> {
        let length = batch.places() - start;
        let rows = |numbers: Vec<u32>, table: &Tensor| -> Result<Tensor> {
            let count = numbers.len();
            let numbers = Tensor::from_vec(numbers, count, &Device::Cpu)?;
            let rows = table.index_select(&numbers, 0)?;
            Ok(rows.reshape((batch.entries(), length, self.config.width))?)
        };
        let ids = batch
            .ids
            .iter()
            .flat_map(|ids| &ids[start..])
            .copied()
            .collect();
        let mut x = rows(ids, &self.embedding.tokens)?;
        if self.config.embedding_factor != 1.0 {
            x = (x * self.config.embedding_factor)?;
        }
        if let Some(learned) = &self.embedding.learned {
            let positions = batch.positions(start).concat();
            // RoBERTa gives padding the row before the first.
            let kept = batch.kept.iter().flat_map(|kept| &kept[start..]);
            let numbers = positions.iter().zip(kept).map(|(position, kept)| {
                let at = learned.first + *position as usize;
                (if *kept { at } else { at.saturating_sub(1) }) as u32
            });
            x = (x + rows(numbers.collect(), &learned.table)?)?;
        }
        if let Some(kind) = &self.embedding.kind {
            x = x.broadcast_add(kind)?;
        }
        normed(&self.embedding.norm, &x)
    }

    /// The options of a layer's attention, all but the mask.
    pub(crate) fn attention(&self, layer: usize) -> Attention<'static> {
        let config = &self.config.layers[layer];
        Attention {
            scale: Scale::Factor(config.scale),
            softcap: self.config.softcap,
            causal: self.config.causal.then_some(Causal::BottomRight),
            window: config.window,
            ..Attention::default()
        }
    }

    /// One layer, x and the result `[batch, length, width]`; with a cache, the keys and values of
    /// earlier places come from it, and those of these places go to it.
    pub(crate) fn layer(
        &self,
        at: usize,
        x: &Tensor,
        pass: &Pass,
        cache: Option<&mut Cache<f32>>,
    ) -> Result<(Tensor, Taken)> {
        let layer = &self.layers[at];
        let taken = self.attend(at, &layer.attention.before(x)?, pass, cache)?;
        let (batch, length, _) = x.dims3()?;
        let width = self.config.heads * self.config.head_dim;
        let z = taken.z.transpose(1, 2)?.reshape((batch, length, width))?;
        let x = layer.attention.after(x, &layer.o.forward(&z)?)?;
        let y = layer.mlp.forward(&layer.dense.before(&x)?)?;
        Ok((layer.dense.after(&x, &y)?, taken))
    }

    /// The attention of a layer on its normed input.
    fn attend(
        &self,
        at: usize,
        x: &Tensor,
        pass: &Pass,
        cache: Option<&mut Cache<f32>>,
    ) -> Result<Taken> {
        let (config, layer) = (&self.config, &self.layers[at]);
        let (batch, length, _) = x.dims3()?;
        let heads = |linear: &Linear, heads: usize, norm: &Option<Norm>| -> Result<Tensor> {
            let split = linear.forward(x)?;
            let split = split.reshape((batch, length, heads, config.head_dim))?;
            Ok(normed(norm, &split)?.transpose(1, 2)?)
        };
        let q = heads(&layer.q, config.heads, &layer.q_norm)?;
        let k = heads(&layer.k, config.kv_heads, &layer.k_norm)?;
        let v = heads(&layer.v, config.kv_heads, &None)?;
        let rotary = config.layers[at].rotary.and_then(|rotary| {
            let found = pass.angles.iter().find(|(known, _)| *known == rotary);
            found.map(|(_, op)| op)
        });
        let turned = |x: &Tensor| -> Result<Tensor> {
            match rotary {
                Some(op) => Ok(x.apply_op1_no_bwd(op)?),
                None => Ok(x.clone()),
            }
        };
        let (rotated_q, rotated_k) = (turned(&q)?, turned(&k)?);
        let attention = AttentionOp {
            attention: self.attention(at),
            keep: pass.keep.clone(),
            options: pass.options,
            heads_last: true,
        };
        let z = match cache {
            None => rotated_q.apply_op3_no_bwd(&rotated_k, &v, &attention)?,
            Some(cache) => {
                with_views([&rotated_k, &v], |[k, v]| {
                    cache.append(k, v).map_err(candle_core::Error::wrap)
                })?;
                let shape = [batch, length, config.heads, config.head_dim];
                let mut output = vec![0.0_f32; shape.iter().product()];
                with_views([&rotated_q], |[q]| {
                    let mut run = || -> qkv::Result<()> {
                        let to = ViewMut::new(&mut output, &shape)?.swap_axes(1, 2);
                        let inputs = cache.inputs(q)?;
                        let with_mask = attention.with_mask()?;
                        qkv::forward_into(&with_mask, &inputs, &pass.options, to)?;
                        Ok(())
                    };
                    run().map_err(candle_core::Error::wrap)
                })?;
                Tensor::from_vec(output, shape.to_vec(), &Device::Cpu)?
            }
        };
        Ok(Taken {
            q,
            k,
            v,
            rotated_q,
            rotated_k,
            z: z.transpose(1, 2)?,
        })
    }

    /// The last norm, where the model has one.
    pub(crate) fn last_norm(&self, x: &Tensor) -> Result<Tensor> {
        normed(&self.norm, x)
    }

    /// Logits of the next token behind each place, `[batch, length, vocabulary]`, from the last of
    /// [`hidden_states`](Model::hidden_states).
    ///
    /// # Errors
    /// A model without a head, and refusals of candle.
    pub fn logits(&self, state: &Tensor) -> Result<Tensor> {
        let Some(head) = &self.head else {
            return Err(Error::Text {
                what: "the next token",
                found: format!(
                    "cannot be had: this {} model has no head for it",
                    self.config.family
                ),
                remedy: "give a model with one".into(),
            });
        };
        let logits = head.forward(state)?;
        match self.config.logit_softcap {
            Some(cap) => Ok(((logits / cap)?.tanh()? * cap)?),
            None => Ok(logits),
        }
    }

    /// The hidden states of a batch, `[batch, length, width]` each: the embeddings, then what each
    /// layer gave, the last one after the last norm where the model has one.
    ///
    /// # Errors
    /// Tokens that the vocabulary does not have, texts that are too long, and refusals of candle.
    pub fn hidden_states(&self, batch: &Batch) -> Result<Vec<Tensor>> {
        self.check(batch)?;
        let pass = self.pass(batch, 0, Options::default())?;
        let mut x = self.embed(batch, 0)?;
        let mut states = vec![x.clone()];
        for at in 0..self.layers.len() {
            x = self.layer(at, &x, &pass, None)?.0;
            states.push(x.clone());
        }
        if let Some(last) = states.last_mut() {
            *last = self.last_norm(&x)?;
        }
        Ok(states)
    }
}
