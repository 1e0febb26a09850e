//! Every kind of misfit is refused with a message that names the argument, the shapes and a
//! remedy; axes of length 0 and extreme numbers give right results or a refusal, never a panic.

#![allow(clippy::unwrap_used, clippy::panic, clippy::result_large_err)]

mod common;

use common::*;
use qkv::layer::{merge_heads, split_heads};
use qkv::position::{Pairing, Rotary, Scaling};
use qkv::{
    Alibi, AnyView, Attention, Bias, Block, Causal, Documents, Dropout, EmptyRows, Error, Inputs,
    KeyLengths, Layer, Linear, Mask, Place, Result, RmsNorm, Scale, Sinks, StepName, Tensor, View,
    Window, definition, steps,
};

/// The message has all parts.
#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T>, parts: &[&str]) -> Error {
    let error = result.unwrap_err();
    let message = error.to_string();
    for part in parts {
        assert!(message.contains(part), "{part:?} is not in {message:?}");
    }
    // A message is one line, with a remedy after a semicolon, or a list's meaning after a colon.
    assert!(!message.contains('\n'), "{message:?}");
    assert!(
        message.contains("; ") || message.contains(": "),
        "{message:?}"
    );
    error
}

const ONES: [f64; 256] = [1.0; 256];

fn ones(shape: &[usize]) -> View<'static, f64> {
    View::new(&ONES[..shape.iter().product()], shape).unwrap()
}

fn inputs_of(q: &[usize], k: &[usize], v: &[usize]) -> Result<Inputs<'static, f64>> {
    Inputs::new(ones(q), ones(k), ones(v))
}

/// Batch 2, heads 4 over 2, queries 3, keys 5, head_dim 6 (k: 2·2·5·6 = 120), value_dim 1.
fn fitting() -> Inputs<'static, f64> {
    inputs_of(&[2, 4, 3, 6], &[2, 2, 5, 6], &[2, 2, 5, 1]).unwrap()
}

fn tried(attention: &Attention<'_>) -> Result<definition::Output<f64>> {
    let inputs = fitting();
    let found = definition::forward(attention, &inputs);
    // All ways in refuse alike.
    let text = |error: Option<Error>| error.map(|error| error.to_string());
    let by_forward = text(found.clone().err());
    assert_eq!(text(steps(attention, &inputs).err()), by_forward);
    let grad = ones(&[2, 4, 3, 1]);
    assert_eq!(
        text(definition::backward(attention, &inputs, grad).err()),
        by_forward
    );
    if !matches!(found, Err(Error::EmptyRows { .. })) {
        assert_eq!(text(attention.check(&inputs).err()), by_forward);
        assert_eq!(
            text(definition::places(attention, &inputs).err()),
            by_forward
        );
    }
    found
}

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
    let cases: &[(&[usize], &[usize], &[usize], &[&str])] = &[
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
fn masks_and_biases_that_do_not_fit() {
    let (trues, numbers) = ([true; 256], [0.5_f32; 256]);
    // Scores are [2, 4, 3, 5].
    let shapes: &[&[usize]] = &[
        &[4],
        &[0],
        &[2, 5],
        &[3, 4],
        &[3, 0],
        &[3, 3, 5],
        &[2, 3, 5],
        &[8, 3, 5],
        &[3, 1, 1],
        &[3, 4, 3, 5],
        &[4, 1, 1, 1],
        &[2, 1, 1, 4],
        &[0, 1, 1, 1],
    ];
    for &shape in shapes {
        let n = shape.iter().product();
        let full = [vec![1; 4 - shape.len()], shape.to_vec()].concat();
        let parts = [
            &format!("{full:?}"),
            "[2, 4, 3, 5]",
            "align to the right",
            "equal or 1",
        ];
        for mask in [
            Mask::keep(View::new(&trues[..n], shape).unwrap()),
            Mask::drop(View::new(&trues[..n], shape).unwrap()),
        ] {
            let attention = Attention {
                masks: vec![Mask::keep(View::new(&trues[..1], &[1]).unwrap()), mask],
                ..Attention::default()
            };
            let error = refused(tried(&attention), &parts);
            assert!(error.to_string().starts_with(mask.name()), "{error}");
        }
        let attention = Attention {
            bias: Some(Bias(AnyView::from(
                View::new(&numbers[..n], shape).unwrap(),
            ))),
            ..Attention::default()
        };
        let error = refused(tried(&attention), &parts);
        assert!(error.to_string().starts_with("bias"), "{error}");
    }
}

/// The hints are given where they are true, and only there.
#[test]
fn hints_about_masks() {
    let trues = [true; 256];
    let message = |inputs: &Inputs<'_, f64>, shape: &[usize]| {
        let n = shape.iter().product();
        let attention = Attention {
            masks: vec![Mask::keep(View::new(&trues[..n], shape).unwrap())],
            ..Attention::default()
        };
        attention.check(inputs).unwrap_err().to_string()
    };
    let transposed = "looks transposed";
    assert!(message(&fitting(), &[5, 3]).contains(transposed));
    assert!(!message(&fitting(), &[4, 5]).contains(transposed));
    // Square scores: a mask with a wrong number of heads is not transposed.
    let square = inputs_of(&[1, 4, 3, 1], &[1, 4, 3, 1], &[1, 4, 3, 1]).unwrap();
    let square_message = message(&square, &[3, 3, 3]);
    assert!(!square_message.contains(transposed), "{square_message}");

    let past = |new: usize| {
        inputs_of(&[4, new, 1], &[4, new, 1], &[4, new, 1])
            .unwrap()
            .with_past(ones(&[4, 2, 1]), ones(&[4, 2, 1]))
            .unwrap()
    };
    assert!(message(&past(3), &[3, 3]).contains("3 new keys, but 2 cached keys come first"));
    // One new key: a column of 1 serves all, so what is wrong is the number of heads.
    let one = message(&past(1), &[3, 1, 1]);
    assert!(!one.contains("cached"), "{one}");
}

#[test]
fn options_of_impossible_values() {
    for (factor, shown) in [
        (f64::NAN, "NaN"),
        (f64::INFINITY, "inf"),
        (f64::NEG_INFINITY, "-inf"),
    ] {
        let attention = Attention {
            scale: Scale::Factor(factor),
            ..Attention::default()
        };
        refused(tried(&attention), &["scale", shown, "finite"]);
        let attention = Attention {
            alibi: Some(Alibi {
                slopes: vec![0.5, factor, 0.5, 0.5],
            }),
            ..Attention::default()
        };
        refused(tried(&attention), &["alibi", shown, "finite"]);
    }
    for cap in [0.0, -0.0, -1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let attention = Attention {
            softcap: Some(cap),
            ..Attention::default()
        };
        let shown = cap.to_string();
        refused(
            tried(&attention),
            &["softcap", &shown, "above 0", "leave softcap out"],
        );
    }
    for p in [1.0, 1.5, -0.1, f64::NAN, f64::INFINITY] {
        let attention = Attention {
            dropout: Some(Dropout { p, seed: 0 }),
            ..Attention::default()
        };
        refused(
            tried(&attention),
            &["dropout", &p.to_string(), "not including, 1"],
        );
    }
    for count in [0, 1, 2, 3, 5, 8] {
        let list = vec![0.5; count];
        let attention = Attention {
            alibi: Some(Alibi {
                slopes: list.clone(),
            }),
            ..Attention::default()
        };
        let shown = format!("{count} values given, but 4 needed");
        refused(tried(&attention), &["alibi", &shown, "query head"]);
        let attention = Attention {
            sinks: Some(Sinks(list)),
            ..Attention::default()
        };
        refused(tried(&attention), &["sinks", &shown, "query head"]);
    }
    // Possible, though unusual.
    for attention in [
        Attention {
            scale: Scale::Factor(-1e307),
            ..Attention::default()
        },
        Attention {
            softcap: Some(f64::MIN_POSITIVE),
            ..Attention::default()
        },
        Attention {
            dropout: Some(Dropout {
                p: 1.0 - f64::EPSILON,
                seed: u64::MAX,
            }),
            ..Attention::default()
        },
    ] {
        let found = tried(&attention).unwrap();
        assert!(
            found.output.data().iter().all(|x| x.is_finite()),
            "{attention:?}"
        );
    }
}

#[test]
fn lengths_and_documents_that_do_not_add_up() {
    let lengths = |list: &[usize]| Attention {
        lengths: Some(KeyLengths(list.to_vec())),
        ..Attention::default()
    };
    for (list, count) in [(&[][..], 0), (&[5], 1), (&[5, 5, 5], 3)] {
        let shown = format!("{count} values given, but 2 needed");
        refused(tried(&lengths(list)), &["lengths", &shown, "batch entry"]);
    }
    for list in [[5, 6], [6, 0], [0, usize::MAX]] {
        let long = list.iter().max().unwrap().to_string();
        refused(
            tried(&lengths(&list)),
            &["lengths", &long, "there are 5 keys", "more keys"],
        );
    }
    assert!(tried(&lengths(&[0, 5])).is_ok());

    let documents = |queries: &[usize], keys: &[usize]| Attention {
        documents: Some(Documents::with_key_lengths(queries.to_vec(), keys.to_vec()).unwrap()),
        ..Attention::default()
    };
    let max = usize::MAX;
    for (queries, keys, parts) in [
        (
            &[1, 1][..],
            &[2, 3][..],
            ["2 queries in all", "there are 3"],
        ),
        (&[2, 2], &[2, 3], ["4 queries in all", "there are 3"]),
        (&[1, 2], &[2, 2], ["4 keys in all", "there are 5"]),
        (&[1, 2], &[5, 1], ["6 keys in all", "there are 5"]),
        (&[], &[], ["0 queries in all", "there are 3"]),
        (
            &[max, 4],
            &[2, 3],
            ["too many queries in all", "there are 3"],
        ),
        (&[1, 2], &[max, 6], ["too many keys in all", "there are 5"]),
    ] {
        let error = refused(tried(&documents(queries, keys)), &parts);
        let message = error.to_string();
        assert!(message.starts_with("documents"), "{message}");
        assert!(message.contains("must add up"), "{message}");
    }
    assert!(tried(&documents(&[0, 3, 0], &[0, 5, 0])).is_ok());
    refused(
        tried(&Attention {
            documents: Some(Documents::new(vec![1, 2])),
            ..Attention::default()
        }),
        &["documents", "3 keys in all", "there are 5"],
    );
    refused(
        Documents::with_key_lengths(vec![1, 2], vec![5]),
        &[
            "documents",
            "1 values given, but 2 needed",
            "number of keys",
        ],
    );
}

#[test]
fn a_bare_causal_mask_is_square() {
    let square = Attention {
        causal: Some(Causal::Square),
        ..Attention::default()
    };
    let names = ["top-left", "bottom-right", "offset"];
    let counts = ["3 queries against 5 keys have"];
    refused(tried(&square), &[&counts[..], &names].concat());

    let new = inputs_of(&[1, 3, 1], &[1, 3, 1], &[1, 3, 1]).unwrap();
    assert!(square.check(&new).is_ok());
    let cached = new.with_past(ones(&[1, 4, 1]), ones(&[1, 4, 1])).unwrap();
    let counts = ["3 queries against 7 keys (4 of them cached)"];
    refused(square.check(&cached), &[&counts[..], &names].concat());

    let packed = Attention {
        documents: Some(Documents::with_key_lengths(vec![2, 1], vec![2, 3]).unwrap()),
        ..square.clone()
    };
    let counts = ["1 queries against 3 keys in document 1"];
    refused(tried(&packed), &[&counts[..], &names].concat());
}

#[test]
fn empty_rows_where_they_are_an_error() {
    let attention = Attention {
        lengths: Some(KeyLengths(vec![5, 0])),
        empty_rows: EmptyRows::Error,
        ..Attention::default()
    };
    let error = refused(
        tried(&attention),
        &["12 of 24 rows keep no key", "[1, 0, 0]", "loosen the mask"],
    );
    let Error::EmptyRows { rows, first, empty } = error else {
        panic!("another error")
    };
    assert_eq!((rows, first, empty.len()), (24, [1, 0, 0], 12));
    assert_eq!(empty[11], [1, 3, 2]);
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
        let shown = format!("{count} values given, but 2 needed");
        refused(
            definition::merge(&[first.clone()], Some(&sinks)),
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

fn linear(name: &'static str, shape: [usize; 2]) -> Linear {
    let weight = tensor(&shape, &ONES[..shape[0] * shape[1]]);
    Linear::new(name, weight, None).unwrap()
}

/// D 6, four heads over two, of width 2 (v: 3).
fn layer() -> Layer<'static> {
    Layer {
        q: linear("W_Q", [6, 8]),
        k: linear("W_K", [6, 4]),
        v: linear("W_V", [6, 6]),
        heads: 4,
        kv_heads: 2,
        sinusoidal: None,
        block: Block {
            output: Some(linear("W_O", [12, 6])),
            ..Block::default()
        },
        residual: true,
    }
}

fn x(shape: &[usize]) -> Tensor<f64> {
    tensor(shape, &ONES[..shape.iter().product()])
}

#[test]
fn layers_that_do_not_fit() {
    let tokens = x(&[2, 3, 6]);
    assert!(layer().steps(&tokens, None, None).is_ok());
    let with = |change: &dyn Fn(&mut Layer<'_>)| {
        let mut layer = layer();
        change(&mut layer);
        layer.steps(&tokens, None, None)
    };
    refused(
        Linear::new("W_Q", x(&[2, 3, 4]), None),
        &["W_Q", "[2, 3, 4]", "3 axes", "[in, out]"],
    );
    refused(
        Linear::new("W_Q", x(&[2, 3]), Some(vec![0.0; 2])),
        &[
            "W_Q",
            "2 values given, but 3 needed",
            "column of the weight",
        ],
    );
    for (name, shape, parts) in [
        (
            "W_Q",
            [5, 8],
            ["x has width 6", "[2, 3, 6]", "W_Q has 5", "[5, 8]"],
        ),
        (
            "W_K",
            [8, 4],
            ["x has width 6", "[2, 3, 6]", "W_K has 8", "[8, 4]"],
        ),
        (
            "W_V",
            [3, 6],
            ["x has width 6", "[2, 3, 6]", "W_V has 3", "[3, 6]"],
        ),
    ] {
        let error = with(&|layer| {
            let field = match name {
                "W_Q" => &mut layer.q,
                "W_K" => &mut layer.k,
                _ => &mut layer.v,
            };
            *field = linear(name, shape);
        });
        refused(error, &[&parts[..], &["must be transposed"]].concat());
    }
    refused(
        with(&|layer| layer.block.output = Some(linear("W_O", [6, 12]))),
        &[
            "concatenated heads has width 12",
            "[2, 3, 12]",
            "W_O has 6",
            "[6, 12]",
            "transposed",
        ],
    );
    refused(
        with(&|layer| layer.block.output = Some(linear("W_O", [12, 7]))),
        &["x has width 6", "[2, 3, 6]", "7", "[2, 3, 7]", "W_O"],
    );
    refused(
        with(&|layer| {
            layer.block.output = None;
            layer.block.concatenate = true;
        }),
        &["x has width 6", "[2, 3, 6]", "12", "[2, 3, 12]", "residual"],
    );
    refused(
        with(&|layer| layer.block.output = None),
        &["residual", "side by side", "concatenate the heads"],
    );
    for heads in [0, 3, 5, 16, usize::MAX] {
        refused(
            with(&|layer| layer.heads = heads),
            &[
                "heads",
                &heads.to_string(),
                "W_Q",
                "8 columns",
                "[2, 3, 8]",
                "divide evenly",
            ],
        );
    }
    refused(
        with(&|layer| layer.kv_heads = 3),
        &[
            "heads",
            "3",
            "W_K",
            "4 columns",
            "[2, 3, 4]",
            "divide evenly",
        ],
    );
    refused(
        with(&|layer| layer.kv_heads = 1),
        &[
            "q has head_dim 2",
            "[2, 4, 3, 2]",
            "k has 4",
            "[2, 1, 3, 4]",
        ],
    );
    refused(
        with(&|layer| layer.v = linear("W_V", [6, 7])),
        &["heads", "2", "W_V", "7 columns", "divide evenly"],
    );
    for (name, shape) in [("x", &[3, 6][..]), ("x", &[1, 2, 3, 6]), ("x", &[6])] {
        let error = layer().steps(&x(shape), None, None);
        let axes = format!("{} axes", shape.len());
        refused(
            error,
            &[name, &format!("{shape:?}"), &axes, "[batch, length, width]"],
        );
    }
    refused(
        layer().steps(&tokens, Some(&x(&[2, 5, 7])), None),
        &["context has width 7", "[2, 5, 7]", "W_K has 6", "[6, 4]"],
    );
    refused(
        layer().steps(&tokens, Some(&x(&[3, 5, 6])), None),
        &["q has batch 2", "k has 3", "[3, 2, 5, 2]"],
    );
    refused(
        layer().steps(&tokens, Some(&x(&[5, 6])), None),
        &["context", "[5, 6]", "2 axes"],
    );
    let past = |k: &[usize], v: &[usize]| layer().steps(&tokens, None, Some((&x(k), &x(v))));
    assert!(past(&[2, 2, 4, 2], &[2, 2, 4, 3]).is_ok());
    refused(
        past(&[1, 2, 4, 2], &[1, 2, 4, 3]),
        &["past k has batch 1", "[2, 2, 3, 2]"],
    );
    refused(
        past(&[2, 2, 4, 2], &[2, 2, 5, 3]),
        &["past k has keys 4", "past v has 5"],
    );
    refused(
        past(&[1, 2, 2, 4, 2], &[2, 2, 4, 3]),
        &["[1, 2, 2, 4, 2]", "5 axes"],
    );
}

#[test]
fn norms_and_positions_that_do_not_fit() {
    let inputs = inputs_of(&[1, 2, 3, 4], &[1, 2, 5, 4], &[1, 2, 5, 1]).unwrap();
    for (count, shown) in [(0, "0 values"), (3, "3 values"), (8, "8 values")] {
        let norm = Some(RmsNorm::new(vec![1.0; count]));
        let block = Block {
            q_norm: norm.clone(),
            ..Block::default()
        };
        let meaning = "one gain for each column";
        refused(
            block.steps(&inputs),
            &["q_norm", shown, "4 needed", meaning],
        );
        let block = Block {
            k_norm: norm,
            ..Block::default()
        };
        refused(
            block.steps(&inputs),
            &["k_norm", shown, "4 needed", meaning],
        );
    }
    let rotary = |rotary: Rotary, place: Place| {
        let block = Block {
            rotary: Some(rotary),
            place,
            ..Block::default()
        };
        block.steps(&inputs)
    };
    let counted = Place::default;
    for dim in [0, 1, 3, 5, 6, usize::MAX] {
        let odd = Rotary {
            dim: Some(dim),
            ..Rotary::default()
        };
        refused(
            rotary(odd, counted()),
            &["rotary dim", &dim.to_string(), "even"],
        );
    }
    for base in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let base = Rotary {
            base,
            pairing: Pairing::Interleaved,
            ..Rotary::default()
        };
        refused(rotary(base, counted()), &["rotary base", "above 0"]);
        let scaled = Rotary {
            scaling: Scaling::Linear { factor: base.base },
            ..Rotary::default()
        };
        refused(
            rotary(scaled, counted()),
            &["rotary scaling", "factor", "above 0"],
        );
    }
    // Five keys, three queries: one list cannot serve both.
    let given = Place::Given(vec![vec![0, 1, 2]]);
    refused(
        rotary(Rotary::default(), given),
        &["positions", "3 values", "5 needed", "each token"],
    );
    let given = Place::Given(vec![]);
    refused(
        rotary(Rotary::default(), given),
        &["positions", "0 values", "1 needed"],
    );
    for start in [i64::MAX, i64::MIN, 1 << 60] {
        let far = rotary(Rotary::default(), Place::Counted { start });
        refused(far, &["positions", "2^53"]);
    }
    for name in ["q", "heads"] {
        let flat = x(&[2, 3]);
        refused(
            split_heads(&flat, 1, name),
            &[name, "[2, 3]", "3 are needed"],
        );
        refused(merge_heads(&flat), &["heads", "[2, 3]", "4 are needed"]);
    }
}

/// A layer's cache given with fewer axes means the same, also for the positions after it.
#[test]
fn a_cache_of_fewer_axes() {
    let mut layer = layer();
    (layer.heads, layer.kv_heads) = (4, 1);
    layer.k = linear("W_K", [6, 2]);
    layer.v = linear("W_V", [6, 3]);
    layer.sinusoidal = Some(2);
    let mut rng = Rng(4);
    let (tokens, k, v) = (rng.reals(6), rng.reals(8), rng.reals(12));
    let tokens = tensor(&[1, 1, 6], &tokens);
    let run = |shape_k: &[usize], shape_v: &[usize]| {
        let (k, v) = (tensor(shape_k, &k), tensor(shape_v, &v));
        layer.steps(&tokens, None, Some((&k, &v))).unwrap()
    };
    let full = run(&[1, 1, 4, 2], &[1, 1, 4, 3]);
    assert_eq!(run(&[1, 4, 2], &[1, 4, 3]), full);
    assert_eq!(run(&[4, 2], &[4, 3]), full);
    // The first new token stands at 2 + 4.
    let table = qkv::position::sinusoidal(1, 6, 6);
    let positioned = full.get(StepName::XPositioned).unwrap();
    for c in 0..6 {
        assert_eq!(positioned.data()[c], tokens.data()[c] + table.data()[c]);
    }
}

#[test]
fn axes_of_length_0() {
    for [b, h, hkv, lq, lk, dv] in [
        [0, 2, 1, 3, 4, 2],
        [1, 0, 0, 3, 4, 2],
        [1, 0, 2, 3, 4, 2],
        [1, 2, 1, 0, 4, 2],
        [1, 2, 1, 3, 0, 2],
        [1, 2, 1, 3, 4, 0],
        [0, 0, 0, 0, 0, 0],
    ] {
        let what = [b, h, hkv, lq, lk, dv];
        let (q, k, v) = ([b, h, lq, 2], [b, hkv, lk, 2], [b, hkv, lk, dv]);
        let inputs = inputs_of(&q, &k, &v).unwrap();
        for (n, attention) in with_every_option(h, b, lq, lk).iter().enumerate() {
            let found = definition::forward(attention, &inputs)
                .unwrap_or_else(|error| panic!("{error}: {what:?} {n}"));
            assert_eq!(found.output.shape(), [b, h, lq, dv]);
            assert_eq!(found.lse.shape(), [b, h, lq]);
            if lk == 0 {
                assert_eq!(found.empty_rows.len(), b * h * lq);
                assert!(found.output.data().iter().all(|x| *x == 0.0));
                assert!(found.lse.data().iter().all(|x| *x == f64::NEG_INFINITY));
            }
            let steps = steps(attention, &inputs).unwrap();
            let weights = steps.get(StepName::Weights).unwrap();
            assert_eq!(weights.shape(), [b, h, lq, lk]);
            assert_eq!(steps.get(StepName::Output).unwrap(), &found.output);
            let grad = ones(&[b, h, lq, dv]);
            let gradients = definition::backward(attention, &inputs, grad).unwrap();
            assert_eq!(gradients.k.shape(), k);
            let places = definition::places(attention, &inputs).unwrap();
            assert_eq!(places.queries.len(), b);
            let merged = definition::merge(&[found.clone(), found.clone()], None).unwrap();
            assert_eq!(merged.empty_rows, found.empty_rows);
        }
    }
}

/// No option, and each by itself with sizes that fit.
fn with_every_option(h: usize, b: usize, lq: usize, lk: usize) -> Vec<Attention<'static>> {
    let none = Attention::default;
    vec![
        none(),
        Attention {
            causal: Some(Causal::BottomRight),
            window: Some(Window {
                back: Some(0),
                forward: Some(0),
            }),
            ..none()
        },
        Attention {
            alibi: Some(Alibi {
                slopes: vec![0.5; h],
            }),
            sinks: Some(Sinks(vec![0.5; h])),
            dropout: Some(Dropout { p: 0.5, seed: 1 }),
            ..none()
        },
        Attention {
            lengths: Some(KeyLengths(vec![lk; b])),
            documents: Some(Documents::with_key_lengths(vec![lq], vec![lk]).unwrap()),
            causal: Some(Causal::TopLeft),
            ..none()
        },
        Attention {
            masks: vec![Mask::drop(View::new(&[false], &[1]).unwrap())],
            bias: Some(Bias(AnyView::from(ones(&[1])))),
            softcap: Some(3.0),
            ..none()
        },
    ]
}

/// Offsets and windows as far as the types go, with everything that counts by positions.
#[test]
fn positions_as_far_as_the_types_go() {
    let inputs = fitting(); // queries 3, keys 5
    let plain = definition::forward(&Attention::default(), &inputs).unwrap();
    let no_window = Window {
        back: Some(usize::MAX),
        forward: Some(usize::MAX),
    };
    let at_own_place = Window {
        back: Some(0),
        forward: Some(0),
    };
    let documents = Documents::with_key_lengths(vec![1, 2], vec![2, 3]).unwrap();
    for offset in [
        i64::MAX,
        i64::MAX - 1,
        1 << 62,
        7,
        -7,
        -(1 << 62),
        i64::MIN + 1,
        i64::MIN,
    ] {
        for packed in [false, true] {
            for (window, open) in [
                (None, true),
                (Some(no_window), true),
                (Some(at_own_place), false),
            ] {
                let attention = Attention {
                    causal: Some(Causal::Offset(offset)),
                    window,
                    documents: packed.then(|| documents.clone()),
                    ..Attention::default()
                };
                let what = (offset, packed, window);
                let found = tried(&attention).unwrap();
                match offset > 0 && open {
                    true if !packed => assert_results_same(&found, &plain, &what),
                    true => assert!(found.empty_rows.is_empty(), "{what:?}"),
                    false => assert_eq!(found.empty_rows.len(), 24, "{what:?}"),
                }
                // ALiBi, dropout, lengths and sinks besides: no overflow, no NaN.
                let all = Attention {
                    alibi: Some(Alibi {
                        slopes: vec![0.5, -0.5, 0.0, 1e300],
                    }),
                    dropout: Some(Dropout { p: 0.5, seed: 3 }),
                    lengths: Some(KeyLengths(vec![5, 2])),
                    sinks: Some(Sinks(vec![0.0; 4])),
                    ..attention
                };
                let finite = Attention {
                    alibi: Some(Alibi {
                        slopes: vec![0.5, -0.5, 0.0, 0.1],
                    }),
                    ..all.clone()
                };
                let found = tried(&finite).unwrap();
                assert!(
                    found.output.data().iter().all(|x| x.is_finite()),
                    "{what:?}"
                );
                tried(&all).unwrap(); // 1e300·2^63 may overflow to −inf: a score as any other
                // Rotary embeddings refuse what they cannot tell apart, and nothing else.
                let block = Block {
                    rotary: Some(Rotary::default()),
                    attention: finite,
                    ..Block::default()
                };
                let rotated = block.steps(&inputs);
                assert_eq!(rotated.is_ok(), offset.unsigned_abs() < 1 << 53, "{what:?}");
            }
        }
    }
    for window in [
        no_window,
        Window {
            back: None,
            forward: Some(usize::MAX),
        },
        Window {
            back: Some(usize::MAX),
            forward: None,
        },
        Window {
            back: None,
            forward: None,
        },
    ] {
        let attention = Attention {
            window: Some(window),
            ..Attention::default()
        };
        assert_results_same(&tried(&attention).unwrap(), &plain, &window);
    }
}

/// Positions beyond 2³² count modulo 2³² for dropout, as its definition says.
#[test]
fn dropout_far_away() {
    let inputs = fitting();
    let at = |offset: i64| {
        let attention = Attention {
            causal: Some(Causal::Offset(offset)),
            dropout: Some(Dropout { p: 0.5, seed: 8 }),
            ..Attention::default()
        };
        definition::forward(&attention, &inputs).unwrap()
    };
    let near = at(10);
    assert_results_same(&at(10 + (1 << 32)), &near, &"2^32");
    assert_results_same(&at(10 + (7 << 33)), &near, &"7·2^33");
    assert_ne!(at(11), near);
    assert_ne!(at((1 << 32) - 5), near);
    let dropout = Dropout { p: 0.5, seed: 8 };
    let word = |position| {
        (0..64)
            .map(|j| definition::drops(dropout, 0, 0, position, j))
            .collect::<Vec<_>>()
    };
    assert_eq!(word(-1), word((1 << 32) - 1));
    assert_ne!(word(-1), word(1));
    for j in [usize::MAX, usize::MAX - 1, 1 << 34] {
        for position in [i64::MAX, i64::MIN] {
            // no overflow
            definition::drops(dropout, usize::MAX, usize::MAX, position, j);
        }
    }
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
