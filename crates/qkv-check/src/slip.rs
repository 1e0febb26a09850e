//! A slip of somebody who works by hand: one row is off, and everything else is right.

use crate::claim::Claim;
use crate::model::{Kind, Model, Shared};
use crate::problem::Base;
use crate::recipe::Recipe;
use crate::report::{Cause, Parameters, Value};
use crate::shape::Reading;
use qkv::{Scale, StepName};

/// Larger problems are not worked by hand.
const MOST: usize = 32;

/// What explains a row of weights, or of a head's output, that alone is wrong; `row` is its index.
pub(crate) fn of_row(
    base: &Base<'_>,
    shared: &Shared,
    right: &Recipe,
    claims: &[Claim],
    row: [usize; 3],
) -> Option<Cause> {
    let sizes = base.sizes;
    let attention = base.problem.attention();
    let plain = attention.sinks.is_none() && attention.dropout.is_none();
    let small = sizes.keys <= MOST && sizes.queries <= MOST && sizes.head_dim <= MOST;
    let [claim] = claims else { return None };
    if !plain || !small || claim.half_unit == 0.0 {
        return None;
    }
    let reading = Reading::new(base, right, claim)?;
    let of_output = match reading.step {
        StepName::Weights => false,
        // One number may be anything.
        StepName::Output if reading.width() > 1 => true,
        _ => return None,
    };
    let model = Model::new(base, shared, right, false)?;
    let at = (row[0] * sizes.heads + row[1]) * sizes.queries + row[2];
    let theirs = &claim.values.data()[at * reading.width()..][..reading.width()];
    let logits = model.step(StepName::Masked, &row)?.values;
    let scaled = model.step(StepName::Scaled, &row)?.values;
    let group = model.group_of(row[1]);
    let values = |j: usize| model.ready(Kind::V, [row[0], group, j]).row;
    // What is made of others that were rounded as these were is off by a unit or so of its own.
    let near = |weights: &[f64]| {
        let mut off = vec![2.0 * claim.half_unit; theirs.len()];
        let mut shown = weights.to_vec();
        if of_output {
            shown = vec![0.0; theirs.len()];
            for (j, weight) in weights.iter().enumerate() {
                for (c, value) in values(j).iter().enumerate() {
                    shown[c] += weight * value;
                    off[c] += claim.half_unit * value.abs();
                }
            }
        }
        let pairs = shown.iter().zip(theirs);
        pairs.zip(off).all(|((a, b), off)| (a - b).abs() <= off)
    };
    let found = |id, parameters: Vec<(&'static str, Value)>| {
        let mut parameters: Parameters = parameters.into_iter().collect();
        parameters.insert("row", Value::Whole(row[2] as i64));
        Cause {
            ids: vec![id],
            parameters,
            max_abs_error: 2.0 * claim.half_unit,
        }
    };
    if attention.scale == Scale::InverseSqrt {
        let d = sizes.head_dim as f64;
        let root = d.sqrt();
        let ways = [
            ("row-divided-by-d", 1.0 / root),
            ("row-not-divided", root),
            ("row-multiplied", d),
        ];
        for (id, factor) in ways {
            let other = logits
                .iter()
                .zip(&scaled)
                .map(|(logit, scaled)| logit + (factor - 1.0) * scaled);
            if near(&softmax(&other.collect::<Vec<_>>())) {
                let numbers = vec![("d", Value::Number(d)), ("root", Value::Number(root))];
                return Some(found(id, numbers));
            }
        }
    }
    let max = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let exp: Vec<f64> = logits.iter().map(|logit| (logit - max).exp()).collect();
    let large: Vec<f64> = logits.iter().map(|logit| logit.exp()).collect();
    if near(&exp) || near(&large) {
        return Some(found("row-not-normalised", Vec::new()));
    }
    if of_output {
        return None; // that one exponential is off does not show
    }
    one_exp(&exp, theirs, &near)
        .map(|key| found("exp-off", vec![("key", Value::Whole(key as i64))]))
}

/// The one key whose exponential is off: the other weights keep their proportions.
fn one_exp(exp: &[f64], theirs: &[f64], near: &dyn Fn(&[f64]) -> bool) -> Option<usize> {
    let kept: Vec<usize> = (0..exp.len()).filter(|j| exp[*j] > 0.0).collect();
    if kept.len() < 3 {
        return None; // two weights always have the proportion of some number
    }
    let mut fitting = kept.iter().copied().filter(|&key| {
        let others: f64 = kept.iter().filter(|j| **j != key).map(|j| exp[*j]).sum();
        let share = theirs[key];
        if !(0.0..1.0).contains(&share) {
            return false;
        }
        let mut other = exp.to_vec();
        other[key] = others * share / (1.0 - share);
        let sum: f64 = other.iter().sum();
        near(&other.iter().map(|e| e / sum).collect::<Vec<_>>())
    });
    let key = fitting.next()?;
    fitting.next().is_none().then_some(key)
}

fn softmax(logits: &[f64]) -> Vec<f64> {
    let max = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let exp: Vec<f64> = logits.iter().map(|logit| (logit - max).exp()).collect();
    let sum: f64 = exp.iter().sum();
    exp.iter().map(|e| e / sum).collect()
}
