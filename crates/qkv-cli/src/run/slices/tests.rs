//! Slices give what one call gives.

use super::*;
use crate::args::EngineArgs;
use qkv::{DType, Documents, Dropout, GradientBound, GradientSizes, Isa, Window, gradient_bound};

/// Numbers between −1 and 1.
fn numbers(seed: u64, count: usize) -> Vec<f32> {
    let mut state = seed;
    (0..count)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1 << 23) as f32 - 1.0
        })
        .collect()
}

/// The result in slices of so much work each, and how many they were.
fn sliced(
    attention: &Attention<'_>,
    inputs: &Inputs<'_, f32>,
    work: f64,
    swapped: bool,
) -> (Vec<f32>, Rows, usize) {
    let engine = EngineArgs {
        isa: Some(Isa::Portable),
        any_order: false,
    };
    let workers = Workers::new(1, &engine).expect("a thread");
    let [batch, heads, queries, _] = inputs.scores_shape();
    let mut data = vec![f32::NAN; batch * heads * queries * inputs.value_dim()];
    let mut output = Output {
        data: &mut data,
        swapped,
    };
    let mut rows = Rows {
        lse: vec![f64::NAN; batch * heads * queries],
        empty: Vec::new(),
    };
    let slices = plan(attention, inputs, work);
    for slice in &slices {
        slice
            .forward(attention, inputs, &workers, &mut output, &mut rows)
            .expect("a result");
    }
    rows.empty.sort_unstable();
    (data, rows, slices.len())
}

/// Gradients in slices of so much work each.
fn sliced_gradients(
    attention: &Attention<'_>,
    inputs: &Inputs<'_, f32>,
    work: f64,
    before: Before<'_, f32>,
) -> Gradients<f32> {
    let engine = EngineArgs {
        isa: Some(Isa::Portable),
        any_order: false,
    };
    let workers = Workers::new(1, &engine).expect("a thread");
    let zeros = |shape: &[usize]| vec![0.0_f32; shape.iter().product()];
    let [batch, heads, queries, keys] = inputs.scores_shape();
    let (d_k, d_v) = (inputs.head_dim(), inputs.value_dim());
    let of_keys = batch * inputs.kv_heads() * keys;
    let mut gradients = Gradients {
        q: (zeros(&[batch, heads, queries, d_k]), before.swapped),
        k: (zeros(&[of_keys, d_k]), false),
        v: (zeros(&[of_keys, d_v]), true),
        bias: attention.bias.map(|Bias(bias)| zeros(&bias.shape())),
        sinks: attention.sinks.as_ref().map(|_| zeros(&[heads])),
    };
    for slice in plan(attention, inputs, work) {
        slice
            .backward(attention, inputs, &workers, before, &mut gradients)
            .expect("gradients");
    }
    gradients
}

/// What two orders of sums may differ by, for the numbers of the test.
fn bound(attention: &Attention<'_>, inputs: &Inputs<'_, f32>) -> GradientBound {
    let [batch, heads, queries, keys] = inputs.scores_shape();
    let rows = queries * heads / inputs.kv_heads();
    let sizes = GradientSizes {
        head_dim: inputs.head_dim(),
        value_dim: inputs.value_dim(),
        keys,
        rows,
        weight: rows as f64,
        bias_terms: heads,
        bias_weight: heads as f64,
        sink_terms: batch * queries,
        // q·k/√3, a bias of at most 1, and a slope of 1 over so many places.
        largest_score: 3.0_f64.sqrt() + 1.0 + 2100.0,
        scale: attention.scale.factor(3),
        softcap: None,
        dropout: 0.0,
        q: 1.0,
        k: 1.0,
        grad: 1.0,
        product: 5.0,
    };
    gradient_bound(DType::F32, &sizes)
}

/// Slices give the bits of one call, whatever the options; in gradients, sums over what is in
/// several slices are in another order.
#[test]
fn slices_change_nothing() -> Result<()> {
    let (batch, heads, kv_heads, queries, new, past) = (3, 4, 2, 2000, 30, 11);
    let keys = new + past;
    let q = numbers(1, batch * heads * queries * 3);
    let k = numbers(2, batch * kv_heads * new * 3);
    let v = numbers(3, batch * kv_heads * new * 5);
    let past_k = numbers(4, batch * kv_heads * past * 3);
    let past_v = numbers(5, batch * kv_heads * past * 5);
    let inputs = Inputs::new(
        View::new(&q, &[batch, heads, queries, 3])?,
        View::new(&k, &[batch, kv_heads, new, 3])?,
        View::new(&v, &[batch, kv_heads, new, 5])?,
    )?
    .with_past(
        View::new(&past_k, &[batch, kv_heads, past, 3])?,
        View::new(&past_v, &[batch, kv_heads, past, 5])?,
    )?;
    let keep: Vec<bool> = (0..heads * queries * keys).map(|at| at % 7 != 2).collect();
    let bias = numbers(6, batch * queries * keys);
    let grad = numbers(7, batch * heads * queries * 5);
    let grad = View::new(&grad, &[batch, heads, queries, 5])?;
    let plain = Attention::default();
    let causal = |causal| Attention {
        causal: Some(causal),
        ..Attention::default()
    };
    let lengths = Some(KeyLengths(vec![keys, 17, 0]));
    let window = Some(Window {
        back: Some(9),
        forward: Some(2),
    });
    let alibi = Some(Alibi {
        slopes: vec![0.5, 0.25, 0.125, 1.0],
    });
    // Whether queries of these can be cut.
    let cases = [
        (plain.clone(), true),
        (causal(Causal::TopLeft), true),
        (causal(Causal::Offset(-500)), true),
        (
            Attention {
                lengths: lengths.clone(),
                window,
                alibi: alibi.clone(),
                ..causal(Causal::BottomRight)
            },
            true,
        ),
        (
            Attention {
                masks: vec![Mask::keep(View::new(&keep, &[heads, queries, keys])?)],
                bias: Some(Bias(View::new(&bias, &[batch, 1, queries, keys])?.into())),
                sinks: Some(Sinks(vec![0.5, -1.0, 0.0, 2.0])),
                ..plain.clone()
            },
            true,
        ),
        (
            Attention {
                window,
                lengths,
                ..plain.clone()
            },
            false,
        ),
        (
            Attention {
                alibi,
                ..plain.clone()
            },
            false,
        ),
        (
            Attention {
                documents: Some(Documents::with_key_lengths(
                    vec![1500, 500],
                    vec![20, keys - 20],
                )?),
                ..causal(Causal::BottomRight)
            },
            false,
        ),
    ];
    let flops = 2.0 * (batch * heads * queries * keys * 8) as f64;
    for (attention, can_be_cut) in &cases {
        attention.check(&inputs)?;
        for swapped in [false, true] {
            let (whole, whole_rows, one) = sliced(attention, &inputs, flops, swapped);
            assert_eq!(one, 1);
            let before = Before {
                output: &whole,
                swapped,
                lse: &whole_rows.lse,
                grad,
            };
            // One layout is enough for these, which take longer.
            let gradients =
                swapped.then(|| (before, sliced_gradients(attention, &inputs, flops, before)));
            // Batch entries, groups of heads, and cuts of at least so many queries.
            let cuts = if *can_be_cut { 3 } else { 1 };
            for (share, expected) in [(2.0, 1), (2.5, 3), (4.0, 6), (1e9, 6 * cuts)] {
                let (data, rows, slices) =
                    sliced(attention, &inputs, 1.001 * flops / share, swapped);
                let what = format!("{attention:?} in {slices}, swapped: {swapped}");
                assert_eq!(slices, expected, "{what}");
                assert!(data == whole, "{what}");
                assert!(rows == whole_rows, "{what}");
                let Some((before, right)) = gradients.as_ref().filter(|_| share >= 4.0) else {
                    continue;
                };
                let found = sliced_gradients(attention, &inputs, 1.001 * flops / share, *before);
                let most = bound(attention, &inputs);
                let close = |found: &[f32], right: &[f32], most: f64| {
                    let each = found.iter().zip(right);
                    each.fold(true, |all, (a, b)| {
                        all && f64::from(a - b).abs() <= 2.0 * most
                    })
                };
                assert!(found.q == right.q, "{what}");
                if expected <= 6 {
                    assert!((&found.k, &found.v) == (&right.k, &right.v), "{what}");
                } else {
                    assert!(close(&found.k.0, &right.k.0, most.k), "{what}");
                    assert!(close(&found.v.0, &right.v.0, most.v), "{what}");
                }
                if let (Some(found), Some(right)) = (&found.bias, &right.bias) {
                    assert!(close(found, right, most.bias), "{what}");
                }
                if let (Some(found), Some(right)) = (&found.sinks, &right.sinks) {
                    assert!(close(found, right, most.sinks), "{what}");
                }
            }
        }
    }
    let dropout = Attention {
        dropout: Some(Dropout { p: 0.5, seed: 1 }),
        ..plain
    };
    assert_eq!(plan(&dropout, &inputs, 1.0).len(), 1);
    Ok(())
}
