//! The layer's derivative against central differences in `f64`.
#![allow(clippy::unwrap_used, clippy::panic)]

use qkv::position::{Pairing, Rotary};
use qkv::{
    Attention, Block, Causal, GradientName, Layer, Linear, Place, RmsNorm, Sinks, StepName, Tensor,
};

/// Numbers between −1 and 1 that look random and are always the same.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> f64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
    }

    fn list(&mut self, count: usize) -> Vec<f64> {
        (0..count).map(|_| self.next()).collect()
    }

    fn tensor(&mut self, shape: &[usize]) -> Tensor<f64> {
        let data = self.list(shape.iter().product());
        Tensor::new(shape, data).unwrap()
    }
}

/// Every number that the layer's result depends on.
#[derive(Clone)]
struct Parameters {
    x: Tensor<f64>,
    context: Option<Tensor<f64>>,
    past: Option<(Tensor<f64>, Tensor<f64>)>,
    weights: [Tensor<f64>; 4],
    biases: [Vec<f64>; 4],
    gains: [Vec<f64>; 2],
    sinks: Vec<f64>,
}

struct Case {
    name: &'static str,
    context: bool,
    past: usize,
    residual: bool,
    norms: bool,
    rotary: Option<Pairing>,
    softcap: Option<f64>,
    sinusoidal: Option<usize>,
    causal: Option<Causal>,
}

const HEADS: usize = 4;
const KV_HEADS: usize = 2;
const BATCH: usize = 3;
const LENGTH: usize = 5;
const WIDTH: usize = 7;
const HEAD_DIM: usize = 6;
const VALUE_DIM: usize = 3;

impl Case {
    fn parameters(&self, seed: u64) -> Parameters {
        let mut numbers = Numbers(seed);
        let source = if self.context { 8 } else { WIDTH };
        let shapes = [
            [WIDTH, HEADS * HEAD_DIM],
            [source, KV_HEADS * HEAD_DIM],
            [source, KV_HEADS * VALUE_DIM],
            [HEADS * VALUE_DIM, WIDTH],
        ];
        Parameters {
            x: numbers.tensor(&[BATCH, LENGTH, WIDTH]),
            context: self.context.then(|| numbers.tensor(&[BATCH, 9, 8])),
            past: (self.past > 0).then(|| {
                (
                    numbers.tensor(&[BATCH, KV_HEADS, self.past, HEAD_DIM]),
                    numbers.tensor(&[BATCH, KV_HEADS, self.past, VALUE_DIM]),
                )
            }),
            biases: shapes.map(|[_, out]| numbers.list(out)),
            weights: shapes.map(|shape| numbers.tensor(&shape)),
            gains: [numbers.list(HEAD_DIM), numbers.list(HEAD_DIM)],
            sinks: numbers.list(HEADS),
        }
    }

    fn layer(&self, p: &Parameters) -> Layer<'static> {
        let linear = |name, at: usize| {
            Linear::new(name, p.weights[at].clone(), Some(p.biases[at].clone())).unwrap()
        };
        let norm = |at: usize| self.norms.then(|| RmsNorm::new(p.gains[at].clone()));
        Layer {
            q: linear("W_Q", 0),
            k: linear("W_K", 1),
            v: linear("W_V", 2),
            heads: HEADS,
            kv_heads: KV_HEADS,
            sinusoidal: self.sinusoidal,
            residual: self.residual,
            block: Block {
                q_norm: norm(0),
                k_norm: norm(1),
                rotary: self.rotary.map(|pairing| Rotary {
                    pairing,
                    dim: Some(4),
                    ..Rotary::default()
                }),
                place: Place::Counted { start: 2 },
                attention: Attention {
                    softcap: self.softcap,
                    causal: self.causal,
                    sinks: Some(Sinks(p.sinks.clone())),
                    ..Attention::default()
                },
                concatenate: true,
                output: Some(linear("W_O", 3)),
            },
        }
    }

    fn steps(&self, p: &Parameters) -> qkv::Steps {
        let past = p.past.as_ref().map(|(k, v)| (k, v));
        self.layer(p).steps(&p.x, p.context.as_ref(), past).unwrap()
    }

    /// Σ result·direction.
    fn objective(&self, p: &Parameters, direction: &Tensor<f64>) -> f64 {
        let steps = self.steps(p);
        let last = steps
            .get(StepName::Residual)
            .or(steps.get(StepName::Projected))
            .unwrap();
        last.data()
            .iter()
            .zip(direction.data())
            .map(|(a, b)| a * b)
            .sum()
    }
}

/// A gradient's name and how to reach the number it belongs to.
type Reach = (GradientName, fn(&mut Parameters, usize) -> Option<&mut f64>);

fn of(tensor: &mut Tensor<f64>, at: usize) -> Option<&mut f64> {
    let mut index = vec![0; tensor.shape().len()];
    let mut left = at;
    for axis in (0..index.len()).rev() {
        index[axis] = left % tensor.shape()[axis];
        left /= tensor.shape()[axis];
    }
    (left == 0).then(|| tensor.at_mut(&index))
}

#[test]
fn every_gradient_of_the_layer_equals_its_central_difference() {
    let reaches: [Reach; 13] = [
        (GradientName::GradX, |p, at| of(&mut p.x, at)),
        (GradientName::GradContext, |p, at| {
            of(p.context.as_mut()?, at)
        }),
        (GradientName::GradWq, |p, at| of(&mut p.weights[0], at)),
        (GradientName::GradWk, |p, at| of(&mut p.weights[1], at)),
        (GradientName::GradWv, |p, at| of(&mut p.weights[2], at)),
        (GradientName::GradWo, |p, at| of(&mut p.weights[3], at)),
        (GradientName::GradBq, |p, at| p.biases[0].get_mut(at)),
        (GradientName::GradBk, |p, at| p.biases[1].get_mut(at)),
        (GradientName::GradBv, |p, at| p.biases[2].get_mut(at)),
        (GradientName::GradBo, |p, at| p.biases[3].get_mut(at)),
        (GradientName::GradQNorm, |p, at| p.gains[0].get_mut(at)),
        (GradientName::GradKNorm, |p, at| p.gains[1].get_mut(at)),
        (GradientName::GradSinks, |p, at| p.sinks.get_mut(at)),
    ];
    let plain = Case {
        name: "plain",
        context: false,
        past: 0,
        residual: false,
        norms: false,
        rotary: None,
        softcap: None,
        sinusoidal: None,
        causal: None,
    };
    let cases = [
        Case {
            name: "residual and positions",
            residual: true,
            sinusoidal: Some(3),
            ..plain
        },
        Case {
            name: "context",
            context: true,
            softcap: Some(1.5),
            ..plain
        },
        Case {
            name: "norms and halves",
            norms: true,
            rotary: Some(Pairing::Halves),
            ..plain
        },
        Case {
            name: "past, norms, interleaved, causal",
            past: 4,
            norms: true,
            residual: true,
            rotary: Some(Pairing::Interleaved),
            causal: Some(Causal::BottomRight),
            ..plain
        },
        plain,
    ];
    for (seed, case) in cases.iter().enumerate() {
        let parameters = case.parameters(seed as u64 + 11);
        let direction = Numbers(99).tensor(&[BATCH, LENGTH, WIDTH]);
        let steps = case.steps(&parameters);
        let gradients = case
            .layer(&parameters)
            .gradients(
                &steps,
                &parameters.x,
                parameters.context.as_ref(),
                case.past,
                &direction,
            )
            .unwrap();
        for (name, reach) in reaches {
            let Some(gradient) = gradients.get(name) else {
                let expected = (name == GradientName::GradContext && !case.context)
                    || (name.as_str().ends_with("norm") && !case.norms);
                assert!(expected, "{}: {name} is missing", case.name);
                continue;
            };
            let largest = gradient
                .data()
                .iter()
                .fold(0.0_f64, |max, g| max.max(g.abs()));
            // Central differences err by step²·f''' and by eps·f/step; the step is eps^(1/3) for
            // numbers of order one, so both are near 1e-10.
            let step = f64::EPSILON.cbrt();
            for at in (0..gradient.data().len()).step_by(3) {
                let shifted = |by: f64| {
                    let mut moved = parameters.clone();
                    *reach(&mut moved, at).unwrap() += by;
                    case.objective(&moved, &direction)
                };
                let difference = (shifted(step) - shifted(-step)) / (2.0 * step);
                let error = (difference - gradient.data()[at]).abs();
                assert!(
                    error <= 1e-6 * largest,
                    "{}: {name}[{at}] is {}, differences say {difference}",
                    case.name,
                    gradient.data()[at]
                );
            }
        }
    }
}
