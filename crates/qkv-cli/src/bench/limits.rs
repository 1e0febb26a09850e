//! What work costs, and what this machine can do at most.

use super::clock::{median, thread_seconds};
use crate::error::{Error, Names, Result};
use crate::workers::Workers;
use qkv::Float;
use std::hint::black_box;
use std::time::Instant;

/// What some work took.
#[derive(Clone, Copy)]
pub struct Cost {
    /// Seconds on the clock.
    pub wall: f64,
    /// CPU seconds of the busiest thread.
    pub cpu: f64,
}

impl Workers {
    /// What it costs to do something so many times, each time.
    pub fn cost(
        &self,
        repeats: usize,
        mut once: impl FnMut() -> Result<()> + Send,
    ) -> Result<Cost> {
        let before = self.each(|_| thread_seconds());
        let begin = Instant::now();
        self.run(|| (0..repeats).try_for_each(|_| once()))?;
        let wall = begin.elapsed().as_secs_f64();
        let after = self.each(|_| thread_seconds());
        let cpu = after
            .iter()
            .zip(before)
            .map(|(after, before)| after - before);
        Ok(Cost {
            wall: wall / repeats as f64,
            cpu: cpu.fold(0.0, f64::max) / repeats as f64,
        })
    }

    /// [`fma_burst_rate`](Self::fma_burst_rate), often enough for the clock to rise.
    pub fn fma_rate<T: Float>(&self) -> Result<f64> {
        const ROUNDS: usize = 101;
        let rates: Result<Vec<f64>> = (0..ROUNDS).map(|_| self.fma_burst_rate::<T>()).collect();
        Ok(median(&rates?))
    }

    /// Floating-point operations a second in fused multiply-adds, of all threads.
    pub fn fma_burst_rate<T: Float>(&self) -> Result<f64> {
        const ROUNDS: usize = 20_000;
        let rates: qkv::Result<Vec<f64>> = self
            .each(|_| {
                let begin = thread_seconds();
                let flops = qkv::fma_burst::<T>(&self.options, ROUNDS)?;
                Ok(flops as f64 / (thread_seconds() - begin))
            })
            .into_iter()
            .collect();
        rates
            .map(|rates| rates.iter().sum())
            .map_err(Error::engine(Names::Given))
    }

    /// Bytes a second that all threads read from memory at most, in as many streams as are best:
    /// one processor follows two of them far better than eight, another does not.
    pub fn read_rate(&self) -> f64 {
        /// Far more than any cache.
        const WORDS: usize = 1 << 25;
        const ROUNDS: usize = 4;
        const SUMS: [fn(&[u64]) -> u64; 4] = [sum::<1>, sum::<2>, sum::<4>, sum::<8>];
        let memory: Vec<u64> = (0..WORDS as u64).collect();
        let share = WORDS / self.threads;
        // The best of all: what other work takes from a round is not this machine's limit.
        SUMS.iter()
            .cycle()
            .take(ROUNDS * SUMS.len())
            .map(|sum| {
                let rates = self.each(|index| {
                    let part = &memory[index * share..][..share];
                    let begin = thread_seconds();
                    black_box(sum(part));
                    size_of_val(part) as f64 / (thread_seconds() - begin)
                });
                rates.iter().sum()
            })
            .fold(0.0, f64::max)
    }
}

/// Adds numbers up in so many streams, a cache line of each in turn.
fn sum<const STREAMS: usize>(words: &[u64]) -> u64 {
    const LINE: usize = 8;
    let length = words.len() / STREAMS / LINE * LINE;
    let (lines, _) = words[..length * STREAMS].as_chunks::<LINE>();
    let lines_each = length / LINE;
    if lines_each == 0 {
        return 0;
    }
    let streams: Vec<_> = lines.chunks_exact(lines_each).collect();
    let mut sums = [[0_u64; LINE]; STREAMS];
    for at in 0..lines_each {
        for (sums, stream) in sums.iter_mut().zip(&streams) {
            for (sum, word) in sums.iter_mut().zip(&stream[at]) {
                *sum = sum.wrapping_add(*word);
            }
        }
    }
    sums.as_flattened()
        .iter()
        .fold(0, |a, b| a.wrapping_add(*b))
}
