//! Numbers that look random and are the same every time.

use qkv::{Result, Tensor};

/// SplitMix64.
pub(super) struct Draw(u64);

impl Draw {
    pub fn new(seed: u64) -> Draw {
        Draw(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 up to 1.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// From 0 up to n.
    pub fn below(&mut self, n: usize) -> usize {
        (self.unit() * n as f64) as usize
    }

    pub fn chance(&mut self, share: f64) -> bool {
        self.unit() < share
    }

    /// About normal, mean 0, deviation 1, of both signs; a number that single precision holds.
    pub fn normal(&mut self) -> f64 {
        let sum: f64 = (0..12).map(|_| self.unit()).sum();
        f64::from((sum - 6.0) as f32)
    }

    /// Normal numbers times a size.
    pub fn tensor(&mut self, shape: &[usize], size: f64) -> Result<Tensor<f64>> {
        let count = shape.iter().product();
        Tensor::new(shape, (0..count).map(|_| self.normal() * size).collect())
    }
}
