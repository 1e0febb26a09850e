//! Keys, turned so that neighbouring numbers belong to neighbouring keys.
//!
//! Sixteen keys make a tile: `tile[d·16 + key]`. A block of keys is its tiles one after the other.

use super::super::real::{Real, Stored};
use super::convert::Holds;
use super::rows::Rows;

/// Keys of a tile, whatever the number type and instruction set.
pub const TILE: usize = 16;

/// Keys that memory is asked for ahead of those being packed: long caches are read at the speed of
/// memory only so. What follows the last key is asked for, too: it is the next block, or nothing.
const AHEAD: usize = 2 * TILE;

/// Numbers that so many packed keys take.
pub fn packed_len(keys: usize, width: usize) -> usize {
    keys.next_multiple_of(TILE) * width
}

/// Packs all rows; lanes of the last tile that no key fills are 0.
///
/// # Panics
/// If `out` is shorter than the tiles.
#[inline(always)]
pub(super) unsafe fn run<V: Holds<E>, E: Stored<Real = V::T>>(rows: Rows<'_, E>, out: &mut [V::T]) {
    let width = rows.width();
    let slots = width.div_ceil(V::DEPTH);
    let step = V::LANES * V::DEPTH;
    let full = rows.count() / TILE;
    assert!(out.len() >= packed_len(rows.count(), slots));
    // What is asked for ahead: the lines of as many rows as a tile has, in the order of memory and
    // evenly spaced. Rows without gaps are one long row.
    let line = 64 / size_of::<E>();
    let (long, lines) = if rows.stride() == width as isize {
        (TILE, TILE * width / line)
    } else {
        (1, width.div_ceil(line))
    };
    let turns = width.div_ceil(step) * (TILE / V::LANES);
    let at_once = (TILE / long * lines).div_ceil(turns.max(1));
    for (tile, out) in out.chunks_exact_mut(TILE * slots).enumerate().take(full) {
        let first = rows
            .pointer()
            .wrapping_offset((tile * TILE) as isize * rows.stride());
        let mut row = first.wrapping_offset(AHEAD as isize * rows.stride());
        let (mut ahead, mut left) = (row, lines);
        let mut d = 0;
        while d < width {
            let columns = step.min(width - d);
            let mut lane = 0;
            while lane < TILE {
                // SAFETY: rows tile·16 + lane .. + LANES exist, since the tile is full, and have
                // columns d .. d + columns; what is written lies in the tile of 16·width numbers.
                unsafe {
                    let from = first.wrapping_offset(lane as isize * rows.stride() + d as isize);
                    let to = out.as_mut_ptr().add(d / V::DEPTH * TILE + lane);
                    // Half of it before and half after, since many at once wait for one another.
                    let mut ask = |count: usize| {
                        for _ in 0..count {
                            V::prefetch(ahead.cast());
                            ahead = ahead.wrapping_add(line);
                            left -= 1;
                            if left == 0 {
                                row = row.wrapping_offset(long as isize * rows.stride());
                                (ahead, left) = (row, lines);
                            }
                        }
                    };
                    ask(at_once / 2);
                    V::turn_wide(from, rows.stride(), columns, to);
                    ask(at_once - at_once / 2);
                }
                lane += V::LANES;
            }
            d += columns;
        }
    }
    let left = rows.count() % TILE;
    if left > 0 {
        let out = &mut out[full * TILE * slots..][..TILE * slots];
        let rows = rows.part(full * TILE..full * TILE + left);
        if V::DEPTH > 1 {
            // SAFETY: `step` is at most 32 columns, and `out` has room for a tile.
            unsafe { turn_few::<V, E>(rows, step, out) };
            return;
        }
        out.fill(V::T::ZERO);
        for lane in 0..left {
            for (d, &x) in rows.row(lane).iter().enumerate() {
                out[d * TILE + lane] = x.widen();
            }
        }
    }
}

/// Packs fewer than [`TILE`] rows into a tile, by way of a whole one.
#[inline(always)]
unsafe fn turn_few<V: Holds<E>, E: Stored<Real = V::T>>(
    rows: Rows<'_, E>,
    step: usize,
    out: &mut [V::T],
) {
    const COLUMNS: usize = 2 * TILE;
    let width = rows.width();
    for d in (0..width).step_by(step) {
        let columns = step.min(width - d);
        let mut tile = [[E::default(); COLUMNS]; TILE];
        for (i, tile) in tile.iter_mut().enumerate().take(rows.count()) {
            tile[..columns].copy_from_slice(&rows.row(i)[d..d + columns]);
        }
        for lane in (0..TILE).step_by(V::LANES) {
            // SAFETY: the rows of `tile` are whole; `out` is a tile.
            unsafe {
                let to = out.as_mut_ptr().add(d / V::DEPTH * TILE + lane);
                let from = tile[lane..].as_flattened().as_ptr();
                V::turn_wide(from, COLUMNS as isize, columns, to);
            }
        }
    }
}

/// Whether no number is infinite or NaN.
#[inline(always)]
pub(super) unsafe fn all_finite<V: Holds<E>, E: Stored<Real = V::T>>(rows: Rows<'_, E>) -> bool {
    // SAFETY: every load lies in a row; `run` by which this is called enables the instructions.
    unsafe {
        let zero = V::splat(V::T::ZERO);
        let mut sums = [zero; 4];
        // Rows without gaps are one long row.
        let all = rows.flat();
        let count = if all.is_some() { 1 } else { rows.count() };
        for i in 0..count {
            let row = all.unwrap_or_else(|| rows.row(i));
            let mut at = 0;
            while at + 4 * V::LANES <= row.len() {
                for n in 0..4 {
                    let x = V::widen(row.as_ptr().add(at + n * V::LANES));
                    sums[n] = x.fma(zero, sums[n]);
                }
                at += 4 * V::LANES;
            }
            while at < row.len() {
                let n = V::LANES.min(row.len() - at);
                let x = if n == V::LANES {
                    V::widen(row.as_ptr().add(at))
                } else {
                    V::widen_first(row.as_ptr().add(at), n)
                };
                sums[0] = x.fma(zero, sums[0]);
                at += n;
            }
        }
        // Anything but 0 came from 0·∞ or 0·NaN; `max` would hide NaN, the sum does not.
        let sum = sums[0].add(sums[1]).add(sums[2].add(sums[3]));
        let mut lanes = [V::T::ZERO; TILE];
        sum.store(lanes.as_mut_ptr());
        lanes.iter().all(|&x| x == V::T::ZERO)
    }
}
