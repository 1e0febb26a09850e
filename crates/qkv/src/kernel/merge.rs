//! Partial results over disjoint keys, put together.

use super::real::Float;
use crate::attention::Sinks;
use crate::definition::Output;
use crate::error::{Error, Result};
use crate::view::Tensor;

/// The result over all keys from results over disjoint parts of them, for example from shards of a
/// long cache.
///
/// ```text
/// lse    = ln Σ_p exp(lse_p)
/// output = Σ_p exp(lse_p − lse)·output_p / (1 + exp(sink − lse))
/// ```
///
/// Output `[batch, heads, queries, value_dim]` and lse `[batch, heads, queries]` as in the parts,
/// which must have been computed without sinks; `sinks` are applied here, once. A part whose row is
/// empty adds nothing to it; a row that is empty in every part is zero with lse = −∞ and is listed.
/// Sums are in `f64`, so the order of the parts matters to the last digit of that at most.
///
/// # Errors
/// [`Error::ListLength`] for no parts at all or another number of sinks than heads,
/// [`Error::Mismatch`] if parts differ in shape, [`Error::Rank`] if they have not four axes.
pub fn merge<T: Float>(parts: &[Output<T>], sinks: Option<&Sinks>) -> Result<Output<T>> {
    let shape = common_shape(parts)?;
    let [batch, heads, queries, width] = shape;
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
    let mut output = Tensor::filled(&shape, T::default());
    let mut lse = Tensor::filled(&shape[..3], f64::NEG_INFINITY);
    let mut empty_rows = Vec::new();
    let mut sums = vec![0.0; width];
    for row in 0..batch * heads * queries {
        let (head, query) = (row / queries % heads, row % queries);
        // A kept row can have lse = −∞ only by overflow, and then has nothing to add either.
        let known = |part: &&Output<T>| part.lse.data()[row] != f64::NEG_INFINITY;
        let largest = parts
            .iter()
            .filter(known)
            .map(|part| part.lse.data()[row])
            .fold(
                f64::NEG_INFINITY,
                |a, b| if b.is_nan() || b > a { b } else { a },
            );
        if largest == f64::NEG_INFINITY {
            empty_rows.push([row / queries / heads, head, query]);
            continue;
        }
        sums.fill(0.0);
        let mut total = 0.0;
        for part in parts.iter().filter(known) {
            let weight = (part.lse.data()[row] - largest).exp();
            total += weight;
            for (sum, x) in sums.iter_mut().zip(&part.output.data()[row * width..]) {
                *sum += weight * x.to_f64();
            }
        }
        let with_sink = match sinks {
            Some(Sinks(sinks)) => total + (sinks[head] - largest).exp(),
            None => total,
        };
        lse.data_mut()[row] = largest + total.ln();
        for (to, sum) in output.data_mut()[row * width..].iter_mut().zip(&sums) {
            *to = T::from_f64(sum / with_sink);
        }
    }
    Ok(Output {
        output,
        lse,
        empty_rows,
    })
}

fn common_shape<T>(parts: &[Output<T>]) -> Result<[usize; 4]>
where
    T: Float,
{
    let Some(first) = parts.first() else {
        return Err(Error::ListLength {
            argument: "parts",
            found: 0,
            expected: 1,
            meaning: "at least one partial result",
        });
    };
    let Ok(shape) = <[usize; 4]>::try_from(first.output.shape()) else {
        return Err(Error::Rank {
            argument: "output",
            shape: first.output.shape().into(),
            expected: "4 are needed, [batch, heads, queries, value_dim]",
        });
    };
    for part in parts {
        if part.output.shape() != shape || part.lse.shape() != &shape[..3] {
            return Err(Error::Mismatch {
                axis: "rows",
                left: "the first part",
                left_size: first.lse.data().len(),
                left_shape: shape.into(),
                right: "another part",
                right_size: part.lse.data().len(),
                right_shape: part.output.shape().into(),
                remedy: "all parts are the same queries against different keys",
            });
        }
    }
    Ok(shape)
}
