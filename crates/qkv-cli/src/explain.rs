//! `qkv explain`: the worked calculation.

use crate::args::{ExplainArgs, InputArgs, LayerArgs};
use crate::arrays::{Axes, Operand, Reader};
use crate::error::{Error, Names, Result};
use crate::memory::Sizes;
use crate::options::{Norms, Options, Position};
use crate::output::{self, Target};
use crate::weights::{self, Setting, Weights};
use qkv::{Block, Inputs, Layer, Steps, Tensor};
use qkv_report::{Lang, Origin, Settings, Subject};
use std::io;

/// Reads, computes, shows.
pub fn run(args: &ExplainArgs) -> Result<()> {
    let target = Target::new(&args.output)?;
    let settings = output::settings(&args.output, &args.row);
    let mut stdin = io::stdin().lock();
    let run = Run {
        args,
        target: &target,
        settings: &settings,
    };
    let reader = Reader::new(&mut stdin);
    if let Some(x) = &args.layer.x {
        run.projected(x, reader)
    } else {
        run.given(reader)
    }
}

struct Run<'a> {
    args: &'a ExplainArgs,
    target: &'a Target,
    settings: &'a Settings,
}

impl Run<'_> {
    /// From queries, keys and values, or from the built-in example.
    fn given(&self, mut reader: Reader<'_>) -> Result<()> {
        let (inputs, layer) = (&self.args.inputs, &self.args.layer);
        refuse_layer_options(layer)?;
        let engine = Error::engine(Names::Given);
        let position = Position::new(&self.args.position, false)?;
        let (q_axes, k_axes) = axes(inputs)?;
        let [q, k, v] = operands(inputs, &mut reader, q_axes, k_axes)?;
        let past = past(inputs, &mut reader, k_axes)?;
        let mut arrays = Inputs::new(q.view()?, k.view()?, v.view()?).map_err(&engine)?;
        if let Some((k, v)) = &past {
            arrays = arrays.with_past(k.view()?, v.view()?).map_err(&engine)?;
        }
        let options = Options::read(&self.args.attention, &mut reader, arrays.heads())?;
        let norms = Norms::read(layer, &mut reader)?;
        let wo = layer
            .wo
            .as_deref()
            .map(|text| reader.matrix("--wo", text))
            .transpose()?;
        let inner = arrays.heads().saturating_mul(arrays.value_dim());
        let output = weights::output(layer, &mut reader, wo, inner)?;
        self.target.check_inputs(&reader)?;
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
        };
        sizes.check(options.steps_per_score(), self.target.bytes_each())?;
        let block = Block {
            q_norm: norms.q,
            k_norm: norms.k,
            rotary: position.rotary,
            place: position.place,
            attention: options.attention()?,
            concatenate: arrays.heads() > 1 || inputs.heads.is_some(),
            output,
        };
        let steps = block.steps(&arrays).map_err(&engine)?;
        self.show(Shown {
            block: &block,
            steps: &steps,
            origin: Origin::Given,
            past_len: arrays.past_len(),
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
        let seed = self.args.attention.seed;
        let setting = Setting {
            heads,
            kv_heads,
            width,
            source: (source, from),
            seed,
        };
        let weights = Weights::read(args, &mut reader, setting)?;
        let axes = Axes {
            layout: inputs.layout,
            split: Some((kv_heads, kv_option(inputs))),
        };
        let past = past(inputs, &mut reader, axes)?
            .map(|(k, v)| Ok::<_, Error>((k.to_tensor()?, v.to_tensor()?)))
            .transpose()?;
        let options = Options::read(&self.args.attention, &mut reader, heads)?;
        let norms = Norms::read(args, &mut reader)?;
        self.target.check_inputs(&reader)?;
        self.check_rows(queries)?;
        let past_len = past.as_ref().map_or(0, |(k, _)| k.shape()[2]);
        let sizes = Sizes {
            batch,
            heads,
            kv_heads,
            queries,
            keys: past_len.saturating_add(new_keys),
            dk: weights.dk,
            dv: weights.dv,
            width,
        };
        sizes.check(options.steps_per_score(), self.target.bytes_each())?;
        let mut notes: Vec<String> = Vec::new();
        notes.extend(weights.note(args.init, seed, self.settings.lang));
        notes.extend(self.bias_note(&options));
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
            residual: args.residual,
        };
        let past = past.as_ref().map(|(k, v)| (k, v));
        let steps = layer.steps(&x, context.as_ref(), past).map_err(&engine)?;
        self.show(Shown {
            block: &layer.block,
            steps: &steps,
            origin: Origin::Projected {
                layer: &layer,
                x: &x,
                context: context.as_ref(),
            },
            past_len,
            built_in: false,
            notes,
        })
    }

    fn show(&self, shown: Shown<'_>) -> Result<()> {
        let Shown {
            block,
            steps,
            origin,
            past_len,
            built_in,
            notes,
        } = shown;
        let subject = Subject {
            block,
            steps,
            origin,
            past_len,
            built_in,
            notes,
        };
        self.target.write(&subject, self.settings)
    }

    fn check_rows(&self, queries: usize) -> Result<()> {
        match self.args.row.iter().find(|&&row| row >= queries) {
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
                Lang::Zh => "--bias 中全是 0 和 1。它们只会加到分数上，不会屏蔽任何键；\
                         如果这是掩码，请改用 --keep 或 --drop。"
                    .into(),
            })
    }
}

/// What there is to show.
struct Shown<'a> {
    block: &'a Block<'a>,
    steps: &'a Steps,
    origin: Origin<'a>,
    past_len: usize,
    built_in: bool,
    notes: Vec<String>,
}

/// The three sizes of tokens, which [`Reader::tokens`] gives three axes.
fn sizes3(tokens: &Tensor<f64>) -> [usize; 3] {
    tokens.shape().try_into().unwrap_or([0; 3])
}

/// q, k and v, or those of the built-in example.
fn operands(
    inputs: &InputArgs,
    reader: &mut Reader<'_>,
    q_axes: Axes,
    k_axes: Axes,
) -> Result<[Operand; 3]> {
    match (&inputs.q, &inputs.k, &inputs.v) {
        (Some(q), Some(k), Some(v)) => Ok([
            reader.operand("--q", q, q_axes)?,
            reader.operand("--k", k, k_axes)?,
            reader.operand("--v", v, k_axes)?,
        ]),
        (None, None, None) => Ok([
            reader.operand("--q", "1 0; 0 1", q_axes)?,
            reader.operand("--k", "1 0; 0 1", k_axes)?,
            reader.operand("--v", "2 0; 0 4", k_axes)?,
        ]),
        (q, k, v) => {
            let absent = [("--q", q), ("--k", k), ("--v", v)];
            let absent: Vec<&str> = absent
                .iter()
                .filter(|(_, text)| text.is_none())
                .map(|(name, _)| *name)
                .collect();
            Err(Error::Missing {
                argument: absent.join(", "),
                remedy: "give all of --q, --k and --v, or none for the built-in example, \
                         or --x with weights"
                    .into(),
            })
        }
    }
}

/// Cached keys and values: both or none.
fn past(
    inputs: &InputArgs,
    reader: &mut Reader<'_>,
    axes: Axes,
) -> Result<Option<(Operand, Operand)>> {
    let missing = |argument: &str, other: &str| {
        Err(Error::Missing {
            argument: argument.into(),
            remedy: format!("{other} needs it: each cached key has its cached value"),
        })
    };
    match (&inputs.past_k, &inputs.past_v) {
        (None, None) => Ok(None),
        (Some(k), Some(v)) => Ok(Some((
            reader.operand("--past-k", k, axes)?,
            reader.operand("--past-v", v, axes)?,
        ))),
        (Some(_), None) => missing("--past-v", "--past-k"),
        (None, Some(_)) => missing("--past-k", "--past-v"),
    }
}

/// How the axes of q, and of k and v, are read.
fn axes(inputs: &InputArgs) -> Result<(Axes, Axes)> {
    if inputs.heads.is_none() && inputs.kv_heads.is_some() {
        return Err(Error::Alone {
            argument: "--kv-heads",
            needed: "--heads",
            remedy: "give both, or neither where the arrays have an axis of heads",
        });
    }
    head_counts(inputs)?;
    let layout = inputs.layout;
    let kv_heads = inputs.kv_heads.or(inputs.heads);
    let q = Axes {
        layout,
        split: inputs.heads.map(|heads| (heads, "--heads")),
    };
    let k = Axes {
        layout,
        split: kv_heads.map(|heads| (heads, kv_option(inputs))),
    };
    Ok((q, k))
}

/// The option that says how many key and value heads there are.
fn kv_option(inputs: &InputArgs) -> &'static str {
    if inputs.kv_heads.is_some() {
        "--kv-heads"
    } else {
        "--heads"
    }
}

/// Query heads, and key and value heads.
fn head_counts(inputs: &InputArgs) -> Result<(usize, usize)> {
    let heads = inputs.heads.unwrap_or(1);
    let kv_heads = inputs.kv_heads.unwrap_or(heads);
    if heads.is_multiple_of(kv_heads) {
        return Ok((heads, kv_heads));
    }
    Err(Error::Value {
        argument: "--kv-heads",
        value: format!("{kv_heads} with {heads} query heads (--heads)"),
        remedy: "--heads must be a multiple of --kv-heads".into(),
    })
}

/// What belongs to tokens has no meaning without them.
fn refuse_layer_options(args: &LayerArgs) -> Result<()> {
    let given = [
        ("--context", args.context.is_some()),
        ("--wq", args.wq.is_some()),
        ("--wk", args.wk.is_some()),
        ("--wv", args.wv.is_some()),
        ("--bq", args.bq.is_some()),
        ("--bk", args.bk.is_some()),
        ("--bv", args.bv.is_some()),
        ("--init", args.init.is_some()),
        ("--dk", args.dk.is_some()),
        ("--dv", args.dv.is_some()),
        ("--residual", args.residual),
    ];
    match given.iter().find(|(_, given)| *given) {
        None => Ok(()),
        Some((argument, _)) => Err(Error::Alone {
            argument,
            needed: "--x",
            remedy: "it belongs to a layer that makes q, k and v from tokens: give those as --x",
        }),
    }
}

/// Tokens make q, k and v, so these are not given too.
fn refuse_arrays_beside_tokens(inputs: &InputArgs) -> Result<()> {
    let given = [("--q", &inputs.q), ("--k", &inputs.k), ("--v", &inputs.v)];
    match given.iter().find(|(_, text)| text.is_some()) {
        None => Ok(()),
        Some((argument, _)) => Err(Error::Conflict {
            argument,
            other: "--x".into(),
            remedy: "--x makes q, k and v from its weights: give either --x or --q --k --v",
        }),
    }
}
