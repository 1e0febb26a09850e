//! What a weight matrix and its bias get: input times gradient, added up over the tokens.

use super::Back;
use crate::describe::run::worked;
use crate::entry::Number;
use crate::explanation::{Block, Part};
use crate::expr::{num, sum, times};
use qkv::{GradientName, Linear};

/// A weight with more entries is worked out in its first rows and columns only.
const MANY_ENTRIES: usize = 48;
/// Rows worked out of such a weight, and columns.
const ENTRIES_SHOWN: usize = 3;

/// A product that a layer computes: input times weight.
pub(super) struct Product<'x> {
    /// W_Q, for example.
    pub weight: &'static str,
    pub linear: &'x Linear,
    pub of_weight: GradientName,
    pub of_bias: GradientName,
    /// Batch entries, and tokens of each.
    pub tokens: [usize; 2],
    /// Column r of the input, of a token.
    pub input: &'x dyn Fn(usize, usize, usize) -> Number,
    /// Column c of the gradient of the result, of a token.
    pub gradient: &'x dyn Fn(usize, usize, usize) -> Number,
}

/// The lines of a weight's gradient and of its bias's.
pub(super) fn push_product(back: &Back<'_, '_>, product: &Product<'_>, part: &mut Part) {
    let run = back.run;
    let (rows, columns) = (product.linear.in_width(), product.linear.out_width());
    let many = run.large || rows * columns > MANY_ENTRIES;
    let shown = |n: usize| if many { n.min(ENTRIES_SHOWN) } else { n };
    let name = format!("d{}", product.weight);
    let [batch, length] = product.tokens;
    let tokens = || (0..batch).flat_map(|b| (0..length).map(move |t| (b, t)));
    part.blocks.push(Block::Heading(name.clone()));
    for r in 0..shown(rows) {
        for c in 0..shown(columns) {
            let terms = tokens()
                .map(|(b, t)| times((product.input)(b, t, r), (product.gradient)(b, t, c)))
                .collect();
            part.blocks.push(worked(
                format!("{name}[{r},{c}]"),
                vec![sum(terms)],
                back.entry(product.of_weight, &[r, c]),
            ));
        }
    }
    if shown(rows) < rows || shown(columns) < columns {
        part.blocks
            .push(Block::Item(back.words.other_entries(rows, columns)));
    }
    part.blocks
        .extend(back.matrix(&name, ' ', None, product.of_weight, &[]));
    if back.gradient(product.of_bias).is_none() {
        return;
    }
    let name = format!("db{}", &product.weight[1..]);
    for c in 0..shown(columns) {
        let terms = tokens()
            .map(|(b, t)| num((product.gradient)(b, t, c)))
            .collect();
        part.blocks.push(worked(
            format!("{name}[{c}]"),
            vec![sum(terms)],
            back.entry(product.of_bias, &[c]),
        ));
    }
    if shown(columns) < columns {
        part.blocks
            .push(Block::Item(back.words.other_columns(columns)));
    }
}
