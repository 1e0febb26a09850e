//! For one instruction set a row has the same bits whatever else is in the call.
//!
//! `QKV_TEST_TIMES=20` tries twenty times as many random calls.
#![allow(clippy::unwrap_used)]

mod cached;
mod memory;
mod parts;
#[path = "../support/mod.rs"]
mod support;
mod threads;
mod weights;

use half::bf16;
use qkv::{EmptyRows, Float, Isa, Output, forward_with};
use support::{Call, Gap, Layout, Random, isas, options, same_bits};

/// A random call whose rows without a key are zero.
fn draw(random: &mut Random) -> Call {
    let mut call = Call::random(random);
    call.empty_rows = EmptyRows::Zero;
    call
}

fn compute<T: Float + Gap>(call: &Call, layouts: [Layout; 3], isa: Isa) -> Output<T> {
    let typed = call.typed::<T>(layouts);
    forward_with(&call.attention(&typed), &typed.inputs(), &options(isa, 1)).unwrap()
}

/// Whether row `[b, h, i]` of one result is row `[b2, h2, i2]` of another.
fn same_row<T: Float>(a: &Output<T>, at: [usize; 3], b: &Output<T>, at_b: [usize; 3]) -> bool {
    same_bits(a.output.row(&at), b.output.row(&at_b))
        && same_bits(&[a.lse.at(&at)], &[b.lse.at(&at_b)])
        && a.empty_rows.contains(&at) == b.empty_rows.contains(&at_b)
}

/// A call whose rows are among those of another.
struct Pair {
    whole: Call,
    part: Call,
    /// How the arrays of `part` lie in memory.
    layouts: [Layout; 3],
    /// Where row `[0, 0, 0]` of `part` is in `whole`.
    first: [usize; 3],
}

impl Pair {
    fn check(&self) {
        for isa in isas() {
            self.check_in::<f32>(isa);
            self.check_in::<f64>(isa);
            self.check_in::<bf16>(isa);
        }
    }

    fn check_in<T: Float + Gap>(&self, isa: Isa) {
        if isa.of(T::DTYPE) != isa {
            return;
        }
        let whole = compute::<T>(&self.whole, [Layout::Plain; 3], isa);
        let part = compute::<T>(&self.part, self.layouts, isa);
        let [batch, heads, queries, _] = self.part.q.shape;
        let [b0, h0, i0] = self.first;
        for b in 0..batch {
            for h in 0..heads {
                for i in 0..queries {
                    let at = [b0 + b, h0 + h, i0 + i];
                    assert!(
                        same_row(&whole, at, &part, [b, h, i]),
                        "{isa:?} {:?} {at:?} as [{b}, {h}, {i}] {:?} of {} in {}",
                        T::DTYPE,
                        self.layouts,
                        self.part.describe(),
                        self.whole.describe()
                    );
                }
            }
        }
    }
}
