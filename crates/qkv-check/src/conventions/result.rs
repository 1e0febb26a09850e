//! What becomes of weights and results: dropout, lse, averages, positions too many or too few.

use super::{Convention, Variant, only};
use crate::recipe::{Low, LowScores, LowWeights, Shown};
use crate::report::Value;
use qkv::DType;

/// What is rounded before the softmax, with its name.
const SCORES: &[(LowScores, Option<&str>)] = &[
    (LowScores::Exact, None),
    (LowScores::Last, Some("scores")),
    (LowScores::Each, Some("every score")),
];

/// What is rounded in it, with its name.
const WEIGHTS: &[(LowWeights, Option<&str>)] = &[
    (LowWeights::Exact, None),
    (LowWeights::Last, Some("weights")),
    (LowWeights::Exponentials, Some("exponentials")),
    (LowWeights::Each, Some("every step of the softmax")),
];

pub(super) static TABLE: &[Convention] = &[
    Convention::new(
        "dropout-on",
        "Weights are dropped at random.",
        "权重被随机丢弃（dropout没有关闭）。",
        |_, _| Vec::new(), // told from the numbers themselves
    ),
    Convention::new(
        "dropout-unscaled",
        "The weights that dropout leaves are not multiplied by 1/(1−p).",
        "dropout后保留下来的权重没有乘1/(1−p)。",
        |_, right| {
            only(right.dropout.is_some(), |recipe| {
                recipe.dropout_scaled = false;
            })
        },
    ),
    Convention::new(
        "dropout-missing",
        "Nothing is dropped.",
        "没有做dropout。",
        |_, right| only(right.dropout.is_some(), |recipe| recipe.dropout = None),
    ),
    Convention::new(
        "heads-averaged",
        "The weights are the mean over the heads.",
        "权重对所有头取了平均。",
        |base, _| {
            only(base.sizes.heads > 1, |recipe| {
                recipe.shown = Shown::Averaged
            })
        },
    ),
    Convention::new(
        "position-extra",
        "There is one position more in front.",
        "最前面多了一个位置。",
        |_, _| vec![Variant::new(|recipe| recipe.shown = Shown::ExtraFirst)],
    ),
    Convention::new(
        "position-missing",
        "The first position is missing.",
        "缺少第一个位置。",
        |_, _| vec![Variant::new(|recipe| recipe.shown = Shown::WithoutFirst)],
    ),
    Convention::new(
        "row-shift",
        "Each row is shifted by a constant ({shift}); of scores the softmax does not see it.",
        "每行整体偏移了一个常数（{shift}）；如果是得分，softmax看不出来。",
        |_, _| Vec::new(), // allowed for in the search, since every row has a number of its own
    ),
    Convention::new(
        "lse-base-2",
        "lse is a logarithm to base 2.",
        "lse用的是以2为底的对数。",
        |_, _| vec![Variant::new(|recipe| recipe.lse_base_2 = true)],
    ),
    Convention::new(
        "lse-with-sink",
        "lse includes the sink.",
        "lse包含了sink。",
        |_, right| only(right.sinks.is_some(), |recipe| recipe.lse_with_sink = true),
    ),
    Convention::new(
        "fp16-overflow",
        "Scores beyond 65504 overflowed in half precision.",
        "得分超过65504，在半精度下溢出了。",
        |_, _| {
            let mut variants: Vec<Variant> = [[true, false], [true, true], [false, true]]
                .map(|range| Variant::new(move |recipe| recipe.half_range = range))
                .into();
            // What overflows in half precision may be rounded to it too.
            for scores in [LowScores::Each, LowScores::Last] {
                for (weights, _) in WEIGHTS {
                    variants.push(Variant::new(move |recipe| {
                        recipe.half_range = [scores == LowScores::Each, true];
                        recipe.low = Some(Low {
                            dtype: DType::F16,
                            scores,
                            weights: *weights,
                        });
                    }));
                }
            }
            variants
        },
    ),
    Convention::new(
        "softmax-low-precision",
        "The softmax was worked out in {dtype}: rounded to it are {rounded}.",
        "softmax是用{dtype}算的：舍入到该格式的是{rounded}。",
        // Tried only where the format that the numbers are in does not explain them.
        |_, _| {
            let mut variants = Vec::new();
            for (dtype, name) in [(DType::F16, "f16"), (DType::Bf16, "bf16")] {
                for (scores, first) in SCORES {
                    for (weights, second) in WEIGHTS {
                        let low = Low {
                            dtype,
                            scores: *scores,
                            weights: *weights,
                        };
                        let rounded: Vec<&str> = [*first, *second].into_iter().flatten().collect();
                        if !rounded.is_empty() {
                            variants.push(
                                Variant::new(move |recipe| recipe.low = Some(low))
                                    .with("dtype", Value::Name(name))
                                    .with("rounded", Value::Names(rounded)),
                            );
                        }
                    }
                }
            }
            variants
        },
    ),
    // Slips of one row, told from the numbers themselves.
    Convention::new(
        "row-divided-by-d",
        "Row {row}: divided by d = {d} instead of √d = {root}.",
        "第{row}行：除以了d = {d}，而应除以√d = {root}。",
        |_, _| Vec::new(),
    ),
    Convention::new(
        "row-not-divided",
        "Row {row}: not divided by √d = {root}.",
        "第{row}行：没有除以√d = {root}。",
        |_, _| Vec::new(),
    ),
    Convention::new(
        "row-multiplied",
        "Row {row}: multiplied by √d = {root} instead of divided.",
        "第{row}行：乘以了√d = {root}，而应相除。",
        |_, _| Vec::new(),
    ),
    Convention::new(
        "row-not-normalised",
        "Row {row}: the exponentials were not divided by their sum.",
        "第{row}行：指数没有除以它们的和。",
        |_, _| Vec::new(),
    ),
    Convention::new(
        "exp-off",
        "Row {row}: the exponential of key {key} is off; every weight of the row follows from that.",
        "第{row}行：键{key}的指数有误；这一行的权重都由它推出。",
        |_, _| Vec::new(),
    ),
];
