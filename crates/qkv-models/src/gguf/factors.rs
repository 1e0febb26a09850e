//! What the frequencies of rotary positions are divided by, as converters of Llama 3 write it out: the
//! numbers of the scaling that they come from are found again.

use serde_json::{Value, json};
use std::f64::consts::TAU;

/// The tensor that holds them, one for each pair of columns.
pub(super) const TENSOR: &str = "rope_freqs.weight";

/// These two are the same in all files of Llama 3.
const LOW: f64 = 1.0;
const HIGH: f64 = 4.0;

/// `rope_scaling` of config.json from the factors; null where all are 1, none where they are of another
/// scaling.
pub(super) fn scaling(factors: &[f32], base: f64) -> Option<Value> {
    let factor = factors.iter().copied().fold(0.0, f32::max);
    if factors.iter().all(|factor| *factor == 1.0) {
        return Some(Value::Null);
    }
    let factor = f64::from(factor);
    let fits = |length: f64| {
        factors.iter().enumerate().all(|(pair, found)| {
            let expected = expected(pair, factors.len(), base, factor, length);
            // They are stored in single precision.
            (expected - f64::from(*found)).abs() <= 1e-5 * expected
        })
    };
    let mut lengths = (3..24).map(|power| f64::from(1_u32 << power));
    let length = lengths.find(|length| fits(*length))?;
    Some(json!({
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": LOW,
        "high_freq_factor": HIGH,
        "original_max_position_embeddings": length,
    }))
}

/// The factor of a pair: none for waves that are short beside the original length, all of it for long ones.
fn expected(pair: usize, pairs: usize, base: f64, factor: f64, length: f64) -> f64 {
    let wave = TAU * base.powf(pair as f64 / pairs as f64);
    if wave < length / HIGH {
        1.0
    } else if wave > length / LOW {
        factor
    } else {
        let smooth = (length / wave - LOW) / (HIGH - LOW);
        1.0 / ((1.0 - smooth) / factor + smooth)
    }
}
