//! What is shown beside the calculation.

use crate::args::{Indices, MoreArgs, Tokens};
use crate::error::{Error, Names, Result};
use qkv::{Block, Layer, StepName, Steps, Tensor};
use qkv_check::NextToken;
use qkv_check::decode::{self, LastToken};
use qkv_check::permute::{Permuted, Source, permute};
use qkv_report::{Lang, More, Origin};

/// What was computed.
#[derive(Clone, Copy)]
pub struct Computed<'a> {
    pub block: &'a Block<'a>,
    pub steps: &'a Steps,
    pub origin: Origin<'a>,
    pub past_len: usize,
    /// The run over all tokens, if this is the step of the last.
    pub full_run: Option<&'a Steps>,
}

/// Computes what the options ask for.
pub fn read(args: &MoreArgs, computed: Computed<'_>) -> Result<More> {
    let Computed {
        block,
        steps,
        past_len,
        full_run,
        ..
    } = computed;
    let contrast = args
        .contrast
        .then(|| qkv_check::contrast(&block.attention, steps, model_width(computed)));
    let permuted = args
        .permute
        .as_ref()
        .map(|Indices(order)| permuted(order, computed));
    let decoded = match full_run {
        Some(full) => decode::against_full_run(full, steps),
        None if past_len > 0 => {
            decode::against_one_call(block, steps).map_err(Error::engine(Names::Given))?
        }
        None => None,
    };
    Ok(More {
        contrast: contrast.flatten().unwrap_or_default(),
        permuted: permuted.transpose()?,
        decoded,
        tokens: tokens(args, computed)?,
        next_token: next_token(args, computed)?,
    })
}

/// The width of x, or of all heads together where there is no x.
fn model_width(computed: Computed<'_>) -> usize {
    let shape = match computed.origin {
        Origin::Projected { x, .. } => x.shape(),
        Origin::Given | Origin::Split => computed
            .steps
            .get(StepName::Q)
            .map_or(&[][..], |q| q.shape()),
    };
    match *shape {
        [_, heads, _, head_dim] => heads * head_dim,
        _ => shape.last().copied().unwrap_or(1),
    }
}

/// Names of the tokens, as many as there are.
fn tokens(args: &MoreArgs, computed: Computed<'_>) -> Result<Vec<String>> {
    let Some(Tokens(tokens)) = &args.tokens else {
        return Ok(Vec::new());
    };
    let cross = matches!(
        computed.origin,
        Origin::Projected {
            context: Some(_),
            ..
        }
    );
    let [batch, queries, keys] = sizes(computed);
    let (needed, of) = match cross {
        true => (queries, "tokens in --x"),
        false if computed.past_len > 0 => (keys, "keys, the cached ones first"),
        false => (keys, "keys"),
    };
    let refuse = |value: String, remedy: &str| {
        Err(Error::Value {
            argument: "--tokens",
            value,
            remedy: remedy.into(),
        })
    };
    if batch != 1 {
        return refuse(
            format!("one list for {batch} batch entries"),
            "explain one entry at a time",
        );
    }
    if tokens.len() != needed {
        return refuse(
            format!(
                "{} ({}) for {needed} {of}",
                count(tokens.len()),
                shortened(tokens)
            ),
            "give one for each; blanks part them, so write tokens that hold blanks as a JSON list",
        );
    }
    Ok(tokens.clone())
}

fn count(tokens: usize) -> String {
    match tokens {
        1 => "1 token".into(),
        n => format!("{n} tokens"),
    }
}

/// The first tokens, as they are safe to print.
fn shortened(tokens: &[String]) -> String {
    const MOST: usize = 6;
    let quoted = |token: &String| format!("\"{}\"", qkv_io::shown_within(token, 40));
    let mut shown: Vec<String> = tokens.iter().take(MOST).map(quoted).collect();
    if tokens.len() > MOST {
        shown.push("…".into());
    }
    shown.join(", ")
}

/// Batch entries, queries and keys.
fn sizes(computed: Computed<'_>) -> [usize; 3] {
    let size = |name, axis: usize| {
        let step = computed.steps.get(name);
        let shape = step.map_or(&[][..], |step| step.shape());
        shape.get(axis).copied().unwrap_or(0)
    };
    [
        size(StepName::Q, 0),
        size(StepName::Q, 2),
        size(StepName::K, 2),
    ]
}

fn next_token(args: &MoreArgs, computed: Computed<'_>) -> Result<Option<NextToken>> {
    const ARGUMENT: &str = "--next-token";
    if !args.next_token {
        return Ok(None);
    }
    if let Origin::Projected {
        context: Some(_), ..
    } = computed.origin
    {
        return Err(Error::Conflict {
            argument: ARGUMENT,
            other: "--context".into(),
            remedy: "keys of a context are not the tokens that follow: leave the context out",
        });
    }
    let [_, queries, keys] = sizes(computed);
    if queries > keys || queries < keys && computed.past_len == 0 {
        return Err(Error::Value {
            argument: ARGUMENT,
            value: format!("next tokens with L_q = {queries} and L_k = {keys}"),
            remedy: "it needs self-attention: as many queries as keys, or cached keys in front"
                .into(),
        });
    }
    let attention = &computed.block.attention;
    Ok(qkv_check::next_token(attention, computed.steps))
}

fn permuted(order: &[usize], computed: Computed<'_>) -> Result<Permuted> {
    const ARGUMENT: &str = "--permute";
    let Computed {
        block,
        steps,
        origin,
        past_len,
        ..
    } = computed;
    let conflict = |other: &str, remedy| {
        Err(Error::Conflict {
            argument: ARGUMENT,
            other: other.into(),
            remedy,
        })
    };
    if past_len > 0 {
        return conflict(
            "cached keys",
            "an order is one of all tokens: leave the cache out",
        );
    }
    let (Some(q), Some(k), Some(v)) = (
        steps.get(StepName::Q),
        steps.get(StepName::K),
        steps.get(StepName::V),
    ) else {
        return conflict("no arrays", "give --q, --k and --v, or --x");
    };
    let (source, names) = match origin {
        Origin::Projected {
            context: Some(_), ..
        } => {
            return conflict(
                "--context",
                "it concerns tokens that attend to each other: leave the context out",
            );
        }
        Origin::Projected { layer, x, .. } => (Source::Tokens { layer, x }, Names::Projected),
        Origin::Given | Origin::Split => (Source::Given { block, q, k, v }, Names::Given),
    };
    let (queries, keys) = (q.shape()[2], k.shape()[2]);
    if queries != keys {
        return Err(Error::Value {
            argument: ARGUMENT,
            value: format!("an order of the tokens of {queries} queries and {keys} keys"),
            remedy: "each token needs its query, its key and its value: give as many of each"
                .into(),
        });
    }
    check_order(ARGUMENT, order, queries)?;
    permute(source, steps, order).map_err(Error::engine(names))
}

/// Each index once.
fn check_order(argument: &'static str, order: &[usize], tokens: usize) -> Result<()> {
    let listed: Vec<String> = order.iter().map(usize::to_string).collect();
    let refuse = |why: String| {
        Err(Error::Value {
            argument,
            value: qkv_io::shown(&listed.join(",")),
            remedy: format!("{why}: list each of the {tokens} tokens once, from 0"),
        })
    };
    if let Some(beyond) = order.iter().find(|&&i| i >= tokens) {
        return refuse(format!("there is no token {beyond}"));
    }
    for i in 0..tokens {
        match order.iter().filter(|&&at| at == i).count() {
            1 => {}
            0 => return refuse(format!("token {i} is missing")),
            n => return refuse(format!("token {i} stands there {n} times")),
        }
    }
    Ok(())
}

/// The last token alone, the cache that the others leave, and the run over all of them.
pub struct DecodeStep {
    pub last: LastToken,
    pub full: Steps,
}

impl DecodeStep {
    /// Runs all tokens, then those before the last; the layer is left with the options of the last
    /// query alone. `None` unless it is asked for.
    pub fn new(
        args: &MoreArgs,
        layer: &mut Layer<'_>,
        x: &Tensor<f64>,
        others: [(&str, bool); 2],
    ) -> Result<Option<DecodeStep>> {
        const ARGUMENT: &str = "--decode";
        if !args.decode {
            return Ok(None);
        }
        let documents = ("--documents", layer.block.attention.documents.is_some());
        let given = others.into_iter().chain([documents]);
        if let Some((other, _)) = given.into_iter().find(|(_, given)| *given) {
            return Err(Error::Conflict {
                argument: ARGUMENT,
                other: other.into(),
                remedy: "it fills its cache from the tokens of --x, one sequence: leave one out",
            });
        }
        let engine = Error::engine(Names::Projected);
        let full = layer.steps(x, None, None).map_err(&engine)?;
        let Some(last) = decode::prefill(layer, x).map_err(&engine)? else {
            return Err(Error::Value {
                argument: ARGUMENT,
                value: format!("a last token after others in --x of shape {:?}", x.shape()),
                remedy: "give at least two tokens".into(),
            });
        };
        let length = x.shape()[1];
        layer.block.attention = decode::last_query(&layer.block.attention, length);
        Ok(Some(DecodeStep { last, full }))
    }

    /// What the explanation says about where the cache came from.
    pub fn note(&self, lang: Lang) -> String {
        let past = self.last.past_k.shape()[2];
        match lang {
            Lang::En => format!(
                "--decode: tokens 0 to {} of --x ran before, and their keys and values are in the \
                 cache. This is the step of token {past} alone: its row of x is called x0 here.",
                past - 1
            ),
            Lang::Zh => format!(
                "--decode：--x的词元0到{}已经算过，它们的键和值在缓存里。这里只算词元{past}这一步，\
                 x中只剩它的一行，称为x0。",
                past - 1
            ),
        }
    }
}
