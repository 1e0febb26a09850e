//! The weights of a layer: given, or drawn where they are missing, and checked against the tokens.

use crate::args::{Init, LayerArgs};
use crate::arrays::Reader;
use crate::draw::{Weight, draw};
use crate::error::{Error, Names, Result};
use qkv::{Linear, Tensor};
use qkv_io::many;
use qkv_report::Lang;

/// What to do about weights that need too much memory.
const NARROWER: &str = "draw narrower ones with --dk and --dv, or fewer with --heads";

/// What the weights have to fit.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    pub heads: usize,
    pub kv_heads: usize,
    /// Width of x, D.
    pub width: usize,
    /// Width of what keys and values are made from, and the option that it comes from.
    pub source: (usize, &'static str),
    pub seed: u64,
}

/// The projections of a layer.
pub struct Weights {
    pub q: Linear,
    pub k: Linear,
    pub v: Linear,
    pub output: Option<Linear>,
    /// How wide the heads are.
    pub widths: Widths,
    drawn: Vec<Weight>,
}

/// What the widths of a layer's heads come to, known before a weight is drawn.
#[derive(Clone, Copy, Debug)]
pub struct Widths {
    pub dk: usize,
    pub dv: usize,
    /// Numbers in all weights.
    pub numbers: u128,
    /// The option that decides them, and what to do if that is too wide.
    pub cause: (&'static str, &'static str),
}

/// One weight on its way: its option, what it multiplies, the heads its columns are split into.
struct Slot {
    weight: Weight,
    option: &'static str,
    given: Option<Tensor<f64>>,
    input: (usize, &'static str),
    heads: (usize, &'static str),
}

impl Slot {
    fn read(
        reader: &mut Reader<'_>,
        (weight, option): (Weight, &'static str),
        text: &Option<String>,
        input: (usize, &'static str),
        heads: (usize, &'static str),
    ) -> Result<Self> {
        let given = text.as_deref().map(|text| reader.matrix(option, text));
        let slot = Slot {
            weight,
            option,
            given: given.transpose()?,
            input,
            heads,
        };
        if let Some(given) = &slot.given {
            fits(option, given, slot.input)?;
            slot.head_width()?;
        }
        Ok(slot)
    }

    /// Columns of a head, of a weight that is given.
    fn head_width(&self) -> Result<Option<usize>> {
        let Some(given) = &self.given else {
            return Ok(None);
        };
        let (columns, (heads, option)) = (given.shape()[1], self.heads);
        if columns.is_multiple_of(heads) {
            return Ok(Some(columns / heads));
        }
        Err(Error::Value {
            argument: self.option,
            value: format!(
                "splitting {} (shape {:?}) into {} ({option})",
                many(columns, "column"),
                given.shape(),
                many(heads, "head")
            ),
            remedy: "the columns must divide evenly among the heads".into(),
        })
    }

    /// The weight, drawn with heads of this width if it was not given.
    fn linear(
        self,
        (init, seed): (Option<Init>, u64),
        head_width: usize,
        bias: Option<Vec<f64>>,
    ) -> Result<Linear> {
        let (rows, heads) = (self.input.0, self.heads.0);
        let tensor = match (self.given, init) {
            (Some(given), _) => given,
            (None, Some(init)) => {
                let columns = heads.saturating_mul(head_width);
                drawn(self.option, (init, seed), self.weight, rows, columns)?
            }
            (None, None) => return Err(missing(&[self.option])),
        };
        Linear::new(self.weight.name(), tensor, bias).map_err(Error::engine(Names::Projected))
    }
}

/// Checks that a weight has a row for each column of what it multiplies.
pub fn fits(
    option: &'static str,
    weight: &Tensor<f64>,
    (width, source): (usize, &'static str),
) -> Result<()> {
    let &[rows, columns] = weight.shape() else {
        return Ok(());
    };
    if rows == width {
        return Ok(());
    }
    let remedy = if columns == width {
        format!(
            "it is probably stored [out, in], as nn.Linear does: give its transpose, \
             [{width}, {rows}]"
        )
    } else {
        format!(
            "the weight needs {}, one for each column that it multiplies",
            many(width, "row")
        )
    };
    Err(Error::Value {
        argument: option,
        value: format!(
            "shape {:?} with {} of {source}",
            weight.shape(),
            many(width, "column")
        ),
        remedy,
    })
}

fn drawn(
    option: &'static str,
    (init, seed): (Init, u64),
    weight: Weight,
    rows: usize,
    columns: usize,
) -> Result<Tensor<f64>> {
    let Some(numbers) = draw(init, seed, weight, rows, columns) else {
        return Err(Error::Room {
            argument: option,
            what: format!("weights of shape [{rows}, {columns}]"),
            bytes: (rows as u128).saturating_mul(columns as u128) * 8,
            remedy: NARROWER,
        });
    };
    Tensor::new(&[rows, columns], numbers).map_err(Error::about(option))
}

fn missing(options: &[&str]) -> Error {
    Error::Missing {
        argument: options.join(", "),
        remedy: "--x needs its weights: give them, or draw them with --init normal:0.02".into(),
    }
}

/// A bias, with one number for each column of its weight.
pub fn bias(
    reader: &mut Reader<'_>,
    option: &'static str,
    text: &Option<String>,
    columns: usize,
) -> Result<Option<Vec<f64>>> {
    let Some(text) = text else {
        return Ok(None);
    };
    let bias = reader.list(option, text)?;
    if bias.len() == columns {
        return Ok(Some(bias));
    }
    Err(Error::Value {
        argument: option,
        value: format!(
            "a bias of {} for a weight of {}",
            many(bias.len(), "number"),
            many(columns, "column")
        ),
        remedy: "give one number for each column".into(),
    })
}

/// The width of a head: what the option says, what a given weight has, or else a default.
fn head_width(
    option: &'static str,
    asked: Option<usize>,
    given: [(Option<usize>, &'static str); 2],
    default: Option<usize>,
    remedy: &str,
) -> Result<usize> {
    let given = given
        .into_iter()
        .find_map(|(width, from)| width.map(|width| (width, from)));
    match (asked, given) {
        (Some(asked), Some((width, from))) if asked != width => Err(Error::Value {
            argument: option,
            value: format!("{asked} with heads of {} in {from}", many(width, "column")),
            remedy: "both must say the same: leave the option out".into(),
        }),
        (Some(asked), _) => Ok(asked),
        (None, Some((width, _))) => Ok(width),
        (None, None) => default.ok_or_else(|| Error::Missing {
            argument: option.into(),
            remedy: remedy.into(),
        }),
    }
}

impl Weights {
    /// Reads what is given and draws the rest, unless `check` refuses its sizes.
    pub fn read(
        args: &LayerArgs,
        reader: &mut Reader<'_>,
        setting: Setting,
        check: impl Fn(Widths) -> Result<()>,
    ) -> Result<Self> {
        let Setting {
            heads,
            kv_heads,
            width,
            source,
            seed,
        } = setting;
        let (tokens, q_heads) = ((width, "--x"), (heads, "--heads"));
        let k_heads = (kv_heads, "--kv-heads");
        let q = Slot::read(reader, (Weight::Q, "--wq"), &args.wq, tokens, q_heads)?;
        let k = Slot::read(reader, (Weight::K, "--wk"), &args.wk, source, k_heads)?;
        let v = Slot::read(reader, (Weight::V, "--wv"), &args.wv, source, k_heads)?;
        let wo = args
            .wo
            .as_deref()
            .map(|text| reader.matrix("--wo", text))
            .transpose()?;
        let mut absent: Vec<(Weight, &str)> = [&q, &k, &v]
            .into_iter()
            .filter(|slot| slot.given.is_none())
            .map(|slot| (slot.weight, slot.option))
            .collect();
        match args.init {
            None if !absent.is_empty() => {
                let options: Vec<&str> = absent.iter().map(|(_, option)| *option).collect();
                return Err(missing(&options));
            }
            None => refuse_widths(args)?,
            Some(_) => {
                if wo.is_none() && (heads > 1 || args.residual) {
                    absent.push((Weight::O, "--wo"));
                }
                if absent.is_empty() {
                    return Err(Error::Value {
                        argument: "--init",
                        value: "drawing weights that are all given".into(),
                        remedy: "leave it out, or leave out the weight that is to be drawn".into(),
                    });
                }
            }
        }
        let (q_width, k_width, v_width) = (q.head_width()?, k.head_width()?, v.head_width()?);
        if let (Some(q_width), Some(k_width)) = (q_width, k_width)
            && q_width != k_width
        {
            return Err(Error::Value {
                argument: "--wk",
                value: format!(
                    "a key head of {} ({kv_heads} in shape {:?}) with a query head of {} \
                     ({heads} in shape {:?} of --wq)",
                    many(k_width, "column"),
                    k.given.as_ref().map_or(&[][..], |w| w.shape()),
                    many(q_width, "column"),
                    q.given.as_ref().map_or(&[][..], |w| w.shape()),
                ),
                remedy: "a query and a key need the same width: check --heads and --kv-heads"
                    .into(),
            });
        }
        let even = width
            .is_multiple_of(heads)
            .then(|| width / heads)
            .filter(|&width| width > 0);
        let dk = head_width(
            "--dk",
            args.widths.dk,
            [(q_width, "--wq"), (k_width, "--wk")],
            even,
            &format!(
                "{} of --x cannot be divided among {heads} heads: give a width",
                many(width, "column")
            ),
        )?;
        let from_wo = wo
            .as_ref()
            .map(|wo| wo.shape()[0])
            .filter(|rows| *rows > 0 && rows.is_multiple_of(heads))
            .map(|rows| rows / heads);
        let dv = head_width(
            "--dv",
            args.widths.dv,
            [(v_width, "--wv"), (from_wo, "--wo")],
            Some(dk),
            "",
        )?;

        for (option, heads, width) in [("--dk", heads, dk), ("--dv", heads, dv)] {
            if heads.checked_mul(width).is_none() {
                return Err(Error::Value {
                    argument: option,
                    value: format!(
                        "{} for each of {}",
                        many(width, "column"),
                        many(heads, "head")
                    ),
                    remedy: "that is more than memory can address: give fewer".into(),
                });
            }
        }
        let drawn_o = absent.iter().any(|(weight, _)| *weight == Weight::O);
        let product = |sizes: [usize; 3]| {
            sizes
                .iter()
                .fold(1, |n: u128, &size| n.saturating_mul(size as u128))
        };
        let numbers = [
            product([width, heads, dk]),
            product([source.0, kv_heads, dk]),
            product([source.0, kv_heads, dv]),
            if drawn_o || wo.is_some() {
                product([heads, dv, width])
            } else {
                0
            },
        ]
        .into_iter()
        .fold(0, u128::saturating_add);
        let widths = Widths {
            dk,
            dv,
            numbers,
            cause: cause(args, dk < dv, heads),
        };
        check(widths)?;
        let init = (args.init, seed);
        let bq = bias(reader, "--bq", &args.bq, heads * dk)?;
        let bk = bias(reader, "--bk", &args.bk, kv_heads * dk)?;
        let bv = bias(reader, "--bv", &args.bv, kv_heads * dv)?;
        let inner = heads * dv;
        let wo = match (wo, args.init) {
            (None, Some(init)) if drawn_o => {
                Some(drawn("--wo", (init, seed), Weight::O, inner, width)?)
            }
            (wo, _) => wo,
        };
        Ok(Weights {
            q: q.linear(init, dk, bq)?,
            k: k.linear(init, dk, bk)?,
            v: v.linear(init, dv, bv)?,
            output: output(args, reader, wo, inner)?,
            widths,
            drawn: absent.into_iter().map(|(weight, _)| weight).collect(),
        })
    }

    /// What the explanation says about weights that were drawn.
    pub fn note(&self, init: Option<Init>, seed: u64, lang: Lang) -> Option<String> {
        let init = init.filter(|_| !self.drawn.is_empty())?;
        let names: Vec<&str> = self.drawn.iter().map(|weight| weight.name()).collect();
        Some(match lang {
            Lang::En => {
                let how = match init {
                    Init::Normal(std) => format!("normal, mean 0, standard deviation {std}"),
                    Init::Uniform(a) => format!("evenly from −{a} to {a}"),
                    Init::Xavier => {
                        "evenly from −a to a with a = √(6/(rows+columns)) (Xavier)".into()
                    }
                };
                format!(
                    "{} drawn at random, not given: {how}, seed {seed}. \
                     The same seed gives the same weights on every machine.",
                    match &names[..] {
                        [one] => format!("{one} was"),
                        names => format!("{} were", names.join(", ")),
                    }
                )
            }
            Lang::Zh => {
                let how = match init {
                    Init::Normal(std) => format!("正态分布，均值0，标准差{std}"),
                    Init::Uniform(a) => format!("−{a}到{a}之间的均匀分布"),
                    Init::Xavier => "−a到a之间的均匀分布，a = √(6/(行数+列数))（Xavier）".into(),
                };
                format!(
                    "{}未给出，由程序随机抽取：{how}，种子{seed}。相同的种子在任何机器上都得到相同的权重。",
                    names.join("、")
                )
            }
        })
    }
}

/// The option that decides how wide the heads are, and what to do if that is too wide.
fn cause(args: &LayerArgs, wide_values: bool, heads: usize) -> (&'static str, &'static str) {
    if args.init.is_none() {
        return ("--wq, --wk, --wv", "give weights of fewer columns");
    }
    let argument = match (args.widths.dk, args.widths.dv) {
        (_, Some(_)) if wide_values => "--dv",
        (Some(_), _) => "--dk",
        (None, Some(_)) => "--dv",
        (None, None) if heads > 1 => "--heads",
        (None, None) => "--x",
    };
    (argument, NARROWER)
}

/// W_O and its bias; `inner` is the width of the heads side by side.
pub fn output(
    args: &LayerArgs,
    reader: &mut Reader<'_>,
    wo: Option<Tensor<f64>>,
    inner: usize,
) -> Result<Option<Linear>> {
    let Some(wo) = wo else {
        return match args.bo {
            Some(_) => Err(Error::Alone {
                argument: "--bo",
                needed: "--wo",
                remedy: "it is added after W_O: give --wo",
            }),
            None => Ok(None),
        };
    };
    fits("--wo", &wo, (inner, "the heads side by side (H·d_v)"))?;
    let bo = bias(reader, "--bo", &args.bo, wo.shape()[1])?;
    Linear::new("W_O", wo, bo)
        .map(Some)
        .map_err(Error::engine(Names::Projected))
}

/// --dk and --dv say how wide drawn weights are.
fn refuse_widths(args: &LayerArgs) -> Result<()> {
    for (argument, given) in [("--dk", args.widths.dk), ("--dv", args.widths.dv)] {
        if given.is_some() {
            return Err(Error::Alone {
                argument,
                needed: "--init",
                remedy: "it is the width of weights that are drawn; given ones have their own",
            });
        }
    }
    Ok(())
}
