//! Files and standard streams.

use crate::common::{command, npy, refusals, run_with, words};
use crate::{ARRAYS, f32s, folder, numbers, output, run, write, write_arrays, write_f32};
use qkv_io::{Array, Encoded, Encoding, encode, read_file};
use std::fs;

/// The same numbers from each format give the same file.
#[test]
fn every_input_format() {
    let folder = folder();
    let folder = folder.path();
    let (q, k, v) = (numbers(1, 6), numbers(2, 8), numbers(3, 12));
    let save = |file: &str, encoding| {
        let arrays = vec![
            Encoded::whole("q", &[3, 2], &q[..]),
            Encoded::whole("k", &[4, 2], &k[..]),
            Encoded::whole("v", &[4, 3], &v[..]),
        ];
        let mut bytes = Vec::new();
        encode(&mut bytes, encoding, arrays, &[]).expect("encoded");
        write(folder, file, &bytes);
    };
    save("a.safetensors", Encoding::Safetensors);
    save("a.npz", Encoding::Npz);
    save("a.json", Encoding::Json);
    for (name, shape, values) in [("q", [3, 2], &q), ("k", [4, 2], &k), ("v", [4, 3], &v)] {
        let mut bytes = Vec::new();
        let array = vec![Encoded::whole(name, &shape, &values[..])];
        encode(&mut bytes, Encoding::Npy, array, &[]).expect("encoded");
        write(folder, &format!("{name}.npy"), &bytes);
        let rows: Vec<String> = values
            .chunks(shape[1])
            .map(|row| row.iter().map(f64::to_string).collect::<Vec<_>>().join(","))
            .collect();
        write(
            folder,
            &format!("{name}.csv"),
            (rows.join("\n") + "\n").as_bytes(),
        );
    }
    run(
        folder,
        "--q q.npy --k k.npy --v v.npy -o right.safetensors --lse",
    );
    let right = fs::read(folder.join("right.safetensors")).expect("a file");
    let literal = |values: &[f64], columns: usize| {
        let rows: Vec<String> = values
            .chunks(columns)
            .map(|row| row.iter().map(f64::to_string).collect::<Vec<_>>().join(" "))
            .collect();
        rows.join(";")
    };
    let typed = format!(
        "--q '{}' --k '{}' --v '{}'",
        literal(&q, 2),
        literal(&k, 2),
        literal(&v, 3)
    );
    for line in [
        "--q a.safetensors:q --k a.safetensors:k --v a.safetensors:v",
        "--q a.npz:q --k a.npz:k --v a.npz:v",
        "--q a.json:q --k a.json:k --v a.json:v",
        "--q q.csv --k k.csv --v v.csv",
        &typed,
    ] {
        run(folder, &format!("{line} -o out.safetensors --lse"));
        assert!(
            fs::read(folder.join("out.safetensors")).expect("a file") == right,
            "{line}"
        );
    }
    let line = words("run --q - --k k.npy --v v.npy -o out.safetensors --lse");
    let ran = run_with(folder, &line, &fs::read(folder.join("q.npy")).expect("q"));
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    assert!(fs::read(folder.join("out.safetensors")).expect("a file") == right);
}

/// A file of more than a mebibyte is mapped, a column-major or big-endian one is read: the same bits.
#[test]
fn mapped_files() {
    let folder = folder();
    let folder = folder.path();
    let shape = [1, 1, 5000, 64];
    let count = 5000 * 64;
    write_f32(folder, "k.npy", &shape, 1);
    write_f32(folder, "q.npy", &[1, 1, 2, 64], 2);
    let values = f32s(1, count);
    let reversed: Vec<u8> = values.iter().flat_map(|x| x.to_be_bytes()).collect();
    write(
        folder,
        "big.npy",
        &npy(">f4", "(1, 1, 5000, 64)", &reversed),
    );
    // A name that moves the values off their natural places.
    for (file, lead) in [("even.safetensors", 0), ("odd.safetensors", 1)] {
        let text = format!(
            r#"{{"m":{{"dtype":"U8","shape":[{lead}],"data_offsets":[0,{lead}]}},"k":{{"dtype":"F32","shape":[1,1,5000,64],"data_offsets":[{lead},{}]}}}}"#,
            lead + 4 * count
        );
        let padded = text.len().next_multiple_of(8);
        let text = format!("{text:<padded$}");
        let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
        bytes.extend(text.as_bytes());
        bytes.extend(vec![0; lead]);
        bytes.extend(values.iter().flat_map(|x| x.to_le_bytes()));
        write(folder, file, &bytes);
    }
    run(folder, "--q q.npy --k k.npy --v k.npy -o right.safetensors");
    let right = fs::read(folder.join("right.safetensors")).expect("a file");
    for k in ["big.npy", "even.safetensors:k", "odd.safetensors:k"] {
        run(
            folder,
            &format!("--q q.npy --k {k} --v {k} -o out.safetensors"),
        );
        assert!(
            fs::read(folder.join("out.safetensors")).expect("a file") == right,
            "{k}"
        );
    }
    // Cut off, it is refused as any other file is.
    let whole = fs::read(folder.join("k.npy")).expect("a file");
    write(folder, "cut.npy", &whole[..whole.len() - 4]);
    refusals(
        "run",
        folder,
        &[
            (
                "--q q.npy --k cut.npy --v k.npy",
                &["--k", "cut.npy", "4 bytes short"] as &[&str],
            ),
            (
                "--q q.npy --k k.npy --v k.npy -o k.npy",
                &["-o", "input of --k"],
            ),
        ],
    );
}

#[test]
fn every_output_format() {
    let folder = folder();
    let folder = folder.path();
    write_arrays(folder);
    for file in ["a.safetensors", "a.npz", "a.json", "a.JSON"] {
        run(folder, &format!("{ARRAYS} --lse --weights -o {file}"));
        for name in ["output", "lse", "weights"] {
            let right = output(folder, "a.safetensors", name);
            let found = output(folder, file, name);
            assert_eq!(found.shape, right.shape, "{file} {name}");
            let single = |array: &Array| -> Vec<f32> {
                array
                    .to_f64()
                    .expect("numbers")
                    .iter()
                    .map(|&x| x as f32)
                    .collect()
            };
            assert_eq!(single(&found), single(&right), "{file} {name}");
        }
    }
    run(folder, &format!("{ARRAYS} -o a.npy"));
    let npy = read_file(&folder.join("a.npy"), None).expect("the array");
    assert_eq!(npy, output(folder, "a.safetensors", "output"));
    // The same bytes on standard output.
    for format in ["npy", "safetensors"] {
        let file = format!("a.{format}");
        run(folder, &format!("{ARRAYS} -o {file}"));
        let ran = command(folder)
            .args(words(&format!("run {ARRAYS} -o - --format {format}")))
            .output()
            .expect("runs");
        assert_eq!(ran.status.code(), Some(0), "{format}");
        let bytes = fs::read(folder.join(&file)).expect("a file");
        assert!(ran.stdout.len() >= bytes.len(), "{format}");
        if format == "npy" {
            assert_eq!(ran.stdout, bytes);
        }
    }
    // Nothing else is left.
    let hidden = fs::read_dir(folder).expect("a folder").filter(|entry| {
        let name = entry.as_ref().expect("an entry").file_name();
        name.to_string_lossy().contains("tmp")
    });
    assert_eq!(hidden.count(), 0);
}

#[test]
fn json_on_standard_output() {
    let folder = folder();
    let line = "run --q '1 0;0 1' --k '1 0;0 1' --v '2 0;0 4' --drop '1 1;0 0' --lse --json";
    let ran = run_with(folder.path(), &words(line), b"");
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let value: serde_json::Value = serde_json::from_str(&ran.out).expect("JSON");
    assert_eq!(value["shapes"]["output"], serde_json::json!([2, 2]));
    assert_eq!(value["dtype"], "f64");
    assert_eq!(value["empty_rows"], serde_json::json!([[0, 0, 0]]));
    assert_eq!(value["output"][0], serde_json::json!([0.0, 0.0]));
    assert_eq!(value["lse"][0], "-inf");
    assert!(value["ms"].as_f64().is_some_and(|ms| ms >= 0.0));
}

#[test]
fn a_summary_where_no_file_is_named() {
    let folder = folder();
    let line = "run --q '1 0;0 1' --k '1 0;0 1' --v '2 0;0 4' --digits 3 --drop '1 1;0 0'";
    let ran = run_with(folder.path(), &words(line), b"");
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    for words in [
        "output     [2, 2], f64",
        "first row  0.000 0.000",
        "empty rows 1 of 2",
        " ms, ",
    ] {
        assert!(ran.out.contains(words), "{words}: {}", ran.out);
    }
    assert!(ran.out.lines().all(|line| line.len() <= 80), "{}", ran.out);
    let ran = run_with(folder.path(), &words(&format!("{line} --lang zh")), b"");
    assert!(ran.out.contains("第一行"), "{}", ran.out);
}

/// B022: where the first number that is none is, in the axes of the output.
#[test]
fn b022_a_summary_says_where_the_first_nan_is() {
    let folder = folder();
    let line = "run --q '1;1' --k '1;1' --v '2 0 nan;0 4 5' --drop '0 1;0 0'";
    let ran = run_with(folder.path(), &words(line), b"");
    let told = "not finite 2 of the numbers, the first at [0, 2]";
    assert!(ran.out.contains(told), "{}", ran.out);
    let ran = run_with(folder.path(), &words(&format!("{line} --lang zh")), b"");
    assert!(ran.out.contains("2个，第一个在[0, 2]"), "{}", ran.out);
}

/// Ctrl-C while weights are being written: no file, and no temporary one.
#[cfg(unix)]
#[test]
fn ctrl_c_leaves_nothing_behind() {
    let folder = folder();
    write_f32(folder.path(), "q.npy", &[12_000, 16], 1);
    let mut child = command(folder.path())
        .args(words(
            "run --q q.npy --k q.npy --v q.npy --weights -o out.safetensors",
        ))
        .spawn()
        .expect("starts");
    let files = || fs::read_dir(folder.path()).expect("a folder").count();
    while files() < 2 {
        assert!(child.try_wait().expect("a state").is_none(), "it ended");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let pid = child.id().to_string();
    let sent = std::process::Command::new("kill")
        .args(["-INT", &pid])
        .status();
    assert!(sent.is_ok_and(|status| status.success()));
    assert_eq!(child.wait().expect("an end").code(), Some(130));
    assert_eq!(files(), 1);
}
