//! Whether somebody else computed the same: a library that computes something else is no peer.

use super::case::Case;
use super::data::Data;
use qkv::Float;
use qkv_io::{Array, many, shown_shape};

/// What is wrong with somebody else's output, if anything.
///
/// Each row may differ by what rounding can do to both sides ([`qkv::bound`]), with the keys that
/// the row may see and |q|·|k| for the largest score. Rows of few keys have narrow bounds, so a
/// mask that is off by one key shows.
pub fn fault<T: Float>(case: &Case, data: &Data<T>, ours: &[T], theirs: &Array) -> Option<String> {
    let [_, heads, kv_heads, queries, keys, d_k, d_v] = case.shape;
    if theirs.shape != case.output() {
        return Some(format!(
            "its output has shape {}",
            shown_shape(&theirs.shape)
        ));
    }
    let theirs = match theirs.to_f64() {
        Ok(theirs) => theirs,
        Err(error) => return Some(error.to_string()),
    };
    let length = |row: &[T]| row.iter().map(|x| x.to_f64().powi(2)).sum::<f64>().sqrt();
    let largest = |values: &[T]| values.iter().fold(0.0_f64, |m, x| m.max(x.to_f64().abs()));
    let longest_keys: Vec<f64> = data
        .k
        .chunks(keys * d_k)
        .map(|head| head.chunks(d_k).map(length).fold(0.0, f64::max))
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
    (wrong > 0).then(|| {
        let numbers = many(wrong, "number");
        format!("computes something else ({numbers} of the output, by up to {worst:.1e})")
    })
}
