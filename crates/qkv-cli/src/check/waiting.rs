//! How far a long search is: a bar on standard error, in a terminal only, from the first second on.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use qkv_check::Watch;
use std::io::{IsTerminal, stderr};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::scope;
use std::time::Duration;

/// Does the work, and shows the watch meanwhile.
pub fn shown<R>(watch: &Watch, work: impl FnOnce() -> R) -> R {
    if !stderr().is_terminal() {
        return work();
    }
    scope(|scope| {
        let (done, wait) = channel::<()>();
        scope.spawn(move || {
            let first = wait.recv_timeout(Duration::from_secs(1));
            if first != Err(RecvTimeoutError::Timeout) {
                return;
            }
            let bar = ProgressBar::with_draw_target(Some(1), ProgressDrawTarget::stderr());
            if let Ok(style) =
                ProgressStyle::with_template("explanations [{bar:40}] {pos} of {len}, {elapsed}")
            {
                bar.set_style(style.progress_chars("=> "));
            }
            while wait.recv_timeout(Duration::from_millis(100)) == Err(RecvTimeoutError::Timeout) {
                let (tried, all) = watch.progress();
                bar.set_length(all.max(1));
                bar.set_position(tried);
            }
            bar.finish_and_clear();
        });
        let result = work();
        drop(done);
        result
    })
}
