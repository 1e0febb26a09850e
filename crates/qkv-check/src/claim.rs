//! What somebody else says the numbers are.

use qkv::{DType, StepName, Tensor};

/// Somebody else's numbers for one step.
#[derive(Clone, Debug)]
pub struct Claim {
    /// Which step they are of. [`StepName::Output`] stands for whatever the problem ends with: each
    /// head's output, the heads side by side, or what W_O makes of them, as the shape says.
    pub step: StepName,
    /// The numbers, in the shape that they came in; leading axes of length 1 may be left out.
    pub values: Tensor<f64>,
    /// The number format that they are stored in.
    pub dtype: DType,
    /// Half a unit of the last digit that was typed, where numbers were typed rounded.
    pub half_unit: f64,
}

impl Claim {
    /// Numbers of this step as they are stored.
    pub fn new(step: StepName, values: Tensor<f64>, dtype: DType) -> Claim {
        Claim {
            step,
            values,
            dtype,
            half_unit: 0.0,
        }
    }
}
