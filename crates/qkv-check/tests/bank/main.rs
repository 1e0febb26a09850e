//! A bank of faults: code written apart from the crate makes each fault, and `check` has to name it.

mod draw;
mod naive;
mod outside;
mod run;

use draw::{Random, for_fault, problem};
use naive::{Fault, attention};
use qkv::{DType, StepName};
use run::{claim, report, times};
use std::collections::BTreeMap;

/// Every fault of the table that numbers of one run can show.
const FAULTS: &[&str] = &[
    "causal-top-left",
    "causal-bottom-right",
    "causal-missing",
    "causal-strict",
    "causal-one-ahead",
    "causal-reversed",
    "mask-polarity",
    "padding-polarity",
    "padding-ignored",
    "mask-ignored",
    "mask-added-as-01",
    "mask-multiplied",
    "mask-after-softmax",
    "mask-fill-weak",
    "mask-fill-overflow",
    "empty-row",
    "masked-nan-leak",
    "scale",
    "scale-after-softmax",
    "softcap-missing",
    "softcap-after-mask",
    "softcap-unscaled",
    "softmax-over-queries",
    "softmax-over-heads",
    "softmax-joint",
    "softmax-plus-one",
    "phantom-keys",
    "groups-tiled",
    "heads-split-without-transpose",
    "heads-merged-without-transpose",
    "heads-interleaved",
    "layout-swapped",
    "batch-first",
    "keys-values-swapped",
    "qkv-fused-layout",
    "weight-transposed",
    "projection-bias-missing",
    "output-projection-missing",
    "rotary-pairing",
    "rotary-missing",
    "rotary-direction",
    "rotary-base",
    "rotary-scaling",
    "rotary-partial",
    "rotary-query-offset",
    "rotary-keys-only",
    "rotary-on-values",
    "qk-norm-missing",
    "qk-norm-order",
    "sinks-ignored",
    "sinks-scaled",
    "alibi-sign",
    "alibi-slopes",
    "alibi-alignment",
    "bias-before-scale",
    "bias-missing",
    "window-off-by-one",
    "window-ignored",
    "window-one-sided",
    "cache-offset",
    "documents-mixed",
    "heads-averaged",
    "position-extra",
    "position-missing",
    "row-shift",
    "lse-base-2",
    "fp16-overflow",
    "dropout-on",
    "dropout-unscaled",
    "dropout-missing",
    "softmax-low-precision",
    "window-undeclared",
    "alibi-undeclared",
    "rotary-undeclared",
    "sinks-undeclared",
    "qk-norm-undeclared",
];

const FORMATS: [DType; 3] = [DType::F64, DType::F32, DType::Bf16];

#[derive(Default)]
struct Tally {
    differ: usize,
    listed: usize,
    first: usize,
    swallowed: usize,
    instead: BTreeMap<String, usize>,
}

/// Which step shows a fault.
fn shown(id: &str) -> StepName {
    match id {
        "heads-averaged" | "dropout-on" | "dropout-unscaled" => StepName::Weights,
        "row-shift" => StepName::Scores,
        "lse-base-2" => StepName::Lse,
        _ => StepName::Output,
    }
}

#[test]
fn each_fault_is_named() {
    let only = std::env::var("QKV_BANK").ok();
    let mut tallies: BTreeMap<&str, Tally> = BTreeMap::new();
    for (n, &id) in FAULTS.iter().enumerate() {
        if only.as_ref().is_some_and(|only| !id.contains(only)) {
            continue;
        }
        let tally = tallies.entry(id).or_default();
        for round in 0..times(2) {
            for dtype in FORMATS {
                let mut r = Random::new((n * 1000 + round) as u64 * 3 + 7);
                let (p, fault) = for_fault(id, &mut r);
                let wrong = attention(&p, &[fault]);
                let claim = claim(shown(id), &wrong, dtype);
                let report = report(&p, &[claim]);
                if report.verdict.agrees() {
                    tally.swallowed += usize::from(dtype == DType::F64);
                    continue;
                }
                tally.differ += 1;
                let causes: Vec<String> = report.causes.iter().map(|c| c.id()).collect();
                let first = causes.first().cloned().unwrap_or("nothing".into());
                let same =
                    |group: &Vec<String>| group.contains(&first) && group.iter().any(|i| i == id);
                if causes.iter().any(|cause| cause == id) {
                    tally.listed += 1;
                } else if only.is_some() {
                    println!(
                        "{id} {fault:?} round {round} {dtype:?}: {causes:?}
 causal {:?} padding {:?} sinks {:?} bias {} cap {:?} turn {:?} window {:?}",
                        p.causal,
                        p.padding,
                        p.sinks,
                        p.bias.is_some(),
                        p.softcap,
                        p.turn,
                        p.window
                    );
                }
                if first == id || report.indistinguishable.iter().any(same) {
                    tally.first += 1;
                } else {
                    *tally.instead.entry(first).or_default() += 1;
                }
            }
        }
    }
    let (mut differ, mut listed, mut first) = (0, 0, 0);
    println!("fault: of those that differ, listed, first; hidden in f64; named first instead");
    for (id, tally) in &tallies {
        println!(
            "{id:32} {:4} {:4} {:4} {:4} {:?}",
            tally.differ, tally.listed, tally.first, tally.swallowed, tally.instead
        );
        differ += tally.differ;
        listed += tally.listed;
        first += tally.first;
    }
    println!("all: {listed} and {first} of {differ}");
    assert!(
        listed as f64 >= 0.99 * differ as f64,
        "{listed} of {differ} are listed"
    );
    assert!(
        first as f64 >= 0.95 * differ as f64,
        "{first} of {differ} come first"
    );
}

/// Two runs of the same output, and one run's output of few keys, show dropout too.
#[test]
fn dropout_shows_in_outputs() {
    let mut r = Random::new(17);
    let (mut two, mut one, mut differ) = (0, 0, 0);
    for round in 0..times(8) {
        let id = ["dropout-on", "dropout-unscaled"][round % 2];
        let (p, fault) = for_fault(id, &mut r);
        let first = attention(&p, &[fault]);
        let dtype = [DType::F64, DType::F32][round / 2 % 2];
        let claims = [claim(StepName::Output, &first, dtype)];
        let named = |found: &qkv_check::Report| {
            let first = found.causes.first().map(|cause| cause.id());
            let certain = found.indistinguishable.is_empty();
            assert!(
                first.as_ref().is_none_or(|first| first == id) || !certain,
                "{id}: {found:?}"
            );
            usize::from(first.is_some())
        };
        one += named(&report(&p, &claims));
        // Another run drops others: as if the batch entries came in another order.
        let mut other = p.clone();
        for (x, of) in [
            (&mut other.q, p.h * p.lq * p.dk),
            (&mut other.k, p.g * p.lk * p.dk),
            (&mut other.v, p.g * p.lk * p.dv),
        ] {
            x.rotate_left(of);
        }
        if p.keep.is_some() || p.lengths.is_some() {
            continue;
        }
        let mut second = attention(&other, &[fault]);
        second.output.rotate_right(p.h * p.lq * p.dv);
        let again = claim(StepName::Output, &second, dtype);
        differ += 1;
        two += named(&report(&p, &[claims[0].clone(), again]));
    }
    println!("dropout: {two} of {differ} from two runs, {one} from one");
    assert!(two == differ && one > 0, "{two} of {differ}; {one}");
}

#[test]
fn pairs_are_found() {
    let mut r = Random::new(99);
    let (mut differ, mut found) = (0, 0);
    let mut missed: BTreeMap<String, usize> = BTreeMap::new();
    for round in 0..times(30) {
        let a = FAULTS[r.below(FAULTS.len())];
        let (p, fault) = for_fault(a, &mut r);
        let b = r.pick(&[
            "scale",
            "softmax-plus-one",
            "groups-tiled",
            "causal-missing",
            "bias-missing",
            "sinks-ignored",
            "mask-ignored",
            "softcap-missing",
            "rotary-missing",
            "padding-ignored",
        ]);
        let possible = match b {
            "groups-tiled" => p.h > p.g && p.g > 1,
            "causal-missing" => p.causal.is_some(),
            "bias-missing" => p.bias.is_some(),
            "sinks-ignored" => p.sinks.is_some(),
            "mask-ignored" => p.keep.is_some(),
            "softcap-missing" => p.softcap.is_some(),
            "rotary-missing" => p.turn.is_some(),
            "padding-ignored" => p.lengths.is_some(),
            _ => true,
        };
        let alone = [
            "layout-swapped",
            "batch-first",
            "fp16-overflow",
            "row-shift",
            "lse-base-2",
            "heads-averaged",
            "dropout-on",
            "dropout-unscaled",
            "dropout-missing",
            "softmax-low-precision",
        ];
        if !possible
            || a == b
            || (a, b) == ("softcap-after-mask", "softcap-missing")
            || alone.contains(&a)
        {
            continue;
        }
        let other: Fault = (
            b,
            1.0 * (p.dk as f64).sqrt() * p.scale.map_or(1.0, |s| 1.0 / (s * (p.dk as f64).sqrt())),
        );
        let dtype = FORMATS[round % 3];
        let [one, two, both] =
            [vec![fault], vec![other], vec![fault, other]].map(|f| attention(&p, &f));
        // Both have to matter.
        let apart = |x: &[f64], y: &[f64]| {
            x.len() != y.len()
                || x.iter()
                    .zip(y)
                    .any(|(x, y)| (x - y).abs() > 1e-2 || x.is_nan() != y.is_nan())
        };
        if !apart(&one.output, &both.output) || !apart(&two.output, &both.output) {
            continue;
        }
        let report = report(&p, &[claim(StepName::Output, &both, dtype)]);
        if report.verdict.agrees() {
            continue;
        }
        differ += 1;
        let named = report
            .causes
            .iter()
            .any(|cause| cause.ids.len() == 2 && cause.ids.contains(&a) && cause.ids.contains(&b));
        if named || !report.causes.is_empty() && report.causes[0].ids.len() == 1 {
            found += 1;
        } else {
            let ids: Vec<String> = report.causes.iter().map(|c| c.id()).collect();
            *missed
                .entry(format!("{a}+{b} {dtype:?}: {ids:?}"))
                .or_default() += 1;
        }
    }
    println!("pairs: {found} of {differ}; missed {missed:#?}");
    assert!(found as f64 >= 0.9 * differ as f64, "{found} of {differ}");
}

/// Three at once, of those that each leave much of the right answer.
#[test]
fn many_triples_are_found() {
    let mut r = Random::new(7);
    let (mut differ, mut found) = (0, 0);
    for round in 0..times(6) {
        let a = r.pick(&[
            "causal-missing",
            "sinks-ignored",
            "bias-missing",
            "window-off-by-one",
            "rotary-pairing",
            "alibi-sign",
        ]);
        let (p, fault) = for_fault(a, &mut r);
        let right = p.scale.unwrap_or(1.0 / (p.dk as f64).sqrt());
        let two: Fault = match p.h > p.g && p.g > 1 && round % 2 == 0 {
            true => ("groups-tiled", 0.0),
            false => ("softmax-plus-one", 0.0),
        };
        let faults = [fault, two, ("scale", 1.0 / (p.dk as f64 * right))];
        let outputs: Vec<Vec<f64>> = (0..4)
            .map(|left_out| {
                let some = (0..3).filter(|n| *n != left_out).map(|n| faults[n]);
                attention(&p, &some.collect::<Vec<_>>()).output
            })
            .collect();
        let all = attention(&p, &faults);
        let same = |x: &[f64]| x.iter().zip(&all.output).all(|(x, y)| (x - y).abs() < 1e-2);
        if outputs[..3].iter().any(|x| same(x)) {
            continue;
        }
        let dtype = [DType::F64, DType::F32][round % 2];
        let report = report(&p, &[claim(StepName::Output, &all, dtype)]);
        differ += 1;
        let named = |cause: &qkv_check::Cause| faults.iter().all(|f| cause.ids.contains(&f.0));
        found += usize::from(report.causes.iter().any(named));
    }
    println!("triples: {found} of {differ}");
    assert!(2 * found >= differ, "{found} of {differ}");
}

#[test]
fn right_answers_have_no_cause() {
    let mut r = Random::new(5);
    for round in 0..times(60) {
        let p = problem(&mut r);
        let right = attention(&p, &[]);
        for dtype in [DType::F64, DType::F32, DType::F16, DType::Bf16] {
            let report = report(&p, &[claim(StepName::Output, &right, dtype)]);
            assert!(
                report.causes.is_empty() && report.verdict.agrees(),
                "round {round} {dtype:?}: {report:?}\n{p:?}"
            );
        }
    }
}

#[test]
fn faults_outside_the_table_have_no_cause() {
    let mut r = Random::new(31);
    let mut named: BTreeMap<String, usize> = BTreeMap::new();
    let mut differ = 0;
    for round in 0..times(24) {
        let p = problem(&mut r);
        let kind = round % outside::KINDS;
        let wrong = naive::Out {
            output: outside::output(kind, &p, &mut r),
            output_shape: vec![p.b, p.h, p.lq, p.dv],
            ..naive::Out::default()
        };
        let claim = claim(
            StepName::Output,
            &wrong,
            FORMATS[round / outside::KINDS % 3],
        );
        let report = report(&p, &[claim]);
        differ += usize::from(!report.verdict.agrees());
        let right = attention(&p, &[]).output;
        let shifted = outside::shifts_rows(&wrong.output, &right, p.dv);
        let cause = report.causes.first();
        if let Some(cause) = cause.filter(|cause| !shifted || cause.id() != "row-shift") {
            *named.entry(format!("{kind}: {}", cause.id())).or_default() += 1;
        }
    }
    println!("outside the table: {differ} differ; named {named:?}");
    assert!(named.is_empty(), "{named:?}");
}

/// A value is changed by one number in all its columns. Where its rows see other keys too, they move by
/// as much as it weighs; where they see only it, by that number: then each row is shifted, and nothing
/// else is the matter. In half precision few numbers beside a shift of each row tell nothing.
#[test]
fn rows_that_see_only_a_changed_value_are_shifted() {
    let mut r = Random::new(8);
    for round in 0..times(3) {
        let mut p = problem(&mut r);
        (p.docs, p.window, p.causal, p.keep) = (None, None, None, None);
        (p.past, p.sinks, p.turn) = (0, None, None);
        let (dv, row) = (p.dv, p.lk);
        for (length, dtype, expected) in [
            (1, DType::F64, &["row-shift"][..]),
            (1, DType::F32, &["row-shift"]),
            (1, DType::Bf16, &["row-shift"]),
            (row - 1, DType::F64, &[]),
        ] {
            let mut lengths = vec![row; p.b];
            lengths[0] = length;
            p.lengths = Some(lengths);
            p.bias = None;
            draw::fill(&mut p, &mut r);
            let right = attention(&p, &[]).output;
            let wrong = naive::Out {
                output: outside::output(8, &p, &mut r),
                output_shape: vec![p.b, p.h, p.lq, dv],
                ..naive::Out::default()
            };
            assert_eq!(outside::shifts_rows(&wrong.output, &right, dv), length == 1);
            let report = report(&p, &[claim(StepName::Output, &wrong, dtype)]);
            let causes: Vec<String> = report.causes.iter().map(|cause| cause.id()).collect();
            let too_few = dtype == DType::Bf16 && causes.is_empty();
            assert!(
                causes == expected || too_few,
                "round {round}, {length} keys, {dtype:?}: {causes:?}"
            );
        }
    }
}
