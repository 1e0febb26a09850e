//! `qkv check`: whether somebody else's numbers are right, and if not, why.

mod claims;
mod waiting;

use crate::args::{CheckArgs, OutputArgs};
use crate::arrays::{Axes, Reader};
use crate::error::{Error, Names, Result};
use crate::operands::{axes, head_counts, kv_option, operands, past, refuse_layer_options};
use crate::options::{self, Norms, Options, Position};
use crate::output::{self, Kind, Target};
use crate::weights::{self, Setting, Weights};
use claims::Claims;
use qkv::{Block, Layer};
use qkv_check::{Problem, Report};
use qkv_report::Settings;
use std::io;

/// Exit status where the numbers are not right.
const DIFFERENT: u8 = 1;

/// Reads, compares, tells; the exit status is 0 where they agree, 1 where they do not.
pub fn run(args: &CheckArgs) -> Result<u8> {
    let target = target(args)?;
    let settings = settings(args);
    options::refuse_idle_seed(
        &args.attention,
        args.attention.dropout.is_some() || args.layer.init.is_some(),
        "--dropout or --init",
    )?;
    let mut stdin = io::stdin().lock();
    let mut reader = Reader::new(&mut stdin);
    let report = match &args.layer.x {
        Some(x) => projected(args, &target, x, &mut reader),
        None => given(args, &target, &mut reader),
    }?;
    target.write_check(&report, &settings)?;
    Ok(if report.verdict.agrees() {
        0
    } else {
        DIFFERENT
    })
}

/// From queries, keys and values.
fn given(args: &CheckArgs, target: &Target, reader: &mut Reader<'_>) -> Result<Report> {
    let (inputs, layer) = (&args.inputs, &args.layer);
    refuse_layer_options(layer)?;
    if inputs.q.is_none() && inputs.k.is_none() && inputs.v.is_none() {
        return Err(Error::Missing {
            argument: "--q, --k, --v".into(),
            remedy: "give the inputs that the numbers to check were computed from, or --x with \
                     its weights"
                .into(),
        });
    }
    let position = Position::new(&args.position, false)?;
    let (q_axes, k_axes) = axes(inputs)?;
    let [q, k, v] = operands(inputs, reader, q_axes, k_axes)?;
    let (q, k, v) = (q.to_tensor()?, k.to_tensor()?, v.to_tensor()?);
    let past = past(inputs, |name, text| reader.operand(name, text, k_axes))?
        .map(|(k, v)| Ok::<_, Error>((k.to_tensor()?, v.to_tensor()?)))
        .transpose()?;
    let heads = q.shape()[1];
    let options = Options::read(&args.attention, reader, heads)?;
    let norms = Norms::read(&layer.norms, reader)?;
    let wo = layer
        .wo
        .as_deref()
        .map(|text| reader.matrix("--wo", text))
        .transpose()?;
    let inner = heads.saturating_mul(v.shape()[3]);
    let output = weights::output(layer, reader, wo, inner)?;
    let claims = Claims::read(&args.claims, reader, inputs.layout)?;
    target.check_inputs(reader)?;
    let block = Block {
        q_norm: norms.q,
        k_norm: norms.k,
        rotary: position.rotary,
        place: position.place,
        attention: options.attention()?,
        concatenate: inputs.heads.is_some() || output.is_some(),
        output,
    };
    let problem = Problem::Given {
        block: &block,
        q: &q,
        k: &k,
        v: &v,
        past: past.as_ref().map(|(k, v)| (k, v)),
    };
    claims.check(&problem, Names::Given)
}

/// From tokens and weights.
fn projected(
    args: &CheckArgs,
    target: &Target,
    x: &str,
    reader: &mut Reader<'_>,
) -> Result<Report> {
    let (inputs, layer) = (&args.inputs, &args.layer);
    let position = Position::new(&args.position, true)?;
    let (heads, kv_heads) = head_counts(inputs)?;
    let x = reader.tokens("--x", x)?;
    let context = layer.context.as_deref();
    let context = context
        .map(|text| reader.tokens("--context", text))
        .transpose()?;
    let width = x.shape()[2];
    let source = context.as_ref().unwrap_or(&x).shape()[2];
    let from = if context.is_some() {
        "--context"
    } else {
        "--x"
    };
    let setting = Setting {
        heads,
        kv_heads,
        width,
        source: (source, from),
        seed: args.attention.seed(),
    };
    let weights = Weights::read(layer, reader, setting, |_| Ok(()))?;
    let axes = Axes {
        layout: inputs.layout,
        split: Some((kv_heads, kv_option(inputs))),
    };
    let past = past(inputs, |name, text| reader.operand(name, text, axes))?
        .map(|(k, v)| Ok::<_, Error>((k.to_tensor()?, v.to_tensor()?)))
        .transpose()?;
    let options = Options::read(&args.attention, reader, heads)?;
    let norms = Norms::read(&layer.norms, reader)?;
    let mut claims = Claims::read(&args.claims, reader, inputs.layout)?;
    claims.read_projections(inputs, reader)?;
    target.check_inputs(reader)?;
    let layer = Layer {
        q: weights.q,
        k: weights.k,
        v: weights.v,
        heads,
        kv_heads,
        sinusoidal: position.sinusoidal,
        block: Block {
            q_norm: norms.q,
            k_norm: norms.k,
            rotary: position.rotary,
            place: position.place,
            attention: options.attention()?,
            concatenate: true,
            output: weights.output,
        },
        residual: layer.residual,
    };
    let problem = Problem::Tokens {
        layer: &layer,
        x: &x,
        context: context.as_ref(),
        past: past.as_ref().map(|(k, v)| (k, v)),
    };
    claims.check(&problem, Names::Projected)
}

/// Where the report goes: only text and JSON are possible.
fn target(args: &CheckArgs) -> Result<Target> {
    let target = Target::new(&common(args))?;
    match target.kind() {
        Kind::Text | Kind::Json => Ok(target),
        other => Err(Error::Value {
            argument: "--format",
            value: other.name().into(),
            remedy: "a check is told as text or json".into(),
        }),
    }
}

fn settings(args: &CheckArgs) -> Settings {
    output::settings(&common(args), &[])
}

/// The options of the output as other commands have them.
fn common(args: &CheckArgs) -> OutputArgs {
    let report = &args.report;
    OutputArgs {
        format: report.format,
        json: report.json,
        lang: report.lang,
        digits: report.digits,
        width: report.width,
        color: report.color,
        file: report.file.clone(),
    }
}
