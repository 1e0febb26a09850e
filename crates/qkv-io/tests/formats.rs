//! Every format, element type, order and endianness that is read.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{bytes, data, npy, safetensors, tensor, zip};
use qkv_io::{Array, Values, half, read_argument, read_bytes, read_file};

fn read(bytes: &[u8]) -> Array {
    read_bytes(bytes, None, "test").unwrap_or_else(|e| panic!("{e}"))
}

fn check(case: &str, array: &Array, shape: &[usize], dtype: &str, values: &[f64]) {
    assert_eq!(array.shape, shape, "{case}");
    assert_eq!(array.dtype(), dtype, "{case}");
    assert_eq!(array.to_f64().unwrap(), values, "{case}");
    assert_eq!(array.len(), values.len(), "{case}");
}

const SIX: [f64; 6] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];

#[test]
fn npy_of_every_type_order_and_endianness() {
    let types = [
        ("f2", "f16"),
        ("f4", "f32"),
        ("f8", "f64"),
        ("i1", "i64"),
        ("i2", "i64"),
        ("i4", "i64"),
        ("i8", "i64"),
        ("u1", "u64"),
        ("u2", "u64"),
        ("u4", "u64"),
        ("u8", "u64"),
    ];
    let mut seen = 0;
    for (code, dtype) in types {
        for endianness in ["le", "be"] {
            for order in ["c", "f"] {
                let name = format!("{code}_{endianness}_{order}.npy");
                if endianness == "be" && code.ends_with('1') {
                    continue;
                }
                check(
                    &name,
                    &read_file(&data(&name), None).unwrap(),
                    &[2, 3],
                    dtype,
                    &SIX,
                );
                check(&name, &read(&bytes(&name)), &[2, 3], dtype, &SIX);
                seen += 1;
            }
        }
    }
    assert_eq!(seen, 40);
    for name in ["b1_le_c.npy", "b1_le_f.npy"] {
        check(
            name,
            &read(&bytes(name)),
            &[2, 3],
            "bool",
            &[1.0, 0.0, 1.0, 0.0, 1.0, 0.0],
        );
    }
}

#[test]
fn npy_versions_ranks_and_empty() {
    for name in ["version2.npy", "version3.npy"] {
        check(name, &read(&bytes(name)), &[2, 3], "f32", &SIX);
    }
    check("scalar", &read(&bytes("scalar.npy")), &[], "f64", &[2.5]);
    check("empty", &read(&bytes("empty.npy")), &[0, 3], "f32", &[]);
    let counted: Vec<f64> = (0..24).map(f64::from).collect();
    check(
        "rank 5",
        &read(&bytes("rank5_f.npy")),
        &[1, 2, 3, 2, 2],
        "f32",
        &counted,
    );
}

#[test]
fn npy_headers_that_others_write() {
    let one = 1.5_f32.to_le_bytes();
    for dictionary in [
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }\n",
        "{'shape':(1,),'fortran_order':False,'descr':'<f4'}",
        "{\"descr\": \"<f4\", \"fortran_order\": True, \"shape\": (1,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1L,), }",
        "{ 'descr' : '=f4' , 'fortran_order' : False , 'shape' : ( 1 , ) }   ",
    ] {
        check(
            dictionary,
            &read(&npy(dictionary, &one)),
            &[1],
            "f32",
            &[1.5],
        );
    }
}

#[test]
fn safetensors_of_every_type() {
    let f = |v: &[f64]| v.to_vec();
    let cases: Vec<(&str, Vec<u8>, &str, Vec<f64>)> = vec![
        ("BOOL", vec![1, 0], "bool", f(&[1.0, 0.0])),
        ("U8", vec![255, 0], "u64", f(&[255.0, 0.0])),
        ("I8", vec![255, 127], "i64", f(&[-1.0, 127.0])),
        ("U16", vec![0xff, 0xff, 1, 0], "u64", f(&[65535.0, 1.0])),
        ("I16", vec![0xff, 0xff, 1, 0], "i64", f(&[-1.0, 1.0])),
        ("F16", vec![0, 0x3c, 0, 0xbe], "f16", f(&[1.0, -1.5])),
        ("BF16", vec![0x80, 0x3f, 0xc0, 0x3f], "bf16", f(&[1.0, 1.5])),
        (
            "U32",
            [u32::MAX, 7].iter().flat_map(|x| x.to_le_bytes()).collect(),
            "u64",
            f(&[4294967295.0, 7.0]),
        ),
        (
            "I32",
            [-2_i32, 7].iter().flat_map(|x| x.to_le_bytes()).collect(),
            "i64",
            f(&[-2.0, 7.0]),
        ),
        (
            "F32",
            [0.5_f32, -2.0]
                .iter()
                .flat_map(|x| x.to_le_bytes())
                .collect(),
            "f32",
            f(&[0.5, -2.0]),
        ),
        (
            "U64",
            [3_u64, 7].iter().flat_map(|x| x.to_le_bytes()).collect(),
            "u64",
            f(&[3.0, 7.0]),
        ),
        (
            "I64",
            [-3_i64, 7].iter().flat_map(|x| x.to_le_bytes()).collect(),
            "i64",
            f(&[-3.0, 7.0]),
        ),
        (
            "F64",
            [0.1_f64, f64::INFINITY]
                .iter()
                .flat_map(|x| x.to_le_bytes())
                .collect(),
            "f64",
            f(&[0.1, f64::INFINITY]),
        ),
    ];
    for (dtype, raw, ours, values) in cases {
        check(
            dtype,
            &read(&tensor(dtype, &[2], &raw)),
            &[2],
            ours,
            &values,
        );
        check(
            dtype,
            &read(&tensor(dtype, &[1, 2, 1], &raw)),
            &[1, 2, 1],
            ours,
            &values,
        );
    }
}

#[test]
fn safetensors_by_name() {
    let header = r#"{"__metadata__":{"format":"pt"},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a:b":{"dtype":"U8","shape":[],"data_offsets":[1,2]}}  "#;
    let file = safetensors(header, &[7, 8]);
    assert_eq!(
        read_bytes(&file, Some("a"), "t").unwrap().to_f64().unwrap(),
        [7.0]
    );
    assert_eq!(
        read_bytes(&file, Some("a:b"), "t").unwrap().shape,
        [0_usize; 0]
    );
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("odd:name.bin");
    std::fs::write(&path, &file).unwrap();
    let argument = format!("{}:a", path.display());
    assert_eq!(
        read_argument(&argument, &mut std::io::empty())
            .unwrap()
            .len(),
        1
    );
    let stdin = read_argument("-:a", &mut &file[..]).unwrap();
    assert_eq!(stdin.values, Values::U64(vec![7]));
}

#[test]
fn npz_stored_and_deflated() {
    for name in ["stored.npz", "deflated.npz"] {
        let file = bytes(name);
        let dtype = if name.starts_with('s') { "f32" } else { "f64" };
        for q in ["q", "q.npy"] {
            check(
                name,
                &read_bytes(&file, Some(q), name).unwrap(),
                &[2, 3],
                dtype,
                &SIX,
            );
        }
        let mask = read_bytes(&file, Some("mask"), name).unwrap();
        assert_eq!(
            mask.to_bools().unwrap(),
            [false, false, false, true, true, true],
            "{name}"
        );
        let argument = format!("{}:mask", data(name).display());
        assert_eq!(
            read_argument(&argument, &mut std::io::empty()).unwrap(),
            mask
        );
    }
    check("one", &read(&bytes("one.npz")), &[2, 3], "f32", &SIX);
    // A member in a folder, beside other things.
    let inner = bytes("f4_le_c.npy");
    let file = zip(&[("notes.txt", b"hello"), ("heads/0.npy", &inner)], true);
    check("folder", &read(&file), &[2, 3], "f32", &SIX);
    check(
        "folder",
        &read_bytes(&file, Some("heads/0"), "t").unwrap(),
        &[2, 3],
        "f32",
        &SIX,
    );
}

#[test]
fn text_in_every_notation() {
    let (eye, row) = (
        ([2, 2], vec![1.0, 0.0, 0.0, 1.0]),
        ([1, 3], vec![1.0, 0.5, 2.0]),
    );
    for text in [
        "1,0\n0,1\n",
        "1;0\n0;1",
        "1\t0\r\n0\t1\r\n",
        "1 0\n0 1",
        "1 0; 0 1",
        "1,0; 0,1",
        "1 0;\n0 1;\n",
        "[[1,0],[0,1]]",
        "[[1 0]\n [0 1]]",
        "［［1，0］，［0，1］］",
        "1 0；0 1",
        "# a comment\n1 0\n# another\n0 1\n",
        "# a comment\n1,0\n# another\n0,1\n",
        "x,y\n1,0\n0,1",
        "x;y\n1;0\n0;1",
        "x\ty\n1\t0\n0\t1",
        "\"x\",\"y\"\n\"1\",\"0\"\n0,1",
        "\u{feff}1,0\n0,1",
        "\u{feff}[[1,0],[0,1]]",
        "  1 ,  0\n\n  0 , 1  \n\n",
        "{\"q\": [[1,0],[0,1]]}",
        "{\"a\": {\"q\": [[1,0],[0,1]]}}",
        "[1 0; 0 1]",
    ] {
        check(text, &read(text.as_bytes()), &eye.0, "f64", &eye.1);
        check(
            text,
            &read_argument("-", &mut text.as_bytes()).unwrap(),
            &eye.0,
            "f64",
            &eye.1,
        );
    }
    for text in [
        "1,0.5,2",
        "1 .5 2",
        "1\t+0.5\t2.",
        "[[1, 5e-1, 2]]",
        "1 0.5 2;",
    ] {
        check(text, &read(text.as_bytes()), &row.0, "f64", &row.1);
    }
    check("column", &read(b"x\n1\n2\n"), &[2, 1], "f64", &[1.0, 2.0]);
    check("column", &read(b"1;\n2;\n"), &[2, 1], "f64", &[1.0, 2.0]);
    check("one", &read(b"3"), &[1, 1], "f64", &[3.0]);
    check(
        "truths",
        &read(b"True,False\nFALSE,true"),
        &[2, 2],
        "bool",
        &eye.1,
    );
    check("truths", &read(b"[true, false]"), &[2], "bool", &[1.0, 0.0]);
    let savetxt = read(&bytes("savetxt.txt"));
    assert_eq!(
        (savetxt.shape, savetxt.decimals.unwrap()[0]),
        (vec![2, 3], 19)
    );
}

#[test]
fn decimals_are_kept_as_typed() {
    let expected = Some(vec![4, 0, -2, 5, i32::MAX, 1]);
    for text in [
        "[0.3302, 12, 1.5e3, 3e-5, nan, -.5]",
        "[0.3302, 12, 1.5e3, 3e-5, \"nan\", -0.5]",
        "0.3302,12,1.5e3,3e-5,nan,-.5",
        "0.3302 12 1.5E+3 3e-05 -inf \u{2212}.5;",
        "{\"weights\": [0.3302, 12, 1.5e3, 3e-5, \"-inf\", -0.5]}",
    ] {
        assert_eq!(read(text.as_bytes()).decimals, expected, "{text}");
    }
    assert_eq!(read(b"[true]").decimals, None);
    assert_eq!(read(&bytes("f4_le_c.npy")).decimals, None);
}

#[test]
fn json_objects_by_name() {
    let text = r#"{
      "shapes": {"q": [1, 2]}, "note": "x", "scale": 0.5,
      "steps": [{"name": "scores", "shape": [1, 2], "values": [["-inf", 1.25]]},
                {"name": "lse", "shape": [1], "values": ["nan"]}]
    }"#;
    let get = |name| read_bytes(text.as_bytes(), Some(name), "explain.json").unwrap();
    assert_eq!(get("scores").to_f64().unwrap(), [f64::NEG_INFINITY, 1.25]);
    assert!(get("lse").to_f64().unwrap()[0].is_nan());
    assert_eq!(get("shapes.q").to_f64().unwrap(), [1.0, 2.0]);
    assert_eq!(
        (get("scale").shape, get("scale").decimals),
        (vec![], Some(vec![1]))
    );
    // Names that JSON writes with escapes.
    let escaped = r#"{"注意": [1], "a\"b": [2]}"#.as_bytes();
    assert_eq!(
        read_bytes(escaped, Some("注意"), "t")
            .unwrap()
            .to_f64()
            .unwrap(),
        [1.0]
    );
    assert_eq!(
        read_bytes(escaped, Some("a\"b"), "t")
            .unwrap()
            .to_f64()
            .unwrap(),
        [2.0]
    );
}

#[test]
fn integers_and_truths_convert_exactly_or_not_at_all() {
    let array = |values| Array {
        shape: vec![2, 1],
        values,
        decimals: None,
    };
    let edge = array(Values::U64(vec![1 << 53, u64::MAX]));
    let error = edge.to_f64().unwrap_err().to_string();
    assert!(error.contains("18446744073709551615 at [1, 0]"), "{error}");
    let edge = array(Values::I64(vec![i64::MIN, -(1 << 53) - 1]));
    assert!(
        edge.to_f64()
            .unwrap_err()
            .to_string()
            .contains("-9007199254740993 at [1, 0]")
    );
    assert_eq!(
        array(Values::I64(vec![i64::MIN, 5])).to_f64().unwrap()[0],
        -(2_f64.powi(63))
    );
    let half = half::f16::from_f32;
    let ones: [Values; 7] = [
        Values::F16(vec![half(0.0), half(1.0)]),
        Values::Bf16(vec![half::bf16::ZERO, half::bf16::ONE]),
        Values::F32(vec![-0.0, 1.0]),
        Values::F64(vec![0.0, 1.0]),
        Values::I64(vec![0, 1]),
        Values::U64(vec![0, 1]),
        Values::Bool(vec![false, true]),
    ];
    for values in ones {
        assert_eq!(array(values).to_bools().unwrap(), [false, true]);
    }
    for (values, shown) in [
        (Values::F16(vec![half(0.0), half(0.5)]), "0.5"),
        (Values::F64(vec![0.0, f64::NAN]), "NaN"),
        (Values::F32(vec![0.0, f32::NEG_INFINITY]), "-inf"),
        (Values::I64(vec![0, -1]), "-1"),
        (Values::U64(vec![0, 255]), "255"),
    ] {
        let error = array(values).to_bools().unwrap_err().to_string();
        assert!(
            error.contains(&format!("the value {shown} at [1, 0]")),
            "{error}"
        );
    }
}

#[test]
fn b109_pytorch_zip_renamed_safetensors() {
    let start = [0x50, 0x4B, 0x03, 0x04, 0x14, 0x00, 0x08, 0x08];
    for tail in [0, 40, 5000] {
        let mut file = start.to_vec();
        file.resize(8 + tail, 0);
        let error = read_bytes(&file, None, "model.safetensors")
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("PyTorch") && error.contains("zip"),
            "{error}"
        );
        assert!(error.contains("not safetensors"), "{error}");
    }
    let whole = zip(
        &[
            ("archive/data.pkl", b"\x80\x02."),
            ("archive/data/0", b"...."),
        ],
        false,
    );
    let error = read_bytes(&whole, None, "model.safetensors")
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("this is a zip (PyTorch) file, not safetensors"),
        "{error}"
    );
    assert!(
        error.contains("torch.load('model.safetensors', weights_only=True)"),
        "{error}"
    );
}

#[test]
fn b111_download_that_stopped() {
    let header = r#"{"x":{"dtype":"F32","shape":[8],"data_offsets":[0,32]}}"#;
    let error = read_bytes(&safetensors(header, &[0; 16]), None, "m")
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("file is 16 bytes short (expected 32 of data"),
        "{error}"
    );
    assert!(error.contains("download again"), "{error}");
}

#[test]
fn b113_bf16_tensor() {
    let array = read(&tensor("BF16", &[2], &[0x80, 0x3F, 0xC0, 0x3F]));
    check("B113", &array, &[2], "bf16", &[1.0, 1.5]);
}

#[test]
fn b114_column_major_npy() {
    let stored: Vec<u8> = (1..=6_u8)
        .flat_map(|x| f32::from(x).to_le_bytes())
        .collect();
    let file = npy(
        "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }",
        &stored,
    );
    check(
        "B114",
        &read(&file),
        &[2, 3],
        "f32",
        &[1.0, 3.0, 5.0, 2.0, 4.0, 6.0],
    );
}

#[test]
fn b121_gguf_where_npy_was_expected() {
    let error = read_bytes(b"GGUF\x03\0\0\0\0\0\0\0", None, "q.npy")
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("this is a GGUF file, not npy (byte 0: 47 47 55 46)"),
        "{error}"
    );
}

#[test]
fn standard_input_and_pipes_take_binary_files_too() {
    let file = bytes("f4_le_f.npy");
    check(
        "stdin",
        &read_argument("-", &mut &file[..]).unwrap(),
        &[2, 3],
        "f32",
        &SIX,
    );
    let file = bytes("deflated.npz");
    assert_eq!(
        read_argument("-:mask", &mut &file[..]).unwrap().dtype(),
        "bool"
    );
}

/// The length of the header, whose first bytes may be those of another format.
#[test]
fn a_length_is_no_pickle_and_no_gzip() {
    for length in [0x0480_usize, 0x0280, 0x8b1f] {
        let mut file = (length as u64).to_le_bytes().to_vec();
        let entry = r#"{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}"#;
        file.extend(format!("{entry}{}}}", " ".repeat(length - entry.len() - 1)).bytes());
        file.extend(1.5_f32.to_le_bytes());
        check("length", &read(&file), &[1], "f32", &[1.5]);
    }
}
