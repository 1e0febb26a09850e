//! How much memory a call takes beyond its inputs and results: the growth of the largest resident
//! size of a fresh process over that call, as the system counts it.

use super::data::Data;
use super::job::Job;
use crate::args::{BenchArgs, MaskKind};
use crate::error::{Error, Names, Result};
use crate::suite::Case;
use crate::workers::Workers;
use qkv::{AnyView, Float, View};
use rayon::ThreadPoolBuilder;
use std::process::{Command, Stdio};
use std::{env, fs};

/// Starts this program anew for the one call; `None` where the system cannot tell.
pub fn extra_bytes(args: &BenchArgs, case: &Case, mask: MaskKind, threads: usize) -> Option<u64> {
    let mut command = Command::new(env::current_exe().ok()?);
    command.args(["bench", "--extra-bytes"]);
    command.args(["--case", case.name, "--mask", mask.name()]);
    command.args(["--dtype", args.dtype.name(), "--mode", args.mode.name()]);
    command.args(["--threads", &threads.to_string()]);
    if let Some(isa) = args.engine.isa {
        command.args(["--isa", isa.name()]);
    }
    if args.engine.any_order {
        command.arg("--any-order");
    }
    let output = command.stdin(Stdio::null()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.trim().parse().ok()
}

/// What the fresh process does.
pub fn print<T: Float>(
    args: &BenchArgs,
    case: &Case,
    mask: MaskKind,
    workers: &Workers,
) -> Result<()>
where
    for<'a> AnyView<'a>: From<View<'a, T>>,
{
    let engine = Error::engine(Names::Given);
    let data = Data::<T>::new(case, mask, args.mode).map_err(&engine)?;
    let mut job = Job::new(case, &data, args.mode, &workers.options).map_err(&engine)?;
    let code = resident("RssFile:");
    let before = resident("VmRSS:");
    let forgotten = forget_largest();
    let after = on_new_threads(workers.threads, || {
        job.once(case, &data, &workers.options).map_err(&engine)?;
        Ok(resident("VmHWM:"))
    })?;
    let grown = match (before, after) {
        (Some(before), Some(after)) if forgotten => {
            // The program itself comes into memory as it is first run.
            let new_code = resident("RssFile:")
                .zip(code)
                .map_or(0, |(now, then)| now.saturating_sub(then));
            after.saturating_sub(before + new_code).to_string()
        }
        _ => "unknown".to_owned(),
    };
    crate::output::print(format!("{grown}\n").as_bytes())
}

/// Does something on threads that have no memory of their own yet, and waits until they end.
fn on_new_threads<R: Send>(threads: usize, work: impl FnOnce() -> Result<R> + Send) -> Result<R> {
    let pool = ThreadPoolBuilder::new().num_threads(threads);
    let result = pool.build_scoped(|thread| thread.run(), |pool| pool.install(work));
    result.map_err(|_| Error::threads(threads))?
}

/// Makes the largest size the present one; whether the system did it.
fn forget_largest() -> bool {
    fs::write("/proc/self/clear_refs", "5").is_ok()
}

/// A size of this process, in bytes.
fn resident(field: &str) -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}
