//! Masks, biases and every other option.

use crate::*;
use qkv::{
    Alibi, AnyView, Attention, Bias, Causal, Documents, Dropout, EmptyRows, Error, Inputs,
    KeyLengths, Mask, Scale, Sinks, View,
};

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
        let shown = format!(
            "{count} value{} given, but 4 needed",
            if count == 1 { "" } else { "s" }
        );
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
        let shown = format!(
            "{count} value{} given, but 2 needed",
            if count == 1 { "" } else { "s" }
        );
        refused(tried(&lengths(list)), &["lengths", &shown, "batch entry"]);
    }
    for list in [[5, 6], [6, 0], [0, usize::MAX]] {
        let long = list.iter().max().unwrap().to_string();
        refused(
            tried(&lengths(&list)),
            &["lengths", &long, "k has 5 keys", "more keys"],
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
        &["documents", "1 value given, but 2 needed", "number of keys"],
    );
}

#[test]
fn a_bare_causal_mask_is_square() {
    let square = Attention {
        causal: Some(Causal::Square),
        ..Attention::default()
    };
    let names = ["top-left", "bottom-right", "offset"];
    let counts = ["3 queries against 5 keys there are"];
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
    let counts = ["1 query against 3 keys in document 1"];
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
