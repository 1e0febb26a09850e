//! What each position is trained to predict, and whether it can see it.

use qkv::{Attention, StepName, Steps};

/// Labels for training on the next token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextToken {
    /// For each batch entry, the key of the token that each query is to predict; `None` where none
    /// follows in its sequence or document.
    pub labels: Vec<Vec<Option<usize>>>,
    /// Rows that see their own label, as `[batch, head, query]`.
    pub sees_own_label: Vec<[usize; 3]>,
}

/// The tokens shifted by one, for self-attention: query i belongs to key L_k − L_q + i and predicts
/// the key after that.
///
/// ```text
/// label(i) = own(i) + 1, own(i) = L_k − L_q + i     none beyond the length or the own document
/// ```
///
/// A row sees its label if the key takes part in its softmax. `None` unless `steps` are a run of
/// `attention` with at least as many keys as queries.
pub fn next_token(attention: &Attention<'_>, steps: &Steps) -> Option<NextToken> {
    let scores = steps.get(StepName::Scores)?;
    let &[batch, heads, queries, keys] = scores.shape() else {
        return None;
    };
    let before = keys.checked_sub(queries)?;
    let last = [
        StepName::Scaled,
        StepName::Capped,
        StepName::Biased,
        StepName::Masked,
    ];
    let logits = last.into_iter().rev().find_map(|name| steps.get(name))?;
    let mut ends = Vec::new();
    if let Some(documents) = &attention.documents {
        for &length in documents.keys() {
            ends.extend(std::iter::repeat_n(ends.len() + length, length));
        }
    }
    ends.resize(keys, keys);
    let mut labels = Vec::with_capacity(batch);
    let mut sees_own_label = Vec::new();
    for b in 0..batch {
        let length = attention
            .lengths
            .as_ref()
            .map_or(keys, |lengths| lengths.0[b]);
        let label = |i: usize| {
            let next = before + i + 1;
            (next < ends[before + i].min(length)).then_some(next)
        };
        let own: Vec<Option<usize>> = (0..queries).map(label).collect();
        for h in 0..heads {
            for (i, label) in own.iter().enumerate() {
                if label.is_some_and(|j| logits.at(&[b, h, i, j]) != f64::NEG_INFINITY) {
                    sees_own_label.push([b, h, i]);
                }
            }
        }
        labels.push(own);
    }
    Some(NextToken {
        labels,
        sees_own_label,
    })
}
