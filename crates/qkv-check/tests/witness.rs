//! Every convention of the table has an input that tells it from its neighbours; explanations that one
//! input cannot separate are told apart by another.

use qkv::{Attention, Block, Causal, DType, StepName, Tensor, Window};
use qkv_check::{Cause, Claim, Problem, Report, check, conventions, tell_apart, witness};

/// Conventions that have no recipe of their own: they are told from the numbers.
const FROM_NUMBERS: &[&str] = &[
    "dropout-on",
    "row-shift",
    "row-divided-by-d",
    "row-not-divided",
    "row-multiplied",
    "row-not-normalised",
    "exp-off",
];

#[test]
fn every_convention_has_an_input_that_tells_it_from_its_neighbours() {
    let mut missing = Vec::new();
    for convention in conventions::table() {
        let id = convention.id;
        let Some(witness) = witness(id) else {
            if !FROM_NUMBERS.contains(&id) {
                missing.push(format!("{id}: no witness"));
            }
            continue;
        };
        assert!(!FROM_NUMBERS.contains(&id), "{id} has one after all");
        let mut seen = Vec::new();
        let told = witness.gives.iter().any(|theirs| {
            let claim = Claim::new(witness.step, theirs.clone(), DType::F64);
            let report = witness.scene.with(|problem| check(problem, &[claim]));
            let report = report.expect("a view").expect("a report");
            let causes: Vec<String> = report.causes.iter().map(Cause::id).collect();
            let alone = causes.first().is_some_and(|first| first == id)
                && !report
                    .indistinguishable
                    .iter()
                    .any(|group| group.contains(&causes[0]));
            seen.push(format!("{causes:?} {:?}", report.indistinguishable));
            alone
        });
        if !told {
            missing.push(format!("{id}: {seen:#?}"));
        }
        // The right numbers are right.
        let claim = Claim::new(witness.step, witness.right, DType::F64);
        let report = witness.scene.with(|problem| check(problem, &[claim]));
        let report = report.expect("a view").expect("a report");
        assert!(
            report.verdict.agrees() || report.lint[0].id == "reference-nan",
            "{id}: {report:?}"
        );
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

fn tensor(shape: &[usize], values: impl IntoIterator<Item = f64>) -> Tensor<f64> {
    Tensor::new(shape, values.into_iter().collect()).expect("the shape")
}

/// What was found for these numbers, and the input that separates it.
fn separated(problem: &Problem<'_>, output: &Tensor<f64>) -> (Report, Option<qkv_check::Apart>) {
    let claims = [Claim::new(StepName::Output, output.clone(), DType::F64)];
    let report = check(problem, &claims).expect("a report");
    let apart = tell_apart(problem, &claims, &report);
    (report, apart)
}

/// Each explanation's numbers for the new input have that explanation, and none of the others.
fn each_is_named(apart: &qkv_check::Apart) {
    for (cause, steps) in &apart.each {
        let claims: Vec<Claim> = steps
            .iter()
            .map(|(step, values)| Claim::new(*step, values.clone(), DType::F64))
            .collect();
        let report = apart.scene.with(|problem| check(problem, &claims));
        let report = report.expect("a view").expect("a report");
        let named = |cause: &Cause| {
            let same = |c: &&Cause| c.ids == cause.ids && c.parameters == cause.parameters;
            report.causes.iter().find(same).is_some()
        };
        // Of a number, such as an offset, only those that are likely for the new lengths are tried.
        assert!(
            named(cause) || report.causes.is_empty(),
            "{cause:?}: {report:?}"
        );
        for (other, _) in apart.each.iter().filter(|(other, _)| other != cause) {
            assert!(!named(other), "{cause:?} and {other:?}: {report:?}");
        }
    }
}

#[test]
fn an_alignment_is_told_from_an_offset() {
    let causal = Some(Causal::BottomRight);
    let attention = Attention {
        causal,
        ..Attention::default()
    };
    let block = Block {
        attention,
        ..Block::default()
    };
    let (q, k) = (
        tensor(&[1, 1, 2, 1], [0.0; 2]),
        tensor(&[1, 1, 5, 1], [0.0; 5]),
    );
    let v = tensor(&[1, 1, 5, 1], [1.0, 2.0, 3.0, 4.0, 5.0]);
    let problem = Problem::Given {
        block: &block,
        q: &q,
        k: &k,
        v: &v,
        past: None,
    };
    let (report, apart) = separated(&problem, &tensor(&[2, 1], [1.0, 1.5]));
    assert_eq!(
        report.indistinguishable,
        [["causal-top-left", "cache-offset"]]
    );
    let apart = apart.expect("an input");
    assert!(apart.together.is_empty(), "{:?}", apart.together);
    each_is_named(&apart);
}

#[test]
fn a_window_is_told_from_none() {
    // Two keys back of three tokens: the window drops nothing but the first key of the last query.
    let attention = Attention {
        causal: Some(Causal::Square),
        window: Some(Window {
            back: Some(1),
            forward: None,
        }),
        ..Attention::default()
    };
    let block = Block {
        attention,
        ..Block::default()
    };
    let q = tensor(&[1, 1, 3, 1], [0.0; 3]);
    let v = tensor(&[1, 1, 3, 1], [1.0, 2.0, 6.0]);
    let problem = Problem::Given {
        block: &block,
        q: &q,
        k: &q,
        v: &v,
        past: None,
    };
    let (report, apart) = separated(&problem, &tensor(&[3, 1], [1.0, 1.5, 3.0]));
    let groups = &report.indistinguishable;
    assert!(
        groups[0].contains(&"window-off-by-one".into()),
        "{report:?}"
    );
    let apart = apart.expect("an input");
    assert!(apart.together.is_empty(), "{:?}", apart.together);
    each_is_named(&apart);
}

#[test]
fn what_no_data_can_separate_has_no_input() {
    // One key: nothing to tell. A score of −1e-12 is one of 0 but for rounding.
    let drop = [false, false, true];
    let view = qkv::View::new(&drop, &[1, 3]).expect("a view");
    let mut attention = Attention::default();
    attention.masks.push(qkv::Mask::drop(view));
    let block = Block {
        attention,
        ..Block::default()
    };
    let q = tensor(&[1, 1, 1, 1], [1.0]);
    let k = tensor(&[1, 1, 3, 1], [2.0, 1.0, 3.0]);
    let v = tensor(&[1, 1, 3, 1], [1.0, 10.0, 100.0]);
    let problem = Problem::Given {
        block: &block,
        q: &q,
        k: &k,
        v: &v,
        past: None,
    };
    let claims = [Claim {
        half_unit: 5e-7,
        ..Claim::new(
            StepName::Weights,
            tensor(&[3], [0.665241, 0.244728, 0.090031]),
            DType::F64,
        )
    }];
    let report = check(&problem, &claims).expect("a report");
    assert_eq!(
        report.indistinguishable,
        [["mask-multiplied", "mask-fill-weak"]]
    );
    let apart = tell_apart(&problem, &claims, &report);
    // Only double precision tells them.
    assert!(apart.is_none_or(|apart| apart.together.len() <= 1));
}
