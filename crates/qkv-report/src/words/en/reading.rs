//! English: how formulas and shapes are to be read.

use super::English;
use crate::words::{Reading, Words};

impl Reading for English {
    fn reading_follows(&self) -> String {
        "How to read the formulas:".into()
    }
    fn read_indices(&self) -> String {
        "q_i is row i of Q, and q[i,c] the number in its column c; the same holds for other \
         letters."
            .into()
    }
    fn read_transpose(&self) -> String {
        "ᵀ turns a matrix over, its rows become columns: QKᵀ holds the product of every query \
         with every key."
            .into()
    }
    fn read_root(&self, scale: Option<&str>) -> String {
        match scale {
            None => "√d_k is the square root of d_k, the number of columns of a query.".into(),
            Some(scale) => format!(
                "/√d_k is the usual scale, d_k being the number of columns of a query; here it is \
                 replaced by times {scale}."
            ),
        }
    }
    fn read_mask(&self, masked: bool) -> String {
        match masked {
            false => "mask stands for keys that a query must not see; here there is no mask, so \
                      nothing is added."
                .into(),
            true => format!(
                "mask is −∞ for the keys that a query must not see and 0 for the others; see \
                 “{}” below.",
                self.heading_masked()
            ),
        }
    }
    fn read_softmax(&self) -> String {
        format!(
            "softmax turns each row of scores into shares, the weights; see “{}” below.",
            self.heading_softmax()
        )
    }
    fn read_sums(&self) -> String {
        "Σ_j adds up over all keys j, Σ_c over all columns c; max_j takes the largest over all \
         keys j."
            .into()
    }
    fn read_exp(&self) -> String {
        "exp(x) is e to the power of x with e ≈ 2.7183, so exp(0) = 1; ln undoes exp.".into()
    }
    fn read_tanh(&self) -> String {
        "tanh(x) is nearly x for small x and never leaves the range from −1 to 1.".into()
    }
    fn read_distance(&self) -> String {
        "|x| is x without its sign.".into()
    }
    fn four_axes(&self, [batch, heads, queries, dk]: [usize; 4]) -> String {
        format!(
            "The shapes below have all their axes: batch, heads, rows, columns. A batch entry is \
             one of the texts that are computed together, a head one attention with columns of \
             its own, a kv head a head of K and V. So Q ({queries},{dk}) has the shape \
             [{batch},\u{a0}{heads},\u{a0}{queries},\u{a0}{dk}]."
        )
    }
}
