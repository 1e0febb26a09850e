//! `--backward`: reads the gradient of the result and has the engine work out the others.

use crate::args::{BackwardArgs, Layout};
use crate::arrays::{Axes, Reader};
use crate::error::{Error, Result};
use qkv::{Block, FiniteDifference, GradientSteps, Inputs, Layer, StepName, Steps, Tensor};
use qkv_report::Backward;

/// The option that an error of the engine is about here.
const BACKWARD: &str = "--backward";
const GRAD_OUTPUT: &str = "--grad-output";

/// The gradient of the result: as given, or 1 everywhere.
pub struct GradOutput(Option<Tensor<f64>>);

impl GradOutput {
    /// What is asked for; `in_rows` if the result has a row for each token.
    pub fn read(
        args: &BackwardArgs,
        reader: &mut Reader<'_>,
        in_rows: bool,
        layout: Layout,
    ) -> Result<Option<GradOutput>> {
        match (&args.grad_output, args.backward) {
            (None, false) => Ok(None),
            (None, true) => Ok(Some(GradOutput(None))),
            (Some(_), false) => Err(Error::Alone {
                argument: GRAD_OUTPUT,
                needed: BACKWARD,
                remedy: "it is the gradient that the others are worked out from: add --backward",
            }),
            (Some(text), true) => {
                let given = if in_rows {
                    reader.rows(GRAD_OUTPUT, text)?
                } else {
                    let axes = Axes {
                        layout,
                        split: None,
                    };
                    reader.operand(GRAD_OUTPUT, text, axes)?.to_tensor()?
                };
                Ok(Some(GradOutput(Some(given))))
            }
        }
    }

    /// From q, k and v.
    pub fn of_block(
        self,
        block: &Block<'_>,
        inputs: &Inputs<'_, f64>,
        steps: &Steps,
    ) -> Result<Gradient> {
        let given = self.0.is_some();
        let grad = self.fitting(steps)?;
        let about = Error::about(BACKWARD);
        let gradients = block
            .gradients(steps, inputs.past_len(), &grad)
            .map_err(&about)?;
        let difference = block
            .finite_difference(inputs, &grad, &gradients)
            .map_err(&about)?;
        Ok(Gradient {
            gradients,
            difference,
            given,
        })
    }

    /// From tokens and weights.
    pub fn of_layer(
        self,
        layer: &Layer<'_>,
        (x, context): (&Tensor<f64>, Option<&Tensor<f64>>),
        past: Option<(&Tensor<f64>, &Tensor<f64>)>,
        steps: &Steps,
    ) -> Result<Gradient> {
        let given = self.0.is_some();
        let grad = self.fitting(steps)?;
        let about = Error::about(BACKWARD);
        let past_len = past.map_or(0, |(k, _)| k.shape()[2]);
        let gradients = layer
            .gradients(steps, x, context, past_len, &grad)
            .map_err(&about)?;
        let difference = layer
            .finite_difference(x, context, past, &grad, &gradients)
            .map_err(&about)?;
        Ok(Gradient {
            gradients,
            difference,
            given,
        })
    }

    /// In the shape of the run's result.
    fn fitting(self, steps: &Steps) -> Result<Tensor<f64>> {
        let (name, shape) = steps
            .result()
            .map_or((StepName::Output, &[][..]), |(name, result)| {
                (name, result.shape())
            });
        match self.0 {
            None => {
                let ones = vec![1.0; shape.iter().product()];
                Tensor::new(shape, ones).map_err(Error::about(BACKWARD))
            }
            Some(given) if given.shape() == shape => Ok(given),
            Some(given) => Err(Error::Shapes {
                argument: GRAD_OUTPUT,
                shape: given.shape().to_vec(),
                other: format!("the result ({name})"),
                other_shape: shape.to_vec(),
                remedy: "the gradient has one number for each number of the result".into(),
            }),
        }
    }
}

/// The gradients of a run.
pub struct Gradient {
    gradients: GradientSteps,
    difference: Option<FiniteDifference>,
    given: bool,
}

impl Gradient {
    pub fn shown(&self) -> Backward<'_> {
        Backward {
            gradients: &self.gradients,
            difference: self.difference.as_ref(),
            given: self.given,
        }
    }
}
