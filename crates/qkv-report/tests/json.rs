//! The JSON is the run, bit for bit.
#![allow(clippy::unwrap_used, clippy::panic)]

#[allow(dead_code)]
mod common;

use common::with_problem;
use qkv::{StepName, Tensor, definition};
use qkv_report::{Subject, json};
use serde_json::{Value, json};

/// The JSON as a reader gets it.
fn read(subject: &Subject<'_>) -> Value {
    serde_json::from_str(&serde_json::to_string(&json(subject)).unwrap()).unwrap()
}

fn flat(value: &Value, out: &mut Vec<f64>) {
    match value {
        Value::Array(list) => list.iter().for_each(|value| flat(value, out)),
        Value::Number(number) => out.push(number.as_f64().unwrap()),
        Value::String(text) => out.push(match text.as_str() {
            "nan" => f64::NAN,
            "inf" => f64::INFINITY,
            "-inf" => f64::NEG_INFINITY,
            other => panic!("{other}"),
        }),
        other => panic!("{other}"),
    }
}

fn shape_of(mut value: &Value) -> Vec<usize> {
    let mut shape = Vec::new();
    while let Value::Array(list) = value {
        shape.push(list.len());
        match list.first() {
            Some(first) => value = first,
            None => break,
        }
    }
    shape
}

#[track_caller]
fn same_bits(found: &[f64], expected: &[f64], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (found, expected) in found.iter().zip(expected) {
        let same = found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan();
        assert!(same, "{what}: {found} is not {expected}");
    }
}

#[test]
fn steps_bit_for_bit() {
    for seed in 0..200 {
        with_problem(seed, |problem| {
            let subject = &problem.subject;
            let value = read(subject);
            let listed = value["steps"].as_array().unwrap();
            assert_eq!(listed.len(), subject.steps.iter().count());
            for (listed, (name, tensor)) in listed.iter().zip(subject.steps.iter()) {
                assert_eq!(listed["name"], name.as_str());
                assert_eq!(listed["shape"], json!(tensor.shape()));
                let mut numbers = Vec::new();
                flat(&listed["values"], &mut numbers);
                same_bits(&numbers, tensor.data(), name.as_str());
                assert_eq!(shape_of(&listed["values"]), tensor.shape());
            }
            assert_eq!(value["empty_rows"], json!(subject.steps.empty_rows()));
        });
    }
}

#[test]
fn the_definition_says_the_same() {
    let mut compared = 0;
    for seed in 0..200 {
        with_problem(seed, |problem| {
            let block = problem.subject.block;
            let plain = block.rotary.is_none() && block.q_norm.is_none() && block.k_norm.is_none();
            let (Some(inputs), true) = (&problem.inputs, plain) else {
                return;
            };
            let expected = definition::forward(&block.attention, inputs).unwrap();
            let value = read(&problem.subject);
            let step = |name: &str| {
                let steps = value["steps"].as_array().unwrap();
                let step = steps.iter().find(|step| step["name"] == name).unwrap();
                let mut numbers = Vec::new();
                flat(&step["values"], &mut numbers);
                numbers
            };
            same_bits(&step("output"), expected.output.data(), "output");
            same_bits(&step("lse"), expected.lse.data(), "lse");
            assert_eq!(value["empty_rows"], json!(expected.empty_rows));
            compared += 1;
        });
    }
    assert!(compared > 10, "{compared}");
}

#[test]
fn options_in_force_and_no_others() {
    for seed in 0..200 {
        with_problem(seed, |problem| {
            let subject = &problem.subject;
            let attention = &subject.block.attention;
            let value = read(subject);
            let options = value["options"].as_object().unwrap();
            let present = |name: &str, expected: bool| {
                assert_eq!(options.contains_key(name), expected, "{name}: {options:?}");
            };
            present("softcap", attention.softcap.is_some());
            present("bias", attention.bias.is_some());
            present("alibi", attention.alibi.is_some());
            present("keep", attention.masks.iter().any(|mask| mask.true_keeps()));
            present(
                "drop",
                attention.masks.iter().any(|mask| !mask.true_keeps()),
            );
            present("causal", attention.causal.is_some());
            present("window", attention.window.is_some());
            present("kv_lengths", attention.lengths.is_some());
            present("documents", attention.documents.is_some());
            present("sinks", attention.sinks.is_some());
            present("dropout", attention.dropout.is_some());
            present("seed", attention.dropout.is_some());
            present("q_norm", subject.block.q_norm.is_some());
            present("rotary_base", subject.block.rotary.is_some());
            let q = subject.steps.get(StepName::Q).unwrap();
            let scale = attention.scale.factor(q.shape()[3]);
            assert_eq!(options["scale"].as_f64(), Some(scale));
            assert_eq!(options["heads"], json!(q.shape()[1]));
            assert_eq!(options["empty_rows"], "zero");
            assert_eq!(value["shapes"]["q"], json!(q.shape()));
        });
    }
}

#[test]
fn what_is_not_a_number_is_a_word_and_whole_numbers_keep_their_point() {
    let q = Tensor::new(&[1, 1, 2, 1], vec![1.0, f64::NAN]).unwrap();
    let k = Tensor::new(&[1, 1, 1, 1], vec![f64::INFINITY]).unwrap();
    let v = Tensor::new(&[1, 1, 1, 1], vec![3.0]).unwrap();
    let inputs = qkv::Inputs::new(q.view().unwrap(), k.view().unwrap(), v.view().unwrap()).unwrap();
    let block = qkv::Block::default();
    let steps = block.steps(&inputs).unwrap();
    let subject = common::subject(&block, &steps, qkv_report::Origin::Given, 0);
    let value = read(&subject);
    assert_eq!(value["steps"][0]["values"], json!([[[[1.0], ["nan"]]]]));
    assert_eq!(value["steps"][1]["values"], json!([[[["inf"]]]]));
    assert!(json(&subject).to_string().contains("[[[[3.0]]]]"));
}

/// What is written piece by piece is what the value says, byte for byte.
#[test]
fn written_and_as_a_value() {
    for seed in 0..200 {
        with_problem(seed, |problem| {
            let mut written = Vec::new();
            qkv_report::write_json(&problem.subject, &mut written).unwrap();
            let value = serde_json::to_string(&json(&problem.subject)).unwrap();
            assert_eq!(String::from_utf8(written).unwrap(), value);
        });
    }
}
