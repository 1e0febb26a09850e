//! A softmax in low precision: what is rounded on the way, and where both sides may round differently.
//!
//! Numbers of the other side carry roundings of single precision before they are rounded to the low
//! one. Where such a number is as near to the middle between two of the low format as that, it may have
//! gone to the other: a flip.

use super::Model;
use crate::bound::{rounded, roundoff};
use crate::recipe::{LowScores, LowWeights};
use qkv::DType;

/// A number rounded to a format, and the distance to where it may have gone instead.
fn round(x: f64, dtype: DType, noise: f64) -> (f64, f64) {
    let near = rounded(x, dtype);
    let other = [x - noise, x + noise]
        .into_iter()
        .map(|x| (rounded(x, dtype) - near).abs())
        .fold(0.0, f64::max);
    (near, if other.is_finite() { other } else { 0.0 })
}

impl Model<'_> {
    /// Rounds scores, if the recipe rounds those of this kind; flips are of scaled scores.
    pub(super) fn round_scores(
        &self,
        which: LowScores,
        scores: &mut [f64],
        scale: f64,
        spread: &[f64],
        flips: &mut Vec<f64>,
    ) {
        let Some(low) = self.recipe.low.filter(|low| low.scores == which) else {
            return;
        };
        flips.resize(scores.len(), 0.0);
        let own = scale.abs().max(f64::MIN_POSITIVE);
        for (j, score) in scores.iter_mut().enumerate().filter(|(_, s)| s.is_finite()) {
            let spread = spread.get(j).copied().unwrap_or(0.0) / own;
            let noise = roundoff(DType::F32) * (8.0 * spread + 4.0 * score.abs());
            let (near, flip) = round(*score, low.dtype, noise);
            *score = near;
            flips[j] += flip * scale.abs();
        }
    }

    /// Rounds the weights of a row with this maximum and this sum, if the recipe does; what may have
    /// gone otherwise.
    pub(super) fn round_weights(
        &self,
        weights: &mut [f64],
        logits: &[f64],
        kept: &[bool],
        max: f64,
        sum: f64,
    ) -> Vec<f64> {
        let Some(low) = self.recipe.low else {
            return Vec::new();
        };
        // Of exp(s − max): the noise of s, and a few roundings.
        let noise = |logit: f64| roundoff(DType::F32) * (16.0 + 8.0 * (logit.abs() + max.abs()));
        let mut flips = vec![0.0; weights.len()];
        let keys = || (0..logits.len()).filter(|&j| kept[j]);
        match low.weights {
            LowWeights::Exact => return Vec::new(),
            LowWeights::Last => {
                for j in keys() {
                    let noise = noise(logits[j]) * weights[j];
                    (weights[j], flips[j]) = round(weights[j], low.dtype, noise);
                }
            }
            LowWeights::Exponentials => {
                for j in keys() {
                    let exp = (logits[j] - max).exp();
                    let (near, flip) = round(exp, low.dtype, noise(logits[j]) * exp);
                    (weights[j], flips[j]) = (near / sum, flip / sum);
                }
            }
            LowWeights::Each => {
                // What joins the sum without being a key stays as it is.
                let mut total = sum - keys().map(|j| (logits[j] - max).exp()).sum::<f64>();
                total = if total.abs() < 1e-9 * sum { 0.0 } else { total };
                for j in keys() {
                    let apart = logits[j] - max;
                    let (apart, flip) = round(apart, low.dtype, noise(logits[j]) * apart.abs());
                    let exp = apart.exp();
                    let (exp, other) = round(exp, low.dtype, roundoff(DType::F32) * 8.0 * exp);
                    weights[j] = exp;
                    flips[j] = other + exp * flip;
                    total += exp;
                }
                let noise = roundoff(DType::F32) * 8.0 + flips.iter().sum::<f64>() / total;
                let (total, flip_of_sum) = round(total, low.dtype, noise * total);
                for j in keys() {
                    let share = weights[j] / total;
                    let (near, flip) = round(share, low.dtype, roundoff(DType::F32) * 8.0 * share);
                    flips[j] = flip + flips[j] / total + share * flip_of_sum / total;
                    weights[j] = near;
                }
            }
        }
        flips
    }
}
