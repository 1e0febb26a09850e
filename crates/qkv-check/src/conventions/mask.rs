//! Masks, padding, rows without a key.

use super::causal::triangular;
use super::{Convention, Fit, Number, Variant, only};
use crate::problem::Base;
use crate::recipe::{DroppedRule, EmptyRule, MaskRule, Padding, Recipe};
use crate::report::{Parameters, Value};

pub(super) static TABLE: &[Convention] = &[
    Convention::new(
        "mask-polarity",
        "The mask is inverted: what it should keep is dropped, and the other way round.",
        "掩码的极性反了：该保留的被屏蔽，该屏蔽的被保留。",
        |base, _| {
            let mut variants = Vec::new();
            if !base.masks.is_empty() {
                variants.push(Variant::new(|recipe| recipe.masks = MaskRule::Inverted));
            }
            if any_mask(base) {
                variants.push(Variant::new(|recipe| recipe.inverted = true));
            }
            variants
        },
    ),
    Convention::new(
        "padding-polarity",
        "The padding mask is inverted: real keys are dropped, padding is kept.",
        "填充掩码的极性反了：真实的键被屏蔽，填充被保留。",
        |base, _| {
            let mut variants = only(has_lengths(base), |recipe| {
                recipe.padding = Padding::Inverted;
            });
            if padding_masks(base) {
                variants.push(Variant::new(|recipe| recipe.masks = MaskRule::Inverted));
            }
            variants
        },
    ),
    Convention::new(
        "padding-ignored",
        "Padding is not masked.",
        "填充没有被屏蔽。",
        |base, _| {
            let mut variants = only(has_lengths(base), |recipe| recipe.padding = Padding::Kept);
            if padding_masks(base) {
                variants.push(Variant::new(|recipe| recipe.masks = MaskRule::Ignored));
            }
            variants
        },
    ),
    Convention::new(
        "mask-ignored",
        "The mask is not applied.",
        "掩码没有生效。",
        |base, _| {
            let own = !base.masks.is_empty() && !padding_masks(base) && !triangular(base);
            only(own, |recipe| recipe.masks = MaskRule::Ignored)
        },
    ),
    Convention::new(
        "mask-added-as-01",
        "The mask of 0 and 1 is added to the scores as numbers.",
        "0/1掩码被当作数字加到了得分上。",
        |base, _| {
            let pairs = [(1.0, 0.0), (0.0, 1.0)];
            let variants = pairs.map(|(kept, dropped)| {
                Variant::new(move |recipe| recipe.dropped = DroppedRule::Added { kept, dropped })
            });
            if_masked(base, variants)
        },
    ),
    Convention::new(
        "mask-multiplied",
        "The scores are multiplied by the mask: a dropped key has score 0 instead of −∞.",
        "得分乘以了掩码：被屏蔽的键得分是0而不是−∞。",
        |base, _| {
            let zero = Variant::new(|recipe| recipe.dropped = DroppedRule::Filled(0.0));
            if_masked(base, [zero])
        },
    ),
    Convention::new(
        "mask-after-softmax",
        "The mask multiplies the weights after the softmax: rows sum to less than 1.",
        "掩码在softmax之后才乘到权重上：每行之和小于1。",
        |base, _| {
            let after = Variant::new(|recipe| recipe.dropped = DroppedRule::AfterSoftmax);
            if_masked(base, [after])
        },
    ),
    Convention::new(
        "masked-nan-leak",
        "NaN in a dropped key or value reaches the result: 0·NaN is NaN.",
        "被屏蔽的键或值中的NaN泄漏到了结果：0·NaN仍是NaN。",
        |base, _| if_masked(base, [Variant::new(|recipe| recipe.leak = true)]),
    ),
    Convention::new(
        "mask-fill-weak",
        "Dropped keys get {fill} instead of −∞, and keep weight.",
        "被屏蔽的键得到的是{fill}而不是−∞，仍然占有权重。",
        |base, _| {
            // Those that people write; others are found as numbers.
            let fills = [
                -1e-12, -1e-9, -1e-6, -10.0, -100.0, -1e3, -1e4, -65504.0, -1e9,
            ];
            let added = |dropped: f64| DroppedRule::Added { kept: 0.0, dropped };
            let both = |fill: f64| [(fill, DroppedRule::Filled(fill)), (fill, added(fill))];
            // A mask of 0 and 1 that is added amounts to −1 for what it drops.
            let rules = fills
                .into_iter()
                .flat_map(both)
                .chain([(-1.0, added(-1.0))]);
            let variants = rules.map(|(fill, rule)| {
                Variant::new(move |recipe| recipe.dropped = rule).with("fill", Value::Number(fill))
            });
            if_masked(base, variants)
        },
    )
    .fits(&[
        weak_fill(|_, recipe, fill| recipe.dropped = DroppedRule::Filled(fill)),
        weak_fill(|_, recipe, fill| {
            recipe.dropped = DroppedRule::Added {
                kept: 0.0,
                dropped: fill,
            };
        }),
    ]),
    Convention::new(
        "empty-row",
        "A row that keeps no key gives {gives} instead of zeros.",
        "没有任何键可看的行给出的是{gives}，而不是0。",
        |base, _| {
            let rules = [
                ("nan", EmptyRule::Nan),
                ("uniform", EmptyRule::Uniform),
                ("unmasked", EmptyRule::Unmasked),
            ];
            let variants = rules.map(|(gives, rule)| {
                Variant::new(move |recipe| recipe.empty = rule).with("gives", Value::Name(gives))
            });
            if_masked(base, variants)
        },
    ),
    Convention::new(
        "mask-fill-overflow",
        "Two masks hold the least finite number, and their sum overflows to −∞: rows turn to NaN.",
        "两个掩码都用最小有限数，相加溢出为−∞：整行变成NaN。",
        |base, _| {
            let overflow = Variant::new(|recipe| recipe.dropped = DroppedRule::Overflow);
            let empty = Variant::new(|recipe| recipe.empty = EmptyRule::Nan);
            match several_masks(base) {
                true => vec![overflow, empty],
                false => Vec::new(),
            }
        },
    ),
];

fn if_masked(base: &Base<'_>, variants: impl IntoIterator<Item = Variant>) -> Vec<Variant> {
    match any_mask(base) {
        true => variants.into_iter().collect(),
        false => Vec::new(),
    }
}

/// Whether there is more than one mask to add up.
fn several_masks(base: &Base<'_>) -> bool {
    let attention = base.problem.attention();
    let others = [
        attention.causal.is_some(),
        attention.window.is_some(),
        attention.lengths.is_some(),
        attention.documents.is_some(),
        attention.bias.is_some(),
    ];
    base.masks.len() + others.into_iter().filter(|other| *other).count() > 1
}

fn has_lengths(base: &Base<'_>) -> bool {
    base.problem.attention().lengths.is_some()
}

/// Whether any key may be dropped.
fn any_mask(base: &Base<'_>) -> bool {
    let attention = base.problem.attention();
    !base.masks.is_empty()
        || attention.causal.is_some()
        || attention.window.is_some()
        || attention.lengths.is_some()
        || attention.documents.is_some()
        || attention.bias.is_some()
}

/// Whether there are masks, and all of them are the same for every query.
fn padding_masks(base: &Base<'_>) -> bool {
    let attention = base.problem.attention();
    let same_for_all = |view: &qkv::View<'_, bool>| {
        let [batch, heads, queries, keys] = view.shape();
        (0..batch).all(|b| {
            (0..heads).all(|h| {
                (0..keys)
                    .all(|j| (1..queries).all(|i| view.get([b, h, i, j]) == view.get([b, h, 0, j])))
            })
        })
    };
    !attention.masks.is_empty()
        && attention
            .masks
            .iter()
            .all(|mask| same_for_all(&mask.view()))
}

/// An unknown number in place of −∞.
const fn weak_fill(set: fn(&Base<'_>, &mut Recipe, f64)) -> Fit {
    Fit {
        grid: |base, _| match any_mask(base) {
            true => (-16..=16)
                .map(|n| -(10f64.powf(f64::from(n) / 8.0)))
                .collect(),
            false => Vec::new(),
        },
        set,
        number: Number::Real,
        alone: false,
        parameters: |_, _, fill| Parameters::from([("fill", Value::Number(fill))]),
    }
}
