//! What was measured, for people.

use super::record::{Limit, Record};
use crate::args::Peer;

/// The columns' names; `peers` have one each.
pub fn head(peers: &[Peer]) -> String {
    let mut line = format!(
        "{:<18} {:<5} {:>2} {:>8} {:>8} {:>7} {:>6} {:<3} {:>8}",
        "case", "mask", "T", "ms", "cpu ms", "GFLOP/s", "share", "of", "extra"
    );
    for peer in peers {
        line += &format!(" {:>1$}", heading(*peer), column(*peer));
    }
    line
}

fn heading(peer: Peer) -> &'static str {
    match peer {
        Peer::Onnxruntime => "ort",
        peer => peer.name(),
    }
}

fn column(peer: Peer) -> usize {
    heading(peer).len().max(6)
}

/// One case.
pub fn row(record: &Record, peers: &[Peer]) -> String {
    let share = record
        .share
        .map_or_else(|| "-".into(), |share| format!("{:.1}%", share * 100.0));
    let limit = match record.limit {
        Limit::Fma => "fma",
        Limit::Bandwidth => "mem",
        Limit::None => "-",
    };
    let extra = record.extra_bytes.map_or_else(|| "?".into(), size);
    let mut line = format!(
        "{:<18} {:<5} {:>2} {:>8} {:>8} {:>7.1} {share:>6} {limit:<3} {extra:>8}",
        record.case,
        record.mask.name(),
        record.threads,
        milliseconds(record.ms),
        milliseconds(record.cpu_ms),
        record.gflops,
    );
    for peer in peers {
        let other = record.others.iter().find(|other| other.peer == *peer);
        let ratio = other.map_or_else(|| "-".into(), |other| format!("{:.2}x", other.ratio));
        line += &format!(" {ratio:>0$}", column(*peer));
    }
    line
}

/// Four digits, and never more than eight characters.
fn milliseconds(ms: f64) -> String {
    let decimals = match ms {
        ms if ms >= 1000.0 => 0,
        ms if ms >= 100.0 => 1,
        ms if ms >= 10.0 => 2,
        ms if ms >= 1.0 => 3,
        ms if ms >= 0.1 => 4,
        _ => 5,
    };
    format!("{ms:.decimals$}")
}

fn size(bytes: u64) -> String {
    const KIB: f64 = 1024.0;
    let bytes = bytes as f64;
    if bytes < KIB * KIB {
        format!("{:.0} KiB", bytes / KIB)
    } else {
        format!("{:.1} MiB", bytes / KIB / KIB)
    }
}

/// What the table's words mean, and the means of the ratios.
pub fn foot(records: &[Record], peers: &[Peer]) -> Vec<String> {
    let mut lines = vec![
        "T: threads. cpu ms: CPU time of the busiest thread; GFLOP/s, share and ratios go by it."
            .to_owned(),
        "share: of what this machine was measured to do in multiply-adds (fma) or reading memory (mem)."
            .to_owned(),
        "extra: memory that one call takes beyond its inputs and output.".to_owned(),
    ];
    if peers.is_empty() {
        return lines;
    }
    lines.push(
        "A ratio is the other's CPU time divided by qkv's: above 1, qkv is faster. ort: onnxruntime."
            .to_owned(),
    );
    let mut threads: Vec<usize> = records.iter().map(|record| record.threads).collect();
    threads.sort_unstable();
    threads.dedup();
    for threads in threads {
        let rows: Vec<_> = records
            .iter()
            .filter(|record| record.threads == threads)
            .collect();
        let ratios_of = |peer: Peer| {
            let of_row = |row: &&Record| {
                let other = row.others.iter().find(|other| other.peer == peer)?;
                Some(other.ratio)
            };
            rows.iter().filter_map(of_row).collect::<Vec<_>>()
        };
        let fastest = rows.iter().filter_map(|row| {
            let ratios = row.others.iter().map(|other| other.ratio);
            ratios.min_by(f64::total_cmp)
        });
        let mut means: Vec<String> = peers
            .iter()
            .filter_map(|&peer| mean(peer.name(), &ratios_of(peer), rows.len()))
            .collect();
        means.extend(mean(
            "the fastest",
            &fastest.collect::<Vec<_>>(),
            rows.len(),
        ));
        if !means.is_empty() {
            lines.push(format!(
                "Geometric means, {}: {}",
                qkv_io::many(threads as u64, "thread"),
                means.join(", ")
            ));
        }
    }
    lines
}

/// The geometric mean; it says of how many rows if not of all.
fn mean(name: &str, ratios: &[f64], rows: usize) -> Option<String> {
    let count = ratios.len();
    if count == 0 {
        return None;
    }
    let logarithms = ratios.iter().map(|ratio| ratio.ln()).sum::<f64>();
    let mean = (logarithms / count as f64).exp();
    Some(if count == rows {
        format!("{name} {mean:.2}x")
    } else {
        format!("{name} {mean:.2}x (of {count})")
    })
}
