//! Sharing out a call over threads.
//!
//! Queries are cut into blocks. Where several blocks use the same keys, these are packed once
//! before: by the thread that takes all blocks of a head, or by all threads for several heads
//! before they share out the blocks. The last heads are shared by parts of their queries, so that no
//! thread waits long for one that began late or was held up. Where there are few blocks and many keys
//! (decoding), chunks of keys are shared out too, and their states merged in order.

use super::ahead::Ahead;
use super::block::{CHUNK, FEWER_QUERIES, MASKED_QUERIES, MOST_QUERIES, Scratch, TILES};
use super::call::Call;
use super::options::Options;
use super::packed::{Head, Packed, pack, values_finite, widen_values, widened_len};
use super::real::{Float, Real};
use super::simd::{Aligned, BLOCK, Claim, Desk, Groups, Strip, packed_len};
use super::state::State;
use super::visible::Stretch;
use crate::attention::Inputs;
use crate::view_mut::ViewMut;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// Below this much arithmetic, or memory traffic counted as arithmetic, one thread is faster
/// than two: handing over costs some ten microseconds.
const WORTH_SHARING: f64 = 4e6;

/// Up to so many queries, memory is not asked for a group of heads ahead.
const FEW_IN_ALL: usize = 32;

/// Parts of a group of heads that several threads share, about: each begins and ends on its own.
const PARTS: usize = 4;

/// Floating-point operations in the time that one byte takes from memory.
const FLOPS_PER_BYTE: f64 = 5.0;

/// Computes all rows; returns those that keep no key.
pub(super) fn forward<T: Float>(
    call: &Call<'_, T>,
    output: ViewMut<'_, T>,
    lse: &mut [f64],
    options: &Options,
) -> Vec<[usize; 3]> {
    let [batch, heads, queries, keys] = call.inputs.scores_shape();
    if batch * heads * queries == 0 {
        return Vec::new();
    }
    // Even asking how many threads there are starts them, so a small call does not ask.
    let threads = if is_for_one_thread(call.inputs) {
        1
    } else {
        options.threads()
    };
    let one;
    let many;
    let strips: &[Strip] = if call.visible.stretches() == 1 {
        one = [strip(call, &call.visible.stretch(0), threads)];
        &one
    } else {
        many = (0..call.visible.stretches())
            .map(|index| strip(call, &call.visible.stretch(index), threads))
            .collect::<Vec<_>>();
        &many
    };
    let groups = batch * call.inputs.kv_heads();
    let boxes: usize = strips.iter().map(Strip::boxes).sum();
    let empty = Mutex::new(Vec::new());
    let whole_groups = strips.iter().all(|strip| strip.boxes() <= 1);
    if whole_groups && threads > 1 && boxes * groups < 4 * threads && keys > CHUNK {
        let desk = Desk::new(output, lse, call.group, strips);
        by_chunk(call, &desk, threads, &empty);
    } else if whole_groups && (queries * call.group <= FEW_IN_ALL || threads > boxes * groups) {
        let desk = Desk::new(output, lse, call.group, strips);
        share(threads.min(boxes * groups), || {
            work_on_boxes(call, &desk, usize::MAX, &[], &empty);
        });
    } else if shares_evenly(groups, threads) {
        let parts = strips[0].finer((queries / PARTS).next_multiple_of(TILES).max(2 * TILES));
        let shared = if threads > 1 && strips.len() == 1 {
            threads
        } else {
            0
        };
        let desk = Groups::new(output, lse, parts, shared);
        share(threads, || by_head(call, &desk, strips, threads, &empty));
    } else {
        let desk = Desk::new(output, lse, call.group, strips);
        by_wave(call, &desk, boxes, groups, threads, &empty);
    }
    let mut empty = empty.into_inner().unwrap_or_else(PoisonError::into_inner);
    empty.sort_unstable();
    empty
}

/// Whether threads that take whole groups of heads are idle for less than a twentieth of the time.
fn shares_evenly(groups: usize, threads: usize) -> bool {
    20 * groups >= 19 * threads * groups.div_ceil(threads)
}

/// Whether sharing out a call would take longer than it saves. Its work is an upper bound where
/// keys are dropped.
pub(super) fn is_for_one_thread<T: Float>(inputs: &Inputs<'_, T>) -> bool {
    let [batch, heads, queries, keys] = inputs.scores_shape();
    let width = (inputs.head_dim() + inputs.value_dim()) as f64;
    let flops = 2.0 * (batch * heads * queries) as f64 * keys as f64 * width;
    let bytes = (batch * inputs.kv_heads()) as f64 * keys as f64 * width * size_of::<T>() as f64;
    flops.max(bytes * FLOPS_PER_BYTE) < WORTH_SHARING
}

/// How the queries of a stretch are cut.
fn strip<T: Float>(call: &Call<'_, T>, stretch: &Stretch, threads: usize) -> Strip {
    let queries = stretch.queries.len();
    let [batch, heads, ..] = call.inputs.scores_shape();
    let large = (batch * heads * queries).div_ceil(MOST_QUERIES);
    let most = if call.visible.moves() || threads > 1 && large < 4 * threads {
        FEWER_QUERIES
    } else if call.drops_single_keys() {
        MASKED_QUERIES
    } else {
        MOST_QUERIES
    };
    let (heads_step, queries_step) = if queries * call.group <= most {
        (call.group, queries)
    } else {
        let blocks = queries.div_ceil(most);
        (
            most / queries.max(1),
            queries.div_ceil(blocks).next_multiple_of(TILES).min(most),
        )
    };
    Strip::new(
        stretch.queries.clone(),
        call.group,
        heads_step,
        queries_step,
    )
}

/// Runs `work` on so many threads, this one among them, until all return.
pub(super) fn share(threads: usize, work: impl Fn() + Sync) {
    if threads <= 1 {
        work();
    } else {
        rayon::in_place_scope(|scope| {
            for _ in 1..threads {
                scope.spawn(|_| work());
            }
            work();
        });
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes boxes below `limit` and computes them whole. `packed` has the keys of each stretch of
/// the groups of heads from `limit`'s wave on, or nothing.
fn work_on_boxes<T: Float>(
    call: &Call<'_, T>,
    desk: &Desk<'_, T>,
    limit: usize,
    packed: &[Vec<Packed<'_, T::Real>>],
    empty: &Mutex<Vec<[usize; 3]>>,
) {
    T::with_scratch(|scratch| {
        let mut found = Vec::new();
        while let Some(mut claim) = desk.next(limit) {
            let stretch = call.visible.stretch(claim.strip());
            let head = head_of(&claim, &stretch);
            let keys = match packed.len() {
                0 => None,
                groups => {
                    let group = head.batch * call.inputs.kv_heads() + head.kv_head;
                    Some(packed[group % groups][claim.strip()])
                }
            };
            scratch.take_rows(call, head, claim.heads(), claim.queries());
            scratch.run(call, head, keys, true, &mut Ahead::default());
            scratch.write(call, head, &mut claim, &mut found);
        }
        if !found.is_empty() {
            lock(empty).append(&mut found);
        }
    });
}

fn head_of<'s, T: Copy>(claim: &Claim<'_, T>, stretch: &'s Stretch) -> Head<'s> {
    Head {
        batch: claim.batch(),
        kv_head: claim.kv_head(),
        stretch,
    }
}

/// Takes whole groups of heads: packs their keys, then computes all their blocks. The last groups
/// are shared, and packed by each thread that takes a part.
fn by_head<T: Float>(
    call: &Call<'_, T>,
    desk: &Groups<'_, T>,
    strips: &[Strip],
    threads: usize,
    empty: &Mutex<Vec<[usize; 3]>>,
) {
    T::with_scratch(|scratch| {
        let [_, _, queries, _] = call.inputs.scores_shape();
        let width = call.slots();
        let mut found = Vec::new();
        let mut finite = Vec::new();
        let mut spare = Vec::new();
        // Apart from the scratch, since the blocks use that.
        let mut tiles = std::mem::take(&mut scratch.k);
        let mut values = std::mem::take(&mut scratch.v);
        let mut own = None;
        while let Some(mut claim) = desk.next(own) {
            // The same group again is in parts, and packed already.
            let before = own.replace(claim.group());
            let again = before == own;
            let first_head = claim.kv_head() * call.group;
            let is_whole = claim.heads().len() == call.group && claim.queries().len() == queries;
            let whole = call.visible.stretch(0);
            let mut ahead = match (claim.later(threads), strips) {
                (Some((batch, kv_head)), [strip]) => {
                    let stretch = &whole;
                    let head = Head {
                        batch,
                        kv_head,
                        stretch,
                    };
                    Ahead::head(
                        call,
                        head,
                        strip.boxes() * stretch.keys.len().div_ceil(BLOCK),
                    )
                }
                _ => Ahead::default(),
            };
            for (index, strip) in strips.iter().enumerate() {
                let stretch = call.visible.stretch(index);
                let head = head_of(&claim, &stretch);
                let keys = stretch.keys.len();
                let tiles = tiles.get(packed_len(keys, width));
                let values = values.get(widened_len(call, keys));
                if !again {
                    pack(call, head, 0..keys, &mut spare, tiles);
                    widen_values(call, head, 0..keys, &mut spare, values);
                    finite.clear();
                    if call.visible.moves() || call.drops_single_keys() {
                        finite.extend(
                            blocks(keys).map(|keys| values_finite(call, head, keys, &mut spare)),
                        );
                    }
                }
                let boxes = if is_whole { strip.boxes() } else { 1 };
                let part = (claim.heads(), claim.queries());
                let at = |index| {
                    if !is_whole {
                        return part.clone();
                    }
                    let (heads, queries) = strip.at(index);
                    (first_head + heads.start..first_head + heads.end, queries)
                };
                for index in 0..boxes {
                    let (heads, queries) = at(index);
                    let next = (index + 1 < boxes).then(|| {
                        let (heads, queries) = at(index + 1);
                        (heads.start, queries)
                    });
                    let these = (heads.clone(), queries.clone());
                    ahead.queries(call, head, &claim, these, next);
                    scratch.take_rows(call, head, heads, queries);
                    let packed = Packed {
                        tiles,
                        values,
                        finite: &finite,
                    };
                    scratch.run(call, head, Some(packed), true, &mut ahead);
                    scratch.write(call, head, &mut claim, &mut found);
                }
            }
        }
        scratch.k = tiles;
        scratch.v = values;
        if !found.is_empty() {
            lock(empty).append(&mut found);
        }
    });
}

/// The blocks that so many keys make.
pub(super) fn blocks(keys: usize) -> impl Iterator<Item = Range<usize>> {
    (0..keys.div_ceil(BLOCK)).map(move |block| block * BLOCK..((block + 1) * BLOCK).min(keys))
}

/// Keys of one block that some thread packs.
struct Job<'p, T> {
    group: usize,
    stretch: usize,
    keys: Range<usize>,
    tiles: &'p mut [T],
    values: &'p mut [T],
    finite: &'p mut bool,
}

/// Packs the keys of some groups of heads with all threads, then shares out their blocks; then
/// the next groups.
fn by_wave<T: Float>(
    call: &Call<'_, T>,
    desk: &Desk<'_, T>,
    boxes: usize,
    groups: usize,
    threads: usize,
    empty: &Mutex<Vec<[usize; 3]>>,
) {
    let width = call.slots();
    let wave = (4 * threads).div_ceil(boxes).clamp(1, groups);
    let stretches: Vec<Stretch> = (0..call.visible.stretches())
        .map(|index| call.visible.stretch(index))
        .collect();
    let tiles_of = |stretch: &Stretch| packed_len(stretch.keys.len(), width);
    let tiles_of_group: usize = stretches.iter().map(tiles_of).sum();
    let values_of = |keys: usize| widened_len(call, keys);
    let values_of_group: usize = stretches.iter().map(|s| values_of(s.keys.len())).sum();
    let blocks_of_group: usize = stretches
        .iter()
        .map(|stretch| blocks(stretch.keys.len()).count())
        .sum();
    let mut memory = Aligned::default();
    let mut finite = vec![true; blocks_of_group * wave];
    let needs_finite = call.visible.moves() || call.drops_single_keys();
    let mut first = 0;
    while first < groups {
        let end = (first + wave).min(groups);
        let memory = memory.get((tiles_of_group + values_of_group) * wave);
        let (tiles, values) = memory.split_at_mut(tiles_of_group * wave);
        let sizes = |keys: usize| [packed_len(keys, width), values_of(keys)];
        let jobs = cut(first..end, &stretches, sizes, [tiles, values], &mut finite);
        let jobs = Mutex::new(jobs.into_iter());
        share(threads, || {
            let mut spare = Vec::new();
            loop {
                let Some(job) = lock(&jobs).next() else {
                    break;
                };
                let head = Head {
                    batch: job.group / call.inputs.kv_heads(),
                    kv_head: job.group % call.inputs.kv_heads(),
                    stretch: &stretches[job.stretch],
                };
                pack(call, head, job.keys.clone(), &mut spare, job.tiles);
                widen_values(call, head, job.keys.clone(), &mut spare, job.values);
                if needs_finite {
                    *job.finite = values_finite(call, head, job.keys, &mut spare);
                }
            }
        });
        let (mut tiles, mut values, mut finite) = (&*tiles, &*values, &finite[..]);
        let packed: Vec<Vec<Packed<'_, T::Real>>> = (0..wave)
            .map(|_| {
                stretches
                    .iter()
                    .map(|stretch| Packed {
                        tiles: split_off(&mut tiles, tiles_of(stretch)),
                        values: split_off(&mut values, values_of(stretch.keys.len())),
                        finite: split_off(&mut finite, blocks(stretch.keys.len()).count()),
                    })
                    .collect()
            })
            .collect();
        share(threads, || {
            work_on_boxes(call, desk, end * boxes, &packed, empty);
        });
        first = end;
    }
}

fn split_off<'m, T>(memory: &mut &'m [T], count: usize) -> &'m [T] {
    let (head, tail) = memory.split_at(count);
    *memory = tail;
    head
}

/// The jobs of a wave; `sizes` are what so many keys take of each part of the memory.
fn cut<'p, T>(
    groups: Range<usize>,
    stretches: &[Stretch],
    sizes: impl Fn(usize) -> [usize; 2],
    [mut tiles, mut values]: [&'p mut [T]; 2],
    finite: &'p mut [bool],
) -> Vec<Job<'p, T>> {
    let mut finite = finite.iter_mut();
    let mut jobs = Vec::new();
    for group in groups {
        for (index, stretch) in stretches.iter().enumerate() {
            for keys in blocks(stretch.keys.len()) {
                let [of_keys, of_values] = sizes(keys.len());
                let (part, rest) = tiles.split_at_mut(of_keys);
                tiles = rest;
                let (of_values, rest) = values.split_at_mut(of_values);
                values = rest;
                if let Some(finite) = finite.next() {
                    jobs.push(Job {
                        group,
                        stretch: index,
                        keys,
                        tiles: part,
                        values: of_values,
                        finite,
                    });
                }
            }
        }
    }
    jobs
}

/// Shares out chunks of keys of each box, then merges the states in order.
fn by_chunk<T: Float>(
    call: &Call<'_, T>,
    desk: &Desk<'_, T>,
    threads: usize,
    empty: &Mutex<Vec<[usize; 3]>>,
) {
    let width = call.inputs.value_dim();
    let mut claims = Vec::new();
    while let Some(claim) = desk.next(usize::MAX) {
        claims.push(claim);
    }
    // For each claim the chunks that it sees, and for each of them its part of the memory.
    let mut chunks = Vec::new();
    let mut needed = 0;
    T::with_scratch(|scratch| {
        for (index, claim) in claims.iter().enumerate() {
            let stretch = call.visible.stretch(claim.strip());
            let head = head_of(claim, &stretch);
            scratch.take_rows(call, head, claim.heads(), claim.queries());
            let seen = scratch.seen();
            let rows = claim.heads().len() * claim.queries().len();
            let last = seen.end.div_ceil(CHUNK).max(seen.start / CHUNK + 1);
            for chunk in seen.start / CHUNK..last {
                let length = State::<T::Real>::saved_len(rows, width);
                chunks.push((index, chunk, needed..needed + length));
                needed += length;
            }
        }
    });
    let mut memory = vec![T::Real::ZERO; needed];
    {
        let mut rest = &mut memory[..];
        let mut jobs = Vec::new();
        for (index, chunk, range) in &chunks {
            let (part, left) = rest.split_at_mut(range.len());
            rest = left;
            jobs.push((*index, *chunk, part));
        }
        let jobs = Mutex::new(jobs.into_iter());
        let claims = &claims;
        share(threads, || {
            T::with_scratch(|scratch| {
                loop {
                    let Some((index, chunk, part)) = lock(&jobs).next() else {
                        break;
                    };
                    let claim = &claims[index];
                    let stretch = call.visible.stretch(claim.strip());
                    let head = head_of(claim, &stretch);
                    scratch.take_rows(call, head, claim.heads(), claim.queries());
                    let ahead = &mut Ahead::default();
                    scratch.run_chunk(call, head, None, chunk, true, ahead);
                    scratch.chunk.save(width, part);
                }
            });
        });
    }
    T::with_scratch(|scratch| {
        let mut chunks = chunks.into_iter().peekable();
        for (index, claim) in claims.iter_mut().enumerate() {
            let stretch = call.visible.stretch(claim.strip());
            let head = head_of(claim, &stretch);
            let rows = claim.heads().len() * claim.queries().len();
            scratch.take_rows(call, head, claim.heads(), claim.queries());
            let mut first = true;
            while let Some((_, _, range)) = chunks.next_if(|(owner, _, _)| *owner == index) {
                let saved = &memory[range];
                if first {
                    scratch.total.load(rows, width, saved);
                } else {
                    scratch.chunk.load(rows, width, saved);
                    let Scratch { total, chunk, .. } = &mut *scratch;
                    total.merge(call, chunk, width);
                }
                first = false;
            }
            scratch.write(call, head, claim, &mut lock(empty));
        }
    });
}
