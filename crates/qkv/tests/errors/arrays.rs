//! Views, strides, queries, keys, values, caches, parts.

use crate::common::*;
use crate::*;
use qkv::{Attention, Error, Inputs, Sinks, Tensor, View, definition, steps};

#[test]
fn views_that_do_not_fit_their_data() {
    let data = [0.0; 12];
    refused(
        View::new(&data, &[1, 1, 1, 3, 4]),
        &[
            "view",
            "[1, 1, 1, 3, 4]",
            "5 axes",
            "at most 4",
            "[batch, heads, length, head_dim]",
        ],
    );
    for shape in [&[3, 5][..], &[12, 0], &[11], &[2, 2, 2, 2], &[]] {
        let wanted = shape.iter().product::<usize>().to_string();
        refused(
            View::new(&data, shape),
            &[
                "view",
                &format!("{shape:?}"),
                &wanted,
                "holds 12",
                "give the shape",
            ],
        );
        refused(
            Tensor::new(shape, data.to_vec()),
            &["tensor", &format!("{shape:?}"), &wanted, "holds 12"],
        );
    }
    for shape in [[usize::MAX, 2], [1 << 40, 1 << 40], [usize::MAX, 1]] {
        let parts = ["more than memory can address", "holds 12"];
        refused(View::new(&data, &shape), &parts);
        refused(Tensor::new(&shape, data.to_vec()), &parts);
    }
    // An axis of 0 makes an empty array of any others.
    let none: [f64; 0] = [];
    assert!(View::new(&none, &[usize::MAX, usize::MAX, 0]).is_ok());
    refused(
        Tensor::new(&[1, 1, 1, 1, 1], vec![0.0]).unwrap().view(),
        &["5 axes", "at most 4"],
    );
}

#[test]
fn strides_that_leave_the_data() {
    let data = [0.0; 12];
    let (max, min) = (isize::MAX, isize::MIN);
    let cases: &[(usize, [usize; 4], [isize; 4])] = &[
        (12, [1, 1, 1, 1], [0; 4]),         // one behind the last
        (usize::MAX, [1, 1, 1, 1], [0; 4]), // far behind
        (0, [1, 1, 3, 4], [0, 0, 5, 1]),    // up to 13
        (1, [1, 1, 3, 4], [0, 0, 4, 1]),    // up to 12
        (0, [1, 1, 3, 4], [0, 0, -4, 1]),   // down to −8
        (7, [1, 1, 3, 4], [0, 0, -4, 1]),   // down to −1
        (11, [13, 1, 1, 1], [-1, 0, 0, 0]), // down to −1
        (6, [2, 2, 1, 1], [7, -7, 0, 0]),   // both ways, though their sum is inside
        (0, [1, 1, 2, 1], [0, 0, max, 0]),  // the largest stride
        (11, [1, 1, 2, 1], [0, 0, min, 0]), // the smallest
        (0, [2, 2, 2, 2], [max; 4]),        // sums beyond isize
        (11, [2, 2, 2, 2], [min; 4]),
        (0, [2, 2, 1, 1], [max, min, 0, 0]), // cancelling
        (0, [usize::MAX; 4], [max; 4]),      // products beyond i128
        (0, [usize::MAX; 4], [min; 4]),
        (0, [usize::MAX, 1, 1, 1], [1, 0, 0, 0]),
        (usize::MAX, [usize::MAX, 1, 1, 1], [-1, 0, 0, 0]),
    ];
    for (offset, shape, strides) in cases {
        let error = refused(
            View::strided(&data, *offset, *shape, *strides),
            &[
                "view",
                &format!("{shape:?}"),
                &format!("{strides:?}"),
                &format!("element {offset}"),
                "holds 12 elements",
                "give an offset and strides",
            ],
        );
        let Error::OutOfBounds { reach, .. } = error else {
            panic!("{error}")
        };
        assert!(!(0..12).contains(&reach), "{reach}");
    }
    // Just inside: every element can be read.
    let inside: &[(usize, [usize; 4], [isize; 4])] = &[
        (11, [1, 1, 1, 1], [max; 4]), // an axis of 1 takes no step
        (11, [1, 1, 3, 4], [0, 0, -4, -1]),
        (4, [1, 2, 2, 2], [min, 4, -4, 1]),
        (3, [usize::MAX, 1, 1, 1], [0; 4]),   // repeated
        (usize::MAX, [0, 1, 1, 1], [max; 4]), // nothing to read
        (0, [1, 1, 12, 1], [0, 0, 1, 0]),
    ];
    for (offset, shape, strides) in inside {
        let view = View::strided(&data, *offset, *shape, *strides).unwrap();
        let few = shape.map(|n| n.min(20));
        for at in places(few) {
            assert_eq!(view.get(at), 0.0);
        }
    }
}

#[test]
fn queries_keys_and_values_that_do_not_fit() {
    // q, k, v, and what the message says
    type Row<'a> = (&'a [usize], &'a [usize], &'a [usize], &'a [&'a str]);
    let cases: &[Row<'_>] = &[
        (
            &[2, 1, 3, 4],
            &[3, 1, 5, 4],
            &[3, 1, 5, 2],
            &["q has batch 2", "k has 3", "both need"],
        ),
        (
            &[2, 1, 3, 4],
            &[2, 1, 5, 4],
            &[1, 1, 5, 2],
            &["k has batch 2", "v has 1", "both need"],
        ),
        (
            &[1, 1, 3, 4],
            &[1, 1, 5, 3],
            &[1, 1, 5, 2],
            &["q has head_dim 4", "k has 3", "transposed"],
        ),
        (
            &[1, 4, 3, 4],
            &[1, 2, 5, 4],
            &[1, 4, 5, 2],
            &["k has heads 2", "v has 4", "same number"],
        ),
        (
            &[1, 1, 3, 4],
            &[1, 1, 5, 4],
            &[1, 1, 4, 2],
            &["k has keys 5", "v has 4", "its value"],
        ),
        (
            &[1, 3, 3, 4],
            &[1, 2, 5, 4],
            &[1, 2, 5, 2],
            &["3 query heads", "2 key", "multiple"],
        ),
        (
            &[1, 2, 3, 4],
            &[1, 4, 5, 4],
            &[1, 4, 5, 2],
            &["2 query heads", "4 key", "multiple"],
        ),
        (
            &[1, 2, 3, 4],
            &[1, 0, 5, 4],
            &[1, 0, 5, 2],
            &["2 query heads", "0 key", "multiple"],
        ),
    ];
    for &(q, k, v, parts) in cases {
        let error = refused(inputs_of(q, k, v), parts);
        let message = error.to_string();
        let shapes = [q, k, v].map(|shape| format!("{shape:?}"));
        let named = shapes
            .iter()
            .filter(|shape| message.contains(*shape))
            .count();
        assert!(named >= 2, "{message}");
    }
    refused(
        inputs_of(&[1, 1, 3, 0], &[1, 1, 5, 0], &[1, 1, 5, 2]),
        &["head_dim", "0 is not possible", "at least one column"],
    );
}

#[test]
fn caches_that_do_not_fit() {
    let inputs = fitting(); // k [2, 2, 5, 6], v [2, 2, 5, 1]
    let cases: &[([usize; 4], [usize; 4], &[&str])] = &[
        (
            [1, 2, 4, 6],
            [1, 2, 4, 1],
            &["past k has batch 1", "[1, 2, 4, 6]", "[2, 2, 5, 6]"],
        ),
        (
            [2, 1, 4, 6],
            [2, 1, 4, 1],
            &["past k has heads 1", "[2, 1, 4, 6]", "[2, 2, 5, 6]"],
        ),
        (
            [2, 2, 4, 5],
            [2, 2, 4, 1],
            &["past k has head_dim 5", "[2, 2, 4, 5]", "[2, 2, 5, 6]"],
        ),
        (
            [2, 2, 4, 6],
            [1, 2, 4, 1],
            &["past v has batch 1", "[1, 2, 4, 1]", "[2, 2, 5, 1]"],
        ),
        (
            [2, 2, 4, 6],
            [2, 4, 4, 1],
            &["past v has heads 4", "[2, 4, 4, 1]", "[2, 2, 5, 1]"],
        ),
        (
            [2, 2, 4, 6],
            [2, 2, 4, 2],
            &["past v has value_dim 2", "[2, 2, 4, 2]", "[2, 2, 5, 1]"],
        ),
        (
            [2, 2, 4, 6],
            [2, 2, 3, 1],
            &["past k has keys 4", "past v has 3", "[2, 2, 3, 1]"],
        ),
    ];
    for (k, v, parts) in cases {
        refused(inputs.with_past(ones(k), ones(v)), parts);
    }
    // More keys than can be counted: views that repeat one element.
    let many = View::strided(&ONES, 0, [1, 1, usize::MAX, 1], [0; 4]).unwrap();
    let one = ones(&[1, 1]);
    let inputs = Inputs::new(one, one, one).unwrap();
    let parts = [
        "past k",
        "18446744073709551615",
        "more elements than memory",
    ];
    refused(inputs.with_past(many, many), &parts);
}

#[test]
fn results_too_large_to_hold() {
    let repeated = |shape| View::strided(&ONES, 0, shape, [0; 4]).unwrap();
    let one = ones(&[1, 1]);
    for [b, h, l, d] in [
        [1, 1, usize::MAX, 1],
        [1, 1, 1 << 61, 1],
        [1, 1 << 32, 1 << 32, 1],
        [1 << 31, 1 << 31, 1, 1],
    ] {
        let q = repeated([b, h, l, d]);
        let kv = repeated([b, 1, 1, d]);
        let inputs = Inputs::new(q, kv, kv).unwrap();
        let attention = Attention::default();
        let parts = ["[", "more elements than memory can address"];
        refused(definition::forward(&attention, &inputs), &parts);
        refused(steps(&attention, &inputs), &parts);
        refused(definition::backward(&attention, &inputs, q), &parts);
    }
    let wide = repeated([1, 1, 1, usize::MAX]);
    let inputs = Inputs::new(one, one, wide).unwrap();
    refused(
        definition::forward(&Attention::default(), &inputs),
        &["output", "18446744073709551615", "memory"],
    );
}

#[test]
fn parts_that_do_not_merge() {
    let part = |q: &[usize], kv: &[usize]| {
        definition::forward(&Attention::default(), &inputs_of(q, kv, kv).unwrap()).unwrap()
    };
    let first = part(&[1, 2, 3, 4], &[1, 2, 5, 4]);
    refused(
        definition::merge(&[], None),
        &["parts", "0 values", "at least one"],
    );
    for other in [
        part(&[1, 2, 2, 4], &[1, 2, 5, 4]),
        part(&[1, 1, 3, 4], &[1, 1, 5, 4]),
        part(&[2, 2, 3, 4], &[2, 2, 5, 4]),
        part(&[1, 2, 3, 3], &[1, 2, 5, 3]),
    ] {
        let shapes = [format!("{:?}", other.output.shape()), "[1, 2, 3, 4]".into()];
        refused(
            definition::merge(&[first.clone(), other], None),
            &[
                "the first part",
                "another part",
                &shapes[0],
                &shapes[1],
                "same queries",
            ],
        );
    }
    for count in [0, 1, 3] {
        let sinks = Sinks(vec![0.0; count]);
        let shown = format!(
            "{count} value{} given, but 2 needed",
            if count == 1 { "" } else { "s" }
        );
        refused(
            definition::merge(std::slice::from_ref(&first), Some(&sinks)),
            &["sinks", &shown],
        );
    }
    let mut flat = first;
    flat.output = Tensor::new(&[3, 8], vec![0.0; 24]).unwrap();
    flat.lse = Tensor::new(&[3], vec![0.0; 3]).unwrap();
    refused(
        definition::merge(&[flat], None),
        &["output", "[3, 8]", "4 are needed"],
    );
}

/// Every error can be compared, cloned and shown, and says what it is about.
#[test]
fn errors_are_values() {
    let error = tried(&Attention {
        softcap: Some(0.0),
        ..Attention::default()
    })
    .unwrap_err();
    assert_eq!(error.clone(), error);
    assert!(format!("{error:?}").starts_with("Option"));
    assert_eq!(
        error.to_string(),
        "softcap: 0 is not possible; give a finite number above 0, or leave softcap out"
    );
    let shape = View::new(&[0.0; 3], &[2]).unwrap_err();
    assert_eq!(
        shape.to_string(),
        "view: shape [2] needs 2 elements, but the data holds 3; give the shape that the data has"
    );
}
