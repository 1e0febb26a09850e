//! The gradient of a bias: the gradient of scores, summed over the axes that the bias repeats.
//!
//! The scores are computed once more, so that each number of the bias is summed by one thread: over
//! batch entries, heads and queries, ascending.

use super::super::block::Head;
use super::super::forward::{blocks, lock, share};
use super::super::options::Options;
use super::super::real::Float;
use super::super::simd::{BLOCK, STRIDE};
use super::block::{Problem, QUERIES, Workspace};
use std::ops::Range;
use std::sync::Mutex;

/// What one thread sums: some keys of one batch entry and head of the bias.
struct Task {
    batch: usize,
    head: usize,
    /// Stretches and blocks of their keys.
    keys: Vec<(usize, Range<usize>)>,
}

/// Adds to `to`, which has the shape of the bias.
pub(super) fn run<T: Float>(
    problem: &Problem<'_, T>,
    options: &Options,
    shape: [usize; 4],
    to: &mut [T],
) {
    let call = problem.call;
    let [batch, heads, queries, keys] = call.inputs.scores_shape();
    if batch * heads * queries * keys == 0 {
        return;
    }
    let all: Vec<_> = (0..call.visible.stretches())
        .flat_map(|s| blocks(call.visible.stretch(s).keys.len()).map(move |keys| (s, keys)))
        .collect();
    // Where one number serves all keys, one thread sums over all.
    let together = if shape[3] == 1 { all.len() } else { 1 };
    let mut tasks = Vec::new();
    for batch in 0..shape[0] {
        for head in 0..shape[1] {
            tasks.extend(all.chunks(together).map(|keys| Task {
                batch,
                head,
                keys: keys.to_vec(),
            }));
        }
    }
    let threads = options.threads().min(tasks.len());
    let tasks = Mutex::new(tasks.into_iter());
    let to = Mutex::new(to);
    share(threads, || {
        let mut workspace = Workspace::new();
        let mut sums = Vec::new();
        loop {
            let Some(task) = lock(&tasks).next() else {
                break;
            };
            let columns = if shape[3] == 1 { 1 } else { BLOCK };
            sums.clear();
            sums.resize(shape[2] * columns, T::ZERO);
            for (stretch, keys) in &task.keys {
                sum(
                    problem,
                    &mut workspace,
                    shape,
                    &task,
                    (*stretch, keys.clone()),
                    &mut sums,
                );
            }
            let start = match &task.keys[..] {
                [(stretch, keys), ..] if shape[3] > 1 => {
                    call.visible.stretch(*stretch).keys.start + keys.start
                }
                _ => 0,
            };
            let width = if shape[3] == 1 {
                1
            } else {
                task.keys[0].1.len()
            };
            let mut to = lock(&to);
            for (i, sums) in sums.chunks_exact(columns).enumerate() {
                let at = ((task.batch * shape[1] + task.head) * shape[2] + i) * shape[3] + start;
                for (to, sum) in to[at..at + width].iter_mut().zip(sums) {
                    *to = *to + *sum;
                }
            }
        }
    });
}

/// Sums over all batch entries, heads and queries that use the task's part of the bias, for one
/// block of keys.
fn sum<T: Float>(
    problem: &Problem<'_, T>,
    workspace: &mut Workspace<T>,
    shape: [usize; 4],
    task: &Task,
    (stretch, keys): (usize, Range<usize>),
    sums: &mut [T],
) {
    let call = problem.call;
    let [batch, heads, ..] = call.inputs.scores_shape();
    let used_by = |index: usize, size: usize, all: usize| {
        if size == 1 { 0..all } else { index..index + 1 }
    };
    let stretch = call.visible.stretch(stretch);
    let block = keys.start / BLOCK;
    let columns = if shape[3] == 1 { 1 } else { BLOCK };
    T::with_scratch(|scratch| {
        for b in used_by(task.batch, shape[0], batch) {
            for h in used_by(task.head, shape[1], heads) {
                let head = Head {
                    batch: b,
                    kv_head: h / call.group,
                    stretch: &stretch,
                };
                workspace.open(call, head, keys.clone());
                for first in stretch.queries.clone().step_by(QUERIES) {
                    let queries = first..(first + QUERIES).min(stretch.queries.end);
                    scratch.take_rows(call, head, h..h + 1, queries.clone());
                    workspace.gradient(problem, scratch, head, block, true);
                    let dx = workspace.dx(queries.len());
                    for ((i, dx), span) in queries.zip(dx.chunks(STRIDE)).zip(&scratch.spans) {
                        let row = if shape[2] == 1 { 0 } else { i };
                        let sums = &mut sums[row * columns..][..columns];
                        for j in span.from..span.to {
                            let sum = &mut sums[if columns == 1 { 0 } else { j }];
                            *sum = *sum + dx[j];
                        }
                    }
                }
            }
        }
    });
}
