//! The gradients of `--backward` against central differences, through the public functions.
#![allow(clippy::unwrap_used, clippy::panic)]

#[allow(dead_code)]
mod common;

use common::{Problem, with_gradient, with_problem};
use qkv::{Bias, Block, GradientName, Inputs, Layer, Linear, StepName, Tensor};
use qkv_report::{Origin, Subject, json};
use serde_json::Value;

/// A run with every number that its result depends on, to be changed.
#[derive(Clone)]
struct Changed<'a> {
    layer: Option<Layer<'a>>,
    block: Block<'a>,
    bias: Option<Tensor<f64>>,
    x: Option<Tensor<f64>>,
    context: Option<Tensor<f64>>,
    /// Keys and values of problems without projections, the cached ones first; else cached ones.
    k: Tensor<f64>,
    v: Tensor<f64>,
    q: Tensor<f64>,
    past: usize,
}

impl<'a> Changed<'a> {
    fn new(problem: &Problem<'a>) -> Self {
        let subject = &problem.subject;
        let step = |name| subject.steps.get(name).unwrap().clone();
        let (layer, x, context) = match subject.origin {
            Origin::Given | Origin::Split => (None, None, None),
            Origin::Projected { layer, x, context } => {
                (Some(layer.clone()), Some(x.clone()), context.cloned())
            }
        };
        let bias = subject.block.attention.bias.map(|Bias(view)| {
            let [a, b, c, d] = view.shape();
            let mut data = Vec::new();
            for at in 0..a * b * c * d {
                let index = [at / d / c / b, at / d / c % b, at / d % c, at % d];
                data.push(view.get(index));
            }
            Tensor::new(&view.shape(), data).unwrap()
        });
        Changed {
            layer,
            block: subject.block.clone(),
            bias,
            x,
            context,
            q: step(StepName::Q),
            k: step(StepName::K),
            v: step(StepName::V),
            past: subject.past_len,
        }
    }

    fn add(&mut self, name: GradientName, at: &[usize], h: f64) {
        let block = match &mut self.layer {
            Some(layer) => &mut layer.block,
            None => &mut self.block,
        };
        match name {
            GradientName::GradQ => *self.q.at_mut(at) += h,
            GradientName::GradK => *self.k.at_mut(at) += h,
            GradientName::GradV => *self.v.at_mut(at) += h,
            GradientName::GradX => *self.x.as_mut().unwrap().at_mut(at) += h,
            GradientName::GradContext => *self.context.as_mut().unwrap().at_mut(at) += h,
            GradientName::GradBias => *self.bias.as_mut().unwrap().at_mut(at) += h,
            GradientName::GradSinks => block.attention.sinks.as_mut().unwrap().0[at[0]] += h,
            GradientName::GradQNorm => block.q_norm.as_mut().unwrap().gain[at[0]] += h,
            GradientName::GradKNorm => block.k_norm.as_mut().unwrap().gain[at[0]] += h,
            GradientName::GradWo | GradientName::GradBo => {
                add_to(block.output.as_mut().unwrap(), at, h);
            }
            GradientName::GradWq | GradientName::GradBq => {
                add_to(&mut self.layer.as_mut().unwrap().q, at, h);
            }
            GradientName::GradWk | GradientName::GradBk => {
                add_to(&mut self.layer.as_mut().unwrap().k, at, h);
            }
            GradientName::GradWv | GradientName::GradBv => {
                add_to(&mut self.layer.as_mut().unwrap().v, at, h);
            }
            name => panic!("{name} is of no input"),
        }
    }

    fn loss(&self, grad: &[f64]) -> f64 {
        let bias = self.bias.as_ref().map(|bias| bias.view().unwrap());
        let bias = bias.map(|view| Bias(view.into()));
        let (old_k, new_k) = cut(&self.k, self.past);
        let (old_v, new_v) = cut(&self.v, self.past);
        let past = (self.past > 0).then_some((&old_k, &old_v));
        let steps = match &self.layer {
            Some(layer) => {
                let mut layer: Layer<'_> = layer.clone();
                layer.block.attention.bias = bias;
                let x = self.x.as_ref().unwrap();
                layer.steps(x, self.context.as_ref(), past).unwrap()
            }
            None => {
                let mut block: Block<'_> = self.block.clone();
                block.attention.bias = bias;
                let [q, k, v] = [&self.q, &new_k, &new_v].map(|t| t.view().unwrap());
                let mut inputs = Inputs::new(q, k, v).unwrap();
                if let Some((k, v)) = past {
                    inputs = inputs
                        .with_past(k.view().unwrap(), v.view().unwrap())
                        .unwrap();
                }
                block.steps(&inputs).unwrap()
            }
        };
        let (_, result) = steps.result().unwrap();
        result.data().iter().zip(grad).map(|(y, g)| y * g).sum()
    }
}

fn add_to(linear: &mut Linear, at: &[usize], h: f64) {
    let mut weight = linear.weight().clone();
    let mut bias = linear.bias().map(<[f64]>::to_vec);
    match at {
        [c] => bias.as_mut().unwrap()[*c] += h,
        at => *weight.at_mut(at) += h,
    }
    *linear = Linear::new("weight", weight, bias).unwrap();
}

/// The first rows of `[B, H, L, d]`, and the others.
fn cut(x: &Tensor<f64>, past: usize) -> (Tensor<f64>, Tensor<f64>) {
    let &[batch, heads, len, width] = x.shape() else {
        panic!("{:?}", x.shape());
    };
    let (mut old, mut new) = (Vec::new(), Vec::new());
    for row in 0..batch * heads * len {
        let part = if row % len < past { &mut old } else { &mut new };
        part.extend_from_slice(&x.data()[row * width..(row + 1) * width]);
    }
    (
        Tensor::new(&[batch, heads, past, width], old).unwrap(),
        Tensor::new(&[batch, heads, len - past, width], new).unwrap(),
    )
}

fn flat(value: &Value, into: &mut Vec<f64>) {
    match value {
        Value::Array(list) => list.iter().for_each(|value| flat(value, into)),
        number => into.push(number.as_f64().unwrap()),
    }
}

/// The gradients of inputs in the JSON of a run.
fn of_inputs(subject: &Subject<'_>) -> Vec<(GradientName, Vec<usize>, Vec<f64>)> {
    let given = matches!(subject.origin, Origin::Given | Origin::Split);
    let read = json(subject);
    let listed = read["gradients"].as_array().unwrap();
    let expected = subject.backward.unwrap().gradients;
    assert!(
        listed
            .iter()
            .map(|entry| entry["name"].as_str().unwrap())
            .eq(expected.iter().map(|(name, _)| name.as_str()))
    );
    let mut found = Vec::new();
    for (entry, (name, _)) in listed.iter().zip(expected.iter()) {
        let of_input = match name {
            GradientName::GradQ | GradientName::GradK | GradientName::GradV => given,
            GradientName::GradSinks
            | GradientName::GradBias
            | GradientName::GradQNorm
            | GradientName::GradKNorm
            | GradientName::GradWo
            | GradientName::GradBo
            | GradientName::GradWq
            | GradientName::GradBq
            | GradientName::GradWk
            | GradientName::GradBk
            | GradientName::GradWv
            | GradientName::GradBv
            | GradientName::GradX
            | GradientName::GradContext => true,
            _ => false,
        };
        if of_input {
            let shape = entry["shape"].as_array().unwrap();
            let shape = shape.iter().map(|n| n.as_u64().unwrap() as usize).collect();
            let mut values = Vec::new();
            flat(&entry["values"], &mut values);
            found.push((name, shape, values));
        }
    }
    found
}

/// By five points, so that the bend of a norm of very small rows (eps = 1e-6, a width of 1e-3)
/// leaves (h/1e-3)⁴ ≈ 1.6e-7 of it, and rounding ε·L/h ≈ 1e-10.
fn difference(loss: impl Fn(f64) -> f64) -> f64 {
    const H: f64 = 2e-5;
    let apart = |h: f64| loss(h) - loss(-h);
    (8.0 * apart(H) - apart(2.0 * H)) / (12.0 * H)
}

#[test]
fn two_hundred_problems() {
    let (mut entries, mut together) = (0, 0);
    let mut with = [0; 8];
    for seed in 0..200 {
        with_problem(seed, |problem| {
            let attention = &problem.subject.block.attention;
            let steps = problem.subject.steps;
            let groups = steps.get(StepName::Q).unwrap().shape()[1]
                != steps.get(StepName::K).unwrap().shape()[1];
            let masks = steps.get(StepName::Masked).is_some();
            let has = [
                masks,
                groups,
                attention.softcap.is_some(),
                attention.sinks.is_some(),
                attention.dropout.is_some(),
                problem.subject.block.rotary.is_some(),
                problem.subject.past_len > 0,
                matches!(problem.subject.origin, Origin::Projected { .. }),
            ];
            for (count, has) in with.iter_mut().zip(has) {
                *count += usize::from(has);
            }
            together += usize::from(has[..4].iter().all(|has| *has));
            let changed = Changed::new(problem);
            with_gradient(problem, seed, |subject| {
                let gradients = subject.backward.unwrap().gradients;
                let (_, grad) = gradients.iter().next().unwrap();
                for (name, shape, values) in of_inputs(subject) {
                    let largest = values.iter().fold(0.0_f64, |m, v| m.max(v.abs()));
                    for (at, value) in values.iter().enumerate() {
                        let mut index = vec![0; shape.len()];
                        let mut rest = at;
                        for axis in (0..shape.len()).rev() {
                            index[axis] = rest % shape[axis];
                            rest /= shape[axis];
                        }
                        let found = difference(|h| {
                            let mut changed = changed.clone();
                            changed.add(name, &index, h);
                            changed.loss(grad.data())
                        });
                        entries += 1;
                        assert!(
                            (found - value).abs() <= 1e-6 * largest.max(1e-2),
                            "seed {seed}, {name}{index:?}: {value}, difference {found}"
                        );
                    }
                }
            });
        });
    }
    assert!(entries > 5_000, "{entries} entries");
    assert!(with.iter().all(|count| *count > 40), "{with:?}");
    assert!(together > 3, "{together} with all four");
}

/// The one entry that a run checks itself.
#[test]
fn the_finite_difference_agrees() {
    let mut checked = 0;
    for seed in 0..200 {
        with_problem(seed, |problem| {
            with_gradient(problem, seed, |subject| {
                let check = subject.backward.unwrap().difference.unwrap();
                let read = &json(subject)["finite_difference"];
                assert_eq!(read["of"], check.of.as_str());
                assert_eq!(read["loss_plus"].as_f64(), Some(check.plus));
                let quotient = (check.plus - check.minus) / (2.0 * check.step);
                assert_eq!(check.quotient, quotient);
                let gradients = subject.backward.unwrap().gradients;
                let gradient = gradients.get(check.of).unwrap();
                assert_eq!(gradient.at(&check.index), check.gradient);
                let largest = gradient.data().iter().fold(0.0_f64, |m, v| m.max(v.abs()));
                assert_eq!(check.gradient.abs(), largest, "the largest entry");
                let error = (check.quotient - check.gradient).abs();
                assert!(error <= 1e-4 * largest, "seed {seed}: {check:?}");
                checked += usize::from(largest > 0.0);

                let mut changed = Changed::new(problem);
                let name = check.of;
                changed.add(name, &check.index, check.step);
                let (_, grad) = gradients.iter().next().unwrap();
                let plus = changed.loss(grad.data());
                assert!((plus - check.plus).abs() <= 1e-12 * (1.0 + plus.abs()));
            });
        });
    }
    assert!(checked > 150, "{checked} with a gradient");
}
