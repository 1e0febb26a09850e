//! Sizes of zero, and what is refused.

use crate::support::{isas, options};
use qkv::{Attention, Cache, Error, Inputs, Isa, Options, View, ViewMut, forward, forward_into};

#[test]
fn sizes_of_zero() {
    let nothing: [f32; 0] = [];
    let v = [1.0_f32; 6];
    let attention = Attention::default();
    let view = |data: &'static [f32], shape: [usize; 4]| View::new(data, &shape).unwrap();
    let compute =
        |q, k, v: View<'_, f32>| forward(&attention, &Inputs::new(q, k, v).unwrap()).unwrap();
    let some: &'static [f32] = &[1.0; 6];
    // No keys, no queries, no batch, no heads, no value columns.
    let found = compute(
        view(some, [1, 2, 1, 3]),
        view(&[], [1, 2, 0, 3]),
        View::new(&nothing, &[1, 2, 0, 2]).unwrap(),
    );
    assert_eq!(found.output.data(), [0.0; 4]);
    assert_eq!(found.empty_rows, [[0, 0, 0], [0, 1, 0]]);
    let found = compute(
        view(&[], [1, 2, 0, 3]),
        view(some, [1, 2, 1, 3]),
        View::new(&v, &[1, 2, 1, 3]).unwrap(),
    );
    assert!(found.output.data().is_empty());
    for shape in [[0, 2, 1, 3], [1, 0, 1, 3]] {
        let found = compute(view(&[], shape), view(&[], shape), view(&[], shape));
        assert!(found.output.data().is_empty());
    }
    let found = compute(
        view(some, [1, 2, 1, 3]),
        view(some, [1, 2, 1, 3]),
        View::new(&nothing, &[1, 2, 1, 0]).unwrap(),
    );
    assert_eq!((found.output.data().len(), found.lse.data().len()), (0, 2));
}

#[test]
fn outputs_that_do_not_fit_are_refused() {
    let x = [0.0_f32; 6];
    let view = View::new(&x, &[2, 3]).unwrap();
    let inputs = Inputs::new(view, view, view).unwrap();
    let mut out = [0.0_f32; 8];
    let wrong = ViewMut::new(&mut out, &[2, 4]).unwrap();
    let error = forward_into(&Attention::default(), &inputs, &Options::default(), wrong);
    assert!(matches!(
        error,
        Err(Error::Mismatch {
            axis: "value_dim",
            ..
        })
    ));
    let twice = ViewMut::strided(&mut out, 0, [1, 1, 2, 3], [0, 0, 2, 1]);
    assert!(matches!(twice, Err(Error::Overlap { .. })));
    let outside = ViewMut::strided(&mut out, 3, [1, 1, 2, 3], [0, 0, 3, 1]);
    assert!(matches!(outside, Err(Error::OutOfBounds { .. })));
    let backwards = ViewMut::strided(&mut out, 3, [1, 1, 2, 3], [0, 0, -3, 1]).unwrap();
    assert_eq!(backwards.strides(), [0, 0, -3, 1]);
}

#[test]
fn a_cache_refuses_what_does_not_fit() {
    let mut cache = Cache::<f32>::new(1, 2, 3, 2);
    let (k, v) = ([0.0; 12], [0.0; 8]);
    let k = View::new(&k, &[1, 2, 2, 3]).unwrap();
    let v = View::new(&v, &[1, 2, 2, 2]).unwrap();
    assert!(matches!(cache.append(v, k), Err(Error::Mismatch { .. })));
    assert!(cache.is_empty());
    cache.append(k, v).unwrap();
    cache.reserve(100);
    assert_eq!((cache.len(), cache.capacity()), (2, 100));
    cache.truncate(1);
    assert_eq!(cache.k().unwrap().shape(), [1, 2, 1, 3]);
}

#[test]
fn an_instruction_set_that_is_not_there_is_an_error() {
    for isa in Isa::ALL {
        let options = Options {
            isa: Some(isa),
            ..Options::default()
        };
        assert_eq!(options.isa().is_ok(), isa.available());
    }
}

/// Where no number is, nothing was multiplied by a stride when the view was checked, and nothing may
/// be later: an output without columns ended the process where overflow is looked for.
#[test]
fn b122_views_without_columns_may_have_any_strides() {
    let x = [1.0_f32; 12];
    let plain = Attention::default();
    let any = [isize::MAX, isize::MIN, isize::MAX / 2 + 1];
    for (isa, stride) in isas().flat_map(|isa| any.map(|stride| (isa, stride))) {
        for (heads, keys) in [(1, 1), (1, 3), (3, 3), (2, 16), (3, 17), (1, 300)] {
            let q = View::strided(&x, 0, [1, heads, 3, 4], [0, 0, 4, 1]).unwrap();
            let k = View::strided(&x, 0, [1, heads, keys, 4], [0, 0, 0, 1]).unwrap();
            let strides = [stride, stride, stride, 1];
            let v = View::strided(&x, usize::MAX, [1, heads, keys, 0], strides).unwrap();
            let inputs = Inputs::new(q, k, v).unwrap();
            let to = ViewMut::strided(&mut [], 9, [1, heads, 3, 0], strides).unwrap();
            let rows = forward_into(&plain, &inputs, &options(isa, 1), to).unwrap();
            let lse = 2.0 + (keys as f64).ln();
            assert!(rows.lse.data().iter().all(|x| (x - lse).abs() < 1e-5));
        }
    }
}
