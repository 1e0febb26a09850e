//! Scores of a block: q·k of every query with every key of its span.
//!
//! ```text
//! score[i, j] = fma(q[i,d], k[j,d], … fma(q[i,1], k[j,1], q[i,0]·k[j,0]) …)
//! ```
//!
//! One chain over d in ascending order for each score, whatever tile it is computed in. A tile is
//! some queries times some registers of keys, all held in registers; its keys stay in the first
//! cache while all queries of the block pass.

use super::super::real::{Real, Stored};
use super::behind::Behind;
use super::edit::Edit;
use super::pack::{TILE, packed_len};
use super::rows::Rows;
use super::softmax::alike;
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
}

/// What to compute with keys that are not packed.
pub struct Unpacked<'a, T: Stored> {
    /// The queries.
    pub q: Rows<'a, T::Real>,
    /// Which keys of the block each query needs.
    pub spans: &'a [Span],
    /// The keys of the block that `k` holds.
    pub keys: Span,
    /// Row n is key `keys.from + n`.
    pub k: Rows<'a, T>,
}

/// Writes row i, key j to `out[i·STRIDE + j]` for the keys of the spans, and unspecified numbers
/// to some others of the row. Where all spans are the same and begin with key 0, the maxima are begun
/// while scores are at hand: of so many keys as are returned, which are whole tiles, with −∞ behind
/// the last key; of none otherwise.
///
/// # Panics
/// If an argument is shorter than the spans need.
#[inline(always)]
pub(super) unsafe fn run<V: Vector, const R: usize, const N: usize>(
    args: &Scores<'_, V::T>,
    out: &mut [V::T],
) -> usize {
    unsafe { all::<V, V, R, N, false>(args, Edit::None, true, out) }
}

/// As [`run`], while the memory of what the maxima would take along is asked for. With `begin`, it is
/// taken along here and the maxima are begun of so many first keys as are returned, which are whole
/// tiles: of none unless all spans are the same, and not of a last tile that is not whole.
///
/// # Panics
/// If an argument is shorter than the spans need.
#[inline(always)]
pub(super) unsafe fn edited<V: Vector, W: Vector<T = V::T>, const R: usize, const N: usize>(
    args: &Scores<'_, V::T>,
    edit: Edit<'_, V::T>,
    begin: bool,
    out: &mut [V::T],
) -> usize {
    unsafe { all::<V, W, R, N, true>(args, edit, begin, out) }
}

/// V makes products, W edits.
#[inline(always)]
unsafe fn all<V: Vector, W: Vector<T = V::T>, const R: usize, const N: usize, const EDITS: bool>(
    args: &Scores<'_, V::T>,
    edit: Edit<'_, V::T>,
    begin: bool,
    out: &mut [V::T],
) -> usize {
    let (rows, width) = (args.q.count(), args.q.width());
    let last = args.spans.iter().map(|span| span.to).max().unwrap_or(0);
    assert!(args.spans.len() == rows && last <= BLOCK);
    assert!(args.k.len() >= packed_len(last, width));
    assert!(out.len() >= rows * STRIDE);
    let vectors = last.div_ceil(V::LANES);
    let groups = vectors.div_ceil(N);
    let begins = begin && last > 0 && args.spans[0].from == 0 && alike(args.spans);
    if begins {
        assert!(edit.reaches(args.spans));
    }
    // Keys that are edited here, whole tiles; the maxima have the others.
    let edited = if begins { last / TILE * TILE } else { 0 };
    let x = out.as_mut_ptr();
    let mut behind = Behind {
        x,
        rows: 0..0,
        keys: Span::default(),
        asks: 0..0,
        next: Span::default(),
        edit,
        at_once: R.div_ceil((width / COLUMNS_AT_ONCE).max(1)),
    };
    let height_of_all = rows.next_multiple_of(R);
    // A line of a mask stays in the first cache until the other queries have passed; a bias has
    // too many.
    let distance = match edit {
        Edit::Mask(..) if begins => height_of_all,
        Edit::Bias(..) if begins => R,
        _ => 0,
    };
    for group in 0..groups {
        // Of about equal size, since a tile of a single register is slow.
        let end = (vectors * (group + 1) / groups * V::LANES).min(last);
        let group = vectors * group / groups * V::LANES;
        let mut row = 0;
        while row < rows {
            let height = R.min(rows - row);
            let span = Span::union(&args.spans[row..row + height]).within(group, end);
            if !span.is_empty() {
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
                        out: x.add(row * STRIDE),
                        keys: if begins && !EDITS { last } else { 0 },
                    };
                    if EDITS {
                        edit.find(row..row + height, span.from);
                        let ask = row + distance;
                        (behind.asks, behind.next) = if ask < height_of_all {
                            (ask..(ask + R).min(rows), span)
                        } else {
                            // Those of the next block follow in memory.
                            let following = Span {
                                from: span.to,
                                to: span.to + span.len(),
                            };
                            let ask = ask - height_of_all;
                            (ask..(ask + R).min(rows), following)
                        };
                    }
                    let next = EDITS.then_some(&mut behind);
                    // Conditions on constants keep code out that no tile of R x N needs.
                    match vectors {
                        1 => tile.high::<V, W, R, 1>(height, next),
                        2 if const { N > 2 } => tile.high::<V, W, R, 2>(height, next),
                        3 if const { N > 3 } => tile.high::<V, W, R, 3>(height, next),
                        _ => tile.high::<V, W, R, N>(height, next),
                    }
                    if EDITS {
                        behind.finish::<W>();
                        behind.rows = row..row + height;
                        behind.keys = Span {
                            from: group,
                            to: end.min(edited),
                        };
                    }
                }
            }
            row += height;
        }
    }
    if EDITS {
        // SAFETY: its rows and keys have scores.
        unsafe { behind.finish::<W>() };
        edited
    } else if begins {
        // Tiles have done so.
        last.next_multiple_of(TILE)
    } else {
        0
    }
}

/// Columns between two tests of the loop.
const UNROLL: usize = 4;

/// Columns between two looks at what else is to be done.
const COLUMNS_AT_ONCE: usize = 8;

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
    /// How many keys the block has, if maxima are to begin; 0 otherwise.
    keys: usize,
}

impl<T: Real> Tile<T> {
    #[inline(always)]
    unsafe fn high<V: Vector<T = T>, W: Vector<T = T>, const R: usize, const N: usize>(
        &self,
        height: usize,
        behind: Option<&mut Behind<'_, T>>,
    ) {
        unsafe {
            match height {
                1 => self.compute::<V, W, 1, N>(None),
                2 => self.compute::<V, W, 2, N>(None),
                3 => self.compute::<V, W, 3, N>(None),
                4 if const { R > 4 } => self.compute::<V, W, 4, N>(None),
                5 if const { R > 5 } => self.compute::<V, W, 5, N>(None),
                _ => self.compute::<V, W, R, N>(behind),
            }
        }
    }

    #[inline(always)]
    unsafe fn compute<V: Vector<T = T>, W: Vector<T = T>, const R: usize, const N: usize>(
        &self,
        behind: Option<&mut Behind<'_, T>>,
    ) {
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
            if let Some(behind) = behind {
                while d + COLUMNS_AT_ONCE <= self.width {
                    let end = d + COLUMNS_AT_ONCE;
                    while d < end {
                        step(&mut sums, &keys, &queries, d);
                        d += 1;
                    }
                    behind.look::<W>();
                }
            }
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
            let end = first + N * V::LANES;
            if self.keys > 0 && self.keys < end {
                for sums in &mut sums {
                    sums[N - 1] = sums[N - 1].only(0, self.keys + V::LANES - end);
                }
            }
            for r in 0..R {
                for n in 0..N {
                    sums[r][n].store(self.out.add(r * STRIDE + first + n * V::LANES));
                }
            }
            if self.keys > 0 {
                self.begin_maxima(&sums);
            }
        }
    }

    /// Goes on with the maxima, which lie behind the rows, and ends the last tile of keys with −∞.
    #[inline(always)]
    unsafe fn begin_maxima<V: Vector<T = T>, const R: usize, const N: usize>(
        &self,
        sums: &[[V; N]; R],
    ) {
        unsafe {
            let nothing = V::splat(T::NEG_INFINITY);
            for r in 0..R {
                let row = self.out.add(r * STRIDE);
                let mut largest = nothing;
                if self.first_key > 0 {
                    largest = V::load(row.add(BLOCK));
                }
                for n in 0..N {
                    largest = sums[r][n].max(largest);
                }
                largest.store(row.add(BLOCK));
                let mut at = self.first_key + N * V::LANES;
                while V::LANES < TILE && at >= self.keys && !at.is_multiple_of(TILE) {
                    nothing.store(row.add(at));
                    at += V::LANES;
                }
            }
        }
    }
}
