//! From scores and the gradient of weights to weights and the gradient of scores, row by row.
//!
//! ```text
//! w_j  = 2^((x_j − shift)·c)·factor               0 for dropped keys, whose x is −∞
//! dx_j = w_j·(dw_j − delta)                        and ·(1 − tanh²(inner·score_j)) with a softcap
//! ```

use super::super::real::Real;
use super::pack::TILE;
use super::vector::{Vector, exp2, tanh};
use super::{BLOCK, STRIDE, Span};

/// What to compute. Row i, key j of every block of numbers is at `i·STRIDE + j`.
pub struct ScoreGradient<'a, T> {
    /// Which keys of the block each query keeps, or may keep.
    pub spans: &'a [Span],
    /// The keys for which every row is written: 0 outside its own span.
    pub union: Span,
    /// In x, out w.
    pub x: &'a mut [T],
    /// In the gradient of the weights (after dropout's factor), out the gradient of x.
    pub dx: &'a mut [T],
    /// The shift, the factor and delta of each query.
    pub rows: &'a [RowFactors<T>],
    /// c, which is not negative.
    pub c: T,
    /// With a softcap: scale/softcap, and the scores q·k.
    pub capped: Option<(T, &'a [T])>,
}

/// What turns a row's scores into weights, and weights into gradients.
#[derive(Clone, Copy, Debug)]
pub struct RowFactors<T> {
    /// Subtracted from x: the row's lse without the sink, rounded, in the units of x.
    pub shift: T,
    /// What the rounding of `shift` left, and the sink: w is 2^((x − shift)·c) times this.
    pub factor: T,
    /// Σ w·dw.
    pub delta: T,
}

/// # Panics
/// If an argument is shorter than the spans need.
#[inline(always)]
pub(super) unsafe fn run<V: Vector>(args: &mut ScoreGradient<'_, V::T>) {
    let rows = args.spans.len();
    let union = args.union;
    assert!(union.to <= BLOCK && args.rows.len() >= rows);
    assert!(args.x.len() >= rows * STRIDE && args.dx.len() >= rows * STRIDE);
    if let Some((_, raw)) = args.capped {
        assert!(raw.len() >= rows * STRIDE);
    }
    for i in 0..rows {
        let span = args.spans[i].within(union.from, union.to);
        let row = i * STRIDE..(i + 1) * STRIDE;
        let (x, dx) = (&mut args.x[row.clone()], &mut args.dx[row.clone()]);
        let capped = args.capped.map(|(inner, raw)| (inner, &raw[row]));
        if !span.is_empty() {
            let mut at = span.from / TILE * TILE;
            // SAFETY: a row has STRIDE numbers, and a span rounded up to a tile ends within them.
            unsafe {
                while at + 4 * V::LANES <= span.to {
                    some::<V, 4>(x, dx, at, args.rows[i], args.c, capped);
                    at += 4 * V::LANES;
                }
                while at < span.to {
                    some::<V, 1>(x, dx, at, args.rows[i], args.c, capped);
                    at += V::LANES;
                }
            }
        }
        // What stands outside the span is of any value, so it is not multiplied but replaced.
        let (before, behind) = if span.is_empty() {
            (union.from..union.to, union.to..union.to)
        } else {
            (union.from..span.from, span.to..union.to)
        };
        for part in [before, behind] {
            x[part.clone()].fill(V::T::ZERO);
            dx[part].fill(V::T::ZERO);
        }
    }
}

/// N registers from `at` on.
#[inline(always)]
unsafe fn some<V: Vector, const N: usize>(
    x: &mut [V::T],
    dx: &mut [V::T],
    at: usize,
    row: RowFactors<V::T>,
    c: V::T,
    capped: Option<(V::T, &[V::T])>,
) {
    unsafe {
        let (x, dx) = (x.as_mut_ptr().add(at), dx.as_mut_ptr().add(at));
        let (shift, c) = (V::splat(row.shift), V::splat(c));
        let (factor, delta) = (V::splat(row.factor), V::splat(row.delta));
        let mut y = [shift; N];
        for n in 0..N {
            let x = V::load(x.add(n * V::LANES)).sub(shift).mul(c);
            // What stands beside the span, or a wrong lse, could be more than `exp2` takes.
            y[n] = V::splat(V::T::ONE).min(x);
        }
        y = exp2(y);
        for n in 0..N {
            let w = y[n].mul(factor);
            w.store(x.add(n * V::LANES));
            let to = dx.add(n * V::LANES);
            let mut gradient = w.mul(V::load(to).sub(delta));
            if let Some((inner, raw)) = capped {
                let raw = V::load(raw.as_ptr().add(at + n * V::LANES));
                let t = tanh(raw.mul(V::splat(inner)));
                let one = V::splat(V::T::ONE);
                gradient = gradient.mul(one.sub(t).mul(one.add(t)));
            }
            gradient.store(to);
        }
    }
}
