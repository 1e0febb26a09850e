//! Somebody else's numbers.

use super::Found;
use super::apart::Wanted;
use crate::args::{ClaimArgs, InputArgs, Layout};
use crate::arrays::{Axes, Reader, dtype_of};
use crate::error::{Error, Names, Result};
use crate::operands::{head_counts, kv_option};
use qkv::{DType, StepName, Tensor};
use qkv_check::presets::{Masks, Preset, check_against};
use qkv_check::{Claim, Problem, Report, Watch, check_with, tell_apart};
use qkv_io::Array;
use qkv_report::Separated;

/// All that was given, with the option of each.
pub struct Claims {
    options: Vec<&'static str>,
    claims: Vec<Claim>,
}

impl Claims {
    /// Reads those of the options that are there; at least one is needed.
    /// Outputs have their axes in the layout; of three axes only those of `one`, the tokens and heads
    /// of a single batch entry, since heads may lie side by side too.
    pub fn read(
        args: &ClaimArgs,
        reader: &mut Reader<'_>,
        layout: Layout,
        one: Option<[usize; 2]>,
    ) -> Result<Claims> {
        let mut claims = Claims {
            options: Vec::new(),
            claims: Vec::new(),
        };
        let each = [
            ("--scores", StepName::Scores, &args.scores),
            ("--scaled", StepName::Scaled, &args.scaled),
            ("--weights", StepName::Weights, &args.weights),
        ];
        for (option, step, text) in each {
            if let Some(text) = text {
                let array = reader.array(option, text)?;
                claims.push(option, step, &array)?;
            }
        }
        for text in &args.output {
            let array = reader.array("--output", text)?;
            claims.push("--output", StepName::Output, &array)?;
            if let (Layout::Blhd, Some(claim)) = (layout, claims.claims.last_mut()) {
                claim.values = heads_first(&claim.values, one)?;
            }
        }
        if let Some(text) = &args.lse {
            let array = reader.array("--lse", text)?;
            claims.push("--lse", StepName::Lse, &array)?;
        }
        Ok(claims)
    }

    /// With --x, queries, keys and values are somebody else's too.
    pub fn read_projections(&mut self, inputs: &InputArgs, reader: &mut Reader<'_>) -> Result<()> {
        let (heads, kv_heads) = head_counts(inputs)?;
        let each = [
            ("--q", StepName::Q, &inputs.q, (heads, "--heads")),
            ("--k", StepName::K, &inputs.k, (kv_heads, kv_option(inputs))),
            ("--v", StepName::V, &inputs.v, (kv_heads, kv_option(inputs))),
        ];
        for (option, step, text, split) in each {
            let Some(text) = text else { continue };
            let array = reader.array(option, text)?;
            let axes = Axes {
                layout: inputs.layout,
                split: Some(split),
            };
            let view = axes.see(option, &array.shape)?;
            let numbers = array.to_f64().map_err(Error::io(option))?;
            let view = view.view(option, &numbers)?;
            let [b, h, l, d] = view.shape();
            let mut data = Vec::with_capacity(numbers.len());
            for at in 0..b * h * l {
                let (b, h, l) = (at / (h * l), at / l % h, at % l);
                data.extend((0..d).map(|c| view.get([b, h, l, c])));
            }
            let tensor = Tensor::new(&[b, h, l, d], data).map_err(Error::about(option))?;
            self.options.push(option);
            self.claims.push(Claim {
                step,
                values: tensor,
                dtype: dtype_of(&array).unwrap_or(DType::F64),
                half_unit: half_unit(&array),
            });
        }
        Ok(())
    }

    fn push(&mut self, option: &'static str, step: StepName, array: &Array) -> Result<()> {
        let numbers = array.to_f64().map_err(Error::io(option))?;
        let values = Tensor::new(&array.shape, numbers).map_err(Error::about(option))?;
        self.options.push(option);
        self.claims.push(Claim {
            step,
            values,
            dtype: dtype_of(array).unwrap_or(DType::F64),
            half_unit: half_unit(array),
        });
        Ok(())
    }

    /// Compares, with what is right or with what a system gives.
    pub fn check(
        &self,
        problem: &Problem<'_>,
        names: Names,
        against: Option<(&'static Preset, Masks)>,
        apart: Option<&Wanted>,
    ) -> Result<Found> {
        if self.claims.is_empty() {
            return Err(Error::Missing {
                argument: "--output".into(),
                remedy: "give somebody's numbers to check: --scores, --scaled, --weights, \
                         --output or --lse"
                    .into(),
            });
        }
        let watch = Watch::default();
        let found = super::waiting::shown(&watch, || match against {
            None => check_with(problem, &self.claims, &watch)
                .map(|report| Found::Steps(Box::new(report), None)),
            Some((preset, masks)) => check_against(problem, &self.claims, preset, masks)
                .map(|against| Found::Against(Box::new(against), None)),
        });
        let found = found.map_err(|error| match error {
            qkv_check::Error::Problem(source) => Error::engine(names)(source),
            qkv_check::Error::Shape {
                step,
                shape,
                expected,
            } => Error::Shapes {
                argument: self.option(step),
                shape,
                other: "the inputs".into(),
                other_shape: expected,
                remedy: "check --heads and --layout, and that it belongs to these inputs".into(),
            },
            other => Error::Usage(other.to_string()),
        })?;
        Ok(match (found, apart) {
            (Found::Steps(report, _), Some(wanted)) => {
                let separated = self.separated(problem, &report, wanted)?;
                Found::Steps(report, separated)
            }
            (Found::Against(against, _), Some(wanted)) => {
                let separated = self.separated(problem, &against.report, wanted)?;
                Found::Against(against, separated)
            }
            (found, _) => found,
        })
    }

    /// Writes an input that tells several explanations apart.
    fn separated(
        &self,
        problem: &Problem<'_>,
        report: &Report,
        wanted: &Wanted,
    ) -> Result<Option<Separated>> {
        if report.causes.len() < 2 {
            return Ok(None);
        }
        let apart = tell_apart(problem, &self.claims, report);
        let written = apart
            .as_ref()
            .map(|apart| Ok::<_, Error>((apart, wanted.write(apart, report)?)))
            .transpose()?;
        let found = written.map(|(apart, (file, arguments))| (apart, file, arguments));
        Ok(Some(Separated::new(found)))
    }

    fn option(&self, step: StepName) -> &'static str {
        let at = self.claims.iter().position(|claim| claim.step == step);
        at.map_or("--output", |at| self.options[at])
    }
}

/// Half a unit of the last digit that was typed anywhere in the array; none for whole numbers,
/// which are meant as they stand.
pub fn half_unit(array: &Array) -> f64 {
    let decimals = array.decimals.iter().flatten();
    let decimals = decimals.filter(|decimals| **decimals != i32::MAX).max();
    match decimals {
        Some(&decimals) if decimals > 0 => 0.5 * 10f64.powi(-decimals),
        _ => 0.0,
    }
}

/// Heads before tokens, where they came in the other order.
fn heads_first(values: &Tensor<f64>, one: Option<[usize; 2]>) -> Result<Tensor<f64>> {
    let (b, l, h, d) = match *values.shape() {
        [b, l, h, d] => (b, l, h, d),
        [l, h, d] if one == Some([l, h]) => (1, l, h, d),
        _ => return Ok(values.clone()),
    };
    let mut data = Vec::with_capacity(values.data().len());
    for at in 0..b * h * l {
        let (b, h_at, l_at) = (at / (h * l), at / l % h, at % l);
        let start = ((b * l + l_at) * h + h_at) * d;
        data.extend_from_slice(&values.data()[start..start + d]);
    }
    Tensor::new(&[b, h, l, d], data).map_err(Error::about("--output"))
}
