//! The factor on q·k, and the softcap.

use super::{Convention, Fit, Number, Variant, only};
use crate::problem::Base;
use crate::recipe::{Cap, Recipe};
use crate::report::{Parameters, Value};

pub(super) static TABLE: &[Convention] = &[
    Convention::new(
        "scale",
        "Another factor on q·k: {factor} times the right one ({named}).",
        "q·k乘的系数不同：是正确系数的{factor}倍（{named}）。",
        |base, right| {
            let mut variants: Vec<(f64, Variant)> = Vec::new();
            for (_, theirs) in names(base, right) {
                let known = variants.iter().any(|(known, _)| same(*known, theirs));
                if !known && !same(theirs, right.scale) {
                    let mut variant = Variant::new(move |recipe| recipe.scale = theirs);
                    variant.parameters = parameters(base, right, theirs);
                    variants.push((theirs, variant));
                }
            }
            variants.into_iter().map(|(_, variant)| variant).collect()
        },
    )
    .fits(&[Fit {
        grid: |_, right| {
            let factor = |n: i32| 10f64.powf(f64::from(n) / 8.0);
            let steps = (-24..=24).map(factor);
            let signed = steps.flat_map(|f| [f, -f]);
            signed.map(|f| f * right.scale).chain([0.0]).collect()
        },
        set: |_, recipe, scale| recipe.scale = scale,
        number: Number::Real,
        alone: false,
        parameters,
    }]),
    Convention::new(
        "scale-after-softmax",
        "The scale is multiplied after the softmax: the weights of a row sum to it.",
        "缩放放在了softmax之后：每行权重之和等于缩放系数。",
        |_, right| {
            let scale = right.scale;
            only(scale != 1.0, move |recipe| {
                recipe.scale = 1.0;
                recipe.scale_after = scale;
            })
        },
    ),
    Convention::new(
        "softcap-missing",
        "No softcap.",
        "没有softcap。",
        |_, right| only(right.softcap.is_some(), |recipe| recipe.softcap = None),
    ),
    Convention::new(
        "softcap-after-mask",
        "The softcap comes after the mask: a dropped key has score −cap instead of −∞.",
        "softcap在掩码之后：被屏蔽的键得分是−cap而不是−∞。",
        |_, right| {
            only(right.softcap.is_some(), |recipe| {
                recipe.cap = Cap::AfterMask
            })
        },
    ),
    Convention::new(
        "softcap-unscaled",
        "The softcap is tanh(s/c), not multiplied by c.",
        "softcap只算了tanh(s/c)，没有再乘c。",
        |_, right| only(right.softcap.is_some(), |recipe| recipe.cap = Cap::Unscaled),
    ),
    Convention::new(
        "softcap-before-scale",
        "The softcap comes before the scale.",
        "softcap在缩放之前。",
        |_, right| {
            only(right.softcap.is_some(), |recipe| {
                recipe.cap = Cap::BeforeScale;
            })
        },
    ),
    Convention::new(
        "softcap-value",
        "Another softcap: {cap}.",
        "softcap的值不同：{cap}。",
        |_, _| Vec::new(),
    )
    .fits(&[Fit {
        grid: |_, _| (-8..=24).map(|n| 10f64.powf(f64::from(n) / 8.0)).collect(),
        set: |_, recipe, cap| recipe.softcap = Some(cap.abs().max(1e-6)),
        number: Number::Real,
        alone: false,
        parameters: |_, _, cap| Parameters::from([("cap", Value::Number(cap.abs()))]),
    }]),
];

/// The factors that have a name, in the order of their names.
fn names(base: &Base<'_>, right: &Recipe) -> Vec<(&'static str, f64)> {
    let root = |n: usize| 1.0 / (n as f64).sqrt();
    let sizes = base.sizes;
    let d = sizes.head_dim as f64;
    let mut names = vec![
        ("missing", 1.0),
        ("model-width", root(sizes.model_width)),
        ("one-over-d", 1.0 / d),
        ("twice", right.scale * right.scale),
        ("multiplied", d.sqrt()),
        ("head-count", root(sizes.heads)),
    ];
    let all_heads = sizes.heads * sizes.head_dim;
    if all_heads != sizes.model_width {
        names.push(("model-width", root(all_heads)));
    }
    if !same(right.scale * d.sqrt(), 1.0) {
        names.push(("default", 1.0 / d.sqrt()));
    }
    names
}

/// YaRN's correction of the scale, mscale² with mscale = 0.1·m·ln(factor) + 1, applied where it is not
/// right or the other way round, for the factors that models have (m = 0.707 is DeepSeek-V2-Lite's).
fn mscale(share: f64) -> Option<(&'static str, f64)> {
    const NEAR: f64 = 1e-3; // a number found from half precision is no nearer
    const KNOWN: [(f64, f64); 8] = [
        (2.0, 1.0),
        (4.0, 1.0),
        (8.0, 1.0),
        (16.0, 1.0),
        (32.0, 1.0),
        (40.0, 1.0),
        (64.0, 1.0),
        (40.0, 0.707),
    ];
    KNOWN.into_iter().find_map(|(factor, m)| {
        let square = (0.1 * m * factor.ln() + 1.0).powi(2);
        let near = |expected: f64| (share / expected - 1.0).abs() < NEAR;
        match () {
            () if near(square) => Some(("yarn-mscale", factor)),
            () if near(1.0 / square) => Some(("yarn-mscale-missing", factor)),
            () => None,
        }
    })
}

fn same(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-12 * b.abs()
}

/// `factor` = theirs ÷ right, and every name that fits.
fn parameters(base: &Base<'_>, right: &Recipe, theirs: f64) -> Parameters {
    let names = names(base, right);
    let fitting = names.iter().filter(|(_, scale)| same(*scale, theirs));
    let mut named: Vec<&str> = Vec::new();
    for (name, _) in fitting {
        if !named.contains(name) {
            named.push(name);
        }
    }
    let mut parameters = Parameters::from([
        ("factor", Value::Number(theirs / right.scale)),
        ("theirs", Value::Number(theirs)),
    ]);
    if named.is_empty()
        && let Some((name, factor)) = mscale(theirs / right.scale)
    {
        named.push(name);
        parameters.insert("yarn_factor", Value::Number(factor));
    }
    if named.is_empty() && theirs > 0.0 {
        let distance = |scale: f64| (scale / theirs).ln().abs();
        let nearest = names
            .iter()
            .filter(|(_, scale)| *scale > 0.0)
            .min_by(|a, b| distance(a.1).total_cmp(&distance(b.1)));
        if let Some((name, _)) = nearest {
            parameters.insert("nearest", Value::Name(name));
        }
    }
    parameters.insert("named", Value::Names(named));
    parameters
}
