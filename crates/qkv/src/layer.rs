//! The layer around attention: projections, heads, norms, rotary, output projection, residual.
//!
//! ```text
//! Q = X·W_Q + b_Q,   K = C·W_K + b_K,   V = C·W_V + b_V          C is X, or the context
//! heads of width d: columns h·d to (h+1)·d of Q are head h
//! Q, K = rms_norm(Q)·g_Q, rms_norm(K)·g_K                         if there are norms
//! Q, K = rotate(Q, place), rotate(K, place)                       if there is a rotary embedding
//! O_h = attention(Q_h, K_h, V_h)
//! Y = concat(O_0, …, O_{H−1})·W_O + b_O
//! output = X + Y                                                  if there is a residual
//!
//! X has its sinusoidal positions added first, if there are any, also in the residual.
//! ```
//!
//! Plain `f64` loops, as in [`definition`].

mod backward;
mod difference;

pub use backward::GradientSteps;
pub use difference::FiniteDifference;

use crate::attention::{Attention, Inputs};
use crate::definition::{self, Places};
use crate::error::{Error, Result, Shape, many};
use crate::position::{Positions, Rotary, sinusoidal};
use crate::steps::{StepName, Steps, push_rows, with_past};
use crate::view::{Element, Tensor};

/// x·W + b, with the weight as mathematics writes it: `[in, out]`.
///
/// PyTorch's `nn.Linear` and most checkpoints store the transposed weight, `[out, in]`; GPT-2's
/// `Conv1D` stores this one.
#[derive(Clone, Debug, PartialEq)]
pub struct Linear {
    name: &'static str,
    weight: Tensor<f64>,
    bias: Option<Vec<f64>>,
}

impl Linear {
    /// A weight `[in, out]` and a bias `[out]`; `name` is what messages call the weight.
    ///
    /// # Errors
    /// [`Error::Rank`] unless the weight has two axes, [`Error::ListLength`] if the bias does not
    /// have one number for each column.
    pub fn new(name: &'static str, weight: Tensor<f64>, bias: Option<Vec<f64>>) -> Result<Self> {
        let &[_, out] = weight.shape() else {
            return Err(Error::Rank {
                argument: name,
                shape: weight.shape().into(),
                expected: "a weight has 2, [in, out]",
            });
        };
        match &bias {
            Some(bias) if bias.len() != out => Err(Error::ListLength {
                argument: name,
                found: bias.len(),
                expected: out,
                meaning: "the bias has one number for each column of the weight",
            }),
            _ => Ok(Linear { name, weight, bias }),
        }
    }

    /// The weight, `[in, out]`.
    pub fn weight(&self) -> &Tensor<f64> {
        &self.weight
    }

    /// The bias, `[out]`.
    pub fn bias(&self) -> Option<&[f64]> {
        self.bias.as_deref()
    }

    /// Width of what goes in.
    pub fn in_width(&self) -> usize {
        self.weight.shape()[0]
    }

    /// Width of what comes out.
    pub fn out_width(&self) -> usize {
        self.weight.shape()[1]
    }

    /// `[B, L, in]` to `[B, L, out]`; `argument` is what messages call x.
    ///
    /// # Errors
    /// [`Error::Rank`] or [`Error::Mismatch`] if x is not `[B, L, in]`.
    pub fn apply(&self, x: &Tensor<f64>, argument: &'static str) -> Result<Tensor<f64>> {
        let [batch, len, width] = three_axes(x, argument)?;
        if width != self.in_width() {
            return Err(Error::Mismatch {
                axis: "width",
                left: argument,
                left_size: width,
                left_shape: x.shape().into(),
                right: self.name,
                right_size: self.in_width(),
                right_shape: self.weight.shape().into(),
                remedy: "the weight has a row for each column of its input; a weight stored \
                         [out, in], as nn.Linear stores it, must be transposed first",
            });
        }
        let mut y = Tensor::filled(&[batch, len, self.out_width()], 0.0);
        for b in 0..batch {
            for t in 0..len {
                for o in 0..self.out_width() {
                    let product: f64 = (0..width)
                        .map(|c| x.at(&[b, t, c]) * self.weight.at(&[c, o]))
                        .sum();
                    let bias = self.bias.as_ref().map_or(0.0, |bias| bias[o]);
                    *y.at_mut(&[b, t, o]) = product + bias;
                }
            }
        }
        Ok(y)
    }
}

/// x / √(mean(x²) + eps) · gain, over the columns of one head (QK-norm).
#[derive(Clone, Debug, PartialEq)]
pub struct RmsNorm {
    /// One gain a column, `[head_dim]`. Gemma's checkpoints store gain − 1.
    pub gain: Vec<f64>,
    /// Added to the mean square; 1e-6 in most models.
    pub eps: f64,
}

impl RmsNorm {
    /// The norm with the usual eps of 1e-6.
    pub fn new(gain: Vec<f64>) -> Self {
        RmsNorm { gain, eps: 1e-6 }
    }

    fn apply(&self, x: &Tensor<f64>, argument: &'static str) -> Result<Tensor<f64>> {
        let [batch, heads, len, width] = four_axes(x, argument)?;
        if self.gain.len() != width {
            return Err(Error::ListLength {
                argument,
                found: self.gain.len(),
                expected: width,
                meaning: "one gain for each column of a head",
            });
        }
        if !(self.eps.is_finite() && self.eps >= 0.0) {
            return Err(Error::Option {
                option: argument,
                value: format!("eps {}", self.eps),
                remedy: "give a finite number of at least 0; most models use 1e-6",
            });
        }
        let mut y = x.clone();
        for b in 0..batch {
            for h in 0..heads {
                for t in 0..len {
                    let row = x.row(&[b, h, t]);
                    let mean_square = row.iter().map(|v| v * v).sum::<f64>() / width as f64;
                    for c in 0..width {
                        *y.at_mut(&[b, h, t, c]) =
                            row[c] / (mean_square + self.eps).sqrt() * self.gain[c];
                    }
                }
            }
        }
        Ok(y)
    }
}

/// What happens between the heads' q, k, v and the layer's output.
#[derive(Clone, Debug, Default)]
pub struct Block<'a> {
    /// Norm of the queries, before rotary.
    pub q_norm: Option<RmsNorm>,
    /// Norm of the keys, before rotary.
    pub k_norm: Option<RmsNorm>,
    /// Rotary embedding of queries and keys. Cached keys count as rotated (and normed) already.
    pub rotary: Option<Rotary>,
    /// Where tokens stand for the rotary embedding.
    pub place: Place,
    /// Attention itself.
    pub attention: Attention<'a>,
    /// Whether heads are put side by side: always if there is an output projection.
    pub concatenate: bool,
    /// W_O, `[H·d_v, D]`.
    pub output: Option<Linear>,
}

/// Where tokens stand for a rotary embedding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Key j stands at start + j, counted within its own document. A query stands where its own
    /// key does in self-attention from x; elsewhere at start + i + offset, as in
    /// [`Causal`](crate::Causal).
    Counted {
        /// The place of the first key.
        start: i64,
    },
    /// One place for each new token, a list for each batch entry, as left padding needs
    /// ([`from_padding`](crate::position::from_padding)).
    Given(Vec<Vec<i64>>),
}

impl Default for Place {
    fn default() -> Self {
        Place::Counted { start: 0 }
    }
}

impl Block<'_> {
    /// Every intermediate, from `q` to `projected`.
    ///
    /// # Errors
    /// Those of [`definition::forward`], and shapes of norms and W_O that do not fit.
    pub fn steps<T: Element>(&self, inputs: &Inputs<'_, T>) -> Result<Steps> {
        let mut steps = Steps::default();
        self.push_steps(inputs, false, &mut steps)?;
        Ok(steps)
    }

    fn push_steps<T: Element>(
        &self,
        inputs: &Inputs<'_, T>,
        same_tokens: bool,
        steps: &mut Steps,
    ) -> Result<()> {
        self.attention.check(inputs)?;
        let past_k = inputs.past().map(|(k, _)| with_past(None, k));
        let past_view = past_k.as_ref().map(Tensor::view).transpose()?;
        // Norm and rotation concern new keys only: the cache holds what they made of the others.
        let whole_k = |new: &Tensor<f64>| new.view().map(|new| with_past(past_view, new));

        let v = with_past(inputs.past().map(|(_, v)| v), inputs.v());
        steps.push(StepName::Q, with_past(None, inputs.q()));
        steps.push(StepName::K, whole_k(&with_past(None, inputs.k()))?);
        steps.push(StepName::V, v.clone());
        let (q, new_k) = self.turned(inputs, same_tokens, |name, x| {
            let x = match name {
                StepName::KNormed | StepName::KRotated => whole_k(x)?,
                _ => x.clone(),
            };
            steps.push(name, x);
            Ok(())
        })?;
        let k = whole_k(&new_k)?;
        let prepared = Inputs::new(q.view()?, k.view()?, v.view()?)?;
        push_rows(steps, &self.attention, &prepared)?;
        self.push_projected(steps)
    }

    /// The queries and the new keys as attention itself takes them, normed and rotated:
    /// `[B, H, L_q, d_k]` and `[B, H_kv, L, d_k]`.
    ///
    /// # Errors
    /// Those of [`Attention::check`], and norms and rotary embeddings that do not fit.
    pub fn queries_and_keys<T: Element>(
        &self,
        inputs: &Inputs<'_, T>,
    ) -> Result<(Tensor<f64>, Tensor<f64>)> {
        self.attention.check(inputs)?;
        self.turned(inputs, false, |_, _| Ok(()))
    }

    /// Queries and new keys normed and rotated; each step is shown to `each`.
    fn turned<T: Element>(
        &self,
        inputs: &Inputs<'_, T>,
        same_tokens: bool,
        mut each: impl FnMut(StepName, &Tensor<f64>) -> Result<()>,
    ) -> Result<(Tensor<f64>, Tensor<f64>)> {
        let mut q = with_past(None, inputs.q());
        let mut k = with_past(None, inputs.k());
        if let Some(norm) = &self.q_norm {
            q = norm.apply(&q, "q_norm")?;
            each(StepName::QNormed, &q)?;
        }
        if let Some(norm) = &self.k_norm {
            k = norm.apply(&k, "k_norm")?;
            each(StepName::KNormed, &k)?;
        }
        if let Some(rotary) = &self.rotary {
            let places = self.places(inputs, inputs.past_len(), same_tokens)?;
            q = rotary.apply(q.view()?, &Positions::Each(&places.queries))?;
            k = rotary.apply(k.view()?, &Positions::Each(&places.keys))?;
            each(StepName::QRotated, &q)?;
            each(StepName::KRotated, &k)?;
        }
        Ok((q, k))
    }

    fn push_projected(&self, steps: &mut Steps) -> Result<()> {
        if !self.concatenate && self.output.is_none() {
            return Ok(());
        }
        let Some(heads) = steps.get(StepName::Output) else {
            return Ok(());
        };
        let concatenated = merge_heads(heads)?;
        let projected = self
            .output
            .as_ref()
            .map(|output| output.apply(&concatenated, "concatenated heads"))
            .transpose()?;
        steps.push(StepName::Concatenated, concatenated);
        if let Some(projected) = projected {
            steps.push(StepName::Projected, projected);
        }
        Ok(())
    }

    /// Where queries and new keys stand. In self-attention (`same_tokens`) a query stands where its
    /// own key does; elsewhere the alignment says it.
    fn places<T: Element>(
        &self,
        inputs: &Inputs<'_, T>,
        past_len: usize,
        same_tokens: bool,
    ) -> Result<Places> {
        let start = match &self.place {
            Place::Given(places) => {
                return Ok(Places {
                    queries: places.clone(),
                    keys: places.clone(),
                });
            }
            Place::Counted { start } => start,
        };
        let shift = |at: &[i64]| at.iter().map(|p| p.saturating_add(*start)).collect();
        let places = definition::places(&self.attention, inputs)?;
        let keys: Vec<Vec<i64>> = places
            .keys
            .iter()
            .map(|at| shift(&at[past_len..]))
            .collect();
        let queries = if same_tokens {
            keys.clone()
        } else {
            places.queries.iter().map(|at| shift(at)).collect()
        };
        Ok(Places { queries, keys })
    }
}

/// Self- or cross-attention from token rows.
#[derive(Clone, Debug)]
pub struct Layer<'a> {
    /// W_Q, `[D, H·d_k]`.
    pub q: Linear,
    /// W_K, `[D, H_kv·d_k]`.
    pub k: Linear,
    /// W_V, `[D, H_kv·d_v]`.
    pub v: Linear,
    /// Query heads, H.
    pub heads: usize,
    /// Key and value heads, H_kv.
    pub kv_heads: usize,
    /// Adds sinusoidal positions to x, the first token at this place (after cached ones), and to
    /// the context, from place 0.
    pub sinusoidal: Option<usize>,
    /// Everything from heads to the output projection.
    pub block: Block<'a>,
    /// Adds x to the result, with its sinusoidal positions if there are any.
    pub residual: bool,
}

impl Layer<'_> {
    /// Every intermediate, from `q` to `residual`.
    ///
    /// x `[B, L_q, D]`; context `[B, L, D_c]` for cross-attention; cached keys and values
    /// `[B, H_kv, P, d]`.
    ///
    /// # Errors
    /// Those of [`Block::steps`], and widths that do not fit.
    pub fn steps(
        &self,
        x: &Tensor<f64>,
        context: Option<&Tensor<f64>>,
        past: Option<(&Tensor<f64>, &Tensor<f64>)>,
    ) -> Result<Steps> {
        let mut steps = Steps::default();
        let past_len = match past {
            Some((k, _)) => k.view()?.shape()[2],
            None => 0,
        };
        let mut positioned = |x: &Tensor<f64>, start, name, argument| -> Result<_> {
            let x = match self.sinusoidal {
                Some(_) => add_sinusoidal(x, start, argument)?,
                None => return Ok(x.clone()),
            };
            steps.push(name, x.clone());
            Ok(x)
        };
        let first = self.sinusoidal.unwrap_or(0).saturating_add(past_len);
        let x_in = positioned(x, first, StepName::XPositioned, "x")?;
        let (context_in, context_name) = match context {
            Some(context) => {
                let name = StepName::ContextPositioned;
                (positioned(context, 0, name, "context")?, "context")
            }
            None => (x_in.clone(), "x"),
        };
        let q = split_heads(&self.q.apply(&x_in, "x")?, self.heads, "W_Q")?;
        let k = split_heads(
            &self.k.apply(&context_in, context_name)?,
            self.kv_heads,
            "W_K",
        )?;
        let v = split_heads(
            &self.v.apply(&context_in, context_name)?,
            self.kv_heads,
            "W_V",
        )?;
        let mut inputs = Inputs::new(q.view()?, k.view()?, v.view()?)?;
        if let Some((k, v)) = past {
            inputs = inputs.with_past(k.view()?, v.view()?)?;
        }
        self.block
            .push_steps(&inputs, context.is_none(), &mut steps)?;
        if self.residual {
            self.push_residual(&x_in, &mut steps)?;
        }
        Ok(steps)
    }

    fn push_residual(&self, x: &Tensor<f64>, steps: &mut Steps) -> Result<()> {
        let last = steps
            .get(StepName::Projected)
            .or(steps.get(StepName::Concatenated));
        let Some(last) = last else {
            return Err(Error::Option {
                option: "residual",
                value: "a sum with heads that are not put side by side".into(),
                remedy: "concatenate the heads, or give W_O",
            });
        };
        let [_, _, width] = three_axes(x, "x")?;
        if last.shape() != x.shape() {
            return Err(Error::Mismatch {
                axis: "width",
                left: "x",
                left_size: width,
                left_shape: x.shape().into(),
                right: "the attention's output",
                right_size: last.shape()[2],
                right_shape: last.shape().into(),
                remedy: "a residual needs the same width on both sides: give a W_O [H·d_v, D]",
            });
        }
        let sum = x
            .data()
            .iter()
            .zip(last.data())
            .map(|(x, y)| x + y)
            .collect();
        let sum = Tensor::new(x.shape(), sum)?;
        steps.push(StepName::Residual, sum);
        Ok(())
    }
}

fn add_sinusoidal(x: &Tensor<f64>, start: usize, argument: &'static str) -> Result<Tensor<f64>> {
    let [_, len, width] = three_axes(x, argument)?;
    let table = sinusoidal(len, width, start);
    let period = (len * width).max(1);
    let data = x
        .data()
        .iter()
        .enumerate()
        .map(|(at, value)| value + table.data()[at % period])
        .collect();
    Tensor::new(x.shape(), data)
}

/// `[B, L, H·d]` to `[B, H, L, d]`: columns h·d to (h+1)·d become head h.
///
/// ```
/// use qkv::{Tensor, layer::split_heads};
/// let x = Tensor::new(&[1, 2, 4], vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0])?;
/// let heads = split_heads(&x, 2, "x")?;
/// assert_eq!(heads.data(), [0.0, 1.0, 4.0, 5.0, 2.0, 3.0, 6.0, 7.0]);
/// # Ok::<(), qkv::Error>(())
/// ```
///
/// # Errors
/// [`Error::Rank`] unless x has three axes, [`Error::Option`] if its width is no multiple of the
/// number of heads. `argument` is what messages call x.
pub fn split_heads(x: &Tensor<f64>, heads: usize, argument: &'static str) -> Result<Tensor<f64>> {
    let [batch, len, width] = three_axes(x, argument)?;
    if heads == 0 || width % heads != 0 {
        return Err(Error::Option {
            option: "heads",
            value: format!(
                "{heads} for {argument}, which gives {} (shape {}),",
                many(width, "column"),
                Shape::from(x.shape())
            ),
            remedy: "the columns must divide evenly among the heads",
        });
    }
    let head_dim = width / heads;
    let mut y = Tensor::filled(&[batch, heads, len, head_dim], 0.0);
    for b in 0..batch {
        for h in 0..heads {
            for t in 0..len {
                for c in 0..head_dim {
                    *y.at_mut(&[b, h, t, c]) = x.at(&[b, t, h * head_dim + c]);
                }
            }
        }
    }
    Ok(y)
}

/// `[B, H, L, d]` to `[B, L, H·d]`: the heads of a token side by side.
///
/// ```
/// use qkv::{Tensor, layer::merge_heads};
/// let heads = Tensor::new(&[1, 2, 2, 2], vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])?;
/// assert_eq!(merge_heads(&heads)?.data(), [1.0, 2.0, 5.0, 6.0, 3.0, 4.0, 7.0, 8.0]);
/// # Ok::<(), qkv::Error>(())
/// ```
///
/// # Errors
/// [`Error::Rank`] unless x has four axes.
pub fn merge_heads(x: &Tensor<f64>) -> Result<Tensor<f64>> {
    let [batch, heads, len, head_dim] = four_axes(x, "heads")?;
    let mut y = Tensor::filled(&[batch, len, heads * head_dim], 0.0);
    for b in 0..batch {
        for h in 0..heads {
            for t in 0..len {
                for c in 0..head_dim {
                    *y.at_mut(&[b, t, h * head_dim + c]) = x.at(&[b, h, t, c]);
                }
            }
        }
    }
    Ok(y)
}

fn three_axes(x: &Tensor<f64>, argument: &'static str) -> Result<[usize; 3]> {
    x.shape().try_into().map_err(|_| Error::Rank {
        argument,
        shape: x.shape().into(),
        expected: "3 are needed, [batch, length, width]",
    })
}

fn four_axes(x: &Tensor<f64>, argument: &'static str) -> Result<[usize; 4]> {
    x.shape().try_into().map_err(|_| Error::Rank {
        argument,
        shape: x.shape().into(),
        expected: "4 are needed, [batch, heads, length, head_dim]",
    })
}
