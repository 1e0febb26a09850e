//! From options to what the engine is asked for.

use crate::args::{AttentionArgs, Empty, Lengths, NormArgs, PositionArgs, PositionKind};
use crate::arrays::{BiasArray, Grid, Reader};
use crate::error::{Error, Result};
use qkv::position::{Pairing, Rotary, slopes};
use qkv::{
    Alibi, Attention, Bias, Causal, Documents, Dropout, EmptyRows, KeyLengths, Mask, Place,
    RmsNorm, Scale, Sinks, Window,
};

/// Every option of attention, with the arrays that it borrows.
pub struct Options {
    scale: Scale,
    softcap: Option<f64>,
    causal: Option<Causal>,
    window: Option<Window>,
    lengths: Option<KeyLengths>,
    documents: Option<Documents>,
    keep: Option<Grid<bool>>,
    drop: Option<Grid<bool>>,
    bias: Option<BiasArray>,
    alibi: Option<Alibi>,
    sinks: Option<Sinks>,
    dropout: Option<Dropout>,
    empty_rows: EmptyRows,
}

impl Options {
    /// Reads the arrays; `heads` is the number of query heads.
    pub fn read(args: &AttentionArgs, reader: &mut Reader<'_>, heads: usize) -> Result<Self> {
        let alibi = match &args.alibi {
            None => None,
            Some(None) => Some(slopes(heads)),
            Some(Some(text)) => Some(reader.list("--alibi", text)?),
        };
        let sinks = args
            .sinks
            .as_deref()
            .map(|text| reader.list("--sinks", text));
        let mask = |name, text: &Option<String>, reader: &mut Reader<'_>| {
            text.as_deref()
                .map(|text| reader.mask(name, text))
                .transpose()
        };
        Ok(Options {
            scale: args.scale.map_or(Scale::InverseSqrt, Scale::Factor),
            softcap: args.softcap,
            causal: args.causal,
            window: args.window,
            lengths: args
                .kv_lengths
                .clone()
                .map(|Lengths(list)| KeyLengths(list)),
            documents: args.documents.clone(),
            keep: mask("--keep", &args.keep, reader)?,
            drop: mask("--drop", &args.drop, reader)?,
            bias: args
                .bias
                .as_deref()
                .map(|text| reader.bias("--bias", text))
                .transpose()?,
            alibi: alibi.map(|slopes| Alibi { slopes }),
            sinks: sinks.transpose()?.map(Sinks),
            dropout: args.dropout.map(|p| Dropout {
                p,
                seed: args.seed(),
            }),
            empty_rows: match args.empty_rows {
                Empty::Zero => EmptyRows::Zero,
                Empty::Error => EmptyRows::Error,
            },
        })
    }

    /// What the engine is asked for.
    pub fn attention(&self) -> Result<Attention<'_>> {
        let mut masks = Vec::new();
        if let Some(keep) = &self.keep {
            masks.push(Mask::keep(keep.view()?));
        }
        if let Some(drop) = &self.drop {
            masks.push(Mask::drop(drop.view()?));
        }
        let bias = self.bias.as_ref().map(|bias| bias.view());
        Ok(Attention {
            scale: self.scale,
            softcap: self.softcap,
            bias: bias.transpose()?.map(Bias),
            alibi: self.alibi.clone(),
            masks,
            causal: self.causal,
            window: self.window,
            lengths: self.lengths.clone(),
            documents: self.documents.clone(),
            sinks: self.sinks.clone(),
            dropout: self.dropout,
            empty_rows: self.empty_rows,
        })
    }

    /// Whether the bias holds nothing but 0 and 1: a mask, probably, that will not act as one.
    pub fn bias_looks_like_mask(&self) -> bool {
        self.bias.as_ref().is_some_and(BiasArray::is_0_and_1)
    }

    /// The shape of the bias as it was given.
    pub fn bias_shape(&self) -> Option<&[usize]> {
        self.bias.as_ref().map(BiasArray::shape)
    }

    /// Refuses arrays whose files were changed meanwhile.
    pub fn check_unchanged(&self) -> Result<()> {
        self.bias
            .as_ref()
            .map_or(Ok(()), BiasArray::check_unchanged)
    }
}

/// A seed of nothing is a misunderstanding: `drawn` says whether anything is drawn.
pub fn refuse_idle_seed(args: &AttentionArgs, drawn: bool, needed: &'static str) -> Result<()> {
    if args.seed.is_none() || drawn {
        return Ok(());
    }
    Err(Error::Alone {
        argument: "--seed",
        needed,
        remedy: "nothing is drawn at random here: add what is to be drawn, or leave it out",
    })
}

/// How many steps have a number for every query and key.
pub fn steps_per_score(args: &AttentionArgs) -> u128 {
    let masked = args.causal.is_some()
        || args.window.is_some()
        || args.kv_lengths.is_some()
        || args.documents.is_some()
        || args.keep.is_some()
        || args.drop.is_some()
        || args.bias.is_some(); // which may drop with −∞
    let biased = args.bias.is_some() || args.alibi.is_some();
    let optional = [
        masked,
        biased,
        args.softcap.is_some(),
        args.dropout.is_some(),
    ];
    4 + optional.into_iter().map(u128::from).sum::<u128>()
}

/// Norms of queries and keys.
pub struct Norms {
    pub q: Option<RmsNorm>,
    pub k: Option<RmsNorm>,
}

impl Norms {
    /// Reads the gains.
    pub fn read(args: &NormArgs, reader: &mut Reader<'_>) -> Result<Self> {
        let mut norm = |name, text: &Option<String>| -> Result<_> {
            let gain = text.as_deref().map(|text| reader.list(name, text));
            Ok(gain.transpose()?.map(RmsNorm::new))
        };
        Ok(Norms {
            q: norm("--q-norm", &args.q_norm)?,
            k: norm("--k-norm", &args.k_norm)?,
        })
    }
}

/// How positions are told.
#[derive(Debug, Default)]
pub struct Position {
    pub rotary: Option<Rotary>,
    pub place: Place,
    pub sinusoidal: Option<usize>,
}

impl Position {
    /// From the options; `has_tokens` says whether there are tokens to add sines to.
    pub fn new(args: &PositionArgs, has_tokens: bool) -> Result<Self> {
        let Some(kind) = args.position else {
            return match unused(args, true) {
                Some(argument) => Err(Error::Alone {
                    argument,
                    needed: "--position",
                    remedy: "add --position rotary, rotary-interleaved or sinusoidal",
                }),
                None => Ok(Position::default()),
            };
        };
        let start = args.position_offset.unwrap_or(0);
        let pairing = match kind {
            PositionKind::Rotary => Pairing::Halves,
            PositionKind::RotaryInterleaved => Pairing::Interleaved,
            PositionKind::Sinusoidal => return sinusoidal(args, start, has_tokens),
        };
        let plain = Rotary::default();
        Ok(Position {
            rotary: Some(Rotary {
                pairing,
                base: args.rotary_base.unwrap_or(plain.base),
                dim: args.rotary_dim,
                scaling: args.rotary_scaling.unwrap_or_default(),
            }),
            place: Place::Counted { start },
            sinusoidal: None,
        })
    }
}

fn sinusoidal(args: &PositionArgs, start: i64, has_tokens: bool) -> Result<Position> {
    if !has_tokens {
        return Err(Error::Alone {
            argument: "--position sinusoidal",
            needed: "--x",
            remedy: "sines are added to tokens: give --x with weights, or use a rotary position",
        });
    }
    if let Some(argument) = unused(args, false) {
        return Err(Error::Conflict {
            argument,
            other: "--position sinusoidal".into(),
            remedy: "it belongs to --position rotary or rotary-interleaved",
        });
    }
    let start = usize::try_from(start).map_err(|_| Error::Value {
        argument: "--position-offset",
        value: start.to_string(),
        remedy: "sinusoidal positions count from 0: give a whole number from 0".into(),
    })?;
    Ok(Position {
        sinusoidal: Some(start),
        ..Position::default()
    })
}

/// The first option that the kind of position has no use for.
fn unused(args: &PositionArgs, with_offset: bool) -> Option<&'static str> {
    let given = [
        ("--rotary-base", args.rotary_base.is_some()),
        ("--rotary-dim", args.rotary_dim.is_some()),
        ("--rotary-scaling", args.rotary_scaling.is_some()),
        (
            "--position-offset",
            with_offset && args.position_offset.is_some(),
        ),
    ];
    given
        .iter()
        .find(|(_, given)| *given)
        .map(|(name, _)| *name)
}
