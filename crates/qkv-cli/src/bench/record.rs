//! What was measured, as JSON.

use crate::args::{Dtype, MaskKind, Mode, Peer};
use crate::workers;
use serde_json::{Map, Value, json};

/// What keeps a case from being faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Arithmetic: fused multiply-adds.
    Fma,
    /// Reading memory.
    Bandwidth,
    /// The call itself.
    None,
}

impl Limit {
    fn name(self) -> &'static str {
        match self {
            Limit::Fma => "fma",
            Limit::Bandwidth => "bandwidth",
            Limit::None => "none",
        }
    }
}

/// Somebody else's fastest operator on the same case.
#[derive(Clone, Debug)]
pub struct Other {
    pub peer: Peer,
    pub operator: String,
    pub cpu_ms: f64,
    /// Its CPU time by ours.
    pub ratio: f64,
}

/// One case as it was measured.
#[derive(Clone, Debug)]
pub struct Record {
    pub case: &'static str,
    pub dtype: Dtype,
    pub mode: Mode,
    pub mask: MaskKind,
    pub threads: usize,
    pub path: &'static str,
    /// Median wall time of a call.
    pub ms: f64,
    /// Median CPU time of a call's busiest thread.
    pub cpu_ms: f64,
    /// Floating-point operations by CPU time.
    pub gflops: f64,
    /// Of the limit that applies; `None` where none does.
    pub share: Option<f64>,
    pub limit: Limit,
    pub extra_bytes: Option<u64>,
    pub others: Vec<Other>,
}

impl Record {
    /// One object.
    pub fn json(&self) -> Value {
        let peers: Map<String, Value> = self
            .others
            .iter()
            .map(|other| {
                let figures = json!({"cpu_ms": short(other.cpu_ms), "ratio": short(other.ratio)});
                (other.peer.name().to_owned(), figures)
            })
            .collect();
        json!({
            "case": self.case,
            "dtype": self.dtype.name(),
            "mode": self.mode.name(),
            "mask": self.mask.name(),
            "threads": self.threads,
            "cores": workers::cores(),
            "path": self.path,
            "ms": short(self.ms),
            "cpu_ms": short(self.cpu_ms),
            "gflops": short(self.gflops),
            "share": self.share.map(short),
            "limit": self.limit.name(),
            "extra_bytes": self.extra_bytes,
            "peers": peers,
        })
    }
}

/// Six digits: more than any clock is good for.
fn short(x: f64) -> f64 {
    format!("{x:.5e}").parse().unwrap_or(x)
}
