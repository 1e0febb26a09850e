//! Weighted values of few queries: a few rows pass all queries before the next ones, so that memory
//! is read once and in its order.

use super::super::super::real::{Real, Stored};
use super::super::pack::TILE;
use super::super::values::{Start, Values, sums_stride};
use super::super::vector::Vector;
use super::super::{BLOCK, CHAIN, STRIDE, Span};
use super::{FEW, Streams, line};

/// Rows of values that memory is asked for ahead: half of them are of the next block, whose keys
/// come before.
const AHEAD: isize = BLOCK as isize / 2;

/// Bytes of values that pass all queries at a time: they stay in the first cache so long.
const BYTES_AT_ONCE: usize = 16 << 10;

/// The fewest keys of them.
const KEYS_AT_ONCE: usize = 16;

/// Registers of columns of a tile at most.
const MOST_REGISTERS: usize = 8;

/// Updates `sums[i·sums_stride(width) + c]` for every query of `spans`, as `values` does; `args.v`
/// has a row a key. Tiles are of up to R queries times N registers of columns; `unfinished` holds
/// their chains between two turns.
///
/// # Panics
/// If an argument is shorter than the spans need, or a chain is to go on.
#[inline(always)]
pub unsafe fn values<V, E, const R: usize, const N: usize>(
    args: &Values<'_, V::T, E>,
    unfinished: &mut [V::T],
    sums: &mut [V::T],
) where
    V: Streams<E>,
    E: Stored<Real = V::T>,
{
    let (rows, width) = (args.spans.len(), args.v.width());
    let stride = sums_stride(width);
    assert!(rows <= FEW && args.p.len() >= rows * STRIDE && args.keys.to <= BLOCK);
    assert!(args.v.count() >= args.keys.len());
    assert!(sums.len() >= rows * stride && unfinished.len() >= rows * stride);
    assert!(match args.start {
        Start::Times(factors) => factors.len() >= rows,
        Start::AsTheyAre => false,
        Start::Zero | Start::Plus => true,
    });
    let span = Span::union(args.spans).within(args.keys.from, args.keys.to);
    let (from, to) = (span.from / V::DEPTH, span.to.div_ceil(V::DEPTH));
    let chain_slots = CHAIN / V::DEPTH;
    let vectors = width.div_ceil(V::LANES);
    let (groups, heights) = (vectors.div_ceil(N), rows.div_ceil(R));
    let tiles = groups * heights;
    let keys_at_once = if tiles == 1 {
        CHAIN
    } else {
        let keys = BYTES_AT_ONCE / (width * size_of::<E>()).max(1);
        keys.clamp(KEYS_AT_ONCE, CHAIN)
    };
    let flat = args.v.stride() == width as isize;
    let mut start = args.start;
    let mut slot = from;
    while slot < to {
        let chain = Span {
            from: slot,
            to: ((slot / chain_slots + 1) * chain_slots).min(to),
        };
        while slot < chain.to {
            let now = Span {
                from: slot,
                to: (slot + keys_at_once / V::DEPTH).min(chain.to),
            };
            slot = now.to;
            let key = (now.from * V::DEPTH) as isize - args.keys.from as isize;
            let rows_ahead = (args.v.pointer()).wrapping_offset((key + AHEAD) * args.v.stride());
            let count = now.len() * V::DEPTH;
            if flat {
                // SAFETY: asking never faults.
                unsafe { find_pages::<V>(rows_ahead.addr(), count * width * size_of::<E>()) };
            }
            for group in 0..groups {
                let (first, end) = (vectors * group / groups, vectors * (group + 1) / groups);
                for tile in 0..heights {
                    let (row, next) = (rows * tile / heights, rows * (tile + 1) / heights);
                    let column = first * V::LANES;
                    let at = row * stride + column;
                    // Each tile asks for a share of as many rows, in the order of memory, if they have
                    // no gaps; the first queries' tile for its columns otherwise.
                    let (ahead, lines, step) = if flat {
                        let index = group * heights + tile;
                        let share = |index| width.div_ceil(line::<E>()) * index / tiles;
                        let lines = share(index + 1) - share(index);
                        let ahead = rows_ahead.wrapping_add(count * share(index) * line::<E>());
                        (ahead, lines, (lines * line::<E>()) as isize)
                    } else if tile == 0 {
                        let lines = ((end - first) * V::LANES).div_ceil(line::<E>());
                        (rows_ahead.wrapping_add(column), lines, args.v.stride())
                    } else {
                        (rows_ahead, 0, 0)
                    };
                    // SAFETY: the tile's queries, keys and columns exist: see the assertions above;
                    // its last register loads only the columns that there are, and `sums` and
                    // `unfinished` have room for all.
                    unsafe {
                        let tile = Tile {
                            keys: args.keys,
                            slots: now,
                            chain,
                            p: args.p[row * STRIDE..].as_ptr(),
                            v: args.v.pointer().wrapping_add(column),
                            v_stride: args.v.stride(),
                            last: width.min(end * V::LANES) - (end - 1) * V::LANES,
                            start: match start {
                                Start::Times(factors) => Start::Times(&factors[row..]),
                                start => start,
                            },
                            unfinished: unfinished[at..].as_mut_ptr(),
                            sums: sums[at..].as_mut_ptr(),
                            stride,
                            ahead,
                            step,
                            lines,
                        };
                        match end - first {
                            1 => tile.high::<V, R, 1>(next - row),
                            2 => tile.high::<V, R, 2>(next - row),
                            3 => tile.high::<V, R, 3>(next - row),
                            4 => tile.high::<V, R, 4>(next - row),
                            // Conditions on constants keep code out that no tile of R x N needs.
                            5 if const { N > 4 } => tile.high::<V, R, 5>(next - row),
                            6 if const { N > 4 } => tile.high::<V, R, 6>(next - row),
                            7 if const { N > 4 } => tile.high::<V, R, 7>(next - row),
                            _ => tile.high::<V, R, N>(next - row),
                        }
                    }
                }
            }
        }
        start = Start::Plus;
    }
}

/// Where a group of pages begins in so many bytes, asks for a line of each page of the group after
/// it: the processor looks for the pages side by side, and needs not wait for each when their other
/// lines are asked for.
#[inline(always)]
unsafe fn find_pages<V: Vector>(from: usize, bytes: usize) {
    const PAGE: usize = 4096;
    const GROUP: usize = 8 * PAGE;
    let begin = from.next_multiple_of(GROUP);
    if begin < from.wrapping_add(bytes) {
        for page in 0..GROUP / PAGE {
            let at = std::ptr::without_provenance(begin + GROUP + page * PAGE);
            unsafe { V::prefetch(at) };
        }
    }
}

/// Where a tile's numbers are.
struct Tile<'a, T, E> {
    /// The keys that `v` begins and ends with.
    keys: Span,
    /// What is weighed now, and the chain that it is part of.
    slots: Span,
    chain: Span,
    p: *const T,
    v: *const E,
    v_stride: isize,
    /// Columns in the last register.
    last: usize,
    start: Start<'a, T>,
    unfinished: *mut T,
    sums: *mut T,
    /// Distance between two queries of these two.
    stride: usize,
    /// Lines that are asked for with each row, and where they are.
    ahead: *const E,
    step: isize,
    lines: usize,
}

impl<T: Real, E: Stored<Real = T>> Tile<'_, T, E> {
    #[inline(always)]
    unsafe fn high<V: Streams<E, T = T>, const R: usize, const N: usize>(&self, height: usize) {
        unsafe {
            match height {
                1 => self.compute::<V, 1, N>(),
                2 if const { R > 1 } => self.compute::<V, 2, N>(),
                3 if const { R > 2 } => self.compute::<V, 3, N>(),
                _ => self.compute::<V, R, N>(),
            }
        }
    }

    /// The row of a key, or zeros where it is not there.
    #[inline(always)]
    fn row(&self, key: usize, zeros: *const E) -> *const E {
        if key < self.keys.from || key >= self.keys.to {
            return zeros;
        }
        self.v
            .wrapping_offset((key - self.keys.from) as isize * self.v_stride)
    }

    #[inline(always)]
    unsafe fn compute<V: Streams<E, T = T>, const R: usize, const N: usize>(&self) {
        unsafe {
            let zeros = [E::default(); MOST_REGISTERS * TILE];
            let mut ahead = self.ahead;
            let mut sums = [[V::splat(T::ZERO); N]; R];
            if self.slots.from > self.chain.from {
                for r in 0..R {
                    for n in 0..N {
                        sums[r][n] = V::load(self.unfinished.add(r * self.stride + n * V::LANES));
                    }
                }
            }
            for slot in self.slots.range() {
                let rows = if const { V::DEPTH == 1 } {
                    let key = (slot - self.keys.from) as isize;
                    [self.v.wrapping_offset(key * self.v_stride); 2]
                } else {
                    [0, 1].map(|i| self.row(slot * V::DEPTH + i, zeros.as_ptr()))
                };
                for _ in 0..V::DEPTH {
                    for i in 0..self.lines {
                        V::prefetch(ahead.wrapping_add(i * line::<E>()).cast());
                    }
                    ahead = ahead.wrapping_offset(self.step);
                }
                let mut p = [V::splat(T::ZERO); R];
                for r in 0..R {
                    p[r] = V::splat(*self.p.add(r * STRIDE + slot));
                }
                // Column by column, since a tile of 4 x 8 sums leaves registers for nothing else.
                for n in 0..N {
                    let at = rows.map(|row| row.add(n * V::LANES));
                    let v = if n < N - 1 {
                        V::values(at)
                    } else {
                        V::values_first(at, self.last)
                    };
                    for r in 0..R {
                        sums[r][n] = p[r].fma(v, sums[r][n]);
                    }
                }
            }
            let mut to = self.unfinished;
            if self.slots.to == self.chain.to {
                to = self.sums;
                if self.start.adds() {
                    for r in 0..R {
                        let factor: V = self.start.factor(r);
                        for n in 0..N {
                            let before = V::load(to.add(r * self.stride + n * V::LANES));
                            sums[r][n] = before.mul(factor).add(sums[r][n]);
                        }
                    }
                }
            }
            for r in 0..R {
                for n in 0..N {
                    sums[r][n].store(to.add(r * self.stride + n * V::LANES));
                }
            }
        }
    }
}
