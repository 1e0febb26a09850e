//! Weights and biases of the layer.

use super::{Convention, Variant, only};
use crate::problem::{Base, Problem};
use crate::report::Value;

const WEIGHTS: [&str; 4] = ["wq", "wk", "wv", "wo"];
const BIASES: [&str; 4] = ["bq", "bk", "bv", "bo"];

pub(super) static TABLE: &[Convention] = &[
    Convention::new(
        "weight-transposed",
        "A weight is used as its transpose: {which}.",
        "权重被转置使用：{which}。",
        |base, _| {
            each(
                WEIGHTS,
                linears(base).map(|linear| linear == Some(true)),
                true,
            )
        },
    ),
    Convention::new(
        "projection-bias-missing",
        "The bias of a projection is left out: {which}.",
        "投影没有加偏置：{which}。",
        |base, _| each(BIASES, biased(base), false),
    ),
    Convention::new(
        "output-projection-missing",
        "The output projection is left out: heads are only put side by side.",
        "没有做输出投影：只是把各个头拼接起来。",
        |base, _| {
            only(base.problem.block().output.is_some(), |recipe| {
                recipe.projection.no_output = true;
            })
        },
    ),
    Convention::new(
        "residual-missing",
        "x is not added to the result.",
        "结果没有加上x。",
        |base, _| {
            let residual = matches!(base.problem, Problem::Tokens { layer, .. } if layer.residual);
            only(residual, |recipe| recipe.projection.no_residual = true)
        },
    ),
    Convention::new(
        "padding-positions",
        "Positions of {which} count from the first token after the left padding.",
        "{which}的位置从左侧填充之后的第一个词元算起。",
        |base, right| {
            if base.left_padding.iter().all(|pads| *pads == 0) {
                return Vec::new();
            }
            let mut variants = Vec::new();
            let positioned =
                matches!(base.problem, Problem::Tokens { layer, .. } if layer.sinusoidal.is_some());
            for place in [0, 1] {
                if positioned {
                    variants.push(
                        Variant::new(move |recipe| recipe.projection.unpadded = Some(place))
                            .with("which", Value::Names(vec!["x"])),
                    );
                }
            }
            // Of queries and keys together only their distance counts.
            let turned = [("q", [true, false]), ("k", [false, true])];
            for (name, which) in turned {
                if right.rotary.rotary.is_some() {
                    variants.push(
                        Variant::new(move |recipe| recipe.rotary.unpadded = which)
                            .with("which", Value::Names(vec![name])),
                    );
                }
            }
            variants
        },
    ),
    Convention::new(
        "sinusoidal-missing",
        "No sinusoidal positions are added to the tokens.",
        "没有给词元加正弦位置编码。",
        |base, _| {
            let positioned =
                matches!(base.problem, Problem::Tokens { layer, .. } if layer.sinusoidal.is_some());
            only(positioned, |recipe| recipe.projection.no_positions = true)
        },
    ),
];

/// Each weight alone, all of q, k and v, and all.
fn each(names: [&'static str; 4], possible: [bool; 4], transposes: bool) -> Vec<Variant> {
    let count = possible.iter().filter(|possible| **possible).count();
    let mut sets: Vec<[bool; 4]> = Vec::new();
    for at in 0..4 {
        if possible[at] {
            let mut alone = [false; 4];
            alone[at] = true;
            sets.push(alone);
        }
    }
    let [q, k, v, o] = possible;
    for set in [[q, k, v, o], [q, k, v, false], [q, k, false, false]] {
        if set.iter().filter(|one| **one).count() > 1 && !sets.contains(&set) && count > 1 {
            sets.push(set);
        }
    }
    let variants = sets.into_iter().map(|set| {
        let which = names.iter().zip(set).filter(|(_, one)| *one);
        let which = which.map(|(name, _)| *name).collect();
        Variant::new(move |recipe| {
            let to = match transposes {
                true => &mut recipe.projection.transposed,
                false => &mut recipe.projection.unbiased,
            };
            for (to, one) in to.iter_mut().zip(set) {
                *to |= one;
            }
        })
        .with("which", Value::Names(which))
    });
    variants.collect()
}

/// Which weights there are, and whether they are square.
fn linears(base: &Base<'_>) -> [Option<bool>; 4] {
    let square = |linear: &qkv::Linear| linear.in_width() == linear.out_width();
    let output = base.problem.block().output.as_ref().map(square);
    match base.problem {
        Problem::Given { .. } => [None, None, None, output],
        Problem::Tokens { layer, .. } => [
            Some(square(&layer.q)),
            Some(square(&layer.k)),
            Some(square(&layer.v)),
            output,
        ],
    }
}

fn biased(base: &Base<'_>) -> [bool; 4] {
    let output = base.problem.block().output.as_ref();
    let output = output.is_some_and(|linear| linear.bias().is_some());
    match base.problem {
        Problem::Given { .. } => [false, false, false, output],
        Problem::Tokens { layer, .. } => [
            layer.q.bias().is_some(),
            layer.k.bias().is_some(),
            layer.v.bias().is_some(),
            output,
        ],
    }
}
