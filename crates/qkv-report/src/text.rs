//! The worked calculation as plain text.

use crate::{Settings, Subject};

/// The worked calculation.
pub fn text(subject: &Subject<'_>, settings: &Settings) -> String {
    let mut out = String::from("Attention(Q,K,V) = softmax(QKᵀ/√d_k + mask)·V\n");
    for (name, tensor) in subject.steps.iter() {
        out.push_str(&format!("\n{name} {:?}\n", tensor.shape()));
        let width = tensor.shape().last().copied().unwrap_or(1).max(1);
        for row in tensor.data().chunks(width) {
            for value in row {
                out.push_str(&format!("{value:>12.*}", settings.digits));
            }
            out.push('\n');
        }
    }
    out
}
