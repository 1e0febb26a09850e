//! The functions inside the kernels, against `f64` arithmetic, on every instruction set.

use super::super::real::{Real, Stored};
use super::{Arithmetic, BLOCK, Bend, Isa, Kernels, Rows, STRIDE, Span, packed_len};

fn tables<T: Real>() -> impl Iterator<Item = (Isa, &'static Kernels<T>)> {
    let isas = Isa::ALL.into_iter().filter(|isa| isa.available());
    isas.map(|isa| (isa, T::kernels(isa)))
}

/// Distance in units of the last place of `exact`.
fn ulps(found: f64, exact: f64, digits: i32) -> f64 {
    let unit = 2f64.powi(exact.abs().log2().floor() as i32 - digits);
    (found - exact).abs() / unit
}

#[test]
fn exp2_is_within_two_ulp() {
    for (isa, kernels) in tables::<f32>() {
        let exp2 = |x| (kernels.correction)(x, 0.0, 1.0);
        let mut worst = 0.0_f64;
        let mut look = |x: f32| {
            worst = worst.max(ulps(f64::from(exp2(x)), f64::from(x).exp2(), 23));
        };
        // Every number from −1 to −1/2, which is every case of the fraction, then all sizes.
        (0.5_f32.to_bits()..=1.0_f32.to_bits()).for_each(|bits| look(-f32::from_bits(bits)));
        (1..126_0000).for_each(|n| look(-(n as f32) * 1e-4));
        (1..127).for_each(|n| look(-(2.0_f32.powi(-n))));
        assert!(worst < 2.0, "{isa:?}: {worst} ulp");
        for n in 0..=126 {
            assert_eq!(exp2(-n as f32), 2.0_f32.powi(-n), "{isa:?} {n}");
        }
        for n in 0..3000 {
            let x = -126.0 - n as f32 * 0.01;
            let (found, exact) = (f64::from(exp2(x)), f64::from(x).exp2());
            let near = (found - exact).abs() <= 2f64.powi(-149);
            assert!(found == 0.0 || near, "{isa:?} {x}: {found} for {exact}");
        }
        let lowest = [-150.0, -1000.0, -1e7, -1e20, -3.4e38, -f32::MAX];
        for lowest in lowest.into_iter().chain([f32::NEG_INFINITY]) {
            assert_eq!(exp2(lowest).to_bits(), 0, "{isa:?} {lowest}");
        }
        assert!(exp2(f32::NAN).is_nan());
    }
    for (isa, kernels) in tables::<f64>() {
        let exp2 = |x| (kernels.correction)(x, 0.0, 1.0);
        let mut worst = 0.0_f64;
        for n in 1..200_000 {
            let x = -f64::from(n) * 4.4e-3;
            worst = worst.max(ulps(exp2(x), x.exp2(), 52));
        }
        // Half an ulp of it is the other side's.
        assert!(worst < 2.5, "{isa:?}: {worst} ulp");
        assert_eq!(exp2(f64::NEG_INFINITY), 0.0);
        assert!(exp2(f64::NAN).is_nan());
    }
}

#[test]
fn tanh_keeps_small_numbers() {
    fn check<T: Real>(digits: i32, most: f64) {
        for (isa, kernels) in tables::<T>() {
            for n in -4000..4000_i32 {
                let y = f64::from(n) * f64::from(n.abs()) * 1e-6;
                let mut row = [T::from_f64(y); STRIDE];
                let bend = Bend {
                    span: Span { from: 0, to: 16 },
                    arithmetic: Some(Arithmetic {
                        inner: Some(T::ONE),
                        factor: T::ONE,
                        bias: None,
                        alibi: None,
                    }),
                    mask: None,
                };
                (kernels.bend)(&bend, &mut row);
                let exact = T::from_f64(y).to_f64().tanh();
                let found = row[3].to_f64();
                let near = found == exact || ulps(found, exact, digits) < most;
                assert!(near, "{isa:?} tanh {y} = {found}, not {exact}");
            }
        }
    }
    check::<f32>(23, 6.0);
    check::<f64>(52, 8.0);
}

#[test]
fn logarithms_are_within_two_ulp() {
    for (isa, kernels) in tables::<f64>() {
        let given: Vec<f64> = (1..20_000).map(|n| f64::from(n).powf(3.3) * 1e-5).collect();
        let mut found = given.clone();
        (kernels.logarithms)(&mut found);
        for (x, y) in given.iter().zip(&found) {
            let error = (y - x.ln()).abs();
            assert!(
                error <= 4.5e-16 * x.ln().abs().max(0.5),
                "{isa:?} ln {x} = {y}"
            );
        }
        let mut special = [0.0, f64::INFINITY, f64::NAN, -1.0, 1.0, 5e-324];
        (kernels.logarithms)(&mut special);
        assert_eq!(special[..2], [f64::NEG_INFINITY, f64::INFINITY]);
        assert!(special[2].is_nan() && special[3].is_nan());
        assert_eq!(special[4..], [0.0, 5e-324_f64.ln()]);
    }
}

#[test]
fn packing_turns_keys() {
    for isa in Isa::ALL.into_iter().filter(|isa| isa.available()) {
        for (keys, width) in [(1, 1), (16, 16), (17, 5), (40, 33), (64, 64), (31, 576)] {
            let data: Vec<f32> = (0..keys * width).map(|n| n as f32).collect();
            let mut out = vec![-1.0; packed_len(keys, width)];
            let last = (keys - 1) * width;
            let rows = Rows::new(&data, last, -(width as isize), keys, width);
            (f32::storage(isa).pack)(rows, &mut out);
            for key in 0..keys {
                for d in 0..width {
                    let found = out[key / 16 * 16 * width + d * 16 + key % 16];
                    let exact = data[last - key * width + d];
                    assert_eq!(found, exact, "{isa:?} {keys}x{width} [{key}, {d}]");
                }
            }
        }
    }
}

#[test]
fn spans_join_and_meet() {
    let span = |from, to| Span { from, to };
    assert_eq!(
        Span::union(&[span(3, 5), span(0, 0), span(9, 20)]),
        span(3, 20)
    );
    assert_eq!(Span::union(&[span(7, 7)]), span(0, 0));
    assert_eq!(span(3, 20).within(5, BLOCK), span(5, 20));
    assert!(span(3, 20).within(20, 30).is_empty());
    assert!(span(3, 20).within(0, 3).is_empty());
}
