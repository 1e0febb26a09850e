//! What is said beside pictures of heads, in English.

use super::{English, many};
use crate::words::map::{Maps, PageWords};
use crate::words::ranges;

impl Maps for English {
    fn map_title(&self, model: &str) -> String {
        match model {
            "" => "Attention weights".into(),
            model => format!("Attention in {model}"),
        }
    }
    fn map_sizes(&self, layers: usize, heads: usize, rows: usize, keys: usize) -> String {
        let tokens = match rows == keys {
            true => many(keys, "token", "tokens"),
            false => format!(
                "{}, {}",
                many(rows, "query", "queries"),
                many(keys, "key", "keys")
            ),
        };
        format!(
            "{} × {} · {tokens}",
            many(layers, "layer", "layers"),
            many(heads, "head", "heads")
        )
    }
    fn map_kv_heads(&self, kv_heads: usize) -> String {
        many(
            kv_heads,
            "key and value head a layer",
            "key and value heads a layer",
        )
    }
    fn map_batch(&self, entry: usize, entries: usize) -> String {
        format!("batch entry {entry} of {entries}")
    }
    fn not_an_explanation(&self) -> &'static str {
        "Weights are not an explanation: they say from where a head took values, not why the model \
         answered as it did. A large weight may carry nothing, and a small one much."
    }
    fn map_tokens(&self) -> &'static str {
        "Tokens"
    }
    fn map_conventions(&self) -> &'static str {
        "Conventions in force"
    }
    fn map_all_heads(&self) -> &'static str {
        "All heads"
    }
    fn map_shades(&self, statistic: &str, largest: &str) -> String {
        format!("{statistic}, average over the rows; █ is {largest}")
    }
    fn map_first(&self, token: &str, share: &str, aside: bool) -> String {
        let aside = match aside {
            true => "; it is set aside here: not drawn, not listed, not in entropy and distance",
            false => "",
        };
        format!("The first token, {token}, gets {share} of the weight on average{aside}.")
    }
    fn map_residual(&self) -> &'static str {
        "Residual, ‖x‖ into each layer and out of the last, averaged over tokens"
    }
    fn map_residual_normed(&self) -> &'static str {
        "normed"
    }
    fn map_residual_largest(&self, size: &str, stage: &str, token: &str) -> String {
        format!("The largest is {size}, {stage} at {token}.")
    }
    fn map_only_top(&self, top: usize) -> String {
        format!(
            "Only the {} of each row were kept.",
            many(top, "largest weight", "largest weights")
        )
    }
    fn map_head(&self, layer: usize, head: usize, kv: Option<(usize, &[usize])>) -> String {
        let kv = match kv {
            Some((kv, [_])) => format!(", key and value head {kv}"),
            Some((kv, heads)) => {
                format!(
                    ", key and value head {kv} (that of heads {})",
                    ranges(heads, ", ")
                )
            }
            None => String::new(),
        };
        format!("Layer {layer}, head {head}{kv}")
    }
    fn map_one_head(&self) -> &'static str {
        "--layer L --head H shows one head, --heads-by ranks them, --html map.html shows all."
    }
    fn map_averages(&self, entropy: &str, distance: Option<&str>, first: &str) -> String {
        let distance =
            distance.map_or(String::new(), |far| format!(", mean distance {far} tokens"));
        format!("Entropy {entropy} nats{distance}, {first} on the first token.")
    }
    fn map_links(&self, most: usize) -> String {
        format!(
            "Strongest links, each query ← at most {}",
            many(most, "key", "keys")
        )
    }
    fn map_no_key(&self) -> &'static str {
        "keeps no key"
    }
    fn map_more_heads(&self, more: usize) -> String {
        format!(
            "{} more; fewer layers or heads show each.",
            many(more, "head", "heads")
        )
    }
    fn map_nan_rows(&self, head: &str, rows: usize) -> String {
        format!(
            "{head} has NaN in {}; averages over it are NaN.",
            many(rows, "row", "rows")
        )
    }
    fn map_sums(&self, low: &str, high: &str) -> String {
        format!(
            "Rows sum to between {low} and {high} rather than 1: sinks, dropout, weights left out, or \
             no weights after a softmax."
        )
    }
    fn map_outside(&self, weights: usize) -> String {
        format!(
            "{} below 0 or above 1.",
            many(weights, "weight is", "weights are")
        )
    }
    fn by_title(&self, by: &str, texts: usize) -> String {
        format!("Heads by {by}, over {}", many(texts, "text", "texts"))
    }
    fn by_says(&self, by: &str) -> String {
        match by {
            "previous" => "The weight on the token before. Control: the one before that.",
            "first" => "The weight on the first token. Control: the second.",
            "own" => "The weight on the query's own token. Control: the one before.",
            "same" => "The weight on earlier tokens of the same kind. Control: those after them.",
            _ => {
                "The weight on what came after earlier tokens of the same kind. Control: these tokens \
                 themselves."
            }
        }
        .into()
    }
    fn by_pair(&self, from: &str, to: &str) -> String {
        format!("The weight on \"{to}\" in the rows of \"{from}\".")
    }
    fn by_columns(&self, target: &str, control: &str) -> [String; 4] {
        ["head".into(), target.into(), control.into(), "rows".into()]
    }
    fn by_control(&self, control: Option<&str>) -> String {
        control.map_or_else(|| "control".into(), |word| format!("control: {word}"))
    }
    fn by_best_control(&self, head: &str, value: &str) -> String {
        format!("For the control, another head stands first: {head} with {value}.")
    }
    fn by_proves_little(&self) -> &'static str {
        "A head that is first in such a list proves little: among so many heads some are strong for \
         any key."
    }
    fn by_all_zero(&self) -> &'static str {
        "Every head gives 0, exactly: these keys are dropped for these queries, as later tokens are in a \
         causal model."
    }
    fn by_none(&self) -> &'static str {
        "No row has such a key."
    }
    fn page_words(&self) -> &'static PageWords {
        &PAGE
    }
}

const PAGE: PageWords = PageWords {
    pattern: "pattern",
    entropy: "entropy (nats)",
    distance: "mean distance (tokens)",
    first: "weight on the first token",
    previous: "weight on the token before",
    own: "weight on the own token",
    colour: "Each head shows its",
    layer: "layer {l}",
    head: "head {h}",
    kv: "kv {k}",
    one_head: "Layer {l}, head {h}",
    shared: "Uses key and value head {k}, with heads {s}.",
    lines: "Lines",
    matrix: "Matrix",
    queries: "queries",
    keys: "keys",
    keys_of_kv: "keys of kv head {k}",
    set_aside: "Set the first token aside",
    query: "Query",
    weight: "weight",
    pick_query: "Point at a query, or choose it with ↑ and ↓: its links show, and the keys are listed.",
    pick_cell: "Point at a cell, or move with the arrow keys. Rows are queries, columns keys.",
    about: "about {w}",
    shade: "Shades go with the square root of the weight.",
    merged: "Each cell stands for {n} × {n} weights and shows their largest.",
    rounded: "The strongest {k} weights of a row are exact to 4 decimals; others are within {e}.",
    nothing: "This row keeps no key.",
    not_a_number: "not a number",
    before: "Head before",
    after: "Head after",
    terms: "q·k, term by term",
    terms_say: "Query {q} and key {k}: the score is the sum of {n} products.",
    terms_missing: "The queries and keys of this head are not in this page. They are with --keep q,k, where few heads are chosen with --layer and --head, or the text is short.",
    terms_sum: "Sum q·k",
    terms_scaled: "times the scale, {s}",
    terms_weight: "weight after mask and softmax",
    terms_column: "column",
    terms_product: "product",
    terms_running: "sum so far",
    grid_help: "Arrow keys move, Enter opens.",
    no_script: "The pictures on this page are drawn by its own script, which is switched off.",
    old_browser: "This browser cannot unpack the weights; a newer one can.",
};
