//! English: common mistakes.

use super::English;
use crate::words::{Contrasts, Factors, Same, ranges};
use qkv_check::{Mistake, WrongScale};

impl Contrasts for English {
    fn heading_contrast(&self, mistake: Mistake) -> String {
        match mistake {
            Mistake::SoftmaxOverQueries => "Contrast: softmax over the queries",
            Mistake::SoftmaxJoint => "Contrast: softmax over the whole matrix",
            Mistake::Scale(WrongScale::Missing) => "Contrast: without the scale",
            Mistake::Scale(WrongScale::ModelWidth(_)) => "Contrast: √d_model instead of √d_k",
            Mistake::MaskPolarity => "Contrast: the mask inverted",
        }
        .into()
    }
    fn contrast_over_queries(&self) -> String {
        "The mistake: the softmax runs down each column, over the queries, instead of along each \
         row, over the keys. Why it is wrong: a query divides one whole among the keys that it \
         sees; here each key divides itself among the queries, so the weights of a query depend \
         on what other queries ask, and its output is no average of the values. How to recognise \
         it: the columns of w sum to 1, the rows do not."
            .into()
    }
    fn contrast_joint(&self) -> String {
        "The mistake: one softmax over all queries and keys at once, as if the matrix were one \
         long row. Why it is wrong: the queries share one whole instead of having one each, so a \
         query's output shrinks because other queries exist. How to recognise it: all weights \
         together sum to 1; within a row they keep their right proportions, and the row of the \
         output is too short by the same factor."
            .into()
    }
    fn contrast_scale(&self, kind: WrongScale, f: &Factors) -> String {
        let Factors {
            wrong,
            right,
            times,
            dk,
            ..
        } = f;
        let how = if f.sharper { "sharp" } else { "flat" };
        let recognise = format!(
            "How to recognise it: the weights are too {how}; the scaled scores, and with them \
             ln(w[i,a]/w[i,b]) where neither softcap nor bias follows, are {times} times as large \
             as they should be, by the same factor everywhere."
        );
        match kind {
            WrongScale::Missing => format!(
                "The mistake: q·k enters the softmax as it is, times {wrong} instead of {right}. \
                 Why it is wrong: a sum of d_k = {dk} products spreads about √{dk} times as wide \
                 as one product, and the softmax turns wide scores into almost a single key. \
                 {recognise}"
            ),
            WrongScale::ModelWidth(width) => {
                let which = if f.of_x {
                    format!("the width of x, {width}")
                } else {
                    format!("H·d_k = {}·{dk} = {width}", f.heads)
                };
                format!(
                    "The mistake: the width of the model ({which}) stands under the root instead \
                     of the width of a head, d_k = {dk}, so that the factor is {wrong} instead of \
                     {right}. Why it is wrong: each score is a sum of d_k products, and only their \
                     number has to be undone. {recognise}"
                )
            }
        }
    }
    fn contrast_mask(&self) -> String {
        "The mistake: true and false are exchanged, so that every key that a mask should drop is \
         kept, and every key that it should keep is dropped. Why it is wrong: one library's mask \
         says which keys to keep, another's says which to drop, and the shapes are the same. How \
         to recognise it: the weights lie exactly where they should be 0; under a causal mask \
         each query sees later keys only, and the last query none."
            .into()
    }
    fn contrast_same(&self, same: &Same) -> String {
        let why = match same {
            Same::OneQuery => "with one query the whole matrix is one row".into(),
            Same::OneColumn => "d_k = 1, and 1/√1 = 1 is the right factor too".into(),
            Same::GivenFactor => "the scale that was given is this very factor".into(),
            Same::ModelIsHead(width) => format!(
                "there is one head, and the only width known is its own: d_model = d_k = {width}. \
                 With more heads d_model is larger, and the weights come out too flat"
            ),
            Same::EqualScores => {
                "the scores of each row are equal, and stay so times any factor".into()
            }
            Same::NoMask => "no mask is in force, so there is nothing to invert".into(),
            Same::ColumnsSumToOne => {
                "the columns of w happen to sum to 1 as well as the rows, as in a symmetric \
                 example. Such numbers cannot reveal the mistake; other queries would"
                    .into()
            }
            Same::Chance => "these numbers come out equal either way; others would not".to_string(),
        };
        format!("Here it makes no difference: {why}.")
    }
    fn contrast_entry(&self, label: &str, right: &str, wrong: &str) -> String {
        format!("The weight that differs most: {label} is {wrong} instead of {right}.")
    }
    fn contrast_empty(&self, rows: &[usize]) -> String {
        match rows {
            [one] => format!("Query {one} would keep no key: zero weights, a zero output."),
            _ => format!(
                "Queries {} would keep no key: zero weights, zero outputs.",
                ranges(rows, ", ")
            ),
        }
    }
    fn right(&self, name: &str) -> String {
        format!("{name} right")
    }
    fn wrong(&self, name: &str) -> String {
        format!("{name} wrong")
    }
    fn difference(&self) -> String {
        "wrong − right".into()
    }
}
