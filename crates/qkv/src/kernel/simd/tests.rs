//! The functions inside the kernels, against `f64` arithmetic, on every instruction set.

use super::super::real::{Real, Stored};
use super::{
    Arithmetic, BLOCK, Bend, FEW, Groups, Isa, Kernels, Rows, STRIDE, Scores, Settle, Span, Start,
    Strip, TILE, Unpacked, Values, packed_len, sums_stride,
};
use crate::view::Element;
use crate::view_mut::ViewMut;
use half::{bf16, f16};

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
fn rows_settle_alike_however_many_there_are() {
    fn check<T: Real>() {
        for (isa, kernels) in tables::<T>() {
            let lane = |row: usize, n: usize| T::from_f64(1.0 / (1.0 + (row * 16 + n) as f64));
            let lanes: Vec<[T; TILE]> = (0..50)
                .map(|row| std::array::from_fn(|n| lane(row, n)))
                .collect();
            let max: Vec<T> = (0..50)
                .map(|row| T::from_f64(f64::from(row) - 20.25))
                .collect();
            for rows in [1, 2, 7, 8, 15, 16, 17, 33, 50] {
                let args = Settle {
                    lanes: &lanes[..rows],
                    max: &max[..rows],
                    natural: 0.125,
                    share: T::from_f64(1.25),
                };
                let (mut factors, mut lse) = (vec![T::ZERO; rows], vec![0.0; rows]);
                (kernels.settle)(&args, &mut factors, &mut lse);
                for row in 0..rows {
                    let mut sum = [T::ZERO];
                    (kernels.totals)(&lanes[row..=row], &mut sum);
                    let sum = sum[0].to_f64();
                    // Rounded to the type, 1/sum is the same by either division.
                    let factor = T::from_f64(1.0 / sum) * args.share;
                    assert_eq!(factors[row], factor, "{isa:?} row {row} of {rows}");
                    let mut log = [sum];
                    (kernels.logarithms)(&mut log);
                    let exact = log[0] + max[row].to_f64() * args.natural;
                    assert_eq!(lse[row], exact, "{isa:?} row {row} of {rows}");
                }
            }
        }
    }
    check::<f32>();
    check::<f64>();
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

/// Numbers of 16 bits of every kind: all subnormal ones and many others, or any finite ones.
struct Bits(u64);

impl Bits {
    fn next(&mut self) -> usize {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (self.0 >> 33) as usize
    }

    /// Finite, but one in a thousand, if asked for.
    fn numbers<E: Stored>(&mut self, count: usize, of: fn(u16) -> E, special: bool) -> Vec<E> {
        let mut one = || {
            let special = special && self.next().is_multiple_of(1000);
            loop {
                let x = of(self.next() as u16);
                if special || x.to_f64().is_finite() {
                    return x;
                }
            }
        };
        (0..count).map(|_| one()).collect()
    }

    /// A width, rows and keys of turn 0 to 399: every width up to 100, and some of the long ones.
    fn sizes(&mut self, turn: usize) -> (usize, usize, Span) {
        let width = if turn < 300 {
            turn / 3 + 1
        } else {
            self.next() % 576 + 1
        };
        let rows = self.next() % FEW + 1;
        let from = if turn.is_multiple_of(2) {
            0
        } else {
            self.next() % 200
        };
        let to = from + 1 + self.next() % (BLOCK - from);
        (width, rows, Span { from, to })
    }
}

/// The same number, or NaN both.
fn same<T: Real>(a: T, b: T) -> bool {
    a == b || a.to_f64().is_nan() && b.to_f64().is_nan()
}

/// The same of another type, which has room for it.
fn single(bits: u16) -> f32 {
    bf16::from_bits(bits).to_f32()
}

fn double(bits: u16) -> f64 {
    bf16::from_bits(bits).to_f64()
}

#[test]
fn scores_of_keys_as_they_lie_are_those_of_packed_ones() {
    fn check<E: Stored>(of: fn(u16) -> E, fma: fn(E::Real, E::Real, E::Real) -> E::Real) {
        let (zero, seven) = (E::Real::ZERO, E::Real::from_f64(7.0));
        let mut bits = Bits(1);
        for isa in Isa::ALL.into_iter().filter(|isa| isa.available()) {
            let storage = E::storage(isa);
            let stream = &storage.stream;
            for turn in 0..400 {
                let (width, rows, keys) = bits.sizes(turn);
                let (count, gap) = (keys.len(), bits.next() % 3);
                let stride = width + gap;
                let start = bits.next() % 17; // anywhere in a line
                let k = bits.numbers(start + count * stride, of, turn % 5 == 0);
                let k = match turn % 7 {
                    0 => {
                        let last = start + (count - 1) * stride;
                        Rows::new(&k, last, -(stride as isize), count, width)
                    }
                    _ => Rows::new(&k, start, stride as isize, count, width),
                };
                let q = bits.numbers(rows * width, of, false);
                let slots = width.div_ceil(storage.depth);
                let mut wide = vec![zero; rows * slots];
                (storage.queries)(
                    Rows::new(&q, 0, width as isize, rows, width),
                    E::Real::ONE,
                    &mut wide,
                );
                let q = Rows::new(&wide, 0, slots as isize, rows, slots);
                let spans = vec![keys; rows];
                let mut found = vec![seven; rows * STRIDE];
                (stream.scores)(
                    &Unpacked {
                        q,
                        spans: &spans,
                        keys,
                        k,
                    },
                    &mut found,
                );
                let mut packed = vec![zero; packed_len(count, slots)];
                (storage.pack)(k, &mut packed);
                let whole = vec![Span { from: 0, to: count }; rows];
                let mut expected = vec![seven; rows * STRIDE];
                let scores = Scores {
                    q,
                    spans: &whole,
                    k: &packed,
                };
                (storage.kernels.scores)(&scores, &mut expected);
                for (i, j) in (0..rows).flat_map(|i| (0..count).map(move |j| (i, j))) {
                    let (a, b) = (found[i * STRIDE + keys.from + j], expected[i * STRIDE + j]);
                    let at = format!("{isa:?} {width} columns, {keys:?} of {rows}: [{i}, {j}]");
                    assert!(same(a, b), "{at}: {a:?}, not {b:?}");
                    if storage.depth == 1 {
                        let pairs = wide[i * slots..][..width].iter().zip(k.row(j));
                        let chain = pairs.fold(zero, |s, (q, k)| fma(*q, k.widen(), s));
                        assert!(same(a, chain), "{at}: {a:?}, not {chain:?}");
                    }
                }
                for i in 0..rows {
                    let row = &found[i * STRIDE..][..STRIDE];
                    let end = keys.from + count.next_multiple_of(16);
                    let rest = row[..keys.from].iter().chain(&row[end..]);
                    assert!(
                        rest.copied().all(|x| x == seven),
                        "{isa:?} outside of {keys:?}"
                    );
                }
            }
        }
    }
    check(f16::from_bits, f32::mul_add);
    check(bf16::from_bits, f32::mul_add);
    check(single, f32::mul_add);
    check(double, f64::mul_add);
}

#[test]
fn values_as_they_lie_weigh_as_widened_ones() {
    fn check<E: Stored>(of: fn(u16) -> E) {
        let real = E::Real::from_f64;
        let mut bits = Bits(2);
        for isa in Isa::ALL.into_iter().filter(|isa| isa.available()) {
            let storage = E::storage(isa);
            let stream = &storage.stream;
            for turn in 0..400 {
                let (width, rows, keys) = bits.sizes(turn);
                let (count, stride) = (keys.len(), width + bits.next() % 3);
                // Dropped keys must be finite: others are weighed apart.
                let special = turn % 5 == 0 && turn % 3 != 0;
                let start = bits.next() % 17;
                let v = bits.numbers(start + count * stride, of, special);
                let v = Rows::new(&v, start, stride as isize, count, width);
                let mut spans = vec![keys; rows];
                if turn % 3 == 0 {
                    for span in &mut spans {
                        span.to -= bits.next() % keys.len();
                    }
                    if turn % 4 < 2 {
                        spans[..rows - 1].fill(Span {
                            from: keys.from,
                            to: keys.from,
                        });
                    }
                    spans[rows - 1] = keys;
                }
                let mut p = vec![E::Real::ZERO; rows * STRIDE];
                for (row, span) in p.chunks_exact_mut(STRIDE).zip(&spans) {
                    row[span.range()].fill_with(|| real((bits.next() % 999) as f64 / 999.0));
                }
                (storage.kernels.round)(&spans, &mut p);
                // The same rows with zeros in the place of a first key's missing partner.
                let before = keys.from % storage.depth;
                let mut whole = vec![E::default(); before * width];
                (0..count).for_each(|j| whole.extend_from_slice(v.row(j)));
                let lines = whole.len() / width;
                let mut wide = vec![E::Real::ZERO; lines.div_ceil(storage.depth) * width];
                (storage.values)(
                    Rows::new(&whole, 0, width as isize, lines, width),
                    &mut wide,
                );
                let slots = lines.div_ceil(storage.depth);
                let factors = vec![real(0.75); rows];
                let start = match turn % 4 {
                    0 => Start::Times(&factors),
                    1 => Start::Plus,
                    _ => Start::Zero,
                };
                let mut found = vec![real(3.0); rows * sums_stride(width)];
                let mut expected = found.clone();
                let (spans, p) = (&spans[..], &p[..]);
                (stream.values)(
                    &Values {
                        p,
                        spans,
                        keys,
                        v,
                        start,
                    },
                    &mut vec![real(5.0); rows * sums_stride(width)],
                    &mut found,
                );
                let keys = Span {
                    from: keys.from - before,
                    ..keys
                };
                let v = Rows::new(&wide, 0, width as isize, slots, width);
                (storage.kernels.values)(
                    &Values {
                        p,
                        spans,
                        keys,
                        v,
                        start,
                    },
                    &mut expected,
                );
                for (i, c) in (0..rows).flat_map(|i| (0..width).map(move |c| (i, c))) {
                    let at = i * sums_stride(width) + c;
                    let (a, b) = (found[at], expected[at]);
                    let at = format!("{isa:?} {width} columns, {spans:?}: [{i}, {c}]");
                    assert!(same(a, b), "{at}: {a:?}, not {b:?}");
                }
            }
        }
    }
    check(f16::from_bits);
    check(bf16::from_bits);
    check(single);
    check(double);
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

#[test]
fn every_row_of_groups_is_handed_out_once() -> crate::Result<()> {
    let (batch, kv_heads, group, queries, width) = (2, 3, 4, 50, 5);
    let heads = kv_heads * group;
    let cut = |heads_step| Strip::new(0..queries, group, heads_step, 30).finer(12);
    assert_eq!((cut(4).boxes(), cut(3).boxes()), (5, 10));
    for (threads, shared, heads_step) in [(1, 0, 4), (1, 2, 4), (2, 2, 3), (3, 2, 4), (3, 99, 3)] {
        let mut output = vec![0_f32; batch * heads * queries * width];
        let mut lse = vec![0.0; batch * heads * queries];
        let output = ViewMut::new(&mut output, &[batch, heads, queries, width])?;
        let groups = Groups::new(output, &mut lse, cut(heads_step), shared);
        let mut taken = vec![0; batch * heads * queries];
        let mut owns = vec![None; threads];
        // Threads come by in an uneven order; each stays with its group while there are parts.
        for turn in 0.. {
            let thread = turn * turn % 7 % threads;
            let Some(claim) = groups.next(owns[thread]) else {
                break;
            };
            let whole = claim.heads().len() == group && claim.queries().len() == queries;
            let last = batch * kv_heads - shared.min(batch * kv_heads);
            assert_eq!(whole, claim.group() < last);
            owns[thread] = Some(claim.group());
            for head in claim.heads() {
                for query in claim.queries() {
                    taken[(claim.batch() * heads + head) * queries + query] += 1;
                }
            }
        }
        assert!(taken.iter().all(|&count| count == 1), "{taken:?}");
    }
    Ok(())
}
