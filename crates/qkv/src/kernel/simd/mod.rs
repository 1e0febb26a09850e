//! The kernels of each instruction set, and the only `unsafe` code of the crate.
//!
//! What is here is safe to use: every function checks its slices once, works on registers and raw
//! pointers inside, and can be had only through [`Kernels`] of an instruction set that this
//! processor was found to have ([`Isa::available`]).
//!
//! | file | what |
//! |---|---|
//! | `vector` | one register; exp and tanh on it |
//! | `avx512`, `avx512bf16`, `avx2`, `portable` | registers of an instruction set |
//! | `pack`, `scores`, `bend`, `softmax`, `values` | the stages, for any register |
//! | `convert` | numbers that lie in memory in another format |
//! | `stream` | scores and values of few queries, from keys and values as they lie |
//! | `dots` | scores of very few queries, summed in another order |
//! | `gradient`, `across`, `products` | the stages of the backward pass besides |
//! | `edit` | masks and biases that the maxima take along |
//! | `behind` | these, and maxima begun, while scores are computed |
//! | `asks`, `meanwhile` | memory that is asked for, and exponentials, while values are weighed |
//! | `piece` | arrays cut into parts for threads; where sums go |
//! | `few`, `tiles` | all stages of a small call at once |
//! | `rows` | strided rows, aligned memory |
//! | `pages` | memory on large pages |
//! | `logarithm` | natural logarithms |
//! | `limit` | multiply-adds alone, to measure the processor by |
//! | `shared` | one output written from many threads |
#![allow(unsafe_code)]

use crate::view::DType;

mod across;
mod asks;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod avx512bf16;
mod behind;
mod bend;
mod convert;
mod dots;
mod edit;
mod few;
mod gradient;
mod limit;
mod logarithm;
mod meanwhile;
mod pack;
mod pages;
mod piece;
mod portable;
mod products;
mod rows;
mod scores;
mod settle;
mod shared;
mod softmax;
mod stream;
#[cfg(test)]
mod tests;
mod tiles;
mod values;
mod vector;

pub use across::Across;
pub use asks::Asks;
pub use bend::{Arithmetic, Bend};
pub use edit::{Beside, Edit};
pub use few::{Few, MOST_PRODUCTS};
pub use gradient::{RowFactors, ScoreGradient};
pub use pack::{TILE, packed_len};
pub use pages::Pages;
pub use piece::{Give, Piece};
pub use rows::{Aligned, Rows};
pub use scores::{Scores, Unpacked};
pub use settle::Settle;
pub use shared::{Claim, Desk, Groups, RowsMut, Strip};
pub use softmax::Softmax;
pub use stream::FEW;
pub use tiles::MOST_COLUMNS;
pub use values::{Start, Values, sums_stride};

/// Keys of a block: one maximum and one correction each.
pub const BLOCK: usize = 256;

/// Keys whose values are summed in one chain: the longer, the larger is the error, and the shorter,
/// the more often sums go through memory.
pub const CHAIN: usize = 128;

/// Distance between two rows of scores. More than a block, so that rows begin at different lines
/// of the first cache.
pub const STRIDE: usize = BLOCK + 16;

/// Some keys of a block: from ≤ key < to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// The first.
    pub from: usize,
    /// Behind the last.
    pub to: usize,
}

impl Span {
    /// Number of keys.
    pub fn len(self) -> usize {
        self.to.saturating_sub(self.from)
    }

    /// Whether there is no key.
    pub fn is_empty(self) -> bool {
        self.from >= self.to
    }

    /// The keys.
    pub fn range(self) -> std::ops::Range<usize> {
        self.from..self.to
    }

    /// From the first key of any to the last of any.
    pub fn union(spans: &[Span]) -> Span {
        let mut all = Span {
            from: usize::MAX,
            to: 0,
        };
        for span in spans.iter().filter(|span| !span.is_empty()) {
            all.from = all.from.min(span.from);
            all.to = all.to.max(span.to);
        }
        if all.is_empty() { Span::default() } else { all }
    }

    /// The keys chain by chain; one empty part where there is no key.
    pub fn chains(self) -> impl Iterator<Item = Span> {
        let first = self.from / CHAIN;
        let end = self.to.div_ceil(CHAIN).max(first + 1);
        (first..end).map(move |chain| self.within(chain * CHAIN, (chain + 1) * CHAIN))
    }

    /// The keys that lie in from..to too; 0..0 or `from..from` where there is none.
    pub fn within(self, from: usize, to: usize) -> Span {
        let from = self.from.max(from);
        Span {
            from: from.min(to),
            to: self.to.clamp(from.min(to), to),
        }
    }
}

/// Asks for the lines of memory that hold `data`, which is needed at once.
pub fn prefetch<T>(data: &[T]) {
    prefetch_at(data.as_ptr(), data.len());
}

/// Asks for the lines of memory that hold `count` numbers from `at` on, which may be anywhere and
/// are needed at once.
fn prefetch_at<T>(at: *const T, count: usize) {
    for line in (0..count * size_of::<T>()).step_by(64) {
        prefetch_line(at.cast::<u8>().wrapping_add(line));
    }
}

/// Asks for a line of memory.
#[inline(always)]
fn prefetch_line(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: every x86-64 processor has this instruction, and it never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// An instruction set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Isa {
    /// Plain Rust, for any processor.
    Portable,
    /// AVX2, FMA and F16C.
    Avx2,
    /// AVX-512 F, BW, DQ and VL.
    Avx512,
    /// AVX-512 with dot products of bf16, which round weights to bf16 before they meet the values.
    /// All other number types are computed as with [`Isa::Avx512`].
    Avx512Bf16,
}

impl Isa {
    /// All, the plainest first.
    pub const ALL: [Isa; 4] = [Isa::Portable, Isa::Avx2, Isa::Avx512, Isa::Avx512Bf16];

    /// The one that numbers of a type are computed with where this one is chosen.
    pub fn of(self, dtype: DType) -> Isa {
        match self {
            Isa::Avx512Bf16 if dtype != DType::Bf16 => Isa::Avx512,
            isa => isa,
        }
    }

    /// Whether this processor has it.
    pub fn available(self) -> bool {
        match self {
            Isa::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => {
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("fma")
                    && is_x86_feature_detected!("f16c")
            }
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => {
                is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
            }
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512Bf16 => Isa::Avx512.available() && is_x86_feature_detected!("avx512bf16"),
            #[cfg(not(target_arch = "x86_64"))]
            Isa::Avx2 | Isa::Avx512 | Isa::Avx512Bf16 => false,
        }
    }
}

/// The stages for one number type that is computed in, and one instruction set.
pub struct Kernels<T: 'static> {
    /// Scores of a block, and maxima begun; see `scores`.
    pub scores: fn(&Scores<'_, T>, &mut [T]) -> usize,
    /// Scores of a block, and what the maxima take along; see `scores`.
    pub edited_scores: fn(&Scores<'_, T>, Edit<'_, T>, bool, &mut [T]) -> usize,
    /// Scale, softcap, biases and masks of one row; see [`Bend`].
    pub bend: fn(&Bend<'_, T>, &mut [T]),
    /// Maxima of a block; see `softmax`.
    pub maxima: fn(&mut Softmax<'_, T>, Edit<'_, T>, usize, &mut [T]),
    /// Exponentials of a block; see `softmax`.
    pub exponentials: fn(&mut Softmax<'_, T>),
    /// 2^((old − new)·c); see `softmax`.
    pub correction: fn(T, T, T) -> T,
    /// The sum of each row's 16 running sums; see `softmax`.
    pub totals: fn(&[[T; TILE]], &mut [T]),
    /// Factors and lse of rows that are complete; see `settle`.
    pub settle: fn(&Settle<'_, T>, &mut [T], &mut [f64]),
    /// Puts weights into the form that `values` takes, if it is another.
    pub round: fn(&[Span], &mut [T]),
    /// Weighted sums of a block; see `values`.
    pub values: fn(&Values<'_, T>, &mut [T]),
    /// Exponentials and weighted sums of a block, while memory is asked for; see `values`.
    pub exponentials_and_values: fn(&mut Softmax<'_, T>, &Values<'_, T>, &mut [T], Asks),
    /// Weights and the gradient of scores of a block; see `gradient`.
    pub gradient: fn(&mut ScoreGradient<'_, T>),
    /// Sums over the queries of a block; see `across`.
    pub across: fn(&Across<'_, T>, &mut [T]),
    /// sums = fma(other, b, a·sums).
    pub add: fn(&mut [T], T, &[T], T),
    /// Products of rows with rows; see `products`.
    pub products: fn(Rows<'_, T>, Rows<'_, T>, &mut [f64]),
    /// Natural logarithms; see `logarithm`.
    pub logarithms: fn(&mut [f64]),
    /// Nothing but multiply-adds; see `limit`.
    pub burn: fn(usize) -> u64,
}

/// A table of kernels by a register, and by one that the products of scores and values are made
/// with: `queries × registers` of a tile of scores, then of values.
macro_rules! kernels {
    ($module:ident, $v:ty, $products:ty, $t:ty, $round:path, $(#[$feature:meta])*, $sr:literal x $sn:literal, $vr:literal x $vn:literal) => {
        // A module of its own, since the compiler works on several modules at once.
        mod $module {
        use super::*;
        pub(super) static KERNELS: Kernels<$t> = {
            kernels!(@each $(#[$feature])*,
                fn scores(args: &Scores<'_, $t>, out: &mut [$t]) -> usize = scores::run::<$products, $sr, $sn>;
                fn edited_scores(args: &Scores<'_, $t>, edit: Edit<'_, $t>, begin: bool, out: &mut [$t]) -> usize =
                    scores::edited::<$products, $v, $sr, $sn>;
                fn bend(args: &Bend<'_, $t>, x: &mut [$t]) -> () = bend::bend::<$v>;
                fn maxima(args: &mut Softmax<'_, $t>, edit: Edit<'_, $t>, begun: usize, corrections: &mut [$t]) -> () =
                    softmax::maxima::<$v, $vr>;
                fn exponentials(args: &mut Softmax<'_, $t>) -> () = softmax::exponentials::<$v>;
                fn correction(old: $t, new: $t, c: $t) -> $t = softmax::correction::<$v>;
                fn totals(lanes: &[[$t; TILE]], to: &mut [$t]) -> () = softmax::totals::<$v>;
                fn settle(args: &Settle<'_, $t>, factors: &mut [$t], lse: &mut [f64]) -> () = settle::run::<$v>;
                fn weigh(softmax: Option<&mut Softmax<'_, $t>>, args: &Values<'_, $t>, sums: &mut [$t], asks: Asks) -> () =
                    values::run::<$products, $vr, $vn>;
                fn round(spans: &[Span], x: &mut [$t]) -> () = $round;
                fn gradient(args: &mut ScoreGradient<'_, $t>) -> () = gradient::run::<$v>;
                fn across(args: &Across<'_, $t>, sums: &mut [$t]) -> () = across::run::<$v, $vr, $vn>;
                fn add(sums: &mut [$t], a: $t, other: &[$t], b: $t) -> () = values::add::<$v>;
                fn products(a: Rows<'_, $t>, b: Rows<'_, $t>, to: &mut [f64]) -> () = products::run::<$t>;
                fn logarithms(numbers: &mut [f64]) -> () = logarithm::run;
                fn burn(rounds: usize) -> u64 = limit::run::<$products>;
            );
            // One kernel for both, since it is the largest.
            fn values(args: &Values<'_, $t>, sums: &mut [$t]) {
                weigh(None, args, sums, Asks::default());
            }
            fn exponentials_and_values(
                softmax: &mut Softmax<'_, $t>,
                args: &Values<'_, $t>,
                sums: &mut [$t],
                asks: Asks,
            ) {
                weigh(Some(softmax), args, sums, asks);
            }
            Kernels {
                scores, edited_scores, bend, maxima, exponentials, correction, totals, settle, round, values,
                exponentials_and_values, gradient, across, add, logarithms, products, burn,
            }
        };
        }
    };
    // The features of a table cannot be repeated inside the repetition of its functions.
    (@each $(#[$feature:meta])*, ) => {};
    (@each , $(fn $f:ident($($a:ident: $at:ty),*) -> $r:ty = $body:path;)*) => {
        $(fn $f($($a: $at),*) -> $r {
            // SAFETY: needs no instruction beyond the target's.
            unsafe { $body($($a),*) }
        })*
    };
    (@each #[$feature:meta], fn $f:ident($($a:ident: $at:ty),*) -> $r:ty = $body:path; $($rest:tt)*) => {
        fn $f($($a: $at),*) -> $r {
            #[$feature]
            fn inside($($a: $at),*) -> $r {
                // SAFETY: this function enables the instructions.
                unsafe { $body($($a),*) }
            }
            // SAFETY: a table is handed out only where `Isa::available`.
            unsafe { inside($($a),*) }
        }
        kernels!(@each #[$feature], $($rest)*);
    };
}

kernels!(portable_f32, portable::Four<f32>, portable::Four<f32>, f32, softmax::keep, , 4 x 2, 4 x 2);
kernels!(portable_f64, portable::Four<f64>, portable::Four<f64>, f64, softmax::keep, , 4 x 2, 4 x 2);
#[cfg(target_arch = "x86_64")]
kernels!(avx2_f32, avx2::F32x8, avx2::F32x8, f32, softmax::keep, #[target_feature(enable = "avx2,fma,f16c")], 6 x 2, 6 x 2);
#[cfg(target_arch = "x86_64")]
kernels!(avx2_f64, avx2::F64x4, avx2::F64x4, f64, softmax::keep, #[target_feature(enable = "avx2,fma,f16c")], 6 x 2, 6 x 2);
#[cfg(target_arch = "x86_64")]
kernels!(avx512_f32, avx512::F32x16, avx512::F32x16, f32, softmax::keep,
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")], 6 x 4, 6 x 4);
#[cfg(target_arch = "x86_64")]
kernels!(avx512_f64, avx512::F64x8, avx512::F64x8, f64, softmax::keep,
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")], 4 x 4, 6 x 4);

#[cfg(target_arch = "x86_64")]
kernels!(avx512_bf16, avx512::F32x16, avx512bf16::Pairs, f32, avx512bf16::round,
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")], 6 x 4, 6 x 4);

mod storage;
pub use storage::{Storage, Stream, storage_bf16, storage_f16, storage_f32, storage_f64};
