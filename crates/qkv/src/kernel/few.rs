//! Calls of a few queries and keys.

use super::call::{Exponent, takes_keys_as_they_lie};
use super::forward::is_for_one_thread;
use super::options::Options;
use super::real::{Float, Real};
use super::simd::{Few, Isa, MOST_COLUMNS, MOST_PRODUCTS, TILE};
use crate::attention::{Attention, Inputs};
use crate::view_mut::ViewMut;

/// Computes all rows of a call that is plain and little work, before there is a [`Call`] of it,
/// which would take longer. Of any other, nothing: `false`.
///
/// [`Call`]: super::call::Call
pub(super) fn forward<T: Float>(
    attention: &Attention<'_>,
    inputs: &Inputs<'_, T>,
    options: &Options,
    isa: Isa,
    output: &mut ViewMut<'_, T>,
    lse: &mut [f64],
) -> bool {
    let [_, _, queries, keys] = inputs.scores_shape();
    let few = 1..=TILE;
    if lse.is_empty() || !few.contains(&queries) || !few.contains(&keys) {
        return false;
    }
    if !attention.is_plain() || inputs.past().is_some() {
        return false;
    }
    let storage = T::storage(isa);
    let [q, k, v] = inputs.views();
    let (head_dim, width) = (inputs.head_dim(), inputs.value_dim());
    let of_head = (queries * keys) as f64 * (head_dim + width) as f64;
    let most = MOST_PRODUCTS as f64;
    let by_tiles = storage.few_by_tiles;
    let kernel = match by_tiles.filter(|_| head_dim <= MOST_COLUMNS && is_for_one_thread(inputs)) {
        Some(by_tiles) if of_head > most => by_tiles,
        Some(_) => storage.few,
        None if of_head * (lse.len() / queries) as f64 <= most => storage.few,
        None => return false,
    };
    let Exponent { sign, c, natural } = Exponent::new(attention.scale.factor(head_dim));
    let neighbours = [q.strides(), k.strides(), v.strides(), output.strides()]
        .iter()
        .all(|strides| strides[3] == 1);
    if sign != T::Real::ONE
        || !neighbours
        || storage.depth != 1 // sums by pairs have another order
        || !options.reproducible && takes_keys_as_they_lie(inputs)
    {
        return false;
    }
    let args = Few {
        q,
        k,
        v,
        c,
        natural,
    };
    kernel(&args, output, lse);
    true
}
