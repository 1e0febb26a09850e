//! Files that are damaged, foreign or contradict themselves: each is an error whose text names the
//! fault, the byte and the remedy.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{bytes, npy, refused, safetensors, tensor, zip};
use qkv_io::read_bytes;

#[test]
fn foreign_formats() {
    let mut tar = vec![0_u8; 512];
    tar[..4].copy_from_slice(b"file");
    tar[257..262].copy_from_slice(b"ustar");
    let mut torch_tar = tar.clone();
    torch_tar[..8].copy_from_slice(b"sys_info");
    let torch_legacy = b"\x80\x02\x8a\x0al\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";
    let cases: &[(&[u8], &[&str])] = &[
        (b"GGUF\x03\0\0\0", &["GGUF", "47 47 55 46", "takes a model"]),
        (b"\x89HDF\r\n\x1a\n....", &["HDF5", "h5py"]),
        (b"\x1f\x8b\x08\0", &["gzip", "gunzip -k q.npy"]),
        (b"\x28\xb5\x2f\xfd\0", &["zstd", "zstd -d q.npy"]),
        (b"\xfd7zXZ\0", &["xz"]),
        (b"BZh91AY", &["bzip2"]),
        (b"7z\xbc\xaf\x27\x1c", &["7z"]),
        (b"\x89PNG\r\n\x1a\n", &["PNG image"]),
        (b"\xff\xd8\xff\xe0", &["JPEG"]),
        (b"%PDF-1.7", &["PDF"]),
        (b"\x7fELF\x02", &["ELF"]),
        (b"PAR1\x15\0", &["Parquet", "to_numpy"]),
        (b"ARROW1\0\0", &["Arrow"]),
        (b"MATLAB 5.0 MAT-file, x", &["MATLAB", "loadmat"]),
        (b"SQLite format 3\0", &["SQLite"]),
        (b"\x1c\0\0\0TFL3", &["TensorFlow Lite", "byte 4"]),
        (b"\x80\x04\x95", &["pickle", "nothing is unpickled"]),
        (
            torch_legacy,
            &["legacy PyTorch", "torch.load('q.npy', weights_only=True)"],
        ),
        (&tar, &["tar file", "byte 257", "75 73 74 61 72"]),
        (&torch_tar, &["old PyTorch tar", "torch.load"]),
        (&[0; 100], &["format is not known", "00 00 00", "give npy"]),
        (b"\x01\x02\x03", &["format is not known", "01 02 03"]),
        (b"", &["is empty (0 bytes)"]),
    ];
    for (file, facts) in cases {
        refused(facts[0], file, None, "q.npy", facts);
    }
    // A file name that could break out of the command is not printed in it.
    refused(
        "quote",
        torch_legacy,
        None,
        "it's.pt",
        &["torch.load('FILE'"],
    );
}

/// A type that is no type is damage; one of NumPy's that is not read is told with what to do.
#[test]
fn types_that_are_none() {
    let message = |descr: &str| {
        let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': (1,), }}");
        read_bytes(&npy(&header, &[0; 64]), None, "x.npy")
            .unwrap_err()
            .to_string()
    };
    for descr in [
        "<f0",
        "<f-1",
        "<f+8",
        "<f",
        "<f08",
        "<f99999999999999999999",
        "<f1",
        "<i16",
        "<i0",
        "<u3",
        "<c4",
        "<b8",
        "|f4",
        "|c8",
        "f4",
        "float32",
        "<x4",
        "<",
        "",
        "4",
        "?",
        "<M4",
        "<M",
        "<V",
        "<U-1",
        "|O-",
        "é",
        "<é",
    ] {
        let says = message(descr);
        let expected = format!(
            "x.npy: npy damaged at byte 20: the type '{descr}' is not known (one is '<f4'); save it \
             again with numpy.save"
        );
        assert_eq!(says, expected);
    }
    for descr in [
        "<f12", "<f16", ">f16", "<c8", "<c16", "<c32", "|O", "|O8", "<U0", "<U12", "|S5", "|a5",
        "|T16", "|V3", "<V2", "<M8", "<M8[25s]", "<m8[ns]",
    ] {
        let says = message(descr);
        let expected = format!("x.npy: npy array at byte 20 has element type {descr}; ");
        assert!(says.starts_with(&expected), "{says}");
    }
}

#[test]
fn bad_npy() {
    let dict = |descr: &str, shape: &str| {
        format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}")
    };
    let mut version9 = bytes("f4_le_c.npy");
    version9[6] = 9;
    let mut long_header = bytes("version2.npy");
    long_header[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
    let with = |dictionary: &str| npy(dictionary, &[0; 8]);
    let good = bytes("f4_le_c.npy");
    let cases: Vec<(&str, Vec<u8>, &[&str])> = vec![
        (
            "bf16",
            bytes("bfloat16.npy"),
            &[
                "byte 20",
                "<V2",
                "bfloat16",
                "astype('float32')",
                "safetensors",
            ],
        ),
        (
            "|V2",
            npy(&dict("|V2", "(1,)"), &[0, 0]),
            &["|V2", "bfloat16"],
        ),
        ("float8", bytes("float8.npy"), &["<V1", "8-bit float"]),
        (
            "objects",
            bytes("object.npy"),
            &["|O", "nothing is unpickled"],
        ),
        ("complex", bytes("complex.npy"), &["<c8", "x.real"]),
        ("text", bytes("text.npy"), &["<U1", "text is not read"]),
        ("dates", bytes("dates.npy"), &["<M8[D]", "dates"]),
        ("records", bytes("record.npy"), &["records are not read"]),
        (
            "long double",
            with(&dict("<f16", "(1,)")),
            &["<f16", "float64"],
        ),
        (
            "no order",
            with(&dict("|f8", "(1,)")),
            &["byte 20", "|f8' is not known"],
        ),
        ("version", version9, &["byte 6", "version 9.0"]),
        ("header length", long_header, &["byte 8", "4294967295"]),
        (
            "cut in magic",
            good[..7].to_vec(),
            &["1 byte short", "header"],
        ),
        (
            "cut in header",
            good[..50].to_vec(),
            &["bytes short", "header", "byte 10"],
        ),
        (
            "cut in data",
            good[..good.len() - 5].to_vec(),
            &["5 bytes short (expected 24 of data"],
        ),
        (
            "joined",
            [good.clone(), good.clone()].concat(),
            &["152 bytes after its data", "byte 152"],
        ),
        (
            "huge",
            npy(&dict("<f8", "(1000000000000,)"), &[0; 8]),
            &["expected 8000000000000"],
        ),
        (
            "overflow",
            npy(&dict("<f8", "(4294967296, 4294967296)"), &[0; 8]),
            &["more values than can be counted"],
        ),
        (
            "axis overflow",
            with(&dict("<f8", "(99999999999999999999999,)")),
            &["axis of length 9999"],
        ),
        (
            "negative axis",
            with(&dict("<f8", "(-1,)")),
            &["byte", "2D", "axis length"],
        ),
        (
            "no shape",
            with("{'descr': '<f8', 'fortran_order': False}"),
            &["'shape' is missing"],
        ),
        (
            "no descr",
            with("{'fortran_order': False, 'shape': (1,)}"),
            &["'descr' is missing"],
        ),
        (
            "other key",
            with("{'evil': 1}"),
            &["'evil' is not known", "byte 11"],
        ),
        (
            "no dictionary",
            with("import os"),
            &["byte 10", "69 where '{'"],
        ),
        (
            "order",
            with("{'fortran_order': maybe}"),
            &["True or False"],
        ),
        (
            "after",
            with(&(dict("<f8", "(1,)") + " x")),
            &["78 after the dictionary"],
        ),
        (
            "descr twice",
            with("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'descr': '<f8', }"),
            &["'descr' comes twice", "byte 66"],
        ),
        (
            "shape twice",
            with("{'descr': '<f8', 'shape': (2,), 'fortran_order': False, 'shape': (1,), }"),
            &["'shape' comes twice"],
        ),
        (
            "order twice",
            with(
                "{'descr': '<f8', 'fortran_order': True, 'fortran_order': False, 'shape': (1,), }",
            ),
            &["'fortran_order' comes twice"],
        ),
        (
            "record",
            with("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }"),
            &["element type [('a', '<f4')]", "records are not read"],
        ),
        (
            "bool of 2",
            npy(&dict("|b1", "(2,)"), &[1, 2]),
            &["2 is no truth value"],
        ),
    ];
    for (case, file, facts) in &cases {
        refused(case, file, None, "q.npy", facts);
        refused(case, file, None, "q.npy", &[";"]);
    }
    refused(
        "name",
        &good,
        Some("x"),
        "q.npy",
        &["one array without a name", "leave out \":x\""],
    );
    assert!(cases.len() >= 25);
}

#[test]
fn bad_npz() {
    let npz = bytes("stored.npz");
    let cut = &npz[..npz.len() / 2];
    refused(
        "cut",
        cut,
        None,
        "a.npz",
        &["npz", "list of its members", "download it again"],
    );
    refused(
        "no name",
        &npz,
        None,
        "a.npz",
        &["2 arrays", "a.npz:NAME", "q [2, 3], mask [2, 3]"],
    );
    refused(
        "name",
        &npz,
        Some("msk"),
        "a.npz",
        &["\"msk\"", "closest first: mask [2, 3], q"],
    );
    let other = zip(&[("a.txt", b"hello")], true);
    refused(
        "zip",
        &other,
        None,
        "a.npz",
        &["zip file without npy members", "50 4B 03 04"],
    );
    refused("empty", &zip(&[], true), None, "a.npz", &["holds no array"]);
    let torch = zip(&[("model/data.pkl", b"."), ("model/data/0", b"x")], false);
    refused(
        "torch",
        &torch,
        None,
        "w.pt",
        &["zip (PyTorch)", "save_file(torch.load('w.pt'"],
    );
    let wrong = zip(&[("q.npy", b"hello world")], false);
    refused(
        "member",
        &wrong,
        None,
        "a.npz",
        &["a.npz:q", "68 65 6C", "numpy.save"],
    );
    // Two members of one name: which is meant?
    let mut twice = zip(
        &[
            ("q.npy", &bytes("f4_le_c.npy")),
            ("r.npy", &bytes("scalar.npy")),
        ],
        false,
    );
    while let Some(at) = twice.windows(5).position(|w| w == b"r.npy") {
        twice[at] = b'q';
    }
    refused(
        "twice",
        &twice,
        Some("q"),
        "a.npz",
        &["two members are called q.npy"],
    );
    refused(
        "twice",
        &twice,
        None,
        "a.npz",
        &["two members are called q.npy", "one array of each"],
    );
    // Methods that are not read: the file is whole.
    for (number, name) in [
        (12, "bzip2"),
        (14, "LZMA"),
        (93, "Zstandard"),
        (77, "method 77"),
    ] {
        let mut packed = zip(&[("q.npy", &bytes("f4_le_c.npy"))], false);
        packed[8] = number;
        let directory = packed.windows(4).rposition(|w| w == b"PK\x01\x02").unwrap();
        packed[directory + 10] = number;
        let facts = [
            &format!("member q (byte 0) is compressed with {name}"),
            "numpy.savez_compressed",
        ];
        refused(name, &packed, None, "a.npz", &facts);
        let said = read_bytes(&packed, None, "a.npz").unwrap_err().to_string();
        assert!(
            !said.contains("damaged") && !said.contains("download"),
            "{said}"
        );
    }
    let mut locked = zip(&[("q.npy", &bytes("f4_le_c.npy"))], false);
    locked[6] |= 1;
    let directory = locked.windows(4).rposition(|w| w == b"PK\x01\x02").unwrap();
    locked[directory + 8] |= 1;
    refused(
        "locked",
        &locked,
        None,
        "a.npz",
        &["is encrypted", "without a password"],
    );
    // A checksum that does not fit.
    let mut damaged = bytes("one.npz");
    let at = damaged
        .windows(4)
        .position(|w| w == 3_f32.to_le_bytes())
        .unwrap();
    damaged[at] ^= 1;
    refused(
        "checksum",
        &damaged,
        None,
        "a.npz",
        &["damaged", "hecksum", "numpy.savez"],
    );
    // Little packed, much promised: the size in the header is never believed.
    let dictionary = "{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }";
    let bomb = zip(&[("q.npy", &npy(dictionary, &[0; 4096]))], true);
    refused(
        "bomb",
        &bomb,
        None,
        "a.npz",
        &["bytes short", "expected 8000000000000"],
    );
    // The central directory itself lies about the size.
    let mut liar = zip(&[("q.npy", &npy(dictionary, &[0; 8]))], true);
    let directory = liar.windows(4).rposition(|w| w == b"PK\x01\x02").unwrap();
    liar[directory + 24..directory + 28].copy_from_slice(&0xF000_0000_u32.to_le_bytes());
    refused(
        "liar",
        &liar,
        None,
        "a.npz",
        &["damaged", "claims 4026531840 bytes"],
    );
}

#[test]
fn bad_safetensors() {
    let header = r#"{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#;
    let h = |header: &str, data: usize| safetensors(header, &vec![0; data]);
    let mut huge = h(header, 8);
    huge[..8].copy_from_slice(&u64::MAX.to_le_bytes());
    let mut long = h(header, 8);
    long[..8].copy_from_slice(&90_000_000_u64.to_le_bytes());
    let two = r#"{"key":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"query":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}"#;
    let cases: Vec<(&str, Vec<u8>, &[&str])> = vec![
        (
            "header length",
            huge,
            &["byte 0", "18446744073709551615", "at most 100000000"],
        ),
        ("header cut", long, &["short (expected 90000000 of header"]),
        (
            "only a length",
            vec![9, 0, 0, 0, 0, 0, 0, 0],
            &["9 bytes short", "header"],
        ),
        (
            "data short",
            h(header, 3),
            &["5 bytes short (expected 8 of data"],
        ),
        ("data long", h(header, 9), &["goes on for 1 byte "]),
        ("not json", h("{oops", 0), &["damaged at byte 9"]),
        (
            "dtype",
            h(&header.replace("F32", "Q4_0"), 8),
            &[
                "safetensors damaged at byte 13",
                "dtype of tensor x is not known: Q4_0; download",
            ],
        ),
        (
            "dtype in small letters",
            h(&header.replace("F32", "f32"), 8),
            &["dtype of tensor x is not known: f32"],
        ),
        (
            "float8",
            tensor("F8_E4M3", &[2], &[0, 0]),
            &["F8_E4M3", "x.float()"],
        ),
        ("complex", tensor("C64", &[1], &[0; 8]), &["C64"]),
        ("size", h(&header.replace("[2]", "[3]"), 8), &["damaged"]),
        (
            "overflow",
            h(&header.replace("[2]", "[4294967296,4294967296]"), 8),
            &["damaged"],
        ),
        (
            "gap",
            h(&header.replace("[0,8]", "[4,12]"), 12),
            &["damaged"],
        ),
        (
            "backwards",
            h(&header.replace("[0,8]", "[8,0]"), 8),
            &["damaged"],
        ),
        (
            "negative",
            h(&header.replace("[0,8]", "[-8,0]"), 8),
            &["damaged"],
        ),
        (
            "negative length",
            h(&header.replace("[2]", "[-2]"), 8),
            &[
                "byte 37",
                "shape of tensor x holds",
                "-2",
                "whole numbers from 0",
            ],
        ),
        (
            "half a length",
            h(&header.replace("[2]", "[1.5]"), 8),
            &["tensor x", "1.5", "whole numbers from 0"],
        ),
        (
            "three offsets",
            h(&header.replace("[0,8]", "[0,8,9]"), 8),
            &["data_offsets of tensor x are not two: [0,8,9]"],
        ),
        (
            "no shape",
            h(r#"{"x":{"dtype":"F32","data_offsets":[0,8]}}"#, 8),
            &["byte 13", "tensor x has no shape"],
        ),
        (
            "no tensor",
            h(r#"{"x":[1,2]}"#, 0),
            &["byte 13", "x is no tensor"],
        ),
        (
            "twice",
            h(
                r#"{"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"x":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}"#,
                2,
            ),
            &["the name \"x\" comes twice"],
        ),
        (
            "field twice",
            h(
                r#"{"x":{"dtype":"U8","shape":[1],"shape":[2],"data_offsets":[0,1]}}"#,
                1,
            ),
            &["the name \"shape\" comes twice"],
        ),
        (
            "overlap",
            h(
                r#"{"x":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"y":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}"#,
                3,
            ),
            &["tensor y has bytes from 1 on where the one before ends at 2"],
        ),
        (
            "notes",
            h(r#"{"__metadata__":{"a":1}}"#, 0),
            &["__metadata__ holds something else than texts"],
        ),
        (
            "open",
            h(r#"{"x":{"dtype":"F32""#, 0),
            &["in the header, the text ends in the middle"],
        ),
        ("none", h("{}", 0), &["holds no array"]),
        ("several", h(two, 2), &["2 arrays", "key [1], query [1]"]),
        (
            "bool of 2",
            tensor("BOOL", &[2], &[0, 2]),
            &["2 is no truth value"],
        ),
    ];
    for (case, file, facts) in &cases {
        refused(case, file, None, "m.safetensors", facts);
    }
    refused(
        "name",
        &h(two, 2),
        Some("quary"),
        "m.s",
        &["\"quary\"", "closest first: query [1], key"],
    );
}
