//! The gradient, from the last step back to what the run started from.

mod attention;
mod check;
mod linear;
mod norm;
mod operands;
mod result;
mod rotary;
mod scores;
mod tokens;
mod values;

use super::run::{Run, part_of, push_shape};
use crate::entry::Number;
use crate::explanation::{Block, Part};
use crate::words::Words;
use crate::{Backward, Origin};
use qkv::{GradientName, StepName, Tensor};

/// Keys whose gradients are written out in a large input.
const KEYS_SHOWN: usize = 3;

pub(super) fn parts(run: &Run<'_>) -> Vec<Part> {
    let Some(backward) = run.subject.backward else {
        return Vec::new();
    };
    let back = Back {
        run,
        words: run.words,
        backward,
    };
    let mut parts = result::parts(&back);
    parts.extend(values::parts(&back));
    parts.extend(attention::parts(&back));
    parts.extend(scores::parts(&back));
    parts.extend(operands::parts(&back));
    parts.extend(rotary::part(&back));
    parts.extend(norm::part(&back));
    if let Origin::Projected { layer, x, context } = run.subject.origin {
        parts.extend(tokens::parts(&back, layer, x, context));
    }
    parts.extend(check::part(&back));
    parts
}

/// A run and its gradients.
struct Back<'r, 'a> {
    run: &'r Run<'a>,
    words: &'a dyn Words,
    backward: Backward<'a>,
}

impl<'a> Back<'_, 'a> {
    fn gradient(&self, name: GradientName) -> Option<&'a Tensor<f64>> {
        self.backward.gradients.get(name)
    }

    /// A number of a gradient; NaN if it is not in force, which no caller asks for.
    fn at(&self, name: GradientName, index: &[usize]) -> f64 {
        self.gradient(name).map_or(f64::NAN, |of| of.at(index))
    }

    /// A number of a gradient that remembers which one it is.
    fn entry(&self, name: GradientName, index: &[usize]) -> Number {
        Number::named(name.as_str(), index, self.at(name, index))
    }

    fn part(&self, names: &[GradientName], heading: String, formula: &str) -> Part {
        let mut shapes = Vec::new();
        for &name in names {
            if let Some(gradient) = self.gradient(name) {
                let axes = match step_of(name) {
                    Some(step) => self.words.axes(step),
                    None => self.words.gradient_axes(name),
                };
                push_shape(&mut shapes, name.as_str(), gradient, axes);
            }
        }
        part_of(shapes, heading, formula)
    }

    /// The `[rows, columns]` of a gradient at leading indices.
    fn matrix(
        &self,
        text: &str,
        row_name: char,
        column_name: Option<char>,
        name: GradientName,
        lead: &[usize],
    ) -> Option<Block> {
        let gradient = self.gradient(name)?;
        let run = self.run;
        let named = (name.as_str(), gradient);
        Some(run.tensor_matrix(text, row_name, column_name, named, lead))
    }

    /// The `[batch, kv head]` worked out.
    fn kv_groups(&self) -> Vec<[usize; 2]> {
        let run = self.run;
        let all = (0..run.batch).flat_map(|b| (0..run.kv_heads).map(move |g| [b, g]));
        all.take(if run.large { 1 } else { usize::MAX }).collect()
    }

    /// Heading of what keys and values of a head get.
    fn kv_heading(&self, [b, g]: [usize; 2], name: &str) -> Option<Block> {
        let run = self.run;
        let batch = (run.batch > 1).then_some(b);
        let head = (run.kv_heads > 1).then_some(g);
        (batch.is_some() || head.is_some()).then(|| {
            let group = self.words.kv_group(batch, head);
            Block::Heading(format!("{group} · {name}"))
        })
    }

    /// The keys whose gradients are worked out: all of a small input, else the heaviest of a row.
    fn keys_shown(&self) -> Vec<usize> {
        let run = self.run;
        let all = || (0..run.keys).collect();
        match (run.groups.first(), run.rows.last()) {
            (Some(&[b, h]), Some(&i)) if run.large => {
                let weight = |j: usize| run.at(StepName::Weights, &[b, h, i, j]);
                let mut keys = run.keys_of([b, h, i]);
                keys.sort_by(|&a, &b| weight(b).total_cmp(&weight(a)));
                keys.truncate(KEYS_SHOWN);
                keys.sort_unstable();
                keys
            }
            _ => all(),
        }
    }

    /// The query heads that share a kv head, and the queries, that keep key j.
    fn users(&self, [b, g]: [usize; 2], j: usize) -> Vec<[usize; 2]> {
        let run = self.run;
        (0..run.heads)
            .filter(|&h| run.kv_head(h) == g)
            .flat_map(|h| (0..run.queries).map(move |i| [h, i]))
            .filter(|&[h, i]| run.takes_part([b, h, i, j]))
            .collect()
    }

    /// Whether query heads share keys and values.
    fn shares_heads(&self) -> bool {
        self.run.heads != self.run.kv_heads
    }

    /// What stands between q, or k, and the scores: a norm, a rotation, or both.
    fn stages(&self, norm: StepName, rotated: StepName) -> usize {
        let stages = [norm, rotated];
        stages
            .iter()
            .filter(|s| self.run.step(**s).is_some())
            .count()
    }

    /// The letter of what the softmax took, before bias and mask.
    fn logit_letter(&self) -> char {
        match self.run.step(StepName::Capped) {
            Some(_) => 'c',
            None => 's',
        }
    }

    /// Says that the columns beyond those worked out go the same way.
    fn push_other_columns(&self, width: usize, part: &mut Part) {
        if self.run.columns(width).len() < width {
            let text = self.words.other_columns(width);
            part.blocks.push(Block::Item(text));
        }
    }
}

/// The step that a gradient is of.
fn step_of(name: GradientName) -> Option<StepName> {
    Some(match name {
        GradientName::GradResidual => StepName::Residual,
        GradientName::GradProjected => StepName::Projected,
        GradientName::GradConcatenated => StepName::Concatenated,
        GradientName::GradOutput => StepName::Output,
        GradientName::GradV => StepName::V,
        GradientName::GradDropped => StepName::Dropped,
        GradientName::GradWeights => StepName::Weights,
        GradientName::Delta => StepName::Sum,
        GradientName::GradMasked => StepName::Masked,
        GradientName::GradScaled => StepName::Scaled,
        GradientName::GradScores => StepName::Scores,
        GradientName::GradQRotated | GradientName::GradQNormed | GradientName::GradQ => StepName::Q,
        GradientName::GradKRotated | GradientName::GradKNormed | GradientName::GradK => StepName::K,
        GradientName::GradX | GradientName::GradContext => StepName::XPositioned,
        _ => return None,
    })
}
