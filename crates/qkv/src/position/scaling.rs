//! What a model trained on short texts does to rotary's frequencies to read longer ones.

use crate::error::{Error, Result};
use std::f64::consts::TAU;

/// What a model trained on short texts does to the frequencies fᵢ to read longer ones.
///
/// ```text
/// None     fᵢ = base^(−2i/d)
/// Linear   fᵢ / factor, which is the same as position / factor
/// Dynamic  fᵢ of the base  base·(factor·L/original_length − (factor − 1))^(d/(d−2))
///          where L = length, at least original_length
/// Llama3   fᵢ                                     turns > high
///          fᵢ / factor                            turns < low
///          (1−s)·fᵢ/factor + s·fᵢ                 between, s = (turns − low) / (high − low)
///          where turns = original_length·fᵢ / 2π
/// Yarn     (1−r)·fᵢ + r·fᵢ/factor                 r = (i − low) / (high − low), from 0 to 1
///          where low and high are the i at which a pair turns beta_fast and beta_slow times in
///          original_length, to whole numbers downwards and upwards if `whole`; and the rotated
///          numbers are multiplied by `magnitude`
/// ```
///
/// Sources: Chen et al., *Extending Context Window of Large Language Models via Positional
/// Interpolation*, 2023 (arXiv 2306.15595) for `Linear`; Meta's code of Llama 3.1 for `Llama3`;
/// Peng et al., *YaRN*, 2023 (arXiv 2309.00071) for `Yarn` and, in its section 3.3, `Dynamic`.
///
/// ```
/// use qkv::position::{Rotary, Scaling};
/// let llama = Rotary {
///     base: 500000.0,
///     scaling: Scaling::Llama3 {
///         factor: 8.0,
///         low_freq_factor: 1.0,
///         high_freq_factor: 4.0,
///         original_length: 8192.0,
///     },
///     ..Rotary::default()
/// };
/// let plain = Rotary { scaling: Scaling::None, ..llama };
/// let (scaled, plain) = (llama.inverse_frequencies(128)?, plain.inverse_frequencies(128)?);
/// assert_eq!(scaled[20], plain[20]);
/// assert!((scaled[32] - 5.248462e-4).abs() < 1e-10); // from 1.414214e-3
/// assert_eq!(scaled[40], plain[40] / 8.0);
/// # Ok::<(), qkv::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Scaling {
    /// The frequencies as they are.
    #[default]
    None,
    /// All frequencies divided by the same number.
    Linear {
        /// How many times longer the texts are, above 0.
        factor: f64,
    },
    /// A base that grows with the text once it is longer than those of the training.
    Dynamic {
        /// How fast it grows; at least 1.
        factor: f64,
        /// Tokens of the texts that the model was trained on, above 0.
        original_length: f64,
        /// Tokens of the text at hand; up to `original_length` nothing changes. Keys that were
        /// rotated for a shorter text are not rotated again by anybody.
        length: f64,
    },
    /// Slow pairs divided, fast pairs kept, a ramp between: Llama 3.1, 3.2 and 3.3.
    Llama3 {
        /// The divisor of the slow pairs, above 0.
        factor: f64,
        /// Pairs that turn less often than this in `original_length` are divided; above 0.
        low_freq_factor: f64,
        /// Pairs that turn more often than this in `original_length` are kept; above
        /// `low_freq_factor`.
        high_freq_factor: f64,
        /// Tokens of the texts that the model was first trained on, above 0.
        original_length: f64,
    },
    /// A ramp over the pairs, and rotated numbers that are made larger.
    Yarn {
        /// The divisor of the slow pairs, above 0.
        factor: f64,
        /// Pairs that turn more often than this in `original_length` are kept; 32 unless given.
        beta_fast: f64,
        /// Pairs that turn less often than this are divided; 1 unless given.
        beta_slow: f64,
        /// Tokens of the texts that the model was first trained on, above 0.
        original_length: f64,
        /// Whether the ramp's ends are whole numbers, as in the published code.
        whole: bool,
        /// The factor on queries and keys: [`yarn_magnitude`](Scaling::yarn_magnitude) unless given.
        magnitude: f64,
    },
}

impl Scaling {
    /// 0.1·ln(factor) + 1, and 1 for factors up to 1: the factor that YaRN's paper puts on queries
    /// and on keys, so that scores grow by its square.
    ///
    /// ```
    /// assert_eq!(qkv::position::Scaling::yarn_magnitude(1.0), 1.0);
    /// assert!((qkv::position::Scaling::yarn_magnitude(4.0) - 1.1386).abs() < 1e-4);
    /// ```
    pub fn yarn_magnitude(factor: f64) -> f64 {
        if factor <= 1.0 {
            1.0
        } else {
            0.1 * factor.ln() + 1.0
        }
    }

    /// What rotated numbers are multiplied by: 1 but for `Yarn`.
    pub fn magnitude(&self) -> f64 {
        match *self {
            Scaling::Yarn { magnitude, .. } => magnitude,
            _ => 1.0,
        }
    }

    pub(super) fn check(&self) -> Result<()> {
        let positive = |part, value| above_zero("rotary scaling", part, value);
        match *self {
            Scaling::None => Ok(()),
            Scaling::Linear { factor } => positive("factor ", factor),
            Scaling::Dynamic {
                factor,
                original_length,
                length,
            } => {
                positive("original_length ", original_length)?;
                positive("length ", length)?;
                if factor.is_finite() && factor >= 1.0 {
                    return Ok(());
                }
                Err(Error::Option {
                    option: "rotary scaling",
                    value: format!("factor {factor}"),
                    remedy: "give a finite number of at least 1",
                })
            }
            Scaling::Llama3 {
                factor,
                low_freq_factor: low,
                high_freq_factor: high,
                original_length,
            } => {
                positive("factor ", factor)?;
                positive("low_freq_factor ", low)?;
                positive("high_freq_factor ", high)?;
                positive("original_length ", original_length)?;
                ordered("high_freq_factor", high, "low_freq_factor", low)
            }
            Scaling::Yarn {
                factor,
                beta_fast,
                beta_slow,
                original_length,
                magnitude,
                ..
            } => {
                positive("factor ", factor)?;
                positive("beta_fast ", beta_fast)?;
                positive("beta_slow ", beta_slow)?;
                positive("original_length ", original_length)?;
                positive("magnitude ", magnitude)?;
                ordered("beta_fast", beta_fast, "beta_slow", beta_slow)
            }
        }
    }

    /// The frequencies of `dim / 2` pairs.
    pub(super) fn frequencies(&self, base: f64, dim: usize) -> Vec<f64> {
        let d = dim as f64;
        let base = self.base(base, d);
        let ramp = self.ramp(base, d);
        let each = (0..dim / 2).map(|i| {
            let frequency = 1.0 / base.powf((2 * i) as f64 / d);
            self.scaled(frequency, ramp(i as f64))
        });
        each.collect()
    }

    fn base(&self, base: f64, d: f64) -> f64 {
        match *self {
            // Two columns have the frequency 1 whatever the base.
            Scaling::Dynamic {
                factor,
                original_length,
                length,
            } if length > original_length && d > 2.0 => {
                base * (factor * length / original_length - (factor - 1.0)).powf(d / (d - 2.0))
            }
            _ => base,
        }
    }

    /// How much of the i-th pair's frequency is divided, from 0 to 1; of YaRN only.
    fn ramp(&self, base: f64, d: f64) -> impl Fn(f64) -> f64 {
        let ends = match *self {
            Scaling::Yarn {
                beta_fast,
                beta_slow,
                original_length,
                whole,
                ..
            } => {
                let pair =
                    |turns: f64| d * (original_length / (turns * TAU)).ln() / (2.0 * base.ln());
                let (low, high) = (pair(beta_fast), pair(beta_slow));
                let (low, high) = if whole {
                    (low.floor(), high.ceil())
                } else {
                    (low, high)
                };
                let (low, high) = (low.max(0.0), high.min(d - 1.0));
                // Ends that meet make a step, not a division by zero.
                Some((low, if low == high { high + 0.001 } else { high }))
            }
            _ => None,
        };
        move |i| {
            ends.map_or(0.0, |(low, high)| {
                ((i - low) / (high - low)).clamp(0.0, 1.0)
            })
        }
    }

    fn scaled(&self, frequency: f64, divided: f64) -> f64 {
        match *self {
            Scaling::None | Scaling::Dynamic { .. } => frequency,
            Scaling::Linear { factor } => frequency / factor,
            Scaling::Llama3 {
                factor,
                low_freq_factor: low,
                high_freq_factor: high,
                original_length,
            } => {
                let turns = original_length * frequency / TAU;
                if turns > high {
                    return frequency;
                }
                if turns < low {
                    return frequency / factor;
                }
                let share = (turns - low) / (high - low);
                (1.0 - share) * frequency / factor + share * frequency
            }
            Scaling::Yarn { factor, .. } => {
                divided * frequency / factor + (1.0 - divided) * frequency
            }
        }
    }
}

fn ordered(high_name: &str, high: f64, low_name: &str, low: f64) -> Result<()> {
    if high > low {
        return Ok(());
    }
    Err(Error::Option {
        option: "rotary scaling",
        value: format!("{high_name} {high} with {low_name} {low}"),
        remedy: "the high one must be above the low one; check for exchanged values",
    })
}

pub(super) fn above_zero(option: &'static str, part: &'static str, value: f64) -> Result<()> {
    if value.is_finite() && value > 0.0 {
        return Ok(());
    }
    Err(Error::Option {
        option,
        value: format!("{part}{value}"),
        remedy: "give a finite number above 0",
    })
}
