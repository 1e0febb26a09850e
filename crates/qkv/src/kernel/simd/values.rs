//! The weighted sum of values of a block.
//!
//! ```text
//! new[i] = fma(p[i,j], v[j], new[i]) for each key j, ascending, from 0
//! sum[i] = correction[i]·sum[i] + new[i]
//! ```
//!
//! The sum of a block begins with 0, so that its rounding goes by its own size: over long inputs
//! the error is a fraction of that of one long chain.
//!
//! A tile is some queries times some registers of columns, held in registers while its keys pass.
//! Where the last register would be half empty, two queries share it.

use super::super::real::Real;
use super::rows::Rows;
use super::shared::RowsMut;
use super::softmax::{Left, Softmax};
use super::vector::Vector;
use super::{BLOCK, STRIDE, Span};

/// What to compute.
pub struct Values<'a, T> {
    /// Row i, key j at `p[i·STRIDE + j]`; 0 for a dropped key inside the union of the spans of a
    /// tile of queries.
    pub p: &'a [T],
    /// Which keys of the block each query uses.
    pub spans: &'a [Span],
    /// The keys of the block that `v` holds.
    pub keys: Span,
    /// Row n is key `keys.from + n`.
    pub v: Rows<'a, T>,
    /// What becomes of the sums so far.
    pub start: Start<'a, T>,
}

/// Up to so many queries, values are taken to come from memory.
const STREAM: usize = 8;

/// How far ahead rows of values are asked for then.
const ROWS_AHEAD: isize = 32;

/// What becomes of the sums so far.
#[derive(Clone, Copy)]
pub enum Start<'a, T> {
    /// Nothing, whatever the memory holds.
    Zero,
    /// They are multiplied by one factor a query, then the block's are added.
    Times(&'a [T]),
    /// They are part of the block's, whose chain goes on.
    AsTheyAre,
}

/// Distance between the sums of two queries.
pub fn sums_stride(width: usize) -> usize {
    width.next_multiple_of(16)
}

/// Updates `sums[i·sums_stride(width) + c]` for every query of `spans`.
///
/// With `softmax`, whose maxima are known, its exponentials take the place of `args.p`: while the
/// values of one tile of queries are weighed, the exponentials of the next one are computed on what
/// the processor has besides units for multiply-adds.
///
/// # Panics
/// If an argument is shorter than the spans need.
#[inline(always)]
pub(super) unsafe fn run<V: Vector, const R: usize, const N: usize, const FEW: usize>(
    softmax: Option<&mut Softmax<'_, V::T>>,
    args: &Values<'_, V::T>,
    sums: &mut [V::T],
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
    assert!(args.keys.to <= BLOCK && args.v.count() >= args.keys.len());
    assert!(sums.len() >= rows * stride);
    if let Start::Times(factors) = args.start {
        assert!(factors.len() >= rows);
    }
    let vectors = width.div_ceil(V::LANES);
    if let Some(left) = left.filter(|_| vectors == 0) {
        // SAFETY: `left` has as many rows.
        unsafe { left.part(0..rows).all::<V>() };
    }
    // Values that few queries use come from memory: whole rows in one pass, asked for ahead.
    let stream = rows <= STREAM;
    let (tile_rows, tile_vectors) = if stream { (FEW, 8) } else { (R, N) };
    let passes = vectors.div_ceil(tile_vectors);
    for pass in 0..passes {
        let (first, end) = (vectors * pass / passes, vectors * (pass + 1) / passes);
        let mut row = 0;
        while row < rows {
            let height = tile_rows.min(rows - row);
            let mut next = None;
            if pass == 0
                && let Some(left) = left
            {
                // SAFETY: `left` has as many rows.
                unsafe {
                    if row == 0 {
                        let first = if stream { rows } else { height };
                        left.part(0..first).all::<V>();
                    }
                    if !stream {
                        let end = (row + height + tile_rows).min(rows);
                        next = Some(left.part(row + height..end));
                    }
                }
            }
            let span =
                Span::union(&args.spans[row..row + height]).within(args.keys.from, args.keys.to);
            // SAFETY: the tile's queries, keys and columns exist: see the assertions above; its
            // last register loads only the columns that there are, and `sums` has room for all.
            unsafe {
                let tile = Tile {
                    p: p.add(row * STRIDE + span.from),
                    v: args.v.pointer().wrapping_offset(
                        (span.from - args.keys.from) as isize * args.v.stride()
                            + (first * V::LANES) as isize,
                    ),
                    v_stride: args.v.stride(),
                    keys: span.len(),
                    last: (width - first * V::LANES).min((end - first) * V::LANES)
                        - (end - first - 1) * V::LANES,
                    factors: match args.start {
                        Start::Times(factors) => Some(factors.as_ptr().add(row)),
                        _ => None,
                    },
                    goes_on: matches!(args.start, Start::AsTheyAre),
                    sums: sums.as_mut_ptr().add(row * stride + first * V::LANES),
                    sums_stride: stride,
                };
                if stream {
                    tile.stream::<V>(height, end - first, row == 0);
                } else {
                    let next = &mut Meanwhile::new(next, tile.keys);
                    if end == vectors && tile.last <= V::LANES / 2 && height % 2 == 0 {
                        match end - first {
                            1 => tile.pairs::<V, R, 0>(height, next),
                            2 => tile.pairs::<V, R, 1>(height, next),
                            3 => tile.pairs::<V, R, 2>(height, next),
                            _ => tile.pairs::<V, R, 3>(height, next),
                        }
                    } else {
                        match end - first {
                            1 => tile.high::<V, R, 1>(height, next),
                            2 => tile.high::<V, R, 2>(height, next),
                            3 => tile.high::<V, R, 3>(height, next),
                            _ => tile.high::<V, R, N>(height, next),
                        }
                    }
                    next.finish::<V>();
                }
            }
            row += height;
        }
    }
}

/// Keys between two looks at what else is to be done.
const KEYS_AT_ONCE: usize = 8;

/// Exponentials of the next tile of queries, spread over the keys of this one.
struct Meanwhile<T> {
    left: Option<Left<T>>,
    /// How often there is something to do, and how often it may be done.
    count: usize,
    looks: usize,
    due: usize,
}

impl<T: Real> Meanwhile<T> {
    #[inline(always)]
    unsafe fn new(left: Option<Left<T>>, keys: usize) -> Self {
        Meanwhile {
            count: left.map_or(0, |left| unsafe { left.count() }),
            left,
            looks: keys.div_ceil(KEYS_AT_ONCE),
            due: 0,
        }
    }

    #[inline(always)]
    unsafe fn look<V: Vector<T = T>>(&mut self) {
        self.due += self.count;
        while self.due >= self.looks {
            self.due -= self.looks;
            if let Some(left) = &mut self.left {
                unsafe { left.some::<V>() };
            }
        }
    }

    #[inline(always)]
    unsafe fn finish<V: Vector<T = T>>(&mut self) {
        if let Some(left) = &mut self.left {
            unsafe { left.all::<V>() };
        }
    }
}

/// Where a tile's numbers are.
struct Tile<T> {
    p: *const T,
    v: *const T,
    v_stride: isize,
    keys: usize,
    /// Columns in the last register.
    last: usize,
    factors: Option<*const T>,
    /// Whether the chain goes on from the sums in memory.
    goes_on: bool,
    sums: *mut T,
    sums_stride: usize,
}

impl<T: Real> Tile<T> {
    /// What is left for later is so only while a whole tile is computed: a lower one is the last,
    /// and code for both in one would be large.
    #[inline(always)]
    unsafe fn high<V: Vector<T = T>, const R: usize, const N: usize>(
        &self,
        height: usize,
        next: &mut Meanwhile<T>,
    ) {
        unsafe {
            match height {
                _ if height == R => self.compute::<V, R, N, false>(Some(next)),
                1 => self.compute::<V, 1, N, false>(None),
                2 => self.compute::<V, 2, N, false>(None),
                3 => self.compute::<V, 3, N, false>(None),
                4 => self.compute::<V, 4, N, false>(None),
                _ => self.compute::<V, 5, N, false>(None),
            }
        }
    }

    /// N whole registers and half a one.
    #[inline(always)]
    unsafe fn pairs<V: Vector<T = T>, const R: usize, const N: usize>(
        &self,
        height: usize,
        next: &mut Meanwhile<T>,
    ) {
        unsafe {
            match (height, R) {
                (4, 4) => self.compute_pairs::<V, 2, N>(Some(next)),
                (2, _) => self.compute_pairs::<V, 1, N>(None),
                (4, _) => self.compute_pairs::<V, 2, N>(None),
                _ => self.compute_pairs::<V, 3, N>(Some(next)),
            }
        }
    }

    /// One or two queries; the first tile asks for the rows ahead.
    #[inline(always)]
    unsafe fn stream<V: Vector<T = T>>(&self, height: usize, vectors: usize, first: bool) {
        unsafe {
            match (vectors, first) {
                (1, _) => self.low::<V, 1, true>(height),
                (2, _) => self.low::<V, 2, true>(height),
                (3, _) => self.low::<V, 3, true>(height),
                (4, true) => self.low::<V, 4, true>(height),
                (4, false) => self.low::<V, 4, false>(height),
                (5, _) => self.low::<V, 5, true>(height),
                (6, _) => self.low::<V, 6, true>(height),
                (7, _) => self.low::<V, 7, true>(height),
                (_, true) => self.low::<V, 8, true>(height),
                (_, false) => self.low::<V, 8, false>(height),
            }
        }
    }

    #[inline(always)]
    unsafe fn low<V: Vector<T = T>, const N: usize, const AHEAD: bool>(&self, height: usize) {
        unsafe {
            match height {
                1 => self.compute::<V, 1, N, AHEAD>(None),
                _ => self.compute::<V, 2, N, AHEAD>(None),
            }
        }
    }

    #[inline(always)]
    unsafe fn compute<V: Vector<T = T>, const R: usize, const N: usize, const AHEAD: bool>(
        &self,
        mut next: Option<&mut Meanwhile<T>>,
    ) {
        unsafe {
            let mut sums = [[V::splat(T::ZERO); N]; R];
            if self.goes_on {
                for r in 0..R {
                    for n in 0..N {
                        sums[r][n] = V::load(self.sums.add(r * self.sums_stride + n * V::LANES));
                    }
                }
            }
            let mut row = self.v;
            let mut j = 0;
            while j < self.keys {
                let end = (j + KEYS_AT_ONCE).min(self.keys);
                while j < end {
                    let mut v = [V::splat(T::ZERO); N];
                    for n in 0..N - 1 {
                        v[n] = V::load(row.add(n * V::LANES));
                    }
                    v[N - 1] = V::load_first(row.add((N - 1) * V::LANES), self.last);
                    for r in 0..R {
                        let p = V::splat(*self.p.add(r * STRIDE + j));
                        for n in 0..N {
                            sums[r][n] = p.fma(v[n], sums[r][n]);
                        }
                    }
                    if AHEAD {
                        let ahead = row.wrapping_offset(ROWS_AHEAD * self.v_stride);
                        let mut n = 0;
                        while n < N {
                            V::prefetch(ahead.wrapping_add(n * V::LANES));
                            n += 64 / (V::LANES * size_of::<T>());
                        }
                    }
                    row = row.wrapping_offset(self.v_stride);
                    j += 1;
                }
                if let Some(next) = &mut next {
                    next.look::<V>();
                }
            }
            if let Some(factors) = self.factors {
                for r in 0..R {
                    let factor = V::splat(*factors.add(r));
                    for n in 0..N {
                        let before = V::load(self.sums.add(r * self.sums_stride + n * V::LANES));
                        sums[r][n] = before.mul(factor).add(sums[r][n]);
                    }
                }
            }
            for r in 0..R {
                for n in 0..N {
                    sums[r][n].store(self.sums.add(r * self.sums_stride + n * V::LANES));
                }
            }
        }
    }
}

impl<T: Real> Tile<T> {
    /// P pairs of queries.
    #[inline(always)]
    unsafe fn compute_pairs<V: Vector<T = T>, const P: usize, const N: usize>(
        &self,
        mut next: Option<&mut Meanwhile<T>>,
    ) {
        unsafe {
            let at =
                |query: usize, n: usize| self.sums.add(query * self.sums_stride + n * V::LANES);
            let zero = V::splat(T::ZERO);
            let mut whole = [[[zero; N]; 2]; P];
            let mut halves = [zero; P];
            if self.goes_on {
                for p in 0..P {
                    let (a, b) = (2 * p, 2 * p + 1);
                    for n in 0..N {
                        whole[p][0][n] = V::load(at(a, n));
                        whole[p][1][n] = V::load(at(b, n));
                    }
                    halves[p] = V::load_halves(at(a, N), at(b, N), V::LANES / 2);
                }
            }
            let mut row = self.v;
            let mut j = 0;
            while j < self.keys {
                let end = (j + KEYS_AT_ONCE).min(self.keys);
                while j < end {
                    let mut v = [zero; N];
                    for n in 0..N {
                        v[n] = V::load(row.add(n * V::LANES));
                    }
                    let last = row.add(N * V::LANES);
                    let half = V::load_halves(last, last, self.last);
                    for p in 0..P {
                        let at = self.p.add(2 * p * STRIDE + j);
                        let weight = [V::splat(*at), V::splat(*at.add(STRIDE))];
                        for n in 0..N {
                            whole[p][0][n] = weight[0].fma(v[n], whole[p][0][n]);
                            whole[p][1][n] = weight[1].fma(v[n], whole[p][1][n]);
                        }
                        halves[p] = weight[0].halves(weight[1]).fma(half, halves[p]);
                    }
                    row = row.wrapping_offset(self.v_stride);
                    j += 1;
                }
                if let Some(next) = &mut next {
                    next.look::<V>();
                }
            }
            if let Some(factors) = self.factors {
                for p in 0..P {
                    let (a, b) = (2 * p, 2 * p + 1);
                    let factor = [V::splat(*factors.add(a)), V::splat(*factors.add(b))];
                    for n in 0..N {
                        let before = [V::load(at(a, n)), V::load(at(b, n))];
                        whole[p][0][n] = before[0].mul(factor[0]).add(whole[p][0][n]);
                        whole[p][1][n] = before[1].mul(factor[1]).add(whole[p][1][n]);
                    }
                    let before = V::load_halves(at(a, N), at(b, N), V::LANES / 2);
                    halves[p] = before.mul(factor[0].halves(factor[1])).add(halves[p]);
                }
            }
            for p in 0..P {
                let (a, b) = (2 * p, 2 * p + 1);
                for n in 0..N {
                    whole[p][0][n].store(at(a, n));
                    whole[p][1][n].store(at(b, n));
                }
                halves[p].store_halves(at(a, N), at(b, N));
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

/// Row i of `out` = factor i · sums i, with +0 for −0, which of the two depends on what was
/// skipped.
///
/// # Panics
/// If there are fewer sums or factors than rows.
#[inline(always)]
pub(super) unsafe fn finish<V: Vector>(sums: &[V::T], factors: &[V::T], out: RowsMut<'_, V::T>) {
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
                x.store(to.add(at));
                at += V::LANES;
            }
            if at < width {
                let x = V::load_first(from.add(at), width - at);
                x.mul(factor).add(zero).store_first(to.add(at), width - at);
            }
        }
    }
}
