//! Any processor: plain Rust, four numbers at a time, `mul_add` for the fused steps.

use super::vector::Vector;

#[derive(Clone, Copy)]
pub(super) struct Four<T>([T; 4]);

macro_rules! four {
    ($t:ident, lowest: $lowest:literal, bits: $bits:ty, bias: $bias:literal, mantissa: $mantissa:literal) => {
        impl Vector for Four<$t> {
            type T = $t;
            const LANES: usize = 4;

            #[inline(always)]
            unsafe fn splat(x: $t) -> Self {
                Four([x; 4])
            }
            #[inline(always)]
            unsafe fn load(from: *const $t) -> Self {
                Four(unsafe { from.cast::<[$t; 4]>().read_unaligned() })
            }
            #[inline(always)]
            unsafe fn load_first(from: *const $t, n: usize) -> Self {
                let mut lanes = [0.0; 4];
                unsafe { std::ptr::copy_nonoverlapping(from, lanes.as_mut_ptr(), n) };
                Four(lanes)
            }
            #[inline(always)]
            unsafe fn store(self, to: *mut $t) {
                unsafe { to.cast::<[$t; 4]>().write_unaligned(self.0) }
            }
            #[inline(always)]
            unsafe fn store_first(self, to: *mut $t, n: usize) {
                unsafe { std::ptr::copy_nonoverlapping(self.0.as_ptr(), to, n) }
            }
            #[inline(always)]
            unsafe fn load_halves(a: *const $t, b: *const $t, n: usize) -> Self {
                unsafe {
                    let mut lanes = [0.0; 4];
                    std::ptr::copy_nonoverlapping(a, lanes.as_mut_ptr(), n);
                    std::ptr::copy_nonoverlapping(b, lanes.as_mut_ptr().add(2), n);
                    Four(lanes)
                }
            }
            #[inline(always)]
            unsafe fn store_halves(self, a: *mut $t, b: *mut $t) {
                unsafe {
                    std::ptr::copy_nonoverlapping(self.0.as_ptr(), a, 2);
                    std::ptr::copy_nonoverlapping(self.0.as_ptr().add(2), b, 2);
                }
            }
            #[inline(always)]
            unsafe fn halves(self, other: Self) -> Self {
                Four([self.0[0], self.0[1], other.0[2], other.0[3]])
            }
            #[inline(always)]
            unsafe fn before(self, n: usize, other: Self) -> Self {
                Four(std::array::from_fn(|i| {
                    if i < n { self.0[i] } else { other.0[i] }
                }))
            }
            #[inline(always)]
            unsafe fn add(self, other: Self) -> Self {
                Four(std::array::from_fn(|i| self.0[i] + other.0[i]))
            }
            #[inline(always)]
            unsafe fn sub(self, other: Self) -> Self {
                Four(std::array::from_fn(|i| self.0[i] - other.0[i]))
            }
            #[inline(always)]
            unsafe fn mul(self, other: Self) -> Self {
                Four(std::array::from_fn(|i| self.0[i] * other.0[i]))
            }
            #[inline(always)]
            unsafe fn div(self, other: Self) -> Self {
                Four(std::array::from_fn(|i| self.0[i] / other.0[i]))
            }
            #[inline(always)]
            unsafe fn fma(self, b: Self, c: Self) -> Self {
                Four(std::array::from_fn(|i| self.0[i].mul_add(b.0[i], c.0[i])))
            }
            #[inline(always)]
            unsafe fn max(self, other: Self) -> Self {
                Four(std::array::from_fn(|i| {
                    if self.0[i] > other.0[i] {
                        self.0[i]
                    } else {
                        other.0[i]
                    }
                }))
            }
            #[inline(always)]
            unsafe fn min(self, other: Self) -> Self {
                Four(std::array::from_fn(|i| {
                    if self.0[i] < other.0[i] {
                        self.0[i]
                    } else {
                        other.0[i]
                    }
                }))
            }
            #[inline(always)]
            unsafe fn abs(self) -> Self {
                Four(self.0.map($t::abs))
            }
            #[inline(always)]
            unsafe fn copy_sign(self, sign: Self) -> Self {
                Four(std::array::from_fn(|i| self.0[i].copysign(sign.0[i])))
            }
            #[inline(always)]
            unsafe fn only(self, from: usize, to: usize) -> Self {
                Four(std::array::from_fn(|i| {
                    if (from..to).contains(&i) {
                        self.0[i]
                    } else {
                        $t::NEG_INFINITY
                    }
                }))
            }
            #[inline(always)]
            unsafe fn dropped_where_neg_inf(self, bias: Self) -> Self {
                Four(std::array::from_fn(|i| {
                    if bias.0[i] == $t::NEG_INFINITY {
                        $t::NEG_INFINITY
                    } else {
                        self.0[i]
                    }
                }))
            }
            #[inline(always)]
            unsafe fn dropped_unless(self, from: *const bool, n: usize, kept: bool) -> Self {
                Four(std::array::from_fn(|i| {
                    if i < n && unsafe { *from.add(i) } == kept {
                        self.0[i]
                    } else {
                        $t::NEG_INFINITY
                    }
                }))
            }
            #[inline(always)]
            unsafe fn fraction(self) -> Self {
                Four(self.0.map(|x| {
                    let x = if x < $lowest { $lowest } else { x };
                    x - x.floor()
                }))
            }
            #[inline(always)]
            unsafe fn scale(self, exponent: Self) -> Self {
                Four(std::array::from_fn(|i| {
                    let x = exponent.0[i];
                    // `as` turns NaN into 0; self is NaN then.
                    let whole = (if x < $lowest { $lowest } else { x }).floor() as i32;
                    self.0[i] * $t::from_bits(((whole + $bias) as $bits) << $mantissa)
                }))
            }
            #[inline(always)]
            unsafe fn centred_fraction(self) -> Self {
                Four(self.0.map(|x| x - x.round_ties_even()))
            }
            #[inline(always)]
            unsafe fn prefetch(_: *const $t) {}
            #[inline(always)]
            unsafe fn turn(from: *const $t, stride: isize, columns: usize, to: *mut $t) {
                for r in 0..4 {
                    for c in 0..columns {
                        unsafe {
                            *to.add(16 * c + r) = *from.offset(r as isize * stride + c as isize)
                        };
                    }
                }
            }
        }
    };
}

four!(f32, lowest: -127.0, bits: u32, bias: 127, mantissa: 23);
four!(f64, lowest: -1023.0, bits: u64, bias: 1023, mantissa: 52);
