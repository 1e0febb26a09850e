//! Where random calls come from: a seed, or bytes that somebody else chose.

/// SplitMix64; choices are taken from given bytes first, while there are any.
pub struct Random {
    state: u64,
    choices: Vec<u8>,
    taken: usize,
}

impl Random {
    pub fn new(seed: u64) -> Self {
        Random {
            state: seed,
            choices: Vec::new(),
            taken: 0,
        }
    }

    /// Choices by these bytes, so that a fuzzer can change one and keep the others.
    pub fn of_bytes(bytes: &[u8]) -> Self {
        Random {
            choices: bytes.to_vec(),
            ..Random::new(bytes.len() as u64)
        }
    }

    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// 0 ≤ n < end
    pub fn below(&mut self, end: usize) -> usize {
        let mut take = || {
            let byte = self.choices.get(self.taken).copied()?;
            self.taken += 1;
            Some(u64::from(byte))
        };
        let chosen = match take() {
            Some(low) if end > 256 => Some(low + 256 * take().unwrap_or(0)),
            other => other,
        };
        (chosen.unwrap_or_else(|| self.bits()) % end.max(1) as u64) as usize
    }

    pub fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// Random numbers that take no choices.
    pub fn numbers(&mut self) -> Random {
        Random::new(self.bits())
    }

    /// −1 to 1
    pub fn number(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }

    /// A number of about normal spread.
    pub fn normal(&mut self) -> f64 {
        self.number() + self.number() + self.number()
    }
}
