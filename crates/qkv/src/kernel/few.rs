//! Calls of a few queries and keys.

use super::call::{Call, neighbours};
use super::real::{Float, Real};
use super::simd::{Desk, Few, Strip, TILE};
use crate::view::Element;
use crate::view_mut::ViewMut;

/// Products up to which this is faster than the stages: it computes one score at a time.
const MOST_PRODUCTS: usize = 512;

/// Whether a call is one of them: every query sees all keys, as they are, and it is little work.
pub(super) fn suits<T: Float>(call: &Call<'_, T>, output: &ViewMut<'_, T>) -> bool {
    let [batch, heads, queries, keys] = call.inputs.scores_shape();
    let width = call.inputs.head_dim() + call.inputs.value_dim();
    // Of the smallest numbers first, since a product must not overflow.
    let small = |number: usize| number <= MOST_PRODUCTS;
    let few = (1..=TILE).contains(&keys)
        && queries <= TILE
        && [batch, heads, width].into_iter().all(small)
        && small(batch * heads * queries * keys * width);
    let visible = &call.visible;
    few && call.is_plain()
        && call.attention.sinks.is_none()
        && call.sign == T::Real::ONE
        && !call.by_dots
        && call.storage.depth == 1 // sums by pairs have another order
        && call.inputs.past().is_none()
        && visible.shows_all()
        && output.strides()[3] == 1
        && [call.inputs.q(), call.inputs.k(), call.inputs.v()]
            .iter()
            .all(|view| view.strides()[3] == 1)
}

/// Computes all rows of such a call.
pub(super) fn forward<T: Float>(call: &Call<'_, T>, output: ViewMut<'_, T>, lse: &mut [f64]) {
    let [_, _, queries, keys] = call.inputs.scores_shape();
    let strips = [Strip::new(0..queries, call.group, call.group, queries)];
    let desk = Desk::new(output, lse, call.group, &strips);
    while let Some(mut claim) = desk.next(usize::MAX) {
        let (b, g) = (claim.batch(), claim.kv_head());
        for h in claim.heads() {
            let (Some(q), Some(k), Some(v), Some(out)) = (
                neighbours(&call.inputs.q(), b, h, 0..queries),
                neighbours(&call.inputs.k(), b, g, 0..keys),
                neighbours(&call.inputs.v(), b, g, 0..keys),
                claim.rows(h, 0..queries),
            ) else {
                continue; // `suits` has seen that there are none
            };
            let mut found = [[T::Real::ZERO; 2]; TILE];
            (call.storage.few)(&Few { q, k, v, c: call.c }, out, &mut found);
            let mut lse = [0.0; TILE];
            for (lse, [_, sum]) in lse.iter_mut().zip(&found[..queries]) {
                *lse = sum.to_f64();
            }
            (call.kernels.logarithms)(&mut lse[..queries]);
            for (lse, [max, _]) in lse.iter_mut().zip(&found[..queries]) {
                *lse += max.to_f64() * call.natural;
            }
            claim.write_lse(h, 0, &lse[..queries]);
        }
    }
}
