//! From the steps of a run to their explanation.

mod closing;
mod merge;
mod opening;
mod position;
mod projection;
mod run;
mod scores;
mod softmax;
mod values;
mod visibility;

use crate::explanation::Explanation;
use crate::words::Words;
use crate::{Settings, Subject};
use run::Run;

/// The explanation of a run, every sentence in the language of `words`.
pub(crate) fn explain(
    subject: &Subject<'_>,
    settings: &Settings,
    words: &dyn Words,
) -> Explanation {
    let run = Run::new(subject, settings, words);
    let mut parts = projection::parts(&run);
    parts.extend(position::parts(&run));
    parts.extend(scores::parts(&run));
    parts.extend(softmax::parts(&run));
    parts.extend(values::parts(&run));
    parts.extend(merge::parts(&run));
    parts.extend(closing::parts(&run));
    Explanation {
        title: words.title(),
        opening: opening::blocks(&run),
        parts,
    }
}
