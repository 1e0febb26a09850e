//! The same numbers elsewhere in memory: strides, cached keys, repeated heads, strided outputs.

use super::support::{Array, Call, Gap, LAYOUTS, Layout, Random, isas, options, same_bits, times};
use super::{Pair, compute, draw};
use half::{bf16, f16};
use qkv::{Attention, Float, Inputs, Isa, ViewMut, forward_into, forward_with};

/// Cached rows and those after them.
pub fn join(a: &Array<f64>, b: &Array<f64>) -> Array<f64> {
    let [batch, heads, first, width] = a.shape;
    let shape = [batch, heads, first + b.shape[2], width];
    Array::new(shape, Layout::Plain, |[n, h, j, c]| match j {
        _ if j < first => a.get([n, h, j, c]),
        _ => b.get([n, h, j - first, c]),
    })
}

/// Every query head with keys and values of its own.
fn repeated(array: &Array<f64>, heads: usize) -> Array<f64> {
    let mut shape = array.shape;
    let group = heads / shape[1];
    shape[1] = heads;
    Array::new(shape, Layout::Plain, |[b, h, j, c]| {
        array.get([b, h / group, j, c])
    })
}

#[test]
fn layouts_cached_keys_and_repeated_heads_change_no_bit() {
    let mut random = Random::new(12);
    for _ in 0..times(150) {
        let whole = draw(&mut random);
        let mut part = whole.clone();
        if random.chance(2)
            && let Some((k, v)) = part.past.take()
        {
            part.k = join(&k, &part.k);
            part.v = join(&v, &part.v);
        }
        if random.chance(2) {
            let heads = whole.q.shape[1];
            part.k = repeated(&part.k, heads);
            part.v = repeated(&part.v, heads);
            part.past = part
                .past
                .map(|(k, v)| (repeated(&k, heads), repeated(&v, heads)));
        }
        part.bias_layout = random.pick(&LAYOUTS);
        for (mask, _) in &mut part.masks {
            *mask = mask.map(random.pick(&LAYOUTS), |x| x);
        }
        Pair {
            whole,
            part,
            layouts: Call::layouts(&mut random),
            first: [0; 3],
        }
        .check();
    }
}

/// The output may be of any layout, with gaps, and what lies between is left alone.
#[test]
fn strided_output_is_written_in_place() {
    let mut random = Random::new(16);
    for _ in 0..times(40) {
        let call = draw(&mut random);
        for isa in isas() {
            strided_output::<f32>(&call, isa);
            strided_output::<f64>(&call, isa);
            strided_output::<f16>(&call, isa);
            strided_output::<bf16>(&call, isa);
        }
    }
}

fn strided_output<T: Float + Gap>(call: &Call, isa: Isa) {
    let typed = call.typed::<T>([Layout::Plain; 3]);
    let (attention, inputs) = (call.attention(&typed), typed.inputs());
    let [b, h, l, _] = call.q.shape;
    let shape = [b, h, l, call.v.shape[3]];
    let expected = compute::<T>(call, [Layout::Plain; 3], isa);
    for layout in LAYOUTS {
        let mut target = Array::new(shape, layout, |_| T::from_f64(0.0));
        target.data.fill(T::from_f64(7.0));
        let mut right = target.clone();
        for (n, &x) in expected.output.data().iter().enumerate() {
            let d = shape[3];
            let at = right.position([n / d / l / h, n / d / l % h, n / d % l, n % d]);
            right.data[at] = x;
        }
        let view = ViewMut::strided(&mut target.data, target.offset, shape, target.strides);
        let rows = forward_into(&attention, &inputs, &options(isa, 1), view.unwrap()).unwrap();
        assert!(same_bits(&target.data, &right.data), "{isa:?} {layout:?}");
        assert!(same_bits(rows.lse.data(), expected.lse.data()));
        assert_eq!(rows.empty_rows, expected.empty_rows);
    }
}

/// B070: views of the same numbers, transposed, with gaps and reversed.
#[test]
fn b070_strided_views_equal_contiguous() {
    let mut random = Random::new(17);
    let plain = Array::new([2, 3, 50, 9], Layout::Plain, |_| random.normal() as f32);
    let compute = |array: &Array<f32>, isa| {
        let inputs = Inputs::new(array.view(), array.view(), array.view()).unwrap();
        forward_with(&Attention::default(), &inputs, &options(isa, 1)).unwrap()
    };
    for isa in isas() {
        let expected = compute(&plain, isa);
        for layout in LAYOUTS {
            let found = compute(&plain.map(layout, |x| x), isa);
            assert!(
                same_bits(expected.output.data(), found.output.data()),
                "{isa:?} {layout:?}"
            );
        }
    }
}
