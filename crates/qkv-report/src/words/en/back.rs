//! English: from the heads to the result, the checks and the warnings.

use super::{English, many, of_group};
use crate::words::Back;

impl Back for English {
    fn heading_concatenated(&self) -> String {
        "Heads side by side".into()
    }
    fn concatenated(&self, heads: usize, dv: usize) -> String {
        if heads == 1 {
            return "There is one head, so Z is its output O; with several heads their outputs \
                    would be put next to each other. Nothing is computed."
                .into();
        }
        let columns = match dv {
            1 => "column 0 comes".into(),
            _ => format!("columns 0 to {} come", dv.saturating_sub(1)),
        };
        format!(
            "The outputs of the {} of a token are put next to each other: {columns} from head 0, \
             the next from head 1{}. Nothing is computed.",
            many(heads, "head", "heads"),
            if heads > 2 { ", and so on" } else { "" }
        )
    }
    fn heading_projected(&self) -> String {
        "Output projection".into()
    }
    fn output_projection(&self, in_width: usize, out_width: usize) -> String {
        format!(
            "W_O ({in_width},{out_width}) mixes what the heads have found, back to {} a token.",
            many(out_width, "column", "columns")
        )
    }
    fn heading_residual(&self) -> String {
        "Residual".into()
    }
    fn residual(&self, sinusoidal: bool) -> String {
        let which = if sinusoidal {
            " (with its position)"
        } else {
            ""
        };
        format!("The token itself is added back{which}, so attention only has to say what changes.")
    }

    fn heading_checks(&self) -> String {
        "What to check".into()
    }
    fn check_shapes(&self, queries: usize, keys: usize, dk: usize, dv: usize) -> String {
        format!(
            "(1) Where Q, K and V come from, and shapes: Q ({queries},{dk}) and K ({keys},{dk}) \
             have the same number of columns; K and V ({keys},{dv}) the same number of rows."
        )
    }
    fn check_scale(&self, usual: bool, dk: usize, factor: &str) -> String {
        if usual {
            format!("(2) Scores: q·k divided by √{dk}, once (times {factor}).")
        } else {
            format!("(2) Scores: q·k times the scale {factor}, once.")
        }
    }
    fn check_softmax(&self, masked: Option<bool>, sinks: bool) -> String {
        let mask = match masked {
            Some(true) => "the mask comes before the softmax; ",
            Some(false) => "no key is masked; ",
            None => "there are no keys; ",
        };
        let sum = if sinks {
            "each row of weights adds up to less than 1, the rest is the sink's:"
        } else {
            "each row of weights adds up to 1 (not each column):"
        };
        format!("(3) Softmax: {mask}it runs along the keys of each query, so {sum}")
    }
    fn check_output(&self, dv: usize) -> String {
        format!(
            "(4) Output: weights times values, added up over the keys; {} a query, as wide as V.",
            many(dv, "column", "columns")
        )
    }
    fn heading_warnings(&self) -> String {
        "Needs attention".into()
    }
    fn warn_empty_row(&self, group: Option<&str>, i: usize, keys: usize) -> String {
        let why = match keys {
            0 => "finds no key, as there are none",
            _ => "keeps no key (fully masked)",
        };
        format!(
            "row {i}{} {why}: zero weights, zero output, lse −∞.",
            of_group(group)
        )
    }
    fn warn_more_rows(&self, more: usize) -> String {
        format!("and {} like these.", many(more, "more row", "more rows"))
    }
    fn warn_not_finite(&self, group: Option<&str>, i: usize, nan: bool, cause: &str) -> String {
        let what = if nan { "is NaN" } else { "is not finite" };
        format!("row {i}{} {what} because {cause}.", of_group(group))
    }
    fn cause_query(&self, i: usize, value: &str) -> String {
        format!("query {i} holds {value}")
    }
    fn cause_key(&self, j: usize, value: &str) -> String {
        format!("key {j}, which it keeps, holds {value}")
    }
    fn cause_value(&self, j: usize, value: &str) -> String {
        format!("value {j}, whose key it keeps, holds {value}")
    }
    fn cause_scores(&self) -> String {
        "its scores leave the range of numbers".into()
    }
    fn warn_low_biases(&self, group: Option<&str>, i: usize, highest: &str) -> String {
        format!(
            "row {i}{} keeps no key whose bias is above {highest}. Only −∞ drops a key: a finite \
             number, however low, cancels in the softmax when the whole row has it. If this row \
             is meant to be masked, use −∞, or --keep or --drop.",
            of_group(group)
        )
    }
    fn warn_half_precision(&self, score: &str) -> String {
        format!(
            "the largest |q·k| is {score}, above 65504, the largest number of half precision: a \
             half-precision pipeline would overflow here."
        )
    }
}
