//! From the steps of a run to their explanation.

mod backward;
mod beside;
mod closing;
mod contrast;
mod decode;
mod leaders;
mod merge;
mod next_token;
mod opening;
mod permute;
mod places;
mod position;
mod projection;
mod reading;
mod rotary;
mod run;
mod scores;
mod softmax;
mod task;
mod values;
mod visibility;

use crate::explanation::{Block, Explanation, Part};
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
    let mut parts = parts(&run);
    parts.extend(next_token::part(&run));
    parts.extend(decode::part(&run));
    parts.extend(permute::part(&run));
    parts.extend(contrast::parts(&run));
    Explanation {
        title: words.title(),
        opening: opening::blocks(&run),
        parts,
        data: None,
    }
}

/// A calculation to be left to a learner, results still in it.
pub(crate) struct Task {
    pub instructions: Vec<Block>,
    /// Which sizes, options and queries.
    pub problem: Vec<Block>,
    pub parts: Vec<Part>,
}

/// The same calculation as a task; none if it is too large for a pencil.
pub(crate) fn task(subject: &Subject<'_>, settings: &Settings, words: &dyn Words) -> Option<Task> {
    let run = Run::new(subject, settings, words);
    let mut parts = parts(&run);
    task::add_exp(&run, &mut parts);
    (!run.large).then(|| Task {
        instructions: task::instructions(&run),
        problem: task::problem(&run),
        parts,
    })
}

fn parts(run: &Run<'_>) -> Vec<Part> {
    let mut parts = projection::parts(run);
    parts.extend(position::parts(run));
    parts.extend(scores::parts(run));
    parts.extend(softmax::parts(run));
    parts.extend(values::parts(run));
    parts.extend(merge::parts(run));
    parts.extend(closing::parts(run));
    parts.extend(backward::parts(run));
    parts
}
