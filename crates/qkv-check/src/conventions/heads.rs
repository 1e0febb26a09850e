//! Heads and axes.

use super::{Convention, Variant, only};
use crate::problem::Problem;
use crate::recipe::{Arrangement, Merge, Order, Shown, Split, Swap};

pub(super) static TABLE: &[Convention] = &[
    Convention::new(
        "groups-tiled",
        "Shared key and value heads are tiled (0 1 0 1) instead of repeated each (0 0 1 1).",
        "共享的键值头按平铺（0 1 0 1）展开，而不是逐个重复（0 0 1 1）。",
        |base, _| {
            let grouped = base.sizes.heads > base.sizes.kv_heads;
            only(grouped, |recipe| recipe.tiled_groups = true)
        },
    ),
    Convention::new(
        "heads-split-without-transpose",
        "Columns were split into heads by reshaping to [H,L,d] without exchanging heads and tokens.",
        "拆分头时直接变形为[H,L,d]，没有交换头和词元两个轴。",
        |base, _| {
            only(base.sizes.heads > 1 && base.sizes.past == 0, |recipe| {
                recipe.split = Split::WithoutTranspose;
            })
        },
    ),
    Convention::new(
        "heads-merged-without-transpose",
        "Heads were put side by side by reshaping [H,L,d] without exchanging heads and tokens.",
        "合并头时直接变形[H,L,d]，没有交换头和词元两个轴。",
        |base, _| {
            only(base.sizes.heads > 1, |recipe| {
                recipe.merge = Merge::WithoutTranspose;
            })
        },
    ),
    Convention::new(
        "heads-interleaved",
        "Column c·H + h was taken for head h, instead of columns h·d to (h+1)·d.",
        "第c·H + h列被当成头h的列，而不是第h·d到(h+1)·d列。",
        |base, _| {
            if base.sizes.heads < 2 {
                return Vec::new();
            }
            vec![
                Variant::new(|recipe| {
                    recipe.split = Split::Interleaved;
                    recipe.merge = Merge::Interleaved;
                }),
                Variant::new(|recipe| recipe.split = Split::Interleaved),
                Variant::new(|recipe| recipe.merge = Merge::Interleaved),
            ]
        },
    ),
    Convention::new(
        "layout-swapped",
        "Heads and tokens are exchanged: [B,L,H,d] was taken for [B,H,L,d].",
        "头轴和词元轴互换了：把[B,L,H,d]当成了[B,H,L,d]。",
        |_, _| {
            vec![
                Variant::new(|recipe| recipe.arrangement = Arrangement::Heads),
                Variant::new(|recipe| recipe.shown = Shown::Swapped),
            ]
        },
    ),
    Convention::new(
        "batch-first",
        "Batch entries attend to each other: [B,L,…] was taken for [L,B,…].",
        "批次之间互相关注：把[B,L,…]当成了[L,B,…]。",
        |base, _| {
            only(base.sizes.queries == base.sizes.keys, |recipe| {
                recipe.arrangement = Arrangement::Batch;
            })
        },
    ),
    Convention::new(
        "keys-values-swapped",
        "Keys and values are exchanged.",
        "键和值互换了。",
        |base, _| {
            let tokens = matches!(base.problem, Problem::Tokens { .. });
            let mut variants = only(base.sizes.head_dim == base.sizes.value_dim, |recipe| {
                recipe.swap = Swap::KeysValues;
            });
            if tokens && base.sizes.head_dim == base.sizes.value_dim {
                variants.push(Variant::new(|recipe| recipe.projection.swapped = true));
            }
            variants
        },
    ),
    Convention::new(
        "queries-keys-swapped",
        "Queries and keys are exchanged.",
        "查询和键互换了。",
        |base, _| {
            let sizes = base.sizes;
            let fits = sizes.queries == sizes.keys && sizes.heads == sizes.kv_heads;
            only(fits && sizes.past == 0, |recipe| {
                recipe.swap = Swap::QueriesKeys
            })
        },
    ),
    Convention::new(
        "qkv-fused-layout",
        "q, k and v lie in one array, and it was read in another order: all q, all k, all v, or head by head.",
        "q、k、v放在同一个数组里，却按另一种顺序读取：先全部q、再k、再v，或逐头排列。",
        |base, _| {
            let sizes = base.sizes;
            let fits = sizes.head_dim == sizes.value_dim
                && sizes.past == 0
                && sizes.queries == sizes.keys
                && sizes.kv_heads > 1;
            if !fits {
                return Vec::new();
            }
            let (a, b) = (Order::Blocks, Order::Groups);
            let orders = [(a, b), (b, a)];
            orders
                .map(|(written, read)| {
                    Variant::new(move |recipe| recipe.split = Split::Fused { written, read })
                })
                .into()
        },
    ),
];
