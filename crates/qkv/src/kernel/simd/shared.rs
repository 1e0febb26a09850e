//! One output, written by several threads, each its own rows.
//!
//! A [`Desk`] holds the output and hands out [`Claim`]s. Each claim is the exclusive right to some
//! rows: the desk cuts batch × heads × queries into a grid of boxes and hands out each box once.
//! [`Groups`] hands out whole groups of heads, and of the last ones their boxes.

use super::asks::Asks;
use crate::view_mut::ViewMut;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How one stretch of queries of a group of heads is cut into boxes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Strip {
    queries: Range<usize>,
    /// Heads of the group.
    heads: usize,
    heads_step: usize,
    queries_step: usize,
    /// Boxes along the heads, and along the queries.
    counts: [usize; 2],
}

impl Strip {
    /// Boxes of so many heads and queries, the last ones perhaps of fewer.
    pub fn new(
        queries: Range<usize>,
        heads: usize,
        heads_step: usize,
        queries_step: usize,
    ) -> Self {
        let (heads_step, queries_step) = (heads_step.max(1), queries_step.max(1));
        let along = |size: usize, step: usize| match size <= step {
            true => usize::from(size > 0), // no division for a small call
            false => size.div_ceil(step),
        };
        Strip {
            counts: [along(heads, heads_step), along(queries.len(), queries_step)],
            queries,
            heads,
            heads_step,
            queries_step,
        }
    }

    /// The same heads and queries in boxes of at most `queries_step` queries.
    pub fn finer(&self, queries_step: usize) -> Self {
        let step = self.queries_step.min(queries_step);
        Strip::new(self.queries.clone(), self.heads, self.heads_step, step)
    }

    /// Number of boxes.
    pub fn boxes(&self) -> usize {
        self.counts[0] * self.counts[1]
    }

    /// Heads, counted within the group, and queries of a box. The last queries come first: with a
    /// causal mask they are most work.
    pub fn at(&self, index: usize) -> (Range<usize>, Range<usize>) {
        let along = self.counts[1];
        let (row, column) = if along == 1 {
            (index, 0)
        } else {
            (index / along, along - 1 - index % along)
        };
        let head = row * self.heads_step;
        let query = self.queries.start + column * self.queries_step;
        (
            head..(head + self.heads_step).min(self.heads),
            query..(query + self.queries_step).min(self.queries.end),
        )
    }
}

/// An output `[batch, heads, queries, width]` with its lse `[batch, heads, queries]`.
pub struct Desk<'a, T> {
    output: *mut T,
    strides: [isize; 4],
    shape: [usize; 4],
    lse: *mut f64,
    /// Query heads of a key and value head.
    group: usize,
    /// Groups of heads of a batch entry.
    groups: usize,
    strips: &'a [Strip],
    boxes_of_group: usize,
    boxes: usize,
    next: AtomicUsize,
    borrowed: PhantomData<(&'a mut [T], &'a mut [f64])>,
}

// SAFETY: what is written through the pointers goes through claims, which are disjoint.
unsafe impl<T: Send> Sync for Desk<'_, T> {}

impl<'a, T: Copy> Desk<'a, T> {
    /// `strips` cut the queries, in ascending order; all groups of heads are cut alike.
    ///
    /// # Panics
    /// If lse has not one place a row, or strips overlap or reach too far.
    pub fn new(
        output: ViewMut<'a, T>,
        lse: &'a mut [f64],
        group: usize,
        strips: &'a [Strip],
    ) -> Self {
        let (output, shape, strides) = output.into_raw();
        let [batch, heads, queries, _] = shape;
        assert!(lse.len() == batch * heads * queries && group > 0 && heads % group == 0);
        let mut free = 0;
        for strip in strips {
            assert!(free <= strip.queries.start && strip.queries.start <= strip.queries.end);
            assert!(strip.heads == group);
            free = strip.queries.end;
        }
        assert!(free <= queries);
        let boxes_of_group: usize = strips.iter().map(Strip::boxes).sum();
        Desk {
            output,
            strides,
            shape,
            lse: lse.as_mut_ptr(),
            group,
            strips,
            groups: heads / group,
            boxes_of_group,
            boxes: boxes_of_group * batch * (heads / group),
            next: AtomicUsize::new(0),
            borrowed: PhantomData,
        }
    }

    /// The next box below `limit`, if one is left. Those of one group of heads follow each other,
    /// and those of one strip within it.
    pub fn next(&self, limit: usize) -> Option<Claim<'_, T>> {
        let limit = limit.min(self.boxes);
        let index = take(&self.next, limit)?;
        let (group, mut left) = if self.boxes_of_group == 1 {
            (index, 0)
        } else {
            (index / self.boxes_of_group, index % self.boxes_of_group)
        };
        let mut strip = 0;
        while left >= self.strips[strip].boxes() {
            left -= self.strips[strip].boxes();
            strip += 1;
        }
        Some(self.claim(group, strip, self.strips[strip].at(left)))
    }

    /// The claim of some heads, counted within a group, and queries, which is to be handed out once.
    fn claim(
        &self,
        group: usize,
        strip: usize,
        (heads, queries): (Range<usize>, Range<usize>),
    ) -> Claim<'_, T> {
        let (batch, kv_head) = if group < self.groups {
            (0, group)
        } else {
            (group / self.groups, group % self.groups)
        };
        let first_head = kv_head * self.group;
        Claim {
            desk: self,
            batch,
            kv_head,
            strip,
            heads: first_head + heads.start..first_head + heads.end,
            queries,
        }
    }
}

/// A desk for threads that take whole groups of heads, and share the last ones, so that none waits
/// long for another at the end.
pub struct Groups<'a, T> {
    /// Whole groups; those of `last` are never taken from it.
    desk: Desk<'a, T>,
    /// The groups that are shared.
    last: Range<usize>,
    /// How many of them some thread has begun with.
    begun: AtomicUsize,
    /// How these are cut, and of each the boxes that are taken.
    cut: Strip,
    taken: Vec<AtomicUsize>,
}

impl<'a, T: Copy> Groups<'a, T> {
    /// All groups of heads of an output, of which the last `shared` are handed out in the boxes of
    /// `cut`.
    ///
    /// # Panics
    /// If lse has not one place a row, or groups are shared and `cut` does not cover all queries.
    pub fn new(output: ViewMut<'a, T>, lse: &'a mut [f64], cut: Strip, shared: usize) -> Self {
        let [batch, heads, queries, _] = output.shape();
        let group = cut.heads;
        assert!(group > 0 && (shared == 0 || cut.queries == (0..queries)));
        let groups = batch * (heads / group);
        let last = groups - shared.min(groups)..groups;
        Groups {
            desk: Desk::new(output, lse, group, &[]),
            taken: last.clone().map(|_| AtomicUsize::new(0)).collect(),
            last,
            begun: AtomicUsize::new(0),
            cut,
        }
    }

    /// What a thread does next that was at work on group `own`: the rest of it, or another group,
    /// or what others have left.
    pub fn next(&self, own: Option<usize>) -> Option<Claim<'_, T>> {
        own.and_then(|group| self.part(group))
            .or_else(|| self.whole())
            .or_else(|| self.begin())
            .or_else(|| self.last.clone().find_map(|group| self.part(group)))
    }

    /// A group that is not shared.
    fn whole(&self) -> Option<Claim<'_, T>> {
        let group = take(&self.desk.next, self.last.start)?;
        let [_, _, queries, _] = self.desk.shape;
        let all = (0..self.desk.group, 0..queries);
        Some(self.desk.claim(group, 0, all))
    }

    /// A part of a shared group that no thread has begun with.
    fn begin(&self) -> Option<Claim<'_, T>> {
        let index = take(&self.begun, self.last.len())?;
        self.part(self.last.start + index).or_else(|| self.begin())
    }

    /// A part of a group, if it is shared and one is left.
    fn part(&self, group: usize) -> Option<Claim<'_, T>> {
        let taken = self.taken.get(group.checked_sub(self.last.start)?)?;
        let index = take(taken, self.cut.boxes())?;
        Some(self.desk.claim(group, 0, self.cut.at(index)))
    }
}

/// Counts on, below a limit.
fn take(counter: &AtomicUsize, limit: usize) -> Option<usize> {
    counter
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| {
            (next < limit).then_some(next + 1)
        })
        .ok()
}

/// The exclusive right to write some rows of the output.
pub struct Claim<'d, T> {
    desk: &'d Desk<'d, T>,
    batch: usize,
    kv_head: usize,
    strip: usize,
    heads: Range<usize>,
    queries: Range<usize>,
}

impl<T: Copy> Claim<'_, T> {
    /// The batch entry.
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// The key and value head of all heads of the claim.
    pub fn kv_head(&self) -> usize {
        self.kv_head
    }

    /// The group of heads, counted over the whole batch.
    pub fn group(&self) -> usize {
        self.batch * self.desk.groups + self.kv_head
    }

    /// Batch entry and key and value head of the claim that comes `count` groups of heads later.
    pub fn later(&self, count: usize) -> Option<(usize, usize)> {
        let (batch, groups) = (self.desk.shape[0], self.desk.groups);
        let index = self.group() + count;
        (index < batch * groups).then_some((index / groups, index % groups))
    }

    /// Which strip the queries belong to.
    pub fn strip(&self) -> usize {
        self.strip
    }

    /// The query heads.
    pub fn heads(&self) -> Range<usize> {
        self.heads.clone()
    }

    /// The queries.
    pub fn queries(&self) -> Range<usize> {
        self.queries.clone()
    }

    fn check(&self, head: usize, queries: &Range<usize>) {
        assert!(self.heads.contains(&head) && queries.start <= queries.end);
        assert!(self.queries.start <= queries.start && queries.end <= self.queries.end);
    }

    fn start(&self, head: usize, query: usize) -> isize {
        let strides = self.desk.strides;
        self.batch as isize * strides[0] + head as isize * strides[1] + query as isize * strides[2]
    }

    /// Writes the lse of neighbouring queries.
    ///
    /// # Panics
    /// If a row is not in the claim.
    pub fn write_lse(&mut self, head: usize, first: usize, lse: &[f64]) {
        self.check(head, &(first..first + lse.len()));
        let [_, heads, queries, _] = self.desk.shape;
        let row = (self.batch * heads + head) * queries + first;
        // SAFETY: the rows are in this claim, which nobody else has, and lse has a place for each.
        unsafe {
            std::ptr::copy_nonoverlapping(lse.as_ptr(), self.desk.lse.add(row), lse.len());
        }
    }

    /// Adds the memory of neighbouring rows that will be written to what is asked for.
    ///
    /// # Panics
    /// If a row is not in the claim.
    pub fn add_to(&self, asks: &mut Asks, head: usize, queries: Range<usize>) {
        self.check(head, &queries);
        let (shape, strides) = (self.desk.shape, self.desk.strides);
        if strides[3] == 1 {
            let first = self.start(head, queries.start);
            let first = self.desk.output.wrapping_offset(first);
            asks.add(first, shape[3], queries.len(), strides[2]);
        }
    }

    /// The rows of neighbouring queries, to be written; `None` if their columns are not neighbours.
    ///
    /// # Panics
    /// If a row is not in the claim.
    pub fn rows(&mut self, head: usize, queries: Range<usize>) -> Option<RowsMut<'_, T>> {
        self.check(head, &queries);
        let (shape, strides) = (self.desk.shape, self.desk.strides);
        // An index of the shape is inside the data and no other's element, which `ViewMut` has
        // checked; so are those of these rows, and nobody else has their claim.
        (strides[3] == 1 || shape[3] <= 1).then(|| RowsMut {
            first: self
                .desk
                .output
                .wrapping_offset(self.start(head, queries.start)),
            stride: strides[2],
            count: queries.len(),
            width: shape[3],
            borrowed: PhantomData,
        })
    }

    /// Writes one row whose columns need not be neighbours.
    ///
    /// # Panics
    /// If the row is not in the claim, or has another length.
    pub fn write_row(&mut self, head: usize, query: usize, row: &[T]) {
        self.check(head, &(query..query + 1));
        assert!(row.len() == self.desk.shape[3]);
        let start = self.start(head, query);
        for (c, &x) in row.iter().enumerate() {
            // SAFETY: as in `rows`.
            unsafe {
                *self
                    .desk
                    .output
                    .offset(start + c as isize * self.desk.strides[3]) = x;
            }
        }
    }
}

/// Rows of an output, to be written.
pub struct RowsMut<'c, T> {
    first: *mut T,
    stride: isize,
    count: usize,
    width: usize,
    borrowed: PhantomData<&'c mut [T]>,
}

impl<T> RowsMut<'_, T> {
    /// Number of rows.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Numbers in a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Row `index`, of which `width` numbers may be written, if it is below `count`.
    pub(super) fn pointer(&self, index: usize) -> *mut T {
        self.first.wrapping_offset(index as isize * self.stride)
    }
}
