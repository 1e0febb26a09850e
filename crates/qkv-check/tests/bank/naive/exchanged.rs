//! Attention over the wrong axis.

use super::parts::matmul;
use super::{Out, P, attention};

/// Heads and tokens, or batch entries and tokens, exchanged before and after.
pub fn exchanged(p: &P, q: &[f64], k: &[f64], v: &[f64], heads: bool) -> Out {
    let P {
        b,
        h,
        g,
        lq,
        lk,
        dk,
        dv,
        ..
    } = *p;
    let moved = |x: &[f64], h: usize, l: usize, d: usize| {
        let mut y = Vec::new();
        let (ob, oh, ol) = if heads { (b, l, h) } else { (l, h, b) };
        for x0 in 0..ob {
            for x1 in 0..oh {
                for x2 in 0..ol {
                    let (bi, hi, t) = if heads { (x0, x2, x1) } else { (x2, x1, x0) };
                    y.extend_from_slice(&x[((bi * h + hi) * l + t) * d..][..d]);
                }
            }
        }
        y
    };
    let mut other = p.clone();
    (other.q, other.k, other.v) = (
        moved(q, h, lq, dk),
        moved(k, g, lk, dk),
        moved(v, g, lk, dv),
    );
    (other.b, other.h, other.g, other.lq, other.lk) = match heads {
        true => (b, lq, lk, h, g),
        false => (lq, h, g, b, b),
    };
    (other.turn, other.gains, other.tokens) = (None, None, None);
    let inner = attention(&other, &[]);
    // And back.
    let mut out = vec![0.0; b * h * lq * dv];
    for bi in 0..b {
        for hi in 0..h {
            for i in 0..lq {
                let from = match heads {
                    true => (bi * lq + i) * h + hi,
                    false => (i * h + hi) * b + bi,
                };
                out[((bi * h + hi) * lq + i) * dv..][..dv]
                    .copy_from_slice(&inner.output[from * dv..][..dv]);
            }
        }
    }
    let mut result = Out {
        output: out,
        output_shape: vec![b, h, lq, dv],
        ..Out::default()
    };
    if let Some(t) = &p.tokens {
        let mut merged = Vec::new();
        for bi in 0..b {
            for i in 0..lq {
                for hi in 0..h {
                    merged.extend_from_slice(&result.output[((bi * h + hi) * lq + i) * dv..][..dv]);
                }
            }
        }
        result.output = merged;
        result.output_shape = vec![b, lq, h * dv];
        if t.has_output {
            let bias = t.bias.as_ref().map(|bias| &bias[3][..]);
            result.output = matmul(&result.output, &t.w[3], h * dv, bias);
            result.output_shape = vec![b, lq, t.out];
        }
    }
    result
}
