//! Which keys a query keeps, and where it stands, under a recipe.

use crate::problem::{Base, Sizes};
use crate::recipe::{DocumentRule, MaskRule, Padding, Recipe};
use qkv::{AnyView, Bias, Causal, KeyLengths, View};
use std::ops::Range;

/// The masks of a recipe.
pub(super) struct Seen<'m> {
    recipe: &'m Recipe,
    masks: Vec<(View<'m, bool>, bool)>,
    pub bias: Option<AnyView<'m>>,
    /// The stretch of queries and of keys of each document.
    documents: Vec<(Range<usize>, Range<usize>)>,
    sizes: Sizes,
    lengths: Option<&'m [usize]>,
}

impl<'m> Seen<'m> {
    /// `None` where a mask does not fit the sizes.
    pub fn new(base: &'m Base<'m>, recipe: &'m Recipe, sizes: Sizes) -> Option<Seen<'m>> {
        let attention = base.problem.attention();
        let shape = [sizes.batch, sizes.heads, sizes.queries, sizes.keys];
        let mut masks = Vec::new();
        let mut bias = None;
        if shape
            == [
                base.sizes.batch,
                base.sizes.heads,
                base.sizes.queries,
                base.sizes.keys,
            ]
        {
            masks.clone_from(&base.masks);
            bias = base.bias;
        } else {
            for mask in &attention.masks {
                masks.push((mask.view().broadcast(shape)?, mask.true_keeps()));
            }
            if let Some(Bias(given)) = attention.bias {
                bias = Some(given.broadcast(shape)?);
            }
        }
        if recipe.masks == MaskRule::Ignored {
            masks.clear();
        }
        let mut documents = Vec::new();
        if let Some(given) = &attention.documents {
            let (mut q, mut k) = (0, 0);
            for (&queries, &keys) in given.queries().iter().zip(given.keys()) {
                documents.push((q..q + queries, k..k + keys));
                q += queries;
                k += keys;
            }
        }
        if documents.is_empty() || recipe.documents == DocumentRule::Mixed {
            documents = vec![(0..sizes.queries, 0..sizes.keys)];
        }
        let lengths = attention.lengths.as_ref();
        Some(Seen {
            recipe,
            masks,
            bias: bias.filter(|_| recipe.bias_factor != 0.0),
            documents,
            sizes,
            lengths: lengths.map(|KeyLengths(lengths)| &lengths[..]),
        })
    }

    /// Number of real keys of a batch entry, as it was given.
    pub fn length(&self, b: usize) -> usize {
        self.lengths.map_or(self.sizes.keys, |lengths| lengths[b])
    }

    fn stretch(&self, i: usize) -> (Range<usize>, Range<usize>) {
        let found = self
            .documents
            .iter()
            .find(|(queries, _)| queries.contains(&i));
        found.unwrap_or(&self.documents[0]).clone()
    }

    /// The first key of the document of a query.
    pub fn start(&self, i: usize) -> usize {
        self.stretch(i).1.start
    }

    /// The place of a key within its document.
    pub fn key_place(&self, j: usize) -> i64 {
        let found = self.documents.iter().find(|(_, keys)| keys.contains(&j));
        (j - found.map_or(0, |(_, keys)| keys.start)) as i64
    }

    /// The index of the key that stands where query i stands.
    pub fn position(&self, b: usize, i: usize, alignment: Option<Causal>) -> i64 {
        let (queries, keys) = match self.recipe.documents {
            DocumentRule::MixedButCounted => (0..self.sizes.queries, 0..self.sizes.keys),
            _ => self.stretch(i),
        };
        let offset = match alignment {
            Some(Causal::Square | Causal::TopLeft) => 0,
            Some(Causal::Offset(offset)) => offset,
            Some(Causal::BottomRight) | None => {
                let length = match self.recipe.padding {
                    Padding::Kept => self.sizes.keys,
                    Padding::Shifted(by) => {
                        (self.length(b) as i64 + by).clamp(0, self.sizes.keys as i64) as usize
                    }
                    _ => self.length(b),
                };
                keys.end.min(length).saturating_sub(keys.start) as i64 - queries.len() as i64
            }
        };
        (keys.start as i64 + (i - queries.start) as i64).saturating_add(offset)
    }

    /// How many masks drop each key of a row.
    pub fn drops(&self, [b, h, i]: [usize; 3]) -> Vec<u8> {
        let Recipe {
            causal,
            window,
            padding,
            documents,
            masks,
            ..
        } = self.recipe;
        let shift = match self.recipe.shift_masks {
            true => self.recipe.shift,
            false => 0,
        };
        let keys = self.sizes.keys;
        let mut drops = vec![0_u8; keys];
        let mut drop = |by: &dyn Fn(usize) -> bool| {
            for (j, drops) in drops.iter_mut().enumerate() {
                *drops += u8::from(by(j));
            }
        };
        for (view, true_keeps) in &self.masks {
            let kept = *true_keeps != (*masks == MaskRule::Inverted);
            drop(&|j| view.get([b, h, i, j]) != kept);
        }
        if let Some(rule) = causal {
            let edge = self.position(b, i, Some(rule.alignment)) + shift + rule.diagonal;
            match rule.reversed {
                false => drop(&|j| j as i64 > edge),
                true => drop(&|j| (j as i64) < edge),
            }
        }
        if let Some(window) = window {
            let place = self.position(b, i, self.recipe.alignment) + shift;
            let back = window
                .back
                .map(|back| place.saturating_sub_unsigned(back as u64));
            let forward = window
                .forward
                .map(|forward| place.saturating_add_unsigned(forward as u64));
            drop(&|j| {
                back.is_some_and(|back| (j as i64) < back)
                    || forward.is_some_and(|forward| j as i64 > forward)
            });
        }
        if self.lengths.is_some() {
            let length = self.length(b);
            match padding {
                Padding::Dropped => drop(&|j| j >= length),
                Padding::Inverted => drop(&|j| j < length),
                Padding::Shifted(by) => drop(&|j| j as i64 >= length as i64 + by),
                Padding::Kept | Padding::Zeros => {}
            }
        }
        if *documents == DocumentRule::Apart && self.documents.len() > 1 {
            let own = self.stretch(i).1;
            drop(&|j| !own.contains(&j));
        }
        if self.recipe.ignore_past {
            drop(&|j| j < self.sizes.past);
        }
        if self.recipe.inverted {
            for drops in &mut drops {
                *drops = u8::from(*drops == 0);
            }
        }
        drops
    }
}
