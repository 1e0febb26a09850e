//! Nothing but fused multiply-adds: what the processor can do at most.

use super::super::real::Real;
use super::vector::Vector;

/// Chains that run side by side, enough to hide the latency of all units.
const CHAINS: usize = 12;

/// Runs `rounds` times a multiply-add in each of [`CHAINS`] registers; returns the number of
/// floating-point operations, two for each number in each register.
#[inline(always)]
pub(super) unsafe fn run<V: Vector>(rounds: usize) -> u64 {
    unsafe {
        let factor = V::splat(std::hint::black_box(V::T::ONE));
        let mut chains = [V::splat(V::T::ONE); CHAINS];
        for _ in 0..rounds {
            for chain in &mut chains {
                *chain = factor.fma(factor, *chain);
            }
        }
        let mut lanes = [V::T::ZERO; 16];
        for chain in chains {
            chain.store(lanes.as_mut_ptr());
            std::hint::black_box(&lanes);
        }
    }
    2 * (rounds * CHAINS * V::LANES * V::DEPTH) as u64
}
