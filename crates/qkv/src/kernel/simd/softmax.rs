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
use super::edit::{Biased, Edit, EditRegister, Masked, Plain};
use super::pack::TILE;
use super::vector::{OnLines, Vector, exp2};
use super::{BLOCK, STRIDE, Span};
use std::ops::Range;

/// Some rows of a block.
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
    /// c, which is not negative.
    pub c: T,
}

impl<T: Real> Softmax<'_, T> {
    /// # Panics
    /// If an argument is shorter than the spans need.
    #[inline(always)]
    fn check(&self) {
        let rows = self.spans.len();
        assert!(self.spans.iter().all(|span| span.to <= BLOCK));
        assert!(self.x.len() >= rows * STRIDE);
        assert!(self.max.len() >= rows && self.sums.len() >= rows);
    }
}

/// Whether all rows have the same span.
pub(super) fn alike(spans: &[Span]) -> bool {
    let Some(first) = spans.first() else {
        return true;
    };
    let differs = |span: &Span| (span.from != first.from) | (span.to != first.to);
    // No early return: as many as possible are compared at once.
    !spans.iter().fold(false, |any, span| any | differs(span))
}

/// New maxima, corrections, and sums times the corrections. In `x`, what is not kept becomes −∞
/// in the tiles of a row's span, 0 in what else of the union comes before and after it. The first
/// `begun` keys are edited already, and [`Behind`](super::behind::Behind) has begun with them.
///
/// # Panics
/// If an argument is shorter than the spans need, or keys begun are not whole tiles of all spans.
#[inline(always)]
pub(super) unsafe fn maxima<V: Vector, const R: usize>(
    args: &mut Softmax<'_, V::T>,
    edit: Edit<'_, V::T>,
    begun: usize,
    corrections: &mut [V::T],
) {
    args.check();
    assert!(corrections.len() >= args.spans.len() && edit.reaches(args.spans));
    let Some(first) = args.spans.first() else {
        return;
    };
    let alike = alike(args.spans);
    assert!(begun == 0 || alike && begun <= first.tiles().to && begun.is_multiple_of(TILE));
    // SAFETY: the slices hold every row, and masks and biases reach to the ends of the spans.
    unsafe {
        match edit {
            Edit::None => some_maxima::<V, R>(args, corrections, alike, begun, &Plain),
            Edit::Mask(mask, kept) => {
                let edit = &Masked { mask, kept };
                some_maxima::<V, R>(args, corrections, alike, begun, edit);
            }
            Edit::Bias(bias, factor) => {
                let edit = &Biased { bias, factor };
                some_maxima::<V, R>(args, corrections, alike, begun, edit);
            }
        }
    }
}

#[inline(always)]
unsafe fn some_maxima<V: Vector, const R: usize>(
    args: &mut Softmax<'_, V::T>,
    corrections: &mut [V::T],
    alike: bool,
    begun: usize,
    edit: &impl EditRegister<V>,
) {
    unsafe {
        if alike {
            all_maxima::<V, R, true>(args, corrections, begun, edit);
        } else {
            all_maxima::<V, R, false>(args, corrections, 0, edit);
        }
    }
}

#[inline(always)]
unsafe fn all_maxima<V: Vector, const R: usize, const ALIKE: bool>(
    args: &mut Softmax<'_, V::T>,
    corrections: &mut [V::T],
    begun: usize,
    edit: &impl EditRegister<V>,
) {
    let rows = args.spans.len();
    let (mut span, mut union, mut tile_end) = (args.spans[0], Span::default(), 0);
    let done = begun > 0 && begun == span.tiles().to;
    let mut row = 0;
    while row < rows {
        // As many rows as a register has lanes, then all that follows from their maxima.
        let height = V::LANES.min(rows - row);
        // SAFETY: row i has STRIDE numbers, and spans rounded up to a tile end within them.
        unsafe {
            let x = args.x.as_mut_ptr().add(row * STRIDE);
            for i in if done { 0..0 } else { 0..height } {
                let (x, i) = (x.add(i * STRIDE), row + i);
                if !ALIKE {
                    span = args.spans[i];
                    if i == tile_end {
                        tile_end = (i + R).min(rows);
                        union = Span::union(&args.spans[i..tile_end]);
                    }
                    let tiles = span.tiles();
                    zero(x, union.from, tiles.from.min(union.to));
                    zero(x, tiles.to.max(union.from), union.to);
                }
                let largest = largest(x, span, begun, edit.row(i), edit);
                largest.store(x.add(BLOCK));
            }
            let largest = across(x.add(BLOCK), STRIDE, height, V::LANES, |a: V, b| a.max(b));
            let rows = row..row + height;
            let fresh = |all, &max: &V::T| all & (max == V::T::NEG_INFINITY);
            if args.max[rows.clone()].iter().fold(true, fresh) {
                // Sums are 0 so far, whatever they are multiplied by.
                largest.store_first(args.max.as_mut_ptr().add(row), height);
                corrections[rows].fill(V::T::ONE);
                row += height;
                continue;
            }
            let old = V::load_first(args.max.as_ptr().add(row), height);
            let new = largest.max(old);
            let correction = correct(old, new, V::splat(args.c));
            new.store_first(args.max.as_mut_ptr().add(row), height);
            correction.store_first(corrections.as_mut_ptr().add(row), height);
            for i in rows {
                let factor = V::splat(corrections[i]);
                let sums = args.sums[i].as_mut_ptr();
                let mut lane = 0;
                while lane < TILE {
                    V::load(sums.add(lane)).mul(factor).store(sums.add(lane));
                    lane += V::LANES;
                }
            }
        }
        row += height;
    }
}

/// Puts exponentials in place of all numbers and adds them to the sums, once the maxima are known.
///
/// # Panics
/// If an argument is shorter than the spans need.
#[inline(always)]
pub(super) unsafe fn exponentials<V: Vector>(args: &mut Softmax<'_, V::T>) {
    let rows = 0..args.spans.len();
    // SAFETY: the slices hold every row.
    unsafe { Left::of::<V>(args).part::<V>(rows).all::<V>() }
}

/// Exponentials that are still to be computed.
#[derive(Clone, Copy)]
pub(super) struct Left<T> {
    x: *mut T,
    spans: *const Span,
    max: *const T,
    sums: *mut [T; TILE],
    c: T,
    /// The constants of exp2, in a way that keeps them out of registers.
    constants: *const T,
    /// Whether all rows have the same span.
    alike: bool,
    /// Rows, of which the first is at tile `at`, and its tiles end at `end`.
    rows: usize,
    at: usize,
    end: usize,
}

impl<T: Real> Left<T> {
    /// All; they may be computed as long as `args` lives.
    ///
    /// # Panics
    /// If an argument is shorter than the spans need.
    #[inline(always)]
    pub(super) fn of<V: Vector<T = T>>(args: &mut Softmax<'_, T>) -> Self {
        args.check();
        Left {
            x: args.x.as_mut_ptr(),
            spans: args.spans.as_ptr(),
            max: args.max.as_ptr(),
            sums: args.sums.as_mut_ptr(),
            c: args.c,
            constants: std::hint::black_box(V::EXP2.as_ptr()),
            alike: alike(args.spans),
            rows: args.spans.len(),
            at: 0,
            end: 0,
        }
    }

    /// Row i, key j at `x()[i·STRIDE + j]`.
    #[inline(always)]
    pub(super) fn x(&self) -> *const T {
        self.x
    }

    /// Those of some rows, which must be there.
    #[inline(always)]
    pub(super) unsafe fn part<V: Vector<T = T>>(mut self, rows: Range<usize>) -> Self {
        unsafe {
            self.skip(rows.start);
            self.rows = rows.len();
            self.begin_row::<V>();
        }
        self
    }

    /// Goes on to a row with a key, unless this is one.
    #[inline(always)]
    unsafe fn begin_row<V: Vector<T = T>>(&mut self) {
        unsafe {
            while self.rows > 0 {
                let tiles = (*self.spans).tiles();
                (self.at, self.end) = (tiles.from, tiles.to);
                if self.at < self.end {
                    return;
                }
                self.clear::<V>(tiles);
                self.skip(1);
            }
            (self.at, self.end) = (0, 0);
        }
    }

    /// Makes weights outside some tiles of a row 0 where other rows have keys there.
    #[inline(always)]
    unsafe fn clear<V: Vector<T = T>>(&self, tiles: Span) {
        if V::DEPTH > 1 && !self.alike {
            unsafe { clear_weights::<V>(self.x, tiles) };
        }
    }

    #[inline(always)]
    unsafe fn skip(&mut self, rows: usize) {
        unsafe {
            self.x = self.x.add(rows * STRIDE);
            self.spans = self.spans.add(rows);
            self.max = self.max.add(rows);
            self.sums = self.sums.add(rows);
            self.rows -= rows;
        }
    }

    /// Computes what is left.
    #[inline(always)]
    pub(super) unsafe fn all<V: Vector<T = T>>(&mut self) {
        unsafe {
            while self.rows > 0 {
                let mut row = self.begin::<V>();
                for _ in 0..self.tiles_of_row() {
                    self.tile(&mut row);
                }
                self.pause(row);
            }
        }
    }

    /// Tiles that are left of the first row.
    #[inline(always)]
    pub(super) fn tiles_of_row(&self) -> usize {
        (self.end - self.at) / TILE
    }

    /// Begins or goes on with the first row, which must be there, until [`Left::pause`].
    #[inline(always)]
    pub(super) unsafe fn begin<V: Vector<T = T>>(&self) -> Running<V> {
        unsafe {
            let max = *self.max;
            // −∞ stays −∞ where there is no kept key so far. Not by registers, which are scarce.
            let shift = V::splat(if max > -T::MAX { max } else { -T::MAX });
            let mut sums = [V::splat(T::ZERO); MOST_OF_TILE];
            for n in 0..TILE / V::LANES {
                sums[n] = V::load(self.sums.cast::<T>().add(n * V::LANES));
            }
            Running { shift, sums }
        }
    }

    /// The next tile of the row, which must have one.
    #[inline(always)]
    pub(super) unsafe fn tile<V: Vector<T = T>>(&mut self, row: &mut Running<V>) {
        unsafe {
            for n in 0..TILE / V::LANES {
                let at = self.at + n * V::LANES;
                let x = V::load(self.x.add(at)).sub(row.shift);
                let p = x.mul(V::splat(self.c)).exp2(self.constants);
                // Not behind what is still to be read.
                p.store_weights(self.x, at);
                row.sums[n] = row.sums[n].add(p);
            }
            self.at += TILE;
        }
    }

    /// Puts the sums back, and goes on to the next row if this one is done.
    #[inline(always)]
    pub(super) unsafe fn pause<V: Vector<T = T>>(&mut self, row: Running<V>) {
        unsafe {
            for n in 0..TILE / V::LANES {
                row.sums[n].store(self.sums.cast::<T>().add(n * V::LANES));
            }
            if self.at == self.end {
                self.clear::<V>((*self.spans).tiles());
                self.skip(1);
                self.begin_row::<V>();
            }
        }
    }
}

/// Registers of a tile at most.
const MOST_OF_TILE: usize = 4;

/// What the exponentials of a row have in common, in registers: through memory, each sum would
/// wait for the one before it.
pub(super) struct Running<V> {
    /// The maximum.
    shift: V,
    /// The running sums, in as many registers as they take.
    sums: [V; MOST_OF_TILE],
}

/// Weights that are taken as they are.
#[inline(always)]
pub(super) unsafe fn keep<T>(_: &[Span], _: &mut [T]) {}

/// Makes the weights outside some tiles of a row 0, once those inside are stored.
#[inline(always)]
pub(super) unsafe fn clear_weights<V: Vector>(x: *mut V::T, tiles: Span) {
    unsafe {
        let zero = V::splat(V::T::ZERO);
        for at in (0..tiles.from).chain(tiles.to..BLOCK).step_by(TILE) {
            zero.store_weights(x, at);
        }
    }
}

/// The corrections 2^((old − new)·c) of some maxima.
#[inline(always)]
unsafe fn correct<V: Vector>(old: V, new: V, c: V) -> V {
    unsafe {
        // Without a kept key so far, sums are 0 and any finite factor leaves them so.
        let lowest = V::splat(-V::T::MAX);
        let [correction] = exp2([lowest.max(old).sub(lowest.max(new)).mul(c)]);
        correction
    }
}

impl Span {
    /// The tiles that hold a key.
    pub fn tiles(self) -> Span {
        if self.is_empty() {
            return Span::default();
        }
        Span {
            from: self.from / TILE * TILE,
            to: self.to.next_multiple_of(TILE),
        }
    }
}

/// Edits the numbers of the span and returns the largest, lane by lane. What is not kept, but in
/// the same tile, becomes −∞.
#[inline(always)]
unsafe fn largest<V: Vector, E: EditRegister<V>>(
    x: *mut V::T,
    span: Span,
    begun: usize,
    row: E::Row,
    edit: &E,
) -> V {
    unsafe {
        let mut largest = [V::splat(V::T::NEG_INFINITY); 4];
        if span.is_empty() {
            return largest[0];
        }
        let mut tiles = span.tiles();
        if begun > 0 {
            largest[3] = V::load(x.add(BLOCK));
            tiles.from = begun;
        }
        if tiles.from < span.from {
            largest[0] = edge(x, tiles.from, span, row, edit);
            tiles.from += TILE;
        }
        if span.to < tiles.to && tiles.from < tiles.to {
            tiles.to -= TILE;
            largest[1] = edge(x, tiles.to, span, row, edit);
        }
        let mut at = tiles.from;
        while at + 4 * V::LANES <= tiles.to {
            for n in 0..4 {
                let at = at + n * V::LANES;
                let y = edit.edit(row, at, V::LANES, V::load(x.add(at)));
                y.store(x.add(at));
                largest[n] = y.max(largest[n]);
            }
            at += 4 * V::LANES;
        }
        while at < tiles.to {
            let y = edit.edit(row, at, V::LANES, V::load(x.add(at)));
            y.store(x.add(at));
            largest[2] = y.max(largest[2]);
            at += V::LANES;
        }
        let [a, b, c, d] = largest;
        a.max(b).max(c.max(d))
    }
}

/// [`largest`] of a tile that is not inside the span altogether.
#[inline(always)]
unsafe fn edge<V: Vector, E: EditRegister<V>>(
    x: *mut V::T,
    tile: usize,
    span: Span,
    row: E::Row,
    edit: &E,
) -> V {
    unsafe {
        let mut largest = V::splat(V::T::NEG_INFINITY);
        let mut at = tile;
        while at < tile + TILE {
            let from = span.from.clamp(at, at + V::LANES) - at;
            let to = span.to.clamp(at, at + V::LANES) - at;
            let y = edit.edit(row, at, to, V::load(x.add(at)));
            let y = y.only(from, to.max(from));
            y.store(x.add(at));
            largest = y.max(largest);
            at += V::LANES;
        }
        largest
    }
}

/// 2^((old − new)·c): what sums relative to `old` are multiplied by to be relative to `new`.
#[inline(always)]
pub(super) unsafe fn correction<V: Vector>(old: V::T, new: V::T, c: V::T) -> V::T {
    unsafe {
        let mut lanes = [V::T::ZERO; TILE];
        let correction = correct(V::splat(old), V::splat(new), V::splat(c));
        correction.store(lanes.as_mut_ptr());
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
        // SAFETY: there are `height` rows from `row` on.
        unsafe {
            let from = lanes.as_ptr().add(row).cast();
            let sums = across(from, TILE, height, TILE, |a: V, b| a.add(b));
            sums.store_first(to.as_mut_ptr().add(row), height);
        }
        row += height;
    }
}

/// Joins the first `count` = 2ⁿ ≤ 16 numbers of each of up to `LANES` rows, `stride` numbers apart:
/// those of a row's first half with those of its second half until one is left; lane i is row i's.
#[inline(always)]
pub(super) unsafe fn across<V: Vector>(
    mut rows: *const V::T,
    mut stride: usize,
    height: usize,
    count: usize,
    join: impl Fn(V, V) -> V,
) -> V {
    let turned = &mut OnLines([V::T::ZERO; TILE * TILE]).0;
    let spare = &mut OnLines([[V::T::ZERO; TILE]; TILE]).0;
    // SAFETY: the caller has the rows; up to 16 columns of 16 numbers fit.
    unsafe {
        if height < V::LANES {
            for (i, spare) in spare.iter_mut().enumerate().take(height) {
                rows.add(i * stride).copy_to(spare.as_mut_ptr(), count);
            }
            (rows, stride) = (spare.as_ptr().cast(), TILE);
        }
        let to = turned.as_mut_ptr();
        let mut column = 0;
        while column < count {
            let columns = V::LANES.min(count);
            V::turn(
                rows.add(column),
                stride as isize,
                columns,
                to.add(column * TILE),
            );
            column += columns;
        }
        let mut columns = [V::splat(V::T::ZERO); TILE];
        for n in 0..count {
            columns[n] = V::load(to.add(n * TILE));
        }
        let mut half = count / 2;
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
unsafe fn zero<T: Real>(x: *mut T, from: usize, to: usize) {
    for at in from..to {
        unsafe { *x.add(at) = T::ZERO };
    }
}
