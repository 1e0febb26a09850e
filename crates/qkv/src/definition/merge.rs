//! Partial results over disjoint keys, put together.

use super::Output;
use crate::attention::Sinks;
use crate::error::{Error, Result};
use crate::view::Tensor;

/// The result over all keys from results over disjoint parts of them.
///
/// ```text
/// lse    = ln Σ_p exp(lse_p)
/// output = Σ_p exp(lse_p − lse)·output_p
/// ```
///
/// The parts must have been computed without sinks; `sinks` are applied here, once:
/// output / (1 + exp(sink − lse)). A row is empty if it is empty in every part.
///
/// # Errors
/// [`Error::Mismatch`] if the parts differ in shape, [`Error::ListLength`] for no parts at all or
/// another number of sinks than heads.
pub fn merge(parts: &[Output<f64>], sinks: Option<&Sinks>) -> Result<Output<f64>> {
    let Some(first) = parts.first() else {
        return Err(Error::ListLength {
            argument: "parts",
            found: 0,
            expected: 1,
            meaning: "at least one partial result",
        });
    };
    for part in parts {
        same_shape(first, part)?;
    }
    let &[batch, heads, queries, width] = first.output.shape() else {
        return Err(Error::Rank {
            argument: "output",
            shape: first.output.shape().into(),
            expected: "4 are needed, [batch, heads, queries, value_dim]",
        });
    };
    if let Some(Sinks(sinks)) = sinks
        && sinks.len() != heads
    {
        return Err(Error::ListLength {
            argument: "sinks",
            found: sinks.len(),
            expected: heads,
            meaning: "one for each query head",
        });
    }

    let mut merged = Output {
        output: Tensor::filled(&[batch, heads, queries, width], 0.0),
        lse: Tensor::filled(&[batch, heads, queries], f64::NEG_INFINITY),
        empty_rows: Vec::new(),
    };
    for b in 0..batch {
        for h in 0..heads {
            for i in 0..queries {
                let row = [b, h, i];
                let filled: Vec<&Output<f64>> = parts
                    .iter()
                    .filter(|part| !part.empty_rows.contains(&row))
                    .collect();
                if filled.is_empty() {
                    merged.empty_rows.push(row);
                    continue;
                }
                let lse = log_sum_exp(filled.iter().map(|part| part.lse.at(&row)));
                let left_by_sink = match sinks {
                    Some(Sinks(sinks)) => 1.0 / (1.0 + (sinks[h] - lse).exp()),
                    None => 1.0,
                };
                *merged.lse.at_mut(&row) = lse;
                for c in 0..width {
                    let at = [b, h, i, c];
                    let sum: f64 = filled
                        .iter()
                        .map(|part| (part.lse.at(&row) - lse).exp() * part.output.at(&at))
                        .sum();
                    *merged.output.at_mut(&at) = left_by_sink * sum;
                }
            }
        }
    }
    Ok(merged)
}

/// ln Σ exp(x), with the largest taken out first.
fn log_sum_exp(values: impl Iterator<Item = f64> + Clone) -> f64 {
    let max = values.clone().fold(f64::NEG_INFINITY, super::larger);
    max + values.map(|x| (x - max).exp()).sum::<f64>().ln()
}

fn same_shape(first: &Output<f64>, part: &Output<f64>) -> Result<()> {
    let rank = first.output.shape().len();
    let same = first.output.shape() == part.output.shape()
        && first.lse.shape() == part.lse.shape()
        && first.lse.shape() == &first.output.shape()[..rank.saturating_sub(1)];
    if same {
        return Ok(());
    }
    Err(Error::Mismatch {
        axis: "queries",
        left: "the first part",
        left_size: first.lse.data().len(),
        left_shape: first.output.shape().into(),
        right: "another part",
        right_size: part.lse.data().len(),
        right_shape: part.output.shape().into(),
        remedy: "all parts are the same queries against different keys",
    })
}
