//! Faults that people met in attention, and input made to break it, on every instruction set.
#![allow(clippy::unwrap_used)]

mod extremes;
mod half;
mod masks;
mod numerics;
mod sizes;
#[path = "../support/mod.rs"]
mod support;

use qkv::{Attention, Causal, Inputs, Output, View, forward_with};
use support::{isas, options};

/// Results of both number types on all instruction sets, as `f64`.
fn everywhere(attention: &Attention<'_>, q: &Matrix, k: &Matrix, v: &Matrix) -> Vec<Output<f64>> {
    let mut found = in_double(attention, q, k, v);
    for isa in isas() {
        let options = options(isa, 1);
        let single = [q, k, v].map(|m| m.data.iter().map(|&x| x as f32).collect::<Vec<_>>());
        let inputs = Inputs::new(
            View::new(&single[0], &q.shape).unwrap(),
            View::new(&single[1], &k.shape).unwrap(),
            View::new(&single[2], &v.shape).unwrap(),
        )
        .unwrap();
        let output = forward_with(attention, &inputs, &options).unwrap();
        found.push(Output {
            output: qkv::Tensor::new(
                output.output.shape(),
                output.output.data().iter().map(|&x| f64::from(x)).collect(),
            )
            .unwrap(),
            lse: output.lse,
            empty_rows: output.empty_rows,
        });
    }
    found
}

/// Results of `f64` on all instruction sets.
fn in_double(attention: &Attention<'_>, q: &Matrix, k: &Matrix, v: &Matrix) -> Vec<Output<f64>> {
    let inputs = Inputs::new(q.view(), k.view(), v.view()).unwrap();
    isas()
        .map(|isa| forward_with(attention, &inputs, &options(isa, 1)).unwrap())
        .collect()
}

struct Matrix {
    data: Vec<f64>,
    shape: [usize; 2],
}

impl Matrix {
    fn view(&self) -> View<'_, f64> {
        View::new(&self.data, &self.shape).unwrap()
    }
}

fn matrix(rows: usize, data: &[f64]) -> Matrix {
    Matrix {
        data: data.to_vec(),
        shape: [rows, data.len() / rows.max(1)],
    }
}

fn column(data: impl IntoIterator<Item = f64>) -> Matrix {
    let data: Vec<f64> = data.into_iter().collect();
    Matrix {
        shape: [data.len(), 1],
        data,
    }
}

/// Scores 0: values are averaged over the kept keys.
fn zeros(count: usize) -> Matrix {
    column(std::iter::repeat_n(0.0, count))
}

fn assert_near(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (x, y) in found.iter().zip(expected) {
        let near = (x - y).abs() <= 2e-6 * y.abs().max(1.0) || (x.is_nan() && y.is_nan());
        assert!(near, "{found:?} for {expected:?}");
    }
}

fn causal(causal: Causal) -> Attention<'static> {
    Attention {
        causal: Some(causal),
        ..Attention::default()
    }
}
