//! Windows, caches, packed documents, lengths.

use super::{Convention, Variant, only};
use crate::recipe::{DocumentRule, Padding};
use crate::report::Value;
use qkv::{Causal, Window};

pub(super) static TABLE: &[Convention] = &[
    Convention::new(
        "window-off-by-one",
        "The window is off by one: it reaches back {back} and forward {forward}.",
        "窗口差了一位：向后{back}，向前{forward}。",
        |_, right| {
            let Some(Window { back, forward }) = right.window else {
                return Vec::new();
            };
            let near = |side: Option<usize>| -> Vec<Option<usize>> {
                let Some(n) = side else { return vec![None] };
                let smaller = n.checked_sub(1).map(Some);
                [Some(Some(n + 1)), smaller, Some(Some(n))]
                    .into_iter()
                    .flatten()
                    .collect()
            };
            let mut variants = Vec::new();
            for back in near(back) {
                for forward in near(forward) {
                    let window = Window { back, forward };
                    if Some(window) != right.window {
                        variants.push(
                            Variant::new(move |recipe| recipe.window = Some(window))
                                .with("back", Value::side(back))
                                .with("forward", Value::side(forward)),
                        );
                    }
                }
            }
            // Both sides off is less likely than one.
            variants.sort_by_key(|variant| {
                let unchanged = [("back", back), ("forward", forward)];
                let same = unchanged.iter().filter(|(name, given)| {
                    variant.parameters.get(name) == Some(&Value::side(*given))
                });
                usize::MAX - same.count()
            });
            variants
        },
    ),
    Convention::new(
        "window-ignored",
        "The window is not applied.",
        "窗口没有生效。",
        |_, right| only(right.window.is_some(), |recipe| recipe.window = None),
    ),
    Convention::new(
        "window-one-sided",
        "The window holds on one side only, or on both where it should on one.",
        "窗口只限制了一侧，或者本应只限制一侧却限制了两侧。",
        |_, right| {
            let Some(Window { back, forward }) = right.window else {
                return Vec::new();
            };
            let reach = back.into_iter().chain(forward).max();
            let others = [
                Window {
                    back,
                    forward: None,
                },
                Window {
                    back: None,
                    forward,
                },
                Window {
                    back,
                    forward: Some(0),
                },
                Window {
                    back: Some(0),
                    forward,
                },
                Window {
                    back: reach,
                    forward: reach,
                },
            ];
            let mut known = vec![
                Window { back, forward },
                Window {
                    back: None,
                    forward: None,
                },
            ];
            let mut variants = Vec::new();
            for window in others {
                if !known.contains(&window) {
                    known.push(window);
                    variants.push(
                        Variant::new(move |recipe| recipe.window = Some(window))
                            .with("back", Value::side(window.back))
                            .with("forward", Value::side(window.forward)),
                    );
                }
            }
            variants
        },
    ),
    Convention::new(
        "cache-offset",
        "Queries after the cache stand {offset} places from where they should.",
        "缓存之后的查询位置偏移了{offset}。",
        |base, right| {
            let sizes = base.sizes;
            let behind = match right.causal.map(|rule| rule.alignment) {
                Some(Causal::Offset(offset)) => offset,
                Some(Causal::BottomRight) => sizes.keys as i64 - sizes.queries as i64,
                _ => sizes.past as i64,
            };
            if behind <= 0 {
                return Vec::new();
            }
            let mut offsets = vec![-behind, -1, 1, behind];
            offsets.dedup();
            let mut variants = Vec::new();
            for offset in offsets {
                for (masks, rotary) in [(true, true), (true, false), (false, true)] {
                    variants.push(
                        Variant::new(move |recipe| {
                            recipe.shift = offset;
                            recipe.shift_masks = masks;
                            recipe.shift_rotary = rotary;
                        })
                        .with("offset", Value::Whole(offset)),
                    );
                }
            }
            variants
        },
    ),
    Convention::new(
        "cache-ignored",
        "The cached keys are not seen.",
        "看不到缓存的键。",
        |base, _| only(base.sizes.past > 0, |recipe| recipe.ignore_past = true),
    ),
    Convention::new(
        "documents-mixed",
        "Packed documents see each other.",
        "打包的文档互相可见。",
        |base, _| {
            let packed = base.problem.attention().documents.is_some();
            let mut variants = only(packed, |recipe| recipe.documents = DocumentRule::Mixed);
            if packed {
                variants.push(Variant::new(|recipe| {
                    recipe.documents = DocumentRule::MixedButCounted;
                }));
            }
            variants
        },
    ),
    Convention::new(
        "lengths-off-by-one",
        "The number of real keys is off by {offset}.",
        "真实键的数量差了{offset}。",
        |base, _| {
            if base.problem.attention().lengths.is_none() {
                return Vec::new();
            }
            [-1, 1]
                .map(|offset| {
                    Variant::new(move |recipe| recipe.padding = Padding::Shifted(offset))
                        .with("offset", Value::Whole(offset))
                })
                .into()
        },
    ),
];
