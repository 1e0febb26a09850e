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
    /// For each query the mask from key 0 of the block to the end of its span, or nothing at all.
    pub masks: &'a [&'a [bool]],
    /// What a mask's value is for kept keys.
    pub kept: bool,
}

/// # Panics
/// If an argument is shorter than the spans need.
#[inline(always)]
pub(super) unsafe fn run<V: Vector, const R: usize>(args: &mut Softmax<'_, V::T>) {
    let rows = args.spans.len();
    assert!(args.spans.iter().all(|span| span.to <= BLOCK));
    assert!(args.x.len() >= rows * STRIDE && args.max.len() >= rows);
    assert!(args.sums.len() >= rows && args.corrections.len() >= rows);
    if args.masks.is_empty() {
        // SAFETY: the slices hold every row.
        unsafe { all_rows::<V, R, false>(args) }
    } else {
        let enough = |(mask, span): (&&[bool], &Span)| mask.len() >= span.to;
        assert!(args.masks.len() >= rows && args.masks.iter().zip(args.spans).all(enough));
        // SAFETY: the slices hold every row, and masks reach to the ends of the spans.
        unsafe { all_rows::<V, R, true>(args) }
    }
}

#[inline(always)]
unsafe fn all_rows<V: Vector, const R: usize, const MASK: bool>(args: &mut Softmax<'_, V::T>) {
    let rows = args.spans.len();
    let mask_of =
        |i: usize| -> (&[bool], bool) { (if MASK { args.masks[i] } else { &[] }, args.kept) };
    let mut row = 0;
    while row < rows {
        let height = R.min(rows - row);
        let union = Span::union(&args.spans[row..row + height]);
        // SAFETY: row i has STRIDE numbers, and spans rounded up to a tile end within them.
        unsafe {
            // All maxima first, then all exponentials: what one row waits for, another fills.
            for i in row..row + height {
                let x = args.x.as_ptr().add(i * STRIDE);
                let largest = largest::<V, MASK>(x, args.spans[i], args.max[i], mask_of(i));
                args.corrections[i] = correction::<V>(args.max[i], largest, args.c);
                args.max[i] = largest;
            }
            for i in row..row + height {
                let x = args.x.as_mut_ptr().add(i * STRIDE);
                let (span, sums) = (args.spans[i], &mut args.sums[i]);
                let factors = (args.max[i], args.corrections[i], args.c);
                exponentials::<V, MASK>(x, (span, union), factors, sums, mask_of(i));
            }
        }
        row += height;
    }
}

/// Which tiles of a span are whole, and where those at its ends begin.
struct Tiles {
    /// The tile that the span begins in, if it is not whole.
    first: Option<usize>,
    whole: Span,
    /// The tile that the span ends in, if it is not whole nor `first`.
    last: Option<usize>,
}

impl Tiles {
    #[inline(always)]
    fn of(span: Span) -> Tiles {
        let whole = Span {
            from: span.from.next_multiple_of(TILE),
            to: span.to / TILE * TILE,
        };
        let first = span.from / TILE * TILE;
        Tiles {
            first: (first < whole.from).then_some(first),
            last: (whole.to < span.to && whole.to >= whole.from).then_some(whole.to),
            whole,
        }
    }
}

/// Numbers of a row from `at` on, −∞ where the mask drops them; if not `WHOLE`, also outside the
/// span.
#[inline(always)]
unsafe fn load<V: Vector, const MASK: bool, const WHOLE: bool>(
    x: *const V::T,
    at: usize,
    span: Span,
    (mask, kept): (&[bool], bool),
) -> V {
    unsafe {
        let mut y = V::load(x.add(at));
        if MASK {
            let n = if WHOLE {
                V::LANES
            } else {
                V::LANES.min(span.to.saturating_sub(at))
            };
            y = y.dropped_unless(mask.as_ptr().wrapping_add(at), n, kept);
        }
        if !WHOLE {
            let from = span.from.clamp(at, at + V::LANES) - at;
            let to = span.to.clamp(at, at + V::LANES) - at;
            y = y.only(from, to.max(from));
        }
        y
    }
}

/// The largest number of the span and of `max`.
#[inline(always)]
unsafe fn largest<V: Vector, const MASK: bool>(
    x: *const V::T,
    span: Span,
    max: V::T,
    mask: (&[bool], bool),
) -> V::T {
    if span.is_empty() {
        return max;
    }
    unsafe {
        let tiles = Tiles::of(span);
        let mut largest = [V::splat(max); 4];
        let mut at = tiles.whole.from;
        while at + 4 * V::LANES <= tiles.whole.to {
            for n in 0..4 {
                let y = load::<V, MASK, true>(x, at + n * V::LANES, span, mask);
                largest[n] = y.max(largest[n]);
            }
            at += 4 * V::LANES;
        }
        while at < tiles.whole.to {
            largest[0] = load::<V, MASK, true>(x, at, span, mask).max(largest[0]);
            at += V::LANES;
        }
        for first in [tiles.first, tiles.last].into_iter().flatten() {
            let mut at = first;
            while at < first + TILE {
                largest[1] = load::<V, MASK, false>(x, at, span, mask).max(largest[1]);
                at += V::LANES;
            }
        }
        let [a, b, c, d] = largest;
        a.max(b).max(c.max(d)).reduce_max()
    }
}

/// Puts exponentials in place of the numbers of the span and adds them to the sums; 0 around the
/// span in its tiles and in the union.
#[inline(always)]
unsafe fn exponentials<V: Vector, const MASK: bool>(
    x: *mut V::T,
    (span, union): (Span, Span),
    (max, correction, c): (V::T, V::T, V::T),
    sums: &mut [V::T; TILE],
    mask: (&[bool], bool),
) {
    unsafe {
        if span.is_empty() {
            zero::<V>(x, union.from, union.to);
            return;
        }
        let tiles = Tiles::of(span);
        // With no kept key so far, −∞ − 0 = −∞ and every p is 0.
        let max = if max == V::T::NEG_INFINITY {
            V::T::ZERO
        } else {
            max
        };
        let (max, c, correction) = (V::splat(max), V::splat(c), V::splat(correction));
        let mut lane = 0;
        while lane < TILE {
            let mut sum = V::load(sums.as_ptr().add(lane)).mul(correction);
            if let Some(first) = tiles.first {
                let y = load::<V, MASK, false>(x, first + lane, span, mask);
                sum = sum.add(put(x.add(first + lane), [y.sub(max).mul(c)])[0]);
            }
            let mut at = tiles.whole.from + lane;
            while at + 3 * TILE < tiles.whole.to {
                let mut y = [max; 4];
                for n in 0..4 {
                    y[n] = load::<V, MASK, true>(x, at + n * TILE, span, mask);
                    y[n] = y[n].sub(max).mul(c);
                }
                for p in put(x.add(at), y) {
                    sum = sum.add(p);
                }
                at += 4 * TILE;
            }
            while at < tiles.whole.to {
                let y = load::<V, MASK, true>(x, at, span, mask);
                sum = sum.add(put(x.add(at), [y.sub(max).mul(c)])[0]);
                at += TILE;
            }
            if let Some(last) = tiles.last {
                let y = load::<V, MASK, false>(x, last + lane, span, mask);
                sum = sum.add(put(x.add(last + lane), [y.sub(max).mul(c)])[0]);
            }
            sum.store(sums.as_mut_ptr().add(lane));
            lane += V::LANES;
        }
        zero::<V>(x, union.from, span.from / TILE * TILE);
        zero::<V>(x, span.to.next_multiple_of(TILE), union.to);
    }
}

/// Writes 2^y to registers a tile apart.
#[inline(always)]
unsafe fn put<V: Vector, const N: usize>(to: *mut V::T, y: [V; N]) -> [V; N] {
    unsafe {
        let p = exp2(y);
        for n in 0..N {
            p[n].store(to.add(n * TILE));
        }
        p
    }
}

/// 2^((old − new)·c): what sums relative to `old` are multiplied by to be relative to `new`.
#[inline(always)]
pub(super) unsafe fn correction<V: Vector>(old: V::T, new: V::T, c: V::T) -> V::T {
    if old == new {
        return V::T::ONE; // also where both are −∞
    }
    if old == V::T::NEG_INFINITY {
        return V::T::ZERO;
    }
    unsafe {
        let mut lanes = [V::T::ZERO; TILE];
        exp2([V::splat((old - new) * c)])[0].store(lanes.as_mut_ptr());
        lanes[0]
    }
}

/// The sum of each row's 16 running sums: 8 sums of n and n + 8, then 4, 2, 1.
///
/// # Panics
/// If there are fewer results than rows.
#[inline(always)]
pub(super) unsafe fn totals<V: Vector>(lanes: &[[V::T; TILE]], to: &mut [V::T]) {
    let rows = lanes.len();
    assert!(to.len() >= rows);
    let mut row = 0;
    while row < rows {
        let height = V::LANES.min(rows - row);
        let mut spare = [[V::T::ZERO; TILE]; TILE];
        // SAFETY: `across` reads V::LANES rows, of which `height` are asked for.
        unsafe {
            let from = if height == V::LANES {
                lanes.as_ptr().add(row)
            } else {
                spare[..height].copy_from_slice(&lanes[row..]);
                spare.as_ptr()
            };
            let sums = across::<V, TILE>(from.cast(), |a, b| a.add(b));
            sums.store_first(to.as_mut_ptr().add(row), height);
        }
        row += height;
    }
}

/// Joins the first N of the 16 numbers of each of `LANES` rows: n with n + N/2, then n with
/// n + N/4, and so on; lane i is row i's.
#[inline(always)]
pub(super) unsafe fn across<V: Vector, const N: usize>(
    rows: *const V::T,
    join: impl Fn(V, V) -> V,
) -> V {
    let mut turned = [V::T::ZERO; TILE * TILE];
    // SAFETY: the caller has the rows; N ≤ 16 columns of 16 numbers fit.
    unsafe {
        let to = turned.as_mut_ptr();
        let mut column = 0;
        while column < N {
            let columns = V::LANES.min(N);
            V::turn(
                rows.add(column),
                TILE as isize,
                columns,
                to.add(column * TILE),
            );
            column += columns;
        }
        let mut columns = [V::splat(V::T::ZERO); N];
        for (n, column) in columns.iter_mut().enumerate() {
            *column = V::load(to.add(n * TILE));
        }
        let mut half = N / 2;
        while half > 0 {
            for n in 0..half {
                columns[n] = join(columns[n], columns[n + half]);
            }
            half /= 2;
        }
        columns[0]
    }
}

#[inline(always)]
unsafe fn zero<V: Vector>(x: *mut V::T, from: usize, to: usize) {
    for at in from..to {
        unsafe { *x.add(at) = V::T::ZERO };
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
