//! Bias, ALiBi, sinks.

use super::{Convention, Fit, Number, Variant, only};
use crate::problem::Base;
use crate::recipe::Recipe;
use crate::report::{Parameters, Value};
use qkv::Causal;
use qkv::position::slopes;

pub(super) static TABLE: &[Convention] = &[
    Convention::new(
        "sinks-ignored",
        "The sink is left out of the denominator.",
        "softmax的分母中没有sink。",
        |_, right| only(right.sinks.is_some(), |recipe| recipe.sinks = None),
    ),
    Convention::new(
        "sinks-scaled",
        "The sink's logit is multiplied by the scale.",
        "sink的logit也乘了缩放系数。",
        |_, right| {
            let scale = right.scale;
            only(right.sinks.is_some(), move |recipe| {
                for sink in recipe.sinks.iter_mut().flatten() {
                    *sink *= scale;
                }
            })
        },
    ),
    Convention::new(
        "alibi-sign",
        "ALiBi has the wrong sign: far keys are preferred.",
        "ALiBi的符号反了：偏向远处的键。",
        |_, right| {
            only(right.slopes.is_some(), |recipe| {
                for slope in recipe.slopes.iter_mut().flatten() {
                    *slope = -*slope;
                }
            })
        },
    ),
    Convention::new(
        "alibi-missing",
        "No ALiBi.",
        "没有ALiBi。",
        |_, right| only(right.slopes.is_some(), |recipe| recipe.slopes = None),
    ),
    Convention::new(
        "alibi-slopes",
        "ALiBi has other slopes: {kind}.",
        "ALiBi的斜率不同：{kind}。",
        |base, right| {
            let Some(own) = &right.slopes else {
                return Vec::new();
            };
            let heads = base.sizes.heads;
            let simple = |first: f64| -> Vec<f64> {
                (0..heads)
                    .map(|h| (-8.0 * (h as f64 + first) / heads as f64).exp2())
                    .collect()
            };
            let shifted = |by: f64| -> Vec<f64> {
                own.iter()
                    .map(|slope| slope * (by * 8.0 / heads as f64).exp2())
                    .collect()
            };
            let power = heads.next_power_of_two();
            let kinds = [
                ("usual", slopes(heads)),
                ("exponent-from-0", simple(0.0)),
                ("exponent-from-0", shifted(1.0)),
                ("exponent-from-2", shifted(-1.0)),
                ("head-count-not-a-power-of-two", simple(1.0)),
                (
                    "next-power-of-two",
                    slopes(power).into_iter().take(heads).collect(),
                ),
                ("reversed", own.iter().rev().copied().collect()),
            ];
            let other = kinds.into_iter().filter(|(_, slopes)| slopes != own);
            let mut variants: Vec<Variant> = other
                .map(|(kind, slopes)| {
                    Variant::new(move |recipe| recipe.slopes = Some(slopes.clone()))
                        .with("kind", Value::Name(kind))
                })
                .collect();
            // Factors that come from elsewhere too, such as a scale; others are found.
            for factor in [0.5, 2.0, right.scale] {
                let slopes: Vec<f64> = own.iter().map(|slope| slope * factor).collect();
                variants.push(
                    Variant::new(move |recipe| recipe.slopes = Some(slopes.clone()))
                        .with("kind", Value::Name("multiplied"))
                        .with("factor", Value::Number(factor)),
                );
            }
            variants
        },
    )
    .fits(&[Fit {
        grid: |_, right| match right.slopes {
            Some(_) => (-16..=16)
                .map(|n| f64::from(n) / 4.0)
                .map(f64::exp2)
                .collect(),
            None => Vec::new(),
        },
        set: |base, recipe, factor| {
            let own = base.problem.attention().alibi.as_ref();
            recipe.slopes = own.map(|own| own.slopes.iter().map(|s| s * factor).collect());
        },
        number: Number::Real,
        alone: false,
        parameters: |_, _, factor| {
            Parameters::from([
                ("kind", Value::Name("multiplied")),
                ("factor", Value::Number(factor)),
            ])
        },
    }]),
    Convention::new(
        "alibi-alignment",
        "ALiBi measures distance from another place.",
        "ALiBi的距离从另一个位置算起。",
        |base, right| {
            if right.slopes.is_none() {
                return Vec::new();
            }
            let mut variants = vec![
                Variant::new(|recipe| recipe.distance.alignment = Some(Causal::TopLeft)),
                Variant::new(|recipe| recipe.distance.alignment = Some(Causal::BottomRight)),
                Variant::new(|recipe| recipe.distance.signed = true),
                Variant::new(|recipe| {
                    recipe.distance.signed = true;
                    recipe.distance.alignment = Some(Causal::TopLeft);
                }),
            ];
            for shift in [1, -1] {
                variants.push(
                    Variant::new(move |recipe| recipe.distance.shift = shift)
                        .with("offset", Value::Whole(shift)),
                );
            }
            let past = base.sizes.past as i64;
            if past > 1 {
                variants.push(
                    Variant::new(move |recipe| recipe.distance.shift = -past)
                        .with("offset", Value::Whole(-past)),
                );
            }
            variants
        },
    ),
    Convention::new(
        "bias-before-scale",
        "The bias is added before the scale, and is scaled too.",
        "偏置加在了缩放之前，因此也被缩放了。",
        |base, right| {
            only(has_bias(base, right), |recipe| {
                recipe.distance.before_scale = true;
            })
        },
    ),
    Convention::new(
        "bias-missing",
        "The bias is not added.",
        "没有加偏置。",
        |base, _| only(base.bias.is_some(), |recipe| recipe.bias_factor = 0.0),
    ),
    Convention::new(
        "bias-sign",
        "The bias is subtracted.",
        "偏置被减去而不是加上。",
        |base, _| only(base.bias.is_some(), |recipe| recipe.bias_factor = -1.0),
    ),
    Convention::new(
        "bias-twice",
        "The bias is added twice.",
        "偏置被加了两次。",
        |base, _| only(base.bias.is_some(), |recipe| recipe.bias_factor = 2.0),
    ),
];

fn has_bias(base: &Base<'_>, right: &Recipe) -> bool {
    base.bias.is_some() || right.slopes.is_some()
}
