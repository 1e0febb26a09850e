//! How to compute, as opposed to what.

use super::simd::Isa;
use crate::error::{Error, Result};
use std::num::NonZeroUsize;
use std::sync::OnceLock;

/// How to compute. The default takes the best instruction set and all threads of the rayon pool
/// that the caller runs in (the global one outside any).
///
/// For one instruction set the number of threads changes no bit of a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The instruction set. Left out, the environment variable `QKV_ISA` (`avx512`, `avx2` or
    /// `portable`, read once) decides, and without it the best that the processor has.
    pub isa: Option<Isa>,
    /// Threads at most. Left out, as many as the pool has.
    pub threads: Option<NonZeroUsize>,
}

impl Options {
    /// The instruction set that a call uses.
    ///
    /// # Errors
    /// [`Error::Option`] if the processor does not have the one asked for, or `QKV_ISA` names none.
    pub fn isa(&self) -> Result<Isa> {
        static CHOSEN: OnceLock<Result<Isa>> = OnceLock::new();
        match self.isa {
            Some(isa) if isa.available() => Ok(isa),
            Some(isa) => Err(missing("isa", isa.name())),
            None => CHOSEN.get_or_init(from_environment).clone(),
        }
    }

    /// Threads that may work on a call.
    pub(super) fn threads(&self) -> usize {
        match self.threads {
            Some(threads) if threads.get() == 1 => 1,
            Some(threads) => threads.get().min(rayon::current_num_threads()),
            None => rayon::current_num_threads(),
        }
    }
}

impl Isa {
    /// `avx512`, `avx2` or `portable`.
    pub fn name(self) -> &'static str {
        match self {
            Isa::Portable => "portable",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
        }
    }
}

fn from_environment() -> Result<Isa> {
    let Some(name) = std::env::var_os("QKV_ISA").filter(|name| !name.is_empty()) else {
        let best = Isa::ALL.into_iter().rev().find(|isa| isa.available());
        return Ok(best.unwrap_or(Isa::Portable));
    };
    let name = name.to_string_lossy();
    match Isa::ALL.into_iter().find(|isa| isa.name() == name) {
        Some(isa) if isa.available() => Ok(isa),
        _ => Err(missing("QKV_ISA", &name)),
    }
}

fn missing(option: &'static str, name: &str) -> Error {
    Error::Option {
        option,
        value: name.into(),
        remedy: "choose avx512, avx2 or portable, one that this processor has, or leave it out",
    }
}
