//! Scores and weighted values of few queries, from keys and values of 16 bits as they lie in memory.
//!
//! The same numbers as those of `scores` and `values`, by the same chains. But where a key and its
//! value are used by few queries, what counts is their way from memory into registers: keys are
//! turned some columns at a time, while those before are multiplied, and values are widened in
//! registers.

use super::super::real::{Real, Stored};
use super::convert::Holds;
use super::pack::TILE;
use super::rows::Rows;
use super::scores::Unpacked;
use super::values::{Start, Values, sums_stride};
use super::vector::Vector;
use super::{BLOCK, CHAIN, STRIDE, Span};
use half::{bf16, f16};
use std::mem::MaybeUninit;

/// Queries at most.
pub const FEW: usize = 8;

/// Columns of keys that are turned at once: a line of memory.
pub(super) const COLUMNS: usize = 32;

/// Tiles of keys at most that are multiplied at once.
const TILES: usize = 4;

/// Keys that memory is asked for ahead of those being turned: the next group.
const KEYS_AHEAD: isize = (TILES * TILE) as isize;

/// Rows of values that memory is asked for ahead: the next block, since its keys come before.
const ROWS_AHEAD: isize = BLOCK as isize;

/// Registers of columns of a tile of values at most.
const REGISTERS: usize = 4;

/// A register that is filled from numbers that are not laid out for it.
///
/// `unsafe` as the methods of [`Vector`] are.
pub(super) trait Streams<E: Stored<Real = Self::T>>: Holds<E> {
    /// What a turned number is.
    type Turned: Copy + Default;
    /// Turns [`COLUMNS`] columns of [`TILE`] rows, which must be readable, to as many numbers.
    unsafe fn turn_few(from: *const E, stride: isize, to: *mut Self::Turned);
    /// The place of a column, which is [`Vector::DEPTH`] columns of the rows, of `LANES` of these
    /// rows from `lane` on.
    unsafe fn turned(from: *const Self::Turned, column: usize, lane: usize) -> Self;
    /// Copies the first `n` columns of a row, with zeros behind them.
    unsafe fn copy_first(from: *const E, n: usize, to: &mut [E; COLUMNS]);
    /// `LANES` columns of the first [`Vector::DEPTH`] of the rows, as a factor for weights.
    unsafe fn values(rows: [*const E; 2]) -> Self;
    /// The first `n ≤ LANES` columns, zeros behind them; the rest of memory is not touched.
    unsafe fn values_first(rows: [*const E; 2], n: usize) -> Self;
}

/// Registers whose turned numbers have been widened.
macro_rules! widened {
    ($v:ty, $e:ty) => {
        impl Streams<$e> for $v {
            type Turned = f32;
            #[inline(always)]
            unsafe fn turn_few(from: *const $e, stride: isize, to: *mut f32) {
                for lane in (0..TILE).step_by(Self::LANES) {
                    for d in (0..COLUMNS).step_by(Self::LANES) {
                        unsafe {
                            let from = from.offset(lane as isize * stride + d as isize);
                            let to = to.add(d * TILE + lane);
                            <$v as Holds<$e>>::turn_wide(from, stride, Self::LANES, to);
                        }
                    }
                }
            }
            #[inline(always)]
            unsafe fn turned(from: *const f32, column: usize, lane: usize) -> Self {
                unsafe { Self::load(from.add(column * TILE + lane)) }
            }
            #[inline(always)]
            unsafe fn copy_first(from: *const $e, n: usize, to: &mut [$e; COLUMNS]) {
                to.fill(<$e>::default());
                unsafe { std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), n) }
            }
            #[inline(always)]
            unsafe fn values(rows: [*const $e; 2]) -> Self {
                unsafe { Self::widen(rows[0]) }
            }
            #[inline(always)]
            unsafe fn values_first(rows: [*const $e; 2], n: usize) -> Self {
                unsafe { Self::widen_first(rows[0], n) }
            }
        }
    };
}
widened!(super::portable::Four<f32>, f16);
widened!(super::portable::Four<f32>, bf16);
#[cfg(target_arch = "x86_64")]
widened!(super::avx2::F32x8, f16);
#[cfg(target_arch = "x86_64")]
widened!(super::avx2::F32x8, bf16);

/// Registers whose turned numbers stay as short as they were.
#[cfg(target_arch = "x86_64")]
macro_rules! halves {
    ($e:ty, $widen:ident) => {
        impl Streams<$e> for super::avx512::F32x16 {
            type Turned = u16;
            #[inline(always)]
            unsafe fn turn_few(from: *const $e, stride: isize, to: *mut u16) {
                unsafe { super::avx512::turn_halves(from.cast(), stride, to) }
            }
            #[inline(always)]
            unsafe fn copy_first(from: *const $e, n: usize, to: &mut [$e; COLUMNS]) {
                unsafe { super::avx512::copy_halves(from.cast(), n, to.as_mut_ptr().cast()) }
            }
            #[inline(always)]
            unsafe fn turned(from: *const u16, column: usize, _: usize) -> Self {
                let at = column / 16 * 256 + column % 8 * 32 + column % 16 / 8 * 16;
                unsafe { Self::$widen(from.add(at)) }
            }
            #[inline(always)]
            unsafe fn values(rows: [*const $e; 2]) -> Self {
                unsafe { <Self as Holds<$e>>::widen(rows[0]) }
            }
            #[inline(always)]
            unsafe fn values_first(rows: [*const $e; 2], n: usize) -> Self {
                unsafe { <Self as Holds<$e>>::widen_first(rows[0], n) }
            }
        }
    };
}
#[cfg(target_arch = "x86_64")]
halves!(f16, widen_f16);
#[cfg(target_arch = "x86_64")]
halves!(bf16, widen_bf16);

/// The columns of a group of keys.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Group<T>([[T; TILE * COLUMNS]; TILES]);

/// Writes row i, key j to `out[i·STRIDE + j]` for the keys of the spans, and unspecified numbers
/// to some others of the row.
///
/// N and HALF are registers of keys for up to four and for more queries.
///
/// # Panics
/// If an argument is shorter than the spans need, or there are more than [`FEW`] queries.
#[inline(always)]
pub(super) unsafe fn scores<V, E, const N: usize, const HALF: usize>(
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
        let height = if HALF < N { rows } else { (rows - row).min(4) };
        // SAFETY: these queries and keys exist, and `out` has room for them: see above.
        unsafe {
            let q = args.q.part(row..row + height);
            let out = out.as_mut_ptr().add(row * STRIDE);
            match height {
                1 => turn_and_multiply::<V, E, 1, N>(args, q, out),
                2 => turn_and_multiply::<V, E, 2, N>(args, q, out),
                3 | 4 => turn_and_multiply::<V, E, 4, N>(args, q, out),
                5 | 6 if const { HALF < N } => turn_and_multiply::<V, E, 6, HALF>(args, q, out),
                _ if const { HALF < N } => turn_and_multiply::<V, E, 8, HALF>(args, q, out),
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
    fn new(k: Rows<'a, E>, group: usize) -> Self {
        Turning {
            ahead: k.pointer().wrapping_offset(KEYS_AHEAD * k.stride()),
            k,
            group,
            key: 0,
            d: 0,
            spare: Spare([[E::default(); COLUMNS]; TILE]),
        }
    }

    /// Turns a tile of the group, if it has so many; its rows are then asked for in another group.
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
            // The lines of as many rows as a tile has, in the order of memory. Rows without gaps
            // are one long row.
            let (mut ahead, step) = if stride == self.k.width() as isize {
                (self.ahead, COLUMNS as isize)
            } else {
                (from.wrapping_offset(KEYS_AHEAD * stride), stride)
            };
            let columns = COLUMNS.min(self.k.width() - self.d);
            if count < TILE || columns < COLUMNS {
                for (i, row) in self.spare.0.iter_mut().enumerate().take(count) {
                    V::copy_first(from.wrapping_offset(i as isize * stride), columns, row);
                }
                (from, stride) = (self.spare.0.as_ptr().cast(), COLUMNS as isize);
            }
            // Half of it before and half after, since many at once wait for one another.
            let mut ask = || {
                for _ in 0..TILE / 2 {
                    V::prefetch(ahead.cast());
                    ahead = ahead.wrapping_offset(step);
                }
            };
            ask();
            V::turn_few(from, stride, (&raw mut (*to).0[tile]).cast());
            ask();
            self.ahead = ahead;
        }
    }

    /// Goes on to the next columns, or keys.
    #[inline(always)]
    fn next(&mut self) {
        self.d += COLUMNS;
        if self.d >= self.k.width() {
            self.d = 0;
            self.key += self.group;
            let key = self.key as isize + KEYS_AHEAD;
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
        let mut turning = Turning::new(args.k.part(0..args.keys.len()), group);
        for tile in 0..group / TILE {
            turning.turn::<V>(tile, now);
        }
        turning.next();
        let (slots, part) = (COLUMNS / V::DEPTH, COLUMNS / V::DEPTH / TILES);
        for key in args.keys.range().step_by(group) {
            let mut sums = [[V::splat(V::T::ZERO); N]; R];
            for d in (0..q.width()).step_by(slots) {
                let slots = slots.min(q.width() - d);
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
                    if c + part <= slots {
                        for i in 0..part {
                            multiply::<V, E, R, N>(&mut sums, now, &at, c, i);
                        }
                    } else {
                        for c in c..slots {
                            multiply::<V, E, R, N>(&mut sums, now, &at, c, 0);
                        }
                    }
                }
                turning.next();
                std::mem::swap(&mut now, &mut next);
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

/// Updates `sums[i·sums_stride(width) + c]` for every query of `spans`, as `values` does; `args.v`
/// has a row a key. Tiles are of up to R queries.
///
/// # Panics
/// If an argument is shorter than the spans need, or a chain is to go on.
#[inline(always)]
pub(super) unsafe fn values<V, E, const R: usize>(args: &Values<'_, V::T, E>, sums: &mut [V::T])
where
    V: Streams<E>,
    E: Stored<Real = V::T>,
{
    let (rows, width) = (args.spans.len(), args.v.width());
    let stride = sums_stride(width);
    assert!(args.p.len() >= rows * STRIDE && args.keys.to <= BLOCK);
    assert!(args.v.count() >= args.keys.len());
    assert!(sums.len() >= rows * stride);
    assert!(match args.start {
        Start::Times(factors) => factors.len() >= rows,
        Start::AsTheyAre => false,
        Start::Zero | Start::Plus => true,
    });
    let vectors = width.div_ceil(V::LANES);
    let passes = vectors.div_ceil(REGISTERS);
    let tiles = rows.div_ceil(R);
    for pass in 0..passes {
        let (first, end) = (vectors * pass / passes, vectors * (pass + 1) / passes);
        for tile in 0..tiles {
            let (row, next) = (rows * tile / tiles, rows * (tile + 1) / tiles);
            let span = Span::union(&args.spans[row..next]).within(args.keys.from, args.keys.to);
            let tile = Tile {
                keys: args.keys,
                span,
                p: args.p[row * STRIDE..].as_ptr(),
                v: args.v.pointer().wrapping_add(first * V::LANES),
                v_stride: args.v.stride(),
                last: width.min(end * V::LANES) - (end - 1) * V::LANES,
                start: match args.start {
                    Start::Times(factors) => Start::Times(&factors[row..]),
                    start => start,
                },
                sums: sums[row * stride + first * V::LANES..].as_mut_ptr(),
                sums_stride: stride,
            };
            // SAFETY: the tile's queries, keys and columns exist: see the assertions above; its
            // last register loads only the columns that there are, and `sums` has room for all.
            unsafe {
                match end - first {
                    1 => tile.high::<V, R, 1>(next - row),
                    2 => tile.high::<V, R, 2>(next - row),
                    3 => tile.high::<V, R, 3>(next - row),
                    _ => tile.high::<V, R, REGISTERS>(next - row),
                }
            }
        }
    }
}

/// Where a tile's numbers are.
struct Tile<'a, T, E> {
    /// The keys that `v` begins and ends with, and those of them that the queries use.
    keys: Span,
    span: Span,
    p: *const T,
    v: *const E,
    v_stride: isize,
    /// Columns in the last register.
    last: usize,
    start: Start<'a, T>,
    sums: *mut T,
    sums_stride: usize,
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
            let zeros = [E::default(); REGISTERS * TILE];
            let depth = V::DEPTH;
            let chain = CHAIN / depth;
            let mut start = self.start;
            let mut slot = self.span.from / depth;
            let end = if self.span.is_empty() {
                slot
            } else {
                self.span.to.div_ceil(depth)
            };
            loop {
                let chain_end = ((slot / chain + 1) * chain).min(end);
                let mut sums = [[V::splat(T::ZERO); N]; R];
                while slot < chain_end {
                    let rows = if depth == 1 {
                        let key = (slot - self.keys.from) as isize;
                        [self.v.wrapping_offset(key * self.v_stride); 2]
                    } else {
                        [0, 1].map(|i| self.row(slot * depth + i, zeros.as_ptr()))
                    };
                    for row in &rows[..depth] {
                        let ahead = row.wrapping_offset(ROWS_AHEAD * self.v_stride);
                        for n in (0..N).step_by(64 / (V::LANES * size_of::<E>())) {
                            V::prefetch(ahead.wrapping_add(n * V::LANES).cast());
                        }
                    }
                    let mut v = [V::splat(T::ZERO); N];
                    for n in 0..N - 1 {
                        v[n] = V::values(rows.map(|row| row.add(n * V::LANES)));
                    }
                    let last = rows.map(|row| row.add((N - 1) * V::LANES));
                    v[N - 1] = V::values_first(last, self.last);
                    for r in 0..R {
                        let p = V::splat(*self.p.add(r * STRIDE + slot));
                        for n in 0..N {
                            sums[r][n] = p.fma(v[n], sums[r][n]);
                        }
                    }
                    slot += 1;
                }
                if start.adds() {
                    for r in 0..R {
                        let factor: V = start.factor(r);
                        for n in 0..N {
                            let before = V::load(self.at::<V>(r, n));
                            sums[r][n] = before.mul(factor).add(sums[r][n]);
                        }
                    }
                }
                for r in 0..R {
                    for n in 0..N {
                        sums[r][n].store(self.at::<V>(r, n));
                    }
                }
                if slot >= end {
                    return;
                }
                start = Start::Plus;
            }
        }
    }

    /// Register n of the sums of a query.
    #[inline(always)]
    fn at<V: Vector<T = T>>(&self, query: usize, n: usize) -> *mut T {
        self.sums
            .wrapping_add(query * self.sums_stride + n * V::LANES)
    }
}
