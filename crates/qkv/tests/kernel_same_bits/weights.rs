//! Scores and weights on demand are those that the forward pass used.

use super::draw;
use super::support::{Array, Call, Gap, Layout, Random, any_part, isas, options, same_bits, times};
use half::{bf16, f16};
use qkv::{DType, Float, Isa, Part, Scale, forward_with, scores, weights};

/// The call with values of one column a key, which is 1 for that key: the output is the weights.
fn with_keys_as_values(call: &Call) -> Call {
    let keys = call.keys();
    let cached = keys - call.k.shape[2];
    let unit = |array: &Array<f64>, first: usize| {
        let [b, g, count, _] = array.shape;
        Array::new([b, g, count, keys], Layout::Plain, |[_, _, j, c]| {
            f64::from(u8::from(first + j == c))
        })
    };
    let mut call = call.clone();
    call.v = unit(&call.v, cached);
    call.past = call.past.map(|(k, v)| {
        let v = unit(&v, 0);
        (k, v)
    });
    call
}

#[test]
fn weights_are_those_of_the_forward_pass() {
    let mut random = Random::new(22);
    let mut done = 0;
    while done < times(100) {
        let mut call = draw(&mut random);
        call.dropout = None; // comes after the weights
        if call.keys() > 600 {
            continue;
        }
        done += 1;
        let call = with_keys_as_values(&call);
        for isa in isas() {
            same_weights::<f32>(&call, isa);
            same_weights::<f64>(&call, isa);
            same_weights::<f16>(&call, isa);
            same_weights::<bf16>(&call, isa);
        }
    }
}

fn same_weights<T: Float + Gap>(call: &Call, isa: Isa) {
    let typed = call.typed::<T>([Layout::Plain; 3]);
    let (attention, inputs, options) = (call.attention(&typed), typed.inputs(), options(isa, 1));
    let forward = forward_with(&attention, &inputs, &options).unwrap();
    let all = Part::all(&inputs);
    let weights = weights(&attention, &inputs, &options, &all).unwrap();
    let scores = scores(&attention, &inputs, &options, &all).unwrap();
    let [batch, heads, queries, keys] = inputs.scores_shape();
    for row in 0..batch * heads * queries {
        let at = [row / queries / heads, row / queries % heads, row % queries];
        let numbers: Vec<f64> = scores.row(&at).iter().map(|x| x.to_f64()).collect();
        let largest = numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let first_kept = numbers.iter().position(|&x| x != f64::NEG_INFINITY);
        // What was summed before a larger score came is corrected, and rounded once more. Within
        // the first 256 keys none comes later; blocks are counted from a document's first key. Of
        // scores that are equal here, rounded to 16 bits, a later one may have been larger.
        let one_block = keys <= 256
            || call.documents.is_none()
                && first_kept.is_some_and(|j| {
                    let end = (j / 256 + 1) * 256;
                    let (first, later) = numbers.split_at(end.min(keys));
                    first.contains(&largest) && !later.contains(&largest)
                });
        if one_block && !forward.lse.at(&at).is_nan() {
            let (output, weights) = (forward.output.row(&at), weights.row(&at));
            let same = if (isa, T::DTYPE) == (Isa::Avx512Bf16, DType::Bf16) {
                // Rounded twice, before and after the division by the sum, and once here, each
                // by a share of 2⁻⁸.
                output.iter().zip(weights).all(|(x, y)| {
                    let (x, y) = (x.to_f64(), y.to_f64());
                    let most = 3.1 * 2f64.powi(-8) * y.abs() + 2f64.powi(-126);
                    (x - y).abs() <= most || x.is_nan() && y.is_nan()
                })
            } else {
                same_bits(output, weights)
            };
            assert!(same, "{isa:?} {:?} {at:?} {}", T::DTYPE, call.describe());
        }
    }
}

/// Where a row keeps one key only, its lse is that key's score.
#[test]
fn scores_are_those_of_the_forward_pass() {
    let mut random = Random::new(23);
    for _ in 0..times(100) {
        let mut call = draw(&mut random);
        let keys = call.keys();
        if keys == 0 || !call.is_finite() {
            continue; // a single score of −∞ is 0/0
        }
        // Else scores are multiplied by the scale once in each type, and once in `f64`.
        call.scale = random.pick(&[Scale::Factor(1.0), Scale::Factor(-1.0)]);
        let key = random.below(keys);
        let mut only = call.clone();
        let one = Array::new([1, 1, 1, keys], Layout::Plain, |[.., j]| j == key);
        only.masks.push((one, true));
        for isa in isas() {
            same_scores::<f32>(&call, &only, key, isa);
            same_scores::<f64>(&call, &only, key, isa);
            same_scores::<f16>(&call, &only, key, isa);
            same_scores::<bf16>(&call, &only, key, isa);
        }
    }
}

fn same_scores<T: Float + Gap>(call: &Call, only: &Call, key: usize, isa: Isa) {
    let typed = call.typed::<T>([Layout::Plain; 3]);
    let (inputs, options) = (typed.inputs(), options(isa, 1));
    let forward = forward_with(&only.attention(&typed), &inputs, &options).unwrap();
    let part = Part {
        keys: key..key + 1,
        ..Part::all(&inputs)
    };
    let scores = scores(&call.attention(&typed), &inputs, &options, &part).unwrap();
    for (score, lse) in scores.data().iter().zip(forward.lse.data()) {
        let (score, lse) = (score.to_f64(), T::from_f64(*lse).to_f64());
        assert!(
            score == lse || score.is_nan() && lse.is_nan(),
            "{isa:?} {:?} key {key}: {score:e} {lse:e} {}",
            T::DTYPE,
            call.describe()
        );
    }
}

/// Any part has the bits of the whole.
#[test]
fn a_part_equals_the_same_of_the_whole() {
    let mut random = Random::new(24);
    for _ in 0..times(100) {
        let call = draw(&mut random);
        let some = any_part(&call, &mut random);
        for isa in isas() {
            same_part::<f32>(&call, &some, isa);
            same_part::<f64>(&call, &some, isa);
            same_part::<f16>(&call, &some, isa);
            same_part::<bf16>(&call, &some, isa);
        }
    }
}

fn same_part<T: Float + Gap>(call: &Call, some: &Part, isa: Isa) {
    let typed = call.typed::<T>([Layout::Plain; 3]);
    let (attention, inputs, options) = (call.attention(&typed), typed.inputs(), options(isa, 1));
    let all = Part::all(&inputs);
    for compute in [weights::<T>, scores::<T>] {
        let whole = compute(&attention, &inputs, &options, &all).unwrap();
        let part = compute(&attention, &inputs, &options, some).unwrap();
        for b in some.batch.clone() {
            for h in some.heads.clone() {
                for i in some.queries.clone() {
                    let (b0, h0) = (some.batch.start, some.heads.start);
                    let row = part.row(&[b - b0, h - h0, i - some.queries.start]);
                    let of_whole = &whole.row(&[b, h, i])[some.keys.clone()];
                    assert!(
                        same_bits(row, of_whole),
                        "{isa:?} {some:?} {}",
                        call.describe()
                    );
                }
            }
        }
    }
}
