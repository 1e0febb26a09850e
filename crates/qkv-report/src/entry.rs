//! A number of the calculation, and which one it is.

use qkv::Tensor;

/// A number, with the place it has in the calculation if it has one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Number {
    pub value: f64,
    pub entry: Option<Entry>,
}

/// One number of a step or of an input: `weights[0,0,1,0]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Entry {
    /// A step's name as JSON has it, or the name of an input.
    pub of: &'static str,
    pub index: Vec<usize>,
}

impl Entry {
    /// An entry of the part that is at this index.
    pub(crate) fn inside(&self, index: &[usize]) -> Entry {
        Entry {
            of: self.of,
            index: [&self.index, index].concat(),
        }
    }
}

impl Number {
    /// A number of a tensor that goes by this name.
    pub(crate) fn of(name: &'static str, tensor: &Tensor<f64>, index: &[usize]) -> Number {
        Number {
            value: tensor.at(index),
            entry: Some(Entry {
                of: name,
                index: index.to_vec(),
            }),
        }
    }

    /// A value that goes by this name.
    pub(crate) fn named(name: &'static str, index: &[usize], value: f64) -> Number {
        Number {
            value,
            entry: Some(Entry {
                of: name,
                index: index.to_vec(),
            }),
        }
    }
}

/// The index of element `at` of an array, row-major.
pub(crate) fn index(shape: &[usize], mut at: usize) -> Vec<usize> {
    let mut index = vec![0; shape.len()];
    for (axis, &size) in shape.iter().enumerate().rev() {
        index[axis] = at % size;
        at /= size;
    }
    index
}

impl From<f64> for Number {
    fn from(value: f64) -> Self {
        Number { value, entry: None }
    }
}
