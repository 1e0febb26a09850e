//! Identities of attention over random sizes, numbers and combinations of options: where both
//! sides do the same operations they have the same bits, elsewhere a derived bound holds.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../common/mod.rs"]
mod common;

mod masking;
mod numbers;
mod order;

use common::*;

/// Runs a property over small configurations and over lengths around blocks.
pub(crate) fn for_cases(
    seed: u64,
    count: u64,
    make: impl Fn(&mut Rng, bool) -> Case,
    check: impl Fn(&Case, &mut Rng),
) {
    for n in 0..count {
        let mut rng = Rng(seed * 1_000_000 + n);
        let case = make(&mut rng, n % 12 == 11);
        check(&case, &mut rng);
    }
}

pub(crate) fn every_option(rng: &mut Rng, large: bool) -> Case {
    Case::random(rng, large)
}

/// Scale, softcap, bias, masks, sinks.
pub(crate) fn without_positions(rng: &mut Rng, large: bool) -> Case {
    let mut case = Case::plain(rng, large);
    case.with_pointwise(rng);
    case
}

/// `[batch, heads, rows, width]` with each output row taken from another one.
pub(crate) fn rows_from(data: &[f64], rows: usize, width: usize, from: &[usize]) -> Vec<f64> {
    data.chunks(rows * width)
        .flat_map(|head| {
            from.iter()
                .flat_map(|&row| head[row * width..(row + 1) * width].to_vec())
                .collect::<Vec<f64>>()
        })
        .collect()
}

/// The masks and the bias in full, each place taken from elsewhere in the old scores.
pub(crate) fn regathered(
    case: &Case,
    full: [usize; 4],
    from: impl Fn([usize; 4]) -> [usize; 4] + Copy,
) -> Case {
    let mut new = case.clone();
    new.bias = case.bias.as_ref().map(|bias| bias.gathered(full, from));
    new.masks = case
        .masks
        .iter()
        .map(|(keeps, mask)| (*keeps, mask.gathered(full, from)))
        .collect();
    new
}
