//! Which number of the bias belongs to which score.

use crate::problem::Base;
use qkv::Bias;

/// The shape of a bias, of which axes of length 1 are repeated.
pub(super) struct Repeated {
    given: [usize; 4],
    full: [usize; 4],
}

impl Repeated {
    /// `None` without a bias.
    pub fn of(base: &Base<'_>) -> Option<Repeated> {
        let Bias(view) = base.problem.attention().bias?;
        let sizes = base.sizes;
        Some(Repeated {
            given: view.shape(),
            full: [sizes.batch, sizes.heads, sizes.queries, sizes.keys],
        })
    }

    /// How many numbers it has.
    pub fn len(&self) -> usize {
        self.given.iter().product()
    }

    /// How many scores share each of them.
    pub fn terms(&self) -> usize {
        self.full.iter().product::<usize>() / self.len().max(1)
    }

    /// The number of a score.
    pub fn at(&self, index: [usize; 4]) -> usize {
        let axes = self.given.iter().zip(index);
        axes.fold(0, |at, (&len, n)| at * len + if len == 1 { 0 } else { n })
    }
}
