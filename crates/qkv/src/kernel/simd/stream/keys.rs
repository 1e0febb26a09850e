//! Scores of few queries: keys are turned a line of columns at a time.

use super::super::super::real::{Real, Stored};
use super::super::pack::TILE;
use super::super::rows::Rows;
use super::super::scores::Unpacked;
use super::super::{BLOCK, STRIDE};
use super::{COLUMNS, FEW, Streams, line};
use std::mem::MaybeUninit;

/// Tiles of keys at most that are multiplied at once.
const TILES: usize = 4;

/// Keys that memory is asked for ahead of those being turned.
const AHEAD: isize = 64;

/// Columns of a group of keys, turned.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Group<T>([[T; TILE * COLUMNS]; TILES]);

/// Writes row i, key j to `out[i·STRIDE + j]` for the keys of the spans, and unspecified numbers
/// to some others of the row.
///
/// Up to MOST queries are multiplied at once; N and HALF are registers of keys, whole tiles, for up to
/// four and for more.
///
/// # Panics
/// If an argument is shorter than the spans need, or there are more than [`FEW`] queries.
#[inline(always)]
pub unsafe fn scores<V, E, const N: usize, const HALF: usize, const MOST: usize>(
    args: &Unpacked<'_, E>,
    out: &mut [V::T],
) where
    V: Streams<E>,
    E: Stored<Real = V::T>,
{
    let (rows, slots) = (args.q.count(), args.q.width());
    assert!(args.spans.len() == rows && rows <= FEW);
    assert!(args.keys.to <= BLOCK);
    assert!(args.k.count() >= args.keys.len() && args.k.width().div_ceil(V::DEPTH) == slots);
    assert!(out.len() >= rows * STRIDE);
    let mut row = 0;
    while row < rows {
        let height = MOST.min(rows - row);
        // SAFETY: these queries and keys exist, and `out` has room for them: see above.
        unsafe {
            let q = args.q.part(row..row + height);
            let out = out.as_mut_ptr().add(row * STRIDE);
            match height {
                1 => turn_and_multiply::<V, E, 1, N>(args, q, out),
                2 => turn_and_multiply::<V, E, 2, N>(args, q, out),
                // Conditions on constants keep code out that nothing needs.
                3 | 4 if const { MOST > 2 } => turn_and_multiply::<V, E, 4, N>(args, q, out),
                5 | 6 if const { MOST > 4 } => turn_and_multiply::<V, E, 6, HALF>(args, q, out),
                _ if const { MOST > 4 } => turn_and_multiply::<V, E, 8, HALF>(args, q, out),
                _ => {}
            }
        }
        row += height;
    }
}

/// Keys on their way into registers: columns of a group of them, then those that follow, then the
/// next group.
struct Turning<'a, E> {
    k: Rows<'a, E>,
    /// Keys of a group.
    group: usize,
    /// Numbers of a line that come before a row. Where all rows lie alike, a line is turned at once,
    /// since reading parts of two would be slower by half.
    skew: usize,
    /// The first key and column of what is turned next.
    key: usize,
    d: usize,
    /// What memory is asked for next, if rows have no gaps.
    ahead: *const E,
    /// Rows of a tile that is not whole.
    spare: Spare<E>,
}

#[repr(align(64))]
struct Spare<E>([[E; COLUMNS]; TILE]);

impl<'a, E: Stored> Turning<'a, E> {
    #[inline(always)]
    fn new(k: Rows<'a, E>, group: usize, depth: usize) -> Self {
        let before = k.pointer().addr() % 64 / size_of::<E>();
        let alike = k.stride().cast_unsigned().is_multiple_of(line::<E>());
        Turning {
            ahead: k.pointer().wrapping_offset(AHEAD * k.stride()),
            k,
            group,
            skew: if alike && before.is_multiple_of(depth) {
                before
            } else {
                0
            },
            key: 0,
            d: 0,
            spare: Spare([[E::default(); COLUMNS]; TILE]),
        }
    }

    /// Columns from `d` to the end of their line.
    #[inline(always)]
    fn columns(&self, d: usize) -> usize {
        (line::<E>() - (self.skew + d) % line::<E>()).min(self.k.width() - d)
    }

    /// Turns a tile of the group, if it has so many; keys of another group are asked for meanwhile.
    #[inline(always)]
    unsafe fn turn<V: Streams<E, T = E::Real>>(&mut self, tile: usize, to: *mut Group<V::Turned>) {
        let first = self.key + tile * TILE;
        let count = self
            .k
            .count()
            .min(self.key + self.group)
            .saturating_sub(first)
            .min(TILE);
        if count == 0 {
            return;
        }
        // SAFETY: rows first .. first + count exist, and have columns d .. d + columns; the spare
        // rows are whole.
        unsafe {
            let mut stride = self.k.stride();
            let at = first as isize * stride + self.d as isize;
            let mut from = self.k.pointer().wrapping_offset(at);
            let columns = self.columns(self.d);
            // As many lines as are turned, in the order of memory. Rows without gaps are one long row.
            let (mut ahead, step, lines) = if stride == self.k.width() as isize {
                (
                    self.ahead,
                    line::<E>() as isize,
                    TILE * columns / line::<E>(),
                )
            } else {
                (from.wrapping_offset(AHEAD * stride), stride, TILE)
            };
            if count < TILE {
                for (i, row) in self.spare.0.iter_mut().enumerate().take(count) {
                    V::copy_first(from.wrapping_offset(i as isize * stride), columns, row);
                }
                (from, stride) = (self.spare.0.as_ptr().cast(), COLUMNS as isize);
            }
            // Half of it before and half after, since many at once wait for one another.
            let mut ask = |lines: usize| {
                for _ in 0..lines {
                    V::prefetch(ahead.cast());
                    ahead = ahead.wrapping_offset(step);
                }
            };
            ask(lines / 2);
            V::turn_few(from, stride, columns, (&raw mut (*to).0[tile]).cast());
            ask(lines - lines / 2);
            self.ahead = ahead;
        }
    }

    /// Goes on to the next columns, or keys.
    #[inline(always)]
    fn next(&mut self) {
        self.d += self.columns(self.d);
        if self.d >= self.k.width() {
            self.d = 0;
            self.key += self.group;
            let key = self.key as isize + AHEAD;
            self.ahead = self.k.pointer().wrapping_offset(key * self.k.stride());
        }
    }
}

/// The scores of up to R queries, a group of N registers of keys after the other.
#[inline(always)]
unsafe fn turn_and_multiply<V, E, const R: usize, const N: usize>(
    args: &Unpacked<'_, E>,
    q: Rows<'_, V::T>,
    out: *mut V::T,
) where
    V: Streams<E>,
    E: Stored<Real = V::T>,
{
    unsafe {
        let mut queries = [q.pointer(); R];
        for r in 0..R {
            // In the place of queries that are not there, the last one.
            let row = r.min(q.count() - 1) as isize;
            queries[r] = q.pointer().wrapping_offset(row * q.stride());
        }
        let group = N * V::LANES;
        let mut turned = MaybeUninit::<[Group<V::Turned>; 2]>::uninit();
        if !args.keys.len().is_multiple_of(group) {
            // What has not been turned is multiplied, too.
            turned.write([Group([[V::Turned::default(); TILE * COLUMNS]; TILES]); 2]);
        }
        let mut now = turned.as_mut_ptr().cast::<Group<V::Turned>>();
        let mut next = now.add(1);
        let mut turning = Turning::new(args.k.part(0..args.keys.len()), group, V::DEPTH);
        for tile in 0..group / TILE {
            turning.turn::<V>(tile, now);
        }
        turning.next();
        let part = const { line::<E>() / V::DEPTH / TILES };
        for key in args.keys.range().step_by(group) {
            let mut sums = [[V::splat(V::T::ZERO); N]; R];
            let mut d = 0;
            while d < q.width() {
                let slots = turning.columns(d * V::DEPTH).div_ceil(V::DEPTH);
                let mut at = queries;
                for at in &mut at {
                    *at = at.add(d);
                }
                // By turns, so that the processor does both at once.
                for tile in 0..TILES {
                    if tile < group / TILE {
                        turning.turn::<V>(tile, next);
                    }
                    let c = tile * part;
                    for c in c..(c + part).min(slots) {
                        multiply::<V, E, R, N>(&mut sums, now, &at, c, 0);
                    }
                }
                turning.next();
                std::mem::swap(&mut now, &mut next);
                d += slots;
            }
            // Not up to the count, since an index that is not constant keeps all in memory.
            for r in 0..R {
                for n in 0..N {
                    if r < q.count() && key + n * V::LANES < args.keys.to {
                        sums[r][n].store(out.add(r * STRIDE + key + n * V::LANES));
                    }
                }
            }
        }
    }
}

/// Adds column c + i of a group to all sums.
#[inline(always)]
unsafe fn multiply<V, E, const R: usize, const N: usize>(
    sums: &mut [[V; N]; R],
    turned: *const Group<V::Turned>,
    queries: &[*const V::T; R],
    c: usize,
    i: usize,
) where
    V: Streams<E>,
    E: Stored<Real = V::T>,
{
    unsafe {
        let c = c + i;
        let mut k = [V::splat(V::T::ZERO); N];
        for n in 0..N {
            let lane = n * V::LANES;
            k[n] = V::turned((&raw const (*turned).0[lane / TILE]).cast(), c, lane % TILE);
        }
        for r in 0..R {
            let q = V::splat(*queries[r].add(c));
            for n in 0..N {
                sums[r][n] = q.fma(k[n], sums[r][n]);
            }
        }
    }
}
