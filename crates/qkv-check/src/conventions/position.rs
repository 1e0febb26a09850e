//! Rotary embeddings and norms of queries and keys.

use super::{Convention, Fit, Number, Variant, only};
use crate::problem::Base;
use crate::recipe::{Norm, Recipe};
use crate::report::{Parameters, Value};
use qkv::position::{Pairing, Rotary, Scaling};

pub(super) static TABLE: &[Convention] = &[
    Convention::new(
        "rotary-pairing",
        "The rotary embedding turns other pairs of columns: halves (i, i + d/2) and neighbours (2i, 2i + 1) are exchanged.",
        "旋转位置编码的列配对不同：(i, i + d/2)与(2i, 2i + 1)互换了。",
        |_, right| {
            with_rotary(right, |rotary| {
                rotary.pairing = match rotary.pairing {
                    Pairing::Halves => Pairing::Interleaved,
                    Pairing::Interleaved => Pairing::Halves,
                };
            })
        },
    ),
    Convention::new(
        "rotary-missing",
        "No rotary embedding.",
        "没有旋转位置编码。",
        |_, right| {
            only(right.rotary.rotary.is_some(), |recipe| {
                recipe.rotary.rotary = None
            })
        },
    ),
    Convention::new(
        "rotary-direction",
        "The rotary embedding turns the other way round.",
        "旋转位置编码的方向反了。",
        |_, right| {
            only(right.rotary.rotary.is_some(), |recipe| {
                recipe.rotary.inverse = true
            })
        },
    ),
    Convention::new(
        "rotary-base",
        "The rotary embedding has base {base}.",
        "旋转位置编码的基数是{base}。",
        |_, right| {
            let Some(rotary) = right.rotary.rotary else {
                return Vec::new();
            };
            let bases = [100.0, 500.0, 1e3, 1e4, 2e4, 1e5, 1e6, 5e5, 5e6, 1e7, 8e6];
            let others = bases.into_iter().filter(|base| *base != rotary.base);
            others
                .map(|base| {
                    Variant::new(move |recipe| set_base(recipe, base))
                        .with("base", Value::Number(base))
                })
                .collect()
        },
    )
    .fits(&[Fit {
        grid: |_, right| match right.rotary.rotary {
            Some(_) => (8..=160).map(|n| 10f64.powf(f64::from(n) / 20.0)).collect(),
            None => Vec::new(),
        },
        set: |_, recipe, base| set_base(recipe, base.abs().max(1e-3)),
        number: Number::Real,
        alone: false,
        parameters: |_, _, base| Parameters::from([("base", Value::Number(base))]),
    }]),
    Convention::new(
        "rotary-scaling",
        "The rotary frequencies are scaled otherwise: {kind}.",
        "旋转位置编码的频率缩放方式不同：{kind}。",
        |_, right| {
            let Some(rotary) = right.rotary.rotary else {
                return Vec::new();
            };
            let mut others = vec![("none", 1.0, Scaling::None)];
            for factor in [2.0, 4.0, 8.0, 16.0, 32.0] {
                others.push(("linear", factor, Scaling::Linear { factor }));
                for original_length in [8192.0, 4096.0, 2048.0] {
                    let scaling = Scaling::Llama3 {
                        factor,
                        low_freq_factor: 1.0,
                        high_freq_factor: 4.0,
                        original_length,
                    };
                    others.push(("llama3", factor, scaling));
                }
            }
            others.retain(|(_, _, scaling)| *scaling != rotary.scaling);
            others
                .into_iter()
                .map(|(kind, factor, scaling)| {
                    Variant::new(move |recipe| {
                        if let Some(rotary) = &mut recipe.rotary.rotary {
                            rotary.scaling = scaling;
                        }
                    })
                    .with("kind", Value::Name(kind))
                    .with("factor", Value::Number(factor))
                })
                .collect()
        },
    )
    .fits(&[Fit {
        grid: |_, right| match right.rotary.rotary {
            Some(_) => (-8..=24)
                .map(|n| f64::from(n) / 4.0)
                .map(f64::exp2)
                .collect(),
            None => Vec::new(),
        },
        set: |_, recipe, factor| {
            if let Some(rotary) = &mut recipe.rotary.rotary {
                rotary.scaling = Scaling::Linear {
                    factor: factor.abs().max(1e-3),
                };
            }
        },
        number: Number::Real,
        alone: true,
        parameters: |_, _, factor| {
            Parameters::from([
                ("kind", Value::Name("linear")),
                ("factor", Value::Number(factor)),
            ])
        },
    }]),
    Convention::new(
        "rotary-partial",
        "The rotary embedding turns {dim} columns of each head.",
        "旋转位置编码只转动每个头的{dim}列。",
        |base, right| {
            let Some(rotary) = right.rotary.rotary else {
                return Vec::new();
            };
            let width = base.sizes.head_dim;
            let own = rotary.dim.unwrap_or(width);
            let mut dims: Vec<usize> = [width, width / 2, width / 4, width * 3 / 4]
                .into_iter()
                .filter(|dim| *dim >= 2 && dim % 2 == 0 && *dim != own)
                .collect();
            dims.dedup();
            dims.into_iter()
                .map(|dim| {
                    Variant::new(move |recipe| {
                        if let Some(rotary) = &mut recipe.rotary.rotary {
                            rotary.dim = Some(dim);
                        }
                    })
                    .with("dim", Value::Whole(dim as i64))
                })
                .collect()
        },
    ),
    Convention::new(
        "rotary-query-offset",
        "Queries are turned as if they stood {offset} places further than they do.",
        "查询的旋转位置比应有的位置多了{offset}。",
        |base, right| {
            if right.rotary.rotary.is_none() {
                return Vec::new();
            }
            let reach = 64
                .max(base.sizes.keys as i64 + base.sizes.queries as i64)
                .min(512);
            let mut offsets: Vec<i64> = (1..=reach).flat_map(|n| [n, -n]).collect();
            offsets.truncate(256);
            for end in [base.sizes.past as i64, base.sizes.keys as i64] {
                offsets.extend([end, -end].iter().filter(|n| **n != 0));
            }
            offsets
                .into_iter()
                .map(|offset| {
                    Variant::new(move |recipe| recipe.rotary.query_offset = offset)
                        .with("offset", Value::Whole(offset))
                })
                .collect()
        },
    ),
    Convention::new(
        "rotary-keys-only",
        "Only keys are turned by the rotary embedding, queries are not.",
        "旋转位置编码只作用于键，没有作用于查询。",
        |_, right| {
            only(right.rotary.rotary.is_some(), |recipe| {
                recipe.rotary.queries = false;
            })
        },
    ),
    Convention::new(
        "rotary-queries-only",
        "Only queries are turned by the rotary embedding, keys are not.",
        "旋转位置编码只作用于查询，没有作用于键。",
        |_, right| {
            only(right.rotary.rotary.is_some(), |recipe| {
                recipe.rotary.keys = false;
            })
        },
    ),
    Convention::new(
        "rotary-on-values",
        "Values are turned by the rotary embedding too.",
        "旋转位置编码也作用到了值上。",
        |_, right| {
            only(right.rotary.rotary.is_some(), |recipe| {
                recipe.rotary.values = true
            })
        },
    ),
    Convention::new(
        "qk-norm-missing",
        "Queries and keys are not normed.",
        "查询和键没有做归一化。",
        |base, _| normed(base, Norm::Missing),
    ),
    Convention::new(
        "qk-norm-order",
        "Queries and keys are normed after the rotary embedding instead of before it.",
        "查询和键的归一化放在了旋转位置编码之后，而不是之前。",
        |base, right| match right.rotary.rotary {
            Some(_) => normed(base, Norm::AfterRotary),
            None => Vec::new(),
        },
    ),
    Convention::new(
        "qk-norm-gain-missing",
        "Queries and keys are normed without the gains.",
        "查询和键归一化时没有乘增益。",
        |base, _| normed(base, Norm::WithoutGain),
    ),
    Convention::new(
        "qk-norm-gain-plus-one",
        "The gains of the norms are taken for gain − 1.",
        "归一化的增益被当成了“增益减1”的形式。",
        |base, _| normed(base, Norm::GainPlusOne),
    ),
];

fn with_rotary(right: &Recipe, change: fn(&mut Rotary)) -> Vec<Variant> {
    only(right.rotary.rotary.is_some(), move |recipe| {
        if let Some(rotary) = &mut recipe.rotary.rotary {
            change(rotary);
        }
    })
}

fn set_base(recipe: &mut Recipe, base: f64) {
    if let Some(rotary) = &mut recipe.rotary.rotary {
        rotary.base = base;
    }
}

fn normed(base: &Base<'_>, norm: Norm) -> Vec<Variant> {
    let block = base.problem.block();
    let possible = block.q_norm.is_some() || block.k_norm.is_some();
    only(possible, move |recipe| recipe.norm = norm)
}
