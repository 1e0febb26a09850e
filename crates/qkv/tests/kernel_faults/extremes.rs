//! Input made to break things: each with its right value, or an error that says what is wrong.

use super::support::{Array, Gap, Layout, isas, options, same_bits};
use super::{assert_near, column, everywhere, in_double, zeros};
use ::half::{bf16, f16};
use qkv::{
    Alibi, Attention, Bias, DType, Error, Float, Inputs, KeyLengths, Mask, Options, Output, Part,
    Saved, Scale, Sinks, View, ViewMut, backward, definition, forward_into, forward_with, scores,
    weights,
};

/// What `T` gives on all instruction sets and one or two threads.
fn each<T: Float>(
    attention: &Attention<'_>,
    q: View<'_, T>,
    k: View<'_, T>,
    v: View<'_, T>,
) -> Vec<Output<T>> {
    let inputs = Inputs::new(q, k, v).unwrap();
    isas()
        .flat_map(|isa| [options(isa, 1), options(isa, 2)])
        .map(|options| forward_with(attention, &inputs, &options).unwrap())
        .collect()
}

/// Sums of whole numbers below 2²⁴ are exact, so these values are, too.
#[test]
fn a_million_keys() {
    a_million_keys_of::<f32>();
    a_million_keys_of::<f64>();
    a_million_keys_of::<f16>();
    a_million_keys_of::<bf16>();
}

fn a_million_keys_of<T: Float + Gap>() {
    let keys = 1 << 20;
    let number = T::from_f64;
    let q = [number(1.0)];
    let mut k = vec![number(0.0); keys];
    let v: Vec<T> = (0..keys).map(|j| number(f64::from(j as u32 % 4))).collect();
    fn column<T: Copy>(data: &[T]) -> View<'_, T> {
        View::new(data, &[data.len(), 1]).unwrap()
    }
    let one = View::new(&q, &[1, 1]).unwrap();
    let plain = Attention::default();
    for found in each(&plain, one, column(&k), column(&v)) {
        assert_eq!(found.output.data()[0].to_f64(), 1.5);
        assert!((found.lse.data()[0] - (keys as f64).ln()).abs() < 1e-14);
    }
    // All dropped but the last one, or the first.
    for kept in [keys - 1, 0] {
        let keep: Vec<bool> = (0..keys).map(|j| j == kept).collect();
        let only = Attention {
            masks: vec![Mask::keep(View::new(&keep, &[1, keys]).unwrap())],
            ..Attention::default()
        };
        for found in each(&only, one, column(&k), column(&v)) {
            assert_eq!(
                (found.output.data()[0], found.lse.data()[0]),
                (v[kept], 0.0)
            );
        }
    }
    let (largest, rounding) = match T::DTYPE {
        DType::F16 => (65504.0, 2f64.powi(-11)),
        DType::Bf16 => (3e38, 2f64.powi(-8)),
        DType::F32 | DType::F64 => (3e38, 1e-7),
    };
    // One key outweighs all others, in the middle of a chunk.
    k[777_774] = number(largest);
    for found in each(&plain, one, column(&k), column(&v)) {
        assert_eq!(found.output.data()[0].to_f64(), 2.0);
    }
    k[777_774] = number(-largest);
    let rest = (1.5 * keys as f64 - 2.0) / (keys as f64 - 1.0);
    for found in each(&plain, one, column(&k), column(&v)) {
        // Both are rounded to the type, the sums are exact.
        let error = (found.output.data()[0].to_f64() - rest).abs();
        assert!(error < 2.0 * rounding, "{error}");
    }
}

/// Whole blocks and chunks of keys at −∞, before, between and after those that count.
#[test]
fn whole_blocks_at_minus_infinity() {
    let keys = 6500;
    let v = column((0..keys).map(|j| (j % 8) as f64));
    for kept in [
        2112..2120,
        0..8,
        6488..6496,
        255..263,
        2040..2056,
        4096..4104,
    ] {
        let bias: Vec<f32> = (0..keys)
            .map(|j| {
                if kept.contains(&j) {
                    0.0
                } else {
                    f32::NEG_INFINITY
                }
            })
            .collect();
        let attention = Attention {
            bias: Some(Bias(View::new(&bias, &[1, keys]).unwrap().into())),
            ..Attention::default()
        };
        for found in everywhere(&attention, &column([1.0, -1.0]), &zeros(keys), &v) {
            assert_eq!(found.output.data(), [3.5, 3.5], "{kept:?}");
            assert_near(found.lse.data(), &[(kept.len() as f64).ln(); 2]);
        }
    }
    // Everything at −∞ is a row without a key.
    let bias = [f32::NEG_INFINITY];
    let attention = Attention {
        bias: Some(Bias(View::new(&bias, &[1, 1]).unwrap().into())),
        sinks: Some(Sinks(vec![0.0])),
        ..Attention::default()
    };
    for found in everywhere(&attention, &column([1.0]), &zeros(keys), &v) {
        assert_eq!(
            (found.output.data(), found.empty_rows.len()),
            (&[0.0][..], 1)
        );
    }
}

#[test]
fn one_key_and_one_query() {
    for score in [0.0, 3e38, -3e38, 1e-45] {
        let (q, k, v) = (column([1.0]), column([score]), column([-7.5]));
        for found in everywhere(&Attention::default(), &q, &k, &v) {
            assert_eq!(found.output.data(), [-7.5], "{score}");
            assert_near(
                &[found.lse.data()[0] / score.max(1.0)],
                &[score / score.max(1.0)],
            );
        }
    }
}

/// The ends of the range of `f64`, as those of `f32` elsewhere.
#[test]
fn scores_at_the_end_of_the_range_of_f64() {
    let (q, v) = ([1.0], [1.0, 5.0, 9.0]);
    for (k, expected) in [
        ([1.7e308, -1.7e308, 0.0], 1.0),
        ([-1.7e308, -1.7e308, -1.7e308], 5.0),
        ([-1.7e308, 1.7e308, 1.7e308], 7.0),
        ([1e-310, -1e-310, 0.0], 5.0),
        ([5e-324, 0.0, -5e-324], 5.0),
    ] {
        let [q, k, v] = [&q[..], &k[..], &v[..]].map(|x| View::new(x, &[x.len(), 1]).unwrap());
        for found in each(&Attention::default(), q, k, v) {
            assert_near(found.output.data(), &[expected]);
        }
    }
}

/// Values that are subnormal are averaged as they are: halves of even ones are exact.
#[test]
fn subnormal_values() {
    let v = [2e-45_f32, 4e-45, 6e-45, 8e-45].map(|x| x * 2.0);
    let z = [0.0_f32; 4];
    let view = |data| View::new(data, &[4, 1]).unwrap();
    for found in each(&Attention::default(), view(&z), view(&z), view(&v)) {
        let mean = v.iter().map(|&x| f64::from(x)).sum::<f64>() / 4.0;
        // A quarter of the sum of multiples of 2⁻¹⁴⁹, to the next of these.
        for x in found.output.data() {
            assert!((f64::from(*x) - mean).abs() <= 1.5e-45, "{x:e} {mean:e}");
        }
    }
}

/// Rows far apart, and strides of axes that have one element only.
#[test]
fn huge_strides() {
    let far = 1 << 18;
    let mut data = vec![f32::NAN; 4 * far + 2];
    for j in 0..5 {
        data[j * far] = j as f32 - 2.0;
        data[j * far + 1] = 1.0 - j as f32;
    }
    let apart = View::strided(&data, 0, [1, 1, 5, 2], [0, 0, far as isize, 1]).unwrap();
    let back = View::strided(&data, 4 * far, [1, 1, 5, 2], [0, 0, -(far as isize), 1]).unwrap();
    let close: Vec<f32> = (0..5)
        .flat_map(|j| [j as f32 - 2.0, 1.0 - j as f32])
        .collect();
    let backwards: Vec<f32> = close.chunks(2).rev().flatten().copied().collect();
    let [close, backwards] = [&close, &backwards].map(|x| View::new(x, &[5, 2]).unwrap());
    let plain = Attention::default();
    for (strided, same) in [(apart, close), (back, backwards)] {
        let found = each(&plain, strided, strided, strided);
        for (found, same) in found.iter().zip(each(&plain, same, same, same)) {
            assert!(same_bits(found.output.data(), same.output.data()));
        }
    }
    for stride in [isize::MAX, isize::MIN, isize::MIN + 1] {
        for count in [1, 2] {
            let x = [1.0_f32, 2.0];
            let view = View::strided(&x, 0, [1, 1, 1, count], [stride, stride, stride, 1]);
            let view = view.unwrap();
            for found in each(&plain, view, view, view) {
                assert_eq!(found.output.data(), &x[..count]);
            }
            let mut out = [0.0_f32; 2];
            let to = ViewMut::strided(&mut out, 0, [1, 1, 1, count], [stride, stride, stride, 1]);
            let inputs = Inputs::new(view, view, view).unwrap();
            forward_into(&plain, &inputs, &Default::default(), to.unwrap()).unwrap();
            assert_eq!(out[..count], x[..count]);
        }
    }
}

/// Rows that share numbers, and rows that are all the same.
#[test]
fn views_that_overlap() {
    overlapping::<f32>();
    overlapping::<f64>();
    overlapping::<f16>();
    overlapping::<bf16>();
}

fn overlapping<T: Float + Gap>() {
    let (keys, width) = (300, 9);
    let data: Vec<T> = (0..keys + width)
        .map(|n| T::from_f64((n * n % 23) as f64 / 8.0 - 1.0))
        .collect();
    // Row j begins one number after row j − 1.
    let sliding = View::strided(&data, 0, [1, 1, keys, width], [0, 0, 1, 1]).unwrap();
    let copied = Array::new([1, 1, keys, width], Layout::Plain, |[.., j, c]| data[j + c]);
    let still = View::strided(&data, 3, [2, 4, keys, width], [0, 0, 0, 1]).unwrap();
    let same = Array::new([2, 4, keys, width], Layout::Plain, |[.., c]| data[3 + c]);
    let plain = Attention::default();
    for (view, copy) in [(sliding, copied.view()), (still, same.view())] {
        let found = each(&plain, view, view, view);
        for (found, same) in found.iter().zip(each(&plain, copy, copy, copy)) {
            assert!(same_bits(found.output.data(), same.output.data()));
            assert!(same_bits(found.lse.data(), same.lse.data()));
        }
    }
    // One number for everything.
    let one = View::strided(&data, 5, [1, 2, keys, width], [0; 4]).unwrap();
    for found in each(&plain, one, one, one) {
        let error = |x: &T| (x.to_f64() - data[5].to_f64()).abs();
        let most = qkv::bound(T::DTYPE, width, keys, 27.0) * data[5].to_f64().abs();
        assert!(found.output.data().iter().all(|x| error(x) <= most));
    }
}

#[test]
fn outputs_that_overlap_are_refused() {
    let mut out = [0.0_f32; 64];
    for (shape, strides) in [
        ([1, 1, 4, 4], [0, 0, 3, 1]), // the next row begins in this one
        ([1, 1, 4, 4], [0, 0, 0, 1]), // one row for all
        ([1, 2, 4, 4], [0, 4, 4, 1]), // heads and rows at the same places
        ([2, 1, 4, 4], [0, 0, 4, 1]), // one batch entry for all
        ([1, 1, 4, 4], [0, 0, 1, 1]),
        ([1, 1, 4, 4], [0, 0, 4, 0]),
    ] {
        let error = ViewMut::strided(&mut out, 0, shape, strides);
        assert!(
            matches!(error, Err(Error::Overlap { .. })),
            "{shape:?} {strides:?}"
        );
    }
    // An axis of one element may have any stride.
    ViewMut::strided(&mut out, 0, [1, 1, 4, 4], [0, 0, 4, 1]).unwrap();
}

#[test]
fn heads_without_columns_are_refused() {
    let nothing: [f32; 0] = [];
    let view = View::new(&nothing, &[3, 0]).unwrap();
    let error = Inputs::new(view, view, view).unwrap_err();
    assert!(
        matches!(
            error,
            Error::Option {
                option: "head_dim",
                ..
            }
        ),
        "{error}"
    );
}

fn of_scale(scale: f64) -> Attention<'static> {
    Attention {
        scale: Scale::Factor(scale),
        ..Attention::default()
    }
}

/// Every way in, of few queries and keys and of many, refuses a scale that `f32` does not hold: the
/// weights would be those of another one.
#[test]
fn scales_beyond_single_precision() {
    for (count, width) in [(1, 1), (3, 8), (40, 8)] {
        refused_in_single::<f32>(count, width, "e39 in single precision (f32) is not");
        let half = "(f32), in which f16 is computed, is not";
        refused_in_single::<f16>(count, width, half);
        let half = "(f32), in which bf16 is computed, is not";
        refused_in_single::<bf16>(count, width, half);
        // 1e-20·1e-20·1e40 = 1 against 0: f64 has the weights e/(e + n − 1) and 1/(e + n − 1).
        let q = vec![1e-20; count];
        let mut k = vec![0.0; count];
        k[0] = 1e-20;
        let shape = [count, 1];
        let [q, k] = [&q, &k].map(|x| View::new(x, &shape).unwrap());
        let inputs = Inputs::new(q, k, k).unwrap();
        let (all, e) = (Part::all(&inputs), std::f64::consts::E);
        let found = weights(&of_scale(1e40), &inputs, &Options::default(), &all).unwrap();
        let expected = e / (e + count as f64 - 1.0);
        assert!((found.data()[0] - expected).abs() < 1e-12, "{found:?}");
    }
}

fn refused_in_single<T: Float>(count: usize, width: usize, says: &str) {
    let numbers = vec![T::from_f64(0.5); count * width];
    let view = View::new(&numbers, &[count, width]).unwrap();
    let inputs = Inputs::new(view, view, view).unwrap();
    let saved = forward_with(&Attention::default(), &inputs, &Options::default()).unwrap();
    for scale in [
        1e39,
        -1e39,
        2.37e38,
        -2.37e38,
        1e-38,
        -1e-50,
        5e-324,
        f64::MAX,
    ] {
        let attention = of_scale(scale);
        let options = Options::default();
        let all = Part::all(&inputs);
        let saved = Saved::new(&saved).unwrap();
        let found = [
            forward_with(&attention, &inputs, &options).map(drop),
            weights(&attention, &inputs, &options, &all).map(drop),
            scores(&attention, &inputs, &options, &all).map(drop),
            backward(&attention, &inputs, saved, view, &options).map(drop),
        ];
        for found in found {
            let error = found.unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("scale: {scale:e} in")),
                "{error}"
            );
            assert!(error.ends_with("in double precision (f64)"), "{error}");
            if scale == 1e39 {
                assert!(error.contains(says), "{error}");
            }
        }
    }
}

/// Scales and sinks at the ends of their ranges.
#[test]
fn extreme_options() {
    let (q, k, v) = (
        column([1.0]),
        column([0.25, -1.0, 0.25]),
        column([1.0, 5.0, 4.0]),
    );
    for (scale, expected) in [
        (f64::MAX, 2.5),
        (-f64::MAX, 5.0),
        (f64::MIN_POSITIVE, 10.0 / 3.0),
        (5e-324, 10.0 / 3.0),
    ] {
        for found in in_double(&of_scale(scale), &q, &k, &v) {
            assert_near(found.output.data(), &[expected]);
        }
    }
    for (scale, expected) in [
        (2.35e38, 2.5),
        (-2.35e38, 5.0),
        (f64::from(f32::MIN_POSITIVE), 10.0 / 3.0),
        (-0.0, 10.0 / 3.0),
    ] {
        for found in everywhere(&of_scale(scale), &q, &k, &v) {
            assert_near(found.output.data(), &[expected]);
        }
    }
    for (sink, expected) in [
        (f64::NEG_INFINITY, 10.0 / 3.0),
        (1e300, 0.0),
        (f64::MIN, 10.0 / 3.0),
    ] {
        let attention = Attention {
            scale: Scale::Factor(0.0),
            sinks: Some(Sinks(vec![sink])),
            ..Attention::default()
        };
        for found in everywhere(&attention, &q, &k, &v) {
            assert_near(found.output.data(), &[expected]);
        }
    }
    // No key is left of any batch entry.
    let attention = Attention {
        lengths: Some(KeyLengths(vec![0])),
        ..Attention::default()
    };
    for found in everywhere(&attention, &q, &k, &v) {
        assert_eq!((found.output.data()[0], found.empty_rows.len()), (0.0, 1));
    }
}

/// What `T` gives for biases in `f64` of two keys with values 2 and 4, on all instruction sets.
fn biased<T: Float>(bias: [f64; 2]) -> Vec<Output<T>> {
    let attention = Attention {
        bias: Some(Bias(View::new(&bias, &[1, 2]).unwrap().into())),
        ..Attention::default()
    };
    let [q, k, v] = [&[0.0][..], &[0.0, 0.0], &[2.0, 4.0]]
        .map(|x| x.iter().map(|&x| T::from_f64(x)).collect::<Vec<_>>());
    let [q, k, v] = [&q, &k, &v].map(|x| View::new(x, &[x.len(), 1]).unwrap());
    each(&attention, q, k, v)
}

/// Biases beyond the range of `f32` count as its ends where that is computed in, and drop no key.
#[test]
fn biases_beyond_the_range() {
    fn clamped<T: Float>() {
        let end = f64::from(f32::MAX);
        for (bias, expected, lse) in [
            ([f64::MIN, 0.0], 4.0, 0.0),
            ([f64::MIN, -1e300], 3.0, -end),
            ([f64::MIN, -end], 3.0, -end),
            ([f64::MIN, -3e38], 4.0, -3e38),
            ([f64::MAX, 1e300], 3.0, end),
            ([f64::MAX, 3e38], 2.0, end),
        ] {
            for found in biased::<T>(bias) {
                assert_eq!(found.output.data()[0].to_f64(), expected, "{bias:?}");
                assert!(found.empty_rows.is_empty());
                let error = (found.lse.data()[0] - lse).abs();
                assert!(error <= 2f64.powi(-23) * lse.abs(), "{bias:?} {error}");
            }
        }
    }
    clamped::<f32>();
    clamped::<f16>();
    clamped::<bf16>();
    for (bias, expected) in [([f64::MIN, -1e300], 4.0), ([f64::MAX, 1e300], 2.0)] {
        for found in biased::<f64>(bias) {
            assert_eq!(found.output.data()[0], expected, "{bias:?}");
        }
    }
}

/// However low a sum of finite numbers is, its key is kept.
#[test]
fn finite_sums_beyond_the_range_keep_their_keys() {
    let bias = [f32::MIN; 3];
    let attention = Attention {
        bias: Some(Bias(View::new(&bias, &[1, 3]).unwrap().into())),
        ..Attention::default()
    };
    let k = column([-3e38; 3]);
    for found in everywhere(&attention, &column([1.0]), &k, &column([1.0, 5.0, 9.0])) {
        assert_near(found.output.data(), &[5.0]);
        assert!(found.empty_rows.is_empty() && found.lse.data()[0] < -3e38);
    }
}

/// Where the input makes all scores of a kept row −∞, the row is 0/0, whatever is added to them. A
/// softcap makes them finite, and so does one key that is.
#[test]
fn rows_of_infinite_scores_are_nan() {
    let (bias, keep) = ([1.0_f32, f32::NEG_INFINITY, -2.0], [true, true, false]);
    let bias = Some(Bias(View::new(&bias, &[1, 3]).unwrap().into()));
    let alibi = Some(Alibi { slopes: vec![0.5] });
    let masks = vec![Mask::keep(View::new(&keep, &[1, 3]).unwrap())];
    let plain = Attention::default();
    let all = [
        Attention {
            bias,
            ..plain.clone()
        },
        Attention {
            alibi: alibi.clone(),
            ..plain.clone()
        },
        Attention {
            bias,
            alibi,
            masks,
            scale: Scale::Factor(0.25),
            ..plain.clone()
        },
        plain,
    ];
    let (infinite, v) = (f64::NEG_INFINITY, column([1.0, 5.0, 4.0]));
    for attention in &all {
        for k in [
            [infinite; 3],
            [infinite, infinite, 2.0],
            [infinite, 0.0, 2.0],
        ] {
            let (q, k) = (column([2.0, 1.0]), column(k));
            let inputs = Inputs::new(q.view(), k.view(), v.view()).unwrap();
            let expected = definition::forward(attention, &inputs).unwrap();
            for found in everywhere(attention, &q, &k, &v) {
                assert_near(found.output.data(), expected.output.data());
                assert_near(found.lse.data(), expected.lse.data());
                assert_eq!(found.empty_rows, expected.empty_rows);
            }
        }
        let capped = Attention {
            softcap: Some(3.0),
            ..attention.clone()
        };
        for found in everywhere(&capped, &column([2.0]), &column([infinite; 3]), &v) {
            assert!(found.output.data()[0].is_finite());
        }
    }
}
