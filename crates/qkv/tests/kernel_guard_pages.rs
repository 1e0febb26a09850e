//! The fast path reads and writes nothing outside what it is given.
//!
//! Every input and output lies right before or right behind an inaccessible page, inputs where
//! nothing can be written, so that a step too far ends the process. Calls therefore run in a
//! process of their own, which says what it does.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

mod guard;
mod support;

use guard::{Edge, Pages};
use half::{bf16, f16};
use qkv::{
    AnyView, Attention, Bias, Float, Inputs, Isa, Mask, Options, Part, View, ViewMut, forward_into,
    forward_with, scores, weights,
};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};
use support::{
    AnyArray, Array, Call, Gap, LAYOUTS, Layout, Random, Typed, both_orders, isas_of, same_bits,
    times,
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
        let Array {
            offset,
            shape,
            strides,
            ..
        } = *self.array;
        View::strided(self.pages.data(), offset, shape, strides).unwrap()
    }
}

/// Computes a call from and to guarded memory, and from ordinary memory; both must be the same.
fn compute<T: Float + Gap + Default>(
    call: &Call,
    typed: &Typed<T>,
    edge: Edge,
    (isa, threads): (Isa, usize),
    layout: Layout,
) {
    for options in both_orders(call, isa, threads) {
        compute_with(call, typed, edge, options, layout);
    }
}

fn compute_with<T: Float + Gap + Default>(
    call: &Call,
    typed: &Typed<T>,
    edge: Edge,
    options: Options,
    layout: Layout,
) {
    let (attention, inputs) = (call.attention(typed), typed.inputs());
    let Ok(expected) = forward_with(&attention, &inputs, &options) else {
        return; // rows without a key, where that is an error
    };
    let [q, k, v] = [&typed.q, &typed.k, &typed.v].map(|array| Guarded::new(array, edge));
    let past = typed.past.as_ref();
    let past = past.map(|(k, v)| [k, v].map(|array| Guarded::new(array, edge)));
    let masks: Vec<_> = call
        .masks
        .iter()
        .map(|(mask, keeps)| (Guarded::new(mask, edge), *keeps))
        .collect();
    with_bias(typed.bias.as_ref(), edge, |bias| {
        let guarded = Attention {
            bias: bias.map(Bias),
            masks: masks
                .iter()
                .map(|(mask, keeps)| match keeps {
                    true => Mask::keep(mask.view()),
                    false => Mask::drop(mask.view()),
                })
                .collect(),
            ..call.options()
        };
        let mut inputs = Inputs::new(q.view(), k.view(), v.view()).unwrap();
        if let Some([k, v]) = &past {
            inputs = inputs.with_past(k.view(), v.view()).unwrap();
        }
        let output = forward_with(&guarded, &inputs, &options).unwrap();
        assert!(same_bits(output.output.data(), expected.output.data()));

        let [b, h, queries, keys] = inputs.scores_shape();
        let shape = [b, h, queries, inputs.value_dim()];
        let mut target = Array::new(shape, layout, |_| T::from_f64(0.0));
        let mut pages = Pages::writable(&target.data, edge);
        let view = ViewMut::strided(pages.data_mut(), target.offset, shape, target.strides);
        let rows = forward_into(&guarded, &inputs, &options, view.unwrap()).unwrap();
        assert!(same_bits(rows.lse.data(), expected.lse.data()));
        // What was between the elements is still what it was.
        for (n, &x) in expected.output.data().iter().enumerate() {
            let (d, l) = (shape[3], shape[2]);
            let index = [n / d / l / h, n / d / l % h, n / d % l, n % d];
            let at = target.position(index);
            target.data[at] = x;
        }
        assert!(same_bits(&target.data, pages.data()));

        if b * h * queries * keys < 20_000 {
            let all = Part::all(&inputs);
            weights(&guarded, &inputs, &options, &all).unwrap();
            scores(&guarded, &inputs, &options, &all).unwrap();
        }
    });
}

fn with_bias(bias: Option<&AnyArray>, edge: Edge, run: impl FnOnce(Option<AnyView<'_>>)) {
    match bias {
        None => run(None),
        Some(AnyArray::F16(array)) => run(Some(Guarded::new(array, edge).view().into())),
        Some(AnyArray::Bf16(array)) => run(Some(Guarded::new(array, edge).view().into())),
        Some(AnyArray::F32(array)) => run(Some(Guarded::new(array, edge).view().into())),
        Some(AnyArray::F64(array)) => run(Some(Guarded::new(array, edge).view().into())),
    }
}

fn both_edges<T: Float + Gap + Default>(call: &Call, layouts: [Layout; 3], random: &mut Random) {
    let typed: Typed<T> = call.typed(layouts);
    let (threads, layout) = (random.pick(&[1, 2]), random.pick(&LAYOUTS));
    for isa in isas_of::<T>() {
        for edge in [Edge::Begin, Edge::End] {
            println!("{isa:?} {:?} {edge:?} output {layout:?}", T::DTYPE);
            compute(call, &typed, edge, (isa, threads), layout);
        }
    }
}

/// Run by `nothing_outside_is_touched`.
#[test]
#[ignore = "runs in a process of its own"]
fn guarded_calls() {
    let mut random = Random::new(51);
    for n in 0..times(400) {
        let call = Call::random(&mut random);
        let layouts = Call::layouts(&mut random);
        println!("call {n}: {layouts:?} {}", call.describe());
        both_edges::<f32>(&call, layouts, &mut random);
        both_edges::<f64>(&call, layouts, &mut random);
        if n % 2 == 0 {
            both_edges::<f16>(&call, layouts, &mut random);
        } else {
            both_edges::<bf16>(&call, layouts, &mut random);
        }
    }
    println!("all done");
}

/// Run by `a_step_outside_ends_the_process`.
#[test]
#[ignore = "must end its process"]
fn a_step_outside() {
    let edge = match std::env::var("QKV_TEST_EDGE").as_deref() {
        Ok("begin") => Edge::Begin,
        Ok("end") => Edge::End,
        _ => return,
    };
    let pages = Pages::holding(&[1.0_f32; 300], edge);
    assert_eq!(pages.data()[299], 1.0);
    println!("inside");
    println!("outside: {}", pages.outside(edge));
}

fn run(test: &str, edge: &str) -> (Output, String) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", test])
        .env("QKV_TEST_EDGE", edge)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    (output, said)
}

#[test]
fn nothing_outside_is_touched() {
    let (output, said) = run("guarded_calls", "");
    let lines: Vec<&str> = said.lines().collect();
    assert!(
        output.status.success() && said.contains("all done"),
        "{}: {}\n{}",
        output.status,
        lines[lines.len().saturating_sub(4)..].join("\n"),
        String::from_utf8_lossy(&output.stderr),
    );
}

#[test]
fn a_step_outside_ends_the_process() {
    for edge in ["begin", "end"] {
        let (output, said) = run("a_step_outside", edge);
        assert!(
            said.contains("inside") && !said.contains("outside:"),
            "{edge}: {said}"
        );
        assert!(
            output.status.signal().is_some(),
            "{edge}: {}",
            output.status
        );
    }
}
