//! Which stretch of keys each query may see.
//!
//! Causality, windows, lengths and documents leave every query one stretch of neighbouring keys,
//! so blocks outside it are skipped and only its ends need care. Boolean masks and biases then drop
//! single keys of the stretch.

use crate::attention::{Attention, Inputs};
use crate::mask::{Causal, Window};
use crate::view::Element;
use std::ops::Range;

/// The stretches of one call.
pub(super) struct Visible<'a> {
    causal: Option<Causal>,
    window: Option<Window>,
    lengths: Option<&'a [usize]>,
    queries: usize,
    keys: usize,
    /// Where the queries and keys of each document begin, and the ends of the last.
    documents: Option<(Vec<usize>, Vec<usize>)>,
}

/// Queries and keys that belong together: a document, or everything.
#[derive(Clone, Debug)]
pub(super) struct Stretch {
    pub(super) queries: Range<usize>,
    pub(super) keys: Range<usize>,
}

/// What one query sees, counted from the first key of its stretch.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sight {
    pub(super) from: usize,
    pub(super) to: usize,
    /// Where the query stands among the keys.
    pub(super) position: i64,
}

impl<'a> Visible<'a> {
    /// The options must have passed [`Attention::check`] for these inputs.
    pub(super) fn new<T: Element>(attention: &'a Attention<'_>, inputs: &Inputs<'_, T>) -> Self {
        Visible {
            causal: attention.causal,
            window: attention.window,
            lengths: attention.lengths.as_ref().map(|lengths| &lengths.0[..]),
            queries: inputs.queries(),
            keys: inputs.keys(),
            documents: attention
                .documents
                .as_ref()
                .map(|documents| (begins(documents.queries()), begins(documents.keys()))),
        }
    }

    /// Number of stretches.
    pub(super) fn stretches(&self) -> usize {
        self.documents
            .as_ref()
            .map_or(1, |(queries, _)| queries.len() - 1)
    }

    /// One of them.
    pub(super) fn stretch(&self, index: usize) -> Stretch {
        match &self.documents {
            Some((queries, keys)) => Stretch {
                queries: queries[index]..queries[index + 1],
                keys: keys[index]..keys[index + 1],
            },
            None => Stretch {
                queries: 0..self.queries,
                keys: 0..self.keys,
            },
        }
    }

    /// Whether two queries of a stretch can see different keys.
    pub(super) fn moves(&self) -> bool {
        self.causal.is_some() || self.window.is_some()
    }

    /// A stretch as a batch entry sees it.
    pub(super) fn viewer(&self, batch: usize, stretch: &Stretch) -> Viewer {
        let end = self.lengths.map_or(self.keys, |lengths| lengths[batch]);
        let real_keys = stretch.keys.end.min(end).saturating_sub(stretch.keys.start) as i64;
        Viewer {
            first_query: stretch.queries.start,
            offset: match self.causal {
                Some(Causal::Square | Causal::TopLeft) => 0,
                Some(Causal::Offset(offset)) => offset,
                Some(Causal::BottomRight) | None => real_keys - stretch.queries.len() as i64,
            },
            real_keys,
            causal: self.causal.is_some(),
            window: self.window,
        }
    }
}

/// What decides what the queries of a stretch see.
#[derive(Clone, Copy)]
pub(super) struct Viewer {
    first_query: usize,
    offset: i64,
    real_keys: i64,
    causal: bool,
    window: Option<Window>,
}

impl Viewer {
    /// What one query sees.
    #[inline]
    pub(super) fn sight(&self, query: usize) -> Sight {
        let position = self
            .offset
            .saturating_add((query - self.first_query) as i64);
        // Nothing that counts lies beyond ±keys, so saturating sums are as good as exact ones.
        let (mut from, mut to) = (0, self.real_keys);
        if self.causal {
            to = to.min(position.saturating_add(1));
        }
        if let Some(Window { back, forward }) = self.window {
            if let Some(back) = back {
                from = position.saturating_sub_unsigned(back as u64).max(0);
            }
            if let Some(forward) = forward {
                let last = position.saturating_add_unsigned(forward as u64);
                to = to.min(last.saturating_add(1));
            }
        }
        let to = to.max(0) as usize;
        Sight {
            from: (from as usize).min(to),
            to,
            position,
        }
    }
}

/// 0 and the running sums.
fn begins(lengths: &[usize]) -> Vec<usize> {
    let mut sum = 0;
    std::iter::once(0)
        .chain(lengths.iter().map(|length| {
            sum += length;
            sum
        }))
        .collect()
}
