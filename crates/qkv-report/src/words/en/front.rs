//! English: the opening and the options in force.

use super::{English, many};
use crate::words::{Front, Words, list, ranges};

impl Front for English {
    fn title(&self) -> String {
        "Attention, worked out by hand".into()
    }
    fn built_in(&self) -> String {
        "This is the built-in example: two tokens, small enough to redo with a pencil. \
         Give --q, --k and --v, or --x with weights, to see your own numbers."
            .into()
    }
    fn novice(&self) -> String {
        "Attention lets every token (a word, or a piece of one) gather information from other tokens. Each token asks \
         with a query (a row of Q); each token that can be looked at offers a key (a row of K) \
         and a value (a row of V). The better a query matches a key, the larger the share of \
         that key's value in the result. The shares of one query are its attention weights; \
         the result is the weighted sum of the values:"
            .into()
    }
    fn sizes(&self, queries: usize, keys: usize, dk: usize, dv: usize) -> String {
        format!(
            "In this run: Q ({queries},{dk}), K ({keys},{dk}), V ({keys},{dv}), output \
             ({queries},{dv}). That is {}, {}, d_k = {} in queries and keys, d_v = {dv} in \
             values. All numbering starts at 0.",
            many(queries, "query", "queries"),
            many(keys, "key", "keys"),
            many(dk, "column", "columns"),
        )
    }
    fn heads(&self, batch: usize, heads: usize, kv_heads: usize) -> String {
        let batch = match batch {
            1 => String::new(),
            _ => format!("{} and ", many(batch, "batch entry", "batch entries")),
        };
        let shared = if heads == kv_heads {
            String::new()
        } else {
            format!(" ({} of keys and values)", many(kv_heads, "head", "heads"))
        };
        format!(
            "These are the shapes of one head; the run has {batch}{}{shared}. Every head does the \
             same calculation on its own numbers.",
            many(heads, "query head", "query heads"),
        )
    }
    fn options_follow(&self) -> String {
        "Options in force:".into()
    }
    fn how_numbers_are_shown(&self, digits: usize) -> String {
        format!(
            "How to read the numbers: a result after \"=\" is exact, one after \"≈\" is rounded to \
             {}, and the lines that use it show it rounded. The calculation itself keeps all \
             digits; it rounds only what it prints.",
            many(digits, "decimal", "decimals"),
        )
    }
    fn large(&self, weights: usize, longest: usize, rows: &[usize], chosen: bool) -> String {
        let how = if chosen {
            "as --row asks".into()
        } else {
            "choose with --row I".to_string()
        };
        let rows = match rows {
            [one] => format!("query {one}"),
            _ => format!("queries {}", ranges(rows, ", ")),
        };
        format!(
            "The input is large ({}, dot products of up to {}), so every step shows its shape and \
             formula, and the numbers of {rows} only ({how}), of one head, with long sums \
             shortened.",
            many(weights, "weight", "weights"),
            many(longest, "term", "terms"),
        )
    }
    fn rows_chosen(&self, rows: &[usize]) -> String {
        let rows = match rows {
            [one] => format!("query {one}"),
            _ => format!("queries {}", ranges(rows, ", ")),
        };
        format!("Worked out, as --row asks: {rows} only. The matrices show all rows.")
    }
    fn small_numbers(&self, digits: usize) -> String {
        format!(
            "Some numbers here are so small that {} show few of their digits, and redoing a line \
             often gives another last digit: --digits 8 shows more.",
            many(digits, "decimal", "decimals"),
        )
    }

    fn option_scale(&self, factor: &str) -> String {
        format!("scale {factor} instead of 1/√d_k")
    }
    fn option_past(&self, past: usize) -> String {
        format!(
            "{} from a cache",
            many(past, "key and value", "keys and values")
        )
    }
    fn option_sinusoidal(&self, start: usize) -> String {
        format!("sinusoidal positions, counted from {start}")
    }
    fn option_norm(&self, q: bool, k: bool) -> String {
        let which = match (q, k) {
            (true, true) => "queries and keys",
            (true, false) => "queries",
            _ => "keys",
        };
        format!("RMS norm of the {which}")
    }
    fn option_softcap(&self, cap: &str) -> String {
        format!("softcap {cap}")
    }
    fn option_bias(&self) -> String {
        "an additive bias".into()
    }
    fn option_alibi(&self, slopes: &str) -> String {
        format!("ALiBi, slopes by head: {slopes}")
    }
    fn option_mask(&self, true_keeps: bool) -> String {
        if true_keeps {
            "keep mask: 1 keeps a key, 0 drops it".into()
        } else {
            "drop mask: 1 drops a key, 0 keeps it".into()
        }
    }
    fn option_causal(&self, alignment: &str) -> String {
        match alignment {
            "" => "causal mask (as many keys as queries, so every alignment is the same)".into(),
            "top-left" | "bottom-right" => format!("causal mask, aligned {alignment}"),
            offset => format!("causal mask with offset {offset}"),
        }
    }
    fn option_window(&self, back: Option<usize>, forward: Option<usize>) -> String {
        self.window(back, forward)
    }
    fn option_lengths(&self, lengths: &[usize]) -> String {
        let each: Vec<String> = lengths
            .iter()
            .enumerate()
            .map(|(b, n)| format!("batch entry {b} has {}", many(*n, "real key", "real keys")))
            .collect();
        format!("lengths: {}; the rest is padding", each.join(", "))
    }
    fn option_documents(&self, queries: &[usize], keys: &[usize]) -> String {
        let keys = if queries == keys {
            " and as many keys".into()
        } else {
            format!(" and {} keys", list(keys, ", "))
        };
        format!(
            "packed documents with {} queries{keys}: a query sees its own document only",
            list(queries, ", ")
        )
    }
    fn option_sinks(&self, sinks: &str) -> String {
        format!("sink logits by head, in the denominator only: {sinks}")
    }
    fn option_dropout(&self, p: &str, seed: u64) -> String {
        format!("dropout {p}, seed {seed}")
    }
    fn option_empty_rows_error(&self) -> String {
        "a row without any key is an error".into()
    }
}
