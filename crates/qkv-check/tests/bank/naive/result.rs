//! From the heads to the result, and how the other side shows it.

use super::parts::{matmul, transpose};
use super::{Fault, Out, P, of};

/// Heads side by side, and W_O, with the shape.
pub fn side_by_side(p: &P, faults: &[Fault], heads: Vec<f64>, dv: usize) -> (Vec<f64>, Vec<usize>) {
    let has = |id: &str| of(faults, id).is_some();
    let num = |id: &str| of(faults, id);
    let P { b, h, lq, .. } = *p;
    let (mut output, mut output_shape) = (heads.clone(), vec![b, h, lq, dv]);
    if let Some(t) = &p.tokens {
        let merged = match () {
            () if has("heads-merged-without-transpose") => heads,
            () => {
                let mut merged = Vec::new();
                for bi in 0..b {
                    for i in 0..lq {
                        if has("heads-interleaved") {
                            for c in 0..dv {
                                for hi in 0..h {
                                    merged.push(heads[((bi * h + hi) * lq + i) * dv + c]);
                                }
                            }
                        } else {
                            for hi in 0..h {
                                merged.extend_from_slice(
                                    &heads[((bi * h + hi) * lq + i) * dv..][..dv],
                                );
                            }
                        }
                    }
                }
                merged
            }
        };
        (output, output_shape) = (merged, vec![b, lq, h * dv]);
        if t.has_output && !has("output-projection-missing") {
            let mut w = t.w[3].clone();
            if num("weight-transposed").is_some_and(|n| n as usize >> 3 & 1 == 1) && h * dv == t.out
            {
                w = transpose(&w, t.out);
            }
            let bias = t.bias.as_ref().map(|bias| bias[3].clone());
            let bias = bias.filter(|_| {
                num("projection-bias-missing").is_none_or(|n| n as usize >> 3 & 1 == 0)
            });
            output = matmul(&output, &w, h * dv, bias.as_deref());
            output_shape = vec![b, lq, t.out];
        }
    }
    (output, output_shape)
}

/// Averages, positions too many or too few, shifted rows.
pub fn show(p: &P, faults: &[Fault], out: &mut Out) {
    let has = |id: &str| of(faults, id).is_some();
    let P { b, h, lq, lk, .. } = *p;
    if has("heads-averaged") {
        let mut mean = vec![0.0; b * lq * lk];
        for (n, w) in out.weights.iter().enumerate() {
            let (bi, rest) = (n / (h * lq * lk), n % (lq * lk));
            mean[bi * lq * lk + rest] += w / h as f64;
        }
        (out.weights, out.weights_shape) = (mean, vec![b, lq, lk]);
    }
    if has("position-extra") || has("position-missing") {
        let rank = out.output_shape.len();
        let (rows, width) = (out.output_shape[rank - 2], out.output_shape[rank - 1]);
        let mut moved = Vec::new();
        for block in out.output.chunks(rows * width) {
            if has("position-extra") {
                moved.extend((0..width).map(|c| 0.3 + c as f64));
                moved.extend_from_slice(block);
            } else {
                moved.extend_from_slice(&block[width..]);
            }
        }
        out.output = moved;
        out.output_shape[rank - 2] = if has("position-extra") {
            rows + 1
        } else {
            rows - 1
        };
    }
    if has("row-shift") {
        let width = lk;
        for (row, scores) in out.scores.chunks_mut(width).enumerate() {
            scores.iter_mut().for_each(|s| *s -= 0.5 + row as f64 * 0.1);
        }
    }
}
