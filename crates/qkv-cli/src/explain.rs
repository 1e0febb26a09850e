//! `qkv explain`: the worked calculation.

mod backward;
mod exercise;

use crate::args::{ExplainArgs, Problem};
use crate::arrays::{Axes, Reader};
use crate::error::{Error, Names, Result};
use crate::memory::{Causes, Sizes, Use};
use crate::more::{self, Computed, DecodeStep};
use crate::operands::{
    axes, head_counts, kv_option, operands, past, refuse_arrays_beside_tokens, refuse_layer_options,
};
use crate::options::{self, Norms, Options, Position, steps_per_score};
use crate::output::{self, Holds, Target};
use crate::weights::{self, Setting, Weights, Widths};
use backward::{GradOutput, Gradient};
use exercise::Exercise;
use qkv::{Block, Inputs, Layer, Steps, Tensor};
use qkv_report::{Backward, BadSheet, Correction, Lang, Origin, Settings, Sheet, Subject};
use std::cell::RefCell;
use std::io;

/// Reads, computes, shows.
pub fn run(mut args: ExplainArgs) -> Result<()> {
    args.layer.widths = args.widths;
    let target = Target::new(&args.output, Holds::Steps)?;
    let rows = args.rows();
    let settings = output::settings(&args.output, &rows);
    refuse_idle_seed(&args)?;
    let exercise = Exercise::new(&mut args, &target, settings.lang)?;
    let key = exercise.as_ref().map(|exercise| exercise.key.as_path());
    output::check_places([("-o", target.file()), ("-o", key)])?;
    let mut stdin = io::stdin().lock();
    let run = Run {
        args: &args,
        target: &target,
        exercise,
        settings: &settings,
        rows: &rows,
        correcting: None,
    };
    let mut reader = Reader::new(&mut stdin);
    if run.exercise.is_some() {
        reader.keep_literals();
    }
    if let Some(x) = &args.layer.x {
        run.projected(x, reader)
    } else {
        run.given(reader)
    }
}

/// Corrects a sheet, whose command these are the words of.
pub fn correct(
    mut args: ExplainArgs,
    sheet: &Sheet,
    settings: &Settings,
) -> Result<std::result::Result<Correction, BadSheet>> {
    args.layer.widths = args.widths;
    args.output.json = false;
    args.output.format = None;
    args.output.file = None;
    args.exercise.exercise = None;
    let target = Target::new(&args.output, Holds::Steps)?;
    let corrected = RefCell::new(None);
    let run = Run {
        args: &args,
        target: &target,
        exercise: None,
        settings,
        rows: &[],
        correcting: Some((sheet, &corrected)),
    };
    let mut nothing = io::empty();
    let reader = Reader::new(&mut nothing);
    match &args.layer.x {
        Some(x) => run.projected(x, reader),
        None => run.given(reader),
    }?;
    Ok(corrected.take().unwrap_or(Err(BadSheet::Other)))
}

/// Where a correction goes.
type Corrected = RefCell<Option<std::result::Result<Correction, BadSheet>>>;

struct Run<'a> {
    args: &'a ExplainArgs,
    target: &'a Target,
    exercise: Option<Exercise>,
    settings: &'a Settings,
    /// The queries of --row.
    rows: &'a [usize],
    /// A sheet to correct, instead of showing anything.
    correcting: Option<(&'a Sheet, &'a Corrected)>,
}

impl Run<'_> {
    /// From queries, keys and values, or from the built-in example.
    fn given(&self, mut reader: Reader<'_>) -> Result<()> {
        let (inputs, layer) = (&self.args.inputs, &self.args.layer);
        refuse_layer_options(layer)?;
        self.refuse_decode()?;
        let engine = Error::engine(Names::Given);
        let position = Position::new(&self.args.position, false)?;
        let (q_axes, k_axes) = axes(inputs)?;
        let [q, k, v] = operands(inputs, &mut reader, q_axes, k_axes)?;
        let past = past(inputs, |name, text| reader.operand(name, text, k_axes))?;
        let mut arrays = Inputs::new(q.view()?, k.view()?, v.view()?).map_err(&engine)?;
        if let Some((k, v)) = &past {
            arrays = arrays.with_past(k.view()?, v.view()?).map_err(&engine)?;
        }
        let options = Options::read(&self.args.attention, &mut reader, arrays.heads())?;
        let norms = Norms::read(&layer.norms, &mut reader)?;
        let wo = layer
            .wo
            .as_deref()
            .map(|text| reader.matrix("--wo", text))
            .transpose()?;
        let inner = arrays.heads().saturating_mul(arrays.value_dim());
        let output = weights::output(layer, &mut reader, wo, inner)?;
        let concatenate = arrays.heads() > 1 || inputs.heads.is_some();
        let in_rows = concatenate || output.is_some();
        let grad_output =
            GradOutput::read(&self.args.gradient, &mut reader, in_rows, inputs.layout)?;
        self.check_inputs(&reader)?;
        self.check_rows(arrays.queries())?;
        let sizes = Sizes {
            batch: arrays.batch(),
            heads: arrays.heads(),
            kv_heads: arrays.kv_heads(),
            queries: arrays.queries(),
            keys: arrays.keys(),
            dk: arrays.head_dim(),
            dv: arrays.value_dim(),
            width: output.as_ref().map_or(0, |output| output.out_width()),
            weights: 0, // read, and small beside what they make
        };
        let wide = if arrays.head_dim() < arrays.value_dim() {
            "--v"
        } else {
            "--q"
        };
        sizes.check(
            self.wanted(),
            Causes {
                lengths: "--q",
                widths: (wide, "explain narrower arrays"),
            },
        )?;
        let block = Block {
            q_norm: norms.q,
            k_norm: norms.k,
            rotary: position.rotary,
            place: position.place,
            attention: options.attention()?,
            concatenate,
            output,
        };
        let steps = block.steps(&arrays).map_err(&engine)?;
        let gradient = grad_output
            .map(|grad| grad.of_block(&block, &arrays, &steps))
            .transpose()?;
        self.show(Shown {
            literals: reader.literals(),
            block: &block,
            steps: &steps,
            origin: match inputs.heads {
                Some(_) => Origin::Split,
                None => Origin::Given,
            },
            past_len: arrays.past_len(),
            full_run: None,
            backward: gradient.as_ref().map(Gradient::shown),
            built_in: inputs.q.is_none(),
            notes: self.bias_note(&options).into_iter().collect(),
        })
    }

    /// From tokens and weights.
    fn projected(&self, x: &str, mut reader: Reader<'_>) -> Result<()> {
        let (inputs, args) = (&self.args.inputs, &self.args.layer);
        refuse_arrays_beside_tokens(inputs)?;
        let engine = Error::engine(Names::Projected);
        let position = Position::new(&self.args.position, true)?;
        let (heads, kv_heads) = head_counts(inputs)?;
        let x = reader.tokens("--x", x)?;
        let context = args
            .context
            .as_deref()
            .map(|text| reader.tokens("--context", text));
        let context = context.transpose()?;
        let [batch, queries, width] = sizes3(&x);
        let [context_batch, new_keys, source] = sizes3(context.as_ref().unwrap_or(&x));
        if let Some(context) = &context
            && context_batch != batch
        {
            return Err(Error::Shapes {
                argument: "--context",
                shape: context.shape().to_vec(),
                other: "--x".into(),
                other_shape: x.shape().to_vec(),
                remedy: "both need the same number of batch entries".into(),
            });
        }
        let from = if context.is_some() {
            "--context"
        } else {
            "--x"
        };
        let seed = self.args.attention.seed();
        let setting = Setting {
            heads,
            kv_heads,
            width,
            source: (source, from),
            seed,
        };
        // Cached keys come later, and are checked again then.
        let check = |widths: Widths, keys: usize| {
            let sizes = Sizes {
                batch,
                heads,
                kv_heads,
                queries,
                keys,
                dk: widths.dk,
                dv: widths.dv,
                width,
                weights: widths.numbers,
            };
            let causes = Causes {
                lengths: "--x",
                widths: widths.cause,
            };
            sizes.check(self.wanted(), causes)
        };
        let weights = Weights::read(args, &mut reader, setting, |widths| check(widths, new_keys))?;
        let axes = Axes {
            layout: inputs.layout,
            split: Some((kv_heads, kv_option(inputs))),
        };
        let past = past(inputs, |name, text| reader.operand(name, text, axes))?
            .map(|(k, v)| Ok::<_, Error>((k.to_tensor()?, v.to_tensor()?)))
            .transpose()?;
        let options = Options::read(&self.args.attention, &mut reader, heads)?;
        let norms = Norms::read(&args.norms, &mut reader)?;
        let grad_output = GradOutput::read(&self.args.gradient, &mut reader, true, inputs.layout)?;
        self.check_inputs(&reader)?;
        self.check_rows(if self.args.more.decode { 1 } else { queries })?;
        let past_len = past.as_ref().map_or(0, |(k, _)| k.shape()[2]);
        check(weights.widths, past_len.saturating_add(new_keys))?;
        let mut notes: Vec<String> = Vec::new();
        notes.extend(weights.note(args.init, seed, self.settings.lang));
        notes.extend(self.bias_note(&options));
        let mut layer = Layer {
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
            residual: args.residual,
        };
        let others = [
            ("--context", context.is_some()),
            ("--past-k", past.is_some()),
        ];
        let decode = DecodeStep::new(&self.args.more, &mut layer, &x, others)?;
        notes.extend(decode.as_ref().map(|step| step.note(self.settings.lang)));
        let (x, past) = match &decode {
            Some(DecodeStep { last, .. }) => (&last.x, Some((&last.past_k, &last.past_v))),
            None => (&x, past.as_ref().map(|(k, v)| (k, v))),
        };
        let past_len = past.map_or(0, |(k, _)| k.shape()[2]);
        let steps = layer.steps(x, context.as_ref(), past).map_err(&engine)?;
        let gradient = grad_output
            .map(|grad| grad.of_layer(&layer, (x, context.as_ref()), past, &steps))
            .transpose()?;
        self.show(Shown {
            literals: reader.literals(),
            block: &layer.block,
            steps: &steps,
            origin: Origin::Projected {
                layer: &layer,
                x,
                context: context.as_ref(),
            },
            past_len,
            full_run: decode.as_ref().map(|step| &step.full),
            backward: gradient.as_ref().map(Gradient::shown),
            built_in: false,
            notes,
        })
    }

    fn show(&self, shown: Shown<'_>) -> Result<()> {
        let Shown {
            literals,
            block,
            steps,
            origin,
            past_len,
            full_run,
            backward,
            built_in,
            notes,
        } = shown;
        let computed = Computed {
            block,
            steps,
            origin,
            past_len,
            full_run,
        };
        let subject = Subject {
            block,
            steps,
            origin,
            past_len,
            backward,
            more: more::read(&self.args.more, computed)?,
            built_in,
            notes,
        };
        if let Some((sheet, corrected)) = self.correcting {
            *corrected.borrow_mut() = Some(qkv_report::correct(&subject, sheet, self.settings));
            return Ok(());
        }
        match &self.exercise {
            Some(exercise) => exercise.write(subject, self.settings, literals),
            None => self.target.write(&subject, self.settings),
        }
    }

    /// Refuses to overwrite an input.
    fn check_inputs(&self, reader: &Reader<'_>) -> Result<()> {
        if let Some(exercise) = &self.exercise {
            exercise.check_inputs(reader)?;
        }
        self.target.check_inputs(reader)
    }

    /// How often the steps are held: the gradient has as many numbers, and its check needs a second
    /// run, as does whatever is compared; another order of tokens is tried by pairs of runs.
    fn copies(&self) -> u128 {
        let more = &self.args.more;
        let own = if self.args.gradient.backward { 3 } else { 1 };
        own + u128::from(more.decode)
            + if more.permute.is_some() { 3 } else { 0 }
            + if more.contrast { 3 } else { 0 }
    }

    fn refuse_decode(&self) -> Result<()> {
        match self.args.more.decode {
            false => Ok(()),
            true => Err(Error::Alone {
                argument: "--decode",
                needed: "--x",
                remedy: "it starts from tokens; for a step from q, k and v give the cache as \
                         --past-k and --past-v",
            }),
        }
    }

    /// What the steps are wanted for.
    fn wanted(&self) -> Use {
        Use {
            steps_per_score: steps_per_score(&self.args.attention),
            copies: self.copies(),
            bytes_each: self.target.bytes_each(),
            for_people: self.target.is_for_people(),
        }
    }

    fn check_rows(&self, queries: usize) -> Result<()> {
        match self.rows.iter().find(|&&row| row >= queries) {
            None => Ok(()),
            Some(row) => Err(Error::Value {
                argument: "--row",
                value: row.to_string(),
                remedy: match queries {
                    0 => "there are no queries".into(),
                    1 => "there is 1 query, row 0".into(),
                    n => format!("there are {n} queries, rows 0 to {}", n - 1),
                },
            }),
        }
    }

    fn bias_note(&self, options: &Options) -> Option<String> {
        options
            .bias_looks_like_mask()
            .then(|| match self.settings.lang {
                Lang::En => {
                    "Every number of --bias is 0 or 1. They are added to the scores and drop \
                         nothing; for a mask use --keep or --drop."
                        .into()
                }
                Lang::Zh => "--bias中全是0和1。它们只会加到得分上，不会屏蔽任何键；\
                         如果这是掩码，请改用--keep或--drop。"
                    .into(),
            })
    }
}

/// A seed of nothing is a misunderstanding.
fn refuse_idle_seed(args: &ExplainArgs) -> Result<()> {
    let drawn = args.attention.dropout.is_some()
        || args.layer.init.is_some()
        || args.exercise.exercise == Some(Problem::Random);
    let needed = "--dropout, --init or --exercise random";
    options::refuse_idle_seed(&args.attention, drawn, needed)
}

/// What there is to show.
struct Shown<'a> {
    /// The arrays that were read, by option, if they are kept.
    literals: &'a [(&'static str, String)],
    block: &'a Block<'a>,
    steps: &'a Steps,
    origin: Origin<'a>,
    past_len: usize,
    full_run: Option<&'a Steps>,
    backward: Option<Backward<'a>>,
    built_in: bool,
    notes: Vec<String>,
}

/// The three sizes of tokens, which [`Reader::tokens`] gives three axes.
fn sizes3(tokens: &Tensor<f64>) -> [usize; 3] {
    tokens.shape().try_into().unwrap_or([0; 3])
}
