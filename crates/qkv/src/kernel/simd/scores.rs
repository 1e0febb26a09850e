//! Scores of a block: q·k of every query with every key of its span.
//!
//! ```text
//! score[i, j] = fma(q[i,d], k[j,d], … fma(q[i,1], k[j,1], q[i,0]·k[j,0]) …)
//! ```
//!
//! One chain over d in ascending order for each score, whatever tile it is computed in. A tile is
//! some queries times some registers of keys, all held in registers; its keys stay in the first
//! cache while all queries of the block pass.

use super::super::real::Real;
use super::pack::{TILE, packed_len};
use super::rows::Rows;
use super::softmax::Edit;
use super::vector::Vector;
use super::{BLOCK, STRIDE, Span};

/// What to compute.
pub struct Scores<'a, T> {
    /// The queries.
    pub q: Rows<'a, T>,
    /// Which keys of the block each query needs.
    pub spans: &'a [Span],
    /// The packed keys of the block.
    pub k: &'a [T],
    /// What the maxima will take along; its memory is asked for meanwhile.
    pub edit: Edit<'a, T>,
}

/// Writes row i, key j to `out[i·STRIDE + j]` for the keys of the spans, and unspecified numbers
/// to some others of the row.
///
/// # Panics
/// If an argument is shorter than the spans need.
#[inline(always)]
pub(super) unsafe fn run<V: Vector, const R: usize, const N: usize>(
    args: &Scores<'_, V::T>,
    out: &mut [V::T],
) {
    let (rows, width) = (args.q.count(), args.q.width());
    let last = args.spans.iter().map(|span| span.to).max().unwrap_or(0);
    assert!(args.spans.len() == rows && last <= BLOCK);
    assert!(args.k.len() >= packed_len(last, width));
    assert!(out.len() >= rows * STRIDE);
    let vectors = last.div_ceil(V::LANES);
    let groups = vectors.div_ceil(N);
    for group in 0..groups {
        // Of about equal size, since a tile of a single register is slow.
        let end = (vectors * (group + 1) / groups * V::LANES).min(last);
        let group = vectors * group / groups * V::LANES;
        let mut row = 0;
        while row < rows {
            let height = R.min(rows - row);
            let span = Span::union(&args.spans[row..row + height]).within(group, end);
            if !span.is_empty() {
                args.edit.ask(row..row + height, span);
                let first = span.from / V::LANES;
                let vectors = span.to.div_ceil(V::LANES) - first;
                // SAFETY: `height` rows from `row` on exist in q and `out`; the registers of keys
                // end at most at `last` rounded up to a tile, which k holds and STRIDE has room for.
                unsafe {
                    let tile = Tile {
                        q: args
                            .q
                            .pointer()
                            .wrapping_offset(row as isize * args.q.stride()),
                        q_stride: args.q.stride(),
                        width,
                        k: args.k.as_ptr(),
                        first_key: first * V::LANES,
                        out: out.as_mut_ptr().add(row * STRIDE),
                    };
                    // Conditions on constants keep code out that no tile of R x N needs.
                    match vectors {
                        1 => tile.high::<V, R, 1>(height),
                        2 if const { N > 2 } => tile.high::<V, R, 2>(height),
                        3 if const { N > 3 } => tile.high::<V, R, 3>(height),
                        _ => tile.high::<V, R, N>(height),
                    }
                }
            }
            row += height;
        }
    }
}

/// Columns between two tests of the loop.
const UNROLL: usize = 4;

/// Adds column d to all sums of a tile.
#[inline(always)]
unsafe fn step<V: Vector, const R: usize, const N: usize>(
    sums: &mut [[V; N]; R],
    keys: &[*const V::T; N],
    queries: &[*const V::T; R],
    d: usize,
) {
    unsafe {
        let mut k = [V::splat(V::T::ZERO); N];
        for n in 0..N {
            k[n] = V::load(keys[n].add(d * TILE));
        }
        for r in 0..R {
            let q = V::splat(*queries[r].add(d));
            for n in 0..N {
                sums[r][n] = q.fma(k[n], sums[r][n]);
            }
        }
    }
}

/// Where a tile's numbers are.
struct Tile<T> {
    q: *const T,
    q_stride: isize,
    width: usize,
    k: *const T,
    first_key: usize,
    out: *mut T,
}

impl<T: Real> Tile<T> {
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
            let first = self.first_key;
            let mut keys = [self.k; N];
            for n in 0..N {
                let key = first + n * V::LANES;
                keys[n] = self.k.add(key / TILE * TILE * self.width + key % TILE);
            }
            let mut queries = [self.q; R];
            for r in 0..R {
                queries[r] = self.q.wrapping_offset(r as isize * self.q_stride);
            }
            let mut sums = [[V::splat(T::ZERO); N]; R];
            let mut d = 0;
            while d + UNROLL <= self.width {
                for d in d..d + UNROLL {
                    step(&mut sums, &keys, &queries, d);
                }
                d += UNROLL;
            }
            while d < self.width {
                step(&mut sums, &keys, &queries, d);
                d += 1;
            }
            for r in 0..R {
                for n in 0..N {
                    sums[r][n].store(self.out.add(r * STRIDE + first + n * V::LANES));
                }
            }
        }
    }
}
