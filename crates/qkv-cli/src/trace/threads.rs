//! How many threads a model runs on.

use crate::error::{Error, Result};
use rayon::ThreadPoolBuilder;

/// Lets everything that runs in this process have so many threads.
pub fn limit(threads: usize) -> Result<()> {
    #[cfg(unix)]
    start_again(threads);
    let pool = ThreadPoolBuilder::new().num_threads(threads).build_global();
    pool.map_err(|_| Error::threads(threads))
}

/// The dense layers take their number of threads from the environment, which a process cannot change
/// safely for itself: the command starts again with it. Where that cannot be, as many threads share out
/// the work of more, which takes longer.
#[cfg(unix)]
fn start_again(threads: usize) {
    use std::env;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    const NAME: &str = "RAYON_NUM_THREADS";
    let threads = threads.to_string();
    if env::var(NAME).is_ok_and(|set| set == threads) {
        return;
    }
    if let Ok(own) = env::current_exe() {
        // It comes back only if it failed.
        let _ = Command::new(own)
            .args(env::args_os().skip(1))
            .env(NAME, threads)
            .exec();
    }
}
