//! How much is tried, which no clock has to tell.

use half::bf16;
use qkv::{Attention, Block, Causal, DType, Inputs, StepName, Tensor, View, definition};
use qkv_check::{Claim, Problem, Verdict, Watch, check_with};

const LEN: usize = 9;
const D: usize = 8;

/// How many explanations are tried of outputs that are held in `bf16` and said to be of `dtype`, with
/// every other one moved by `steps` of its neighbours.
fn tried(dtype: DType, steps: u16) -> (Verdict, u64) {
    let numbers = |seed: f64| -> Vec<f64> {
        let each = (0..LEN * D).map(|n| (seed + 1.7 * n as f64).sin() + (seed * n as f64).cos());
        each.map(|x| f64::from(bf16::from_f64(x))).collect()
    };
    let [q, k, v] = [0.3, 1.1, 2.9].map(numbers);
    let attention = Attention {
        causal: Some(Causal::Square),
        ..Attention::default()
    };
    let shape = [1, 1, LEN, D];
    let view = |x| View::new(x, &shape).expect("a view");
    let inputs = Inputs::new(view(&q), view(&k), view(&v)).expect("inputs");
    let right = definition::forward(&attention, &inputs).expect("the output");
    let moved = right.output.data().iter().enumerate().map(|(at, x)| {
        let bits = bf16::from_f64(*x).to_bits();
        f64::from(bf16::from_bits(bits + if at % 2 == 0 { steps } else { 0 }))
    });
    let tensor = |x: Vec<f64>| Tensor::new(&shape, x).expect("the shape");
    let theirs = tensor(moved.collect());
    let block = Block {
        attention,
        ..Block::default()
    };
    let (q, k, v) = (tensor(q), tensor(k), tensor(v));
    let problem = Problem::Given {
        block: &block,
        q: &q,
        k: &k,
        v: &v,
        past: None,
    };
    let watch = Watch::default();
    let claim = Claim::new(StepName::Output, theirs, dtype);
    let report = check_with(&problem, &[claim], &watch).expect("a report");
    assert!(report.causes.is_empty(), "{report:?}");
    let (tried, all) = watch.progress();
    assert_eq!(tried, all);
    (report.verdict, tried)
}

#[test]
fn little_is_tried_where_the_right_answer_fits() {
    // Rounded once: nothing is to be explained.
    assert_eq!(tried(DType::Bf16, 0), (Verdict::Equal, 0));
    // Rounded at every step: simple explanations only.
    let (verdict, few) = tried(DType::Bf16, 1);
    assert_eq!(verdict, Verdict::Equal);
    assert!(few > 0);
    // The same numbers in a format that holds more, and other numbers.
    let (verdict, widened) = tried(DType::F32, 1);
    assert_eq!(verdict, Verdict::Rounding);
    let (verdict, wrong) = tried(DType::Bf16, 64);
    assert_eq!(verdict, Verdict::Different);
    assert!(
        20 * few < widened.min(wrong),
        "{few}, {widened} and {wrong}"
    );
}
