//! The gradient of a bias: the gradient of scores, summed over the axes that the bias repeats.
//!
//! The scores are computed once more, so that each number of the bias is summed by one thread: over
//! batch entries, heads and queries, ascending.

use super::super::block::Scratch;
use super::super::forward::{blocks, lock, share};
use super::super::options::Options;
use super::super::packed::Head;
use super::super::real::Real;
use super::super::simd::{BLOCK, Piece, RowFactors, STRIDE, sums_stride};
use super::block::{Problem, Workspace, query_blocks};
use std::ops::Range;
use std::sync::Mutex;

/// What one thread sums: some keys of one batch entry and head of the bias.
struct Task<'g, T> {
    batch: usize,
    head: usize,
    /// Stretches and blocks of their keys.
    keys: Vec<(usize, Range<usize>)>,
    out: Piece<'g, T>,
}

/// `out` has the shape of the bias; `rows` are all rows.
pub(super) fn run<T: Real>(
    problem: &Problem<'_, T>,
    options: &Options,
    rows: &[RowFactors<T>],
    out: Piece<'_, T>,
) {
    let shape = out.shape();
    let tasks = cut(problem, out);
    let threads = options.threads().min(tasks.len());
    let tasks = Mutex::new(tasks.into_iter());
    share(threads, || {
        let mut workspace = Workspace::new();
        let mut sums = Vec::new();
        T::with_scratch(|scratch| {
            loop {
                let Some(mut task) = lock(&tasks).next() else {
                    break;
                };
                let [_, _, length, width] = task.out.shape();
                sums.clear();
                sums.resize(length * sums_stride(width), T::ZERO);
                for keys in &task.keys {
                    let place = [task.batch, task.head];
                    let mut sum = Sum {
                        problem,
                        rows,
                        workspace: &mut workspace,
                        scratch,
                        sums: &mut sums,
                    };
                    sum.block(shape, place, keys);
                }
                problem.give(&sums, T::ONE, &mut task.out);
            }
        });
    });
}

fn cut<'g, T: Real>(problem: &Problem<'_, T>, mut out: Piece<'g, T>) -> Vec<Task<'g, T>> {
    let visible = &problem.call.visible;
    let all: Vec<_> = (0..visible.stretches())
        .flat_map(|s| blocks(visible.stretch(s).keys.len()).map(move |keys| (s, keys)))
        .collect();
    let [batch, heads, _, keys] = out.shape();
    let mut tasks = Vec::new();
    for b in 0..batch {
        let mut entry = out.take(0, 1);
        for h in 0..heads {
            let mut of_head = entry.take(1, 1);
            // Where one number serves all keys, one thread sums over all.
            let together = if keys == 1 { all.len().max(1) } else { 1 };
            tasks.extend(all.chunks(together).map(|blocks| Task {
                batch: b,
                head: h,
                out: of_head.take(3, if keys == 1 { 1 } else { blocks[0].1.len() }),
                keys: blocks.to_vec(),
            }));
            problem.zero(of_head);
        }
    }
    tasks
}

/// What a thread works with.
struct Sum<'s, 'p, T: Real> {
    problem: &'s Problem<'p, T>,
    rows: &'s [RowFactors<T>],
    workspace: &'s mut Workspace<T>,
    scratch: &'s mut Scratch<T>,
    /// Row i of the bias at `i·sums_stride(width)`.
    sums: &'s mut [T],
}

impl<T: Real> Sum<'_, '_, T> {
    /// Sums over all batch entries, heads and queries that use a batch entry and head of the bias,
    /// for one block of keys.
    fn block(
        &mut self,
        shape: [usize; 4],
        place: [usize; 2],
        (stretch, keys): &(usize, Range<usize>),
    ) {
        let Sum {
            problem,
            rows,
            workspace,
            scratch,
            sums,
        } = self;
        let call = problem.call;
        let [batch, heads, of_head, _] = call.inputs.scores_shape();
        let used_by = |axis: usize, all: usize| match shape[axis] {
            1 => 0..all,
            _ => place[axis]..place[axis] + 1,
        };
        let stretch = call.visible.stretch(*stretch);
        let block = keys.start / BLOCK;
        let one_for_all = shape[3] == 1;
        let columns = sums_stride(if one_for_all { 1 } else { keys.len() });
        let rows_of_group = call.group * of_head;
        for b in used_by(0, batch) {
            for h in used_by(1, heads) {
                let head = Head {
                    batch: b,
                    kv_head: h / call.group,
                    stretch: &stretch,
                };
                let group = b * call.inputs.kv_heads() + head.kv_head;
                let rows = &rows[group * rows_of_group..][..rows_of_group];
                workspace.open(call, head, keys.clone());
                for queries in query_blocks(stretch.queries.clone()) {
                    scratch.take_rows(call, head, h..h + 1, queries.clone());
                    workspace.gradient(problem, rows, scratch, head, block, true);
                    let dx = workspace.dx(queries.len());
                    for ((i, dx), span) in queries.zip(dx.chunks(STRIDE)).zip(&scratch.spans) {
                        let row = if shape[2] == 1 { 0 } else { i };
                        let sums = &mut sums[row * columns..][..columns];
                        for j in span.from..span.to {
                            let sum = &mut sums[if one_for_all { 0 } else { j }];
                            *sum = *sum + dx[j];
                        }
                    }
                }
            }
        }
    }
}
