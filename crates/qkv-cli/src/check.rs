//! `qkv check`: whether somebody else's numbers are right, and if not, why.

mod apart;
mod claims;
mod dumps;
mod gradients;
mod sheet;
mod waiting;

use crate::args::{CheckArgs, OutputArgs};
use crate::arrays::{Axes, Reader};
use crate::error::{Error, Names, Result};
use crate::operands::{axes, head_counts, kv_option, operands, past, refuse_layer_options};
use crate::options::{self, Norms, Options, Position};
use crate::output::{self, Holds, Kind, Target};
use crate::weights::{self, Setting, Weights};
use claims::Claims;
use qkv::{Attention, Block, Causal, Layer};
use qkv_check::presets::{self, Against, Masks, PRESETS, Preset};
use qkv_check::{Problem, Report, Verdict};
use qkv_report::{Findings, Separated, Settings};
use std::io;

/// Exit status where the numbers are not right.
const DIFFERENT: u8 = 1;

/// Reads, compares, tells; the exit status is 0 where they agree, 1 where they do not.
pub fn run(mut args: CheckArgs) -> Result<u8> {
    read_widths(&mut args)?;
    let masks = read_mask(&mut args)?;
    let args = &args;
    let target = Target::new(&common(args), Holds::Told)?;
    let settings = settings(args);
    let apart = apart::Wanted::new(args)?;
    output::check_places([
        ("-o", target.file()),
        ("--tell-apart", apart.as_ref().map(apart::Wanted::file)),
    ])?;
    if apart.is_some() && (args.sheet.is_some() || !args.files.is_empty()) {
        return Err(Error::Conflict {
            argument: "--tell-apart",
            other: "--sheet or two files".into(),
            remedy: "an input is made for the options with --q, --k and --v, or with --x",
        });
    }
    if args.against.is_some() && (args.sheet.is_some() || !args.files.is_empty()) {
        return Err(Error::Conflict {
            argument: "--against",
            other: "--sheet or two files".into(),
            remedy: "a system is told from its output for --q, --k and --v",
        });
    }
    options::refuse_idle_seed(
        &args.attention,
        args.attention.dropout.is_some() || args.layer.init.is_some(),
        "--dropout or --init",
    )?;
    let mut stdin = io::stdin().lock();
    let mut reader = Reader::new(&mut stdin);
    if let Some(path) = &args.sheet {
        return sheet::run(args, path, &target, &settings);
    }
    if !args.files.is_empty() {
        let report = Found::Names(Box::new(dumps::run(args, &mut reader)?));
        target.check_inputs(&reader)?;
        target.write_found(|kind| report.told(kind, &settings))?;
        return Ok(status(report.verdict()));
    }
    let gradient = args.claims.gradient();
    if let (Some(argument), true) = (gradient, args.tell_apart.is_some()) {
        return Err(Error::Conflict {
            argument,
            other: "--tell-apart".into(),
            remedy: "explanations of gradients are not told apart: leave out one of them",
        });
    }
    if let Some(argument) = gradient
        && args.layer.x.is_some()
    {
        return Err(Error::Conflict {
            argument,
            other: "--x".into(),
            remedy: "gradients are checked for --q, --k and --v: give those",
        });
    }
    let report = match &args.layer.x {
        Some(x) => projected(args, masks, &target, x, apart.as_ref(), &mut reader),
        None => given(args, masks, &target, apart.as_ref(), &mut reader),
    }?;
    target.write_found(|kind| report.told(kind, &settings))?;
    Ok(status(report.verdict()))
}

/// The system of --against.
fn against(args: &CheckArgs) -> Result<Option<&'static Preset>> {
    let Some(name) = &args.against else {
        return Ok(None);
    };
    let known = || {
        let known: Vec<&str> = PRESETS.iter().map(|preset| preset.id).collect();
        known.join(", ")
    };
    match (presets::find(name), args.claims.gradient()) {
        (Some(_), Some(argument)) => Err(Error::Conflict {
            argument,
            other: "--against".into(),
            remedy: "systems are told apart by their output: leave out one of them",
        }),
        (Some(preset), None) => Ok(Some(preset)),
        (None, _) => Err(Error::Value {
            argument: "--against",
            value: format!("\"{}\"", qkv_io::shown(name)),
            remedy: format!("give one of {}", known()),
        }),
    }
}

/// With --against the system says how a bare --causal is aligned; until then it ends at the bottom
/// right.
fn aligned<'a>(mut attention: Attention<'a>, args: &CheckArgs) -> Attention<'a> {
    if args.against.is_some() && attention.causal == Some(Causal::Square) {
        attention.causal = Some(Causal::BottomRight);
    }
    attention
}

/// What a check found: of steps, or of arrays by name.
enum Found {
    Steps(Box<Report>, Option<Separated>),
    Against(Box<Against>, Option<Separated>),
    Names(Box<qkv_check::dumps::Report>),
}

impl Found {
    fn verdict(&self) -> Verdict {
        match self {
            Found::Steps(report, _) => report.verdict,
            Found::Against(against, _) => against.report.verdict,
            Found::Names(report) => report.verdict,
        }
    }

    fn told(&self, kind: Kind, settings: &Settings) -> String {
        let lang = settings.lang;
        let apart = match self {
            Found::Steps(_, apart) | Found::Against(_, apart) => apart.as_ref(),
            Found::Names(_) => None,
        };
        let program = |mut json: serde_json::Value| {
            if let Some(apart) = apart {
                apart.put_into(&mut json);
            }
            format!("{json}\n")
        };
        let mut findings = match (self, kind) {
            (Found::Steps(report, _), Kind::Json) => {
                return program(qkv_report::check_json(report, lang));
            }
            (Found::Against(against, _), Kind::Json) => {
                return program(qkv_report::against_json(against, lang));
            }
            (Found::Names(report), Kind::Json) => {
                return format!("{}\n", qkv_report::dumps_json(report, lang));
            }
            (Found::Steps(report, _), _) => qkv_report::check_findings(report, lang),
            (Found::Against(against, _), _) => qkv_report::against_findings(against, lang),
            (Found::Names(report), _) => qkv_report::dumps_findings(report, lang),
        };
        if let Some(apart) = apart {
            apart.remark(&mut findings, lang);
        }
        rendered(&findings, kind, settings)
    }
}

/// In the format asked for, which is none for programs.
fn rendered(findings: &Findings, kind: Kind, settings: &Settings) -> String {
    match kind {
        Kind::Markdown => findings.markdown(settings),
        Kind::Html => findings.html(settings),
        Kind::Latex => findings.latex(settings),
        _ => findings.text(settings),
    }
}

/// With --x, --dk and --dv are the widths of drawn weights.
fn read_widths(args: &mut CheckArgs) -> Result<()> {
    if args.layer.x.is_none() {
        return Ok(());
    }
    let claims = &mut args.claims;
    let widths = &mut args.layer.widths;
    for (argument, text, width) in [
        ("--dk", claims.dk.take(), &mut widths.dk),
        ("--dv", claims.dv.take(), &mut widths.dv),
    ] {
        let read = text.map(|text| {
            text.parse().ok().filter(|n| *n > 0).ok_or(Error::Value {
                argument,
                value: format!("\"{}\" with --x", qkv_io::shown(&text)),
                remedy:
                    "with --x it is the width of drawn weights, a whole number from 1; gradients \
                         are checked for --q, --k and --v"
                        .into(),
            })
        });
        *width = read.transpose()?;
    }
    Ok(())
}

/// --mask is what the system of --against makes of it.
fn read_mask(args: &mut CheckArgs) -> Result<Masks> {
    let Some(mask) = args.mask.take() else {
        return Ok(Masks::Meant);
    };
    let given = [
        ("--keep", &args.attention.keep),
        ("--drop", &args.attention.drop),
    ];
    let mut given = given.iter().filter(|(_, given)| given.is_some());
    if let Some((other, _)) = given.next() {
        return Err(Error::Conflict {
            argument: "--mask",
            other: (*other).into(),
            remedy: "give the array that the system was given, or what it meant",
        });
    }
    let Some(preset) = against(args)? else {
        return Err(Error::Alone {
            argument: "--mask",
            needed: "--against",
            remedy: "what True means is the system's: give --keep or --drop without one",
        });
    };
    match preset.true_drops() {
        true => args.attention.drop = Some(mask),
        false => args.attention.keep = Some(mask),
    }
    Ok(Masks::AsPassed)
}

fn status(verdict: Verdict) -> u8 {
    match verdict.agrees() {
        true => 0,
        false => DIFFERENT,
    }
}

/// From queries, keys and values.
fn given(
    args: &CheckArgs,
    masks: Masks,
    target: &Target,
    apart: Option<&apart::Wanted>,
    reader: &mut Reader<'_>,
) -> Result<Found> {
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
    let preset = against(args)?.map(|preset| (preset, masks));
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
    let in_rows = inputs.heads.is_some() || output.is_some();
    let one = (q.shape()[0] == 1 && !in_rows).then(|| [q.shape()[2], heads]);
    let claims = Claims::read(&args.claims, reader, inputs.layout, one)?;
    let gradients = gradients::Claims::read(args, reader, in_rows, (q_axes, k_axes))?;
    target.check_inputs(reader)?;
    apart.map_or(Ok(()), |apart| apart.check_inputs(reader))?;
    let block = Block {
        q_norm: norms.q,
        k_norm: norms.k,
        rotary: position.rotary,
        place: position.place,
        attention: aligned(options.attention()?, args),
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
    match gradients {
        Some(gradients) => gradients
            .check(&problem)
            .map(|found| Found::Names(Box::new(found))),
        None => claims.check(&problem, Names::Given, preset, apart),
    }
}

/// From tokens and weights.
fn projected(
    args: &CheckArgs,
    masks: Masks,
    target: &Target,
    x: &str,
    apart: Option<&apart::Wanted>,
    reader: &mut Reader<'_>,
) -> Result<Found> {
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
    let mut claims = Claims::read(&args.claims, reader, inputs.layout, None)?;
    claims.read_projections(inputs, reader)?;
    target.check_inputs(reader)?;
    apart.map_or(Ok(()), |apart| apart.check_inputs(reader))?;
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
            attention: aligned(options.attention()?, args),
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
    claims.check(
        &problem,
        Names::Projected,
        against(args)?.map(|preset| (preset, masks)),
        apart,
    )
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
