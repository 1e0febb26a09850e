//! The backward pass reads and writes nothing outside what it is given.
//!
//! As `kernel_guard_pages`: every input, and every gradient, lies right before or right behind an
//! inaccessible page, in a process of its own.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

mod guard;
mod support;

use guard::{Edge, Pages};
use half::bf16;
use qkv::{
    Attention, Bias, Float, GradientsMut, Inputs, Mask, Saved, Store, Tensor, View, ViewMut,
    backward, backward_into, forward_with,
};
use std::process::Command;
use support::{
    AnyArray, Array, Call, Gap, LAYOUTS, Layout, Random, Typed, grad_output, isas, options,
    same_bits, times,
};

/// An array whose data is at the edge of a page.
struct Guarded<'a, T> {
    array: &'a Array<T>,
    pages: Pages<T>,
}

impl<'a, T: Gap> Guarded<'a, T> {
    fn new(array: &'a Array<T>, edge: Edge) -> Self {
        let pages = Pages::holding(&array.data, edge);
        Guarded { array, pages }
    }

    fn view(&self) -> View<'_, T> {
        let (offset, shape, strides) = (self.array.offset, self.array.shape, self.array.strides);
        View::strided(self.pages.data(), offset, shape, strides).unwrap()
    }
}

/// A gradient that is to be written: where, and what the place will hold.
struct Target<T> {
    wanted: Array<T>,
    pages: Pages<T>,
}

impl<T: Float + Gap> Target<T> {
    fn new(expected: &Tensor<T>, layout: Layout, edge: Edge) -> Self {
        let shape: [usize; 4] = expected.shape().try_into().unwrap();
        let mut wanted = Array::new(shape, layout, |_| T::from_f64(0.0));
        let pages = Pages::writable(&wanted.data, edge);
        let [_, h, l, d] = shape;
        for (n, &x) in expected.data().iter().enumerate() {
            let at = wanted.position([n / d / l / h, n / d / l % h, n / d % l, n % d]);
            wanted.data[at] = x;
        }
        Target { wanted, pages }
    }

    fn view(&mut self) -> ViewMut<'_, T> {
        let Array {
            offset,
            shape,
            strides,
            ..
        } = self.wanted;
        ViewMut::strided(self.pages.data_mut(), offset, shape, strides).unwrap()
    }

    fn check(&self) {
        assert!(same_bits(&self.wanted.data, self.pages.data()));
    }
}

/// Computes from and to guarded memory, and from ordinary memory; both must be the same.
fn compute<T: Float + Gap>(
    call: &Call,
    typed: &Typed<T>,
    grad: &Array<T>,
    edge: Edge,
    random: &mut Random,
) {
    let all: Vec<_> = isas().collect();
    let options = options(random.pick(&all), random.pick(&[1, 2]));
    let layout = random.pick(&LAYOUTS);
    println!("{options:?} {:?} {edge:?} gradients {layout:?}", T::DTYPE);
    let (attention, inputs) = (call.attention(typed), typed.inputs());
    let output = forward_with(&attention, &inputs, &options).unwrap();
    let saved = Saved::new(&output).unwrap();
    let expected = backward(&attention, &inputs, saved, grad.view(), &options).unwrap();

    let [q, k, v] = [&typed.q, &typed.k, &typed.v].map(|array| Guarded::new(array, edge));
    let past = typed.past.as_ref();
    let past = past.map(|(k, v)| [k, v].map(|array| Guarded::new(array, edge)));
    let masks: Vec<_> = call
        .masks
        .iter()
        .map(|(mask, keeps)| (Guarded::new(mask, edge), *keeps))
        .collect();
    let mut inputs = Inputs::new(q.view(), k.view(), v.view()).unwrap();
    if let Some([k, v]) = &past {
        inputs = inputs.with_past(k.view(), v.view()).unwrap();
    }
    let bias = match &typed.bias {
        Some(AnyArray::F32(array)) => Some(Guarded::new(array, edge)),
        _ => None,
    };
    let unguarded = typed.bias.as_ref().map(|bias| bias.view());
    let guarded = Attention {
        bias: bias
            .as_ref()
            .map(|b| b.view().into())
            .or(unguarded)
            .map(Bias),
        masks: masks
            .iter()
            .map(|(mask, keeps)| match keeps {
                true => Mask::keep(mask.view()),
                false => Mask::drop(mask.view()),
            })
            .collect(),
        ..call.options()
    };
    let of_rows = Array::new(
        output.output.shape().try_into().unwrap(),
        Layout::Plain,
        |at| output.output.at(&at),
    );
    let saved_output = Guarded::new(&of_rows, edge);
    let saved_lse = Pages::holding(output.lse.data(), edge);
    let saved = Saved {
        output: saved_output.view(),
        lse: saved_lse.data(),
    };
    let grad = Guarded::new(grad, edge);
    let mut targets =
        [&expected.q, &expected.k, &expected.v].map(|gradient| Target::new(gradient, layout, edge));
    let mut of_bias = expected
        .bias
        .as_ref()
        .map(|bias| Target::new(bias, layout, edge));
    let mut of_sinks = expected
        .sinks
        .as_ref()
        .map(|sinks| Pages::writable(sinks.data(), edge));
    let [to_q, to_k, to_v] = &mut targets;
    let to = GradientsMut {
        q: to_q.view(),
        k: to_k.view(),
        v: to_v.view(),
        bias: of_bias.as_mut().map(Target::view),
        sinks: of_sinks.as_mut().map(Pages::data_mut),
        store: Store::Replace,
    };
    backward_into(&guarded, &inputs, saved, grad.view(), &options, to).unwrap();
    targets.iter().for_each(Target::check);
    of_bias.iter().for_each(Target::check);
    if let (Some(found), Some(expected)) = (&of_sinks, &expected.sinks) {
        assert!(same_bits(found.data(), expected.data()));
    }
}

fn both_edges<T: Float + Gap>(call: &Call, grad: &Array<f64>, random: &mut Random) {
    let layouts = Call::layouts(random);
    let typed: Typed<T> = call.typed(layouts);
    let grad = grad.map(random.pick(&LAYOUTS), T::from_f64);
    for edge in [Edge::Begin, Edge::End] {
        compute(call, &typed, &grad, edge, random);
    }
}

/// Run by `nothing_outside_is_touched`.
#[test]
#[ignore = "runs in a process of its own"]
fn guarded_calls() {
    let mut random = Random::new(61);
    for n in 0..times(150) {
        let mut call = Call::random(&mut random);
        call.empty_rows = qkv::EmptyRows::Zero;
        let grad = grad_output(&call, &mut random);
        println!("call {n}: {}", call.describe());
        match n % 4 {
            0 => both_edges::<f64>(&call, &grad, &mut random),
            1 => both_edges::<bf16>(&call, &grad, &mut random),
            _ => both_edges::<f32>(&call, &grad, &mut random),
        }
    }
    println!("all done");
}

#[test]
fn nothing_outside_is_touched() {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", "guarded_calls"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<&str> = said.lines().collect();
    assert!(
        output.status.success() && said.contains("all done"),
        "{}: {}\n{}",
        output.status,
        lines[lines.len().saturating_sub(4)..].join("\n"),
        String::from_utf8_lossy(&output.stderr),
    );
}
