//! Sharing out the backward pass over threads.
//!
//! A task is a block of keys of one key and value head: it owns their gradients, and meets all
//! blocks of queries that see them. A block of queries meets its blocks of keys one after the
//! other, in ascending order: each waits for its turn. Where there are heads enough, a task is all
//! blocks of keys of one head, and nobody waits.

use super::super::block::{Head, Scratch};
use super::super::call::Call;
use super::super::forward::{blocks, lock, share};
use super::super::options::Options;
use super::super::real::Float;
use super::super::simd::{Aligned, BLOCK, sums_stride};
use super::super::visible::Stretch;
use super::block::{Problem, QUERIES, Workspace, add};
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
    out: &'g mut [T],
}

/// A block of keys of one key and value head, with its gradients.
struct KeyBlock<'g, T> {
    group: usize,
    stretch: usize,
    keys: Range<usize>,
    k: &'g mut [T],
    v: &'g mut [T],
}

pub(super) fn run<T: Float>(problem: &Problem<'_, T>, options: &Options, out: [&mut [T]; 3]) {
    let call = problem.call;
    let [batch, heads, queries, keys] = call.inputs.scores_shape();
    let groups = batch * call.inputs.kv_heads();
    if batch * heads * queries * keys == 0 {
        return;
    }
    let [q, k, v] = out;
    let stretches: Vec<Stretch> = (0..call.visible.stretches())
        .map(|index| call.visible.stretch(index))
        .collect();
    let query_blocks = cut_queries(call, &stretches, q);
    let key_blocks = cut_keys(call, &stretches, groups, k, v);
    let threads = options.threads();
    let by_head = threads == 1 || groups >= 4 * threads || groups.is_multiple_of(threads);
    let count = key_blocks.len();
    let tasks = Mutex::new(key_blocks.into_iter().peekable());
    share(threads.min(if by_head { groups } else { count }), || {
        let mut workspace = Workspace::new();
        T::with_scratch(|scratch| {
            loop {
                let task: Vec<_> = {
                    let mut tasks = lock(&tasks);
                    let Some(first) = tasks.next() else { break };
                    let group = first.group;
                    let mut task = vec![first];
                    while by_head && let Some(next) = tasks.next_if(|next| next.group == group) {
                        task.push(next);
                    }
                    task
                };
                for part in task {
                    let queries = &query_blocks[part.group * stretches.len() + part.stretch];
                    let stretch = &stretches[part.stretch];
                    key_block(problem, &mut workspace, scratch, stretch, part, queries);
                }
            }
        });
    });
}

/// Blocks of queries of each group of heads and stretch.
fn cut_queries<'g, T: Float>(
    call: &Call<'_, T>,
    stretches: &[Stretch],
    q: &'g mut [T],
) -> Vec<Vec<QueryBlock<'g, T>>> {
    let [batch, heads, queries, _] = call.inputs.scores_shape();
    let width = call.inputs.head_dim();
    let groups = batch * call.inputs.kv_heads();
    let mut cut: Vec<Vec<_>> = (0..groups * stretches.len()).map(|_| Vec::new()).collect();
    for (index, mut rest) in q.chunks_mut(queries * width).enumerate() {
        let (b, head) = (index / heads, index % heads);
        let group = index / call.group;
        let mut free = 0;
        for (s, stretch) in stretches.iter().enumerate() {
            let viewer = call.visible.viewer(b, stretch);
            let mut first = stretch.queries.start;
            while first < stretch.queries.end {
                let end = (first + QUERIES).min(stretch.queries.end);
                let (_, behind) = rest.split_at_mut((first - free) * width);
                let (out, behind) = behind.split_at_mut((end - first) * width);
                rest = behind;
                free = end;
                let seen = seen((first..end).map(|query| viewer.sight(query)));
                cut[group * stretches.len() + s].push(QueryBlock {
                    head,
                    queries: first..end,
                    seen: seen.clone(),
                    turn: Mutex::new(Turn {
                        next: seen.start,
                        sums: Aligned::default(),
                        out,
                    }),
                });
                first = end;
            }
        }
    }
    cut
}

/// Blocks of keys that hold all that is seen.
fn seen(sights: impl Iterator<Item = super::super::visible::Sight>) -> Range<usize> {
    sights
        .filter(|sight| sight.from < sight.to)
        .map(|sight| sight.from / BLOCK..sight.to.div_ceil(BLOCK))
        .reduce(|a, b| a.start.min(b.start)..a.end.max(b.end))
        .unwrap_or_default()
}

/// Blocks of keys of all groups of heads and stretches, those of a group in ascending order.
fn cut_keys<'g, T: Float>(
    call: &Call<'_, T>,
    stretches: &[Stretch],
    groups: usize,
    k: &'g mut [T],
    v: &'g mut [T],
) -> Vec<KeyBlock<'g, T>> {
    let (d_k, d_v) = (call.inputs.head_dim(), call.inputs.value_dim());
    let (mut k, mut v) = (k, v);
    let mut cut = Vec::new();
    let keys = call.inputs.keys();
    for group in 0..groups {
        let mut free = 0;
        for (index, stretch) in stretches.iter().enumerate() {
            for part in blocks(stretch.keys.len()) {
                let first = stretch.keys.start + part.start;
                let mine = take(&mut k, (first - free) * d_k, part.len() * d_k);
                let mine_v = take(&mut v, (first - free) * d_v, part.len() * d_v);
                free = first + part.len();
                cut.push(KeyBlock {
                    group,
                    stretch: index,
                    keys: part,
                    k: mine,
                    v: mine_v,
                });
            }
        }
        take(&mut k, (keys - free) * d_k, 0);
        take(&mut v, (keys - free) * d_v, 0);
    }
    cut
}

/// Leaves out `skip` numbers and takes `count`.
fn take<'g, T>(from: &mut &'g mut [T], skip: usize, count: usize) -> &'g mut [T] {
    let (_, rest) = std::mem::take(from).split_at_mut(skip);
    let (taken, rest) = rest.split_at_mut(count);
    *from = rest;
    taken
}

/// One block of keys against all queries that see it.
fn key_block<T: Float>(
    problem: &Problem<'_, T>,
    workspace: &mut Workspace<T>,
    scratch: &mut Scratch<T>,
    stretch: &Stretch,
    part: KeyBlock<'_, T>,
    queries: &[QueryBlock<'_, T>],
) {
    let call = problem.call;
    let kv_heads = call.inputs.kv_heads();
    let head = Head {
        batch: part.group / kv_heads,
        kv_head: part.group % kv_heads,
        stretch,
    };
    let block = part.keys.start / BLOCK;
    let width = call.inputs.head_dim();
    let scale = T::from_f64(call.attention.scale.factor(width));
    workspace.open(call, head, part.keys.clone());
    for rows in queries.iter().filter(|rows| rows.seen.contains(&block)) {
        scratch.take_rows(call, head, rows.head..rows.head + 1, rows.queries.clone());
        let by_key = workspace.gradient(problem, scratch, head, block, false);
        let mut turn = lock(&rows.turn);
        while turn.next != block {
            drop(turn);
            std::thread::yield_now();
            turn = lock(&rows.turn);
        }
        let Turn { next, sums, out } = &mut *turn;
        let sums = sums.get(rows.queries.len() * sums_stride(width));
        let begin = block == rows.seen.start;
        workspace.add(problem, scratch, head, block, by_key, (sums, begin));
        *next += 1;
        if *next == rows.seen.end {
            add(sums, scale, width, out);
            turn.sums = Aligned::default();
        }
    }
    workspace.close(call, [part.k, part.v]);
}
