//! Arrays written value by value, and numbers that stay in a mapped file.

#![allow(missing_docs)]

use qkv_io::half::{bf16, f16};
use qkv_io::{Chunk, Encoded, Encoding, Given, Mapped, encode, open_argument_within, read_bytes};
use std::fs;
use std::path::Path;

fn encoded(encoding: Encoding, arrays: Vec<Encoded<'_>>) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(&mut bytes, encoding, arrays, &[]).expect("encoded");
    bytes
}

/// What is written is read as the same, of every type and shape that the format has.
#[test]
fn every_type_and_shape_comes_back() {
    let halves = [0.5, -65504.0, f32::NEG_INFINITY, 6e-8].map(f16::from_f32);
    let brains = [0.5, 3e38, f32::INFINITY, 1e-40].map(bf16::from_f32);
    let singles = [0.1_f32, f32::MAX, f32::NEG_INFINITY, 1e-45];
    let doubles = [0.1, f64::MIN, f64::INFINITY, 5e-324];
    let (signed, unsigned) = ([i64::MIN, -1, 0, i64::MAX], [0, 1, 2, u64::MAX]);
    let chunks: [Chunk<'_>; 7] = [
        halves[..].into(),
        brains[..].into(),
        singles[..].into(),
        doubles[..].into(),
        signed[..].into(),
        unsigned[..].into(),
        [true, false, true, true][..].into(),
    ];
    for values in chunks {
        for shape in [&[4][..], &[2, 2], &[1, 4, 1], &[2, 1, 2, 1]] {
            for encoding in [Encoding::Npy, Encoding::Npz, Encoding::Safetensors] {
                if values.dtype() == "bf16" && encoding != Encoding::Safetensors {
                    continue;
                }
                let bytes = encoded(encoding, vec![Encoded::whole("x", shape, values)]);
                let read = read_bytes(&bytes, None, "x").expect("an array");
                assert_eq!(read.shape, shape, "{encoding:?} {}", values.dtype());
                assert_eq!(read.dtype(), values.dtype(), "{encoding:?} {shape:?}");
                let back = encoded(encoding, vec![Encoded::whole("x", shape, &read.values)]);
                assert!(back == bytes, "{encoding:?} {} {shape:?}", values.dtype());
            }
        }
    }
}

#[test]
fn json_of_every_shape() {
    let json = |shape: &[usize], values: &[f32]| {
        let bytes = encoded(Encoding::Json, vec![Encoded::whole("x", shape, values)]);
        String::from_utf8(bytes).expect("UTF-8")
    };
    assert_eq!(json(&[], &[0.1]), "{\"x\":0.1}\n");
    assert_eq!(json(&[0], &[]), "{\"x\":[]}\n");
    assert_eq!(json(&[2, 0], &[]), "{\"x\":[[],[]]}\n");
    assert_eq!(json(&[0, 2], &[]), "{\"x\":[]}\n");
    assert_eq!(
        json(&[2, 1, 2], &[1.0, f32::NAN, f32::INFINITY, -2.5]),
        "{\"x\":[[[1.0,\"nan\"]],[[\"inf\",-2.5]]]}\n"
    );
    assert_eq!(encoded(Encoding::Json, Vec::new()), b"{}\n");
}

/// Values lie at a multiple of their size, whatever is beside them.
#[test]
fn values_are_aligned() {
    let half = [f16::ONE];
    let arrays = vec![
        Encoded::whole("half", &[1], &half[..]),
        Encoded::whole("double", &[1], &[1.5_f64][..]),
        Encoded::whole("single", &[1], &[2.5_f32][..]),
    ];
    let bytes = encoded(Encoding::Safetensors, arrays);
    let place = |value: &[u8]| {
        let found = bytes
            .windows(value.len())
            .rposition(|window| window == value);
        found.expect("the value")
    };
    assert_eq!(place(&1.5_f64.to_le_bytes()) % 8, 0);
    assert_eq!(place(&2.5_f32.to_le_bytes()) % 4, 0);
    for length in 0..130 {
        let shape = vec![1; length % 60 + 1];
        let bytes = encoded(
            Encoding::Npy,
            vec![Encoded::whole("x", &shape, &[1.5_f64][..])],
        );
        assert_eq!((bytes.len() - 8) % 64, 0, "{shape:?}");
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let refused = |encoding, array: Encoded<'_>| {
        let mut bytes = Vec::new();
        let error = encode(&mut bytes, encoding, vec![array], &[]).expect_err("refused");
        error.to_string()
    };
    let one = [bf16::ONE];
    for encoding in [Encoding::Npy, Encoding::Npz] {
        let says = refused(encoding, Encoded::whole("x", &[1], &one[..]));
        assert!(
            says.contains("bf16") && says.contains("safetensors"),
            "{says}"
        );
    }
    for (shape, word) in [(&[3][..], "fewer"), (&[1], "other")] {
        let says = refused(Encoding::Json, Encoded::whole("x", shape, &[1.0, 2.0][..]));
        assert!(says.contains(word), "{says}");
    }
    let two = vec![
        Encoded::whole("a", &[1], &[1.0][..]),
        Encoded::whole("b", &[1], &[1.0][..]),
    ];
    assert!(encode(&mut Vec::new(), Encoding::Npy, two, &[]).is_err());
}

/// A file of 2 MiB.
fn mapped(path: &Path) -> Mapped {
    let values: Vec<f32> = (0..1 << 19).map(|i| i as f32).collect();
    fs::write(
        path,
        encoded(
            Encoding::Npy,
            vec![Encoded::whole("x", &[1 << 19], &values[..])],
        ),
    )
    .expect("written");
    let path = path.to_string_lossy();
    match open_argument_within(&path, &mut std::io::empty(), 0) {
        Ok(Given::Mapped(mapped)) => mapped,
        other => unreachable!("{other:?}"),
    }
}

#[test]
fn a_mapped_file_that_changes_is_noticed() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("x.npy");
    let array = mapped(&path);
    assert_eq!((array.shape(), array.dtype()), (&[1 << 19][..], "f32"));
    assert_eq!(array.values::<f32>().map(|values| values[77]), Some(77.0));
    assert_eq!(array.values::<f64>(), None);
    array.check_unchanged().expect("unchanged");
    // Replaced by another of the same name, as a rename does, it is still the old file.
    let other = folder.path().join("other.npy");
    fs::copy(&path, &other).expect("copied");
    fs::rename(&other, &path).expect("renamed");
    array.check_unchanged().expect("unchanged");
    let array = mapped(&path);
    let longer = fs::OpenOptions::new().append(true).open(&path);
    std::io::Write::write_all(&mut longer.expect("the file"), b"more").expect("written");
    let says = array.check_unchanged().expect_err("changed").to_string();
    assert!(
        says.contains("x.npy was changed while its numbers were in use"),
        "{says}"
    );
}
