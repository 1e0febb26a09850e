//! One output, written by several threads, each its own rows.
//!
//! A [`Desk`] holds the output and hands out [`Claim`]s. Each claim is the exclusive right to some
//! rows: the desk cuts batch × heads × queries into a grid of boxes and hands out each box once.

use crate::view_mut::ViewMut;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How one stretch of queries is cut into boxes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Strip {
    /// The queries.
    pub queries: Range<usize>,
    /// Heads of a box, at least 1.
    pub heads_step: usize,
    /// Queries of a box, at least 1.
    pub queries_step: usize,
}

impl Strip {
    /// Boxes that a group of so many heads makes.
    pub fn boxes(&self, group: usize) -> usize {
        group.div_ceil(self.heads_step) * self.queries.len().div_ceil(self.queries_step)
    }

    /// Heads, counted within the group, and queries of a box. The last queries come first: with a
    /// causal mask they are most work.
    pub fn at(&self, index: usize, group: usize) -> (Range<usize>, Range<usize>) {
        let along = self.queries.len().div_ceil(self.queries_step);
        let head = index / along * self.heads_step;
        let query = self.queries.start + (along - 1 - index % along) * self.queries_step;
        (
            head..(head + self.heads_step).min(group),
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
            assert!(strip.heads_step > 0 && strip.queries_step > 0);
            free = strip.queries.end;
        }
        assert!(free <= queries);
        let boxes_of_group = strips.iter().map(|strip| strip.boxes(group)).sum();
        Desk {
            output,
            strides,
            shape,
            lse: lse.as_mut_ptr(),
            group,
            strips,
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
        let index = self
            .next
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| {
                (next < limit).then_some(next + 1)
            })
            .ok()?;
        let (group, mut left) = (index / self.boxes_of_group, index % self.boxes_of_group);
        let groups = self.shape[1] / self.group;
        let mut strip = 0;
        while left >= self.strips[strip].boxes(self.group) {
            left -= self.strips[strip].boxes(self.group);
            strip += 1;
        }
        let (heads, queries) = self.strips[strip].at(left, self.group);
        let first_head = group % groups * self.group;
        Some(Claim {
            desk: self,
            batch: group / groups,
            kv_head: group % groups,
            strip,
            heads: first_head + heads.start..first_head + heads.end,
            queries,
        })
    }
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

    /// Writes one row: `fill` gets the row, or memory of the same length that is then copied
    /// where the row's columns are not neighbours.
    ///
    /// # Panics
    /// If the row is not in the claim, or `spare` is shorter than a row.
    pub fn write(
        &mut self,
        head: usize,
        query: usize,
        lse: f64,
        spare: &mut [T],
        fill: impl FnOnce(&mut [T]),
    ) {
        assert!(self.heads.contains(&head) && self.queries.contains(&query));
        let Desk {
            output,
            strides,
            shape,
            ..
        } = *self.desk;
        let row = (self.batch * shape[1] + head) * shape[2] + query;
        let at = self.batch as isize * strides[0]
            + head as isize * strides[1]
            + query as isize * strides[2];
        // SAFETY: `ViewMut` has checked that every index of the shape is inside its data and that
        // no two are the same element, and this box has been handed out once, so nobody else
        // writes this row; lse has a place for each row.
        unsafe {
            *self.desk.lse.add(row) = lse;
            if strides[3] == 1 || shape[3] <= 1 {
                let length = shape[3];
                let row = match length {
                    0 => &mut [],
                    _ => std::slice::from_raw_parts_mut(output.offset(at), length),
                };
                fill(row);
            } else {
                let spare = &mut spare[..shape[3]];
                fill(spare);
                for (c, &x) in spare.iter().enumerate() {
                    *output.offset(at + c as isize * strides[3]) = x;
                }
            }
        }
    }
}
