//! What comes between the scores and the softmax: scale, softcap, bias, ALiBi, masks.

use super::super::real::Real;
use super::Span;
use super::pack::TILE;
use super::vector::{Vector, tanh};
use crate::view::Element;

/// What comes between the scores and the softmax of one query, in this order: scale and softcap,
/// bias, ALiBi, masks. All slices begin at key 0 of the block and reach to the end of the span.
pub struct Bend<'a, T> {
    /// The keys.
    pub span: Span,
    /// Scale, softcap, bias and ALiBi; `None` leaves the scores as they are.
    pub arithmetic: Option<Arithmetic<'a, T>>,
    /// A mask, and what its value is for kept keys.
    pub mask: Option<(&'a [bool], bool)>,
}

/// x = factor·t + bias − slope·|position − j|, with t = score, or with a softcap
/// t = tanh(inner·score).
pub struct Arithmetic<'a, T> {
    /// scale/softcap, with a softcap.
    pub inner: Option<T>,
    /// The softcap, or else the scale.
    pub factor: T,
    /// One number a key; −∞ drops the key.
    pub bias: Option<&'a [T]>,
    /// The slope, and the query's position counted from key 0 of the block.
    pub alibi: Option<(T, T)>,
}

/// Changes `x` in place, for the keys of the span.
///
/// # Panics
/// If an argument is shorter than the span needs.
#[inline(always)]
pub(super) unsafe fn bend<V: Vector>(args: &Bend<'_, V::T>, x: &mut [V::T]) {
    let span = args.span;
    if span.is_empty() {
        return;
    }
    assert!(x.len() >= span.to.next_multiple_of(TILE));
    if let Some((mask, _)) = args.mask {
        assert!(mask.len() >= span.to);
    }
    if let Some(Arithmetic {
        bias: Some(bias), ..
    }) = args.arithmetic
    {
        assert!(bias.len() >= span.to);
    }
    let a = args.arithmetic.as_ref();
    let (softcap, bias, alibi) = (
        a.is_some_and(|a| a.inner.is_some()),
        a.is_some_and(|a| a.bias.is_some()),
        a.is_some_and(|a| a.alibi.is_some()),
    );
    // SAFETY: the slices reach to the end of the span. What is common has loops of its own.
    unsafe {
        match (a.is_some(), softcap, bias, alibi, args.mask.is_some()) {
            (false, .., true) => bend_row::<V, false, false, false, false, true>(args, x),
            (true, false, true, false, false) => {
                bend_row::<V, true, false, true, false, false>(args, x);
            }
            (true, true, false, false, false) => {
                bend_row::<V, true, true, false, false, false>(args, x);
            }
            (true, false, false, true, false) => {
                bend_row::<V, true, false, false, true, false>(args, x);
            }
            _ => bend_row::<V, true, true, true, true, true>(args, x),
        }
    }
}

/// What is `false` is not there; what is `true` may be.
#[inline(always)]
unsafe fn bend_row<
    V: Vector,
    const ARITHMETIC: bool,
    const SOFTCAP: bool,
    const BIAS: bool,
    const ALIBI: bool,
    const MASK: bool,
>(
    args: &Bend<'_, V::T>,
    x: &mut [V::T],
) {
    let span = args.span;
    let mut at = span.from / V::LANES * V::LANES;
    // SAFETY: loads and stores lie in `x`, of masks and biases only what the span has is read.
    unsafe {
        while at + V::LANES <= span.to {
            bend_some::<V, ARITHMETIC, SOFTCAP, BIAS, ALIBI, MASK>(args, x, at, V::LANES);
            at += V::LANES;
        }
        if at < span.to {
            bend_some::<V, ARITHMETIC, SOFTCAP, BIAS, ALIBI, MASK>(args, x, at, span.to - at);
        }
    }
}

/// One register, of which n numbers count.
#[inline(always)]
unsafe fn bend_some<
    V: Vector,
    const ARITHMETIC: bool,
    const SOFTCAP: bool,
    const BIAS: bool,
    const ALIBI: bool,
    const MASK: bool,
>(
    args: &Bend<'_, V::T>,
    x: &mut [V::T],
    at: usize,
    n: usize,
) {
    unsafe {
        let to = x.as_mut_ptr().add(at);
        let mut y = V::load(to);
        if ARITHMETIC && let Some(arithmetic) = &args.arithmetic {
            if SOFTCAP && let Some(inner) = arithmetic.inner {
                y = tanh(y.mul(V::splat(inner)));
            }
            let mut bias = V::splat(V::T::ZERO);
            if BIAS && let Some(from) = arithmetic.bias {
                let from = from.as_ptr().add(at);
                bias = if n == V::LANES {
                    V::load(from)
                } else {
                    V::load_first(from, n)
                };
            }
            y = y.fma(V::splat(arithmetic.factor), bias);
            if ALIBI && let Some((slope, position)) = arithmetic.alibi {
                let mut lanes = [V::T::ZERO; TILE];
                for (lane, key) in lanes.iter_mut().zip(at..at + V::LANES) {
                    *lane = V::T::from_f64(key as f64);
                }
                let distance = V::splat(position).sub(V::load(lanes.as_ptr())).abs();
                y = V::splat(-slope).fma(distance, y);
            }
            // However low, a finite number does not drop a key; NaN stays.
            y = V::splat(-V::T::MAX).max(y);
            if BIAS {
                y = y.dropped_where_neg_inf(bias);
            }
        }
        if MASK && let Some((mask, kept)) = args.mask {
            y = y.dropped_unless(mask.as_ptr().add(at), n, kept);
        }
        y.store(to);
    }
}

/// What [`bend`] makes of a score with scale and bias alone.
#[inline(always)]
pub(super) unsafe fn with_bias<V: Vector>(y: V, bias: *const V::T, n: usize, factor: V::T) -> V {
    unsafe {
        let bias = if n == V::LANES {
            V::load(bias)
        } else {
            V::load_first(bias, n)
        };
        let y = y.fma(V::splat(factor), bias);
        // However low, a finite number does not drop a key; NaN stays.
        V::splat(-V::T::MAX).max(y).dropped_where_neg_inf(bias)
    }
}
