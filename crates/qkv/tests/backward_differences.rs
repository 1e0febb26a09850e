//! The fast backward pass against central differences of the fast forward pass, in `f64`: neither
//! knows the definition.
#![allow(clippy::unwrap_used)]

mod support;

use qkv::Isa;
use qkv::{Saved, backward, bound, forward_with};
use support::{Array, Call, Layout, Random, grad_output, options, times};

/// Σ output·grad, and Σ |output·grad|.
fn loss(call: &Call, grad: &Array<f64>, isa: Isa) -> (f64, f64) {
    let typed = call.typed::<f64>([Layout::Plain; 3]);
    let (attention, inputs) = (call.attention(&typed), typed.inputs());
    let output = forward_with(&attention, &inputs, &options(isa, 1)).unwrap();
    let terms = output.output.data().iter().zip(&grad.data);
    terms.fold((0.0, 0.0), |(sum, size), (x, g)| {
        (sum + x * g, size + (x * g).abs())
    })
}

/// Each array that a loss depends on.
const ARRAYS: usize = 5;

fn number(call: &mut Call, array: usize, at: usize) -> Option<&mut f64> {
    match array {
        0 => call.q.data.get_mut(at),
        1 => call.k.data.get_mut(at),
        2 => call.v.data.get_mut(at),
        3 => call.bias.as_mut()?.data.get_mut(at),
        _ => call.sinks.as_mut()?.get_mut(at),
    }
}

#[test]
fn central_differences() {
    let mut random = Random::new(71);
    let (mut compared, mut kinds, mut worst) = (0, [0; ARRAYS], 0.0_f64);
    while compared < times(200) {
        let mut call = Call::random_of_work(&mut random, 0, 60_000);
        call.empty_rows = qkv::EmptyRows::Zero;
        call.bias_dtype = qkv::DType::F64;
        // Numbers that nothing can be said of, and arrays whose elements are shared.
        let scale = call.scale.factor(call.q.shape[3]).abs();
        let calm = |array: &Array<f64>| {
            array.data.iter().all(|x| x.is_finite()) && !array.shared_axes().contains(&true)
        };
        let fits = [&call.q, &call.k, &call.v].into_iter().all(calm)
            && call.past.is_none()
            && (0.01..3.0).contains(&scale)
            && call.softcap.is_none_or(|cap| (0.1..100.0).contains(&cap))
            && call.sinks.iter().flatten().all(|x| x.abs() < 10.0);
        if !fits {
            continue;
        }
        let grad = grad_output(&call, &mut random);
        let isa = random.pick(&support::isas().collect::<Vec<_>>());
        let typed = call.typed::<f64>([Layout::Plain; 3]);
        let (attention, inputs) = (call.attention(&typed), typed.inputs());
        let output = forward_with(&attention, &inputs, &options(isa, 1)).unwrap();
        let saved = Saved::new(&output).unwrap();
        let found = backward(&attention, &inputs, saved, grad.view(), &options(isa, 1)).unwrap();
        let gradients = [
            Some(&found.q),
            Some(&found.k),
            Some(&found.v),
            found.bias.as_ref(),
            found.sinks.as_ref(),
        ];
        let array = random.below(ARRAYS);
        let Some(gradient) = gradients[array].filter(|gradient| !gradient.data().is_empty()) else {
            continue;
        };
        let at = random.below(gradient.data().len());
        let Some(before) = number(&mut call, array, at).map(|x| *x) else {
            continue;
        };
        if before.abs() > 100.0 {
            continue; // −∞ in a bias, which drops
        }
        let mut at_distance = |h: f64| {
            *number(&mut call, array, at).unwrap() = before + h;
            let (above, size) = loss(&call, &grad, isa);
            *number(&mut call, array, at).unwrap() = before - h;
            let (below, _) = loss(&call, &grad, isa);
            *number(&mut call, array, at).unwrap() = before;
            ((above - below) / (2.0 * h), size)
        };
        let h = 1e-4;
        let (near, size) = at_distance(h);
        let (far, _) = at_distance(2.0 * h);
        // What is left out goes with h²: a third of what it is from h to 2·h, and a bit for h⁴.
        // Rounding of both losses is divided by the distance; no score is so large.
        let score = 30.0 * (call.q.shape[3] as f64).sqrt();
        let rounding = 2.0 * bound(qkv::DType::F64, call.q.shape[3], call.keys(), score) * size / h;
        let most = (near - far).abs() + rounding;
        let error = (gradient.data()[at] - near).abs();
        assert!(
            error <= most,
            "array {array} [{at}]: {} for {near} ± {most}, {isa:?} {}",
            gradient.data()[at],
            call.describe()
        );
        compared += 1;
        kinds[array] += 1;
        worst = worst.max(error / most);
    }
    println!(
        "{compared} numbers (of q, k, v, bias, sinks: {kinds:?}), largest error {worst:.3} of the allowance"
    );
    assert!(
        kinds.iter().all(|&count| count * 50 > compared),
        "{kinds:?}"
    );
}
