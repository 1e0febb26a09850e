//! The numbers.

use crate::common::{self, json_in, npy, npy_f32, step};
use crate::{
    ARRAYS, close, f32s, folder, numbers, output, run, shape_text, tolerance, write, write_arrays,
    write_f32,
};
use qkv::{DType, Element};
use qkv_io::half::{bf16, f16};
use qkv_io::{Encoded, Encoding, Values, encode};

/// Every option that `explain` has for q, k and v.
#[test]
fn each_option_is_as_in_explain() {
    let folder = folder();
    let folder = folder.path();
    write_arrays(folder);
    write_f32(folder, "pk.npy", &[2, 2, 3, 6], 4);
    write_f32(folder, "pv.npy", &[2, 2, 3, 7], 5);
    write_f32(folder, "bias.npy", &[4, 3, 5], 6);
    write(
        folder,
        "keep.npy",
        &npy(
            "|b1",
            "(3, 5)",
            &[1, 0, 1, 1, 1, 0, 0, 1, 1, 0, 1, 1, 1, 0, 1],
        ),
    );
    // Scores are at most d_k·1·1 before the scale of 1/√6, and 2 more by a bias; a scale of 2.5 and a
    // slope of 1/4 over 8 places are the largest others.
    let largest = 6.0 * 2.5 + 2.0;
    for options in [
        "",
        "--scale 2.5",
        "--scale=-0.5 --softcap 0.75",
        "--causal bottom-right",
        "--causal top-left --window 2,0",
        "--causal 1 --alibi",
        "--window 1,1",
        "--kv-lengths 5,3 --window 2,1",
        "--documents 1:2,2:3 --causal bottom-right",
        "--keep keep.npy",
        "--drop keep.npy --bias bias.npy",
        "--alibi '0.25 0.5 0.125 1'",
        "--sinks '0 1 -1 0.5'",
        "--dropout 0.25 --seed 7",
        "--past-k pk.npy --past-v pv.npy --causal bottom-right",
        "--q-norm '1 2 1 2 1 2' --k-norm '1 1 1 2 2 2'",
        "--position rotary --causal bottom-right",
        "--position rotary-interleaved --rotary-dim 4 --rotary-base 100 --position-offset 3",
        "--past-k pk.npy --past-v pv.npy --position rotary --rotary-scaling linear:2 --causal bottom-right",
        "--keep '0 0 0 0 0'",
    ] {
        run(
            folder,
            &format!("{ARRAYS} {options} --lse --weights -o out.safetensors"),
        );
        let right = json_in(folder, &format!("{ARRAYS} {options}"));
        // Dropped weights are multiplied by 1/(1−p).
        let tolerance = tolerance(DType::F32, largest, 24) / 0.75;
        for name in ["output", "lse", "weights"] {
            let array = output(folder, "out.safetensors", name);
            assert_eq!(array.dtype(), "f32", "{options}");
            let shape: Vec<u64> = array.shape.iter().map(|&n| n as u64).collect();
            assert_eq!(shape, common::shape(&right, name), "{options} {name}");
            let found = array.to_f64().expect("numbers");
            close(
                &found,
                &step(&right, name),
                tolerance,
                &format!("{options} {name}"),
            );
        }
    }
}

/// The same bits as the library gives.
#[test]
fn the_bits_are_the_librarys() {
    let folder = folder();
    let folder = folder.path();
    write_arrays(folder);
    run(
        folder,
        &format!("{ARRAYS} --causal bottom-right --lse --weights -o out.safetensors --threads 2"),
    );
    let (q, k, v) = (
        f32s(1, 2 * 4 * 3 * 6),
        f32s(2, 2 * 2 * 5 * 6),
        f32s(3, 2 * 2 * 5 * 7),
    );
    let inputs = qkv::Inputs::new(
        qkv::View::new(&q, &[2, 4, 3, 6]).expect("a view"),
        qkv::View::new(&k, &[2, 2, 5, 6]).expect("a view"),
        qkv::View::new(&v, &[2, 2, 5, 7]).expect("a view"),
    )
    .expect("inputs");
    let attention = qkv::Attention {
        causal: Some(qkv::Causal::BottomRight),
        ..qkv::Attention::default()
    };
    let right = qkv::forward(&attention, &inputs).expect("a result");
    let part = qkv::Part::all(&inputs);
    let weights = qkv::weights(&attention, &inputs, &qkv::Options::default(), &part);
    let lse: Vec<f32> = right.lse.data().iter().map(|&x| x as f32).collect();
    for (name, right) in [
        ("output", right.output.data()),
        ("lse", &lse),
        ("weights", weights.expect("weights").data()),
    ] {
        let found = output(folder, "out.safetensors", name);
        assert_eq!(found.values, Values::F32(right.to_vec()), "{name}");
    }
}

/// Half precision is computed in f32 and rounded back, f64 is computed as such.
#[test]
fn every_number_format() {
    let folder = folder();
    let folder = folder.path();
    let (q, k, v) = (numbers(1, 12), numbers(2, 18), numbers(3, 12));
    let save = |file: &str, to: &dyn Fn(&[f64]) -> Values| {
        let [q, k, v] = [&q, &k, &v].map(|values| to(values));
        let arrays = vec![
            Encoded::whole("q", &[2, 6], &q),
            Encoded::whole("k", &[3, 6], &k),
            Encoded::whole("v", &[3, 4], &v),
        ];
        let mut bytes = Vec::new();
        encode(&mut bytes, Encoding::Safetensors, arrays, &[]).expect("encoded");
        write(folder, file, &bytes);
    };
    save("f16.safetensors", &|x| {
        x.iter()
            .map(|&x| <f16 as Element>::from_f64(x))
            .collect::<Vec<_>>()
            .into()
    });
    save("bf16.safetensors", &|x| {
        x.iter()
            .map(|&x| <bf16 as Element>::from_f64(x))
            .collect::<Vec<_>>()
            .into()
    });
    save("f32.safetensors", &|x| {
        x.iter().map(|&x| x as f32).collect::<Vec<_>>().into()
    });
    save("f64.safetensors", &|x| x.to_vec().into());
    for (dtype, others, computed, digits) in [
        ("f16", "f32", DType::F16, 11),
        ("bf16", "f32", DType::Bf16, 8),
        ("f32", "f32", DType::F32, 24),
        ("f64", "f64", DType::F64, 53),
    ] {
        let arrays = format!(
            "--q {dtype}.safetensors:q --k {dtype}.safetensors:k --v {dtype}.safetensors:v"
        );
        run(
            folder,
            &format!("{arrays} --lse --weights -o out.safetensors"),
        );
        let right = json_in(folder, &arrays);
        for (name, expected, digits) in [
            ("output", dtype, digits),
            ("lse", others, 24),
            ("weights", dtype, digits),
        ] {
            let array = output(folder, "out.safetensors", name);
            assert_eq!(array.dtype(), expected, "{dtype} {name}");
            let found = array.to_f64().expect("numbers");
            // lse is below 4, so its last digit is worth four times as much.
            let tolerance = tolerance(computed, 6.0, digits)
                + if computed != DType::F64 {
                    4.0 * 0.5_f64.powi(24)
                } else {
                    0.0
                };
            close(
                &found,
                &step(&right, name),
                tolerance,
                &format!("{dtype} {name}"),
            );
        }
        // The rounding is one to the nearest: half precision of the numbers that f32 has.
        if dtype == "f16" {
            let widened: Vec<String> = ["q", "k", "v"]
                .iter()
                .map(|name| {
                    let array = output(folder, "f16.safetensors", name);
                    let values: Vec<f32> = array
                        .to_f64()
                        .expect("numbers")
                        .iter()
                        .map(|&x| x as f32)
                        .collect();
                    let shape = shape_text(&array.shape);
                    write(folder, &format!("{name}32.npy"), &npy_f32(&shape, &values));
                    format!("--{name} {name}32.npy")
                })
                .collect();
            run(
                folder,
                &format!("{} -o wide.safetensors", widened.join(" ")),
            );
            let wide = output(folder, "wide.safetensors", "output")
                .to_f64()
                .expect("numbers");
            let rounded: Vec<f16> = wide
                .iter()
                .map(|&x| <f16 as Element>::from_f64(x))
                .collect();
            assert_eq!(
                output(folder, "out.safetensors", "output").values,
                Values::F16(rounded)
            );
        }
    }
}

/// Typed numbers take the format of the others.
#[test]
fn typed_numbers_take_the_format_of_the_others() {
    let folder = folder();
    let folder = folder.path();
    write(folder, "k.npy", &npy_f32("(2, 2)", &[0.1, 0.2, 0.3, 0.4]));
    write(
        folder,
        "i.npy",
        &npy("<i4", "(2, 1)", &[7, 0, 0, 0, 9, 0, 0, 0]),
    );
    run(
        folder,
        "--q '0.1 0.2' --k k.npy --v i.npy -o out.safetensors",
    );
    assert_eq!(output(folder, "out.safetensors", "output").dtype(), "f32");
    run(
        folder,
        "--q '0.1 0.2' --k '0.1 0.2; 0.3 0.4' --v i.npy -o out.safetensors",
    );
    assert_eq!(output(folder, "out.safetensors", "output").dtype(), "f64");
}

/// Heads side by side, an axis of heads, and both orders of axes are the same numbers.
#[test]
fn layouts() {
    let folder = folder();
    let folder = folder.path();
    write_arrays(folder);
    let swapped = |name: &str, [b, h, l, d]: [usize; 4], seed| {
        let from = f32s(seed, b * h * l * d);
        let mut to = Vec::new();
        for batch in 0..b {
            for token in 0..l {
                for head in 0..h {
                    to.extend_from_slice(&from[((batch * h + head) * l + token) * d..][..d]);
                }
            }
        }
        write(
            folder,
            &format!("{name}-blhd.npy"),
            &npy_f32(&shape_text(&[b, l, h, d]), &to),
        );
        write(
            folder,
            &format!("{name}-flat.npy"),
            &npy_f32(&shape_text(&[b, l, h * d]), &to),
        );
    };
    swapped("q", [2, 4, 3, 6], 1);
    swapped("k", [2, 2, 5, 6], 2);
    swapped("v", [2, 2, 5, 7], 3);
    run(
        folder,
        &format!("{ARRAYS} --lse --weights -o right.safetensors"),
    );
    let right = |name: &str| output(folder, "right.safetensors", name);
    let values = output(folder, "right.safetensors", "output");
    let values = values.to_f64().expect("numbers");
    let mut expected = Vec::new();
    for batch in 0..2 {
        for token in 0..3 {
            for head in 0..4 {
                let row = &values[((batch * 4 + head) * 3 + token) * 7..][..7];
                expected.extend(row.iter().map(|&x| x as f32));
            }
        }
    }
    for (line, shape) in [
        (
            "--q q-blhd.npy --k k-blhd.npy --v v-blhd.npy --layout blhd",
            vec![2, 3, 4, 7],
        ),
        (
            "--q q-flat.npy --k k-flat.npy --v v-flat.npy --heads 4 --kv-heads 2",
            vec![2, 3, 28],
        ),
    ] {
        run(
            folder,
            &format!("{line} --lse --weights -o out.safetensors"),
        );
        let found = output(folder, "out.safetensors", "output");
        assert_eq!(
            (found.shape, found.values),
            (shape, Values::F32(expected.clone())),
            "{line}"
        );
        for name in ["lse", "weights"] {
            assert_eq!(
                output(folder, "out.safetensors", name),
                right(name),
                "{line} {name}"
            );
        }
    }
    // Axes that q does not have are not there.
    run(
        folder,
        "--q '1 0' --k '1 0;0 1' --v '1;2' --lse --weights -o out.json",
    );
    let shape = |name| output(folder, "out.json", name).shape;
    assert_eq!(
        (shape("output"), shape("lse"), shape("weights")),
        (vec![1, 1], vec![1], vec![1, 2])
    );
    run(
        folder,
        "--q '1 0 2 0' --k '1 0 2 0;0 1 0 2' --v '1 2;3 4' --heads 2 --lse --weights -o out.json",
    );
    assert_eq!(
        (shape("output"), shape("lse"), shape("weights")),
        (vec![1, 2], vec![2, 1], vec![2, 1, 2])
    );
}
