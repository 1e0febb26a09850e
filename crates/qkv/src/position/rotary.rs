//! Rotary positions: each pair of columns turns by an angle that grows with the position.

use super::scaling::{Scaling, above_zero};
use crate::error::{Error, Result, many};
use crate::view::{AnyView, Element, Tensor, View};

/// Which two columns turn together, of d rotated ones, for i = 0 … d/2 − 1.
///
/// The two compute the same with the columns in another order: weights made for one give
/// nonsense under the other, except at distance 0.
///
/// ```
/// use qkv::{View, position::{Pairing, Positions, Rotary}};
/// let x = [1.0, 2.0, 3.0, 4.0];
/// let first = |pairing| -> qkv::Result<f64> {
///     let rotary = Rotary { pairing, ..Rotary::default() };
///     let rotated = rotary.apply(View::new(&x, &[1, 4])?, &Positions::From(1))?;
///     Ok(rotated.at(&[0, 0, 0, 0]))
/// };
/// let (sin, cos) = 1.0_f64.sin_cos();
/// assert_eq!(first(Pairing::Halves)?, 1.0 * cos - 3.0 * sin); // columns 0 and 2
/// assert_eq!(first(Pairing::Interleaved)?, 1.0 * cos - 2.0 * sin); // columns 0 and 1
/// # Ok::<(), qkv::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pairing {
    /// Columns i and i + d/2: GPT-NeoX, Llama and its family in Hugging Face's layout.
    #[default]
    Halves,
    /// Columns 2i and 2i + 1: the paper, GPT-J, Llama in Meta's layout.
    Interleaved,
}

/// The position of each token, in tokens. Negative ones are possible.
///
/// ```
/// use qkv::{View, position::{Positions, Rotary}};
/// let x = [1.0, 0.0, 1.0, 0.0]; // two batch entries of one token
/// let x = View::new(&x, &[2, 1, 1, 2])?;
/// let rotary = Rotary::default();
///
/// let cached = rotary.apply(x, &Positions::From(7))?; // after 7 cached tokens
/// assert_eq!(cached.data(), [7_f64.cos(), 7_f64.sin(), 7_f64.cos(), 7_f64.sin()]);
///
/// let padded = rotary.apply(x, &Positions::Each(&[vec![7], vec![5]]))?;
/// assert_eq!(padded.data(), [7_f64.cos(), 7_f64.sin(), 5_f64.cos(), 5_f64.sin()]);
/// # Ok::<(), qkv::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Positions<'a> {
    /// Token t stands at start + t, in every batch entry.
    From(i64),
    /// A list for each batch entry with a position for each token, as padding on the left needs
    /// (see [`from_padding`](super::from_padding)).
    Each(&'a [Vec<i64>]),
}

/// Rotary position embedding.
///
/// ```text
/// fᵢ = base^(−2i/d)                               i = 0 … d/2 − 1, then scaled
/// a' = a·cos(position·fᵢ) − b·sin(position·fᵢ)     (a, b) the i-th pair of columns
/// b' = a·sin(position·fᵢ) + b·cos(position·fᵢ)
/// ```
///
/// d is the number of rotated columns, the first `dim` of each head; the others stay as they are.
/// Both queries and keys are rotated, values are not; q·k then depends on positions only by their
/// distance.
///
/// Source: Su et al., *RoFormer*, 2021 (arXiv 2104.09864), section 3.2.
///
/// ```
/// use qkv::position::Rotary;
/// let rotary = Rotary::default(); // halves, base 10000, all columns
/// assert_eq!(rotary.inverse_frequencies(4)?, [1.0, 0.01]);
/// # Ok::<(), qkv::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rotary {
    /// Which columns turn together.
    pub pairing: Pairing,
    /// How far apart the frequencies are: 10000 unless given, 500000 in Llama 3. Above 0.
    pub base: f64,
    /// How many columns of each head turn, the first ones; all if left out. Even.
    pub dim: Option<usize>,
    /// What is done to the frequencies.
    pub scaling: Scaling,
}

impl Default for Rotary {
    fn default() -> Self {
        Rotary {
            pairing: Pairing::default(),
            base: 10000.0,
            dim: None,
            scaling: Scaling::default(),
        }
    }
}

impl Rotary {
    /// d = `dim`, or `head_dim` where it is left out: the number of columns that turn.
    ///
    /// Checks every option against heads of `head_dim` columns; the other functions do so first.
    ///
    /// # Errors
    /// [`Error::Option`] names `rotary dim` where d is odd, 0, or above `head_dim`; `rotary base`
    /// where the base is not a finite number above 0; `rotary scaling` for a factor or length
    /// that is not a finite number above 0, or a `high_freq_factor` not above `low_freq_factor`.
    ///
    /// ```
    /// use qkv::position::Rotary;
    /// assert_eq!(Rotary::default().check(64)?, 64);
    /// let partial = Rotary { dim: Some(16), ..Rotary::default() };
    /// assert_eq!(partial.check(64)?, 16);
    /// assert_eq!(
    ///     partial.check(8).unwrap_err().to_string(),
    ///     "rotary dim: 16 of 8 columns is not possible; \
    ///      give an even number from 2 up to the columns of a head",
    /// );
    /// # Ok::<(), qkv::Error>(())
    /// ```
    pub fn check(&self, head_dim: usize) -> Result<usize> {
        let dim = self.dim.unwrap_or(head_dim);
        if !dim.is_multiple_of(2) || !(2..=head_dim).contains(&dim) {
            return Err(Error::Option {
                option: "rotary dim",
                value: format!("{dim} of {}", many(head_dim, "column")),
                remedy: "give an even number from 2 up to the columns of a head",
            });
        }
        above_zero("rotary base", "", self.base)?;
        self.scaling.check()?;
        if matches!(self.scaling, Scaling::Yarn { .. }) && self.base <= 1.0 {
            return Err(Error::Option {
                option: "rotary base",
                value: self.base.to_string(),
                remedy: "YaRN tells fast pairs from slow ones, which a base above 1 makes",
            });
        }
        Ok(dim)
    }

    /// fᵢ = base^(−2i/d), then scaled: radians per token, for each of the d/2 pairs.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    ///
    /// ```
    /// use qkv::position::{Rotary, Scaling};
    /// let rotary = Rotary { scaling: Scaling::Linear { factor: 4.0 }, ..Rotary::default() };
    /// assert_eq!(rotary.inverse_frequencies(4)?, [0.25, 0.0025]);
    /// # Ok::<(), qkv::Error>(())
    /// ```
    pub fn inverse_frequencies(&self, head_dim: usize) -> Result<Vec<f64>> {
        let dim = self.check(head_dim)?;
        Ok(self.scaling.frequencies(self.base, dim))
    }

    /// magnitude·cos(position·fᵢ) and magnitude·sin(position·fᵢ) for each position and pair: what
    /// [`Pairing::rotate`] takes, so that the layers of a model share one table.
    ///
    /// Each is `[batch, 1, length, d/2]`; batch is 1 where [`Positions::From`] serves all entries.
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    ///
    /// ```
    /// use qkv::position::{Positions, Rotary};
    /// let [cos, sin] = Rotary::default().table(4, 2, 3, &Positions::From(0))?;
    /// assert_eq!(cos.shape(), [1, 1, 3, 2]);
    /// assert_eq!(sin.row(&[0, 0, 1]), [1_f64.sin(), 0.01_f64.sin()]);
    /// # Ok::<(), qkv::Error>(())
    /// ```
    pub fn table(
        &self,
        head_dim: usize,
        batch: usize,
        length: usize,
        positions: &Positions<'_>,
    ) -> Result<[Tensor<f64>; 2]> {
        let frequencies = self.inverse_frequencies(head_dim)?;
        let magnitude = self.scaling.magnitude();
        positions.check(batch, length)?;
        let entries = match positions {
            Positions::From(_) => 1,
            Positions::Each(_) => batch,
        };
        let shape = [entries, 1, length, frequencies.len()];
        let [mut cos, mut sin] = [(); 2].map(|()| Vec::with_capacity(shape.iter().product()));
        for entry in 0..entries {
            for t in 0..length {
                let position = positions.at(entry, t);
                for frequency in &frequencies {
                    let (s, c) = (position * frequency).sin_cos();
                    cos.push(magnitude * c);
                    sin.push(magnitude * s);
                }
            }
        }
        Ok([Tensor::new(&shape, cos)?, Tensor::new(&shape, sin)?])
    }

    /// a' = a·cos − b·sin, b' = a·sin + b·cos for each pair of columns, angle position·fᵢ.
    ///
    /// x is `[batch, heads, length, head_dim]` of any dtype, queries or keys; the result has the
    /// same shape and is `f64`, not rounded to x's dtype. All heads of a token turn alike. A NaN
    /// or an infinity stays within its pair.
    ///
    /// # Errors
    /// As [`check`](Self::check); [`Error::ListLength`] names `positions` where there is not one
    /// list for each batch entry or not one position for each token, [`Error::Option`] one beyond
    /// ±2⁵³, where `f64` no longer tells neighbours apart.
    ///
    /// ```
    /// use qkv::{View, position::{Positions, Rotary}};
    /// let x = [1.0_f32, 2.0, 1.0, 2.0]; // the same token at positions 0 and 1
    /// let rotated = Rotary::default().apply(View::new(&x, &[2, 2])?, &Positions::From(0))?;
    /// let (sin, cos) = 1_f64.sin_cos();
    /// assert_eq!(rotated.shape(), [1, 1, 2, 2]);
    /// assert_eq!(rotated.data(), [1.0, 2.0, cos - 2.0 * sin, sin + 2.0 * cos]);
    /// # Ok::<(), qkv::Error>(())
    /// ```
    pub fn apply<T: Element>(
        &self,
        x: View<'_, T>,
        positions: &Positions<'_>,
    ) -> Result<Tensor<f64>> {
        let [batch, _, length, head_dim] = x.shape();
        let [cos, sin] = self.table(head_dim, batch, length, positions)?;
        self.pairing
            .rotate(x, cos.view()?.into(), sin.view()?.into())
    }
}

impl Pairing {
    /// a' = a·cos − b·sin, b' = a·sin + b·cos for each pair of columns, with cosines and sines of
    /// the caller's, such as a model's tables.
    ///
    /// x is `[batch, heads, length, head_dim]`; cos and sin are `[batch, 1, length, d/2]`, where batch
    /// and length may be 1 and serve all; the first d columns turn, in all heads alike. The result has the shape of x and is
    /// `f64`. Angles of positions and frequencies are [`Rotary::apply`]'s.
    ///
    /// # Errors
    /// [`Error::Mismatch`] where cos or sin do not fit x or each other, [`Error::Option`] names
    /// `rotary dim` where d is above head_dim.
    ///
    /// ```
    /// use qkv::{View, position::Pairing};
    /// let (x, cos, sin) = ([1.0_f32, 2.0, 3.0, 4.0], [0.0, 1.0], [1.0, 0.0]);
    /// let [cos, sin] = [View::new(&cos, &[2])?.into(), View::new(&sin, &[2])?.into()];
    /// let rotated = Pairing::Halves.rotate(View::new(&x, &[1, 4])?, cos, sin)?;
    /// assert_eq!(rotated.data(), [-3.0, 2.0, 1.0, 4.0]); // columns 0 and 2 by a quarter turn
    /// # Ok::<(), qkv::Error>(())
    /// ```
    pub fn rotate<T: Element>(
        self,
        x: View<'_, T>,
        cos: AnyView<'_>,
        sin: AnyView<'_>,
    ) -> Result<Tensor<f64>> {
        let [batch, _, length, head_dim] = x.shape();
        let half = cos.shape()[3];
        if half == 0 || half > head_dim / 2 {
            return Err(Error::Option {
                option: "rotary dim",
                value: format!("{} of {}", half.saturating_mul(2), many(head_dim, "column")),
                remedy: "cos and sin have half as many columns as turn, at most head_dim / 2",
            });
        }
        let needed = [batch, 1, length, half];
        let table = |name, table: AnyView<'_>| {
            let axes = ["batch", "heads", "length", "columns"];
            let sizes = table.shape().into_iter().zip(needed);
            for (axis, (found, needed_size)) in axes.into_iter().zip(sizes) {
                if found != needed_size && (found != 1 || axis == "columns") {
                    return Err(Error::Mismatch {
                        axis,
                        left: name,
                        left_size: found,
                        left_shape: table.shape().into(),
                        right: "x, heads alike",
                        right_size: needed_size,
                        right_shape: needed.into(),
                        remedy: "give a cosine and a sine for each token and pair",
                    });
                }
            }
            Ok(())
        };
        table("cos", cos)?;
        table("sin", sin)?;
        let (Some(cos), Some(sin)) = (cos.broadcast(needed), sin.broadcast(needed)) else {
            return Ok(Tensor::filled(&x.shape(), 0.0)); // refused above
        };
        Ok(self.turned(x, 2 * half, |entry, t, i| {
            (sin.get([entry, 0, t, i]), cos.get([entry, 0, t, i]))
        }))
    }

    /// Turns the first `dim` columns; `angle(batch, token, pair)` gives sine and cosine.
    fn turned<T: Element>(
        self,
        x: View<'_, T>,
        dim: usize,
        angle: impl Fn(usize, usize, usize) -> (f64, f64),
    ) -> Tensor<f64> {
        let [batch, heads, length, head_dim] = x.shape();
        let mut rotated = Tensor::filled(&x.shape(), 0.0);
        let (data, offset) = x.raw();
        let strides = x.strides();
        let mut angles = vec![(0.0, 0.0); dim / 2];
        for entry in 0..batch {
            for t in 0..length {
                for (i, angle_of) in angles.iter_mut().enumerate() {
                    *angle_of = angle(entry, t, i);
                }
                for h in 0..heads {
                    let from = offset as isize
                        + entry as isize * strides[0]
                        + h as isize * strides[1]
                        + t as isize * strides[2];
                    let x = |column: usize| {
                        data[(from + column as isize * strides[3]) as usize].to_f64()
                    };
                    let to = ((entry * heads + h) * length + t) * head_dim;
                    let to = &mut rotated.data_mut()[to..to + head_dim];
                    for (i, &(sin, cos)) in angles.iter().enumerate() {
                        let (left, right) = self.columns(i, dim);
                        let (a, b) = (x(left), x(right));
                        to[left] = a * cos - b * sin;
                        to[right] = a * sin + b * cos;
                    }
                    for (rest, to) in to.iter_mut().enumerate().skip(dim) {
                        *to = x(rest);
                    }
                }
            }
        }
        rotated
    }

    /// The i-th pair of `dim` columns.
    fn columns(self, i: usize, dim: usize) -> (usize, usize) {
        match self {
            Pairing::Halves => (i, i + dim / 2),
            Pairing::Interleaved => (2 * i, 2 * i + 1),
        }
    }
}

/// Whole numbers up to here are exact in `f64`.
const FARTHEST: i64 = 1 << f64::MANTISSA_DIGITS;

impl Positions<'_> {
    fn check(&self, batch: usize, length: usize) -> Result<()> {
        match *self {
            Positions::From(start) => {
                possible(start)?;
                let steps = i64::try_from(length.saturating_sub(1)).unwrap_or(i64::MAX);
                possible(start.saturating_add(steps))
            }
            Positions::Each(lists) => {
                let meaning = "one list for each batch entry";
                has_length(lists.len(), batch, meaning)?;
                for list in lists {
                    let meaning = "one for each token of a batch entry, padding included";
                    has_length(list.len(), length, meaning)?;
                    list.iter().try_for_each(|&position| possible(position))?;
                }
                Ok(())
            }
        }
    }

    /// The position of a token; exact after `check`.
    fn at(&self, batch: usize, token: usize) -> f64 {
        match *self {
            Positions::From(start) => start as f64 + token as f64,
            Positions::Each(lists) => lists[batch][token] as f64,
        }
    }
}

fn possible(position: i64) -> Result<()> {
    if (-FARTHEST..=FARTHEST).contains(&position) {
        return Ok(());
    }
    Err(Error::Option {
        option: "positions",
        value: position.to_string(),
        remedy: "give positions from -2^53 to 2^53",
    })
}

fn has_length(found: usize, expected: usize, meaning: &'static str) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    Err(Error::ListLength {
        argument: "positions",
        found,
        expected,
        meaning,
    })
}
