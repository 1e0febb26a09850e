//! Attention and the mistakes in it, written out plainly and apart from the crate: what
//! `qkv check` is to find out.

mod exchanged;
mod parts;
mod result;
mod softmax;

use exchanged::exchanged;
use parts::{low_precision, matmul, norm, rotate, split, transpose};
use result::{show, side_by_side};
use softmax::softmax;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Align {
    TopLeft,
    BottomRight,
    Offset(i64),
}

#[derive(Clone, Debug)]
pub struct Turn {
    pub interleaved: bool,
    pub base: f64,
    pub dim: Option<usize>,
    pub divide: f64,
}

/// Tokens and weights.
#[derive(Clone, Debug)]
pub struct Tokens {
    pub width: usize,
    pub x: Vec<f64>,
    /// `[D, H·d_k]`, `[D, H_kv·d_k]`, `[D, H_kv·d_v]`, `[H·d_v, out]`.
    pub w: [Vec<f64>; 4],
    pub bias: Option<[Vec<f64>; 4]>,
    pub out: usize,
    pub has_output: bool,
}

#[derive(Clone, Debug)]
pub struct P {
    pub b: usize,
    pub h: usize,
    pub g: usize,
    pub lq: usize,
    /// Cached ones included.
    pub lk: usize,
    pub past: usize,
    pub dk: usize,
    pub dv: usize,
    /// `[B, H, L_q, d_k]`, `[B, H_kv, L_k, d_k]`, `[B, H_kv, L_k, d_v]`, cached ones first.
    pub q: Vec<f64>,
    pub k: Vec<f64>,
    pub v: Vec<f64>,
    pub scale: Option<f64>,
    pub causal: Option<Align>,
    pub window: Option<(Option<usize>, Option<usize>)>,
    pub lengths: Option<Vec<usize>>,
    pub docs: Option<Vec<usize>>,
    pub softcap: Option<f64>,
    /// `[B, 1, L_q, L_k]`, `true` keeps.
    pub keep: Option<Vec<bool>>,
    /// `[B, 1, 1, L_k]`, `true` keeps.
    pub padding: Option<Vec<bool>>,
    /// `[H, L_q, L_k]`.
    pub bias: Option<Vec<f64>>,
    pub slopes: Option<Vec<f64>>,
    pub sinks: Option<Vec<f64>>,
    pub turn: Option<Turn>,
    pub gains: Option<(Vec<f64>, Vec<f64>)>,
    pub tokens: Option<Tokens>,
    /// The share that the right answer drops, by the crate's own generator.
    pub dropout: Option<f64>,
}

/// What a faulty attention gives.
#[derive(Clone, Debug, Default)]
pub struct Out {
    pub output: Vec<f64>,
    pub output_shape: Vec<usize>,
    pub weights: Vec<f64>,
    pub weights_shape: Vec<usize>,
    pub scores: Vec<f64>,
    pub lse: Vec<f64>,
}

/// A fault, with a number where it has one.
pub type Fault = (&'static str, f64);

fn of(faults: &[Fault], id: &str) -> Option<f64> {
    faults.iter().find(|(name, _)| *name == id).map(|(_, n)| *n)
}

/// Attention with these faults in it.
#[allow(clippy::too_many_lines)]
pub fn attention(p: &P, faults: &[Fault]) -> Out {
    let has = |id: &str| of(faults, id).is_some();
    let num = |id: &str| of(faults, id);
    let P {
        b,
        h,
        g,
        lq,
        lk,
        past,
        dk,
        dv,
        ..
    } = *p;
    let (mut q, mut k, mut v) = (p.q.clone(), p.k.clone(), p.v.clone());
    let mut dv = dv;

    // Projections.
    if let Some(t) = &p.tokens {
        let d = t.width;
        let mut w = t.w.clone();
        let mut bias = t.bias.clone();
        if let Some(n) = num("weight-transposed") {
            for at in 0..4 {
                let square = w[at].len() == d * d && (at < 3 || h * dv == d);
                if (n as usize) >> at & 1 == 1 && square {
                    w[at] = transpose(&w[at], d);
                }
            }
        }
        if let (Some(n), Some(bias)) = (num("projection-bias-missing"), &mut bias) {
            for at in 0..4 {
                if (n as usize) >> at & 1 == 1 {
                    bias[at].fill(0.0);
                }
            }
        }
        if has("keys-values-swapped") {
            w.swap(1, 2);
            if let Some(bias) = &mut bias {
                bias.swap(1, 2);
            }
        }
        let part = |at: usize| matmul(&t.x, &w[at], d, bias.as_ref().map(|bias| &bias[at][..]));
        let (mut fq, mut fk, mut fv) = (part(0), part(1), part(2));
        if let Some(n) = num("qkv-fused-layout") {
            // One array of H + 2·H_kv chunks for each token, written one way, read the other.
            let group = h / g;
            let blocks: Vec<(usize, usize)> = (0..h)
                .map(|i| (0, i))
                .chain((0..g).map(|i| (1, i)))
                .chain((0..g).map(|i| (2, i)))
                .collect();
            let mut grouped = Vec::new();
            for one in 0..g {
                grouped.extend((0..group).map(|i| (0, one * group + i)));
                grouped.push((1, one));
                grouped.push((2, one));
            }
            let (written, read) = if n == 0.0 {
                (blocks, grouped)
            } else {
                (grouped, blocks)
            };
            let (oq, ok, ov) = (fq.clone(), fk.clone(), fv.clone());
            for token in 0..b * lq {
                for (from, to) in written.iter().zip(&read) {
                    let source = [&oq, &ok, &ov][from.0];
                    let from_heads = if from.0 == 0 { h } else { g };
                    let to_heads = if to.0 == 0 { h } else { g };
                    for c in 0..dk {
                        let value = source[(token * from_heads + from.1) * dk + c];
                        [&mut fq, &mut fk, &mut fv][to.0][(token * to_heads + to.1) * dk + c] =
                            value;
                    }
                }
            }
        }
        q = split(&fq, b, lq, h, dk, faults);
        k = split(&fk, b, lk, g, dk, faults);
        v = split(&fv, b, lk, g, dv, faults);
    } else if has("keys-values-swapped") {
        std::mem::swap(&mut k, &mut v);
        dv = dk;
    }

    // Where queries stand among the keys.
    let align = p.causal.unwrap_or(Align::BottomRight);
    let align = match () {
        () if has("causal-top-left") => Align::TopLeft,
        () if has("causal-bottom-right") => Align::BottomRight,
        () => align,
    };
    let docs = p.docs.clone().unwrap_or_else(|| vec![lk]);
    let doc_of = |t: usize| {
        let mut start = 0;
        for (n, len) in docs.iter().enumerate() {
            if t < start + len {
                return (n, start);
            }
            start += len;
        }
        (docs.len(), start)
    };
    let packed = p.docs.is_some() && !has("documents-mixed");
    let length = |bi: usize| p.lengths.as_ref().map_or(lk, |l| l[bi]);
    let shift = num("cache-offset").unwrap_or(0.0) as i64;
    let position = |bi: usize, i: usize, align: Align| -> i64 {
        if packed {
            return i as i64;
        }
        let offset = match align {
            Align::TopLeft => 0,
            Align::Offset(n) => n,
            Align::BottomRight if has("padding-ignored") => lk as i64 - lq as i64,
            Align::BottomRight => length(bi) as i64 - lq as i64,
        };
        i as i64 + offset
    };

    // Norms and rotation.
    let self_attention = p.tokens.is_some();
    let mut turn = p.turn.clone();
    if let Some(turn) = &mut turn {
        if has("rotary-pairing") {
            turn.interleaved = !turn.interleaved;
        }
        if let Some(base) = num("rotary-base") {
            turn.base = base;
        }
        if let Some(factor) = num("rotary-scaling") {
            turn.divide = factor;
        }
        if let Some(dim) = num("rotary-partial") {
            turn.dim = Some(dim as usize);
        }
    }
    if has("rotary-missing") {
        turn = None;
    }
    if let Some(base) = num("rotary-undeclared") {
        turn = Some(Turn {
            interleaved: base < 0.0,
            base: base.abs(),
            dim: None,
            divide: 1.0,
        });
    }
    let direction = if has("rotary-direction") { -1.0 } else { 1.0 };
    for bi in 0..b {
        for hi in 0..h {
            for i in 0..lq {
                let row = &mut q[((bi * h + hi) * lq + i) * dk..][..dk];
                let (_, start) = doc_of(i);
                let place = match (self_attention, packed) {
                    (_, true) => (i - start) as i64,
                    (true, false) => (past + i) as i64,
                    (false, false) => position(bi, i, align),
                } + shift
                    + num("rotary-query-offset").unwrap_or(0.0) as i64;
                let normed = |row: &mut [f64]| {
                    if let (Some((gain, _)), false) = (&p.gains, has("qk-norm-missing")) {
                        norm(row, gain);
                    }
                };
                if !has("qk-norm-order") {
                    normed(row);
                }
                if let (Some(turn), false) = (&turn, has("rotary-keys-only")) {
                    rotate(row, turn, direction * place as f64);
                }
                if has("qk-norm-order") {
                    normed(row);
                }
            }
        }
        for gi in 0..g {
            for j in past..lk {
                let row = &mut k[((bi * g + gi) * lk + j) * dk..][..dk];
                let place = if packed { j - doc_of(j).1 } else { j };
                let normed = |row: &mut [f64]| {
                    if let (Some((_, gain)), false) = (&p.gains, has("qk-norm-missing")) {
                        norm(row, gain);
                    }
                };
                if !has("qk-norm-order") {
                    normed(row);
                }
                if let Some(turn) = &turn {
                    rotate(row, turn, direction * place as f64);
                }
                if has("qk-norm-order") {
                    normed(row);
                }
                if let (Some(turn), true) = (&turn, has("rotary-on-values")) {
                    let row = &mut v[((bi * g + gi) * lk + j) * dv..][..dv];
                    rotate(row, turn, direction * place as f64);
                }
            }
        }
    }

    if has("layout-swapped") || has("batch-first") {
        return exchanged(p, &q, &k, &v, has("layout-swapped"));
    }

    if has("qk-norm-undeclared") {
        let ones = vec![1.0; dk];
        q.chunks_mut(dk).for_each(|row| norm(row, &ones));
        // Cached keys are as they were cached.
        let new = |(at, row)| (at % lk >= past).then_some(row);
        for row in k.chunks_mut(dk).enumerate().filter_map(new) {
            norm(row, &ones);
        }
    }

    let right_scale = p.scale.unwrap_or(1.0 / (dk as f64).sqrt());
    let mut scale = num("scale").map_or(right_scale, |factor| factor * right_scale);
    if has("scale-after-softmax") {
        scale = 1.0;
    }
    let mut slopes = p.slopes.clone();
    if has("alibi-undeclared") {
        // For 8 heads 1/2 to 1/256, a geometric series for others; for those that are no power of
        // two those of the next smaller one, and every other one of the next larger.
        let series = |n: usize| -> Vec<f64> {
            (1..=n)
                .map(|h| 0.5f64.powf(8.0 * h as f64 / n as f64))
                .collect()
        };
        let below = 1 << h.ilog2();
        let more = series(2 * below).into_iter().step_by(2);
        slopes = Some(series(below).into_iter().chain(more).take(h).collect());
    }
    if let (Some(slopes), Some(factor)) = (&mut slopes, num("alibi-slopes")) {
        slopes.iter_mut().for_each(|s| *s *= factor);
    }

    let at = |bi: usize, hi: usize, i: usize, j: usize| ((bi * h + hi) * lq + i) * lk + j;
    let count = b * h * lq * lk;
    let (mut scores, mut logits) = (vec![0.0; count], vec![0.0; count]);
    let mut keep = vec![true; count];
    let mut dropped_by = vec![0; count];
    for bi in 0..b {
        for hi in 0..h {
            let gi = if has("groups-tiled") {
                hi % g
            } else {
                hi / (h / g)
            };
            for i in 0..lq {
                for j in 0..lk {
                    let n = at(bi, hi, i, j);
                    let mut s = 0.0;
                    for c in 0..dk {
                        s += q[((bi * h + hi) * lq + i) * dk + c]
                            * k[((bi * g + gi) * lk + j) * dk + c];
                    }
                    if has("fp16-overflow") && s.abs() >= 65520.0 {
                        s = s.signum() * f64::INFINITY;
                    }
                    scores[n] = s;
                    let place = position(bi, i, align) + shift;
                    // Which masks drop this key?
                    let mut drops = 0;
                    if let Some(keep) = &p.keep {
                        let kept = keep[(bi * lq + i) * lk + j] != has("mask-polarity");
                        drops += usize::from(!kept && !has("mask-ignored"));
                    }
                    if let Some(keep) = &p.padding {
                        let inverted = has("mask-polarity") || has("padding-polarity");
                        let kept = keep[bi * lk + j] != inverted;
                        drops += usize::from(!kept && !has("padding-ignored"));
                    }
                    let undeclared = [num("causal-top-left"), num("causal-bottom-right")];
                    let causal = p.causal.is_some() || undeclared.contains(&Some(1.0));
                    if causal && !has("causal-missing") {
                        let place = match () {
                            () if has("causal-strict") => place - 1,
                            () if has("causal-one-ahead") => place + 1,
                            () => place,
                        };
                        let kept = match has("causal-reversed") {
                            true => j as i64 >= place,
                            false => j as i64 <= place,
                        };
                        drops += usize::from(!kept);
                    }
                    if let (Some((mut back, mut forward)), false) =
                        (p.window, has("window-ignored"))
                    {
                        match num("window-off-by-one") {
                            Some(0.0) => back = back.map(|n| n + 1),
                            Some(1.0) => back = back.map(|n| n - 1),
                            Some(_) => forward = forward.map(|n| n + 1),
                            None => {}
                        }
                        match num("window-one-sided") {
                            Some(0.0) => back = None,
                            Some(_) => forward = None,
                            None => {}
                        }
                        let ahead = j as i64 - place;
                        let outside = back.is_some_and(|n| -ahead > n as i64)
                            || forward.is_some_and(|n| ahead > n as i64);
                        drops += usize::from(outside);
                    }
                    if let Some(reach) = num("window-undeclared") {
                        // Tens reach back, ones forward; 9 is without end.
                        let (back, forward) = (reach as i64 / 10, reach as i64 % 10);
                        let ahead = j as i64 - place;
                        let outside = back < 9 && -ahead > back || forward < 9 && ahead > forward;
                        drops += usize::from(outside);
                    }
                    if let (Some(lengths), false) = (&p.lengths, has("padding-ignored")) {
                        let kept = (j < lengths[bi]) != has("padding-polarity");
                        drops += usize::from(!kept);
                    }
                    if packed {
                        drops += usize::from(doc_of(i).0 != doc_of(j).0);
                    }
                    // Order: scale, cap, bias.
                    let mut added = 0.0;
                    if let (Some(bias), false) = (&p.bias, has("bias-missing")) {
                        added += bias[(hi * lq + i) * lk + j];
                    }
                    if let Some(slopes) = &slopes {
                        let place = match num("alibi-alignment") {
                            Some(0.0) => position(bi, i, Align::TopLeft),
                            Some(n) => place + n as i64,
                            None => place,
                        };
                        let far = slopes[hi] * (place - j as i64).abs() as f64;
                        added += if has("alibi-sign") { far } else { -far };
                    }
                    let mut s = match has("bias-before-scale") {
                        true => (s + added) * scale,
                        false => s * scale,
                    };
                    if let (Some(c), false) = (p.softcap, has("softcap-missing")) {
                        s = (s / c).tanh() * if has("softcap-unscaled") { 1.0 } else { c };
                    }
                    if !has("bias-before-scale") {
                        s += added;
                    }
                    dropped_by[n] = drops;
                    let dropped = drops > 0;
                    keep[n] = !dropped;
                    if has("softcap-after-mask") && dropped {
                        (s, keep[n]) = (-p.softcap.unwrap_or(1.0), true);
                    }
                    if let Some(which) = num("mask-added-as-01") {
                        keep[n] = true;
                        s += f64::from(u8::from((which == 0.0) != dropped));
                    }
                    if has("mask-multiplied") {
                        keep[n] = true;
                        if dropped {
                            s = 0.0;
                        }
                    }
                    if has("mask-after-softmax") {
                        keep[n] = true;
                    }
                    if let Some(fill) = num("mask-fill-weak") {
                        keep[n] = true;
                        if dropped {
                            s = fill;
                        }
                    }
                    if has("mask-fill-overflow") {
                        keep[n] = true;
                        s = match drops {
                            0 => s,
                            1 => f64::from(f32::MIN),
                            _ => f64::NEG_INFINITY,
                        };
                    }
                    logits[n] = s;
                }
            }
        }
    }

    let (mut weights, mut lse) = softmax(p, faults, &logits, &keep);
    if has("mask-after-softmax") {
        for n in 0..count {
            weights[n] *= f64::from(u8::from(dropped_by[n] == 0));
        }
    }
    if let Some(kind) = num("softmax-low-precision") {
        for (row, (w, logits)) in weights.chunks_mut(lk).zip(logits.chunks(lk)).enumerate() {
            let kept: Vec<usize> = (0..lk).filter(|j| keep[row * lk + j]).collect();
            low_precision(kind as usize, logits, &kept, w);
        }
    }
    // Any generator will do, since nobody knows which it was.
    for (id, scaled) in [("dropout-on", true), ("dropout-unscaled", false)] {
        let Some(p) = num(id) else { continue };
        for (n, w) in weights.iter_mut().enumerate() {
            let hash = (n as u64 ^ q[0].to_bits()).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let hash = (hash ^ hash >> 31).wrapping_mul(0x94d0_49bb_1331_11eb);
            let unit = ((hash ^ hash >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 11) as f64;
            *w *= match (unit / (1_u64 << 53) as f64) < p {
                true => 0.0,
                false if scaled => 1.0 / (1.0 - p),
                false => 1.0,
            };
        }
    }
    if has("scale-after-softmax") {
        weights.iter_mut().for_each(|w| *w *= right_scale);
    }
    if has("lse-base-2") {
        lse.iter_mut().for_each(|l| *l /= 2f64.ln());
    }

    // Weighted sums.
    let mut heads = vec![0.0; b * h * lq * dv];
    for bi in 0..b {
        for hi in 0..h {
            let gi = if has("groups-tiled") {
                hi % g
            } else {
                hi / (h / g)
            };
            for i in 0..lq {
                for c in 0..dv {
                    let mut sum = 0.0;
                    for j in 0..lk {
                        let n = at(bi, hi, i, j);
                        if weights[n] != 0.0 || has("masked-nan-leak") {
                            sum += weights[n] * v[((bi * g + gi) * lk + j) * dv + c];
                        }
                    }
                    heads[((bi * h + hi) * lq + i) * dv + c] = sum;
                }
            }
        }
    }

    let (output, output_shape) = side_by_side(p, faults, heads, dv);
    let mut out = Out {
        output,
        output_shape,
        weights,
        weights_shape: vec![b, h, lq, lk],
        scores,
        lse,
    };
    show(p, faults, &mut out);
    out
}
