//! What may not change a bit of a gradient, and what must add up.
#![allow(clippy::unwrap_used)]

mod support;

use half::{bf16, f16};
use qkv::definition::Gradients;
use qkv::{
    Attention, Causal, EmptyRows, Float, GradientsMut, Inputs, Isa, Options, Output, Saved, Store,
    Tensor, ViewMut, backward, backward_into, forward_with,
};
use rayon::ThreadPoolBuilder;
use support::{Array, Call, Gap, LAYOUTS, Layout, Random, isas, options, same_bits, times};

fn gradients<T: Float + Gap>(
    attention: &Attention<'_>,
    inputs: &Inputs<'_, T>,
    grad: &Array<T>,
    options: &Options,
) -> Gradients<T> {
    let output = forward_with(attention, inputs, options).unwrap();
    let saved = Saved::new(&output).unwrap();
    backward(attention, inputs, saved, grad.view(), options).unwrap()
}

fn of<T: Float + Gap>(call: &Call, grad: &Array<f64>, layout: Layout, o: &Options) -> Gradients<T> {
    let typed = call.typed::<T>([layout; 3]);
    let grad = grad.map(layout, T::from_f64);
    gradients(&call.attention(&typed), &typed.inputs(), &grad, o)
}

fn assert_same<T: Float>(a: &Gradients<T>, b: &Gradients<T>, what: &str) {
    assert!(same_bits(a.q.data(), b.q.data()), "dq: {what}");
    assert!(same_bits(a.k.data(), b.k.data()), "dk: {what}");
    assert!(same_bits(a.v.data(), b.v.data()), "dv: {what}");
    let same = |a: &Option<Tensor<T>>, b: &Option<Tensor<T>>| match (a, b) {
        (Some(a), Some(b)) => same_bits(a.data(), b.data()),
        (a, b) => a.is_none() && b.is_none(),
    };
    assert!(same(&a.bias, &b.bias), "dbias: {what}");
    assert!(same(&a.sinks, &b.sinks), "dsinks: {what}");
}

fn grad_of(call: &Call, random: &mut Random) -> Array<f64> {
    let [b, h, l, _] = call.q.shape;
    let shape = [b, h, l, call.v.shape[3]];
    Array::new(shape, Layout::Plain, |_| random.normal())
}

#[test]
fn threads_and_strides_change_no_bit() {
    let mut random = Random::new(31);
    let pool = ThreadPoolBuilder::new().num_threads(5).build().unwrap();
    for _ in 0..times(40) {
        let mut call = Call::random_of_work(&mut random, 500_000, 4_000_000);
        call.empty_rows = EmptyRows::Zero;
        let grad = grad_of(&call, &mut random);
        let layout = random.pick(&LAYOUTS);
        for isa in isas() {
            let one = of::<f32>(&call, &grad, Layout::Plain, &options(isa, 1));
            for threads in [2, 3, 5] {
                let many = pool.install(|| of::<f32>(&call, &grad, layout, &options(isa, threads)));
                assert_same(
                    &one,
                    &many,
                    &format!("{isa:?} {threads} {}", call.describe()),
                );
            }
            let one = of::<f64>(&call, &grad, Layout::Plain, &options(isa, 1));
            let many = pool.install(|| of::<f64>(&call, &grad, layout, &options(isa, 3)));
            assert_same(&one, &many, &format!("{isa:?} f64 {}", call.describe()));
        }
    }
}

/// Each way in which work is shared out: one head of many blocks, whose threads wait for each
/// other, and many heads.
#[test]
fn sharing_out_changes_no_bit() {
    let mut random = Random::new(32);
    let pool = ThreadPoolBuilder::new().num_threads(5).build().unwrap();
    for (shape, causal) in [
        ([1, 2, 1, 700, 1300, 24, 40], true),
        ([1, 1, 1, 300, 1100, 40, 24], false),
        ([5, 4, 2, 60, 270, 16, 8], false),
    ] {
        let [b, h, h_kv, l_q, l_k, d_k, d_v] = shape;
        let mut array = |shape| Array::new(shape, Layout::Plain, |_| random.normal());
        let (q, k, v) = ([b, h, l_q, d_k], [b, h_kv, l_k, d_k], [b, h_kv, l_k, d_v]);
        let mut call = Call::plain(array(q), array(k), array(v));
        call.causal = causal.then_some(Causal::BottomRight);
        call.bias = Some(array([1, h, 1, l_k]));
        let grad = grad_of(&call, &mut random);
        for isa in isas().filter(|&isa| isa != Isa::Portable) {
            let one = of::<f32>(&call, &grad, Layout::Plain, &options(isa, 1));
            for threads in [2, 3, 5] {
                for _ in 0..3 {
                    let run = || of::<f32>(&call, &grad, Layout::Plain, &options(isa, threads));
                    assert_same(
                        &one,
                        &pool.install(run),
                        &format!("{isa:?} {threads} {shape:?}"),
                    );
                }
            }
        }
    }
}

/// A batch entry alone has the gradients that it has among others.
#[test]
fn neighbours_in_the_batch_change_no_bit() {
    let mut random = Random::new(33);
    for _ in 0..times(40) {
        let mut call = Call::random(&mut random);
        if call.q.shape[0] < 2 {
            continue;
        }
        call.empty_rows = EmptyRows::Zero;
        // Both go by the place in the batch.
        (call.dropout, call.bias, call.masks) = (None, None, Vec::new());
        let grad = grad_of(&call, &mut random);
        let mut alone = call.clone();
        let b = call.q.shape[0] - 1;
        let cut = |array: &Array<f64>| {
            let [_, h, l, d] = array.shape;
            Array::new([1, h, l, d], Layout::Plain, |[_, h, l, d]| {
                array.get([b, h, l, d])
            })
        };
        (alone.q, alone.k, alone.v) = (cut(&call.q), cut(&call.k), cut(&call.v));
        alone.past = call.past.as_ref().map(|(k, v)| (cut(k), cut(v)));
        alone.lengths = call.lengths.as_ref().map(|lengths| vec![lengths[b]]);
        for isa in isas() {
            let all = of::<f32>(&call, &grad, Layout::Plain, &options(isa, 2));
            let one = of::<f32>(&alone, &cut(&grad), Layout::Plain, &options(isa, 2));
            let same = |all: &[f32], one: &[f32]| same_bits(&all[all.len() - one.len()..], one);
            let fits = same(all.q.data(), one.q.data())
                && same(all.k.data(), one.k.data())
                && same(all.v.data(), one.v.data());
            assert!(fits, "{isa:?} {}", call.describe());
        }
    }
}

/// NaN in what is dropped changes nothing, not even the gradient of the bias that stands there.
#[test]
fn what_is_dropped_is_not_read() {
    let mut random = Random::new(34);
    let mut array = |shape| Array::new(shape, Layout::Plain, |_| random.normal());
    let (q, k, v) = ([1, 2, 70, 9], [1, 1, 300, 9], [1, 1, 300, 5]);
    let mut call = Call::plain(array(q), array(k), array(v));
    let mask = Array::new([1, 1, 1, 300], Layout::Plain, |[_, _, _, j]| j % 7 != 3);
    call.masks.push((mask, true));
    call.causal = Some(Causal::Offset(220));
    let grad = grad_of(&call, &mut Random::new(35));
    for bias in [None, Some(array([1, 2, 70, 300]))] {
        call.bias = bias;
        let mut spoiled = call.clone();
        for j in (3..300).step_by(7).chain(290..300) {
            for array in [&mut spoiled.k, &mut spoiled.v] {
                for c in 0..array.shape[3] {
                    let at = array.position([0, 0, j, c]);
                    array.data[at] = f64::NAN;
                }
            }
        }
        for isa in isas() {
            let clean = of::<f32>(&call, &grad, Layout::Plain, &options(isa, 1));
            let found = of::<f32>(&spoiled, &grad, Layout::Plain, &options(isa, 1));
            assert_same(&clean, &found, &format!("{isa:?}"));
            assert!(clean.k.data()[3 * 9..4 * 9].iter().all(|&x| x == 0.0));
        }
    }
}

/// NaN in the gradient of one row's output, or in what was saved of the row, comes to the keys that the
/// row keeps, if any, and changes no bit of other keys and rows.
#[test]
fn a_row_that_is_not_finite_stays_with_its_keys() {
    let mut random = Random::new(38);
    let mut array = |shape| Array::new(shape, Layout::Plain, |_| random.normal());
    let (queries, keys, d_k, d_v, empty) = (70, 300, 9, 5, 17);
    let (q, k) = (array([1, 1, queries, d_k]), array([1, 1, keys, d_k]));
    let mut call = Call::plain(q, k, array([1, 1, keys, d_v]));
    let keeps = |i: usize, j: usize| i != empty && (i + j) % 5 != 2;
    let shape = [1, 1, queries, keys];
    let mask = Array::new(shape, Layout::Plain, |[_, _, i, j]| keeps(i, j));
    call.masks.push((mask, true));
    let grad = grad_of(&call, &mut random).map(Layout::Plain, |x| x as f32);
    let typed = call.typed::<f32>([Layout::Plain; 3]);
    let (attention, inputs) = (call.attention(&typed), typed.inputs());
    for (isa, spoiled) in isas().flat_map(|isa| [(isa, 41), (isa, empty)]) {
        let row = spoiled * d_v..(spoiled + 1) * d_v;
        let options = options(isa, 1);
        let output = forward_with(&attention, &inputs, &options).unwrap();
        let run = |output: &Output<f32>, grad: &Array<f32>| {
            let saved = Saved::new(output).unwrap();
            backward(&attention, &inputs, saved, grad.view(), &options).unwrap()
        };
        let clean = run(&output, &grad);
        let mut bad_grad = grad.clone();
        bad_grad.data[row.clone()].fill(f32::NAN);
        let mut bad_output = output.clone();
        bad_output.output.data_mut()[row.clone()].fill(f32::NAN);
        let mut bad_lse = output.clone();
        bad_lse.lse.data_mut()[spoiled] = f64::NAN;
        for (what, found, reaches_values) in [
            ("grad", run(&output, &bad_grad), true),
            ("output", run(&bad_output, &grad), false),
            ("lse", run(&bad_lse, &grad), true),
        ] {
            for i in 0..queries {
                let [a, b] = [&clean, &found].map(|of| &of.q.data()[i * d_k..(i + 1) * d_k]);
                let fits = i == spoiled && b.iter().all(|x| x.is_nan());
                assert!(fits || same_bits(a, b), "{isa:?} {what} dq[{i}]");
            }
            for j in 0..keys {
                let keeps = keeps(spoiled, j);
                let [a, b] = [&clean, &found].map(|of| &of.k.data()[j * d_k..(j + 1) * d_k]);
                let fits = keeps && b.iter().all(|x| x.is_nan());
                assert!(fits || !keeps && same_bits(a, b), "{isa:?} {what} dk[{j}]");
                let [a, b] = [&clean, &found].map(|of| &of.v.data()[j * d_v..(j + 1) * d_v]);
                let reached = keeps && reaches_values;
                let fits = reached && b.iter().all(|x| x.is_nan());
                assert!(
                    fits || !reached && same_bits(a, b),
                    "{isa:?} {what} dv[{j}]"
                );
            }
        }
    }
}

/// Gradients are added to what is there.
#[test]
fn gradients_accumulate() {
    let mut random = Random::new(36);
    for _ in 0..times(20) {
        let mut call = Call::random(&mut random);
        call.empty_rows = EmptyRows::Zero;
        let grad = grad_of(&call, &mut random);
        let typed = call.typed::<f64>([Layout::Plain; 3]);
        let (attention, inputs) = (call.attention(&typed), typed.inputs());
        let options = Options::default();
        let output = forward_with(&attention, &inputs, &options).unwrap();
        let saved = Saved::new(&output).unwrap();
        let once = backward(&attention, &inputs, saved, grad.view(), &options).unwrap();
        let mut twice = once.clone();
        let to = GradientsMut::new(&mut twice, Store::Add).unwrap();
        backward_into(&attention, &inputs, saved, grad.view(), &options, to).unwrap();
        let doubled = |once: &[f64], twice: &[f64]| {
            let sum: Vec<f64> = once.iter().map(|x| x + x).collect();
            assert!(same_bits(&sum, twice), "{}", call.describe());
        };
        doubled(once.q.data(), twice.q.data());
        doubled(once.k.data(), twice.k.data());
        doubled(once.v.data(), twice.v.data());
        if let (Some(once), Some(twice)) = (&once.bias, &twice.bias) {
            doubled(once.data(), twice.data());
        }
        if let (Some(once), Some(twice)) = (&once.sinks, &twice.sinks) {
            doubled(once.data(), twice.data());
        }
    }
}

/// Half precision rounds once: what single precision gives for the same numbers is added to what is
/// there, and that is rounded.
fn half_accumulates<T: Float + Gap>(seed: u64) {
    let mut random = Random::new(seed);
    for n in 0..times(15) {
        let mut call = Call::random(&mut random).rounded::<T>();
        call.empty_rows = EmptyRows::Zero;
        if n % 3 == 0 {
            call.sinks = Some((0..call.q.shape[1]).map(|_| random.normal()).collect());
        }
        let grad = grad_of(&call, &mut random).map(Layout::Plain, T::from_f64);
        let (typed, wide) = (
            call.typed::<T>([Layout::Plain; 3]),
            call.typed::<f32>([Layout::Plain; 3]),
        );
        let attention = call.attention(&typed);
        for isa in isas() {
            let options = options(isa, 1);
            let output = forward_with(&attention, &typed.inputs(), &options).unwrap();
            let of_output = Tensor::new(
                output.output.shape(),
                output
                    .output
                    .data()
                    .iter()
                    .map(|x| x.to_f64() as f32)
                    .collect(),
            )
            .unwrap();
            let saved = Saved {
                output: of_output.view().unwrap(),
                lse: output.lse.data(),
            };
            let wide_grad = grad.map(Layout::Plain, |x| x.to_f64() as f32);
            let sums = backward(
                &attention,
                &wide.inputs(),
                saved,
                wide_grad.view(),
                &options,
            )
            .unwrap();
            let before = |tensor: &Tensor<f32>| {
                let some =
                    (0..tensor.data().len()).map(|n| T::from_f64((n % 9) as f64 * 0.25 - 1.0));
                Tensor::new(tensor.shape(), some.collect()).unwrap()
            };
            let there = Gradients {
                q: before(&sums.q),
                k: before(&sums.k),
                v: before(&sums.v),
                bias: sums.bias.as_ref().map(before),
                sinks: sums.sinks.as_ref().map(before),
            };
            let mut found = there.clone();
            let to = GradientsMut::new(&mut found, Store::Add).unwrap();
            let saved = Saved::new(&output).unwrap();
            backward_into(
                &attention,
                &typed.inputs(),
                saved,
                grad.view(),
                &options,
                to,
            )
            .unwrap();
            let added = |there: &Tensor<T>, sums: &Tensor<f32>| {
                let pairs = there.data().iter().zip(sums.data());
                let sum = pairs.map(|(x, y)| T::from_f64(f64::from(x.to_f64() as f32 + y)));
                Tensor::new(sums.shape(), sum.collect()).unwrap()
            };
            let both = |there: &Option<Tensor<T>>, sums: &Option<Tensor<f32>>| {
                there.as_ref().zip(sums.as_ref()).map(|(x, y)| added(x, y))
            };
            let wanted = Gradients {
                q: added(&there.q, &sums.q),
                k: added(&there.k, &sums.k),
                v: added(&there.v, &sums.v),
                bias: both(&there.bias, &sums.bias),
                sinks: both(&there.sinks, &sums.sinks),
            };
            assert_same(&wanted, &found, &format!("{isa:?} {}", call.describe()));
        }
    }
}

#[test]
fn gradients_of_half_precision_accumulate() {
    half_accumulates::<f16>(39);
    half_accumulates::<bf16>(40);
}

/// Arrays of the caller's with any strides get the same bits, and nothing between their elements.
#[test]
fn strided_gradients_have_the_same_bits() {
    let mut random = Random::new(37);
    for n in 0..times(60) {
        let mut call = Call::random(&mut random);
        call.empty_rows = EmptyRows::Zero;
        let grad = grad_of(&call, &mut random);
        let options = options(random.pick(&isas().collect::<Vec<_>>()), 1 + n % 3);
        let typed = call.typed::<f32>([Layout::Plain; 3]);
        let (attention, inputs) = (call.attention(&typed), typed.inputs());
        let grad = grad.map(Layout::Plain, |x| x as f32);
        let output = forward_with(&attention, &inputs, &options).unwrap();
        let saved = Saved::new(&output).unwrap();
        let expected = backward(&attention, &inputs, saved, grad.view(), &options).unwrap();
        for store in [Store::Replace, Store::Add] {
            let before = if store == Store::Add { 0.5 } else { f32::NAN };
            let mut array = |tensor: &Tensor<f32>| {
                let shape: [usize; 4] = tensor.shape().try_into().unwrap();
                Array::new(shape, random.pick(&LAYOUTS), |_| before)
            };
            let mut arrays = vec![array(&expected.q), array(&expected.k), array(&expected.v)];
            arrays.extend(expected.bias.as_ref().map(&mut array));
            let mut wanted = arrays.clone();
            let numbers = [&expected.q, &expected.k, &expected.v].into_iter();
            for (wanted, tensor) in wanted.iter_mut().zip(numbers.chain(&expected.bias)) {
                let [_, h, l, d] = wanted.shape;
                for (n, &x) in tensor.data().iter().enumerate() {
                    let at = wanted.position([n / d / l / h, n / d / l % h, n / d % l, n % d]);
                    wanted.data[at] = if store == Store::Add { before + x } else { x };
                }
            }
            let mut sinks = expected.sinks.clone();
            let mut views = arrays.iter_mut().map(|array| {
                let (offset, shape, strides) = (array.offset, array.shape, array.strides);
                ViewMut::strided(&mut array.data, offset, shape, strides).unwrap()
            });
            let to = GradientsMut {
                q: views.next().unwrap(),
                k: views.next().unwrap(),
                v: views.next().unwrap(),
                bias: views.next(),
                sinks: sinks.as_mut().map(Tensor::data_mut),
                store,
            };
            backward_into(&attention, &inputs, saved, grad.view(), &options, to).unwrap();
            for (n, (found, wanted)) in arrays.iter().zip(&wanted).enumerate() {
                let what = format!("{n} {store:?} {:?} {}", found.strides, call.describe());
                assert!(same_bits(&found.data, &wanted.data), "{what}");
            }
        }
    }
}
