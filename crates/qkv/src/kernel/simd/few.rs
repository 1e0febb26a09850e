//! Attention of a few queries over a few keys, in one go.
//!
//! What the stages do, number by number in the same order, without the memory that they exchange:
//! setting that up would take longer than the arithmetic.

use super::super::real::{Real, Stored};
use super::convert::Holds;
use super::logarithm;
use super::pack::TILE;
use super::tiles::{self, MOST_COLUMNS};
use super::vector::OnLines;
use crate::view::{Element, View};
use crate::view_mut::ViewMut;

/// Fewer columns of the output are computed one by one.
const FEW_COLUMNS: usize = 4;

/// Products of a head up to which one score at a time is faster than tiles, or than the stages.
pub const MOST_PRODUCTS: usize = 512;

/// What to compute.
pub struct Few<'a, T: Stored> {
    /// The queries.
    pub q: &'a View<'a, T>,
    /// The keys, of which each query sees all.
    pub k: &'a View<'a, T>,
    /// The values.
    pub v: &'a View<'a, T>,
    /// The exponent is (q·k − max)·c.
    pub c: T::Real,
    /// max·natural is in natural units.
    pub natural: f64,
}

/// Where the numbers of a head are, in rows `stride` apart, whose columns are neighbours.
pub(super) struct Head<T: Stored> {
    pub(super) q: *const T,
    pub(super) q_stride: isize,
    pub(super) k: *const T,
    pub(super) k_stride: isize,
    pub(super) v: *const T,
    pub(super) v_stride: isize,
    pub(super) to: *mut T,
    pub(super) to_stride: isize,
    /// Up to [`TILE`] each, and not 0.
    pub(super) queries: usize,
    pub(super) keys: usize,
    pub(super) head_dim: usize,
    pub(super) width: usize,
    pub(super) c: T::Real,
}

/// Writes the output, and the lse of each row: by tiles, if they suit, or one score at a time.
///
/// # Panics
/// If shapes do not fit, columns are not neighbours, or a head has more than [`TILE`] queries or
/// keys, or none; for tiles, if it has more than [`MOST_COLUMNS`].
#[inline(always)]
pub(super) unsafe fn run<V: Holds<E>, E: Stored<Real = V::T>, const BY_TILES: bool>(
    args: &Few<'_, E>,
    output: &mut ViewMut<'_, E>,
    lse: &mut [f64],
) {
    let (to, shape, to_strides) = output.raw_mut();
    let [batch, heads, queries, width] = shape;
    let [_, kv_heads, keys, head_dim] = args.k.shape();
    // Not as arrays, which the compiler would put together in memory for this.
    let fits = |view: &View<'_, E>, heads: usize, rows: usize, columns: usize| {
        let [a, b, c, d] = view.shape();
        a == batch && b == heads && c == rows && d == columns && view.strides()[3] == 1
    };
    assert!(fits(args.q, heads, queries, head_dim) && to_strides[3] == 1);
    assert!(fits(args.k, kv_heads, keys, head_dim) && fits(args.v, kv_heads, keys, width));
    let group = if heads == kv_heads {
        1 // no division for a small call
    } else {
        heads / kv_heads
    };
    assert!(heads == kv_heads * group && lse.len() == batch * heads * queries);
    assert!((1..=TILE).contains(&queries) && (1..=TILE).contains(&keys));
    let by_tiles = BY_TILES && tiles::suit::<V, E>();
    assert!(!by_tiles || head_dim <= MOST_COLUMNS);
    let mut turned = OnLines(tiles::Turned::uninit());
    let mut rest = lse;
    for b in 0..batch {
        for g in 0..kv_heads {
            for h in g * group..(g + 1) * group {
                let head = Head {
                    q: begin(args.q, b, h),
                    q_stride: args.q.strides()[2],
                    k: begin(args.k, b, g),
                    k_stride: args.k.strides()[2],
                    v: begin(args.v, b, g),
                    v_stride: args.v.strides()[2],
                    to: to.wrapping_offset(offset(to_strides, b, h)),
                    to_stride: to_strides[2],
                    queries,
                    keys,
                    head_dim,
                    width,
                    c: args.c,
                };
                let (lse, others) = rest.split_at_mut(queries);
                rest = others;
                let mut maxima = [V::T::ZERO; TILE];
                // SAFETY: whoever made the views has checked that what they name is inside their
                // data. This function enables the instructions.
                unsafe {
                    if by_tiles {
                        let head = head.cast();
                        if h == g * group {
                            head.turn::<V>(&mut turned.0);
                        }
                        head.by_tiles::<V>(&turned.0, &mut maxima, lse);
                    } else {
                        head.by_score::<V>(&mut maxima, lse);
                    }
                    logarithm::run(lse);
                }
                for (lse, max) in lse.iter_mut().zip(maxima) {
                    *lse += max.to_f64() * args.natural;
                }
            }
        }
    }
}

/// Where a head begins in what it lies in.
#[inline(always)]
fn offset(strides: [isize; 4], b: usize, h: usize) -> isize {
    b as isize * strides[0] + h as isize * strides[1]
}

/// Where a head of a view begins.
#[inline(always)]
fn begin<E: Element>(view: &View<'_, E>, b: usize, h: usize) -> *const E {
    let (data, start) = view.raw();
    let start = data.as_ptr().wrapping_add(start);
    start.wrapping_offset(offset(view.strides(), b, h))
}

impl<E: Stored> Head<E> {
    /// The same of numbers that are what is computed in.
    #[inline(always)]
    fn cast(&self) -> Head<E::Real> {
        debug_assert!(E::IS_REAL);
        Head {
            q: self.q.cast(),
            q_stride: self.q_stride,
            k: self.k.cast(),
            k_stride: self.k_stride,
            v: self.v.cast(),
            v_stride: self.v_stride,
            to: self.to.cast(),
            to_stride: self.to_stride,
            queries: self.queries,
            keys: self.keys,
            head_dim: self.head_dim,
            width: self.width,
            c: self.c,
        }
    }

    /// Computes one score at a time. Writes the rows of the output, and the maximum and sum of each.
    #[inline(always)]
    unsafe fn by_score<V: Holds<E, T = E::Real>>(
        &self,
        maxima: &mut [E::Real; TILE],
        sums: &mut [f64],
    ) {
        for (row, sum) in sums.iter_mut().enumerate() {
            let mut p = OnLines([V::T::ZERO; TILE]);
            // SAFETY: the caller has the rows.
            maxima[row] = unsafe { self.weights::<V>(row, &mut p.0) };
            let total = total(&p.0, self.keys);
            *sum = match total == V::T::ZERO {
                true => f64::NAN, // all scores are −∞: 0/0
                false => total.to_f64(),
            };
            // SAFETY: as above.
            unsafe {
                let factor = V::splat(V::T::from_f64(1.0 / *sum));
                self.weigh_row(row, &p.0[..self.keys], factor);
            }
        }
    }

    /// The weights of a query, and the maximum of its scores.
    #[inline(always)]
    unsafe fn weights<V: Holds<E, T = E::Real>>(&self, row: usize, p: &mut [V::T; TILE]) -> V::T {
        // SAFETY: a register that begins at one of the first 16 numbers ends within them.
        unsafe {
            let q = self.q.offset(row as isize * self.q_stride);
            let (mut max, mut lane) = (V::splat(V::T::NEG_INFINITY), 0);
            while lane < self.keys {
                let here = V::LANES.min(self.keys - lane);
                let mut x = max;
                for key in 0..here {
                    let k = self.k.offset((lane + key) as isize * self.k_stride);
                    let mut score = V::splat(V::T::ZERO);
                    for d in 0..self.head_dim {
                        let (q, k) = ((*q.add(d)).widen(), (*k.add(d)).widen());
                        score = V::splat(q).fma(V::splat(k), score);
                    }
                    max = score.max(max);
                    x = x.before(key, score);
                }
                x.only(0, here).store(p.as_mut_ptr().add(lane));
                lane += V::LANES;
            }
            let mut first = V::T::ZERO;
            max.store_first(&mut first, 1);
            let shift = V::splat(-V::T::MAX).max(max);
            lane = 0;
            while lane < self.keys {
                let y = V::load(p.as_ptr().add(lane)).sub(shift);
                let y = y.mul(V::splat(self.c)).exp2(V::EXP2.as_ptr());
                y.store(p.as_mut_ptr().add(lane));
                lane += V::LANES;
            }
            first
        }
    }

    /// Writes a row of the output.
    #[inline(always)]
    unsafe fn weigh_row<V: Holds<E, T = E::Real>>(&self, row: usize, p: &[V::T], factor: V) {
        unsafe {
            let to = self.to.offset(row as isize * self.to_stride);
            let mut column = 0;
            while column < self.width {
                // A register of memory is not read before what was written to a part of it, as
                // happens from one small call to the next, is in the cache. So very few columns
                // are taken one by one.
                let left = self.width - column;
                let n = if left < FEW_COLUMNS {
                    1
                } else {
                    V::LANES.min(left)
                };
                let mut new = V::splat(V::T::ZERO);
                for (key, &p) in p.iter().enumerate() {
                    let v = self.v.offset(key as isize * self.v_stride).add(column);
                    let v = if n == 1 {
                        V::splat((*v).widen())
                    } else {
                        V::widen_first(v, n)
                    };
                    new = V::splat(p).fma(v, new);
                }
                // +0 for −0, as everywhere.
                let new = new.mul(factor).add(V::splat(V::T::ZERO));
                if n == 1 {
                    new.narrow_first(to.add(column), 1); // a constant makes it a plain store
                } else {
                    new.narrow_first(to.add(column), n);
                }
                column += n;
            }
        }
    }
}

/// The sum of a row's 16 weights, of which those behind the keys are 0: 8 sums of n and n + 8, then
/// 4, 2, 1. Sums with nothing but 0 are left out.
#[inline(always)]
fn total<T: Real>(p: &[T; TILE], keys: usize) -> T {
    let [a, b, c, d, ..] = *p;
    match keys {
        ..=1 => a,
        2 => a + b,
        3..=4 => (a + c) + (b + d),
        _ => {
            let mut sums = *p;
            for half in [8, 4, 2, 1] {
                for lane in 0..half {
                    sums[lane] = sums[lane] + sums[lane + half];
                }
            }
            sums[0]
        }
    }
}
