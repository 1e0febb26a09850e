//! How far rounding may move a number.
//!
//! For each number the model says how far its intermediates may move it, to first order:
//!
//! ```text
//! do = Σ_j w_j·(v_j − o)·ds_j + Σ_j w_j·v_j·ε_j              of an output, s_j the logits
//! worst: |ds_j| ≤ u·n·Σ_c |q_c·k_c|·scale                     every rounding at its largest, one sign
//! usual: |ds_j| ≤ u·4·(2·√Σ_c (q_c·k_c)²·scale + |s_j| + |s_j − max|)
//! ```
//!
//! *Usual* is four standard deviations of independent roundings of q, k, the products' sum, the
//! score, and its difference from the maximum, each stored in a format of roundoff u, with sums kept
//! in single precision, as accelerators and libraries do.

use crate::model::RowOut;
use half::{bf16, f16};
use qkv::DType;

/// A format, and how much of the work is done in it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Level {
    pub dtype: DType,
    pub work: Work,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Work {
    /// The result is stored in it, computed in single precision (double for `f64`).
    Stored,
    /// Every intermediate is stored in it.
    Kept,
}

/// From fine to coarse.
const FORMATS: [DType; 4] = [DType::F64, DType::F32, DType::F16, DType::Bf16];

/// Half the distance from 1 to the next number.
pub(crate) fn roundoff(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 2f64.powi(-53),
        DType::F32 => 2f64.powi(-24),
        DType::F16 => 2f64.powi(-11),
        DType::Bf16 => 2f64.powi(-8),
    }
}

/// Half the distance between the smallest numbers of a format.
fn smallest(dtype: DType) -> f64 {
    match dtype {
        // What is below is often taken as 0.
        DType::F64 => f64::MIN_POSITIVE,
        DType::F32 => 2f64.powi(-126),
        DType::F16 => 2f64.powi(-24),
        DType::Bf16 => 2f64.powi(-126),
    }
}

impl Level {
    /// The levels at which numbers stored in `dtype` may be right, from fine to coarse.
    pub fn of(dtype: DType) -> Vec<Level> {
        let from = FORMATS.iter().position(|f| *f == dtype).unwrap_or(0);
        FORMATS[from..]
            .iter()
            .flat_map(|&dtype| [Work::Stored, Work::Kept].map(|work| Level { dtype, work }))
            .collect()
    }

    /// The error allowed of number `c` of a row.
    pub fn allows(self, row: &RowOut, c: usize) -> f64 {
        let value = if row.values[c].is_finite() {
            row.values[c].abs()
        } else {
            0.0
        };
        let u = roundoff(self.dtype);
        let computed = match self.dtype {
            DType::F64 => 2.0 * u, // both sides round alike
            _ => roundoff(DType::F32) + roundoff(DType::F64),
        };
        let stored = computed * row.worst[c] + u * value + smallest(self.dtype);
        match self.work {
            Work::Stored => stored,
            Work::Kept => stored + u * (row.usual[c] + value),
        }
    }
}

/// The coarsest format that holds every one of these numbers, if that cannot be by chance.
pub(crate) fn stored_in(values: &[f64]) -> Option<DType> {
    const ENOUGH: usize = 16;
    let telling: Vec<f64> = values
        .iter()
        .copied()
        .filter(|x| x.is_finite() && !is_short(*x))
        .collect();
    if telling.len() < ENOUGH {
        return None;
    }
    let holds = |dtype: DType| telling.iter().all(|x| rounded(*x, dtype) == *x);
    FORMATS[1..]
        .iter()
        .rev()
        .copied()
        .find(|dtype| holds(*dtype))
}

/// Whether a number has at most four significant bits, as every format holds.
fn is_short(x: f64) -> bool {
    let bits = x.to_bits() & ((1 << 52) - 1);
    bits.trailing_zeros() >= 49 || x == 0.0
}

/// The nearest number of a format.
pub(crate) fn rounded(x: f64, dtype: DType) -> f64 {
    match dtype {
        DType::F64 => x,
        DType::F32 => f64::from(x as f32),
        DType::F16 => f16::from_f64(x).to_f64(),
        DType::Bf16 => bf16::from_f64(x).to_f64(),
    }
}
