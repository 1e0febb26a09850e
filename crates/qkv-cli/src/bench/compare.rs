//! Whether somebody else computed the same: a library that computes something else is no peer.

use super::data::Data;
use super::job::sizes;
use crate::args::Mode;
use crate::suite::Case;
use qkv::{Float, GradientSizes, gradient_bound};
use qkv_io::{Array, many, shown_shape};

/// What others are compared with.
pub struct Judge<'a, T: Float> {
    pub case: &'a Case,
    pub data: &'a Data<T>,
    pub mode: Mode,
    /// The output, or the gradients of q, k and v, one after the other.
    pub ours: &'a [T],
    /// The largest sum of weights that a key gets, for gradients.
    pub weight: f64,
}

impl<T: Float> Judge<'_, T> {
    /// What is wrong with somebody else's result, if anything.
    pub fn fault(&self, theirs: &Array) -> Option<String> {
        let shape = match self.mode {
            Mode::Forward => self.case.output().to_vec(),
            Mode::Backward => vec![self.ours.len()],
        };
        if theirs.shape != shape {
            let found = shown_shape(&theirs.shape);
            return Some(format!("its result has shape {found}"));
        }
        match (theirs.to_f64(), self.mode) {
            (Err(error), _) => Some(error.to_string()),
            (Ok(theirs), Mode::Forward) => self.output_fault(&theirs),
            (Ok(theirs), Mode::Backward) => self.gradient_fault(&theirs),
        }
    }

    /// Each row may differ by what rounding can do to both sides ([`qkv::bound`]), with the keys that
    /// the row may see and |q|·|k| for the largest score. Rows of few keys have narrow bounds, so a
    /// mask that is off by one key shows.
    fn output_fault(&self, theirs: &[f64]) -> Option<String> {
        let Judge {
            case, data, ours, ..
        } = *self;
        let [_, heads, kv_heads, queries, keys, d_k, d_v] = case.shape;
        let longest_keys: Vec<f64> = data
            .k
            .chunks(keys * d_k)
            .map(|head| longest(head, d_k))
            .collect();
        let added = data.bias.as_deref().map_or(0.0, largest);
        let largest_value = largest(&data.v);
        let mut wrong = 0_u64;
        let mut worst = 0.0_f64;
        let rows = ours
            .chunks(d_v)
            .zip(theirs.chunks(d_v))
            .zip(data.q.chunks(d_k));
        for (row, ((ours, theirs), q)) in rows.enumerate() {
            let (query, head) = (row % queries, row / queries);
            let kv_head = head / heads * kv_heads + head % heads / (heads / kv_heads);
            let seen = if case.causal {
                keys - queries + query + 1
            } else {
                keys
            };
            let seen = case.back.map_or(seen, |back| seen.min(back + 1));
            let score = length(q) * longest_keys[kv_head] / (d_k as f64).sqrt() + added;
            let bound = 2.0 * qkv::bound(T::DTYPE, d_k, seen, score) * largest_value;
            for (ours, theirs) in ours.iter().zip(theirs) {
                let difference = (ours.to_f64() - theirs).abs();
                if difference > bound || difference.is_nan() {
                    wrong += 1;
                    worst = worst.max(difference);
                }
            }
        }
        says(wrong, "output", worst)
    }

    /// Each gradient may differ by what rounding can do to both sides ([`gradient_bound`]).
    fn gradient_fault(&self, theirs: &[f64]) -> Option<String> {
        let Judge {
            case, data, ours, ..
        } = *self;
        let [_, heads, kv_heads, queries, keys, d_k, d_v] = case.shape;
        let bound = gradient_bound(
            T::DTYPE,
            &GradientSizes {
                head_dim: d_k,
                value_dim: d_v,
                keys,
                rows: queries * heads / kv_heads,
                weight: self.weight,
                bias_terms: 0,
                bias_weight: 0.0,
                sink_terms: 0,
                largest_score: longest(&data.q, d_k) * longest(&data.k, d_k) / (d_k as f64).sqrt()
                    + data.bias.as_deref().map_or(0.0, largest),
                scale: 1.0 / (d_k as f64).sqrt(),
                softcap: None,
                dropout: 0.0,
                q: largest(&data.q),
                k: largest(&data.k),
                grad: largest(&data.grad),
                product: longest(&data.grad, d_v) * longest(&data.v, d_v),
            },
        );
        let mut at = 0;
        let parts = ["gradient of q", "gradient of k", "gradient of v"];
        let bounds = [bound.q, bound.k, bound.v];
        for ((part, bound), size) in parts.into_iter().zip(bounds).zip(sizes(case)) {
            let (mut wrong, mut worst) = (0, 0.0_f64);
            for (ours, theirs) in ours[at..at + size].iter().zip(&theirs[at..at + size]) {
                let difference = (ours.to_f64() - theirs).abs();
                if difference > 2.0 * bound || difference.is_nan() {
                    wrong += 1;
                    worst = worst.max(difference);
                }
            }
            at += size;
            if wrong > 0 {
                return says(wrong, part, worst);
            }
        }
        None
    }
}

fn says(wrong: u64, of: &str, worst: f64) -> Option<String> {
    (wrong > 0).then(|| {
        let numbers = many(wrong, "number");
        format!("computes something else ({numbers} of the {of}, by up to {worst:.1e})")
    })
}

/// Of a row, as a vector.
fn length<T: Float>(row: &[T]) -> f64 {
    row.iter().map(|x| x.to_f64().powi(2)).sum::<f64>().sqrt()
}

fn longest<T: Float>(rows: &[T], width: usize) -> f64 {
    rows.chunks(width).map(length).fold(0.0, f64::max)
}

fn largest<T: Float>(values: &[T]) -> f64 {
    values.iter().fold(0.0_f64, |m, x| m.max(x.to_f64().abs()))
}
