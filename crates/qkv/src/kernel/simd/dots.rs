//! Scores of very few queries, where the order of a sum need not be the same everywhere.
//!
//! ```text
//! score[i, j] = Σ_a Σ_{d ≡ a mod 16} q[i,d]·k[j,d]
//! ```
//!
//! Sixteen chains along d, then a tree: keys are read as they lie, while one chain in the order of
//! d needs them turned, which is most of the work if a single query uses them.

use super::super::real::{Real, Stored};
use super::convert::Holds;
use super::pack::TILE;
use super::scores::Unpacked;
use super::softmax::across;
use super::{BLOCK, STRIDE};

/// How far ahead keys are asked for.
const AHEAD: isize = 32;

/// Writes row i, key j to `out[i·STRIDE + j]` for the keys of the spans that `k` holds, and
/// unspecified numbers to up to 15 behind them.
///
/// # Panics
/// If an argument is shorter than the spans need.
#[inline(always)]
pub(super) unsafe fn run<V: Holds<E>, E: Stored<Real = V::T>>(
    args: &Unpacked<'_, E>,
    out: &mut [V::T],
) {
    let (rows, width) = (args.q.count(), args.q.width());
    assert!(args.k.width() == width && args.keys.to <= BLOCK);
    assert!(args.spans.len() == rows && args.k.count() >= args.keys.len());
    assert!(out.len() >= rows * STRIDE);
    for (i, span) in args.spans.iter().enumerate() {
        let span = span.within(args.keys.from, args.keys.to);
        let q = args.q.row(i).as_ptr();
        let mut key = span.from;
        while key < span.to {
            let mut sums = [[V::T::ZERO; TILE]; TILE];
            // SAFETY: keys up to the last of the span exist in `k`, and have `width` columns, as q
            // has; `out` has room for a register behind a key of the block.
            unsafe {
                for (lane, sums) in sums.iter_mut().enumerate().take(V::LANES) {
                    // Behind the last key it is taken again.
                    let row = (key + lane).min(span.to - 1) - args.keys.from;
                    let k = args
                        .k
                        .pointer()
                        .wrapping_offset(row as isize * args.k.stride());
                    dot::<V, E>(
                        q,
                        k,
                        width,
                        k.wrapping_offset(AHEAD * args.k.stride()),
                        sums,
                    );
                }
                across(sums.as_ptr().cast(), TILE, V::LANES, TILE, |a: V, b| {
                    a.add(b)
                })
                .store(out.as_mut_ptr().add(i * STRIDE + key));
            }
            key += V::LANES;
        }
    }
}

/// Sixteen sums, for a mod 16; meanwhile asks for the row at `ahead`.
#[inline(always)]
unsafe fn dot<V: Holds<E>, E: Stored<Real = V::T>>(
    q: *const V::T,
    k: *const E,
    width: usize,
    ahead: *const E,
    sums: &mut [V::T; TILE],
) {
    unsafe {
        let mut lane = 0;
        while lane < TILE {
            let mut sum = V::splat(V::T::ZERO);
            let mut d = lane;
            while d < width {
                let n = V::LANES.min(width - d);
                let (x, y) = if n == V::LANES {
                    (V::load(q.add(d)), V::widen(k.add(d)))
                } else {
                    (V::load_first(q.add(d), n), V::widen_first(k.add(d), n))
                };
                sum = x.fma(y, sum);
                if (d * size_of::<E>()).is_multiple_of(64) {
                    V::prefetch(ahead.wrapping_add(d).cast());
                }
                d += TILE;
            }
            sum.store(sums.as_mut_ptr().add(lane));
            lane += V::LANES;
        }
    }
}
