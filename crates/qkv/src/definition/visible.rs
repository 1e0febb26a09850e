//! Where each query stands among the keys, and which of them it keeps.

use crate::attention::{Attention, Inputs};
use crate::mask::{Causal, KeyLengths};
use crate::view::{Element, View};

/// Where the tokens of one call stand, counted from the start of their own sequence or document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// For each batch entry, the place of each query: i + offset.
    pub queries: Vec<Vec<i64>>,
    /// For each batch entry, the place of each key, the cached ones first.
    pub keys: Vec<Vec<i64>>,
}

/// The places that causality, windows, ALiBi and rotary embeddings go by.
///
/// # Errors
/// Those of [`Attention::check`].
pub fn places<T: Element>(
    attention: &Attention<'_>,
    inputs: &Inputs<'_, T>,
) -> crate::Result<Places> {
    attention.check(inputs)?;
    let visibility = Visibility::new(attention, inputs);
    let queries = (0..inputs.batch())
        .map(|b| {
            (0..inputs.queries())
                .map(|i| visibility.position(b, i) - visibility.stretch(i).keys.start as i64)
                .collect()
        })
        .collect();
    let keys: Vec<i64> = visibility
        .documents
        .iter()
        .flat_map(|stretch| 0..stretch.keys.len() as i64)
        .collect();
    Ok(Places {
        queries,
        keys: vec![keys; inputs.batch()],
    })
}

/// The masks of one call, put so that one key at a time can be asked for.
pub(super) struct Visibility<'a> {
    attention: &'a Attention<'a>,
    /// Each mask, repeated to the shape of the scores, and what `true` means in it.
    masks: Vec<(View<'a, bool>, bool)>,
    /// The stretch of queries and of keys of each document; without documents, one for all.
    documents: Vec<Stretch>,
    keys: usize,
}

/// Queries and keys that belong together.
struct Stretch {
    queries: std::ops::Range<usize>,
    keys: std::ops::Range<usize>,
}

impl<'a> Visibility<'a> {
    /// The options must have passed [`Attention::check`] for these inputs.
    pub(super) fn new<T: Element>(attention: &'a Attention<'a>, inputs: &Inputs<'_, T>) -> Self {
        let masks = attention
            .masks
            .iter()
            .filter_map(|mask| {
                let view = mask.view().broadcast(inputs.scores_shape())?;
                Some((view, mask.true_keeps()))
            })
            .collect();
        let documents = match &attention.documents {
            Some(documents) => stretches(documents.queries(), documents.keys()),
            None => vec![Stretch {
                queries: 0..inputs.queries(),
                keys: 0..inputs.keys(),
            }],
        };
        Visibility {
            attention,
            masks,
            documents,
            keys: inputs.keys(),
        }
    }

    /// The stretch that query i belongs to.
    fn stretch(&self, i: usize) -> &Stretch {
        self.documents
            .iter()
            .find(|stretch| stretch.queries.contains(&i))
            .unwrap_or(&self.documents[0])
    }

    /// Number of real keys of a batch entry.
    fn length(&self, b: usize) -> usize {
        match &self.attention.lengths {
            Some(KeyLengths(lengths)) => lengths[b],
            None => self.keys,
        }
    }

    /// P(i): the index of the key that stands where query i stands. May lie outside the keys.
    pub(super) fn position(&self, b: usize, i: usize) -> i64 {
        let Stretch { queries, keys } = self.stretch(i);
        let offset = match self.attention.causal {
            Some(Causal::Square | Causal::TopLeft) => 0,
            Some(Causal::Offset(offset)) => offset,
            Some(Causal::BottomRight) | None => {
                let real_keys = keys.end.min(self.length(b)).saturating_sub(keys.start);
                real_keys as i64 - queries.len() as i64
            }
        };
        (keys.start as i64 + (i - queries.start) as i64).saturating_add(offset)
    }

    /// Whether query i keeps key j: if every mask does.
    pub(super) fn keeps(&self, [b, h, i, j]: [usize; 4]) -> bool {
        let ahead = (j as i64).saturating_sub(self.position(b, i));
        let causal = self.attention.causal.is_none() || ahead <= 0;
        let window = self.attention.window.is_none_or(|window| {
            let after_start = window
                .back
                .is_none_or(|back| i128::from(ahead) >= -(back as i128));
            let before_end = window
                .forward
                .is_none_or(|forward| i128::from(ahead) <= forward as i128);
            after_start && before_end
        });
        let masks = self
            .masks
            .iter()
            .all(|(view, true_keeps)| view.get([b, h, i, j]) == *true_keeps);
        let own_document = self.stretch(i).keys.contains(&j);
        causal && window && masks && own_document && j < self.length(b)
    }
}

fn stretches(queries: &[usize], keys: &[usize]) -> Vec<Stretch> {
    let (mut first_query, mut first_key) = (0, 0);
    queries
        .iter()
        .zip(keys)
        .map(|(&queries, &keys)| {
            let stretch = Stretch {
                queries: first_query..first_query + queries,
                keys: first_key..first_key + keys,
            };
            first_query += queries;
            first_key += keys;
            stretch
        })
        .collect()
}
