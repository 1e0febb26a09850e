//! The definition's result of a call, and how far another may be from it.

use super::array::{Array, Gap, Layout};
use super::call::{Call, Typed};
use super::{both_orders, isas_of};
use qkv::{DType, Element, Float, Isa, Output, bound, definition, forward_with};

/// The definition's result.
pub struct Expected {
    result: qkv::Result<Vec<[usize; 3]>>,
    rows: Vec<Row>,
}

struct Row {
    output: Vec<f64>,
    lse: f64,
    /// The largest sum of magnitudes that goes into a score of a kept key.
    score: f64,
    /// The largest |value| of a kept key, with dropout's factor.
    value: f64,
    /// Σ weight·|value| of each column.
    sizes: Vec<f64>,
}

/// Keys or values, the cached ones first, row-major.
fn joined(past: Option<&Array<f64>>, new: &Array<f64>) -> Array<f64> {
    let mut shape = new.shape;
    let cached = past.map_or(0, |past| past.shape[2]);
    shape[2] += cached;
    Array::new(shape, Layout::Plain, |[b, g, j, c]| match past {
        Some(past) if j < cached => past.get([b, g, j, c]),
        _ => new.get([b, g, j - cached, c]),
    })
}

impl Expected {
    pub fn of(call: &Call) -> Expected {
        let typed: Typed<f64> = call.typed([Layout::Plain; 3]);
        let (attention, inputs) = (call.attention(&typed), typed.inputs());
        let past = call.past.as_ref();
        let q = joined(None, &call.q);
        let k = joined(past.map(|(k, _)| k), &call.k);
        let v = joined(past.map(|(_, v)| v), &call.v);
        let places = definition::places(&attention, &inputs).unwrap();
        let scale = call.scale.factor(inputs.head_dim()).abs();
        let kept_share = 1.0 - call.dropout.map_or(0.0, |dropout| dropout.p);
        let bias = call.bias.as_ref().map(|bias| bias.view());
        let bias = bias.and_then(|bias| bias.broadcast(inputs.scores_shape()));
        let mut rows = Vec::new();
        let result = definition::for_each_row(&attention, &inputs, |b, h, i, row| {
            let (mut score, mut value) = (0.0_f64, 0.0_f64);
            let mut sizes = vec![0.0; inputs.value_dim()];
            let g = inputs.kv_head(h);
            let of_q = q.position([b, h, i, 0]);
            for j in (0..row.kept.len()).filter(|&j| row.kept[j]) {
                let of_k = k.position([b, g, j, 0]);
                let products = (0..inputs.head_dim()).map(|c| q.data[of_q + c] * k.data[of_k + c]);
                let mut sum = scale * products.map(f64::abs).sum::<f64>();
                if let Some(bias) = &bias {
                    sum += bias.get([b, h, i, j]).abs();
                }
                if let Some(slopes) = &call.alibi {
                    let far = places.queries[b][i] as f64 - places.keys[b][j] as f64;
                    sum += slopes[h].abs() * far.abs();
                }
                score = score.max(sum);
                let of_v = v.position([b, g, j, 0]);
                let values = v.data[of_v..of_v + inputs.value_dim()].iter();
                for (size, x) in sizes.iter_mut().zip(values).filter(|(_, x)| x.is_finite()) {
                    value = value.max(x.abs() / kept_share);
                    *size += row.dropped[j] * x.abs();
                }
            }
            rows.push(Row {
                output: row.output,
                lse: row.lse,
                score,
                value,
                sizes,
            });
        });
        Expected { result, rows }
    }

    /// Takes this for the size of every score.
    pub fn take_scores_as(&mut self, size: f64) {
        self.rows.iter_mut().for_each(|row| row.score = size);
    }

    /// The largest error of row n, as a share of the largest value.
    pub fn share<T: Element>(&self, call: &Call, n: usize) -> f64 {
        bound(T::DTYPE, call.q.shape[3], call.keys(), self.rows[n].score)
    }

    /// Whether the fast path gives this for every instruction set.
    ///
    /// # Errors
    /// Says where not.
    pub fn compare<T: Float + Gap>(
        &self,
        call: &Call,
        layouts: [Layout; 3],
        threads: usize,
        ratios: &mut Ratios,
    ) -> Result<(), String> {
        let typed: Typed<T> = call.typed(layouts);
        for isa in isas_of::<T>() {
            let (attention, inputs) = (call.attention(&typed), typed.inputs());
            for options in both_orders(call, isa, threads) {
                let found = forward_with(&attention, &inputs, &options);
                let worst = self.difference(call, found, ratios.of::<T>(isa));
                worst.map_err(|what| {
                    let (dtype, call) = (T::DTYPE, call.describe());
                    format!("{options:?} {dtype:?} {layouts:?} {what}: {call}")
                })?;
            }
        }
        Ok(())
    }

    /// The largest error of column c: a share of the largest value. In half precision, where that
    /// would hide faults, of what is summed: each weight is off by no more than the share.
    fn most<T: Element>(
        &self,
        call: &Call,
        (share, most): (f64, f64),
        sizes: &[f64],
        c: usize,
    ) -> f64 {
        // Weights that underflow, and the smallest number that an output may be.
        let smallest = match T::DTYPE {
            DType::F16 => 2f64.powi(-24),
            DType::Bf16 => 2f64.powi(-126),
            DType::F32 | DType::F64 => return most,
        };
        if share >= 2.0 {
            return most; // cut off
        }
        let lost = call.keys() as f64 * 2f64.powi(-126) / share;
        (share * sizes[c] + lost * most + smallest).min(most.max(smallest))
    }

    /// Adds the largest error over the bound of each row to `ratios`; says what is wrong.
    fn difference<T: Float>(
        &self,
        call: &Call,
        found: qkv::Result<Output<T>>,
        ratios: &mut Vec<f32>,
    ) -> Result<(), String> {
        let found = match (&self.result, found) {
            (Ok(empty), Ok(found)) if *empty == found.empty_rows => found,
            (Err(error), Err(found)) if *error == found => return Ok(()),
            (Ok(empty), Ok(found)) => return Err(format!("{:?} not {empty:?}", found.empty_rows)),
            (error, Err(found)) => return Err(format!("{found}, not {error:?}")),
            (Err(error), Ok(_)) => return Err(format!("no error, not {error}")),
        };
        let width = call.v.shape[3];
        let largest = match T::DTYPE {
            DType::F64 => f64::MAX,
            _ => f64::from(f32::MAX),
        };
        // Where scores overflow the type, nothing is promised.
        let rows = self.rows.iter().enumerate();
        for (n, row) in rows.filter(|(_, row)| row.score < largest) {
            let share = self.share::<T>(call, n);
            let most = share * row.value;
            let mut worst = 0.0_f64;
            let output = &found.output.data()[n * width..][..width];
            for (c, (x, &y)) in output.iter().zip(&row.output).enumerate() {
                let x = x.to_f64();
                let most = self.most::<T>(call, (share, most), &row.sizes, c);
                let error = (x - y).abs();
                let fits = if y.is_finite() {
                    error <= most
                } else {
                    !x.is_finite()
                };
                if !fits {
                    return Err(format!("row {n} column {c} is {x:e}, not {y:e} ± {most:e}"));
                }
                worst = worst.max(if most > 0.0 { error / most } else { 0.0 });
            }
            let (x, y) = (found.lse.data()[n], row.lse);
            let share = match T::DTYPE {
                DType::F64 => share,
                _ => bound(DType::F32, call.q.shape[3], call.keys(), row.score),
            };
            // Where the bound is cut off at 2, it says nothing about lse.
            let near = x == y || (x.is_nan() && y.is_nan()) || (x - y).abs() <= share;
            if !near && (share < 2.0 || x.is_finite() != y.is_finite()) {
                return Err(format!("lse {n} is {x:e}, not {y:e} ± {share:e}"));
            }
            if share < 2.0 && row.value > 0.0 && worst.is_finite() {
                ratios.push(worst as f32);
            }
        }
        Ok(())
    }
}

/// Largest error over the bound of many rows, by number type and instruction set.
#[derive(Default)]
pub struct Ratios(Vec<(DType, Isa, Vec<f32>)>);

impl Ratios {
    fn of<T: Element>(&mut self, isa: Isa) -> &mut Vec<f32> {
        let key = (T::DTYPE, isa);
        let at = self
            .0
            .iter()
            .position(|(dtype, isa, _)| (*dtype, *isa) == key);
        let at = at.unwrap_or_else(|| {
            self.0.push((T::DTYPE, isa, Vec::new()));
            self.0.len() - 1
        });
        &mut self.0[at].2
    }
}

impl std::fmt::Display for Ratios {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (dtype, isa, ratios) in &self.0 {
            let mut sorted = ratios.clone();
            sorted.sort_by(f32::total_cmp);
            let at = |share: f64| sorted[(share * (sorted.len() - 1) as f64) as usize];
            let (median, tenth, largest) = (at(0.5), at(0.9), at(1.0));
            writeln!(
                f,
                "{dtype:?} {isa:?}: {} rows, error/bound median {median:.1e}, nine tenths below \
                 {tenth:.1e}, largest {largest:.3}",
                sorted.len()
            )?;
        }
        Ok(())
    }
}
