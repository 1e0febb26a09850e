//! English: tokens.

use super::{English, of_group};
use crate::words::TokenWords;

impl TokenWords for English {
    fn token(&self, index: usize) -> String {
        format!("token {index}")
    }
    fn what_each_token_sees(&self) -> String {
        "Which tokens each position sees:".into()
    }
    fn sees(&self, query: &str, tokens: &[&str]) -> String {
        match tokens {
            [] => format!("{query} sees nothing."),
            _ => format!("{query} sees: {}", tokens.join(" · ")),
        }
    }
    fn heading_next_token(&self) -> String {
        "What each position is trained to predict".into()
    }
    fn next_token(&self) -> String {
        "In training, the label of a position is the token that comes next: the tokens themselves, \
         shifted by one. All positions are trained at once, so a position must not see its own \
         label, the key after its own."
            .into()
    }
    fn predicts(&self, query: &str, label: Option<&str>) -> String {
        match label {
            Some(label) => format!("{query} → {label}"),
            None => format!("{query} → ? (nothing follows; no label, no loss)"),
        }
    }
    fn sees_no_label(&self) -> String {
        "No position sees its own label.".into()
    }
    fn sees_own_label(&self, group: Option<&str>, rows: &[String]) -> String {
        let see = if rows.len() == 1 {
            "sees the token that it is"
        } else {
            "see the token that they are"
        };
        format!(
            "{}{} {see} to predict (query i keeps key i + 1). Training would only \
             learn to copy it: the loss falls, and nothing is learned. A causal mask hides it.",
            rows.join(", "),
            of_group(group),
        )
    }
}
