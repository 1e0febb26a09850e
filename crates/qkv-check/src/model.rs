//! What a recipe gives: attention in plain `f64` loops, one row at a time, every decision a branch.
//!
//! It is the judge's own: slower than the fast path, and sharing nothing with it. Under the right
//! recipe it equals [`qkv::definition`], which a test sees to.

mod heads;
mod logits;
mod low;
mod projection;
mod row;
mod seen;
mod softmax;
mod tokens;

pub(crate) use heads::Kind;
pub(crate) use projection::{Shared, projected};
pub(crate) use row::RowOut;

use crate::problem::{Base, Sizes};
use crate::recipe::{Arrangement, Recipe};
use heads::{Angles, Head};
use projection::{Projected, Way};
use seen::Seen;
use softmax::Columns;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

/// A recipe on its way to numbers. Rows are worked out when they are asked for.
pub(crate) struct Model<'m> {
    base: &'m Base<'m>,
    pub recipe: &'m Recipe,
    projected: Arc<Projected>,
    /// The sizes that attention itself sees.
    sizes: Sizes,
    seen: Seen<'m>,
    /// Whether the share of rounding is worked out too.
    with_bounds: bool,
    keys: RefCell<HashMap<(Kind, usize, usize), Arc<Head>>>,
    /// Where keys and values of heads are kept for other recipes.
    shared: &'m Shared,
    /// How this recipe makes keys, and values, among those that are kept.
    ways: [usize; 2],
    /// Rotary frequencies of queries and keys.
    frequencies: Vec<f64>,
    /// Sines and cosines of places.
    angles: RefCell<HashMap<i64, Angles>>,
    columns: RefCell<HashMap<(usize, usize), Rc<Columns>>>,
}

impl<'m> Model<'m> {
    /// `None` where the recipe is not possible for this problem, for example for its sizes.
    pub fn new(
        base: &'m Base<'m>,
        shared: &'m Shared,
        recipe: &'m Recipe,
        with_bounds: bool,
    ) -> Option<Model<'m>> {
        let sizes = inner_sizes(base, recipe)?;
        let projected = shared.get(base, recipe.projection)?;
        let seen = Seen::new(base, recipe, sizes)?;
        Some(Model {
            base,
            recipe,
            projected,
            sizes,
            seen,
            with_bounds,
            keys: RefCell::default(),
            shared,
            ways: [Kind::K, Kind::V].map(|kind| shared.way(Way::new(recipe, kind))),
            frequencies: frequencies(recipe, base.sizes.head_dim),
            angles: RefCell::default(),
            columns: RefCell::default(),
        })
    }

    /// The last key that the causal mask keeps for query i of a batch entry.
    pub(crate) fn causal_edge(&self, b: usize, i: usize) -> Option<i64> {
        let rule = self.recipe.causal?;
        Some(self.seen.position(b, i, Some(rule.alignment)))
    }

    /// The sizes that attention itself sees.
    pub(crate) fn sizes(&self) -> Sizes {
        self.sizes
    }

    /// The key and value head of a query head.
    pub(crate) fn group_of(&self, h: usize) -> usize {
        self.kv_head(h)
    }

    /// From the place in the result to that in what is attended over: the same way back.
    fn inner(&self, [b, h, i]: [usize; 3]) -> [usize; 3] {
        match self.recipe.arrangement {
            Arrangement::Tokens => [b, h, i],
            Arrangement::Heads => [b, i, h],
            Arrangement::Batch => [i, h, b],
        }
    }
}

/// The sizes under another arrangement, if that is possible.
fn inner_sizes(base: &Base<'_>, recipe: &Recipe) -> Option<Sizes> {
    let sizes = base.sizes;
    let attention = base.problem.attention();
    let alone = sizes.past == 0 && attention.lengths.is_none() && attention.documents.is_none();
    match recipe.arrangement {
        Arrangement::Tokens => Some(sizes),
        Arrangement::Heads => {
            let divides = sizes.keys > 0 && sizes.queries.is_multiple_of(sizes.keys);
            // What has a number for each head cannot have one for each token.
            let per_head = recipe.sinks.is_some() || recipe.slopes.is_some();
            (alone && divides && !per_head).then_some(Sizes {
                heads: sizes.queries,
                kv_heads: sizes.keys,
                queries: sizes.heads,
                keys: sizes.kv_heads,
                ..sizes
            })
        }
        Arrangement::Batch => (alone && sizes.queries == sizes.keys).then_some(Sizes {
            batch: sizes.queries,
            queries: sizes.batch,
            keys: sizes.batch,
            ..sizes
        }),
    }
}

fn frequencies(recipe: &Recipe, width: usize) -> Vec<f64> {
    let rotary = recipe.rotary.rotary;
    let frequencies = rotary.and_then(|rotary| rotary.inverse_frequencies(width).ok());
    frequencies.unwrap_or_default()
}
