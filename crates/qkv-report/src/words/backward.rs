//! The sentences of the gradient's worked calculation.

use qkv::GradientName;

/// A key and its number as printed.
pub(crate) type KeyNumber<'a> = (usize, &'a str);

/// The gradient, from the last step back to the first.
pub(crate) trait Backward {
    fn gradient_axes(&self, name: GradientName) -> &'static str;
    fn kv_group(&self, batch: Option<usize>, head: Option<usize>) -> String;
    fn other_entries(&self, rows: usize, columns: usize) -> String;
    fn other_numbers(&self, others: usize) -> String;
    fn back_empty_row(&self, i: usize) -> String;
    fn back_dropped_keys(&self, i: usize, keys: &[usize]) -> String;
    fn unused_key(&self, j: usize) -> String;

    // From the result to the heads
    fn heading_gradient_start(&self) -> String;
    fn what_a_gradient_is(&self) -> String;
    fn gradient_start(&self, letter: char, given: bool) -> String;
    fn heading_back_residual(&self) -> String;
    fn back_residual(&self, letter: char) -> String;
    fn heading_back_projection(&self) -> String;
    fn back_projection(&self) -> String;
    fn heading_back_heads(&self) -> String;
    fn back_heads(&self, heads: usize, dv: usize) -> String;

    // Values, weights, scores
    fn heading_grad_v(&self) -> String;
    fn grad_v(&self, shared: bool) -> String;
    /// Query i, and its head where there are several.
    fn grad_v_meaning(&self, j: usize, query: (usize, Option<usize>), weight: &str) -> String;
    fn heading_grad_weights(&self) -> String;
    fn grad_weights(&self, dropout: bool) -> String;
    fn grad_weights_of_dropped_keys(&self) -> String;
    fn grad_weights_meaning(&self, i: usize, most: KeyNumber<'_>, least: KeyNumber<'_>) -> String;
    fn heading_delta(&self) -> String;
    fn delta(&self, sinks: bool) -> String;
    fn heading_grad_scores(&self, letter: char) -> String;
    fn grad_scores(&self, letter: char, sinks: bool) -> String;
    fn grad_scores_meaning(
        &self,
        i: usize,
        delta: &str,
        up: KeyNumber<'_>,
        down: KeyNumber<'_>,
    ) -> String;
    fn grad_scores_nothing(&self, i: usize, only_key: bool) -> String;
    fn heading_grad_sinks(&self) -> String;
    fn grad_sinks(&self) -> String;
    fn heading_grad_bias(&self) -> String;
    fn grad_bias(&self, repeated: bool) -> String;
    fn heading_back_softcap(&self) -> String;
    fn back_softcap(&self, cap: &str) -> String;
    fn heading_back_scale(&self) -> String;
    fn back_scale(&self) -> String;

    // Queries, keys, tokens, weights of the layer
    fn heading_grad_q(&self) -> String;
    fn grad_q(&self, prepared: bool) -> String;
    fn grad_q_meaning(&self, i: usize, to: KeyNumber<'_>, from: KeyNumber<'_>) -> String;
    fn heading_grad_k(&self) -> String;
    fn grad_k(&self, shared: bool, past: usize) -> String;
    fn heading_back_rotary(&self) -> String;
    fn back_rotary(&self, past: usize) -> String;
    fn heading_back_norm(&self) -> String;
    fn back_norm(&self) -> String;
    fn heading_grad_layer(&self) -> String;
    fn grad_layer(&self, past: usize) -> String;
    fn heading_grad_tokens(&self, name: &str) -> String;
    fn grad_tokens(&self, name: &str, readers: usize, residual: bool, positions: bool) -> String;

    // The check
    fn heading_difference(&self) -> String;
    fn finite_difference(&self, entry: &str, value: &str, step: &str, usual: bool) -> String;
    fn difference_agrees(
        &self,
        digits: usize,
        quotient: &str,
        gradient: &str,
        rounding: bool,
    ) -> String;
    fn difference_of_nothing(&self, quotient: &str) -> String;
    fn difference_not_finite(&self) -> String;
}
