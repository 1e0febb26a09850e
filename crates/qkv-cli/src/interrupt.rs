//! Ctrl-C: the first one ends the command at the next good moment, so that no temporary file is
//! left; a second one ends it at once.

use crate::error::{Error, Result};
use signal_hook::consts::SIGINT;
use signal_hook::flag;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// What shells expect of a command that was interrupted.
pub const EXIT_STATUS: u8 = 130;

static ASKED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// From here on Ctrl-C is noticed by [`check`] only.
pub fn watch() {
    let asked = ASKED.get_or_init(Arc::default);
    // Where the system allows no handler, Ctrl-C ends the process as it always does.
    let _ = flag::register_conditional_shutdown(SIGINT, EXIT_STATUS.into(), Arc::clone(asked))
        .and_then(|_| flag::register(SIGINT, Arc::clone(asked)));
}

/// Whether somebody wants the command to end.
pub fn asked() -> bool {
    ASKED
        .get()
        .is_some_and(|asked| asked.load(Ordering::Relaxed))
}

/// An error if somebody wants the command to end.
pub fn check() -> Result<()> {
    if asked() {
        return Err(Error::Interrupted);
    }
    Ok(())
}
