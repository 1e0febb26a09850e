//! Pieces of the naive attention: products, heads, rotation, norms, rounding.

use super::{Fault, Turn, of};

pub fn matmul(x: &[f64], w: &[f64], inner: usize, bias: Option<&[f64]>) -> Vec<f64> {
    let out = w.len() / inner;
    let mut y = Vec::new();
    for row in x.chunks(inner) {
        for o in 0..out {
            let mut sum = bias.map_or(0.0, |b| b[o]);
            for c in 0..inner {
                sum += row[c] * w[c * out + o];
            }
            y.push(sum);
        }
    }
    y
}

pub fn transpose(w: &[f64], n: usize) -> Vec<f64> {
    (0..n * n).map(|at| w[at % n * n + at / n]).collect()
}

/// `[B, L, heads·d]` to `[B, heads, L, d]`.
pub fn split(x: &[f64], b: usize, l: usize, heads: usize, d: usize, faults: &[Fault]) -> Vec<f64> {
    if of(faults, "heads-split-without-transpose").is_some() {
        return x.to_vec(); // a view
    }
    let mut y = Vec::new();
    for bi in 0..b {
        for h in 0..heads {
            for t in 0..l {
                for c in 0..d {
                    let column = match of(faults, "heads-interleaved") {
                        Some(_) => c * heads + h,
                        None => h * d + c,
                    };
                    y.push(x[(bi * l + t) * heads * d + column]);
                }
            }
        }
    }
    y
}

pub fn rotate(row: &mut [f64], turn: &Turn, place: f64) {
    let d = turn.dim.unwrap_or(row.len());
    for i in 0..d / 2 {
        let angle = place / turn.divide / turn.base.powf(2.0 * i as f64 / d as f64);
        let (a, b) = if turn.interleaved {
            (2 * i, 2 * i + 1)
        } else {
            (i, i + d / 2)
        };
        let (x, y) = (row[a], row[b]);
        row[a] = x * angle.cos() - y * angle.sin();
        row[b] = x * angle.sin() + y * angle.cos();
    }
}

/// The softmax of a row whose numbers are single precision, except for some that are stored in half
/// precision: an even kind in float16, an odd one in bfloat16.
pub fn low_precision(kind: usize, logits: &[f64], kept: &[usize], weights: &mut [f64]) {
    let low = |x: f32| match kind % 2 {
        0 => half::f16::from_f32(x).to_f32(),
        _ => half::bf16::from_f32(x).to_f32(),
    };
    let exact = |x: f32| x;
    // Scores, differences and exponentials, the sum, weights.
    let [scores, each, exponentials, last]: [&dyn Fn(f32) -> f32; 4] = match kind / 2 {
        0 => [&exact, &exact, &exact, &low],
        1 => [&low, &low, &exact, &low],
        2 => [&low, &exact, &exact, &low],
        3 => [&low, &exact, &exact, &exact],
        _ => [&exact, &exact, &low, &exact],
    };
    let s: Vec<f32> = kept.iter().map(|j| scores(logits[*j] as f32)).collect();
    let max = s.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let exps: Vec<f32> = s.iter().map(|s| each(each(s - max).exp())).collect();
    let sum = each(exps.iter().sum());
    for (j, exp) in kept.iter().zip(exps) {
        weights[*j] = f64::from(last(exponentials(exp) / sum));
    }
}

pub fn norm(row: &mut [f64], gain: &[f64]) {
    let mean = row.iter().map(|x| x * x).sum::<f64>() / row.len() as f64;
    let root = (mean + 1e-6).sqrt();
    for (x, g) in row.iter_mut().zip(gain) {
        *x = *x / root * g;
    }
}
