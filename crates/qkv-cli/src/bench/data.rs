//! The numbers that cases are run on, the same on every machine.

use crate::args::{MaskKind, Mode};
use crate::suite::Case;
use qkv::{Cache, Float, Inputs, Result, View};

/// Arrays of one case.
pub struct Data<T: Float> {
    pub q: Vec<T>,
    pub k: Vec<T>,
    pub v: Vec<T>,
    /// k and v, where the case has a cache.
    pub cache: Option<Cache<T>>,
    /// True keeps; key 0 always, so that no row is empty.
    pub keep: Option<Vec<bool>>,
    /// Added to the scores.
    pub bias: Option<Vec<T>>,
    /// The gradient of the output; empty where it is not needed.
    pub grad: Vec<T>,
}

impl<T: Float> Data<T> {
    /// Draws them.
    pub fn new(case: &Case, mask: MaskKind, mode: Mode) -> Result<Data<T>> {
        let count = |shape: &[usize]| shape.iter().product::<usize>();
        let numbers = |seed, shape: &[usize]| -> Vec<T> {
            let mut random = Random(seed);
            (0..count(shape))
                .map(|_| T::from_f64(random.normal()))
                .collect()
        };
        let [_, keys] = case.mask();
        let (k, v) = (numbers(2, &case.k()), numbers(3, &case.v()));
        let cache = if case.cache {
            let [batch, kv_heads, _, d_k] = case.k();
            let [_, _, _, d_v] = case.v();
            let mut cache = Cache::new(batch, kv_heads, d_k, d_v);
            cache.append(View::new(&k, &case.k())?, View::new(&v, &case.v())?)?;
            Some(cache)
        } else {
            None
        };
        Ok(Data {
            q: numbers(1, &case.q()),
            k,
            v,
            cache,
            keep: (mask == MaskKind::Bool).then(|| {
                let mut random = Random(4);
                let cells = 0..count(&case.mask());
                cells
                    .map(|at| !random.next().is_multiple_of(5) || at.is_multiple_of(keys))
                    .collect()
            }),
            bias: (mask == MaskKind::Float).then(|| numbers(5, &case.mask())),
            grad: match mode {
                Mode::Forward => Vec::new(),
                Mode::Backward => numbers(6, &case.output()),
            },
        })
    }

    /// q, k and v.
    pub fn inputs(&self, case: &Case) -> Result<Inputs<'_, T>> {
        match &self.cache {
            Some(cache) => cache.inputs(View::new(&self.q, &case.q())?),
            None => Inputs::new(
                View::new(&self.q, &case.q())?,
                View::new(&self.k, &case.k())?,
                View::new(&self.v, &case.v())?,
            ),
        }
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Mean 0, standard deviation 1, and near enough to a normal distribution: a sum of four even
    /// ones.
    fn normal(&mut self) -> f64 {
        let z = self.next();
        let sum = [0, 16, 32, 48]
            .into_iter()
            .map(|shift| (z >> shift) & 0xFFFF)
            .sum::<u64>();
        let deviation = ((65536.0_f64 * 65536.0 - 1.0) * 4.0 / 12.0).sqrt();
        (sum as f64 - 4.0 * 65535.0 / 2.0) / deviation
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_mean_0_and_deviation_1() {
        let mut random = Random(1);
        let numbers: Vec<f64> = (0..100_000).map(|_| random.normal()).collect();
        let mean = numbers.iter().sum::<f64>() / 1e5;
        let square = numbers.iter().map(|x| x * x).sum::<f64>() / 1e5;
        // Five times the deviations that 100 000 draws have: 1/√1e5, and √(E[x⁴] − 1)/√1e5 with
        // E[x⁴] = 2.7.
        assert!(mean.abs() < 5.0 * 0.0032, "{mean}");
        assert!((square - 1.0).abs() < 5.0 * 0.0042, "{square}");
    }
}
