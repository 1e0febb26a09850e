//! Rotary positions as configurations write them, old and new.
//!
//! ```text
//! old   "rope_theta": 10000, "rope_scaling": null or {"type": …, "factor": …}
//! new   "rope_parameters": {"rope_theta": 10000, "rope_type": …, …}, or one such object for each
//!       type of layer
//! ```

use crate::error::Result;
use crate::keys::Keys;
use qkv::position::{Rotary, Scaling};

/// What a reader of rotary positions needs to know of the model.
pub(crate) struct Rope<'k, 'a> {
    pub(crate) keys: &'k Keys<'a>,
    pub(crate) head_dim: usize,
    /// `max_position_embeddings`, which some scalings fall back on.
    pub(crate) positions: Option<usize>,
}

impl Rope<'_, '_> {
    /// The rotary of all layers; `base` where the configuration names none.
    pub(crate) fn same(&self, base: f64) -> Result<Rotary> {
        if let Some(new) = self.keys.object("rope_parameters")? {
            self.no_old()?;
            let rotary = self.read(&new, "rope_theta", base)?;
            new.finish(true)?;
            return Ok(rotary);
        }
        let base = self.keys.number("rope_theta")?.unwrap_or(base);
        self.old_scaling(base)
    }

    /// The rotary of full and of sliding layers, where they differ: the old keys of either's base,
    /// and whether `rope_scaling` is for the full ones alone.
    pub(crate) fn by_type(
        &self,
        full: (&str, f64),
        sliding: (&str, f64),
        scaling_of_full_only: bool,
    ) -> Result<[Rotary; 2]> {
        if let Some(new) = self.keys.object("rope_parameters")? {
            self.no_old()?;
            if !new.has("full_attention") && !new.has("sliding_attention") {
                return Err(self.keys.wrong(
                    "rope_parameters",
                    "has neither full_attention nor sliding_attention".into(),
                    "give one object for each type of layer",
                ));
            }
            let mut each = [Rotary::default(); 2];
            let names = [("full_attention", full.1), ("sliding_attention", sliding.1)];
            for (rotary, (name, base)) in each.iter_mut().zip(names) {
                *rotary = match new.object(name)? {
                    Some(keys) => {
                        let rotary = self.read(&keys, "rope_theta", base)?;
                        keys.finish(true)?;
                        rotary
                    }
                    None => self.plain(base)?,
                };
            }
            new.finish(true)?;
            return Ok(each);
        }
        let base = self.keys.number(full.0)?.unwrap_or(full.1);
        let scaled = self.old_scaling(base)?;
        let base = self.keys.number(sliding.0)?.unwrap_or(sliding.1);
        let sliding = if scaling_of_full_only {
            self.plain(base)?
        } else {
            Rotary { base, ..scaled }
        };
        Ok([scaled, sliding])
    }

    /// Both at once are refused where the old ones say something of their own.
    fn no_old(&self) -> Result<()> {
        self.keys.get("rope_theta");
        if self.keys.object("rope_scaling")?.is_some() {
            return Err(self.keys.wrong(
                "rope_scaling",
                "is there beside rope_parameters".into(),
                "keep one of them",
            ));
        }
        Ok(())
    }

    fn old_scaling(&self, base: f64) -> Result<Rotary> {
        let Some(old) = self.keys.object("rope_scaling")? else {
            return self.plain(base);
        };
        let rotary = self.read(&old, "rope_theta", base)?;
        old.finish(true)?;
        Ok(rotary)
    }

    fn plain(&self, base: f64) -> Result<Rotary> {
        self.whole(self.keys)?;
        let rotary = Rotary {
            base,
            ..Rotary::default()
        };
        rotary.check(self.head_dim)?;
        Ok(rotary)
    }

    /// Refuses to turn a part of the columns only: no family here does, and of the programs that read
    /// such a key some turn a part, some turn all, and some stop.
    fn whole(&self, keys: &Keys<'_>) -> Result<()> {
        const KEY: &str = "partial_rotary_factor";
        match keys.number(KEY)? {
            Some(factor) if factor != 1.0 => {
                let remedy =
                    "rotary positions turn all columns of these models; only 1 is supported";
                Err(keys.wrong(KEY, format!("is {factor}"), remedy))
            }
            _ => Ok(()),
        }
    }

    fn read(&self, keys: &Keys<'_>, theta: &str, base: f64) -> Result<Rotary> {
        let base = keys.number(theta)?.unwrap_or(base);
        let old = keys.word("type")?;
        let kind = keys.word("rope_type")?.or(old).unwrap_or("default");
        let positive = |key: &str| -> Result<f64> {
            keys.number(key)?.ok_or_else(|| {
                keys.wrong(
                    key,
                    "is missing".into(),
                    &format!("rope_type {kind} needs it"),
                )
            })
        };
        let positions = |key: &str| -> Result<f64> {
            match self.positions {
                Some(positions) => Ok(positions as f64),
                None => positive(key),
            }
        };
        let original = || -> Result<f64> {
            match keys.number("original_max_position_embeddings")? {
                Some(length) => Ok(length),
                None => positions("original_max_position_embeddings"),
            }
        };
        let scaling = match kind {
            "default" => Scaling::None,
            "linear" => Scaling::Linear {
                factor: positive("factor")?,
            },
            "dynamic" => {
                let original_length = positions("max_position_embeddings")?;
                Scaling::Dynamic {
                    factor: positive("factor")?,
                    original_length,
                    length: original_length,
                }
            }
            "llama3" => Scaling::Llama3 {
                factor: positive("factor")?,
                low_freq_factor: positive("low_freq_factor")?,
                high_freq_factor: positive("high_freq_factor")?,
                original_length: original()?,
            },
            "yarn" => yarn(keys, positive("factor")?, original()?)?,
            other => {
                return Err(keys.wrong(
                    "rope_type",
                    format!("is {other:?}"),
                    "default, linear, dynamic, llama3 and yarn are supported",
                ));
            }
        };
        self.whole(keys)?;
        self.whole(self.keys)?;
        let rotary = Rotary {
            base,
            scaling,
            ..Rotary::default()
        };
        rotary.check(self.head_dim)?;
        Ok(rotary)
    }
}

fn yarn(keys: &Keys<'_>, factor: f64, original_length: f64) -> Result<Scaling> {
    let given = keys.number("attention_factor")?;
    let part = |scale: Option<f64>| {
        scale
            .filter(|scale| *scale != 0.0)
            .map(|scale| scale * (Scaling::yarn_magnitude(factor) - 1.0) + 1.0)
    };
    let (of_q, of_all) = (keys.number("mscale")?, keys.number("mscale_all_dim")?);
    let magnitude = match (given, part(of_q), part(of_all)) {
        (Some(given), ..) => given,
        (None, Some(one), Some(all)) => one / all,
        _ => Scaling::yarn_magnitude(factor),
    };
    Ok(Scaling::Yarn {
        factor,
        beta_fast: keys.number("beta_fast")?.unwrap_or(32.0),
        beta_slow: keys.number("beta_slow")?.unwrap_or(1.0),
        original_length,
        whole: keys.flag("truncate")?.unwrap_or(true),
        magnitude,
    })
}
