//! Sharing out the backward pass over threads.
//!
//! Where there are heads enough, a thread takes all of one key and value head. Else it takes a
//! block of its keys, owns their gradients, and meets all blocks of queries that see them. A block
//! of queries meets its blocks of keys one after the other, in ascending order: each waits for its
//! turn.

use super::super::block::Scratch;
use super::super::forward::{blocks, lock, share};
use super::super::options::Options;
use super::super::packed::Head;
use super::super::real::Real;
use super::super::simd::{Aligned, BLOCK, Give, Piece, RowFactors, sums_stride};
use super::super::visible::{Sight, Stretch};
use super::block::{Problem, Workspace, query_blocks};
use super::rows;
use std::ops::Range;
use std::sync::Mutex;

/// Neighbouring queries of one head and stretch.
struct QueryBlock<'g, T> {
    head: usize,
    queries: Range<usize>,
    /// Blocks of keys that they see some of.
    seen: Range<usize>,
    turn: Mutex<Turn<'g, T>>,
}

/// The gradient of some queries, and which block of keys adds to it next.
struct Turn<'g, T> {
    next: usize,
    sums: Aligned<T>,
    out: Piece<'g, T>,
}

/// A block of keys of one key and value head, with its gradients.
struct KeyBlock<'g, T> {
    stretch: usize,
    keys: Range<usize>,
    k: Piece<'g, T>,
    v: Piece<'g, T>,
}

/// A key and value head of a batch entry, and its query heads.
struct Group<'g, T> {
    index: usize,
    /// Of each stretch.
    queries: Vec<Vec<QueryBlock<'g, T>>>,
    /// In ascending order.
    keys: Vec<KeyBlock<'g, T>>,
}

/// Computes the gradients of q, k and v, and fills in `rows`.
pub(super) fn run<T: Real>(
    problem: &Problem<'_, T>,
    options: &Options,
    rows: &mut [RowFactors<T>],
    out: [Piece<'_, T>; 3],
) {
    let call = problem.call;
    let [batch, _, queries, _] = call.inputs.scores_shape();
    let kv_heads = call.inputs.kv_heads();
    let groups = batch * kv_heads;
    let stretches: Vec<Stretch> = (0..call.visible.stretches())
        .map(|index| call.visible.stretch(index))
        .collect();
    let cut = cut(problem, &stretches, out);
    let rows_of_group = call.group * queries;
    if groups == 0 || rows_of_group == 0 {
        // Nothing to compute, but what is asked for is zero.
        for group in cut {
            for KeyBlock { k, v, .. } in group.keys {
                problem.zero(k);
                problem.zero(v);
            }
        }
        return;
    }
    let fill = |index: usize, rows: &mut [RowFactors<T>], scratch: &mut Scratch<T>| {
        rows::fill(call, problem.saved, problem.grad, index, rows, scratch);
    };
    let parts: Vec<_> = rows.chunks_mut(rows_of_group).collect();
    let threads = options.threads();
    if threads == 1 || groups >= 4 * threads || groups.is_multiple_of(threads) {
        let tasks = Mutex::new(cut.into_iter().zip(parts));
        share(threads.min(groups), || {
            let (mut workspace, mut free) = (Workspace::new(), Vec::new());
            T::with_scratch(|scratch| {
                loop {
                    let Some((group, rows)) = lock(&tasks).next() else {
                        break;
                    };
                    fill(group.index, rows, scratch);
                    for part in group.keys {
                        let queries = &group.queries[part.stretch];
                        let stretch = &stretches[part.stretch];
                        let mut work = Work {
                            problem,
                            rows,
                            workspace: &mut workspace,
                            scratch,
                            free: &mut free,
                        };
                        work.key_block(group.index, stretch, part, queries);
                    }
                }
            });
        });
        return;
    }
    let tasks = Mutex::new(parts.into_iter().enumerate());
    share(threads.min(groups), || {
        T::with_scratch(|scratch| {
            loop {
                let Some((index, rows)) = lock(&tasks).next() else {
                    break;
                };
                fill(index, rows, scratch);
            }
        });
    });
    let mut tasks = Vec::new();
    let mut queries = Vec::new();
    for group in cut {
        tasks.extend(group.keys.into_iter().map(|part| (group.index, part)));
        queries.push(group.queries);
    }
    let count = tasks.len();
    let (tasks, queries, rows) = (Mutex::new(tasks.into_iter()), &queries, &*rows);
    share(threads.min(count), || {
        let (mut workspace, mut free) = (Workspace::new(), Vec::new());
        T::with_scratch(|scratch| {
            loop {
                let Some((group, part)) = lock(&tasks).next() else {
                    break;
                };
                let queries = &queries[group][part.stretch];
                let stretch = &stretches[part.stretch];
                let mut work = Work {
                    problem,
                    rows: &rows[group * rows_of_group..][..rows_of_group],
                    workspace: &mut workspace,
                    scratch,
                    free: &mut free,
                };
                work.key_block(group, stretch, part, queries);
            }
        });
    });
}

/// Cuts the gradients into blocks.
fn cut<'g, T: Real>(
    problem: &Problem<'_, T>,
    stretches: &[Stretch],
    [mut q, mut k, mut v]: [Piece<'g, T>; 3],
) -> Vec<Group<'g, T>> {
    let call = problem.call;
    let [batch, ..] = call.inputs.scores_shape();
    let kv_heads = call.inputs.kv_heads();
    let mut groups = Vec::with_capacity(batch * kv_heads);
    for b in 0..batch {
        let (mut q, mut k, mut v) = (q.take(0, 1), k.take(0, 1), v.take(0, 1));
        for g in 0..kv_heads {
            let mut queries: Vec<Vec<_>> = stretches.iter().map(|_| Vec::new()).collect();
            for head in g * call.group..(g + 1) * call.group {
                cut_queries(problem, stretches, (b, head), q.take(1, 1), &mut queries);
            }
            groups.push(Group {
                index: b * kv_heads + g,
                queries,
                keys: cut_keys(stretches, k.take(1, 1), v.take(1, 1)),
            });
        }
    }
    groups
}

/// The queries of one head. Those that see nothing are done.
fn cut_queries<'g, T: Real>(
    problem: &Problem<'_, T>,
    stretches: &[Stretch],
    (batch, head): (usize, usize),
    mut out: Piece<'g, T>,
    to: &mut [Vec<QueryBlock<'g, T>>],
) {
    // Stretches follow each other without a gap.
    for (stretch, to) in stretches.iter().zip(to) {
        let viewer = problem.call.visible.viewer(batch, stretch);
        for queries in query_blocks(stretch.queries.clone()) {
            let out = out.take(2, queries.len());
            let seen = seen(queries.clone().map(|query| viewer.sight(query)));
            if seen.is_empty() {
                problem.zero(out);
                continue;
            }
            to.push(QueryBlock {
                head,
                queries,
                turn: Mutex::new(Turn {
                    next: seen.start,
                    sums: Aligned::default(),
                    out,
                }),
                seen,
            });
        }
    }
}

/// Blocks of keys that hold all that is seen.
fn seen(sights: impl Iterator<Item = Sight>) -> Range<usize> {
    sights
        .filter(|sight| sight.from < sight.to)
        .map(|sight| sight.from / BLOCK..sight.to.div_ceil(BLOCK))
        .reduce(|a, b| a.start.min(b.start)..a.end.max(b.end))
        .unwrap_or_default()
}

/// The keys of one head.
fn cut_keys<'g, T: Real>(
    stretches: &[Stretch],
    mut k: Piece<'g, T>,
    mut v: Piece<'g, T>,
) -> Vec<KeyBlock<'g, T>> {
    let mut cut = Vec::new();
    for (index, stretch) in stretches.iter().enumerate() {
        for keys in blocks(stretch.keys.len()) {
            cut.push(KeyBlock {
                stretch: index,
                k: k.take(2, keys.len()),
                v: v.take(2, keys.len()),
                keys,
            });
        }
    }
    cut
}

/// What a thread works with.
struct Work<'w, 'p, T: Real> {
    problem: &'w Problem<'p, T>,
    /// Of the group.
    rows: &'w [RowFactors<T>],
    workspace: &'w mut Workspace<T>,
    scratch: &'w mut Scratch<T>,
    /// Memory for sums of queries that is not in use.
    free: &'w mut Vec<Aligned<T>>,
}

impl<T: Real> Work<'_, '_, T> {
    /// One block of keys against all queries that see it.
    fn key_block(
        &mut self,
        group: usize,
        stretch: &Stretch,
        mut part: KeyBlock<'_, T>,
        queries: &[QueryBlock<'_, T>],
    ) {
        let Work {
            problem,
            rows,
            workspace,
            scratch,
            free,
        } = self;
        let call = problem.call;
        let kv_heads = call.inputs.kv_heads();
        let head = Head {
            batch: group / kv_heads,
            kv_head: group % kv_heads,
            stretch,
        };
        let block = part.keys.start / BLOCK;
        let width = call.inputs.head_dim();
        let scale = T::from_f64(call.attention.scale.factor(width));
        workspace.open(call, head, part.keys.clone());
        for block_of in queries.iter().filter(|of| of.seen.contains(&block)) {
            let (h, queries) = (block_of.head, block_of.queries.clone());
            scratch.take_rows(call, head, h..h + 1, queries.clone());
            let by_key = workspace.gradient(problem, rows, scratch, head, block, false);
            let mut turn = lock(&block_of.turn);
            while turn.next != block {
                drop(turn);
                std::thread::yield_now();
                turn = lock(&block_of.turn);
            }
            let Turn { next, sums, out } = &mut *turn;
            let begin = block == block_of.seen.start;
            if begin {
                *sums = free.pop().unwrap_or_default();
            }
            let sums = sums.get(queries.len() * sums_stride(width));
            workspace.add(problem, scratch, head, block, by_key, (sums, begin));
            *next += 1;
            if *next == block_of.seen.end {
                problem.give(sums, scale, out);
                free.push(std::mem::take(&mut turn.sums));
            }
        }
        workspace.close(problem, [&mut part.k, &mut part.v]);
    }
}

impl<T: Real> Problem<'_, T> {
    /// Sums to where they belong.
    pub(super) fn give(&self, sums: &[T], factor: T, to: &mut Piece<'_, T>) {
        let add = self.add;
        (self.call.storage.give)(&Give { sums, factor, add }, to);
    }

    /// What nothing adds to.
    pub(super) fn zero(&self, mut piece: Piece<'_, T>) {
        let [batch, heads, length, width] = piece.shape();
        if !self.add && batch * heads * length > 0 {
            let zeros = vec![T::ZERO; batch * heads * length * sums_stride(width)];
            self.give(&zeros, T::ONE, &mut piece);
        }
    }
}
