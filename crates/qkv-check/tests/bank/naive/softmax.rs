//! The softmax and the mistakes in it.

use super::{Fault, P, of};

/// Weights, and lse of each row.
pub fn softmax(p: &P, faults: &[Fault], logits: &[f64], keep: &[bool]) -> (Vec<f64>, Vec<f64>) {
    let has = |id: &str| of(faults, id).is_some();
    let num = |id: &str| of(faults, id);
    let P { b, h, lq, lk, .. } = *p;
    let right_scale = p.scale.unwrap_or(1.0 / (p.dk as f64).sqrt());
    let at = |bi: usize, hi: usize, i: usize, j: usize| ((bi * h + hi) * lq + i) * lk + j;
    let mut weights = vec![0.0; logits.len()];
    let mut lse = Vec::new();
    let share = |members: &[usize], extra: f64, weights: &mut [f64]| -> f64 {
        let kept: Vec<usize> = members.iter().copied().filter(|n| keep[*n]).collect();
        let max = kept
            .iter()
            .map(|n| logits[*n])
            .fold(
                f64::NEG_INFINITY,
                |a, x| if x.is_nan() || x > a { x } else { a },
            );
        let exps: Vec<f64> = kept.iter().map(|n| (logits[*n] - max).exp()).collect();
        let own: f64 = exps.iter().sum();
        let sum = if extra > 0.0 {
            own + extra * (-max).exp()
        } else {
            own
        };
        for (n, e) in kept.iter().zip(exps) {
            weights[*n] = e / sum;
        }
        max + own.ln()
    };
    for bi in 0..b {
        for hi in 0..h {
            let mut extra = p.sinks.as_ref().map_or(0.0, |sinks| match () {
                () if has("sinks-ignored") => 0.0,
                () if has("sinks-scaled") => (sinks[hi] * right_scale).exp(),
                () => sinks[hi].exp(),
            });
            if let Some(logit) = num("sinks-undeclared") {
                extra += (logit + 0.7 * hi as f64).exp();
            }
            if has("softmax-plus-one") {
                extra += 1.0;
            }
            extra += num("phantom-keys").unwrap_or(0.0);
            if has("softmax-over-queries") {
                for j in 0..lk {
                    let members: Vec<usize> = (0..lq).map(|i| at(bi, hi, i, j)).collect();
                    share(&members, 0.0, &mut weights);
                }
            } else if has("softmax-joint") {
                let members: Vec<usize> =
                    (0..lq * lk).map(|n| at(bi, hi, n / lk, n % lk)).collect();
                share(&members, extra * lq as f64, &mut weights);
            }
            for i in 0..lq {
                let members: Vec<usize> = (0..lk).map(|j| at(bi, hi, i, j)).collect();
                if has("softmax-over-queries") || has("softmax-joint") {
                    continue;
                }
                if has("softmax-over-heads") {
                    for j in 0..lk {
                        let members: Vec<usize> = (0..h).map(|hi| at(bi, hi, i, j)).collect();
                        share(&members, 0.0, &mut weights);
                    }
                    continue;
                }
                if !members.iter().any(|n| keep[*n]) {
                    lse.push(f64::NEG_INFINITY);
                    match num("empty-row") {
                        Some(0.0) => members.iter().for_each(|n| weights[*n] = f64::NAN),
                        Some(1.0) => members.iter().for_each(|n| weights[*n] = 1.0 / lk as f64),
                        Some(_) => {
                            let max = members
                                .iter()
                                .map(|n| logits[*n])
                                .fold(f64::NEG_INFINITY, f64::max);
                            let sum: f64 = members.iter().map(|n| (logits[*n] - max).exp()).sum();
                            members
                                .iter()
                                .for_each(|n| weights[*n] = (logits[*n] - max).exp() / sum);
                        }
                        None => {}
                    }
                    continue;
                }
                lse.push(share(&members, extra, &mut weights));
            }
        }
    }
    (weights, lse)
}
