//! The numbers that have kernels of their own.

use super::backward::{GradientsMut, Saved, wide};
use super::block::Scratch;
use super::call::Call;
use super::few;
use super::forward;
use super::options::Options;
use super::simd::{Isa, Kernels, Rows, Storage};
use super::weights::{self, Part};
use crate::attention::{Attention, Inputs};
use crate::error::Result;
use crate::view::{AnyView, Element, Tensor, View};
use crate::view_mut::ViewMut;
use half::{bf16, f16};
use std::fmt::Debug;
use std::ops::{Add, Mul, Neg, Sub};

/// A number that the fast path reads and writes: `f16`, `bf16`, `f32` or `f64`. It computes in
/// `f64` for that, and in `f32` for all others.
pub trait Float: Stored {}

impl Float for f16 {}
impl Float for bf16 {}
impl Float for f32 {}
impl Float for f64 {}

/// What the kernels ask of a number in memory. Outside this crate only [`Float`] can be named.
pub trait Stored: Element + Default + PartialEq + Debug {
    /// What is computed in.
    type Real: Real;

    /// Whether that is the type itself.
    const IS_REAL: bool;

    /// The same value; exact.
    fn widen(self) -> Self::Real;

    /// The nearest value, ties to even.
    fn narrow(value: Self::Real) -> Self;

    /// The same rows, if they need no conversion.
    fn as_real(rows: Rows<'_, Self>) -> Option<Rows<'_, Self::Real>>;

    /// The same view, if it needs no conversion.
    fn view_as_real(view: View<'_, Self>) -> Option<View<'_, Self::Real>>;

    /// The same view, if it needs no conversion.
    fn view_mut_as_real(view: ViewMut<'_, Self>) -> Option<ViewMut<'_, Self::Real>>;

    /// The same numbers, if they need no conversion.
    fn slice_as_real(numbers: &mut [Self]) -> Option<&mut [Self::Real]>;

    /// A view, if it is of this type.
    fn same<'a>(view: &AnyView<'a>) -> Option<View<'a, Self>>;

    /// What an instruction set that this processor has does with numbers of this type.
    fn storage(isa: Isa) -> &'static Storage<Self>;

    /// Lends this thread's scratch memory.
    fn with_scratch<R>(work: impl FnOnce(&mut Scratch<Self>) -> R) -> R;

    // The passes are generic, and large. Callers reach them through the methods below, which are
    // not, so that each is compiled in this crate and not again in every program.

    /// See [`few::forward`].
    fn few(
        attention: &Attention<'_>,
        inputs: &Inputs<'_, Self>,
        options: &Options,
        isa: Isa,
        output: &mut ViewMut<'_, Self>,
        lse: &mut [f64],
    ) -> bool;

    /// See [`forward::forward`].
    fn forward(
        call: &Call<'_, Self>,
        output: ViewMut<'_, Self>,
        lse: &mut [f64],
        options: &Options,
    ) -> Vec<[usize; 3]>;

    /// See [`weights::recompute`].
    fn recompute(call: &Call<'_, Self>, part: &Part, weigh: bool) -> Tensor<Self>;

    /// See [`wide::run`].
    fn backward(
        attention: &Attention<'_>,
        inputs: &Inputs<'_, Self>,
        saved: Saved<'_, Self>,
        grad_output: View<'_, Self>,
        options: &Options,
        gradients: GradientsMut<'_, Self>,
    ) -> Result<()>;
}

/// What the kernels ask of a number that is computed in.
pub trait Real:
    Float
    + Stored<Real = Self>
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Neg<Output = Self>
{
    /// 0
    const ZERO: Self;
    /// 1
    const ONE: Self;
    /// −∞
    const NEG_INFINITY: Self;
    /// The largest finite number.
    const MAX: Self;
    /// 2^f = Σ cᵢ·fⁱ on [0, 1), with c₀ = 1.
    const EXP2: &'static [Self];
    /// (2^r − 1)/r = Σ cᵢ·rⁱ on [−½, ½].
    const EXPM1: &'static [Self];

    /// The kernels of an instruction set that this processor has.
    fn kernels(isa: Isa) -> &'static Kernels<Self> {
        Self::storage(isa).kernels
    }
}

/// Scratch above this many bytes is given back after a call.
const KEPT_BYTES: usize = 4 << 20;

macro_rules! stored {
    ($t:ty, $any:ident, $real:ty, $storage:ident, $widen:expr, $narrow:expr, $as_real:expr) => {
        impl Stored for $t {
            type Real = $real;
            const IS_REAL: bool = <$t>::DTYPE as u8 == <$real>::DTYPE as u8;

            #[inline(always)]
            fn widen(self) -> $real {
                $widen(self)
            }

            #[inline(always)]
            fn narrow(value: $real) -> $t {
                $narrow(value)
            }

            #[inline(always)]
            fn as_real(rows: Rows<'_, $t>) -> Option<Rows<'_, $real>> {
                $as_real(rows)
            }

            fn view_as_real(view: View<'_, $t>) -> Option<View<'_, $real>> {
                $as_real(view)
            }

            fn view_mut_as_real(view: ViewMut<'_, $t>) -> Option<ViewMut<'_, $real>> {
                $as_real(view)
            }

            fn slice_as_real(numbers: &mut [$t]) -> Option<&mut [$real]> {
                $as_real(numbers)
            }

            fn same<'a>(view: &AnyView<'a>) -> Option<View<'a, $t>> {
                match view {
                    AnyView::$any(view) => Some(*view),
                    _ => None,
                }
            }

            fn storage(isa: Isa) -> &'static Storage<$t> {
                super::simd::$storage(isa)
            }

            fn with_scratch<R>(work: impl FnOnce(&mut Scratch<$t>) -> R) -> R {
                thread_local! {
                    static KEPT: std::cell::Cell<Option<Box<Scratch<$t>>>> =
                        const { std::cell::Cell::new(None) };
                }
                let mut scratch = KEPT.take().unwrap_or_default();
                let result = work(&mut scratch);
                if scratch.bytes() <= KEPT_BYTES {
                    KEPT.set(Some(scratch));
                }
                result
            }

            fn few(
                attention: &Attention<'_>,
                inputs: &Inputs<'_, $t>,
                options: &Options,
                isa: Isa,
                output: &mut ViewMut<'_, $t>,
                lse: &mut [f64],
            ) -> bool {
                few::forward(attention, inputs, options, isa, output, lse)
            }

            fn forward(
                call: &Call<'_, $t>,
                output: ViewMut<'_, $t>,
                lse: &mut [f64],
                options: &Options,
            ) -> Vec<[usize; 3]> {
                forward::forward(call, output, lse, options)
            }

            fn recompute(call: &Call<'_, $t>, part: &Part, weigh: bool) -> Tensor<$t> {
                weights::recompute(call, part, weigh)
            }

            fn backward(
                attention: &Attention<'_>,
                inputs: &Inputs<'_, $t>,
                saved: Saved<'_, $t>,
                grad_output: View<'_, $t>,
                options: &Options,
                gradients: GradientsMut<'_, $t>,
            ) -> Result<()> {
                wide::run(attention, inputs, saved, grad_output, options, gradients)
            }
        }
    };
}
stored!(
    f16,
    F16,
    f32,
    storage_f16,
    f16::to_f32,
    f16::from_f32,
    |_| None
);
stored!(
    bf16,
    Bf16,
    f32,
    storage_bf16,
    bf16::to_f32,
    bf16::from_f32,
    |_| None
);
stored!(f32, F32, f32, storage_f32, |x| x, |x| x, Some);
stored!(f64, F64, f64, storage_f64, |x| x, |x| x, Some);

macro_rules! real {
    ($t:ty, exp2: $exp2:expr, expm1: $expm1:expr) => {
        #[allow(clippy::approx_constant)] // near ln 2, but what the fit gave
        impl Real for $t {
            const ZERO: $t = 0.0;
            const ONE: $t = 1.0;
            const NEG_INFINITY: $t = <$t>::NEG_INFINITY;
            const MAX: $t = <$t>::MAX;
            const EXP2: &'static [$t] = &$exp2;
            const EXPM1: &'static [$t] = &$expm1;
        }
    };
}

real!(f32,
    exp2: [
        1.0, 0.693_147_04, 0.240_229_3, 0.055_485_28, 0.009_675_452, 0.001_246_784_6, 0.000_216_129_18,
    ],
    expm1: [
        0.693_147_2, 0.240_226_5, 0.055_503_573, 0.009_618_237, 0.001_339_073_5, 0.000_154_035_13,
    ]
);
real!(f64,
    exp2: [
        1.0,
        0.693_147_180_559_946,
        0.240_226_506_959_063_3,
        0.055_504_108_665_602_26,
        0.009_618_129_099_550_75,
        0.001_333_355_862_956_936_2,
        0.000_154_035_123_095_414_92,
        1.525_317_505_717_535_8e-5,
        1.320_836_726_563_542_2e-6,
        1.025_321_261_991_223_7e-7,
        6.559_528_510_715_115e-9,
        6.263_467_673_947_253e-10,
    ],
    expm1: [
        0.693_147_180_559_945_3,
        0.240_226_506_959_100_98,
        0.055_504_108_664_821_24,
        0.009_618_129_107_607_066,
        0.001_333_355_814_653_162_2,
        0.000_154_035_304_404_814_8,
        1.525_273_370_122_731e-5,
        1.321_544_272_412_623_8e-6,
        1.017_812_129_329_061_5e-7,
        7.072_561_722_163_456e-9,
        4.445_538_180_800_584_5e-10,
    ]
);
