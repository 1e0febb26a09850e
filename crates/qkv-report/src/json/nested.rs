//! Numbers in lists as deep as their array has axes, written one by one.

use qkv::Tensor;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

/// A number; what is not finite is a word.
#[derive(Clone, Copy)]
pub(crate) struct Number(pub(crate) f64);

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            x if x.is_nan() => serializer.serialize_str("nan"),
            f64::INFINITY => serializer.serialize_str("inf"),
            f64::NEG_INFINITY => serializer.serialize_str("-inf"),
            x => serializer.serialize_f64(x),
        }
    }
}

/// A list of numbers.
pub(super) fn numbers(values: &[f64]) -> Value {
    values.iter().map(|value| json!(Number(*value))).collect()
}

/// Numbers, row-major, in lists of this shape.
pub(super) struct Nested<'a> {
    shape: &'a [usize],
    numbers: &'a [f64],
}

impl<'a> Nested<'a> {
    pub(super) fn new(tensor: &'a Tensor<f64>) -> Self {
        Nested {
            shape: tensor.shape(),
            numbers: tensor.data(),
        }
    }
}

impl Serialize for Nested<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.shape.split_first() {
            None => self
                .numbers
                .first()
                .copied()
                .map(Number)
                .serialize(serializer),
            Some((_, [])) => serializer.collect_seq(self.numbers.iter().copied().map(Number)),
            Some((&length, shape)) => {
                let size: usize = shape.iter().product();
                serializer.collect_seq((0..length).map(|at| Nested {
                    shape,
                    numbers: &self.numbers[at * size..][..size],
                }))
            }
        }
    }
}

/// What a function gives for each index, in four lists inside each other.
pub(super) struct Grid<F> {
    shape: [usize; 4],
    value: F,
}

impl<F> Grid<F> {
    pub(super) fn new(shape: [usize; 4], value: F) -> Self {
        Grid { shape, value }
    }
}

impl<T: Serialize, F: Fn([usize; 4]) -> T> Serialize for Grid<F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Grid { shape, value } = self;
        let at = [0; 4];
        Part {
            depth: 0,
            at,
            shape,
            value,
        }
        .serialize(serializer)
    }
}

/// What lies at an index of which the first few are set.
struct Part<'a, F> {
    depth: usize,
    at: [usize; 4],
    shape: &'a [usize; 4],
    value: &'a F,
}

impl<T: Serialize, F: Fn([usize; 4]) -> T> Serialize for Part<'_, F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let depth = self.depth;
        let Some(&length) = self.shape.get(depth) else {
            return (self.value)(self.at).serialize(serializer);
        };
        serializer.collect_seq((0..length).map(|index| {
            let mut at = self.at;
            at[depth] = index;
            Part {
                depth: depth + 1,
                at,
                ..*self
            }
        }))
    }
}
