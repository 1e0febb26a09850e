//! The names of statistics.

use crate::{Error, Result};
use std::fmt;

/// A statistic that heads are ranked by: the average weight on certain keys. i is the query's own
/// key; "earlier" are keys before it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum By {
    /// Key i − 1. Control: key i − 2.
    Previous,
    /// The first key. Control: the second.
    First,
    /// The query's own key. Control: key i − 1.
    Own,
    /// Earlier keys of the same token as the query. Control: the keys after these.
    Same,
    /// Keys after earlier keys of the same token: what came next last time. Control: these earlier
    /// keys themselves.
    Induction,
    /// The tokens of one word, in the rows of another. Control: another word of the text, neither
    /// the first nor the one before.
    Pair {
        /// The word whose rows count.
        from: String,
        /// The word whose weight is looked at.
        to: String,
    },
}

impl By {
    /// Reads one name: `previous`, `first`, `own`, `same`, `induction`, or `it>animal`.
    ///
    /// # Errors
    /// [`Error::Statistic`].
    ///
    /// ```
    /// use qkv_trace::By;
    /// assert_eq!(By::parse("first")?, By::First);
    /// assert_eq!(By::parse("it>animal")?.to_string(), "it>animal");
    /// assert!(By::parse("it>").is_err());
    /// # Ok::<(), qkv_trace::Error>(())
    /// ```
    pub fn parse(text: &str) -> Result<By> {
        let text = text.trim();
        let found = match text {
            "previous" => Some(By::Previous),
            "first" => Some(By::First),
            "own" => Some(By::Own),
            "same" => Some(By::Same),
            "induction" => Some(By::Induction),
            _ => None,
        };
        let pair = || {
            let (from, to) = text.split_once('>').or_else(|| text.split_once('→'))?;
            let (from, to) = (from.trim().to_owned(), to.trim().to_owned());
            (!from.is_empty() && !to.is_empty()).then_some(By::Pair { from, to })
        };
        found.or_else(pair).ok_or_else(|| Error::Statistic {
            asked: text.into(),
            remedy:
                "give one of previous, first, own, same, induction, or two words as 'it>animal'"
                    .into(),
        })
    }
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            By::Previous => f.write_str("previous"),
            By::First => f.write_str("first"),
            By::Own => f.write_str("own"),
            By::Same => f.write_str("same"),
            By::Induction => f.write_str("induction"),
            By::Pair { from, to } => write!(f, "{from}>{to}"),
        }
    }
}
