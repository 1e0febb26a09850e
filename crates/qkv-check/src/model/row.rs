//! One row of any step, and what rounding may make of it.

use super::Model;
use super::heads::{Kind, Sized};
use super::logits::FEW;
use crate::bound::roundoff;
use crate::recipe::{EmptyRule, Padding};
use qkv::{DType, StepName};

/// Numbers of a row, and for each how far rounding may move it.
#[derive(Clone, Debug, Default)]
pub(crate) struct RowOut {
    pub values: Vec<f64>,
    /// In units of the roundoff of what is computed in, at worst.
    pub worst: Vec<f64>,
    /// In units of the roundoff of a format that every intermediate is stored in, as roundings
    /// usually add up.
    pub usual: Vec<f64>,
}

impl Model<'_> {
    /// Row `at` of a step: `[b, h, i]`, or `[b, i]` where heads are side by side.
    pub(crate) fn step(&self, step: StepName, at: &[usize]) -> Option<RowOut> {
        match (step, at) {
            (StepName::Q, &[b, h, i]) => Some(self.given(Kind::Q, [b, h, i], false)),
            (StepName::K, &[b, h, i]) => Some(self.given(Kind::K, [b, h, i], false)),
            (StepName::V, &[b, h, i]) => Some(self.given(Kind::V, [b, h, i], false)),
            (StepName::QRotated, &[b, h, i]) => Some(self.given(Kind::Q, [b, h, i], true)),
            (StepName::KRotated, &[b, h, i]) => Some(self.given(Kind::K, [b, h, i], true)),
            (StepName::Output, &[b, h, i]) => Some(self.output(self.inner([b, h, i]))),
            (_, &[b, h, i]) => {
                let inner = self.inner([b, h, i]);
                match step {
                    StepName::Scores
                    | StepName::Scaled
                    | StepName::Capped
                    | StepName::Biased
                    | StepName::Masked => Some(self.scores(step, inner)),
                    _ => self.weights_step(step, inner),
                }
            }
            (_, &[b, i]) => self.tokens(step, [b, i]),
            _ => None,
        }
    }

    fn given(&self, kind: Kind, at: [usize; 3], ready: bool) -> RowOut {
        let Sized { row, size } = match ready || kind != Kind::Q && at[2] < self.base.sizes.past {
            true => self.ready(kind, at),
            false => {
                let past = if kind == Kind::Q {
                    0
                } else {
                    self.base.sizes.past
                };
                self.raw(kind, [at[0], at[1], at[2] - past])
            }
        };
        let terms = self.base.sizes.model_width as f64;
        RowOut {
            worst: size.iter().map(|s| s * (terms + FEW)).collect(),
            usual: row.iter().map(|x| 4.0 * x.abs()).collect(),
            values: row,
        }
    }

    /// Weights of a row, and what each key adds to its output.
    pub(crate) fn terms(&self, at: [usize; 3]) -> (Vec<f64>, Vec<Vec<f64>>) {
        let at @ [b, h, _] = self.inner(at);
        let row = self.weighed(at);
        let values = self.head(Kind::V, b, h);
        let kept: Vec<usize> = (0..self.sizes.keys)
            .filter(|&j| row.logits.kept[j] && !row.empty)
            .collect();
        let term = |j: &usize| values.row(*j).iter().map(|v| row.weights[*j] * v).collect();
        (
            kept.iter().map(|j| row.weights[*j]).collect(),
            kept.iter().map(term).collect(),
        )
    }

    /// Output of a head, in the order of what is attended over.
    pub(super) fn output(&self, at @ [b, h, _]: [usize; 3]) -> RowOut {
        let row = self.weighed(at);
        let values = self.head(Kind::V, b, h);
        let width = values.width;
        let zeros_from = match self.recipe.padding {
            Padding::Zeros => self.seen.length(b),
            _ => self.sizes.keys,
        };
        let mut output = vec![0.0; width];
        if row.empty && self.recipe.empty == EmptyRule::Nan {
            output.fill(f64::NAN);
        }
        let dropout = self.recipe.dropout.is_some();
        let weights: Vec<f64> = (0..self.sizes.keys)
            .map(|j| match dropout {
                true => row.weights[j] * self.kept_share(at, j),
                false => row.weights[j],
            })
            .collect();
        let used =
            |j: usize| (row.logits.kept[j] && !row.empty || self.recipe.leak) && j < zeros_from;
        for j in (0..self.sizes.keys).filter(|&j| used(j)) {
            for (out, v) in output.iter_mut().zip(values.row(j)) {
                *out += weights[j] * v;
            }
        }
        let mut out = RowOut {
            worst: vec![0.0; if self.with_bounds { width } else { 0 }],
            usual: vec![0.0; if self.with_bounds { width } else { 0 }],
            values: output,
        };
        if self.with_bounds {
            let (worst, usual) = self.logit_errors(&row.logits, row.max);
            let sums = self.sizes.keys as f64
                + 64.0
                + match self.projected.sizes {
                    Some(_) => self.base.sizes.model_width as f64,
                    None => 0.0,
                };
            let single = roundoff(DType::F32);
            for j in (0..self.sizes.keys).filter(|&j| used(j)) {
                let weight = weights[j].abs();
                let flip = row.flips.get(j).map_or(0.0, |flip| flip / single);
                for c in 0..width {
                    let (v, size) = (values.row(j)[c], values.size(j)[c]);
                    let away = (v - out.values[c]).abs();
                    out.worst[c] += weight * (1.1 * away * worst[j] + sums * size) + flip * v.abs();
                    out.usual[c] += weight * (1.1 * away * usual[j] + 6.0 * v.abs());
                }
            }
        }
        out
    }
}
