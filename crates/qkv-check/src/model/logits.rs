//! Scores of a row, step by step, and what rounding may make of them.

use super::Model;
use super::heads::Kind;
use super::row::RowOut;
use crate::bound::roundoff;
use crate::recipe::{Cap, DroppedRule, LowScores, Padding, Recipe};
use qkv::{DType, StepName};

/// Everything up to the logits of a row.
pub(super) struct Logits {
    raw: Vec<f64>,
    scaled: Vec<f64>,
    pub capped: Vec<f64>,
    pub biased: Vec<f64>,
    /// What enters the softmax.
    pub logits: Vec<f64>,
    /// Whether the row keeps a key, as the softmax sees it.
    pub kept: Vec<bool>,
    /// How many masks drop a key.
    pub drops: Vec<u8>,
    /// Σ|q·k| of each key, scaled, and the bias: at worst.
    size: Vec<f64>,
    /// √Σ(q·k)² of each key, scaled.
    spread: Vec<f64>,
    /// How far a score is off where the last roundings of one side may go the other way; none unless
    /// scores are rounded.
    flips: Vec<f64>,
}

/// Roundings of a score besides those of its products.
pub(super) const FEW: f64 = 28.0;

impl Model<'_> {
    pub(super) fn logits(&self, at @ [b, h, _]: [usize; 3]) -> Logits {
        let recipe = self.recipe;
        let q = self.query(at);
        let keys = self.head(Kind::K, b, h);
        let count = self.sizes.keys;
        let mut drops = self.seen.drops(at);
        let zeros_from = match recipe.padding {
            Padding::Zeros => self.seen.length(b),
            _ => count,
        };
        let mut raw = Vec::with_capacity(count);
        let (mut size, mut spread) = (Vec::new(), Vec::new());
        for j in 0..count {
            let k = keys.row(j);
            let dot = sum(&q.row, k, |q, k| q * k);
            let dot = if j < zeros_from { dot } else { 0.0 };
            raw.push(match recipe.half_range[0] {
                true => half_range(dot),
                false => dot,
            });
            if self.with_bounds {
                size.push(recipe.scale.abs() * sum(&q.size, keys.size(j), |q, k| q * k));
                let squares = sum(&q.row, k, |q, k| (q * k) * (q * k));
                spread.push(recipe.scale.abs() * squares.sqrt());
            }
        }
        let mut flips = Vec::new();
        self.round_scores(LowScores::Each, &mut raw, recipe.scale, &spread, &mut flips);
        let added: Vec<f64> = (0..count).map(|j| self.added(at, j)).collect();
        let before = recipe.distance.before_scale;
        let mut scaled: Vec<f64> = match (before, recipe.half_range[1]) {
            (true, _) => raw
                .iter()
                .zip(&added)
                .map(|(s, a)| recipe.scale * (s + a))
                .collect(),
            (false, true) => raw.iter().map(|s| half_range(recipe.scale * s)).collect(),
            (false, false) => raw.iter().map(|s| recipe.scale * s).collect(),
        };
        self.round_scores(LowScores::Each, &mut scaled, 1.0, &spread, &mut flips);
        let mut capped: Vec<f64> = match (recipe.softcap, recipe.cap) {
            (None, _) => scaled.clone(),
            (Some(cap), Cap::Unscaled) => scaled.iter().map(|s| (s / cap).tanh()).collect(),
            (Some(cap), Cap::BeforeScale) => raw
                .iter()
                .map(|s| recipe.scale * cap * (s / cap).tanh())
                .collect(),
            (Some(cap), _) => scaled.iter().map(|s| cap * (s / cap).tanh()).collect(),
        };
        self.round_scores(LowScores::Each, &mut capped, 1.0, &spread, &mut flips);
        let mut biased: Vec<f64> = match before {
            true => capped.clone(),
            false => capped.iter().zip(&added).map(|(s, a)| s + a).collect(),
        };
        for which in [LowScores::Each, LowScores::Last] {
            self.round_scores(which, &mut biased, 1.0, &spread, &mut flips);
        }
        // A bias of −∞ is a mask; where masks are done otherwise, it is done so too.
        let mut added = added;
        if recipe.dropped != DroppedRule::Left {
            for j in 0..count {
                if added[j] == f64::NEG_INFINITY {
                    (added[j], biased[j], drops[j]) = (0.0, capped[j], drops[j].max(1));
                }
            }
        }
        if self.with_bounds {
            for (size, added) in size.iter_mut().zip(&added) {
                if added.is_finite() {
                    *size += added.abs();
                }
            }
        }
        let mut logits = biased.clone();
        let mut kept = vec![true; count];
        for j in 0..count {
            if added[j] == f64::NEG_INFINITY {
                kept[j] = false;
                logits[j] = f64::NEG_INFINITY;
                if let (Some(cap), Cap::AfterMask) = (recipe.softcap, recipe.cap) {
                    (kept[j], logits[j]) = (true, -cap);
                }
                continue;
            }
            let dropped = drops[j] > 0;
            if let (true, Some(cap), Cap::AfterMask) = (dropped, recipe.softcap, recipe.cap) {
                logits[j] = -cap;
                continue;
            }
            match recipe.dropped {
                DroppedRule::Left => {
                    kept[j] = !dropped;
                    if dropped {
                        logits[j] = f64::NEG_INFINITY;
                    }
                }
                DroppedRule::Added {
                    kept: _,
                    dropped: by,
                } if dropped => logits[j] += by,
                DroppedRule::Added { kept: by, .. } => logits[j] += by,
                DroppedRule::Filled(value) if dropped => logits[j] = value,
                DroppedRule::Overflow if drops[j] == 1 => logits[j] = f64::from(f32::MIN),
                DroppedRule::Overflow if dropped => logits[j] = f64::NEG_INFINITY,
                DroppedRule::Filled(_) | DroppedRule::Overflow | DroppedRule::AfterSoftmax => {}
            }
        }
        Logits {
            raw,
            scaled,
            capped,
            biased,
            logits,
            kept,
            drops,
            size,
            spread,
            flips,
        }
    }

    /// Bias and ALiBi.
    fn added(&self, [b, h, i]: [usize; 3], j: usize) -> f64 {
        let Recipe {
            bias_factor,
            slopes,
            distance,
            ..
        } = self.recipe;
        let mut added = 0.0;
        if let Some(bias) = &self.seen.bias {
            let bias = bias.get([b, h, i, j]);
            added += if bias == f64::NEG_INFINITY {
                bias
            } else {
                bias_factor * bias
            };
        }
        if let Some(slopes) = slopes {
            let alignment = distance.alignment.or(self.recipe.alignment);
            let shift = if self.recipe.shift_masks {
                self.recipe.shift
            } else {
                0
            };
            let place = self.seen.position(b, i, alignment) + distance.shift + shift;
            let ahead = (i128::from(place) - j as i128) as f64;
            added -= slopes[h] * if distance.signed { ahead } else { ahead.abs() };
        }
        added
    }

    /// Roundings of a logit: at worst in units of its size, and as they usually add up.
    pub(super) fn logit_errors(&self, row: &Logits, max: f64) -> (Vec<f64>, Vec<f64>) {
        let terms = self.base.sizes.head_dim as f64
            + FEW
            + match self.projected.sizes {
                Some(_) => 2.0 * self.base.sizes.model_width as f64,
                None => 0.0,
            };
        let finite = |x: f64| if x.is_finite() { x } else { 0.0 };
        let mut worst: Vec<f64> = row.size.iter().map(|s| finite(terms * s)).collect();
        let usual = row.logits.iter().zip(&row.spread);
        let mut usual: Vec<f64> = usual
            .map(|(l, spread)| finite(4.0 * (2.0 * spread + l.abs() + (l - max).abs())))
            .collect();
        let single = roundoff(DType::F32);
        for (worst, flip) in worst.iter_mut().zip(&row.flips) {
            *worst += flip / single;
        }
        // What a mask puts in the place of a score, or adds to it, is not a rounding.
        for j in (0..row.drops.len()).filter(|&j| row.drops[j] > 0) {
            match self.recipe.dropped {
                DroppedRule::Filled(_) | DroppedRule::Overflow => {
                    (worst[j], usual[j]) = (0.0, 0.0);
                }
                _ => usual[j] = finite(4.0 * (2.0 * row.spread[j] + row.biased[j].abs())),
            }
        }
        (worst, usual)
    }

    pub(super) fn scores(&self, step: StepName, at: [usize; 3]) -> RowOut {
        let row = self.logits(at);
        let scale = match step {
            StepName::Scores => 1.0 / self.recipe.scale.abs().max(f64::MIN_POSITIVE),
            _ => 1.0,
        };
        let (worst, usual) = match self.with_bounds {
            true => self.logit_errors(&row, 0.0),
            false => Default::default(),
        };
        let scaled = |errors: Vec<f64>| errors.into_iter().map(|e| e * scale).collect();
        RowOut {
            worst: scaled(worst),
            usual: scaled(usual),
            values: match step {
                StepName::Scores => row.raw,
                StepName::Scaled => row.scaled,
                StepName::Capped => row.capped,
                StepName::Biased => row.biased,
                _ => row.logits,
            },
        }
    }
}

/// Σ f(a, b) in several sums at a time, since one alone waits for each of its own.
fn sum(a: &[f64], b: &[f64], f: impl Fn(f64, f64) -> f64) -> f64 {
    const SUMS: usize = 8;
    let mut sums = [0.0; SUMS];
    let (a, b) = (a.chunks_exact(SUMS), b.chunks_exact(SUMS));
    let rest = a.remainder().iter().zip(b.remainder());
    let rest: f64 = rest.map(|(a, b)| f(*a, *b)).sum();
    for (a, b) in a.zip(b) {
        for (sum, (a, b)) in sums.iter_mut().zip(a.iter().zip(b)) {
            *sum += f(*a, *b);
        }
    }
    sums.iter().sum::<f64>() + rest
}

/// What half precision makes of a number too large for it.
fn half_range(x: f64) -> f64 {
    const LARGEST: f64 = 65520.0; // from here on it rounds to infinity
    if x.abs() >= LARGEST {
        x.signum() * f64::INFINITY
    } else {
        x
    }
}
