//! Problems whose numbers are kind to a pencil, drawn from a seed.
//!
//! Two or three tokens, small numbers, a d_k whose root is whole (1 or 4), and few different
//! differences of scores, so that few values of exp are needed. The numbers come from stream 4 of
//! [`crate::draw`], in the order of the code below; `below(n)` is `next() % n`. What is drawn is
//! kept if [`is_kind`] says so, else drawn again.

use crate::args::ExplainArgs;
use crate::draw::SplitMix64;
use std::collections::BTreeSet;

/// The stream of an exercise.
const STREAM: usize = 4;
/// Different values of exp in a head, besides exp(0) = 1.
const MOST_EXPS: usize = 3;
/// The largest difference of scaled scores in a row: exp(−3) ≈ 0.05.
const WIDEST: i64 = 3;

/// Sizes and mask.
struct Shape {
    queries: usize,
    keys: usize,
    dk: usize,
    dv: usize,
    causal: bool,
}

type Rows = Vec<Vec<i64>>;

/// Puts a problem into the arrays; says whether it added a causal mask.
pub fn fill(args: &mut ExplainArgs) -> bool {
    let source = &mut SplitMix64::stream(args.attention.seed(), STREAM);
    let heads = args.inputs.heads.unwrap_or(1);
    let kv_heads = args.inputs.kv_heads.unwrap_or(heads);
    let shape = shape(source, args);
    let [mut q, mut k, mut v] = [vec![], vec![], vec![]];
    for _ in 0..kv_heads {
        let group = group(source, &shape, (heads / kv_heads).max(1));
        q.extend(group.queries);
        k.push(group.keys);
        v.push(group.values);
    }
    let inputs = &mut args.inputs;
    inputs.q = Some(literal(&q, 1));
    inputs.k = Some(literal(&k, 1));
    inputs.v = Some(literal(&v, 2));
    if shape.causal {
        args.attention.causal = Some(qkv::Causal::Square);
    }
    shape.causal
}

fn shape(source: &mut SplitMix64, args: &ExplainArgs) -> Shape {
    let attention = &args.attention;
    let masked = attention.causal.is_some()
        || attention.window.is_some()
        || attention.documents.is_some()
        || attention.kv_lengths.is_some();
    let (queries, keys, causal) = match source.below(8) {
        0..4 => (2, 2, false),
        4 => (2, 2, true),
        5 => (3, 3, true),
        _ => (2, 3, false),
    };
    // The mask that was asked for takes the place of the drawn one.
    let (queries, causal) = match masked {
        true => (keys, false),
        false => (queries, causal),
    };
    // One column has too few numbers for three queries that all see three keys, and no pair for a
    // rotation to turn.
    let wide = queries == 3 && !causal || args.position.position.is_some();
    let narrow = source.below(4) == 0 && !wide;
    Shape {
        queries,
        keys,
        dk: if narrow { 1 } else { 4 },
        dv: 1 + source.below(2),
        causal,
    }
}

/// Keys and values, and the heads of queries that share them.
struct Group {
    queries: Vec<Rows>,
    keys: Rows,
    /// In halves.
    values: Rows,
}

fn group(source: &mut SplitMix64, shape: &Shape, heads: usize) -> Group {
    const TRIES: usize = 64;
    loop {
        let keys = rows(shape.keys, shape.dk, || small(source, shape.dk));
        let values = rows(shape.keys, shape.dv, || {
            let whole = source.below(9) as i64 - 2;
            2 * whole + i64::from(source.below(4) == 0)
        });
        if !all_differ(&keys) || !all_differ(&values) {
            continue;
        }
        let mut queries = Vec::new();
        for _ in 0..TRIES * heads {
            let drawn = rows(shape.queries, shape.dk, || small(source, shape.dk));
            if is_kind(&drawn, &keys, shape.causal) {
                queries.push(drawn);
            }
            if queries.len() == heads {
                return Group {
                    queries,
                    keys,
                    values,
                };
            }
        }
    }
}

/// −1 to 2; −2 to 3 where a row has but one.
fn small(source: &mut SplitMix64, dk: usize) -> i64 {
    match dk {
        1 => source.below(6) as i64 - 2,
        _ => source.below(4) as i64 - 1,
    }
}

/// Whether every query differs and prefers some key, no two rows of weights are the same, and the
/// scores need few values of exp, none of them tiny.
fn is_kind(queries: &Rows, keys: &Rows, causal: bool) -> bool {
    let root = if queries[0].len() == 4 { 2 } else { 1 };
    let below_best: Vec<Vec<i64>> = queries
        .iter()
        .enumerate()
        .map(|(i, query)| {
            let seen = if causal { i + 1 } else { keys.len() };
            let scores: Vec<i64> = keys[..seen].iter().map(|key| dot(query, key)).collect();
            let best = scores.iter().copied().max().unwrap_or(0);
            scores.iter().map(|score| best - score).collect()
        })
        .collect();
    let steps: BTreeSet<i64> = below_best
        .iter()
        .flatten()
        .copied()
        .filter(|d| *d > 0)
        .collect();
    let undecided = |row: &Vec<i64>| row.len() > 1 && row.iter().all(|d| *d == 0);
    all_differ(queries)
        && all_differ(&below_best)
        && !queries.iter().any(|query| query.iter().all(|x| *x == 0))
        && !below_best.iter().any(undecided)
        && steps.len() <= MOST_EXPS
        && steps.iter().all(|d| *d <= root * WIDEST)
}

fn dot(a: &[i64], b: &[i64]) -> i64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn rows(rows: usize, columns: usize, mut number: impl FnMut() -> i64) -> Rows {
    (0..rows)
        .map(|_| (0..columns).map(|_| number()).collect())
        .collect()
}

fn all_differ(rows: &Rows) -> bool {
    rows.iter()
        .enumerate()
        .all(|(i, row)| !rows[..i].contains(row))
}

/// The heads side by side, their numbers divided by 1 or 2.
fn literal(heads: &[Rows], divisor: i64) -> String {
    let tokens = heads.first().map_or(0, Vec::len);
    let row = |t: usize| {
        let numbers = heads.iter().flat_map(|head| &head[t]);
        let numbers: Vec<String> = numbers
            .map(|number| (*number as f64 / divisor as f64).to_string())
            .collect();
        numbers.join(" ")
    };
    let rows: Vec<String> = (0..tokens).map(row).collect();
    rows.join("; ")
}

#[cfg(test)]
#[allow(clippy::panic)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser;
    use qkv::{Attention, Block, Causal, Inputs, StepName, Steps, View};
    use std::collections::HashSet;

    /// A drawn problem.
    struct Drawn {
        arrays: [qkv_io::Array; 3],
        causal: bool,
    }

    fn draw(seed: u64, line: &str) -> Drawn {
        let words = format!("qkv explain --exercise random --seed {seed} {line}");
        let cli = Cli::try_parse_from(words.split_whitespace()).expect("a command");
        let Command::Explain(mut args) = cli.command else {
            panic!("another command");
        };
        let causal = fill(&mut args);
        assert_eq!(causal, args.attention.causal.is_some());
        let array = |text: &Option<String>| {
            qkv_io::parse_literal(text.as_deref().expect("an array")).expect("a literal")
        };
        let inputs = &args.inputs;
        Drawn {
            arrays: [&inputs.q, &inputs.k, &inputs.v].map(array),
            causal,
        }
    }

    fn steps(drawn: &Drawn) -> Steps {
        let numbers = drawn
            .arrays
            .each_ref()
            .map(|array| array.to_f64().expect("numbers"));
        let view = |n: usize| View::new(&numbers[n], &drawn.arrays[n].shape).expect("a view");
        let inputs = Inputs::new(view(0), view(1), view(2)).expect("shapes that fit");
        let block = Block {
            attention: Attention {
                causal: drawn.causal.then_some(Causal::Square),
                ..Attention::default()
            },
            ..Block::default()
        };
        block.steps(&inputs).expect("steps")
    }

    fn rows(steps: &Steps, name: StepName) -> Vec<Vec<f64>> {
        let step = steps.get(name).expect("the step");
        let rows = step.shape()[2];
        (0..rows).map(|i| step.row(&[0, 0, i]).to_vec()).collect()
    }

    fn differ(rows: &[Vec<f64>]) -> bool {
        rows.iter().enumerate().all(|(i, row)| {
            let same = |other: &Vec<f64>| other.iter().zip(row).all(|(a, b)| (a - b).abs() < 1e-3);
            !rows[..i].iter().any(same)
        })
    }

    #[test]
    fn five_hundred_problems_are_kind_and_never_degenerate() {
        let (mut problems, mut kinds, mut causal) = (HashSet::new(), HashSet::new(), 0);
        for seed in 0..500 {
            let drawn = draw(seed, "");
            let steps = steps(&drawn);
            let (weights, exps) = (rows(&steps, StepName::Weights), rows(&steps, StepName::Exp));
            let [queries, dk] = drawn.arrays[0].shape[..] else {
                panic!("two axes");
            };
            let [keys, dv] = drawn.arrays[2].shape[..] else {
                panic!("two axes");
            };
            assert!(
                (2..=3).contains(&queries) && (2..=3).contains(&keys),
                "{seed}"
            );
            assert!([1, 4].contains(&dk) && (1..=2).contains(&dv), "{seed}");
            // Small whole numbers, halves in V only.
            for (n, array) in drawn.arrays.iter().enumerate() {
                let of_one = [1.0, 1.0, 2.0][n];
                for number in array.to_f64().expect("numbers") {
                    assert!(
                        (of_one * number).fract() == 0.0 && number.abs() <= 6.5,
                        "{seed}"
                    );
                }
            }
            // Scaled scores in halves, few exps, all of them in the table of the sheet.
            let scaled = rows(&steps, StepName::Scaled).concat();
            assert!(scaled.iter().all(|s| (2.0 * s).fract() == 0.0), "{seed}");
            let kept = exps.concat().into_iter().filter(|e| *e > 0.0 && *e < 1.0);
            let kept: Vec<f64> = kept.collect();
            assert!(kept.iter().all(|e| *e > 0.049), "{seed}");
            let different: HashSet<u64> = kept.iter().map(|e| e.to_bits()).collect();
            assert!((1..=MOST_EXPS).contains(&different.len()), "{seed}");
            // Every query prefers a key, no two rows are the same.
            for row in &weights {
                let seen: Vec<f64> = row.iter().copied().filter(|w| *w > 0.0).collect();
                let equal = seen.iter().all(|w| (w - seen[0]).abs() < 1e-9);
                assert!(seen.len() == 1 || !equal, "{seed}: {row:?}");
            }
            assert!(differ(&weights), "{seed}: {weights:?}");
            let output = rows(&steps, StepName::Output);
            assert!(differ(&output), "{seed}: {output:?}");
            causal += usize::from(drawn.causal);
            kinds.insert((queries, keys, dk, dv, drawn.causal));
            problems.insert(drawn.arrays.map(|array| format!("{:?}", array.values)));
        }
        assert!(
            problems.len() > 480,
            "{} different problems",
            problems.len()
        );
        assert!((80..200).contains(&causal), "{causal} of 500 are causal");
        // Four pairs of lengths and mask, two d_k, two d_v.
        assert_eq!(kinds.len(), 16);
    }

    #[test]
    fn heads_and_masks_that_were_asked_for() {
        for seed in 0..100 {
            let drawn = draw(seed, "--heads 4 --kv-heads 2");
            let [q, k, v] = drawn.arrays.each_ref().map(|array| array.shape.clone());
            assert_eq!((q[1], k[0]), (2 * k[1], v[0]), "{seed}");
            assert!(q[1] % 4 == 0 && v[1] % 2 == 0, "{seed}");
            let drawn = draw(seed, "--window 1,0");
            assert!(!drawn.causal, "{seed}");
            assert_eq!(drawn.arrays[0].shape[0], drawn.arrays[1].shape[0], "{seed}");
            // A pair of columns is there to be turned.
            let drawn = draw(seed, "--position rotary");
            assert_eq!(drawn.arrays[0].shape[1], 4, "{seed}");
        }
    }

    #[test]
    fn a_seed_gives_this_problem_on_every_machine() {
        let text = |seed| {
            let arrays = draw(seed, "").arrays;
            arrays.map(|array| array.to_f64().expect("numbers"))
        };
        assert_eq!(
            text(7),
            [
                vec![2.0, 0.0, 0.0, 2.0, 1.0, 1.0, 1.0, 0.0],
                vec![2.0, 0.0, -1.0, 0.0, 2.0, 2.0, -1.0, 2.0],
                vec![6.0, 2.5, 5.0, 3.0],
            ]
        );
    }
}
