//! English: the gradient.

use super::{English, keys, many};
use crate::number::count;
use crate::words::backward::{Backward, KeyNumber};
use qkv::GradientName;

impl Backward for English {
    fn gradient_axes(&self, name: GradientName) -> &'static str {
        match name {
            GradientName::GradWo
            | GradientName::GradWq
            | GradientName::GradWk
            | GradientName::GradWv => "columns in, columns out",
            GradientName::GradBo
            | GradientName::GradBq
            | GradientName::GradBk
            | GradientName::GradBv => "columns out",
            GradientName::GradSinks => "heads",
            GradientName::GradQNorm | GradientName::GradKNorm => "d_k",
            _ => "batch, heads, queries, keys; 1 where the bias repeats",
        }
    }
    fn kv_group(&self, batch: Option<usize>, head: Option<usize>) -> String {
        match (batch, head) {
            (Some(b), Some(g)) => format!("Batch entry {b}, kv head {g}"),
            (Some(b), None) => format!("Batch entry {b}"),
            (None, Some(g)) => format!("Kv head {g}"),
            (None, None) => String::new(),
        }
    }
    fn other_entries(&self, rows: usize, columns: usize) -> String {
        format!(
            "The other entries, of {} × {}, go the same way.",
            count(rows),
            count(columns)
        )
    }
    fn other_numbers(&self, others: usize) -> String {
        format!(
            "{} go the same way.",
            many(others, "more number", "more numbers")
        )
    }
    fn back_empty_row(&self, i: usize) -> String {
        format!("Query {i} keeps no key: its output is 0 whatever happens, and no gradient flows.")
    }
    fn back_dropped_keys(&self, i: usize, numbers: &[usize]) -> String {
        let (verb, its) = match numbers.len() {
            1 => ("is", "its weight is"),
            _ => ("are", "their weights are"),
        };
        format!(
            "For query {i}, {} {verb} dropped: {its} 0 whatever the score, so the gradient is 0.",
            keys(numbers)
        )
    }
    fn unused_key(&self, j: usize) -> String {
        format!("No query keeps key {j}: it has no part in the result, and its gradient is 0.")
    }

    fn heading_gradient_start(&self) -> String {
        "The gradient: where it starts".into()
    }
    fn what_a_gradient_is(&self) -> String {
        "Training needs to know how a loss L changes when a number changes a little. The gradient \
         of a number says it: dx is the change of L for each unit that x changes. It is worked \
         out from the end to the beginning by the chain rule, each step from the one behind it."
            .into()
    }
    fn gradient_start(&self, letter: char, given: bool) -> String {
        let capital = letter.to_ascii_uppercase();
        if given {
            format!(
                "The gradient of the result was given: d{capital}. That is the gradient of the \
                 loss L below, the result times these numbers, added up."
            )
        } else {
            format!(
                "No gradient of the result was given, so d{capital} is 1 everywhere: the loss L \
                 is the sum of all numbers of the result."
            )
        }
    }
    fn heading_back_residual(&self) -> String {
        "Back through the residual".into()
    }
    fn back_residual(&self, letter: char) -> String {
        let capital = letter.to_ascii_uppercase();
        format!(
            "The residual is a sum, R = X + {capital}, and a sum hands its gradient to both terms \
             unchanged: d{capital} = dR here, and dX gets dR once more at the end."
        )
    }
    fn heading_back_projection(&self) -> String {
        "Back through the output projection".into()
    }
    fn back_projection(&self) -> String {
        "In a product Y = Z·W_O each factor gets the gradient times the other factor: dW_O = \
         Zᵀ·dY, added up over all tokens since all of them use the same weight, and dZ = \
         dY·W_Oᵀ."
            .into()
    }
    fn heading_back_heads(&self) -> String {
        "Back to the heads".into()
    }
    fn back_heads(&self, heads: usize, dv: usize) -> String {
        if heads == 1 {
            return "There is one head, so dO is dZ, number for number.".into();
        }
        format!(
            "The columns go back to the {} heads they came from: columns 0 to {} of dZ are dO of \
             head 0, and so on. Nothing is computed.",
            count(heads),
            dv.saturating_sub(1)
        )
    }

    fn heading_grad_v(&self) -> String {
        "dV: what the values get".into()
    }
    fn grad_v(&self, shared: bool) -> String {
        let shared = if shared {
            " Query heads that share a value head each add their part."
        } else {
            ""
        };
        format!(
            "Value j went into the output of query i with weight w[i,j], so the gradient of that \
             output comes back with the same weight, added up over the queries (down a column of \
             the weights): dV = Wᵀ·dO.{shared}"
        )
    }
    fn grad_v_meaning(&self, j: usize, query: (usize, Option<usize>), weight: &str) -> String {
        let (i, head) = query;
        let head = head.map_or(String::new(), |h| format!(" of head {h}"));
        format!(
            "Value {j} is used most by query {i}{head}, with weight {weight}: do{i} times this \
             weight is what comes back from there."
        )
    }
    fn heading_grad_weights(&self) -> String {
        "dP: what the weights get".into()
    }
    fn grad_weights(&self, dropout: bool) -> String {
        let dropout = if dropout {
            " Dropout comes after the weights: dP' is the gradient after it; a weight that it set \
             to 0 gets 0, the others get dP' divided by 1 − p, as the weights were."
        } else {
            ""
        };
        format!(
            "The weight of key j multiplies value j, so its gradient is the dot product of the \
             output's gradient and that value: how much the loss would gain from one more unit of \
             weight. It is called dP, since papers write P for the weights.{dropout}"
        )
    }
    fn grad_weights_of_dropped_keys(&self) -> String {
        "The value of a dropped key is not read, so its entry is 0.".into()
    }
    fn grad_weights_meaning(&self, i: usize, most: KeyNumber<'_>, least: KeyNumber<'_>) -> String {
        format!(
            "For query {i}, weight on key {} adds most to the loss ({} for each unit), weight on \
             key {} least ({}).",
            most.0, most.1, least.0, least.1
        )
    }
    fn heading_delta(&self) -> String {
        "δ: the average of each row of dP".into()
    }
    fn delta(&self, sinks: bool) -> String {
        let average = if sinks {
            "δ[i] adds up row i of dP with the weights of the row (the sink's share counts with 0)"
        } else {
            "δ[i] is the average of row i of dP, with the weights of the row"
        };
        format!(
            "The weights of a row share one total, so one can only grow at the expense of the \
             others. {average}: what weight is worth on average there. It is the same number as \
             do_i·o_i, the gradient of the output times the output, which is how fast programs \
             get it without the weights."
        )
    }
    fn heading_grad_scores(&self, letter: char) -> String {
        format!("d{}: back through the softmax", letter.to_ascii_uppercase())
    }
    fn grad_scores(&self, letter: char, sinks: bool) -> String {
        let row = if sinks {
            "With a sink a row does not add up to 0: the rest, δ times the sink's weight, is \
             what the sink gets, with the other sign."
        } else {
            "Each row adds up to 0, because raising all scores of a row alike changes no weight: \
             Σ w·dp − δ·Σ w = δ − δ."
        };
        let bias = if letter == 'c' {
            " (A bias that was added in between passes it on unchanged.)"
        } else {
            ""
        };
        format!(
            "Where dp lies above the row's average δ, the score gets a positive gradient, where \
             it lies below, a negative one, each in proportion to its weight.{bias} {row}"
        )
    }
    fn grad_scores_meaning(
        &self,
        i: usize,
        delta: &str,
        up: KeyNumber<'_>,
        down: KeyNumber<'_>,
    ) -> String {
        format!(
            "In row {i} the average is δ = {delta}. Key {} lies above it (dp = {}): a higher \
             score there raises the loss. Key {} lies below (dp = {}): a higher score there takes \
             weight from keys with a larger dp and lowers the loss.",
            up.0, up.1, down.0, down.1
        )
    }
    fn grad_scores_nothing(&self, i: usize, only_key: bool) -> String {
        if only_key {
            format!(
                "Query {i} keeps one key only: its weight is 1 whatever the score, so the score \
                 gets no gradient."
            )
        } else {
            format!(
                "For query {i}, moving weight from one key to another would not change the loss, \
                 so its scores get no gradient."
            )
        }
    }
    fn heading_grad_sinks(&self) -> String {
        "What the sinks get".into()
    }
    fn grad_sinks(&self) -> String {
        "The sink takes part in the softmax like a key with value 0, so its dp is 0 and dS of it \
         is w_sink·(0 − δ); a head has one sink, so this is added up over its rows and over the \
         batch."
            .into()
    }
    fn heading_grad_bias(&self) -> String {
        "What the bias gets".into()
    }
    fn grad_bias(&self, repeated: bool) -> String {
        if repeated {
            "The bias is added to the scores, so it gets their gradient; a number that serves \
             several heads, queries or batch entries gets the sum of theirs."
                .into()
        } else {
            "The bias is added to the scores, so it gets their gradient, number for number.".into()
        }
    }
    fn heading_back_softcap(&self) -> String {
        "dS: back through the softcap".into()
    }
    fn back_softcap(&self, cap: &str) -> String {
        format!(
            "The slope of C·tanh(s/C) is 1 − tanh²(s/C), with C = {cap}: nearly 1 for small \
             scores, nearly 0 for those close to the cap, which hardly move any more."
        )
    }
    fn heading_back_scale(&self) -> String {
        "Back through the scale".into()
    }
    fn back_scale(&self) -> String {
        "The dot products were multiplied by the scale, so their gradient is multiplied by it \
         too, once."
            .into()
    }

    fn heading_grad_q(&self) -> String {
        "dQ: what the queries get".into()
    }
    fn grad_q(&self, prepared: bool) -> String {
        let prepared = if prepared {
            " These are the queries as they entered the scores."
        } else {
            ""
        };
        format!(
            "In q·k each side gets the gradient times the other side. A query meets every key, so \
             dq_i adds up the keys, each times the gradient of its dot product: dQ = \
             d(QKᵀ)·K.{prepared}"
        )
    }
    fn grad_q_meaning(&self, i: usize, to: KeyNumber<'_>, from: KeyNumber<'_>) -> String {
        format!(
            "The loss grows when query {i} turns towards key {} ({}) and away from key {} ({}).",
            to.0, to.1, from.0, from.1
        )
    }
    fn heading_grad_k(&self) -> String {
        "dK: what the keys get".into()
    }
    fn grad_k(&self, shared: bool, past: usize) -> String {
        let shared = if shared {
            " Query heads that share a key head each add their part."
        } else {
            ""
        };
        let past = match past {
            0 => String::new(),
            1 => " Key 0 came from the cache; its gradient is that of the cached number.".into(),
            _ => format!(
                " Keys 0 to {} came from the cache; their gradients are those of the cached \
                 numbers.",
                past - 1
            ),
        };
        format!(
            "A key meets every query, so dk_j adds up the queries that keep it, each times the \
             gradient of its dot product: dK = d(QKᵀ)ᵀ·Q.{shared}{past}"
        )
    }
    fn heading_back_rotary(&self) -> String {
        "The rotation, turned back".into()
    }
    fn back_rotary(&self, past: usize) -> String {
        let past = if past > 0 {
            " Cached keys were not turned here and stay as they are."
        } else {
            ""
        };
        format!(
            "A rotation keeps lengths and angles, and its gradient is turned by the same angle \
             the other way, −θ. Columns that were not turned stay as they are.{past}"
        )
    }
    fn heading_back_norm(&self) -> String {
        "Back through the norm".into()
    }
    fn back_norm(&self) -> String {
        "A number x enters its own quotient, and the root mean square that divides the whole row: \
         the first term of dx is the direct way, the second goes through the root mean square, \
         with A and B for the whole row. The gain gets the gradient times the normed number, added up \
         over all rows."
            .into()
    }
    fn heading_grad_layer(&self) -> String {
        "What W_Q, W_K and W_V get".into()
    }
    fn grad_layer(&self, past: usize) -> String {
        let past = if past > 0 {
            " Cached keys and values were not made here, so their gradients do not enter."
        } else {
            ""
        };
        format!(
            "Each entry multiplied column r of every token into column c, so it gets column r of \
             the tokens times column c of the gradient, added up over all tokens; the heads stand \
             side by side again.{past}"
        )
    }
    fn heading_grad_tokens(&self, name: &str) -> String {
        format!("d{name}: what the tokens get")
    }
    fn grad_tokens(&self, name: &str, readers: usize, residual: bool, positions: bool) -> String {
        let readers = match readers {
            3 => "Q, K and V were all made from the tokens",
            2 => "K and V were made from the context",
            _ => "Q was made from the tokens",
        };
        let residual = if residual {
            ", and the residual adds dR unchanged"
        } else {
            ""
        };
        let positions = if positions {
            " Positions were added as fixed numbers and change nothing."
        } else {
            ""
        };
        format!(
            "{readers}, so d{name} adds up what comes back through each weight{residual}.{positions}"
        )
    }

    fn heading_difference(&self) -> String {
        "Checked by a finite difference".into()
    }
    fn finite_difference(&self, entry: &str, value: &str, step: &str, usual: bool) -> String {
        let step = if usual {
            format!("h = {step}")
        } else {
            format!("h = {step} (0.001 does not suit these numbers)")
        };
        format!(
            "A derivative says what a small change does, so a small change can check it. {entry} \
             = {value} has the largest gradient of its matrix; the whole calculation is done \
             again with {entry} raised and lowered by {step}, all else unchanged:"
        )
    }
    fn difference_agrees(
        &self,
        digits: usize,
        quotient: &str,
        gradient: &str,
        rounding: bool,
    ) -> String {
        let why = if rounding {
            "The rest is rounding: the two losses agree in most of their 16 digits, and \
             subtracting them leaves only the last few."
        } else {
            "The rest is the bend of the loss between the two points, which shrinks with h²: a \
             tenth of h would leave a hundredth of it, until the rounding of the losses takes \
             over."
        };
        if digits == 0 {
            return format!(
                "Quotient {quotient}, gradient {gradient}: no digit agrees. The loss bends, or \
                 its numbers round, too much here for a finite difference to check."
            );
        }
        format!(
            "Quotient {quotient}, gradient {gradient}: {} agree. {why}",
            many(digits, "digit", "digits")
        )
    }
    fn difference_of_nothing(&self, quotient: &str) -> String {
        format!(
            "Every gradient here is 0, the result does not depend on these numbers, and the \
             difference says so too: {quotient}."
        )
    }
    fn difference_not_finite(&self) -> String {
        "The loss is not a finite number here, so there is nothing to compare.".into()
    }
}
