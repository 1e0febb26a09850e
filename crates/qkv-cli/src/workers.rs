//! The threads that something is computed on.

use crate::args::EngineArgs;
use crate::error::{Error, Result};
use qkv::Options;
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::num::NonZeroUsize;
use std::thread;

/// How many cores this process may use.
pub fn cores() -> usize {
    thread::available_parallelism().map_or(1, |cores| cores.get())
}

/// Some threads, and the options of the engine that go with them.
pub struct Workers {
    /// Of more than one thread; one works without handing over.
    pool: Option<ThreadPool>,
    pub options: Options,
    pub threads: usize,
}

impl Workers {
    pub fn new(threads: usize, engine: &EngineArgs) -> Result<Workers> {
        let pool = if threads > 1 {
            let pool = ThreadPoolBuilder::new().num_threads(threads).build();
            Some(pool.map_err(|_| Error::threads(threads))?)
        } else {
            None
        };
        Ok(Workers {
            pool,
            options: Options {
                isa: engine.isa,
                threads: NonZeroUsize::new(threads),
                reproducible: !engine.any_order,
            },
            threads,
        })
    }

    /// Does it on these threads.
    pub fn run<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        match &self.pool {
            Some(pool) => pool.install(work),
            None => work(),
        }
    }

    /// Does it on each thread, with the thread's number.
    pub fn each<R: Send>(&self, work: impl Fn(usize) -> R + Sync) -> Vec<R> {
        match &self.pool {
            Some(pool) => pool.broadcast(|context| work(context.index())),
            None => vec![work(0)],
        }
    }
}
