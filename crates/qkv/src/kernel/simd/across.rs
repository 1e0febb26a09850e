//! Sums over the queries of a block, for each key: what weights and gradients bring to dV and dK.
//!
//! ```text
//! chain[j] = fma(p[i,j], row[i], chain[j]) for each query i, ascending, from 0
//! sum[j]   = sum[j] + chain[j]
//! ```
//!
//! or with [`Across::chained`] the chain goes on from what is there.

use super::rows::Rows;
use super::values::sums_stride;
use super::vector::Vector;
use super::{BLOCK, STRIDE, Span};

/// What to compute.
pub struct Across<'a, T> {
    /// Query i, key j at `p[i·STRIDE + j]`; 0 for keys that a query drops, inside `keys`.
    pub p: &'a [T],
    /// Which keys of the block each query uses.
    pub spans: &'a [Span],
    /// The keys to sum for.
    pub keys: Span,
    /// Row i belongs to query i.
    pub rows: Rows<'a, T>,
    /// Whether one chain goes through what is there and all queries, instead of one from 0 that is
    /// added to it.
    pub chained: bool,
}

/// Adds to `sums[j·sums_stride(width) + c]` for every key j of the block in `keys`.
///
/// # Panics
/// If an argument is shorter than that needs.
#[inline(always)]
pub(super) unsafe fn run<V: Vector, const R: usize, const N: usize>(
    args: &Across<'_, V::T>,
    sums: &mut [V::T],
) {
    let (queries, width, keys) = (args.spans.len(), args.rows.width(), args.keys);
    let stride = sums_stride(width);
    assert!(keys.to <= BLOCK && args.rows.count() >= queries);
    assert!(args.p.len() >= queries * STRIDE && sums.len() >= keys.to * stride);
    let vectors = width.div_ceil(V::LANES);
    let passes = vectors.div_ceil(N);
    let mut key = keys.from;
    while key < keys.to {
        let height = R.min(keys.to - key);
        let sees = |span: &Span| span.from < key + height && key < span.to;
        let first = args.spans.iter().position(sees).unwrap_or(queries);
        let end = args.spans.iter().rposition(sees).map_or(first, |i| i + 1);
        for pass in 0..passes {
            let (from, to) = (vectors * pass / passes, vectors * (pass + 1) / passes);
            // SAFETY: the tile's queries, keys and columns exist: see the assertions above; its
            // last register loads only the columns that there are, and `sums` has room for all.
            unsafe {
                let tile = Tile {
                    p: args.p.as_ptr().add(first * STRIDE + key),
                    rows: args.rows.pointer().wrapping_offset(
                        first as isize * args.rows.stride() + (from * V::LANES) as isize,
                    ),
                    stride: args.rows.stride(),
                    queries: end - first,
                    last: (width - from * V::LANES).min((to - from) * V::LANES)
                        - (to - from - 1) * V::LANES,
                    sums: sums.as_mut_ptr().add(key * stride + from * V::LANES),
                    sums_stride: stride,
                    chained: args.chained,
                };
                match to - from {
                    1 => tile.high::<V, R, 1>(height),
                    2 if const { N > 2 } => tile.high::<V, R, 2>(height),
                    3 if const { N > 3 } => tile.high::<V, R, 3>(height),
                    _ => tile.high::<V, R, N>(height),
                }
            }
        }
        key += height;
    }
}

/// Where a tile's numbers are.
struct Tile<T> {
    p: *const T,
    rows: *const T,
    stride: isize,
    queries: usize,
    /// Columns in the last register.
    last: usize,
    sums: *mut T,
    sums_stride: usize,
    chained: bool,
}

impl<T: super::super::real::Real> Tile<T> {
    #[inline(always)]
    unsafe fn high<V: Vector<T = T>, const R: usize, const N: usize>(&self, height: usize) {
        unsafe {
            match height {
                1 => self.compute::<V, 1, N>(),
                2 => self.compute::<V, 2, N>(),
                3 => self.compute::<V, 3, N>(),
                4 if const { R > 4 } => self.compute::<V, 4, N>(),
                5 if const { R > 5 } => self.compute::<V, 5, N>(),
                _ => self.compute::<V, R, N>(),
            }
        }
    }

    #[inline(always)]
    unsafe fn compute<V: Vector<T = T>, const R: usize, const N: usize>(&self) {
        unsafe {
            let mut sums = [[V::splat(T::ZERO); N]; R];
            if self.chained {
                for r in 0..R {
                    for n in 0..N {
                        sums[r][n] = V::load(self.sums.add(r * self.sums_stride + n * V::LANES));
                    }
                }
            }
            let (mut p, mut row) = (self.p, self.rows);
            for _ in 0..self.queries {
                let mut x = [V::splat(T::ZERO); N];
                for n in 0..N - 1 {
                    x[n] = V::load(row.add(n * V::LANES));
                }
                x[N - 1] = V::load_first(row.add((N - 1) * V::LANES), self.last);
                for r in 0..R {
                    let p = V::splat(*p.add(r));
                    for n in 0..N {
                        sums[r][n] = p.fma(x[n], sums[r][n]);
                    }
                }
                p = p.wrapping_add(STRIDE);
                row = row.wrapping_offset(self.stride);
            }
            for r in 0..R {
                for n in 0..N {
                    let to = self.sums.add(r * self.sums_stride + n * V::LANES);
                    let mut sum = sums[r][n];
                    if !self.chained {
                        sum = V::load(to).add(sum);
                    }
                    sum.store(to);
                }
            }
        }
    }
}
