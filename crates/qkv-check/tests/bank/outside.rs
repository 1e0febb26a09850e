//! Faults that the table does not know.

use super::draw::Random;
use super::naive::{P, attention};

/// How many kinds there are.
pub const KINDS: usize = 12;

/// Whether a fault has made nothing but a shift of whole rows, each by a number of its own, which is in
/// the table: so it is where a changed value is the only one that its rows see.
pub fn shifts_rows(wrong: &[f64], right: &[f64], width: usize) -> bool {
    let pairs = wrong.chunks(width).zip(right.chunks(width));
    pairs.into_iter().all(|(wrong, right)| {
        let apart = wrong.iter().zip(right).map(|(a, b)| a - b);
        let (least, most) = apart.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), x| {
            (a.min(x), b.max(x))
        });
        // Two roundings of numbers of this size.
        let size = wrong
            .iter()
            .chain(right)
            .fold(0.0_f64, |a, x| a.max(x.abs()));
        most - least <= 4.0 * f64::EPSILON * size
    })
}

/// What such a fault gives instead of the right output.
pub fn output(kind: usize, p: &P, r: &mut Random) -> Vec<f64> {
    let right = attention(p, &[]);
    let (lq, dv, h) = (p.lq, p.dv, p.h);
    let weighed = |change: &dyn Fn(usize, f64) -> f64| {
        let mut out = vec![0.0; right.output.len()];
        for bi in 0..p.b {
            for hi in 0..h {
                let gi = hi / (h / p.g);
                for i in 0..lq {
                    let row = (bi * h + hi) * lq + i;
                    for j in 0..p.lk {
                        let w = change(j, right.weights[row * p.lk + j]);
                        for c in 0..dv {
                            out[row * dv + c] += w * p.v[((bi * p.g + gi) * p.lk + j) * dv + c];
                        }
                    }
                }
            }
        }
        out
    };
    match kind {
        0 => right
            .output
            .iter()
            .map(|x| x * (1.0 + 0.1 * r.normal()))
            .collect(),
        1 => right.output.iter().map(|x| (3.0 * x).sin()).collect(),
        2 => {
            let rows = right.output.iter().enumerate();
            rows.map(|(at, x)| x + 0.07 * (at % dv) as f64).collect()
        }
        3 => weighed(&|_, w| w.sqrt()),
        4 => weighed(&|_, w| if w < 0.2 { 0.0 } else { w }),
        5 => weighed(&|j, w| if j % 3 == 0 { 0.5 * w } else { w }),
        6 => {
            let mut other = p.clone();
            other.v.rotate_left(dv);
            attention(&other, &[]).output
        }
        7 => {
            let mut other = p.clone();
            other.q.iter_mut().step_by(p.dk).for_each(|x| *x = 0.0);
            attention(&other, &[]).output
        }
        8 => {
            let mut other = p.clone();
            let row = p.dk;
            other.k[..row].iter_mut().for_each(|x| *x += 0.5);
            other.v[..dv].iter_mut().for_each(|x| *x -= 0.5);
            attention(&other, &[]).output
        }
        9 => {
            let mut rows = right.output.clone();
            rows.rotate_left(dv * lq);
            rows
        }
        10 => right.output.iter().map(|x| x.powi(3)).collect(),
        _ => {
            let mut other = p.clone();
            other.q.iter_mut().for_each(|x| *x = x.abs());
            attention(&other, &[]).output
        }
    }
}
