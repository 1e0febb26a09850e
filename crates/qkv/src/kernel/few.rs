//! Calls of a few queries and keys.

use super::call::{Call, neighbours};
use super::real::{Float, Real};
use super::simd::{Few, RowsMut, TILE};
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
        && (call.inputs.views().iter())
            .all(|view| view.strides()[3] == 1)
}

/// Computes all rows of such a call.
pub(super) fn forward<T: Float>(call: &Call<'_, T>, mut output: ViewMut<'_, T>, lse: &mut [f64]) {
    let [_, heads, queries, keys] = call.inputs.scores_shape();
    let [q, k, v] = call.inputs.views();
    for (index, lse) in lse.chunks_exact_mut(queries).enumerate() {
        let (b, h) = if index < heads {
            (0, index) // no division for a small call
        } else {
            (index / heads, index % heads)
        };
        let g = if call.group == 1 { h } else { h / call.group };
        let (Some(q), Some(k), Some(v), Some(out)) = (
            neighbours(q, b, h, 0..queries),
            neighbours(k, b, g, 0..keys),
            neighbours(v, b, g, 0..keys),
            RowsMut::of_head(&mut output, b, h),
        ) else {
            continue; // `suits` has seen that there are none
        };
        let mut maxima = [T::Real::ZERO; TILE];
        (call.storage.few)(&Few { q, k, v, c: call.c }, out, &mut maxima, lse);
        (call.kernels.logarithms)(lse);
        for (lse, max) in lse.iter_mut().zip(maxima) {
            *lse += max.to_f64() * call.natural;
        }
    }
}
