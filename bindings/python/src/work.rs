//! Computing away from the interpreter.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

/// Floating-point operations that take a noticeable time on any machine: from here on Ctrl-C is
/// looked for.
const LONG: f64 = 2e9;

/// How often.
const POLL: Duration = Duration::from_millis(20);

/// Below this the engine starts no threads.
const ALONE: f64 = 1e5;

/// The process whose threads the engine's pool has, once it may have any.
static OWNER: OnceLock<u32> = OnceLock::new();

/// How to compute so much. A process that was forked after the pool was made has the pool and none of
/// its threads, and would wait for them for ever: it computes on one of its own.
pub fn options(flops: f64) -> qkv::Options {
    let alone = flops >= ALONE && *OWNER.get_or_init(std::process::id) != std::process::id();
    qkv::Options {
        threads: alone.then_some(NonZeroUsize::MIN),
        ..qkv::Options::default()
    }
}

/// Runs `work` with the interpreter free for other threads.
///
/// Long work runs on a thread of its own, so that this one can answer Ctrl-C at once. What was
/// begun then ends in the background, where it holds its arrays, and its result is thrown away.
///
/// # Errors
/// `KeyboardInterrupt`, or whatever else a signal handler raises; `RuntimeError` for a fault of the
/// engine, which is an `Exception` that a program can catch.
pub fn run<R: Send + 'static>(
    py: Python<'_>,
    flops: f64,
    work: impl FnOnce() -> R + Send + 'static,
) -> PyResult<R> {
    if flops < LONG {
        let work = AssertUnwindSafe(work);
        return py.detach(|| catch_unwind(work)).map_err(|_| fault());
    }
    let (sender, receiver) = sync_channel(1);
    std::thread::spawn(move || {
        // Nobody may be waiting any more.
        let _ = sender.send(work());
    });
    // Only the interpreter's main thread hears signals; for others this is a plain wait.
    let receiver = std::sync::Mutex::new(receiver);
    loop {
        let received = py.detach(|| match receiver.lock() {
            Ok(receiver) => receiver.recv_timeout(POLL),
            Err(_) => Err(RecvTimeoutError::Disconnected),
        });
        match received {
            Ok(result) => return Ok(result),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(fault());
            }
        }
    }
}

fn fault() -> PyErr {
    PyRuntimeError::new_err(
        "the computation ended without a result; this is a fault of qkv, please report it with the \
         lines that it printed",
    )
}
