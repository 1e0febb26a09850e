//! Literals: what is read, and what is a literal at all.
#![allow(clippy::unwrap_used, clippy::panic)]

use proptest::prelude::*;
use qkv_io::{parse_literal, read_argument};

#[test]
fn shapes() {
    for (text, shape) in [
        ("3", vec![1, 1]),
        ("1 0 1", vec![1, 3]),
        ("1,0,1", vec![1, 3]),
        ("1, 0 ,1", vec![1, 3]),
        ("1;0;1", vec![3, 1]),
        ("1 0; 0 1", vec![2, 2]),
        ("1 0; 0 1;", vec![2, 2]),
        ("1 0\n0 1\n", vec![2, 2]),
        ("1 0;\n 0 1", vec![2, 2]),
        ("1 0\r\n0 1", vec![2, 2]),
        ("1\u{3000}0；0，1", vec![2, 2]),
        ("[3]", vec![1]),
        ("[1 2 3]", vec![3]),
        ("[[1,0],[0,1]]", vec![2, 2]),
        ("[[1 0] [0 1]]", vec![2, 2]),
        ("[1 0; 0 1]", vec![2, 2]),
        ("[[[1],[2]]]", vec![1, 2, 1]),
        ("[[[[1,2]]]]", vec![1, 1, 1, 2]),
        ("［［1，0］，［0，1］］", vec![2, 2]),
        ("[true, false]", vec![2]),
    ] {
        assert_eq!(parse_literal(text).unwrap().shape, shape, "{text}");
        assert_eq!(
            read_argument(text, &mut std::io::empty()).unwrap().shape,
            shape,
            "{text}"
        );
    }
}

#[test]
fn numbers() {
    for (text, value) in [
        ("+1.5", 1.5),
        ("1e-3", 0.001),
        (".5", 0.5),
        ("5.", 5.0),
        ("\u{2212}2", -2.0),
        ("1E2", 100.0),
        ("inf", f64::INFINITY),
        ("-inf", f64::NEG_INFINITY),
        ("−Infinity", f64::NEG_INFINITY),
        ("1e-400", 0.0),
        ("1.7976931348623157e308", f64::MAX),
        ("0.1", 0.1),
    ] {
        assert_eq!(
            parse_literal(text).unwrap().to_f64().unwrap(),
            [value],
            "{text}"
        );
    }
    assert!(parse_literal("nan").unwrap().to_f64().unwrap()[0].is_nan());
    assert!(parse_literal("-0").unwrap().to_f64().unwrap()[0].is_sign_negative());
    let far = parse_literal("1e-99999999999 1e99999999999999999999999").unwrap_err();
    assert!(far.to_string().contains("too large"), "{far}");
    assert_eq!(
        parse_literal("1e-99999999999").unwrap().decimals,
        Some(vec![i32::MAX - 1])
    );
}

#[test]
fn a_file_called_like_a_number_is_given_with_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("1");
    std::fs::write(&path, "5 6").unwrap();
    let array = read_argument(path.to_str().unwrap(), &mut std::io::empty()).unwrap();
    assert_eq!(array.to_f64().unwrap(), [5.0, 6.0]);
}

#[test]
fn what_is_neither_file_nor_literal_says_both() {
    for argument in [
        "1 0; 0 x",
        "1 0; 0 one",
        "2.5.1",
        "q;k",
        "array([[1, 0], [0, 1]])",
        "1/3",
    ] {
        let error = read_argument(argument, &mut std::io::empty())
            .unwrap_err()
            .to_string();
        assert!(error.contains("there is no file"), "{argument}: {error}");
        assert!(
            error.contains("as a literal it fails"),
            "{argument}: {error}"
        );
    }
    let error = read_argument("missing.npy", &mut std::io::empty())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("missing.npy") && !error.contains("fails"),
        "{error}"
    );
    // Numbers between separators are a literal, even where one of them is wrong.
    let error = read_argument("1/3 0; 0 1", &mut std::io::empty())
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("argument, line 1, character 1"),
        "{error}"
    );
}

#[test]
fn a_hundred_thousand_brackets() {
    for text in [
        "[".repeat(100_000),
        format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000)),
    ] {
        assert!(
            parse_literal(&text)
                .unwrap_err()
                .to_string()
                .contains("nested more than 4 deep")
        );
        let error = qkv_io::read_bytes(text.as_bytes(), None, "t")
            .unwrap_err()
            .to_string();
        assert!(error.contains("nested more than 32 deep"), "{error}");
    }
    let object = "{\"a\":".repeat(100_000);
    assert!(qkv_io::read_bytes(object.as_bytes(), None, "t").is_err());
}

proptest! {
    #[test]
    fn every_number_comes_back(values in prop::collection::vec(any::<f64>(), 1..12)) {
        let typed: Vec<String> = values.iter().map(|x| format!("{x:?}")).collect();
        for text in [typed.join(" "), typed.join(","), format!("[{}]", typed.join(", "))] {
            let read = parse_literal(&text).unwrap().to_f64().unwrap();
            for (a, b) in values.iter().zip(&read) {
                prop_assert!(a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan()));
            }
        }
    }

    #[test]
    fn no_text_panics(text in "[\\[\\]；;,，0-9e.+\\-−\" \n\t{}:#a-z/]{0,60}") {
        let _ = parse_literal(&text);
        let _ = qkv_io::read_bytes(text.as_bytes(), None, "t");
        let _ = qkv_io::read_bytes(text.as_bytes(), Some("a"), "t");
    }

    #[test]
    fn both_notations_agree(rows in 1..4_usize, columns in 1..4_usize, seed in any::<u32>()) {
        let value = |i: usize| f64::from(seed.wrapping_mul(i as u32 + 1)) / 1000.0 - 1e6;
        let grid: Vec<Vec<String>> = (0..rows)
            .map(|r| (0..columns).map(|c| value(r * columns + c).to_string()).collect())
            .collect();
        let joined = |cell: &str| grid.iter().map(|row| row.join(cell)).collect::<Vec<_>>();
        let a = parse_literal(&joined(" ").join("; ")).unwrap();
        let b = parse_literal(&format!("[[{}]]", joined(",").join("],["))).unwrap();
        let c = qkv_io::read_bytes(joined(",").join("\n").as_bytes(), None, "t").unwrap();
        prop_assert_eq!(&a, &b);
        prop_assert_eq!(&a, &c);
    }
}
