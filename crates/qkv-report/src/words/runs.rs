//! Sentences about a second run: another order of tokens, no cache.

use qkv_check::permute::Positional;

pub(crate) trait SecondRun {
    fn heading_permuted(&self) -> String;
    fn permuted(&self, order: &[usize]) -> String;
    fn permuted_difference(&self) -> String;
    fn permuted_same(&self, rounded: bool, difference: &str) -> String;
    fn permuted_other(&self, difference: &str) -> String;
    fn permuted_cause(
        &self,
        name: &str,
        option: Positional,
        ends: bool,
        difference: &str,
    ) -> String;
    fn permuted_without(&self, difference: &str, rounded: bool) -> String;

    fn heading_decode(&self) -> String;
    fn decode_reused(&self, past: usize) -> String;
    fn decode_new(&self, queries: usize, past: usize, keys: usize) -> String;
    fn decode_saved(&self, queries: usize, keys: usize) -> String;
    fn decode_against_full_run(&self, tokens: usize) -> String;
    fn decode_against_one_call(&self, queries: usize, keys: usize) -> String;
    /// Names of the matrices that are compared.
    fn decode_step(&self) -> String;
    fn decode_other(&self, full: bool) -> String;
    fn decode_equal(&self) -> String;
    fn decode_differs(&self, difference: &str) -> String;
}
