//! The causal mask.

use super::{Convention, Variant, only};
use crate::problem::Base;
use crate::recipe::{CausalRule, MaskRule, Recipe};
use qkv::Causal;

pub(super) static TABLE: &[Convention] = &[
    Convention::new(
        "causal-top-left",
        "The causal mask starts at the top left: query i keeps keys 0 to i.",
        "因果掩码从左上角对齐：查询i只看键0到i。",
        |base, right| aligned(base, right, Causal::TopLeft),
    ),
    Convention::new(
        "causal-bottom-right",
        "The causal mask ends at the bottom right: the last query keeps every key.",
        "因果掩码从右下角对齐：最后一个查询能看到所有键。",
        |base, right| aligned(base, right, Causal::BottomRight),
    ),
    Convention::new(
        "causal-missing",
        "No causal mask: queries see later keys.",
        "没有因果掩码：查询能看到之后的键。",
        |base, right| {
            let mut variants = only(right.causal.is_some(), |recipe| recipe.causal = None);
            if right.causal.is_none() && triangular(base) {
                variants.push(Variant::new(|recipe| recipe.masks = MaskRule::Ignored));
            }
            variants
        },
    ),
    Convention::new(
        "causal-strict",
        "The causal mask is strict: a query does not see its own key.",
        "因果掩码是严格的：查询看不到自己的键。",
        |_, right| diagonal(right, -1),
    ),
    Convention::new(
        "causal-one-ahead",
        "The causal mask is off by one: a query sees one key after its own.",
        "因果掩码偏移了一位：查询能看到自己之后的一个键。",
        |_, right| diagonal(right, 1),
    ),
    Convention::new(
        "causal-reversed",
        "The causal mask is transposed: a query sees its own key and later ones, not earlier ones.",
        "因果掩码被转置：查询只看自己及之后的键，而不是之前的键。",
        |_, right| {
            let Some(rule) = right.causal else {
                return Vec::new();
            };
            vec![Variant::new(move |recipe| {
                recipe.causal = Some(CausalRule {
                    reversed: true,
                    ..recipe.causal.unwrap_or(rule)
                });
            })]
        },
    ),
];

/// The causal mask alone, or everything that goes by where queries stand; also where the options have
/// no causal mask, or have it as an array.
fn aligned(base: &Base<'_>, right: &Recipe, alignment: Causal) -> Vec<Variant> {
    let rule = right.causal.unwrap_or(CausalRule {
        alignment,
        diagonal: 0,
        reversed: false,
    });
    let set = move |recipe: &mut Recipe| {
        recipe.causal = Some(CausalRule {
            alignment,
            ..recipe.causal.unwrap_or(rule)
        });
    };
    let mut variants = vec![
        Variant::new(set),
        Variant::new(move |recipe| {
            set(recipe);
            recipe.alignment = Some(alignment);
        }),
    ];
    if right.causal.is_none() && triangular(base) {
        variants.push(Variant::new(move |recipe| {
            set(recipe);
            recipe.masks = MaskRule::Ignored;
        }));
    }
    match right.causal {
        Some(_) => variants,
        None => variants.into_iter().map(Variant::undeclared).collect(),
    }
}

fn diagonal(right: &Recipe, diagonal: i64) -> Vec<Variant> {
    let Some(rule) = right.causal else {
        return Vec::new();
    };
    vec![Variant::new(move |recipe| {
        recipe.causal = Some(CausalRule {
            diagonal,
            ..recipe.causal.unwrap_or(rule)
        });
    })]
}

/// Whether the one mask is a causal one.
pub(super) fn triangular(base: &Base<'_>) -> bool {
    let [(mask, keeps)] = &base.masks[..] else {
        return false;
    };
    let (queries, keys) = (base.sizes.queries, base.sizes.keys);
    [0, keys as i64 - queries as i64].into_iter().any(|offset| {
        (0..queries).all(|i| {
            (0..keys).all(|j| (mask.get([0, 0, i, j]) == *keeps) == (j as i64 <= i as i64 + offset))
        })
    })
}
