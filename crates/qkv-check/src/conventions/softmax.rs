//! What the softmax sums over.

use super::{Convention, Fit, Number, Variant, only};
use crate::recipe::{Axis, EmptyRule, Padding, Phantoms};
use crate::report::{Parameters, Value};

pub(super) static TABLE: &[Convention] = &[
    Convention::new(
        "softmax-over-queries",
        "The softmax runs over the queries: columns sum to 1 instead of rows.",
        "softmax沿查询轴计算：每列之和为1，而不是每行。",
        |_, _| only(true, |recipe| recipe.axis = Axis::Queries),
    ),
    Convention::new(
        "softmax-over-heads",
        "The softmax runs over the heads.",
        "softmax沿头轴计算。",
        |base, _| only(base.sizes.heads > 1, |recipe| recipe.axis = Axis::Heads),
    ),
    Convention::new(
        "softmax-joint",
        "One softmax over queries and keys together: all weights of a head sum to 1.",
        "对查询和键一起做了一次softmax：一个头的全部权重之和为1。",
        |_, _| only(true, |recipe| recipe.axis = Axis::Joint),
    ),
    Convention::new(
        "softmax-plus-one",
        "The denominator of the softmax has 1 more, as with a sink of logit 0.",
        "softmax的分母多加了1，相当于logit为0的sink。",
        |_, _| only(true, |recipe| recipe.phantoms = Phantoms::Count(1.0)),
    ),
    Convention::new(
        "phantom-keys",
        "{count} keys that nobody gave join the softmax with score 0, as zero padding does.",
        "有{count}个不存在的键以得分0参与了softmax，例如补零的块。",
        |base, _| {
            let keys = base.sizes.keys;
            let mut variants = Vec::new();
            let mut known = Vec::new();
            for block in [2_usize, 4, 8, 16, 32, 64, 128, 256] {
                let count = keys.next_multiple_of(block) - keys;
                if count > 0 && !known.contains(&count) {
                    known.push(count);
                    variants.push(
                        Variant::new(move |recipe| {
                            recipe.phantoms = Phantoms::Block(block);
                            recipe.empty = EmptyRule::Zero;
                        })
                        .with("count", Value::Whole(count as i64)),
                    );
                }
            }
            if base.problem.attention().lengths.is_some() {
                variants.push(Variant::new(|recipe| recipe.padding = Padding::Zeros));
            }
            variants
        },
    )
    .fits(&[Fit {
        grid: |_, _| (1..=40).map(|n| f64::from(n * n)).collect(),
        set: |_, recipe, count| recipe.phantoms = Phantoms::Count(count.max(0.0)),
        number: Number::Whole,
        alone: false,
        parameters: |_, _, count| Parameters::from([("count", Value::Whole(count as i64))]),
    }]),
];
