//! The numbers that have kernels of their own.

use super::block::Scratch;
use super::simd::{Isa, Kernels};
use crate::view::{AnyView, Element, View};
use std::ops::{Add, Mul, Neg, Sub};

/// A number that the fast path computes in: `f32` or `f64`.
pub trait Float: Element + Real {}

impl Float for f32 {}
impl Float for f64 {}

/// What the kernels ask of a number. Outside this crate only [`Float`] can be named.
pub trait Real:
    Element
    + Default
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Neg<Output = Self>
    + std::fmt::Debug
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

    /// A view, if it is of this type.
    fn same<'a>(view: &AnyView<'a>) -> Option<View<'a, Self>>;

    /// The kernels of an instruction set that this processor has.
    fn kernels(isa: Isa) -> &'static Kernels<Self>;

    /// Lends this thread's scratch memory.
    fn with_scratch<R>(work: impl FnOnce(&mut Scratch<Self>) -> R) -> R;
}

/// Scratch above this many bytes is given back after a call.
const KEPT_BYTES: usize = 4 << 20;

macro_rules! real {
    ($t:ty, $any:ident, $kernels:ident, exp2: $exp2:expr, expm1: $expm1:expr) => {
        #[allow(clippy::approx_constant)] // near ln 2, but what the fit gave
        impl Real for $t {
            const ZERO: $t = 0.0;
            const ONE: $t = 1.0;
            const NEG_INFINITY: $t = <$t>::NEG_INFINITY;
            const MAX: $t = <$t>::MAX;
            const EXP2: &'static [$t] = &$exp2;
            const EXPM1: &'static [$t] = &$expm1;

            fn same<'a>(view: &AnyView<'a>) -> Option<View<'a, $t>> {
                match view {
                    AnyView::$any(view) => Some(*view),
                    _ => None,
                }
            }

            fn kernels(isa: Isa) -> &'static Kernels<$t> {
                super::simd::$kernels(isa)
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
        }
    };
}

real!(f32, F32, kernels_f32,
    exp2: [
        1.0, 0.693_147_04, 0.240_229_3, 0.055_485_28, 0.009_675_452, 0.001_246_784_6, 0.000_216_129_18,
    ],
    expm1: [
        0.693_147_2, 0.240_226_5, 0.055_503_573, 0.009_618_237, 0.001_339_073_5, 0.000_154_035_13,
    ]
);
real!(f64, F64, kernels_f64,
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
