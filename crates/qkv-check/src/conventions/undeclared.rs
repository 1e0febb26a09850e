//! What the other side has and the options do not: windows, ALiBi, rotary embeddings, norms, sinks.
//! Causal masks and softcaps are beside the declared ones.

use super::{Convention, Fit, Number, Variant};
use crate::problem::Base;
use crate::recipe::{Norm, Recipe};
use crate::report::{Parameters, Value};
use qkv::position::{Pairing, Rotary, Scaling, slopes};
use qkv::{Causal, Window};

pub(super) static TABLE: &[Convention] = &[
    Convention::new(
        "window-undeclared",
        "A window that reaches back {back} and forward {forward}, which the options do not have.",
        "多了一个选项里没有的窗口：向后{back}，向前{forward}。",
        |_, _| Vec::new(), // any of many, so that all are tried
    )
    .fits(&[Fit {
        grid: |base, right| (0..windows(base, right).len()).map(|n| n as f64).collect(),
        set: |base, recipe, number| {
            if let Some((window, alignment)) = windows(base, recipe).get(number as usize) {
                recipe.window = Some(*window);
                recipe.alignment = *alignment;
            }
        },
        number: Number::Listed,
        alone: true,
        parameters: |base, right, number| {
            let windows = windows(base, right);
            let Some((Window { back, forward }, alignment)) = windows.get(number as usize) else {
                return Parameters::new();
            };
            let mut parameters = Parameters::from([
                ("back", Value::side(*back)),
                ("forward", Value::side(*forward)),
            ]);
            if *alignment != right.alignment {
                parameters.insert("alignment", Value::Name("top-left"));
            }
            parameters
        },
    }]),
    Convention::new(
        "alibi-undeclared",
        "ALiBi with the usual slopes, which the options do not have.",
        "多了选项里没有的ALiBi（通常的斜率）。",
        |base, right| {
            if right.slopes.is_some() {
                return Vec::new();
            }
            let heads = base.sizes.heads;
            let with = move |change: fn(&mut Recipe)| {
                Variant::new(move |recipe: &mut Recipe| {
                    recipe.slopes = Some(slopes(heads));
                    change(recipe);
                })
                .undeclared()
            };
            vec![
                with(|_| {}),
                with(|recipe| recipe.distance.alignment = Some(Causal::TopLeft)),
                with(|recipe| recipe.distance.alignment = Some(Causal::BottomRight)),
                with(|recipe| recipe.distance.signed = true),
            ]
        },
    ),
    Convention::new(
        "rotary-undeclared",
        "A rotary embedding of base {base} that turns {pairs}, which the options do not have.",
        "多了选项里没有的旋转位置编码：基数{base}，列配对为{pairs}。",
        |base, right| {
            let mut variants = Vec::new();
            for rotary_base in [1e4, 5e5, 1e6] {
                for pairing in [Pairing::Halves, Pairing::Interleaved] {
                    for from_start in [false, true] {
                        if !can_turn(base, right) || from_start && !stands_elsewhere(base, right) {
                            continue;
                        }
                        let back = base.sizes.queries as i64 - base.sizes.keys as i64;
                        let mut variant = Variant::new(move |recipe| {
                            set_rotary(recipe, pairing, rotary_base);
                            if from_start {
                                recipe.rotary.query_offset = back;
                            }
                        });
                        variant.parameters = turning(pairing, rotary_base);
                        if from_start {
                            variant = variant.with("alignment", Value::Name("top-left"));
                        }
                        variants.push(variant.undeclared());
                    }
                }
            }
            variants
        },
    )
    .fits(&[any_base::<true>(), any_base::<false>()]),
    Convention::new(
        "qk-norm-undeclared",
        "Queries and keys are normed ({kind}), without gains, which the options do not have.",
        "多了选项里没有的查询和键的归一化（{kind}，没有增益）。",
        |base, _| {
            let block = base.problem.block();
            if block.q_norm.is_some() || block.k_norm.is_some() {
                return Vec::new();
            }
            let root = |eps: f64| ("root-mean-square", eps, Norm::Undeclared { eps });
            let kinds = [
                root(1e-6),
                root(1e-5),
                root(f64::from(f32::EPSILON)),
                root(0.0),
                ("length", 0.0, Norm::Length),
            ];
            let kinds = kinds.map(|(kind, eps, norm)| {
                Variant::new(move |recipe| recipe.norm = norm)
                    .with("kind", Value::Name(kind))
                    .with("eps", Value::Number(eps))
                    .undeclared()
            });
            kinds.into()
        },
    ),
    Convention::new(
        "sinks-undeclared",
        "Sinks with the logits {logits}, which the options do not have.",
        "多了选项里没有的sink，logit为{logits}。",
        |_, _| Vec::new(), // one number for all here, one for each head in the search
    )
    .fits(&[Fit {
        grid: |_, right| match right.sinks {
            None => sink_logits().collect(),
            Some(_) => Vec::new(),
        },
        set: |base, recipe, logit| recipe.sinks = Some(vec![logit; base.sizes.heads]),
        number: Number::Real,
        alone: true,
        parameters: |_, _, logit| sinks(&[logit]),
    }]),
];

/// Every window that changes anything, with what it goes by; of two sides all pairs where there are
/// few keys, else what people choose: causal, one side alone, both alike.
fn windows(base: &Base<'_>, right: &Recipe) -> Vec<(Window, Option<Causal>)> {
    const FEW: usize = 16;
    const LONGEST: usize = 1024;
    let (queries, keys) = (base.sizes.queries, base.sizes.keys);
    if base.problem.attention().window.is_some() || keys == 0 {
        return Vec::new();
    }
    let reaches = || (0..keys.max(queries).min(LONGEST)).map(Some);
    let mut windows = Vec::new();
    let mut add = |back, forward| windows.push(Window { back, forward });
    match right.causal.is_some() {
        // Beside a causal mask only the side behind shows.
        true => reaches().for_each(|back| add(back, None)),
        false => {
            reaches().for_each(|back| add(back, Some(0)));
            reaches().for_each(|back| add(back, None));
            reaches().for_each(|forward| add(None, forward));
            reaches().for_each(|reach| add(reach, reach));
            if keys <= FEW {
                for back in reaches() {
                    reaches().for_each(|forward| add(back, forward));
                }
            }
        }
    }
    let mut alignments = vec![right.alignment];
    if right.causal.is_none() && right.alignment.is_none() && queries != keys {
        alignments.push(Some(Causal::TopLeft));
    }
    alignments
        .into_iter()
        .flat_map(|alignment| windows.iter().map(move |window| (*window, alignment)))
        .collect()
}

fn can_turn(base: &Base<'_>, right: &Recipe) -> bool {
    let width = base.sizes.head_dim;
    right.rotary.rotary.is_none() && width >= 2 && width.is_multiple_of(2)
}

/// Whether a query that counts from the first key stands elsewhere.
fn stands_elsewhere(base: &Base<'_>, right: &Recipe) -> bool {
    let sizes = base.sizes;
    let by_end = matches!(right.alignment, None | Some(Causal::BottomRight));
    by_end && !base.is_self_attention() && sizes.past == 0 && sizes.queries != sizes.keys
}

fn set_rotary(recipe: &mut Recipe, pairing: Pairing, base: f64) {
    recipe.rotary.rotary = Some(Rotary {
        pairing,
        base,
        dim: None,
        scaling: Scaling::None,
    });
}

fn turning(pairing: Pairing, base: f64) -> Parameters {
    let pairs = match pairing {
        Pairing::Halves => "(i, i + d/2)",
        Pairing::Interleaved => "(2i, 2i + 1)",
    };
    Parameters::from([("base", Value::Number(base)), ("pairs", Value::Name(pairs))])
}

/// An unknown base of one of the pairings.
const fn any_base<const HALVES: bool>() -> Fit {
    const fn pairing(halves: bool) -> Pairing {
        match halves {
            true => Pairing::Halves,
            false => Pairing::Interleaved,
        }
    }
    Fit {
        grid: |base, right| match can_turn(base, right) {
            true => (8..=160).map(|n| 10f64.powf(f64::from(n) / 20.0)).collect(),
            false => Vec::new(),
        },
        set: |_, recipe, base| set_rotary(recipe, pairing(HALVES), base.abs().max(1e-3)),
        number: Number::Real,
        alone: true,
        parameters: |_, _, base| turning(pairing(HALVES), base),
    }
}

/// Where to look for the logit of a sink first.
pub(crate) fn sink_logits() -> impl Iterator<Item = f64> {
    (-12..=24).map(|n| f64::from(n) / 2.0)
}

/// How sinks are reported: one logit for all heads, or one for each.
pub(crate) fn sinks(logits: &[f64]) -> Parameters {
    Parameters::from([("logits", Value::Numbers(logits.to_vec()))])
}
