//! Somebody else's gradients.

use super::claims::half_unit;
use crate::args::CheckArgs;
use crate::arrays::{Axes, Reader, dtype_of};
use crate::error::{Error, Names, Result};
use qkv::{DType, GradientName, Tensor};
use qkv_check::Problem;
use qkv_check::dumps::Report;
use qkv_check::gradients::{self, GradientClaim, check};

const GRAD_OUTPUT: &str = "--grad-output";

/// The gradient of the output, and theirs of what goes in.
pub struct Claims {
    grad: Tensor<f64>,
    claims: Vec<GradientClaim>,
}

impl Claims {
    /// Reads them, if gradients are asked about; `in_rows` if the result has a row for each token.
    pub fn read(
        args: &CheckArgs,
        reader: &mut Reader<'_>,
        in_rows: bool,
        (q_axes, k_axes): (Axes, Axes),
    ) -> Result<Option<Claims>> {
        let given = &args.claims;
        let Some(argument) = given.gradient() else {
            return Ok(None);
        };
        if let Some(option) = given.step() {
            return Err(Error::Conflict {
                argument: option,
                other: argument.into(),
                remedy: "check the steps and the gradients one after the other",
            });
        }
        let Some(text) = &given.grad_output else {
            return Err(Error::Missing {
                argument: GRAD_OUTPUT.into(),
                remedy: "the gradients follow from that of the output: give it too".into(),
            });
        };
        let plain = Axes {
            layout: args.inputs.layout,
            split: None,
        };
        let grad = match in_rows {
            true => reader.rows(GRAD_OUTPUT, text)?,
            false => reader.operand(GRAD_OUTPUT, text, plain)?.to_tensor()?,
        };
        let each = [
            ("--dq", GradientName::GradQ, &given.dq, q_axes),
            ("--dk", GradientName::GradK, &given.dk, k_axes),
            ("--dv", GradientName::GradV, &given.dv, k_axes),
        ];
        let mut claims = Vec::new();
        for (option, name, text, axes) in each {
            if let Some(text) = text {
                claims.push(claim(reader, (option, text), name, axes)?);
            }
        }
        let whole = [
            ("--dbias", GradientName::GradBias, &given.dbias),
            ("--dsinks", GradientName::GradSinks, &given.dsinks),
        ];
        for (option, name, text) in whole {
            if let Some(text) = text {
                let array = reader.array(option, text)?;
                let numbers = array.to_f64().map_err(Error::io(option))?;
                let values = Tensor::new(&array.shape, numbers.to_vec());
                claims.push(GradientClaim {
                    name,
                    values: values.map_err(Error::about(option))?,
                    dtype: dtype_of(&array).unwrap_or(DType::F64),
                    half_unit: half_unit(&array),
                });
            }
        }
        if claims.is_empty() {
            return Err(Error::Missing {
                argument: "--dq, --dk, --dv, --dbias, --dsinks".into(),
                remedy: "give somebody's gradients to check".into(),
            });
        }
        Ok(Some(Claims { grad, claims }))
    }

    /// Compares.
    pub fn check(&self, problem: &Problem<'_>) -> Result<Report> {
        check(problem, &self.grad, &self.claims).map_err(|error| match error {
            gradients::Error::Problem(source) => Error::engine(Names::Given)(source),
            gradients::Error::Shape {
                name,
                shape,
                expected,
            } => Error::Shapes {
                argument: option(name),
                shape,
                other: "what it is the gradient of".into(),
                other_shape: expected,
                remedy:
                    "a gradient has the shape of that, cached keys included; check --heads and \
                         --layout"
                        .into(),
            },
            gradients::Error::Missing(name) => Error::Missing {
                argument: match name {
                    GradientName::GradBias => "--bias".into(),
                    _ => "--sinks".into(),
                },
                remedy: format!("{} is its gradient: give it too", option(name)),
            },
            _ => Error::Usage(format!("{GRAD_OUTPUT}: give --q, --k and --v")),
        })
    }
}

/// The option of a gradient.
fn option(name: GradientName) -> &'static str {
    match name {
        GradientName::GradQ => "--dq",
        GradientName::GradK => "--dk",
        GradientName::GradBias => "--dbias",
        GradientName::GradSinks => "--dsinks",
        _ => "--dv",
    }
}

/// A gradient with the axes of what it is of.
fn claim(
    reader: &mut Reader<'_>,
    (option, text): (&'static str, &str),
    name: GradientName,
    axes: Axes,
) -> Result<GradientClaim> {
    let array = reader.array(option, text)?;
    let numbers = array.to_f64().map_err(Error::io(option))?;
    let axes = axes.see(option, &array.shape)?;
    let view = axes.view(option, &numbers)?;
    let [b, h, l, d] = view.shape();
    let mut data = Vec::with_capacity(numbers.len());
    for at in 0..b * h * l {
        let (b, h, l) = (at / (h * l), at / l % h, at % l);
        data.extend((0..d).map(|c| view.get([b, h, l, c])));
    }
    Ok(GradientClaim {
        name,
        values: Tensor::new(&[b, h, l, d], data).map_err(Error::about(option))?,
        dtype: dtype_of(&array).unwrap_or(DType::F64),
        half_unit: half_unit(&array),
    })
}
