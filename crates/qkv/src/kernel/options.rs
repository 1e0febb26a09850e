//! How to compute, as opposed to what.

use super::simd::Isa;
use crate::error::{Error, Result};
use std::num::NonZeroUsize;
use std::sync::OnceLock;

/// How to compute. The default takes the best instruction set and all threads of the rayon pool
/// that the caller runs in (the global one outside any).
///
/// For one instruction set the number of threads changes no bit of a result, whatever the options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The instruction set. Left out, the environment variable `QKV_ISA` (`avx512bf16`,
    /// `avx512`, `avx2` or `portable`, read once) decides, and without it the best that the processor has.
    pub isa: Option<Isa>,
    /// Threads at most. Left out, as many as the pool has.
    pub threads: Option<NonZeroUsize>,
    /// Whether a row has the same bits in any call, which is the default. Without it, calls of one
    /// or two queries a key and value head (decoding without grouped heads) sum a score in
    /// sixteen parts, which reads keys as they lie. That takes a fifth to a quarter less time where
    /// keys and values are in the processor's caches, a twentieth less where they come from memory.
    /// What it gives up: a query alone differs in its last bits from the same query among others,
    /// so a decoded token is not exactly the row of a prefill. The number of threads still changes
    /// nothing, and [`bound`](crate::bound) holds. The dot products of bf16 have one order only.
    pub reproducible: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            isa: None,
            threads: None,
            reproducible: true,
        }
    }
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
    /// `avx512bf16`, `avx512`, `avx2` or `portable`.
    pub fn name(self) -> &'static str {
        match self {
            Isa::Portable => "portable",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
            Isa::Avx512Bf16 => "avx512bf16",
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
        remedy: "choose avx512bf16, avx512, avx2 or portable, one that this processor has, or leave it out",
    }
}
