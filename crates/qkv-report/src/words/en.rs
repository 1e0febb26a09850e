//! English.

mod back;
mod backward;
mod contrast;
mod findings;
mod front;
mod map;
mod page;
mod places;
mod reading;
mod runs;
mod sheet;
mod tokens;

use super::{Projection, Reason, Words, ranges, shifted, signed};
use crate::number::count;
use qkv::StepName;

pub(super) struct English;

/// "1 key", "3 keys".
fn many(n: usize, one: &str, several: &str) -> String {
    match n {
        1 => format!("1 {one}"),
        _ => format!("{} {several}", count(n)),
    }
}

fn keys(numbers: &[usize]) -> String {
    match numbers {
        [] => "no key".into(),
        [one] => format!("key {one}"),
        _ => format!("keys {}", ranges(numbers, ", ")),
    }
}

fn side(side: Option<usize>) -> String {
    side.map_or("any number of keys".into(), |n| many(n, "key", "keys"))
}

fn of_group(group: Option<&str>) -> String {
    group.map_or(String::new(), |group| format!(" of {}", lower(group)))
}

fn lower(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|c| c.to_ascii_lowercase());
    first.into_iter().chain(chars).collect()
}

impl Words for English {
    fn shape(&self, steps: &[&str], shape: &[usize], axes: &str) -> String {
        format!("Shape of {}: {shape:?} = {axes}", steps.join(" and "))
    }
    fn axes(&self, step: StepName) -> &'static str {
        match step {
            StepName::Q | StepName::QNormed | StepName::QRotated => "batch, heads, queries, d_k",
            StepName::K | StepName::KNormed | StepName::KRotated => "batch, kv heads, keys, d_k",
            StepName::V => "batch, kv heads, keys, d_v",
            StepName::Max | StepName::Sum | StepName::Lse => "batch, heads, queries",
            StepName::Output => "batch, heads, queries, d_v",
            StepName::Concatenated => "batch, queries, heads·d_v",
            StepName::XPositioned
            | StepName::ContextPositioned
            | StepName::Projected
            | StepName::Residual => "batch, tokens, width",
            _ => "batch, heads, queries, keys",
        }
    }
    fn group(&self, batch: Option<usize>, head: Option<usize>, kv_head: Option<usize>) -> String {
        let kv_head = kv_head.map_or(String::new(), |g| format!(" (kv head {g})"));
        match (batch, head) {
            (Some(b), Some(h)) => format!("Batch entry {b}, head {h}{kv_head}"),
            (Some(b), None) => format!("Batch entry {b}"),
            (None, Some(h)) => format!("Head {h}{kv_head}"),
            (None, None) => String::new(),
        }
    }
    fn query(&self, i: usize) -> String {
        format!("Query {i}")
    }
    fn more_terms(&self, count: &str, value: &str) -> String {
        format!("[… {count} more terms …: {value}]")
    }
    fn other_keys(&self, count: &str, value: &str) -> String {
        format!("[the other {count} keys together: {value}]")
    }
    fn other_columns(&self, width: usize) -> String {
        format!(
            "The other columns, up to {}, go the same way.",
            width.saturating_sub(1)
        )
    }
    fn other_heads(&self, others: usize) -> String {
        match others {
            1 => "1 more head is not drawn; it goes the same way.".into(),
            _ => format!(
                "{} more heads are not drawn; they go the same way.",
                count(others)
            ),
        }
    }
    fn heaviest_keys(&self, written: usize, keys: usize) -> String {
        format!(
            "Written out: the {written} keys with the largest weights, of {}.",
            count(keys)
        )
    }
    fn matrix_left_out(&self, name: &str, rows: usize, columns: usize) -> String {
        let size = format!("{} × {}", count(rows), count(columns));
        match rows * columns {
            0 => format!("{name} is {size}: it holds no numbers."),
            _ => format!("{name} has {size} numbers: not printed."),
        }
    }
    fn formula(&self, formula: &str) -> String {
        format!("Formula: {formula}")
    }
    fn sentence(&self, words: &str) -> String {
        format!("{}.", capital(words))
    }

    fn heading_origin(&self) -> String {
        "Where Q, K and V come from".into()
    }
    fn given(&self) -> String {
        "Q, K and V were given as they are; nothing is multiplied yet. (In a model they are made \
         from the tokens X, a row for each token, with three learned matrices: Q\u{a0}=\u{a0}X·W_Q, \
         K\u{a0}=\u{a0}X·W_K, V\u{a0}=\u{a0}X·W_V.) Row i of Q is query i, row j of K is key j, and row j of V is the \
         value that belongs to key j."
            .into()
    }
    fn projected(&self, cross: bool, mark: &str) -> String {
        if cross {
            format!(
                "This is cross-attention: the queries are made from the tokens X{mark}, the keys \
                 and values from the context C{mark}. Each entry is a dot product, a row of the \
                 input times a column of a weight matrix."
            )
        } else {
            format!(
                "This is self-attention: queries, keys and values are all made from the same \
                 tokens X{mark}, one token a row, with three weight matrices. Each entry is a dot \
                 product, a row of X{mark} times a column of the weight."
            )
        }
    }
    fn projection(&self, p: &Projection<'_>) -> String {
        let Projection {
            input,
            name,
            tokens,
            in_width,
            out_width,
            ..
        } = p;
        let bias = if p.bias {
            format!(" The bias b_{name} is added to each row.")
        } else {
            String::new()
        };
        format!(
            "{input}·W_{name}: ({tokens},{in_width})·({in_width},{out_width}) → \
             ({tokens},{out_width}).{bias}"
        )
    }
    fn row_times_column(&self, input: &str, row: usize, weight: &str, column: usize) -> String {
        format!("{input}{row}·W_{weight} column {column}")
    }
    fn split_columns(&self, name: &str, heads: usize, width: usize) -> String {
        let each: Vec<String> = (0..heads.min(16))
            .map(|h| {
                let first = h * width;
                match width {
                    1 => format!("head {h} takes column {first}"),
                    _ => format!("head {h} takes columns {first} to {}", first + width - 1),
                }
            })
            .collect();
        let more = if heads > 16 { ", and so on" } else { "" };
        format!(
            "The columns of {name} are split: {}{more}.",
            each.join(", ")
        )
    }
    fn shared_heads(&self, each: usize, pairs: &[(usize, usize)]) -> String {
        let pairs: Vec<String> = pairs
            .iter()
            .map(|(h, g)| format!("head {h} (kv head {g})"))
            .collect();
        format!(
            "Every {each} query heads share one head of keys and values: {}.",
            pairs.join(", ")
        )
    }
    fn cached(&self, queries: usize, past: usize, new: usize) -> String {
        format!(
            "{} came from the cache, as earlier steps computed them. This step brings {} and {}, \
             so K and V grow from {past} to {} rows. Queries of earlier tokens are not needed \
             again: their outputs are done.",
            capital(&many(past, "row of K and of V", "rows of K and of V")),
            many(queries, "new query row", "new query rows"),
            many(new, "new key with its value", "new keys with their values"),
            past + new,
        )
    }
    fn heading_sinusoidal(&self) -> String {
        "Positions added to the tokens".into()
    }
    fn sinusoidal(&self, first: usize) -> String {
        format!(
            "Attention itself does not see order, so a pattern of sines and cosines that depends \
             on the position p is added to each token. Token 0 of X stands at p = {first}. \
             Angles are in radians."
        )
    }
    fn heading_norm(&self) -> String {
        "Norm of queries and keys".into()
    }
    fn norm(&self) -> String {
        "Each row is divided by its root mean square, then each column is multiplied by its \
         gain. Long and short vectors then count alike, and only their direction remains."
            .into()
    }
    fn mean_square(&self, name: &str) -> String {
        format!("mean({name}²)")
    }
    fn root_mean_square(&self, name: &str) -> String {
        format!("rms({name})")
    }

    fn heading_scores(&self) -> String {
        "Scores: how well each query matches each key".into()
    }
    fn scores(&self, prepared: bool, dk: usize) -> String {
        let prepared = if prepared {
            " (with the queries and keys of the step before)"
        } else {
            ""
        };
        format!(
            "The score of a query and a key{prepared} is their dot product, {}: large when the \
             two point the same way, 0 when they have nothing in common, negative when they are \
             opposed.",
            many(dk, "product", "products added up"),
        )
    }
    fn heading_scaled(&self) -> String {
        "Scaled scores".into()
    }
    fn scaled_by_root(&self, dk: usize, root: &str, factor: &str) -> String {
        const WHY: &str = "a sum of many products spreads wider than one product, with 64 columns \
                           about √64 = 8 times as wide. The division undoes that; without it, a \
                           softmax over scores that wide would almost always choose a single key.";
        if dk <= 1 {
            return format!(
                "Every score is divided by √d_k = √{dk} = {root}: with one column nothing changes. \
                 With more columns it matters: {WHY}"
            );
        }
        let equal = if (dk as f64).sqrt().fract() == 0.0 {
            "="
        } else {
            "≈"
        };
        format!(
            "Every score is divided by √d_k = √{dk} {equal} {root}, which is the same as times \
             {factor}. The reason: {WHY}"
        )
    }
    fn scaled_by_factor(&self, factor: &str, dk: usize, usual: &str) -> String {
        format!(
            "Every score is multiplied by the scale {factor} that was given; usual would be \
             1/√{dk}, that is {usual}."
        )
    }
    fn heading_capped(&self) -> String {
        "Softcap".into()
    }
    fn capped(&self, cap: &str) -> String {
        format!(
            "C = {cap}. Small scores hardly change, and none can leave the range from −{cap} to \
             {cap}."
        )
    }
    fn heading_biased(&self) -> String {
        "Bias".into()
    }
    fn bias(&self) -> String {
        "The bias is added to the scores. It is plain arithmetic: only −∞ drops a key, a low \
         number just makes it light."
            .into()
    }
    fn heading_masked(&self) -> String {
        "Mask: which keys each query may see".into()
    }
    fn masked_formula(&self, letter: char) -> String {
        format!("{letter}[i,j] stays where key j is kept, and becomes −∞ where it is dropped")
    }
    fn masked(&self) -> String {
        "A dropped key gets the score −∞, because exp(−∞) = 0: its weight is exactly 0 and its \
         value is not read. A key is kept only if every mask keeps it."
            .into()
    }
    fn causal(&self, alignment: &str, offset: Option<i64>) -> String {
        let name = match alignment {
            "" => "Causal".into(),
            "offset" => "Causal with an offset".to_string(),
            _ => format!("Causal, {alignment}"),
        };
        match offset {
            Some(0) => format!(
                "{name}: the offset is 0, query i keeps keys j ≤ i, itself and what came before."
            ),
            Some(offset) => format!(
                "{name}: the offset is {}, query i stands at position {} and keeps keys j ≤ {}.",
                signed(offset),
                shifted(offset),
                shifted(offset),
            ),
            None => format!(
                "{name}: query i keeps the keys up to its own position, counted in its own \
                 sequence."
            ),
        }
    }
    fn window(&self, back: Option<usize>, forward: Option<usize>) -> String {
        format!(
            "window: a query sees {} before its own position and {} after it",
            side(back),
            side(forward)
        )
    }
    fn kept_and_dropped(
        &self,
        i: usize,
        position: Option<i64>,
        kept: &[usize],
        dropped: &[(Reason, Vec<usize>)],
    ) -> String {
        let position = position.map_or(String::new(), |p| format!(" (position {})", signed(p)));
        let mut out = format!("query {i}{position} keeps {}", keys(kept));
        for (at, (reason, numbers)) in dropped.iter().enumerate() {
            let why = match reason {
                Reason::Document => "another document",
                Reason::Length => "padding, beyond the length",
                Reason::Causal => "causal: they come later",
                Reason::Window => "outside the window",
                Reason::Keep => "the keep mask says 0",
                Reason::Drop => "the drop mask says 1",
                Reason::Bias => "the bias is −∞",
            };
            let why = match (reason, numbers.len()) {
                (Reason::Causal, 1) => "causal: it comes later",
                _ => why,
            };
            let link = if at == 0 { "; drops" } else { ", and" };
            out.push_str(&format!("{link} {} ({why})", keys(numbers)));
        }
        out.push('.');
        out
    }

    fn heading_softmax(&self) -> String {
        "Softmax: from scores to weights".into()
    }
    fn softmax(&self) -> String {
        "The softmax runs along the keys of each query, one row at a time. The row's largest \
         score is subtracted first; this cancels in the quotient and keeps exp from overflowing. \
         exp makes every number positive, and dividing by the sum S makes each row of weights \
         add up to 1."
            .into()
    }
    fn sinks(&self) -> String {
        "The sink adds one more term to the sum S but has no value, so the row adds up to 1 only \
         together with the sink's share: the weights of the keys add up to less than 1."
            .into()
    }
    fn sink_term(&self) -> String {
        "sink".into()
    }
    fn empty_row(&self) -> String {
        "keeps no key: zero weights, zero output, lse = −∞.".into()
    }
    fn no_share(&self, numbers: &[usize]) -> String {
        let are = if numbers.len() == 1 { "is" } else { "are" };
        format!("{} {are} dropped: e = 0, weight 0.", keys(numbers))
    }
    fn heat_map(&self, group: Option<&str>) -> String {
        let group = group.map_or(String::new(), |group| format!(", {}", lower(group)));
        format!("The weights as shades{group}: a row for each query, a column for each key")
    }
    fn legend(&self, largest: &str) -> String {
        match largest {
            "0" => "blank = 0: no weight is larger".into(),
            _ => format!("█ = {largest}, the largest weight; blank = 0"),
        }
    }
    fn merged_cells(&self, rows: usize, columns: usize) -> String {
        format!(
            "each cell is the largest weight of up to {} by {}; █ = the largest of its line, \
             blank = 0",
            many(rows, "query", "queries"),
            many(columns, "key", "keys")
        )
    }
    fn heading_dropout(&self) -> String {
        "Dropout".into()
    }
    fn dropout(&self, p: &str, seed: u64, factor: &str) -> String {
        format!(
            "Each weight is set to 0 with probability {p} (drawn with seed {seed}); those left \
             are divided by 1 − {p}, that is times {factor}, so that on average the sum stays what it was."
        )
    }
    fn dropout_drawn(&self, i: usize, keys: &[usize]) -> String {
        match keys {
            [] => format!("Of query {i} no weight was drawn to be 0."),
            [key] => format!("Of query {i} the weight of key {key} was drawn to be 0."),
            _ => format!(
                "Of query {i} the weights of keys {} were drawn to be 0.",
                ranges(keys, ", ")
            ),
        }
    }
    fn dropout_sum(&self, i: usize, total: &str) -> String {
        format!("After dropout the weights of query {i} add up to {total}.")
    }
    fn heading_output(&self) -> String {
        "Output: the weighted sum of the values".into()
    }
    fn output(&self, dv: usize, masked: bool) -> String {
        let dropped = if masked {
            " Dropped keys do not enter the sum."
        } else {
            ""
        };
        format!(
            "Each output row mixes the rows of V: every value times its weight, added up column \
             by column ({}).{dropped}",
            many(dv, "column", "columns")
        )
    }
    fn empty_output(&self, i: usize) -> String {
        format!("Query {i} keeps no key: its output is 0.")
    }
    fn heading_lse(&self) -> String {
        "lse: the logarithm of the sum".into()
    }
    fn lse(&self, sinks: bool) -> String {
        let sinks = if sinks {
            " The sink is not included: the sum is that of the keys alone."
        } else {
            ""
        };
        format!(
            "lse is short for log-sum-exp, the logarithm of a sum of exp: here of all scores of a \
             row. Before exp the row's largest score m was subtracted, which divided the sum by \
             exp(m); so m is added back to the logarithm. The output does not need it; fast \
             programs keep this one number a row to put partial results together and to compute \
             gradients. ln is the natural logarithm.{sinks}"
        )
    }

    fn other_digits_first(&self, given: &[String], right: &[String]) -> String {
        let are = if right.len() == 1 { "is" } else { "are" };
        format!(
            "[the shown digits give {}: the calculation keeps all digits, only the display is \
             rounded, and {} {are} right]",
            given.join(" and "),
            right.join(" and ")
        )
    }
    fn other_digits(&self, given: &[String]) -> String {
        format!("[shown digits give {}]", given.join(" and "))
    }
    fn cancelled(&self) -> String {
        "[0 on paper: the terms cancel, and this is what the computer's own rounding leaves]".into()
    }
    fn how_to_widen(&self, columns: usize) -> String {
        format!("(split to fit; a terminal {columns} columns wide shows it in one piece)")
    }
    fn warning(&self) -> &'static str {
        "!"
    }
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|c| c.to_ascii_uppercase());
    first.into_iter().chain(chars).collect()
}
