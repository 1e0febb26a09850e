//! Every sentence of the explanation, once as a method of [`Words`], so that a language that
//! lacks one does not compile.
//!
//! Numbers arrive as they are to be printed; indices and sizes as they are.

pub(crate) mod backward;
mod contrast;
mod en;
mod findings;
pub(crate) mod map;
mod page;
mod places;
mod reading;
mod runs;
mod sheet;
mod tokens;
mod zh;

pub(crate) use contrast::{Contrasts, Factors, Same};
pub(crate) use findings::{Findings, Heaviest, Leaders, Mix};
pub(crate) use places::{PlaceRule, Places, Stretch};
pub(crate) use reading::Reading;
pub(crate) use runs::SecondRun;
pub(crate) use sheet::Sheet;
pub(crate) use tokens::TokenWords;

use crate::Lang;
use backward::Backward;
pub(crate) use map::Maps;
pub(crate) use page::Page;
use qkv::StepName;

/// The words of a language.
pub(crate) fn of(lang: Lang) -> &'static dyn Words {
    match lang {
        Lang::En => &en::English,
        Lang::Zh => &zh::Chinese,
    }
}

/// Why a query drops a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    Document,
    Length,
    Causal,
    Window,
    Keep,
    Drop,
    Bias,
}

/// One of the three projections.
pub(crate) struct Projection<'a> {
    /// X or C, with a mark if positions were added.
    pub input: &'a str,
    /// Q, K or V.
    pub name: &'a str,
    pub tokens: usize,
    pub in_width: usize,
    pub out_width: usize,
    pub bias: bool,
}

/// What comes first: the opening and the options in force.
pub(crate) trait Front {
    fn title(&self) -> String;
    fn built_in(&self) -> String;
    fn novice(&self) -> String;
    fn sizes(&self, queries: usize, keys: usize, dk: usize, dv: usize) -> String;
    fn heads(&self, batch: usize, heads: usize, kv_heads: usize) -> String;
    fn options_follow(&self) -> String;
    fn how_numbers_are_shown(&self, digits: usize) -> String;
    fn large(&self, weights: usize, longest: usize, rows: &[usize], chosen: bool) -> String;
    fn rows_chosen(&self, rows: &[usize]) -> String;
    fn small_numbers(&self, digits: usize) -> String;

    // Options in force
    fn option_scale(&self, factor: &str) -> String;
    fn option_past(&self, past: usize) -> String;
    fn option_sinusoidal(&self, start: usize) -> String;
    fn option_norm(&self, q: bool, k: bool) -> String;
    fn option_softcap(&self, cap: &str) -> String;
    fn option_bias(&self) -> String;
    fn option_alibi(&self, slopes: &str) -> String;
    fn option_mask(&self, true_keeps: bool) -> String;
    fn option_causal(&self, alignment: &str) -> String;
    fn option_window(&self, back: Option<usize>, forward: Option<usize>) -> String;
    fn option_lengths(&self, lengths: &[usize]) -> String;
    fn option_documents(&self, queries: &[usize], keys: &[usize]) -> String;
    fn option_sinks(&self, sinks: &str) -> String;
    fn option_dropout(&self, p: &str, seed: u64) -> String;
    fn option_empty_rows_error(&self) -> String;
}

/// What comes last: from the heads to the result, the checks and the warnings.
pub(crate) trait Back {
    // Back to one row a token
    fn heading_concatenated(&self) -> String;
    fn concatenated(&self, heads: usize, dv: usize) -> String;
    fn heading_projected(&self) -> String;
    fn output_projection(&self, in_width: usize, out_width: usize) -> String;
    fn heading_residual(&self) -> String;
    fn residual(&self, sinusoidal: bool) -> String;

    // Closing
    fn heading_checks(&self) -> String;
    fn check_shapes(&self, queries: usize, keys: usize, dk: usize, dv: usize) -> String;
    fn check_scale(&self, usual: bool, dk: usize, factor: &str) -> String;
    /// `masked` is none where there are no keys.
    fn check_softmax(&self, masked: Option<bool>, sinks: bool) -> String;
    fn check_output(&self, dv: usize) -> String;
    fn heading_warnings(&self) -> String;
    fn warn_empty_row(&self, group: Option<&str>, i: usize, keys: usize) -> String;
    fn warn_more_rows(&self, more: usize) -> String;
    fn warn_not_finite(&self, group: Option<&str>, i: usize, nan: bool, cause: &str) -> String;
    fn cause_query(&self, i: usize, value: &str) -> String;
    fn cause_key(&self, j: usize, value: &str) -> String;
    fn cause_value(&self, j: usize, value: &str) -> String;
    fn cause_scores(&self) -> String;
    fn warn_low_biases(&self, group: Option<&str>, i: usize, highest: &str) -> String;
    fn warn_half_precision(&self, score: &str) -> String;
}

/// Every sentence of a language.
pub(crate) trait Words:
    Front
    + Reading
    + Places
    + Back
    + Findings
    + Backward
    + Sheet
    + Contrasts
    + SecondRun
    + Page
    + TokenWords
    + Maps
{
    // Everywhere
    fn shape(&self, steps: &[&str], shape: &[usize], axes: &str) -> String;
    fn axes(&self, step: StepName) -> &'static str;
    fn group(&self, batch: Option<usize>, head: Option<usize>, kv_head: Option<usize>) -> String;
    fn query(&self, i: usize) -> String;
    fn more_terms(&self, count: &str, value: &str) -> String;
    fn other_keys(&self, count: &str, value: &str) -> String;
    fn other_columns(&self, width: usize) -> String;
    fn other_heads(&self, others: usize) -> String;
    fn heaviest_keys(&self, written: usize, keys: usize) -> String;
    fn matrix_left_out(&self, name: &str, rows: usize, columns: usize) -> String;
    fn formula(&self, formula: &str) -> String;
    fn sentence(&self, words: &str) -> String;

    // Where Q, K and V come from
    fn heading_origin(&self) -> String;
    fn given(&self) -> String;
    fn projected(&self, cross: bool, mark: &str) -> String;
    fn projection(&self, projection: &Projection<'_>) -> String;
    fn row_times_column(&self, input: &str, row: usize, weight: &str, column: usize) -> String;
    fn split_columns(&self, name: &str, heads: usize, width: usize) -> String;
    fn shared_heads(&self, each: usize, pairs: &[(usize, usize)]) -> String;
    fn cached(&self, queries: usize, past: usize, new: usize) -> String;
    fn heading_sinusoidal(&self) -> String;
    fn sinusoidal(&self, first: usize) -> String;
    fn heading_norm(&self) -> String;
    fn norm(&self) -> String;
    fn mean_square(&self, name: &str) -> String;
    fn root_mean_square(&self, name: &str) -> String;

    // Scores
    fn heading_scores(&self) -> String;
    fn scores(&self, prepared: bool, dk: usize) -> String;
    fn heading_scaled(&self) -> String;
    fn scaled_by_root(&self, dk: usize, root: &str, factor: &str) -> String;
    fn scaled_by_factor(&self, factor: &str, dk: usize, usual: &str) -> String;
    fn heading_capped(&self) -> String;
    fn capped(&self, cap: &str) -> String;
    fn heading_biased(&self) -> String;
    fn bias(&self) -> String;
    fn heading_masked(&self) -> String;
    fn masked_formula(&self, letter: char) -> String;
    fn masked(&self) -> String;
    fn causal(&self, alignment: &str, offset: Option<i64>) -> String;
    fn window(&self, back: Option<usize>, forward: Option<usize>) -> String;
    fn kept_and_dropped(
        &self,
        i: usize,
        position: Option<i64>,
        kept: &[usize],
        dropped: &[(Reason, Vec<usize>)],
    ) -> String;

    // Softmax and values
    fn heading_softmax(&self) -> String;
    fn softmax(&self) -> String;
    fn sinks(&self) -> String;
    fn sink_term(&self) -> String;
    fn empty_row(&self) -> String;
    fn no_share(&self, keys: &[usize]) -> String;
    fn heat_map(&self, group: Option<&str>) -> String;
    fn legend(&self, largest: &str) -> String;
    fn merged_cells(&self, rows: usize, columns: usize) -> String;
    fn heading_dropout(&self) -> String;
    fn dropout(&self, p: &str, seed: u64, factor: &str) -> String;
    fn dropout_drawn(&self, i: usize, keys: &[usize]) -> String;
    fn dropout_sum(&self, i: usize, total: &str) -> String;
    fn heading_output(&self) -> String;
    fn output(&self, dv: usize, masked: bool) -> String;
    fn empty_output(&self, i: usize) -> String;
    fn heading_lse(&self) -> String;
    fn lse(&self, sinks: bool) -> String;

    // The renderer's own
    /// `given` is what the shown digits give, `right` what is printed.
    fn other_digits_first(&self, given: &[String], right: &[String]) -> String;
    fn other_digits(&self, given: &[String]) -> String;
    fn cancelled(&self) -> String;
    fn how_to_widen(&self, columns: usize) -> String;
    fn warning(&self) -> &'static str;
}

/// 0, 1, 2, 5 as "0–2, 5".
fn ranges(numbers: &[usize], comma: &str) -> String {
    let mut out: Vec<String> = Vec::new();
    let mut at = 0;
    while at < numbers.len() {
        let mut end = at;
        while end + 1 < numbers.len() && numbers[end + 1] == numbers[end] + 1 {
            end += 1;
        }
        if end >= at + 2 {
            out.push(format!("{}–{}", numbers[at], numbers[end]));
            at = end + 1;
        } else {
            out.push(numbers[at].to_string());
            at += 1;
        }
    }
    out.join(comma)
}

fn list(numbers: &[usize], comma: &str) -> String {
    let numbers: Vec<String> = numbers.iter().map(usize::to_string).collect();
    numbers.join(comma)
}

/// A whole number with a real minus sign.
fn signed(n: i64) -> String {
    n.to_string().replace('-', "−")
}

/// "i", "i + 2" or "i − 1".
fn shifted(offset: i64) -> String {
    match offset {
        0 => "i".into(),
        1.. => format!("i + {offset}"),
        _ => format!("i − {}", offset.unsigned_abs()),
    }
}
