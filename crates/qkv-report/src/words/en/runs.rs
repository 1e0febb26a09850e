//! English: a second run.

use super::{English, capital, many};
use crate::number::count;
use crate::words::{SecondRun, list};
use qkv_check::permute::Positional;

/// Rows or keys from one to another.
fn from_to(first: usize, end: usize) -> String {
    match end.saturating_sub(first) {
        0 => "no row".into(),
        1 => format!("row {first}"),
        _ => format!("rows {first} to {}", end - 1),
    }
}

impl SecondRun for English {
    fn heading_permuted(&self) -> String {
        "The same tokens in another order".into()
    }
    fn permuted(&self, order: &[usize]) -> String {
        format!(
            "Everything runs once more with the tokens in the order {}: token i of the second run \
             is token order[i] of the first. Masks and bias move along with their tokens. O is the \
             output of the first run, O' that of the second. If attention sees no order, O' has \
             the rows of O in the new order.",
            list(order, ", ")
        )
    }
    fn permuted_difference(&self) -> String {
        "difference".into()
    }
    fn permuted_same(&self, rounded: bool, difference: &str) -> String {
        let how = if rounded {
            format!("(largest difference {difference}, the rounding of sums in another order)")
        } else {
            "(largest difference 0)".into()
        };
        format!(
            "The outputs are the same rows in the new order {how}. Nothing in this calculation \
             tells where a token stands: a sentence and the same words shuffled give the same \
             outputs, word by word."
        )
    }
    fn permuted_other(&self, difference: &str) -> String {
        format!(
            "The outputs are not the same rows: the largest difference is {difference}. Something \
             here depends on where a token stands. Each such option tried alone:"
        )
    }
    fn permuted_cause(
        &self,
        name: &str,
        option: Positional,
        ends: bool,
        difference: &str,
    ) -> String {
        if !ends {
            return format!(
                "{name} alone: largest difference {difference}. It is not responsible: for these \
                 tokens and this order it comes to the same."
            );
        }
        let why = match option {
            Positional::Sinusoidal => {
                "a token has another position's sines and cosines added to it"
            }
            Positional::Rotary => "queries and keys are turned by the angle of another position",
            Positional::Alibi => "a key loses slope × distance, and distances have changed",
            Positional::Causal => "a query sees its own and earlier places, whoever stands there",
            Positional::Window => "a query sees the places near its own, whoever stands there",
            Positional::Lengths => "the last places count as padding, whoever stands there",
            Positional::Documents => "tokens have moved into another document",
            Positional::Dropout => "which weight is dropped depends on its place",
        };
        format!("{name} alone: largest difference {difference}. It is responsible: {why}.")
    }
    fn permuted_without(&self, difference: &str, rounded: bool) -> String {
        let rounding = if rounded { ", which is rounding" } else { "" };
        format!(
            "Without any of them the largest difference is {difference}{rounding}: the rest of \
             the calculation sees no order."
        )
    }

    fn heading_decode(&self) -> String {
        "A decode step: what the cache saves".into()
    }
    fn decode_reused(&self, past: usize) -> String {
        format!(
            "Reused: {} of K and of V, from the cache. They depend on their own tokens only, so a \
             later token changes nothing about them.",
            from_to(0, past)
        )
    }
    fn decode_new(&self, queries: usize, past: usize, keys: usize) -> String {
        format!(
            "New: {}, and {} of K and of V. K and V grow {past} → {keys}.",
            many(queries, "query row", "query rows"),
            from_to(past, keys)
        )
    }
    fn decode_saved(&self, queries: usize, keys: usize) -> String {
        format!(
            "Work: {queries}·{keys} = {} for each head, where all {} would make {keys}·{keys} = {}.",
            many(queries * keys, "score", "scores"),
            many(keys, "query", "queries"),
            count(keys * keys)
        )
    }
    fn decode_against_full_run(&self, tokens: usize) -> String {
        format!(
            "The check: all {tokens} tokens once more in one run without a cache, under the same \
             options. Its last row is compared with the row of this step, before W_O and residual."
        )
    }
    fn decode_against_one_call(&self, queries: usize, keys: usize) -> String {
        let (who, rows) = match queries {
            1 => ("the same query".into(), "That is the last row".into()),
            n => (
                format!("the same {n} queries"),
                format!("Those are the last {n} rows"),
            ),
        };
        format!(
            "The check: {who} once more, against cached and new keys, all {keys}, in one call \
             without a cache. {rows} of a full run. Its other rows cannot be shown: a cache keeps \
             keys and values, not the queries of its tokens (--x with --decode starts from tokens \
             and shows the full run)."
        )
    }
    fn decode_step(&self) -> String {
        "this step".into()
    }
    fn decode_other(&self, full: bool) -> String {
        if full { "full run" } else { "one call" }.into()
    }
    fn decode_equal(&self) -> String {
        "Both are equal in every bit: the cache saves work and changes no number.".into()
    }
    fn decode_differs(&self, difference: &str) -> String {
        capital(&format!("the largest difference is {difference}."))
    }
}
