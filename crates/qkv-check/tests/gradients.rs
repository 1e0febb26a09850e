//! Gradients of a bias and of sinks, worked out here in loops of their own, right and wrong; and how far
//! rounding goes.

use qkv::{
    Attention, Bias, Block, Causal, DType, GradientName, Inputs, Scale, Sinks, Tensor, View,
};
use qkv_check::dumps::Report;
use qkv_check::gradients::{Error, GradientClaim, check};
use qkv_check::{Problem, Verdict};

const B: usize = 2;
const H: usize = 2;
const I: usize = 3;
const J: usize = 4;
const D: usize = 5;
const SCALE: f64 = 0.3;
const CAP: f64 = 1.5;
const SINKS: [f64; H] = [0.4, -0.8];

/// Numbers that look random.
fn numbers(count: usize, seed: f64) -> Vec<f64> {
    let each = (0..count).map(|n| (seed + 1.7 * n as f64).sin() + (seed * n as f64).cos());
    each.collect()
}

/// What may go wrong.
#[derive(Clone, Copy)]
struct Way {
    scaled: bool,
    capped: bool,
    /// Which batch entries count for the bias, and what their sum is multiplied by.
    batch: Option<usize>,
    share: f64,
    sinks: f64,
    sign: f64,
    with_sinks: bool,
}

const RIGHT: Way = Way {
    scaled: false,
    capped: false,
    batch: None,
    share: 1.0,
    sinks: 1.0,
    sign: 1.0,
    with_sinks: true,
};

struct Run {
    q: Vec<f64>,
    k: Vec<f64>,
    v: Vec<f64>,
    grad: Vec<f64>,
    bias: Vec<f64>,
    /// The bias has a row for each query, or one for all.
    rows: usize,
}

impl Run {
    fn new(rows: usize) -> Run {
        let mut bias = numbers(H * rows * J, 0.9);
        bias[1] = f64::NEG_INFINITY;
        Run {
            q: numbers(B * H * I * D, 0.3),
            k: numbers(B * H * J * D, 1.1),
            v: numbers(B * H * J * D, 2.9),
            grad: numbers(B * H * I * D, 4.2),
            bias,
            rows,
        }
    }

    /// d(bias), `[1, H, rows, J]`, and d(sinks), `[H]`.
    fn gradients(&self, way: Way) -> [Vec<f64>; 2] {
        let (mut of_bias, mut of_sinks) = (vec![0.0; self.bias.len()], vec![0.0; H]);
        let dot = |a: &[f64], b: &[f64]| -> f64 { a.iter().zip(b).map(|(a, b)| a * b).sum() };
        for at in 0..B * H * I {
            let (b, h, i) = (at / (H * I), at / I % H, at % I);
            let place = |j: usize| (h * self.rows + i % self.rows) * J + j;
            let row = |of: &[f64], at: usize| of[at * D..][..D].to_vec();
            let (q, g) = (row(&self.q, at), row(&self.grad, at));
            let key = |j: usize| (b * H + h) * J + j;
            let scaled: Vec<f64> = (0..J)
                .map(|j| SCALE * dot(&q, &row(&self.k, key(j))))
                .collect();
            let exps: Vec<f64> = (0..J)
                .map(|j| (CAP * (scaled[j] / CAP).tanh() + self.bias[place(j)]).exp())
                .collect();
            let sink = if way.with_sinks { SINKS[h].exp() } else { 0.0 };
            let sum = exps.iter().sum::<f64>() + sink;
            let dp: Vec<f64> = (0..J).map(|j| dot(&g, &row(&self.v, key(j)))).collect();
            let delta = dot(&exps, &dp) / sum;
            of_sinks[h] -= way.sign * way.sinks * sink / sum * delta;
            for j in 0..J {
                let mut ds = exps[j] / sum * (dp[j] - delta);
                if way.scaled {
                    ds *= SCALE;
                }
                if way.capped {
                    ds *= 1.0 - (scaled[j] / CAP).tanh().powi(2);
                }
                if way.batch.is_none_or(|only| only == b) {
                    of_bias[place(j)] += way.sign * way.share * ds;
                }
            }
        }
        [of_bias, of_sinks]
    }

    /// What is found about them.
    fn checked(&self, [bias, sinks]: [Vec<f64>; 2], options: [bool; 2]) -> Result<Report, Error> {
        let tensor =
            |shape: &[usize], data: &[f64]| Tensor::new(shape, data.to_vec()).expect("the shape");
        let shape = [1, H, self.rows, J];
        let view = View::new(&self.bias, &shape).expect("a view");
        let attention = Attention {
            scale: Scale::Factor(SCALE),
            softcap: Some(CAP),
            bias: options[0].then_some(Bias(view.into())),
            sinks: options[1].then(|| Sinks(SINKS.to_vec())),
            ..Attention::default()
        };
        let block = Block {
            attention,
            ..Block::default()
        };
        let problem = Problem::Given {
            block: &block,
            q: &tensor(&[B, H, I, D], &self.q),
            k: &tensor(&[B, H, J, D], &self.k),
            v: &tensor(&[B, H, J, D], &self.v),
            past: None,
        };
        let claim = |name, values| GradientClaim {
            name,
            values,
            dtype: DType::F64,
            half_unit: 0.0,
        };
        let claims = [
            claim(GradientName::GradBias, tensor(&shape[1..], &bias)),
            claim(GradientName::GradSinks, tensor(&[H], &sinks)),
        ];
        check(&problem, &tensor(&[B, H, I, D], &self.grad), &claims)
    }
}

fn found(run: &Run, way: Way) -> Report {
    let report = run.checked(run.gradients(way), [true, true]);
    report.map_err(|_| "it fits").expect("a report")
}

#[test]
fn right_gradients_of_a_bias_and_of_sinks_are_equal() {
    for rows in [1, I] {
        let report = found(&Run::new(rows), RIGHT);
        assert_eq!(report.verdict, Verdict::Equal, "{report:?}");
        assert_eq!(report.equal, ["grad_sinks", "grad_bias"]);
    }
}

#[test]
fn each_mistake_of_them_is_named() {
    let bias = "grad_bias";
    let share = |run: &Run| 1.0 / (B * I / run.rows) as f64;
    for rows in [1, I] {
        let run = Run::new(rows);
        let ways = [
            (
                "grad-bias-scaled",
                Way {
                    scaled: true,
                    ..RIGHT
                },
                bias,
            ),
            (
                "grad-bias-capped",
                Way {
                    capped: true,
                    ..RIGHT
                },
                bias,
            ),
            (
                "grad-bias-not-summed",
                Way {
                    batch: Some(0),
                    ..RIGHT
                },
                bias,
            ),
            (
                "grad-bias-not-summed",
                Way {
                    batch: Some(B - 1),
                    ..RIGHT
                },
                bias,
            ),
            (
                "grad-bias-averaged",
                Way {
                    share: share(&run),
                    ..RIGHT
                },
                bias,
            ),
            (
                "grad-sinks-sign",
                Way {
                    sinks: -1.0,
                    ..RIGHT
                },
                "grad_sinks",
            ),
            (
                "grad-sign",
                Way {
                    sign: -1.0,
                    ..RIGHT
                },
                "grad_sinks",
            ),
            (
                "sinks-ignored",
                Way {
                    with_sinks: false,
                    ..RIGHT
                },
                "grad_sinks",
            ),
        ];
        for (id, way, first) in ways {
            let report = found(&run, way);
            assert_eq!(report.verdict, Verdict::Different, "{id}");
            let causes: Vec<String> = report.causes.iter().map(|cause| cause.id()).collect();
            assert_eq!(causes, [id], "{rows} rows");
            let step = report.first_difference.and_then(|first| first.step);
            assert_eq!(step, Some(first), "{id}");
        }
    }
}

#[test]
fn gradients_of_what_there_is_not_are_refused() {
    let run = Run::new(1);
    let right = || run.gradients(RIGHT);
    let bias = run.checked(right(), [false, true]);
    assert!(matches!(bias, Err(Error::Missing(GradientName::GradBias))));
    let sinks = run.checked(right(), [true, false]);
    assert!(matches!(
        sinks,
        Err(Error::Missing(GradientName::GradSinks))
    ));
}

/// What is found about f32 gradients of 32 queries and keys of width 64, times `factor(name, at)`.
fn of_many(name: GradientName, factor: impl Fn(usize) -> f64) -> Report {
    const SHAPE: [usize; 4] = [1, 1, 32, 64];
    let single = |seed| -> Vec<f64> {
        let each = numbers(32 * 64, seed).into_iter();
        each.map(|x| f64::from(x as f32)).collect()
    };
    let tensor = |data: Vec<f64>| Tensor::new(&SHAPE, data).expect("the shape");
    let (q, k, v) = (
        tensor(single(0.3)),
        tensor(single(1.1)),
        tensor(single(2.9)),
    );
    let grad = tensor(single(4.2));
    let block = Block {
        attention: Attention {
            causal: Some(Causal::Square),
            ..Attention::default()
        },
        ..Block::default()
    };
    let inputs = Inputs::new(
        View::new(q.data(), &SHAPE).expect("a view"),
        View::new(k.data(), &SHAPE).expect("a view"),
        View::new(v.data(), &SHAPE).expect("a view"),
    )
    .expect("inputs that fit");
    let steps = block.steps(&inputs).expect("steps");
    let right = block.gradients(&steps, 0, &grad).expect("gradients");
    let right = right.get(name).expect("one of each");
    let theirs = right.data().iter().enumerate();
    let theirs = theirs.map(|(at, x)| f64::from((x * factor(at)) as f32));
    let claim = GradientClaim {
        name,
        values: tensor(theirs.collect()),
        dtype: DType::F32,
        half_unit: 0.0,
    };
    let problem = Problem::Given {
        block: &block,
        q: &q,
        k: &k,
        v: &v,
        past: None,
    };
    check(&problem, &grad, &[claim])
        .map_err(|_| "it fits")
        .expect("a report")
}

/// Each number has a bound of its own: one for all would be larger than most of the numbers.
#[test]
fn a_hundredth_is_more_than_rounding_in_single_precision() {
    for name in [
        GradientName::GradQ,
        GradientName::GradK,
        GradientName::GradV,
    ] {
        let report = of_many(name, |_| 1.0);
        assert_eq!(report.verdict, Verdict::Equal, "{report:?}");
        // What roundings of each product and sum may add up to is some hundred times as much.
        let report = of_many(name, |at| 1.0 + 1e-7 * (at % 7) as f64);
        assert_eq!(report.verdict, Verdict::Equal, "{report:?}");
        let report = of_many(name, |_| 1.01);
        assert_eq!(report.verdict, Verdict::Different, "{report:?}");
        assert!(report.causes.is_empty(), "{:?}", report.causes);
        assert!(report.max_abs_error > report.bound, "{report:?}");
        // One number alone, of middling size.
        let report = of_many(name, |at| if at == 20 * 64 + 5 { 1.1 } else { 1.0 });
        assert_eq!(report.verdict, Verdict::Different, "{name:?}: {report:?}");
        let count = report.places.as_ref().map(|places| places.count);
        assert_eq!(count, Some(1), "{report:?}");
    }
}
