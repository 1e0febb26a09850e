//! What an instruction set does with numbers as they lie in memory, and which kernels it computes
//! with.

use super::super::real::Stored;
use super::*;
use crate::view_mut::ViewMut;
use half::{bf16, f16};

type SmallCall<T> = fn(&Few<'_, T>, &mut ViewMut<'_, T>, &mut [f64]);

type WeighCall<T> =
    fn(&Values<'_, <T as Stored>::Real, T>, &mut [<T as Stored>::Real], &mut [<T as Stored>::Real]);

type Finish<T> = fn(&[<T as Stored>::Real], &[<T as Stored>::Real], RowsMut<'_, T>);

/// The way from the numbers of the caller to those of the kernels, and back.
pub struct Storage<T: Stored> {
    /// Packs keys into tiles of [`TILE`]; see `pack`.
    pub pack: fn(Rows<'_, T>, &mut [T::Real]),
    /// How many neighbouring columns of q and k, or values of neighbouring keys, lie in the place
    /// of one number.
    pub depth: usize,
    /// Rows as `scores` takes queries, where they lie, if they need no conversion.
    pub in_place: fn(Rows<'_, T>) -> Option<Rows<'_, T::Real>>,
    /// Rows one after the other, times 1, −1 or 0, as `scores` takes queries; see `convert`.
    pub queries: fn(Rows<'_, T>, T::Real, &mut [T::Real]),
    /// Rows one after the other as `values` takes them; see `convert`.
    pub values: fn(Rows<'_, T>, &mut [T::Real]),
    /// Rows one after the other; see `convert`.
    pub widen: fn(Rows<'_, T>, &mut [T::Real]),
    /// Whether no number is infinite or NaN.
    pub all_finite: fn(Rows<'_, T>) -> bool,
    /// Scores of very few queries in another order; see `dots`.
    pub dots: fn(&Unpacked<'_, T>, &mut [T::Real]),
    /// What takes the place of packing and widening where queries are few.
    pub stream: Stream<T>,
    /// All of a small call; see `few`.
    pub few: SmallCall<T>,
    /// The same, faster above [`MOST_PRODUCTS`] products of a head; see `tiles`.
    pub few_by_tiles: Option<SmallCall<T>>,
    /// Rows of the output = factors·sums; see `values`.
    pub finish: Finish<T>,
    /// Sums to where they belong; see `piece`.
    pub give: fn(&Give<'_, T::Real>, &mut Piece<'_, T>),
    /// What computes.
    pub kernels: &'static Kernels<T::Real>,
}

/// The stages of up to [`FEW`] queries; see `stream`.
pub struct Stream<T: Stored> {
    /// Scores of a block.
    pub scores: fn(&Unpacked<'_, T>, &mut [T::Real]),
    /// Weighted sums of a block.
    pub values: WeighCall<T>,
}

/// A [`Stream`]: registers of keys for up to four and for more queries, and how many at most at once;
/// queries times registers of a tile of values.
macro_rules! stream {
    ($e:ty, $t:ty, $products:ty, $few:literal x $more:literal x $most:literal, $queries:literal x $registers:literal, $(#[$feature:meta])*) => {{
        kernels!(@each $(#[$feature])*,
            fn scores(args: &Unpacked<'_, $e>, out: &mut [$t]) -> () =
                stream::keys::scores::<$products, $e, $few, $more, $most>;
            fn values(args: &Values<'_, $t, $e>, unfinished: &mut [$t], sums: &mut [$t]) -> () =
                stream::values::values::<$products, $e, $queries, $registers>;
        );
        Stream { scores, values }
    }};
}

macro_rules! storage {
    ($name:ident, $e:ty, $v:ty, $products:ty, $in_place:path, $queries:path, $values:path, $t:ty, $kernels:ident, $stream:expr, $(#[$feature:meta])*) => {
        static $name: Storage<$e> = {
            kernels!(@each $(#[$feature])*,
                fn pack(rows: Rows<'_, $e>, out: &mut [$t]) -> () = pack::run::<$products, $e>;
                fn queries(rows: Rows<'_, $e>, factor: $t, out: &mut [$t]) -> () = $queries;
                fn values(rows: Rows<'_, $e>, out: &mut [$t]) -> () = $values;
                fn widen(rows: Rows<'_, $e>, out: &mut [$t]) -> () = convert::widen::<$v, $e>;
                fn all_finite(rows: Rows<'_, $e>) -> bool = pack::all_finite::<$v, $e>;
                fn dots(args: &Unpacked<'_, $e>, out: &mut [$t]) -> () = dots::run::<$v, $e>;
                fn few(args: &Few<'_, $e>, output: &mut ViewMut<'_, $e>, lse: &mut [f64]) -> () =
                    few::run::<$v, $e, false>;
                fn few_by_tiles(args: &Few<'_, $e>, output: &mut ViewMut<'_, $e>, lse: &mut [f64]) -> () =
                    few::run::<$v, $e, true>;
                fn finish(sums: &[$t], factors: &[$t], out: RowsMut<'_, $e>) -> () =
                    values::finish::<$v, $e>;
                fn give(args: &Give<'_, $t>, piece: &mut Piece<'_, $e>) -> () =
                    piece::give::<$v, $e>;
            );
            Storage { pack, depth: <$products as vector::Vector>::DEPTH, in_place: $in_place, queries, values, widen, all_finite, dots, stream: $stream, few, few_by_tiles: if tiles::suit::<$v, $e>() { Some(few_by_tiles) } else { None }, finish, give, kernels: &$kernels::KERNELS }
        };
    };
}

/// The tables of one number type, and which of them an instruction set takes; the portable one
/// where the processor does not have it. Behind the tables are, for few queries, registers of 256
/// bits for keys times queries at most, and queries times registers of 512 bits for values.
macro_rules! all {
    ($choose:ident, $e:ty, $t:ty, $four:ty, $eight:ty, $sixteen:ty, $portable:ident, $avx2:ident, $avx512:ident, $keys:literal x $most:literal, $queries:literal x $registers:literal, $dots:expr) => {
        /// What `isa` does with these numbers, or plain Rust if this processor does not have it.
        pub fn $choose(isa: Isa) -> &'static Storage<$e> {
            storage!(PORTABLE, $e, $four, $four, Stored::as_real, convert::times::<$four, $e>,
                convert::widen::<$four, $e>, $t, $portable, stream!($e, $t, $four, 4 x 4 x 4, 4 x 4,),);
            #[cfg(target_arch = "x86_64")]
            storage!(AVX2, $e, $eight, $eight, Stored::as_real, convert::times::<$eight, $e>,
                convert::widen::<$eight, $e>, $t, $avx2,
                stream!($e, $t, $eight, $keys x $keys x $most, 2 x 4, #[target_feature(enable = "avx2,fma,f16c")]),
                #[target_feature(enable = "avx2,fma,f16c")]);
            #[cfg(target_arch = "x86_64")]
            storage!(AVX512, $e, $sixteen, $sixteen, Stored::as_real, convert::times::<$sixteen, $e>,
                convert::widen::<$sixteen, $e>, $t, $avx512,
                stream!($e, $t, $sixteen, 4 x 2 x 8, $queries x $registers,
                    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]),
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]);
            match isa {
                #[cfg(target_arch = "x86_64")]
                Isa::Avx512Bf16 if isa.available() => $dots,
                #[cfg(target_arch = "x86_64")]
                Isa::Avx512 if isa.available() => &AVX512,
                #[cfg(target_arch = "x86_64")]
                Isa::Avx2 if isa.available() => &AVX2,
                _ => &PORTABLE,
            }
        }
    };
}
all!(
    storage_f16,
    f16,
    f32,
    portable::Four<f32>,
    avx2::F32x8,
    avx512::F32x16,
    portable_f32,
    avx2_f32,
    avx512_f32,
    2 x 4,
    4 x 4,
    &AVX512
);
all!(
    storage_bf16,
    bf16,
    f32,
    portable::Four<f32>,
    avx2::F32x8,
    avx512::F32x16,
    portable_f32,
    avx2_f32,
    avx512_f32,
    2 x 4,
    4 x 4,
    &BF16_BY_DOTS
);
all!(
    storage_f32,
    f32,
    f32,
    portable::Four<f32>,
    avx2::F32x8,
    avx512::F32x16,
    portable_f32,
    avx2_f32,
    avx512_f32,
    2 x 4,
    4 x 8,
    &AVX512
);
all!(
    storage_f64,
    f64,
    f64,
    portable::Four<f64>,
    avx2::F64x4,
    avx512::F64x8,
    portable_f64,
    avx2_f64,
    avx512_f64,
    4 x 2,
    4 x 8,
    &AVX512
);

#[cfg(target_arch = "x86_64")]
storage!(BF16_BY_DOTS, bf16, avx512::F32x16, avx512bf16::Pairs, avx512bf16::in_place, avx512bf16::queries,
    avx512bf16::values, f32, avx512_bf16,
    stream!(bf16, f32, avx512bf16::Pairs, 4 x 2 x 8, 4 x 4,
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]),
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]);
