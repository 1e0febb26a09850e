//! Which keys of a row have the largest number, and what its output is made of.

use super::run::Run;
use crate::words::{Leaders, Mix};
use qkv::StepName;

/// The keys with the largest number, as it is printed.
#[derive(Default)]
pub(super) struct Largest {
    pub keys: Vec<usize>,
    pub number: String,
    equal: bool,
    of: usize,
}

impl Largest {
    /// Of keys and their numbers; none if there is no key or a number is NaN or infinite.
    pub(super) fn of(numbers: &[(usize, f64)], show: impl Fn(f64) -> String) -> Option<Largest> {
        let max = numbers.iter().map(|(_, number)| *number);
        let max = max.reduce(|a, b| if b > a || b.is_nan() { b } else { a })?;
        if !max.is_finite() || numbers.iter().any(|(_, number)| number.is_nan()) {
            return None;
        }
        let number = show(max);
        let same = |&&(_, other): &&(usize, f64)| other == max || show(other) == number;
        let leaders: Vec<(usize, f64)> = numbers.iter().filter(same).copied().collect();
        Some(Largest {
            keys: leaders.iter().map(|(key, _)| *key).collect(),
            equal: leaders
                .iter()
                .all(|(_, other)| same_but_rounding(*other, max)),
            number,
            of: numbers.len(),
        })
    }

    pub(super) fn leaders(&self) -> Leaders<'_> {
        Leaders {
            keys: &self.keys,
            number: &self.number,
            equal: self.equal,
            of: self.of,
        }
    }
}

/// Equal but for what `f64` rounds away.
fn same_but_rounding(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-14 * a.abs().max(b.abs())
}

/// What the output of a row is made of; `weights` are those of the keys that count.
pub(super) fn mix(run: &Run<'_>, row: [usize; 3], weights: &[(usize, f64)]) -> Mix {
    let total: f64 = weights.iter().map(|(_, weight)| weight).sum();
    let max = weights
        .iter()
        .map(|(_, weight)| *weight)
        .fold(0.0, f64::max);
    match weights {
        [] => Mix::Nothing,
        &[(key, weight)] => Mix::One {
            key,
            weight: (!same_but_rounding(weight, 1.0)).then(|| run.show(weight)),
        },
        all if same_but_rounding(total, 1.0)
            && all
                .iter()
                .all(|(_, weight)| same_but_rounding(*weight, max)) =>
        {
            Mix::Average
        }
        all if max > 0.5 => Mix::Mostly {
            nearest: is_nearest(run, row, all, max),
            one_other: all.len() == 2,
        },
        _ => Mix::Blend,
    }
}

/// Whether the output lies strictly nearer to the value with the largest weight than to all others.
fn is_nearest(run: &Run<'_>, [b, h, i]: [usize; 3], weights: &[(usize, f64)], max: f64) -> bool {
    let (Some(output), Some(values)) = (run.step(StepName::Output), run.step(StepName::V)) else {
        return false;
    };
    let output = output.row(&[b, h, i]);
    let distance = |j: usize| {
        let value = values.row(&[b, run.kv_head(h), j]);
        let squares = output.iter().zip(value).map(|(o, v)| (o - v) * (o - v));
        squares.sum::<f64>()
    };
    let Some(&(best, _)) = weights.iter().find(|(_, weight)| *weight == max) else {
        return false;
    };
    let own = distance(best);
    let others = weights.iter().filter(|(key, _)| *key != best);
    own.is_finite()
        && others
            .map(|(key, _)| distance(*key))
            .all(|other| own < other * (1.0 - 1e-9))
}
