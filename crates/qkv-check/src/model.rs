//! What a recipe gives: attention in plain `f64` loops, one row at a time, every decision a branch.
//!
//! It is the judge's own: slower than the fast path, and sharing nothing with it. Under the right
//! recipe it equals [`qkv::definition`], which a test sees to.

mod heads;
mod projection;
mod row;
mod seen;

pub(crate) use heads::Kind;
pub(crate) use projection::{Projections, projected};
pub(crate) use row::RowOut;

use crate::problem::{Base, Sizes};
use crate::recipe::{Arrangement, Recipe};
use heads::Head;
use projection::Projected;
use row::Columns;
use seen::Seen;
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
    keys: RefCell<HashMap<(Kind, usize, usize), Rc<Head>>>,
    columns: RefCell<HashMap<(usize, usize), Rc<Columns>>>,
}

impl<'m> Model<'m> {
    /// `None` where the recipe is not possible for this problem, for example for its sizes.
    pub fn new(
        base: &'m Base<'m>,
        projections: &Projections,
        recipe: &'m Recipe,
        with_bounds: bool,
    ) -> Option<Model<'m>> {
        let sizes = inner_sizes(base, recipe)?;
        let projected = projections.get(base, recipe.projection)?;
        let seen = Seen::new(base, recipe, sizes)?;
        Some(Model {
            base,
            recipe,
            projected,
            sizes,
            seen,
            with_bounds,
            keys: RefCell::default(),
            columns: RefCell::default(),
        })
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
            (alone && divides).then_some(Sizes {
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
