//! What may not change a bit of a gradient, and what must add up.
#![allow(clippy::unwrap_used)]

mod support;

use qkv::definition::Gradients;
use qkv::{
    Attention, Causal, EmptyRows, Float, GradientsMut, Inputs, Isa, Options, Saved, Store, Tensor,
    ViewMut, backward, backward_into, forward_with,
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

/// NaN in what is dropped changes nothing.
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
