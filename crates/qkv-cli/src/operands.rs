//! The arrays of a run: which are needed, and how their axes are read.

use crate::args::{InputArgs, LayerArgs};
use crate::arrays::{Axes, Operand, Reader, Stored};
use crate::error::{Error, Result};

/// q, k and v, or those of the built-in example.
pub fn operands(
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
        _ => Err(absent(
            inputs,
            "give all of --q, --k and --v, or none for the built-in example, or --x with weights",
        )),
    }
}

/// q, k and v in the number format that they have.
pub fn stored(
    inputs: &InputArgs,
    reader: &mut Reader<'_>,
    q_axes: Axes,
    k_axes: Axes,
) -> Result<[Stored; 3]> {
    let (Some(q), Some(k), Some(v)) = (&inputs.q, &inputs.k, &inputs.v) else {
        return Err(absent(inputs, "give all of --q, --k and --v"));
    };
    Ok([
        reader.stored("--q", q, q_axes)?,
        reader.stored("--k", k, k_axes)?,
        reader.stored("--v", v, k_axes)?,
    ])
}

/// Some of q, k and v are missing.
fn absent(inputs: &InputArgs, remedy: &str) -> Error {
    let given = [("--q", &inputs.q), ("--k", &inputs.k), ("--v", &inputs.v)];
    let absent: Vec<&str> = given
        .iter()
        .filter(|(_, text)| text.is_none())
        .map(|(name, _)| *name)
        .collect();
    Error::Missing {
        argument: absent.join(", "),
        remedy: remedy.into(),
    }
}

/// Cached keys and values, as `read` reads them: both or none.
pub fn past<T>(
    inputs: &InputArgs,
    mut read: impl FnMut(&'static str, &str) -> Result<T>,
) -> Result<Option<(T, T)>> {
    let missing = |argument: &str, other: &str| {
        Err(Error::Missing {
            argument: argument.into(),
            remedy: format!("{other} needs it: each cached key has its cached value"),
        })
    };
    match (&inputs.past_k, &inputs.past_v) {
        (None, None) => Ok(None),
        (Some(k), Some(v)) => Ok(Some((read("--past-k", k)?, read("--past-v", v)?))),
        (Some(_), None) => missing("--past-v", "--past-k"),
        (None, Some(_)) => missing("--past-k", "--past-v"),
    }
}

/// How the axes of q, and of k and v, are read.
pub fn axes(inputs: &InputArgs) -> Result<(Axes, Axes)> {
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
pub fn kv_option(inputs: &InputArgs) -> &'static str {
    if inputs.kv_heads.is_some() {
        "--kv-heads"
    } else {
        "--heads"
    }
}

/// Query heads, and key and value heads.
pub fn head_counts(inputs: &InputArgs) -> Result<(usize, usize)> {
    let heads = inputs.heads.unwrap_or(1);
    let kv_heads = inputs.kv_heads.unwrap_or(heads);
    if heads.is_multiple_of(kv_heads) {
        return Ok((heads, kv_heads));
    }
    Err(Error::Value {
        argument: "--kv-heads",
        value: format!(
            "{kv_heads} with {} (--heads)",
            qkv_io::many(heads, "query head")
        ),
        remedy: "--heads must be a multiple of --kv-heads".into(),
    })
}

/// What belongs to tokens has no meaning without them.
pub fn refuse_layer_options(args: &LayerArgs) -> Result<()> {
    let given = [
        ("--context", args.context.is_some()),
        ("--wq", args.wq.is_some()),
        ("--wk", args.wk.is_some()),
        ("--wv", args.wv.is_some()),
        ("--bq", args.bq.is_some()),
        ("--bk", args.bk.is_some()),
        ("--bv", args.bv.is_some()),
        ("--init", args.init.is_some()),
        ("--dk", args.widths.dk.is_some()),
        ("--dv", args.widths.dv.is_some()),
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
pub fn refuse_arrays_beside_tokens(inputs: &InputArgs) -> Result<()> {
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
