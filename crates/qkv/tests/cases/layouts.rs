//! Strided views and fused projections.

use crate::common::*;
use qkv::layer::split_heads;
use qkv::{Attention, Causal, Inputs, Linear, Mask, Result, StepName, View, definition, steps};

/// The elements of a view, row-major.
fn copied<T: Copy>(view: View<'_, T>) -> Vec<T> {
    places(view.shape()).map(|at| view.get(at)).collect()
}

/// pytorch/pytorch PR 187506
#[test]
fn b070_strided_views_equal_their_copies() -> Result<()> {
    let (b, h, l, d) = (2, 3, 4, 5);
    let numbers = Rng(70).reals(4 * b * h * l * d);
    let data = &numbers[..];
    let (b_, h_, l_, d_) = (b as isize, h as isize, l as isize, d as isize);
    let shape = [b, h, l, d];
    let last = b * h * l * d - 1;
    let views = [
        (
            "as it lies",
            View::strided(data, 0, shape, [h_ * l_ * d_, l_ * d_, d_, 1])?,
        ),
        (
            "a.T: columns innermost",
            View::strided(data, 0, shape, [h_ * l_ * d_, l_ * d_, 1, l_])?,
        ),
        (
            "a[:, ::2]",
            View::strided(data, 0, shape, [2 * h_ * l_ * d_, 2 * l_ * d_, 2 * d_, 2])?,
        ),
        (
            "a[::-1]: all reversed",
            View::strided(data, last, shape, [-h_ * l_ * d_, -l_ * d_, -d_, -1])?,
        ),
        (
            "rows reversed",
            View::strided(data, (l - 1) * d, shape, [h_ * l_ * d_, l_ * d_, -d_, 1])?,
        ),
        (
            "one row for all",
            View::strided(data, 3, shape, [0, 0, 0, 1])?,
        ),
        (
            "one head for all",
            View::strided(data, 7, shape, [l_ * d_, 0, d_, 1])?,
        ),
        (
            "[length, batch, heads, width]",
            View::strided(data, 0, shape, [h_ * d_, d_, b_ * h_ * d_, 1])?,
        ),
        (
            "[batch, length, heads, width]",
            View::new(&data[..120], &[b, l, h, d])?.swap_axes(1, 2),
        ),
    ];
    let mask: Vec<bool> = (0..2 * l * l).map(|n| n % 3 != 0 && n % 5 != 1).collect();
    let transposed = View::strided(&mask, 0, [1, 1, l, l], [0, 0, 1, l_])?;
    let mask_copy = copied(transposed);
    for (name, q) in views {
        for (other, k) in views {
            let v = views[(name.len() + other.len()) % views.len()].1;
            let strided = Attention {
                masks: vec![Mask::keep(transposed)],
                ..Attention::default()
            };
            let plain = Attention {
                masks: vec![Mask::keep(View::new(&mask_copy, &[l, l])?)],
                ..Attention::default()
            };
            let (copy_q, copy_k, copy_v) = (copied(q), copied(k), copied(v));
            let found = Inputs::new(q, k, v)?;
            let expected = Inputs::new(
                View::new(&copy_q, &shape)?,
                View::new(&copy_k, &shape)?,
                View::new(&copy_v, &shape)?,
            )?;
            let what = (name, other);
            assert_results_same(
                &definition::forward(&strided, &found)?,
                &definition::forward(&plain, &expected)?,
                &what,
            );
            let found = definition::backward(&strided, &found, v)?;
            let expected = definition::backward(&plain, &expected, View::new(&copy_v, &shape)?)?;
            assert_eq!(found, expected, "{what:?}");
        }
    }
    // The views do differ: a wrong stride would be seen.
    let sums = views.map(|(_, view)| {
        copied(view)
            .iter()
            .enumerate()
            .map(|(n, x)| x * (n + 1) as f64)
            .sum::<f64>()
    });
    for (n, sum) in sums.iter().enumerate() {
        assert!(sums[..n].iter().all(|other| other != sum), "{}", views[n].0);
    }
    Ok(())
}

/// lablup/mlxcel PR 928, tensor_parallel PR 103
#[test]
fn b073_fused_projections_in_two_layouts() -> Result<()> {
    let fused = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
    let heads = |offset, stride| View::strided(&fused, offset, [1, 2, 1, 1], [0, stride, 6, 1]);
    let run = |q, k, v| -> Result<[Vec<f64>; 3]> {
        let all = steps(&Attention::default(), &Inputs::new(q, k, v)?)?;
        let names = [StepName::Q, StepName::K, StepName::V];
        Ok(names.map(|name| all.get(name).unwrap().data().to_vec()))
    };
    // GPT-2: Q | K | V
    let block = run(heads(0, 1)?, heads(2, 1)?, heads(4, 1)?)?;
    assert_eq!(block, [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]);
    // GPT-NeoX: q | k | v of each head
    let per_head = run(heads(0, 3)?, heads(1, 3)?, heads(2, 3)?)?;
    assert_eq!(per_head, [[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]]);

    // GPT-2's weight is stored [in, out]: column o makes output o.
    let weight = tensor(
        &[2, 6],
        &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 0.0, 0.0, 0.0, 0.0, 0.0, 10.0],
    );
    let linear = Linear::new("c_attn", weight, Some(vec![0.5; 6]))?;
    let out = linear.apply(&tensor(&[1, 1, 2], &[1.0, 1.0]), "x")?;
    assert_eq!(out.data(), [1.5, 2.5, 3.5, 4.5, 5.5, 16.5]);
    let q = split_heads(&tensor(&[1, 1, 2], &out.data()[..2]), 2, "q")?;
    assert_eq!(q.data(), [1.5, 2.5]);
    // A weight stored the other way is refused, and the message says what to do.
    let stored = tensor(&[6, 2], &[0.0; 12]);
    let message = Linear::new("c_attn", stored, None)?
        .apply(&tensor(&[1, 1, 2], &[1.0, 1.0]), "x")
        .unwrap_err()
        .to_string();
    for part in [
        "x has width 2",
        "[1, 1, 2]",
        "c_attn",
        "[6, 2]",
        "transposed",
    ] {
        assert!(message.contains(part), "{part:?} is not in {message:?}");
    }
    Ok(())
}

/// Heads last in memory, BLHD, is BHLD by a view: never by copying, and cached keys too.
#[test]
fn blhd_with_a_cache() -> Result<()> {
    let (b, h, l, d) = (2, 3, 4, 2);
    let mut rng = Rng(71);
    let numbers = rng.reals(3 * b * h * l * d);
    let size = b * h * l * d;
    let view = |n: usize| View::new(&numbers[n * size..(n + 1) * size], &[b, l, h, d]);
    let blhd = |n| Ok::<_, qkv::Error>(view(n)?.swap_axes(1, 2));
    let copies = [copied(blhd(0)?), copied(blhd(1)?), copied(blhd(2)?)];
    let bhld = |n: usize| View::new(&copies[n], &[b, h, l, d]);
    let attention = Attention {
        causal: Some(Causal::BottomRight),
        ..Attention::default()
    };
    let found = Inputs::new(blhd(0)?, blhd(1)?, blhd(2)?)?.with_past(blhd(2)?, blhd(1)?)?;
    let expected = Inputs::new(bhld(0)?, bhld(1)?, bhld(2)?)?.with_past(bhld(2)?, bhld(1)?)?;
    assert_results_same(
        &definition::forward(&attention, &found)?,
        &definition::forward(&attention, &expected)?,
        &"BLHD",
    );
    Ok(())
}
