//! Problems drawn at random, for each fault one in which it can show.

use super::naive::{Align, Fault, P, Tokens, Turn};

/// xorshift, so that a failure can be drawn again.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() >> 33) as usize % n
    }

    pub fn chance(&mut self, share: f64) -> bool {
        self.unit() < share
    }

    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// About normal, mean 0, deviation 1.
    pub fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }

    pub fn normals(&mut self, n: usize) -> Vec<f64> {
        (0..n).map(|_| self.normal()).collect()
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

/// Sizes all different, options at random.
pub fn problem(r: &mut Random) -> P {
    let b = r.pick(&[2, 3]);
    let (h, g) = r.pick(&[(4, 2), (6, 3), (6, 2), (4, 4), (3, 1)]);
    let dk = r.pick(&[4, 6, 8, 12]);
    let dv = r.pick(&[3, 5, 7]);
    let lq = r.pick(&[3, 5, 7, 8]);
    let mut lk = r.pick(&[4, 6, 9, 11]);
    if lk == h {
        lk += 1;
    }
    let mut p = P {
        b,
        h,
        g,
        lq,
        lk,
        past: 0,
        dk,
        dv,
        q: Vec::new(),
        k: Vec::new(),
        v: Vec::new(),
        scale: r.chance(0.2).then(|| 0.2 + r.unit()),
        causal: r
            .chance(0.4)
            .then(|| r.pick(&[Align::TopLeft, Align::BottomRight, Align::Offset(2)])),
        window: None,
        lengths: None,
        docs: None,
        softcap: r.chance(0.15).then(|| 1.0 + 3.0 * r.unit()),
        keep: None,
        padding: None,
        bias: None,
        slopes: None,
        sinks: None,
        turn: None,
        gains: None,
        tokens: None,
        dropout: None,
    };
    if r.chance(0.2) {
        with_keep(&mut p, r);
    }
    if r.chance(0.15) {
        with_lengths(&mut p, r);
    }
    if r.chance(0.15) {
        p.bias = Some(r.normals(h * lq * lk));
    }
    if r.chance(0.1) {
        p.sinks = Some(r.normals(h));
    }
    if r.chance(0.15) {
        with_turn(&mut p, r);
    }
    if r.chance(0.2) {
        p.window = Some((
            r.chance(0.7).then(|| 1 + r.below(4)),
            r.chance(0.6).then(|| r.below(3)),
        ));
    }
    match r.below(8) {
        0 => {
            // Keys that were there before, which have no places of their own in the naive one.
            p.past = 1 + r.below(3);
            p.lk += p.past;
            p.lk += usize::from(p.lk == h);
            (p.keep, p.bias) = (None, None);
        }
        1 if p.lengths.is_none() => with_docs(&mut p, r),
        _ => {}
    }
    fill(&mut p, r);
    p
}

/// Two documents of as many queries as keys, which is what packing gives.
fn with_docs(p: &mut P, r: &mut Random) {
    p.lk = p.lq + usize::from(p.lq == p.h);
    p.lq = p.lk;
    let first = 1 + r.below(p.lk - 1);
    p.docs = Some(vec![first, p.lk - first]);
    (p.turn, p.keep, p.bias) = (None, None, None);
    p.causal = p.causal.map(|_| Align::TopLeft);
}

pub fn fill(p: &mut P, r: &mut Random) {
    p.q = r.normals(p.b * p.h * p.lq * p.dk);
    p.k = r.normals(p.b * p.g * p.lk * p.dk);
    p.v = r.normals(p.b * p.g * p.lk * p.dv);
}

pub fn with_keep(p: &mut P, r: &mut Random) {
    p.keep = Some((0..p.b * p.lq * p.lk).map(|_| r.chance(0.7)).collect());
}

pub fn with_lengths(p: &mut P, r: &mut Random) {
    p.lengths = Some((0..p.b).map(|_| 1 + r.below(p.lk - 1)).collect());
}

fn with_turn(p: &mut P, r: &mut Random) {
    p.turn = Some(Turn {
        interleaved: r.chance(0.3),
        base: 10000.0,
        dim: None,
        divide: 1.0,
    });
}

/// As many queries as keys, and no options that depend on their numbers.
fn square(p: &mut P, r: &mut Random) {
    p.lq = p.lk;
    if p.lk == p.h {
        p.lq += 1;
        p.lk += 1;
    }
    (p.keep, p.bias, p.lengths, p.padding) = (None, None, None, None);
    (p.docs, p.past) = (None, 0);
    p.causal = p.causal.map(|_| Align::TopLeft);
    fill(p, r);
}

fn with_tokens(p: &mut P, r: &mut Random) {
    square(p, r);
    let width = p.h * p.dk;
    let out = width;
    let small = |r: &mut Random, n: usize, inner: usize| -> Vec<f64> {
        let share = 1.0 / (inner as f64).sqrt();
        r.normals(n).into_iter().map(|x| x * share).collect()
    };
    p.tokens = Some(Tokens {
        width,
        x: r.normals(p.b * p.lq * width),
        w: [
            small(r, width * p.h * p.dk, width),
            small(r, width * p.g * p.dk, width),
            small(r, width * p.g * p.dv, width),
            small(r, p.h * p.dv * out, p.h * p.dv),
        ],
        bias: None,
        out,
        has_output: r.chance(0.7),
    });
}

/// A problem in which this fault can show, and the fault with its number.
#[allow(clippy::too_many_lines)]
pub fn for_fault(id: &'static str, r: &mut Random) -> (P, Fault) {
    let mut p = problem(r);
    let mut number = 0.0;
    // Those that say where documents or queries stand draw that themselves.
    let placed = [
        "causal",
        "padding",
        "cache",
        "rotary",
        "alibi",
        "masked",
        "mask-fill",
        "empty",
        "qk",
    ];
    if placed.iter().any(|start| id.starts_with(start)) {
        p.docs = None;
    }
    if id.starts_with("cache") {
        p.window = None;
    }
    match id {
        "mask-polarity" | "mask-added-as-01" | "mask-multiplied" | "mask-after-softmax"
        | "mask-ignored" => {
            if p.keep.is_none() {
                with_keep(&mut p, r);
            }
            if id == "mask-polarity" || id == "mask-ignored" {
                (p.causal, p.lengths) = (None, None);
            }
            number = r.below(2) as f64;
        }
        "mask-fill-weak" => {
            with_keep(&mut p, r);
            number = r.pick(&[-1e-12, -2.0, -10.0, -3.7]);
        }
        "mask-fill-overflow" => {
            p.lengths = None;
            p.keep = None;
            p.causal = Some(Align::TopLeft);
            let mut padding = vec![true; p.b * p.lk];
            for bi in 0..p.b {
                for j in 0..1 + r.below(2) {
                    padding[bi * p.lk + j] = false;
                }
            }
            p.padding = Some(padding);
        }
        "padding-polarity" | "padding-ignored" => {
            with_lengths(&mut p, r);
        }
        // Another one, or none where the options have one.
        "causal-top-left" | "causal-bottom-right" if r.chance(0.5) => {
            (p.causal, p.window, number) = (None, None, 1.0);
        }
        "causal-top-left" => p.causal = Some(Align::BottomRight),
        "causal-bottom-right" => p.causal = Some(Align::TopLeft),
        "window-undeclared" => {
            // Of a causal mask only what is behind shows.
            (p.window, p.docs) = (None, None);
            number = match p.causal {
                Some(_) => r.pick(&[19.0, 29.0]),
                None => r.pick(&[10.0, 19.0, 91.0, 11.0, 22.0, 21.0, 2.0]),
            };
        }
        "alibi-undeclared" => p.slopes = None,
        "rotary-undeclared" => {
            (p.turn, p.docs) = (None, None);
            number = r.pick(&[1e4, 5e5, 77.0, -1e4, -1e6, -300.0]);
        }
        "sinks-undeclared" => {
            (p.sinks, number) = (None, r.pick(&[-0.4, 0.3, 1.1]));
        }
        "causal-missing" | "causal-strict" | "causal-one-ahead" | "causal-reversed" => {
            let align = r.pick(&[Align::TopLeft, Align::BottomRight, Align::Offset(1)]);
            p.causal = Some(align);
        }
        "scale" => {
            let right = p.scale.unwrap_or(1.0 / (p.dk as f64).sqrt());
            let theirs = r.pick(&[
                1.0,
                1.0 / ((p.h * p.dk) as f64).sqrt(),
                1.0 / p.dk as f64,
                right * right,
                (p.dk as f64).sqrt(),
                1.0 / (p.h as f64).sqrt(),
                right * 1.37,
                right * 0.71,
            ]);
            number = theirs / right;
        }
        "groups-tiled" => {
            (p.h, p.g) = r.pick(&[(4, 2), (6, 3), (6, 2)]);
            (p.bias, p.sinks) = (None, None);
            fill(&mut p, r);
        }
        "softmax-over-heads" | "phantom-keys" | "softmax-plus-one" => {
            (p.sinks, number) = (None, r.pick(&[3.0, 7.0, 20.0, 55.0]));
        }
        "layout-swapped" | "batch-first" => {
            square(&mut p, r);
            (p.turn, p.sinks, p.gains) = (None, None, None);
            p.causal = None;
            if id == "batch-first" && r.chance(0.5) {
                with_tokens(&mut p, r);
            } else if id == "layout-swapped" {
                p.g = p.h;
                fill(&mut p, r);
            }
        }
        "keys-values-swapped" => {
            p.dv = p.dk;
            p.turn = None;
            if r.chance(0.5) {
                with_tokens(&mut p, r);
            } else {
                fill(&mut p, r);
            }
        }
        "heads-split-without-transpose"
        | "heads-merged-without-transpose"
        | "heads-interleaved"
        | "output-projection-missing"
        | "weight-transposed"
        | "projection-bias-missing"
        | "qkv-fused-layout" => {
            (p.h, p.g) = r.pick(&[(4, 2), (4, 4), (6, 3)]);
            (p.bias, p.sinks) = (None, None);
            if id == "weight-transposed" || id == "qkv-fused-layout" {
                p.dv = p.dk;
                if id == "weight-transposed" {
                    p.g = p.h;
                }
            }
            with_tokens(&mut p, r);
            if let Some(t) = &mut p.tokens {
                match id {
                    "output-projection-missing" => t.has_output = true,
                    "weight-transposed" => number = r.pick(&[1.0, 2.0, 4.0, 8.0, 15.0, 7.0]),
                    "projection-bias-missing" => {
                        t.has_output = true;
                        number = r.pick(&[1.0, 4.0, 8.0, 15.0]);
                        t.bias = Some([
                            r.normals(p.h * p.dk),
                            r.normals(p.g * p.dk),
                            r.normals(p.g * p.dv),
                            r.normals(t.out),
                        ]);
                    }
                    "qkv-fused-layout" => number = r.below(2) as f64,
                    _ => {}
                }
                if id == "weight-transposed" && number == 8.0 {
                    t.has_output = true;
                }
            }
        }
        "rotary-pairing"
        | "rotary-missing"
        | "rotary-direction"
        | "rotary-base"
        | "rotary-scaling"
        | "rotary-partial"
        | "rotary-query-offset"
        | "rotary-keys-only"
        | "rotary-on-values" => {
            p.dk = r.pick(&[8, 12]);
            if id == "rotary-on-values" {
                p.dv = r.pick(&[4, 6]);
            }
            fill(&mut p, r);
            with_turn(&mut p, r);
            number = match id {
                "rotary-base" => r.pick(&[500000.0, 1000.0, 77.0, 1e6]),
                "rotary-scaling" => r.pick(&[2.0, 4.0, 8.0]),
                "rotary-partial" => (p.dk / 2) as f64,
                "rotary-query-offset" => r.pick(&[1.0, -1.0, 5.0, 40.0]),
                _ => 0.0,
            };
            if id == "rotary-partial" && !p.dk.is_multiple_of(4) {
                (p.dk, number) = (8, 4.0);
                fill(&mut p, r);
            }
        }
        "qk-norm-missing" | "qk-norm-order" => {
            let gains = |r: &mut Random, n: usize| (0..n).map(|_| 0.5 + r.unit()).collect();
            p.gains = Some((gains(r, p.dk), gains(r, p.dk)));
            if id == "qk-norm-order" {
                with_turn(&mut p, r);
            }
        }
        "softcap-missing" | "softcap-after-mask" | "softcap-unscaled" => {
            p.softcap = Some(1.5 + r.unit());
            if id == "softcap-after-mask" {
                p.bias = None;
                with_keep(&mut p, r);
            }
        }
        "sinks-ignored" | "sinks-scaled" => p.sinks = Some(r.normals(p.h)),
        "alibi-sign" | "alibi-slopes" | "alibi-alignment" => {
            p.slopes = Some((0..p.h).map(|h| 0.5 / (1.0 + h as f64)).collect());
            number = match id {
                "alibi-slopes" => r.pick(&[2.0, 0.5, 1.3]),
                "alibi-alignment" => r.pick(&[1.0, -1.0]),
                _ => 0.0,
            };
        }
        "bias-before-scale" | "bias-missing" => p.bias = Some(r.normals(p.h * p.lq * p.lk)),
        "window-off-by-one" | "window-ignored" | "window-one-sided" => {
            p.window = Some((Some(1 + r.below(2)), Some(1 + r.below(2))));
            number = r.below(if id == "window-off-by-one" { 3 } else { 2 }) as f64;
            p.causal = None;
        }
        "cache-offset" => {
            p.past = r.pick(&[2, 3, 4]);
            p.lk = p.past + p.lq;
            (p.keep, p.bias, p.lengths) = (None, None, None);
            p.causal = Some(Align::BottomRight);
            if r.chance(0.5) {
                with_turn(&mut p, r);
            }
            fill(&mut p, r);
            number = r.pick(&[-(p.past as f64), -1.0, 1.0]);
        }
        "documents-mixed" => {
            square(&mut p, r);
            p.lengths = None;
            let first = 1 + r.below(p.lk - 1);
            p.docs = Some(vec![first, p.lk - first]);
            (p.turn, p.window) = (None, None);
        }
        "empty-row" => {
            with_keep(&mut p, r);
            let lk = p.lk;
            if let Some(keep) = &mut p.keep {
                for bi in 0..p.b {
                    keep[bi * p.lq * lk..][..lk].fill(false);
                }
            }
            p.sinks = None;
            number = r.below(3) as f64;
        }
        "masked-nan-leak" => {
            p.lengths = Some(vec![p.lk - 1; p.b]);
            p.v[(p.lk - 1) * p.dv] = f64::NAN;
        }
        "dropout-on" | "dropout-unscaled" => number = r.pick(&[0.1, 0.3, 0.5]),
        "dropout-missing" => p.dropout = Some(r.pick(&[0.1, 0.3, 0.5])),
        "softmax-low-precision" => {
            p.sinks = None;
            number = r.below(10) as f64;
        }
        "fp16-overflow" => {
            p.q.iter_mut().for_each(|x| *x *= 300.0);
            p.k.iter_mut().for_each(|x| *x *= 300.0);
            (p.softcap, p.turn) = (None, None);
        }
        _ => {}
    }
    (p, (id, number))
}
