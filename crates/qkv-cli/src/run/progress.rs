//! How far long work is: a bar on standard error, in a terminal only.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{IsTerminal, stderr};

/// A bar, or nothing.
pub struct Progress(ProgressBar);

impl Progress {
    /// Of something that is worth so much.
    pub fn new(whole: u64, what: &'static str, shown: bool) -> Progress {
        let target = if shown && stderr().is_terminal() {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(Some(whole), target);
        let style = "{msg} [{bar:40}] {percent:>3}%, {elapsed}, {eta} left";
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_message(what);
        Progress(bar)
    }

    /// So much more is done.
    pub fn add(&self, done: u64) {
        self.0.inc(done);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
