//! Weights drawn from a seed: the same on every machine and in every version.
//!
//! ```text
//! next()   SplitMix64 (Steele, Lea, Flood, 2014): state += 0x9E3779B97F4A7C15, then mixed
//! stream   weight n (W_Q 0, W_K 1, W_V 2, W_O 3; an exercise 4) has the n-th number of SplitMix64(seed) as the
//!          seed of its own SplitMix64, so it does not depend on which others are drawn
//! unit     (next() >> 11) / 2^53, in [0, 1)
//! uniform  (2·unit − 1)·a
//! normal   the polar method (Marsaglia, Bray, 1964): u, v = 2·unit − 1 until 0 < s = u² + v² < 1,
//!          then std·u·√(−2·ln s / s) and std·v·√(−2·ln s / s), in this order
//! ```
//!
//! Weights are filled row by row. The logarithm is that of the crate `libm`, not the system's.

use crate::args::Init;

/// Which weight is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    Q,
    K,
    V,
    O,
}

impl Weight {
    /// The name in texts.
    pub fn name(self) -> &'static str {
        match self {
            Weight::Q => "W_Q",
            Weight::K => "W_K",
            Weight::V => "W_V",
            Weight::O => "W_O",
        }
    }
}

/// `rows·columns` numbers, row by row; `None` if there is no memory for them.
pub fn draw(
    init: Init,
    seed: u64,
    weight: Weight,
    rows: usize,
    columns: usize,
) -> Option<Vec<f64>> {
    let mut source = SplitMix64::stream(seed, weight as usize);
    let count = rows.checked_mul(columns)?;
    let mut numbers = Vec::new();
    numbers.try_reserve_exact(count.checked_add(1)?).ok()?;
    match init {
        Init::Normal(std) => normal(&mut source, std, count, &mut numbers),
        Init::Uniform(a) => uniform(&mut source, a, count, &mut numbers),
        Init::Xavier => {
            let a = (6.0 / (rows as f64 + columns as f64)).sqrt();
            uniform(&mut source, a, count, &mut numbers);
        }
    }
    Some(numbers)
}

fn uniform(source: &mut SplitMix64, a: f64, count: usize, numbers: &mut Vec<f64>) {
    numbers.extend((0..count).map(|_| source.signed_unit() * a));
}

fn normal(source: &mut SplitMix64, std: f64, count: usize, numbers: &mut Vec<f64>) {
    while numbers.len() < count {
        let (u, v) = (source.signed_unit(), source.signed_unit());
        let s = u * u + v * v;
        if s > 0.0 && s < 1.0 {
            let factor = (-2.0 * libm::log(s) / s).sqrt();
            numbers.extend([std * (u * factor), std * (v * factor)]);
        }
    }
    numbers.truncate(count);
}

pub struct SplitMix64(u64);

impl SplitMix64 {
    /// Numbers that do not depend on what other streams are used for.
    pub fn stream(seed: u64, n: usize) -> SplitMix64 {
        let mut streams = SplitMix64(seed);
        let mut own = streams.next();
        for _ in 0..n {
            own = streams.next();
        }
        SplitMix64(own)
    }

    /// A whole number from 0 up to n, which is small and not 0.
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// In [−1, 1).
    fn signed_unit(&mut self) -> f64 {
        let unit = (self.next() >> 11) as f64 / (1_u64 << 53) as f64;
        2.0 * unit - 1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draw(init: Init, seed: u64, weight: Weight, rows: usize, columns: usize) -> Vec<f64> {
        super::draw(init, seed, weight, rows, columns).expect("memory")
    }

    /// The published first numbers of SplitMix64 from seed 1234567.
    #[test]
    fn generator_is_the_published_one() {
        let mut source = SplitMix64(1234567);
        let expected = [
            6457827717110365317_u64,
            3203168211198807973,
            9817491932198370423,
            4593380528125082431,
            16408922859458223821,
        ];
        for number in expected {
            assert_eq!(source.next(), number);
        }
    }

    #[test]
    fn a_weight_does_not_depend_on_its_neighbours() {
        let all = [Weight::Q, Weight::K, Weight::V, Weight::O]
            .map(|weight| draw(Init::Xavier, 7, weight, 2, 2));
        for (n, weight) in all.iter().enumerate() {
            assert!(all[..n].iter().all(|other| other != weight));
        }
        // More rows continue the same numbers.
        let long = draw(Init::Normal(1.0), 7, Weight::K, 3, 2);
        assert_eq!(long[..4], draw(Init::Normal(1.0), 7, Weight::K, 2, 2));
    }

    #[test]
    fn moments_are_those_asked_for() {
        let numbers = draw(Init::Normal(0.5), 3, Weight::V, 200, 500);
        let n = numbers.len() as f64;
        let mean = numbers.iter().sum::<f64>() / n;
        let variance = numbers.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / n;
        assert!(mean.abs() < 0.01, "{mean}");
        assert!((variance - 0.25).abs() < 0.005, "{variance}");
        let numbers = draw(Init::Uniform(2.0), 3, Weight::O, 200, 500);
        assert!(numbers.iter().all(|x| (-2.0..2.0).contains(x)));
        let variance = numbers.iter().map(|x| x * x).sum::<f64>() / n;
        assert!((variance - 4.0 / 3.0).abs() < 0.02, "{variance}");
    }
}
