//! From scores to exponentials, row by row, with a running maximum and sum.
//!
//! ```text
//! max'  = max(max, x_j over the block)
//! corr  = 2^((max − max')·c)                   exactly 1 where the maximum stays
//! p_j   = 2^((x_j − max')·c)                   0 for dropped keys, whose x is −∞
//! l[a]  = corr·l[a] + Σ p_j over j ≡ a mod 16  16 sums, ascending in j
//! ```
//!
//! A block without a kept key therefore changes nothing, and neither does a dropped key.

use super::super::real::Real;
use super::pack::TILE;
use super::vector::{Vector, exp2, tanh};
use super::{BLOCK, STRIDE, Span};
use crate::view::Element;

/// What to compute.
pub struct Softmax<'a, T> {
    /// Which keys of the block each query keeps, or may keep.
    pub spans: &'a [Span],
    /// Row i, key j at `x[i·STRIDE + j]`: in scores, out p. Keys outside the span but inside the
    /// union of the spans of the same tile of queries become 0.
    pub x: &'a mut [T],
    /// Running maximum of each query.
    pub max: &'a mut [T],
    /// The 16 running sums of each query.
    pub sums: &'a mut [[T; TILE]],
    /// The correction of each query.
    pub corrections: &'a mut [T],
    /// c, which is not negative.
    pub c: T,
}

/// # Panics
/// If an argument is shorter than the spans need.
#[inline(always)]
pub(super) unsafe fn run<V: Vector, const R: usize>(args: &mut Softmax<'_, V::T>) {
    let rows = args.spans.len();
    assert!(args.spans.iter().all(|span| span.to <= BLOCK));
    assert!(args.x.len() >= rows * STRIDE && args.max.len() >= rows);
    assert!(args.sums.len() >= rows && args.corrections.len() >= rows);
    let mut row = 0;
    while row < rows {
        let height = R.min(rows - row);
        let union = Span::union(&args.spans[row..row + height]);
        for i in row..row + height {
            // SAFETY: row i has STRIDE numbers, and spans rounded up to a tile end within them.
            unsafe {
                let x = args.x.as_mut_ptr().add(i * STRIDE);
                let (max, sums) = (&mut args.max[i], &mut args.sums[i]);
                let row = (x, args.spans[i], union);
                args.corrections[i] = one_row::<V, false>(row, max, sums, args.c, (&[], true));
            }
        }
        row += height;
    }
}

/// As [`Softmax`], of one row and with a mask.
pub struct MaskedSoftmax<'a, T> {
    /// The row's keys.
    pub span: Span,
    /// The union of the spans of its tile of queries.
    pub union: Span,
    /// Its scores, [`STRIDE`] of them.
    pub x: &'a mut [T],
    /// Its running maximum.
    pub max: &'a mut T,
    /// Its running sums.
    pub sums: &'a mut [T; TILE],
    /// c, which is not negative.
    pub c: T,
    /// The mask from key 0 of the block to the end of the span, and what its value is for kept
    /// keys.
    pub mask: (&'a [bool], bool),
}

/// Returns the correction.
///
/// # Panics
/// If an argument is shorter than the spans need.
#[inline(always)]
pub(super) unsafe fn masked<V: Vector>(args: &mut MaskedSoftmax<'_, V::T>) -> V::T {
    assert!(args.span.to <= BLOCK && args.union.to <= BLOCK && args.x.len() >= STRIDE);
    assert!(args.mask.0.len() >= args.span.to);
    let row = (args.x.as_mut_ptr(), args.span, args.union);
    // SAFETY: the spans lie in the row, rounded up to a tile, and the mask has the row's span.
    unsafe { one_row::<V, true>(row, args.max, args.sums, args.c, args.mask) }
}

/// Numbers of a row from `at` on, −∞ where the mask drops them.
#[inline(always)]
unsafe fn load<V: Vector, const MASK: bool>(
    x: *const V::T,
    at: usize,
    to: usize,
    (mask, kept): (&[bool], bool),
) -> V {
    unsafe {
        let y = V::load(x.add(at));
        if MASK {
            let from = mask.as_ptr().wrapping_add(at);
            if to == usize::MAX || at + V::LANES <= to {
                y.dropped_unless(from, V::LANES, kept)
            } else {
                y.dropped_unless(from, to.saturating_sub(at), kept)
            }
        } else {
            y
        }
    }
}

#[inline(always)]
unsafe fn one_row<V: Vector, const MASK: bool>(
    (x, span, union): (*mut V::T, Span, Span),
    max: &mut V::T,
    sums: &mut [V::T; TILE],
    c: V::T,
    mask: (&[bool], bool),
) -> V::T {
    unsafe {
        if span.is_empty() {
            zero::<V>(x, union.from, union.to);
            return V::T::ONE;
        }
        let first = span.from / TILE * TILE;
        let end = span.to.next_multiple_of(TILE);
        if first < span.from {
            drop_outside::<V>(x, first, span);
        }
        if end > span.to {
            drop_outside::<V>(x, end - TILE, span);
        }
        // Up to here whole registers, of the mask too.
        let whole = if MASK { span.to / TILE * TILE } else { end };
        let mut largest = [V::splat(*max); 4];
        let mut at = first;
        while at + 4 * V::LANES <= whole {
            for n in 0..4 {
                let y = load::<V, MASK>(x, at + n * V::LANES, usize::MAX, mask);
                largest[n] = y.max(largest[n]);
            }
            at += 4 * V::LANES;
        }
        while at < end {
            largest[0] = load::<V, MASK>(x, at, span.to, mask).max(largest[0]);
            at += V::LANES;
        }
        let new = largest[0]
            .max(largest[1])
            .max(largest[2].max(largest[3]))
            .reduce_max();
        // With no kept key so far, −∞ − 0 = −∞ and every p is 0.
        let taken = if new == V::T::NEG_INFINITY {
            V::T::ZERO
        } else {
            new
        };
        let correction = correction::<V>(*max, new, c);
        *max = new;

        let (taken, c) = (V::splat(taken), V::splat(c));
        let mut lane = 0;
        while lane < TILE {
            let mut sum = V::load(sums.as_ptr().add(lane)).mul(V::splat(correction));
            let mut at = first + lane;
            while at < whole {
                let p = exp2(load::<V, MASK>(x, at, usize::MAX, mask).sub(taken).mul(c));
                p.store(x.add(at));
                sum = sum.add(p);
                at += TILE;
            }
            if at < end {
                let p = exp2(load::<V, MASK>(x, at, span.to, mask).sub(taken).mul(c));
                p.store(x.add(at));
                sum = sum.add(p);
            }
            sum.store(sums.as_mut_ptr().add(lane));
            lane += V::LANES;
        }
        zero::<V>(x, union.from, first);
        zero::<V>(x, end, union.to);
        correction
    }
}

/// 2^((old − new)·c): what sums relative to `old` are multiplied by to be relative to `new`.
#[inline(always)]
pub(super) unsafe fn correction<V: Vector>(old: V::T, new: V::T, c: V::T) -> V::T {
    if old == new {
        return V::T::ONE; // also where both are −∞
    }
    unsafe {
        let mut lanes = [V::T::ZERO; TILE];
        exp2(V::splat((old - new) * c)).store(lanes.as_mut_ptr());
        lanes[0]
    }
}

#[inline(always)]
unsafe fn zero<V: Vector>(x: *mut V::T, from: usize, to: usize) {
    for at in from..to {
        unsafe { *x.add(at) = V::T::ZERO };
    }
}

/// −∞ to what lies outside the span in the tile that begins at `first`.
#[inline(always)]
unsafe fn drop_outside<V: Vector>(x: *mut V::T, first: usize, span: Span) {
    let mut at = first;
    while at < first + TILE {
        let from = span.from.clamp(at, at + V::LANES) - at;
        let to = span.to.clamp(at, at + V::LANES) - at;
        unsafe {
            V::load(x.add(at)).only(from, to.max(from)).store(x.add(at));
        }
        at += V::LANES;
    }
}

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
