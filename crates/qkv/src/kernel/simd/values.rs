//! The weighted sum of values of a block.
//!
//! ```text
//! new[i] = fma(p[i,j], v[j], new[i]) for each key j of a chain, ascending, from 0
//! sum[i] = correction[i]·sum[i] + new[i], without the correction from the second chain on
//! ```
//!
//! A chain is half a block and begins with 0, so that its rounding goes by its own size: the error
//! is a fraction of that of one long chain.
//!
//! A tile is some queries times some registers of columns, held in registers while its keys pass.
//! Where the last register would be half empty, two queries share it.

use super::super::real::{Real, Stored};
use super::asks::Asks;
use super::convert::Holds;
use super::meanwhile::{KEYS_AT_ONCE, Meanwhile};
use super::pack::TILE;
use super::rows::Rows;
use super::shared::RowsMut;
use super::softmax::{Left, Softmax};
use super::vector::Vector;
use super::{BLOCK, CHAIN, STRIDE, Span};

/// What to compute.
pub struct Values<'a, T, E = T> {
    /// Row i, key j at `p[i·STRIDE + j]`; 0 for a dropped key inside the union of the spans of a
    /// tile of queries.
    pub p: &'a [T],
    /// Which keys of the block each query uses.
    pub spans: &'a [Span],
    /// The keys of the block that `v` holds.
    pub keys: Span,
    /// Row n is key `keys.from + n`; where products sum two, `keys.from` is even, and the row those
    /// two keys from `keys.from + 2·n` on.
    pub v: Rows<'a, E>,
    /// What becomes of the sums so far.
    pub start: Start<'a, T>,
}

/// What becomes of the sums so far.
#[derive(Clone, Copy)]
pub enum Start<'a, T> {
    /// Nothing, whatever the memory holds.
    Zero,
    /// They are multiplied by one factor a query, then the first chain's are added.
    Times(&'a [T]),
    /// The first chain's are added.
    Plus,
    /// They are part of a chain that goes on with all keys.
    AsTheyAre,
}

impl<T: Real> Start<'_, T> {
    /// Whether there are sums that the new ones are added to.
    #[inline(always)]
    pub(super) fn adds(&self) -> bool {
        matches!(self, Start::Times(_) | Start::Plus)
    }

    /// What the sums of a query, which must be one of those, are multiplied by before.
    #[inline(always)]
    pub(super) unsafe fn factor<V: Vector<T = T>>(&self, query: usize) -> V {
        unsafe {
            V::splat(match self {
                Start::Times(factors) => *factors.get_unchecked(query),
                _ => T::ONE,
            })
        }
    }
}

/// Distance between the sums of two queries.
pub fn sums_stride(width: usize) -> usize {
    width.next_multiple_of(16)
}

/// Updates `sums[i·sums_stride(width) + c]` for every query of `spans`.
///
/// With `softmax`, whose maxima are known, its exponentials take the place of `args.p`: while the
/// values of one tile of queries are weighed, the exponentials of the next one are computed on what
/// the processor has besides units for multiply-adds, and memory is asked for.
///
/// # Panics
/// If an argument is shorter than the spans need.
#[inline(always)]
pub(super) unsafe fn run<V: Vector, const R: usize, const N: usize>(
    softmax: Option<&mut Softmax<'_, V::T>>,
    args: &Values<'_, V::T>,
    sums: &mut [V::T],
    mut asks: Asks,
) {
    let (left, p) = match softmax {
        Some(softmax) => {
            assert!(softmax.spans.len() >= args.spans.len());
            let left = Left::of::<V>(softmax);
            (Some(left), left.x())
        }
        None => {
            assert!(args.p.len() >= args.spans.len() * STRIDE);
            (None, args.p.as_ptr())
        }
    };
    let (rows, width) = (args.spans.len(), args.v.width());
    let stride = sums_stride(width);
    assert!(args.keys.to <= BLOCK && args.keys.from.is_multiple_of(V::DEPTH));
    assert!(args.v.count() >= args.keys.len().div_ceil(V::DEPTH));
    assert!(sums.len() >= rows * stride);
    if let Start::Times(factors) = args.start {
        assert!(factors.len() >= rows);
    }
    let vectors = width.div_ceil(V::LANES);
    if let Some(left) = left.filter(|_| vectors == 0) {
        // SAFETY: `left` has as many rows.
        unsafe { left.part::<V>(0..rows).all::<V>() };
    }
    let passes = vectors.div_ceil(N);
    let looks = passes * (rows / R) * args.keys.len().div_ceil(V::DEPTH * KEYS_AT_ONCE);
    let at_once = asks.lines().div_ceil(looks.max(1));
    for pass in 0..passes {
        let (first, end) = (vectors * pass / passes, vectors * (pass + 1) / passes);
        let mut row = 0;
        while row < rows {
            let height = R.min(rows - row);
            let mut next = None;
            if pass == 0
                && let Some(left) = left
            {
                // SAFETY: `left` has as many rows.
                unsafe {
                    if row == 0 {
                        left.part::<V>(0..height).all::<V>();
                    }
                    let end = (row + height + R).min(rows);
                    next = Some(left.part::<V>(row + height..end));
                }
            }
            let span =
                Span::union(&args.spans[row..row + height]).within(args.keys.from, args.keys.to);
            // Rows of values; an odd key's partner has no weight.
            let from = span.from / V::DEPTH;
            let to = if span.is_empty() {
                from
            } else {
                span.to.div_ceil(V::DEPTH)
            };
            // SAFETY: the tile's queries, keys and columns exist: see the assertions above; its
            // last register loads only the columns that there are, and `sums` has room for all.
            unsafe {
                let tile = Tile {
                    p: p.add(row * STRIDE + from),
                    v: args.v.pointer().wrapping_offset(
                        (from - args.keys.from / V::DEPTH) as isize * args.v.stride()
                            + (first * V::LANES) as isize,
                    ),
                    v_stride: args.v.stride(),
                    keys: to - from,
                    first_chain: match args.start {
                        Start::AsTheyAre => to - from,
                        _ => CHAIN / V::DEPTH - from % (CHAIN / V::DEPTH),
                    },
                    last: (width - first * V::LANES).min((end - first) * V::LANES)
                        - (end - first - 1) * V::LANES,
                    start: match args.start {
                        Start::Times(factors) => Start::Times(&factors[row..]),
                        start => start,
                    },
                    sums: sums.as_mut_ptr().add(row * stride + first * V::LANES),
                    sums_stride: stride,
                };
                let next = &mut Meanwhile::new(next, &mut asks, at_once);
                if end == vectors && tile.last <= V::LANES / 2 && height % 2 == 0 {
                    // Conditions on constants keep code out that no tile of R x N needs.
                    match end - first {
                        3 if const { N > 2 } => tile.pairs::<V, R, 2>(height, next),
                        4 if const { N > 3 } => tile.pairs::<V, R, 3>(height, next),
                        2 => tile.pairs::<V, R, 1>(height, next),
                        _ => tile.pairs::<V, R, 0>(height, next),
                    }
                } else {
                    match end - first {
                        1 => tile.high::<V, R, 1>(height, next),
                        2 if const { N > 2 } => tile.high::<V, R, 2>(height, next),
                        3 if const { N > 3 } => tile.high::<V, R, 3>(height, next),
                        _ => tile.high::<V, R, N>(height, next),
                    }
                }
                next.finish::<V>();
            }
            row += height;
        }
    }
    asks.ask(usize::MAX);
}

/// Where a tile's numbers are.
struct Tile<'a, T> {
    p: *const T,
    v: *const T,
    v_stride: isize,
    keys: usize,
    /// Keys up to the end of the first chain.
    first_chain: usize,
    /// Columns in the last register.
    last: usize,
    start: Start<'a, T>,
    sums: *mut T,
    sums_stride: usize,
}

impl<T: Real> Tile<'_, T> {
    /// Register n of the sums of a query.
    #[inline(always)]
    fn sums<V: Vector<T = T>>(&self, query: usize, n: usize) -> *mut T {
        self.sums
            .wrapping_add(query * self.sums_stride + n * V::LANES)
    }

    /// What is left for later is so only while a whole tile is computed: a lower one is the last,
    /// and code for both in one would be large.
    #[inline(always)]
    unsafe fn high<V: Vector<T = T>, const R: usize, const N: usize>(
        &self,
        height: usize,
        next: &mut Meanwhile<'_, T>,
    ) {
        unsafe {
            match height {
                1 => self.compute::<Whole<V, 1, N>>(None),
                2 => self.compute::<Whole<V, 2, N>>(None),
                3 => self.compute::<Whole<V, 3, N>>(None),
                4 if const { R > 4 } => self.compute::<Whole<V, 4, N>>(None),
                5 if const { R > 5 } => self.compute::<Whole<V, 5, N>>(None),
                _ => self.compute::<Whole<V, R, N>>(Some(next)),
            }
        }
    }

    /// N whole registers and half a one.
    #[inline(always)]
    unsafe fn pairs<V: Vector<T = T>, const R: usize, const N: usize>(
        &self,
        height: usize,
        next: &mut Meanwhile<'_, T>,
    ) {
        unsafe {
            match height {
                2 => self.compute::<Pairs<V, 1, N>>(None),
                6 if const { R == 6 } => self.compute::<Pairs<V, 3, N>>(Some(next)),
                _ if const { R == 6 } => self.compute::<Pairs<V, 2, N>>(None),
                _ => self.compute::<Pairs<V, 2, N>>(Some(next)),
            }
        }
    }

    /// Goes on from key `j`, whose values are at `row`, to another.
    #[inline(always)]
    unsafe fn pass<S: Sums<T>>(&self, sums: &mut S, j: &mut usize, row: &mut *const T, to: usize) {
        while *j < to {
            unsafe { sums.add(self, *j, *row) };
            *row = row.wrapping_offset(self.v_stride);
            *j += 1;
        }
    }

    /// All keys, chain by chain.
    #[inline(always)]
    unsafe fn compute<S: Sums<T>>(&self, mut next: Option<&mut Meanwhile<'_, T>>) {
        unsafe {
            let (mut j, mut row) = (0, self.v);
            let (mut start, mut chain_end) = (self.start, self.first_chain.min(self.keys));
            loop {
                let mut sums = S::begin(self, start);
                while j < chain_end {
                    let first = j;
                    match next.as_mut().and_then(|next| next.row()) {
                        Some((left, tiles)) if j + S::STEPS <= chain_end => {
                            let mut of_row = left.begin::<S::V>();
                            let mut tiles = tiles.min((chain_end - j) / S::STEPS);
                            while tiles > 0 {
                                let now = S::V::TILES_AT_ONCE.min(tiles);
                                let to = j + now * S::STEPS;
                                self.pass(&mut sums, &mut j, &mut row, to);
                                for _ in 0..now {
                                    left.tile(&mut of_row);
                                }
                                tiles -= now;
                            }
                            left.pause(of_row);
                        }
                        _ => {
                            let to = chain_end.min(j + KEYS_AT_ONCE);
                            self.pass(&mut sums, &mut j, &mut row, to);
                        }
                    }
                    if let Some(next) = &mut next {
                        next.ask(j - first);
                    }
                }
                sums.end(self, start);
                if j == self.keys {
                    return;
                }
                let chain = CHAIN / S::V::DEPTH;
                (start, chain_end) = (Start::Plus, (chain_end + chain).min(self.keys));
            }
        }
    }
}

/// The sums of a tile in registers.
trait Sums<T> {
    type V: Vector<T = T>;
    /// Rows of values between two tiles of exponentials.
    const STEPS: usize;

    /// What a chain begins with.
    unsafe fn begin(tile: &Tile<'_, T>, start: Start<'_, T>) -> Self;

    /// Goes on with key `j`, whose values are at `row`.
    unsafe fn add(&mut self, tile: &Tile<'_, T>, j: usize, row: *const T);

    /// Puts a chain to the others.
    unsafe fn end(self, tile: &Tile<'_, T>, start: Start<'_, T>);
}

/// As many that the exponentials of as many queries are done when all keys have passed, if possible.
const fn steps<V: Vector>(queries: usize) -> usize {
    match TILE / (queries * V::DEPTH) {
        0 => 1,
        steps => steps,
    }
}

/// R queries times N registers of columns.
struct Whole<V, const R: usize, const N: usize>([[V; N]; R]);

impl<V: Vector, const R: usize, const N: usize> Sums<V::T> for Whole<V, R, N> {
    type V = V;
    const STEPS: usize = steps::<V>(R);

    #[inline(always)]
    unsafe fn begin(tile: &Tile<'_, V::T>, start: Start<'_, V::T>) -> Self {
        unsafe {
            let mut sums = [[V::splat(V::T::ZERO); N]; R];
            if let Start::AsTheyAre = start {
                for r in 0..R {
                    for n in 0..N {
                        sums[r][n] = V::load(tile.sums::<V>(r, n));
                    }
                }
            }
            Whole(sums)
        }
    }

    #[inline(always)]
    unsafe fn add(&mut self, tile: &Tile<'_, V::T>, j: usize, row: *const V::T) {
        unsafe {
            let mut v = [V::splat(V::T::ZERO); N];
            for n in 0..N - 1 {
                v[n] = V::load(row.add(n * V::LANES));
            }
            v[N - 1] = V::load_first(row.add((N - 1) * V::LANES), tile.last);
            for r in 0..R {
                let p = V::splat(*tile.p.add(r * STRIDE + j));
                for n in 0..N {
                    self.0[r][n] = p.fma(v[n], self.0[r][n]);
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn end(mut self, tile: &Tile<'_, V::T>, start: Start<'_, V::T>) {
        unsafe {
            if start.adds() {
                for r in 0..R {
                    let factor: V = start.factor(r);
                    for n in 0..N {
                        let before = V::load(tile.sums::<V>(r, n));
                        self.0[r][n] = before.mul(factor).add(self.0[r][n]);
                    }
                }
            }
            for r in 0..R {
                for n in 0..N {
                    self.0[r][n].store(tile.sums::<V>(r, n));
                }
            }
        }
    }
}

/// P pairs of queries times N registers and half a one, which the two share.
struct Pairs<V, const P: usize, const N: usize> {
    whole: [[[V; N]; 2]; P],
    halves: [V; P],
}

impl<V: Vector, const P: usize, const N: usize> Sums<V::T> for Pairs<V, P, N> {
    type V = V;
    const STEPS: usize = steps::<V>(2 * P);

    #[inline(always)]
    unsafe fn begin(tile: &Tile<'_, V::T>, start: Start<'_, V::T>) -> Self {
        unsafe {
            let zero = V::splat(V::T::ZERO);
            let mut whole = [[[zero; N]; 2]; P];
            let mut halves = [zero; P];
            if let Start::AsTheyAre = start {
                for p in 0..P {
                    let (a, b) = (2 * p, 2 * p + 1);
                    for n in 0..N {
                        whole[p][0][n] = V::load(tile.sums::<V>(a, n));
                        whole[p][1][n] = V::load(tile.sums::<V>(b, n));
                    }
                    let half = V::LANES / 2;
                    halves[p] = V::load_halves(tile.sums::<V>(a, N), tile.sums::<V>(b, N), half);
                }
            }
            Pairs { whole, halves }
        }
    }

    #[inline(always)]
    unsafe fn add(&mut self, tile: &Tile<'_, V::T>, j: usize, row: *const V::T) {
        unsafe {
            let mut v = [V::splat(V::T::ZERO); N];
            for n in 0..N {
                v[n] = V::load(row.add(n * V::LANES));
            }
            let last = row.add(N * V::LANES);
            let half = V::load_halves(last, last, tile.last);
            for p in 0..P {
                let at = tile.p.add(2 * p * STRIDE + j);
                let weight = [V::splat(*at), V::splat(*at.add(STRIDE))];
                for n in 0..N {
                    self.whole[p][0][n] = weight[0].fma(v[n], self.whole[p][0][n]);
                    self.whole[p][1][n] = weight[1].fma(v[n], self.whole[p][1][n]);
                }
                self.halves[p] = weight[0].halves(weight[1]).fma(half, self.halves[p]);
            }
        }
    }

    #[inline(always)]
    unsafe fn end(mut self, tile: &Tile<'_, V::T>, start: Start<'_, V::T>) {
        unsafe {
            if start.adds() {
                for p in 0..P {
                    let (a, b) = (2 * p, 2 * p + 1);
                    let factor: [V; 2] = [start.factor(a), start.factor(b)];
                    for n in 0..N {
                        let before = [V::load(tile.sums::<V>(a, n)), V::load(tile.sums::<V>(b, n))];
                        self.whole[p][0][n] = before[0].mul(factor[0]).add(self.whole[p][0][n]);
                        self.whole[p][1][n] = before[1].mul(factor[1]).add(self.whole[p][1][n]);
                    }
                    let half = V::LANES / 2;
                    let before = V::load_halves(tile.sums::<V>(a, N), tile.sums::<V>(b, N), half);
                    self.halves[p] = before.mul(factor[0].halves(factor[1])).add(self.halves[p]);
                }
            }
            for p in 0..P {
                let (a, b) = (2 * p, 2 * p + 1);
                for n in 0..N {
                    self.whole[p][0][n].store(tile.sums::<V>(a, n));
                    self.whole[p][1][n].store(tile.sums::<V>(b, n));
                }
                self.halves[p].store_halves(tile.sums::<V>(a, N), tile.sums::<V>(b, N));
            }
        }
    }
}

/// sums = fma(other, b, a·sums)
#[inline(always)]
pub(super) unsafe fn add<V: Vector>(sums: &mut [V::T], a: V::T, other: &[V::T], b: V::T) {
    assert!(sums.len() == other.len());
    // SAFETY: all loads and stores lie in the two slices.
    unsafe {
        let (a, b) = (V::splat(a), V::splat(b));
        let mut at = 0;
        while at + V::LANES <= sums.len() {
            let (x, y) = (
                V::load(sums.as_ptr().add(at)),
                V::load(other.as_ptr().add(at)),
            );
            y.fma(b, x.mul(a)).store(sums.as_mut_ptr().add(at));
            at += V::LANES;
        }
        let n = sums.len() - at;
        if n > 0 {
            let x = V::load_first(sums.as_ptr().add(at), n);
            let y = V::load_first(other.as_ptr().add(at), n);
            y.fma(b, x.mul(a)).store_first(sums.as_mut_ptr().add(at), n);
        }
    }
}

/// Row i of `out` = factor i · sums i, rounded, with +0 for −0, which of the two depends on what was
/// skipped.
///
/// # Panics
/// If there are fewer sums or factors than rows.
#[inline(always)]
pub(super) unsafe fn finish<V: Holds<E>, E: Stored<Real = V::T>>(
    sums: &[V::T],
    factors: &[V::T],
    out: RowsMut<'_, E>,
) {
    let (width, stride) = (out.width(), sums_stride(out.width()));
    assert!(sums.len() >= out.count() * stride && factors.len() >= out.count());
    for i in 0..out.count() {
        // SAFETY: all loads lie in `sums`, all stores in row i.
        unsafe {
            let (from, to) = (sums.as_ptr().add(i * stride), out.pointer(i));
            let (factor, zero) = (V::splat(factors[i]), V::splat(V::T::ZERO));
            let mut at = 0;
            while at + V::LANES <= width {
                let x = V::load(from.add(at)).mul(factor).add(zero);
                x.narrow(to.add(at));
                at += V::LANES;
            }
            if at < width {
                let x = V::load_first(from.add(at), width - at);
                x.mul(factor).add(zero).narrow_first(to.add(at), width - at);
            }
        }
    }
}
