//! Layers, norms and positions.

use crate::common::*;
use crate::*;
use qkv::layer::{merge_heads, split_heads};
use qkv::position::{Pairing, Rotary, Scaling};
use qkv::{Block, Layer, Linear, Place, RmsNorm, StepName, Tensor};

fn linear(name: &'static str, shape: [usize; 2]) -> Linear {
    let weight = tensor(&shape, &ONES[..shape[0] * shape[1]]);
    Linear::new(name, weight, None).unwrap()
}

/// D 6, four heads over two, of width 2 (v: 3).
fn layer() -> Layer<'static> {
    Layer {
        q: linear("W_Q", [6, 8]),
        k: linear("W_K", [6, 4]),
        v: linear("W_V", [6, 6]),
        heads: 4,
        kv_heads: 2,
        sinusoidal: None,
        block: Block {
            output: Some(linear("W_O", [12, 6])),
            ..Block::default()
        },
        residual: true,
    }
}

fn x(shape: &[usize]) -> Tensor<f64> {
    tensor(shape, &ONES[..shape.iter().product()])
}

#[test]
fn layers_that_do_not_fit() {
    let tokens = x(&[2, 3, 6]);
    assert!(layer().steps(&tokens, None, None).is_ok());
    let with = |change: &dyn Fn(&mut Layer<'_>)| {
        let mut layer = layer();
        change(&mut layer);
        layer.steps(&tokens, None, None)
    };
    refused(
        Linear::new("W_Q", x(&[2, 3, 4]), None),
        &["W_Q", "[2, 3, 4]", "3 axes", "[in, out]"],
    );
    refused(
        Linear::new("W_Q", x(&[2, 3]), Some(vec![0.0; 2])),
        &[
            "W_Q",
            "2 values given, but 3 needed",
            "column of the weight",
        ],
    );
    for (name, shape, parts) in [
        (
            "W_Q",
            [5, 8],
            ["x has width 6", "[2, 3, 6]", "W_Q has 5", "[5, 8]"],
        ),
        (
            "W_K",
            [8, 4],
            ["x has width 6", "[2, 3, 6]", "W_K has 8", "[8, 4]"],
        ),
        (
            "W_V",
            [3, 6],
            ["x has width 6", "[2, 3, 6]", "W_V has 3", "[3, 6]"],
        ),
    ] {
        let error = with(&|layer| {
            let field = match name {
                "W_Q" => &mut layer.q,
                "W_K" => &mut layer.k,
                _ => &mut layer.v,
            };
            *field = linear(name, shape);
        });
        refused(error, &[&parts[..], &["must be transposed"]].concat());
    }
    refused(
        with(&|layer| layer.block.output = Some(linear("W_O", [6, 12]))),
        &[
            "concatenated heads has width 12",
            "[2, 3, 12]",
            "W_O has 6",
            "[6, 12]",
            "transposed",
        ],
    );
    refused(
        with(&|layer| layer.block.output = Some(linear("W_O", [12, 7]))),
        &["x has width 6", "[2, 3, 6]", "7", "[2, 3, 7]", "W_O"],
    );
    refused(
        with(&|layer| {
            layer.block.output = None;
            layer.block.concatenate = true;
        }),
        &["x has width 6", "[2, 3, 6]", "12", "[2, 3, 12]", "residual"],
    );
    refused(
        with(&|layer| layer.block.output = None),
        &["residual", "side by side", "concatenate the heads"],
    );
    for heads in [0, 3, 5, 16, usize::MAX] {
        refused(
            with(&|layer| layer.heads = heads),
            &[
                "heads",
                &heads.to_string(),
                "W_Q",
                "8 columns",
                "[2, 3, 8]",
                "divide evenly",
            ],
        );
    }
    refused(
        with(&|layer| layer.kv_heads = 3),
        &[
            "heads",
            "3",
            "W_K",
            "4 columns",
            "[2, 3, 4]",
            "divide evenly",
        ],
    );
    refused(
        with(&|layer| layer.kv_heads = 1),
        &[
            "q has head_dim 2",
            "[2, 4, 3, 2]",
            "k has 4",
            "[2, 1, 3, 4]",
        ],
    );
    refused(
        with(&|layer| layer.v = linear("W_V", [6, 7])),
        &["heads", "2", "W_V", "7 columns", "divide evenly"],
    );
    for (name, shape) in [("x", &[3, 6][..]), ("x", &[1, 2, 3, 6]), ("x", &[6])] {
        let error = layer().steps(&x(shape), None, None);
        let axes = if shape.len() == 1 {
            "1 axis".to_owned()
        } else {
            format!("{} axes", shape.len())
        };
        refused(
            error,
            &[name, &format!("{shape:?}"), &axes, "[batch, length, width]"],
        );
    }
    refused(
        layer().steps(&tokens, Some(&x(&[2, 5, 7])), None),
        &["context has width 7", "[2, 5, 7]", "W_K has 6", "[6, 4]"],
    );
    refused(
        layer().steps(&tokens, Some(&x(&[3, 5, 6])), None),
        &["q has batch 2", "k has 3", "[3, 2, 5, 2]"],
    );
    refused(
        layer().steps(&tokens, Some(&x(&[5, 6])), None),
        &["context", "[5, 6]", "2 axes"],
    );
    let past = |k: &[usize], v: &[usize]| layer().steps(&tokens, None, Some((&x(k), &x(v))));
    assert!(past(&[2, 2, 4, 2], &[2, 2, 4, 3]).is_ok());
    refused(
        past(&[1, 2, 4, 2], &[1, 2, 4, 3]),
        &["past k has batch 1", "[2, 2, 3, 2]"],
    );
    refused(
        past(&[2, 2, 4, 2], &[2, 2, 5, 3]),
        &["past k has keys 4", "past v has 5"],
    );
    refused(
        past(&[1, 2, 2, 4, 2], &[2, 2, 4, 3]),
        &["[1, 2, 2, 4, 2]", "5 axes"],
    );
}

#[test]
fn norms_and_positions_that_do_not_fit() {
    let inputs = inputs_of(&[1, 2, 3, 4], &[1, 2, 5, 4], &[1, 2, 5, 1]).unwrap();
    for (count, shown) in [(0, "0 values"), (3, "3 values"), (8, "8 values")] {
        let norm = Some(RmsNorm::new(vec![1.0; count]));
        let block = Block {
            q_norm: norm.clone(),
            ..Block::default()
        };
        let meaning = "one gain for each column";
        refused(
            block.steps(&inputs),
            &["q_norm", shown, "4 needed", meaning],
        );
        let block = Block {
            k_norm: norm,
            ..Block::default()
        };
        refused(
            block.steps(&inputs),
            &["k_norm", shown, "4 needed", meaning],
        );
    }
    let rotary = |rotary: Rotary, place: Place| {
        let block = Block {
            rotary: Some(rotary),
            place,
            ..Block::default()
        };
        block.steps(&inputs)
    };
    let counted = Place::default;
    for dim in [0, 1, 3, 5, 6, usize::MAX] {
        let odd = Rotary {
            dim: Some(dim),
            ..Rotary::default()
        };
        refused(
            rotary(odd, counted()),
            &["rotary dim", &dim.to_string(), "even"],
        );
    }
    for base in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let base = Rotary {
            base,
            pairing: Pairing::Interleaved,
            ..Rotary::default()
        };
        refused(rotary(base, counted()), &["rotary base", "above 0"]);
        let scaled = Rotary {
            scaling: Scaling::Linear { factor: base.base },
            ..Rotary::default()
        };
        refused(
            rotary(scaled, counted()),
            &["rotary scaling", "factor", "above 0"],
        );
    }
    // Five keys, three queries: one list cannot serve both.
    let given = Place::Given(vec![vec![0, 1, 2]]);
    refused(
        rotary(Rotary::default(), given),
        &["positions", "3 values", "5 needed", "each token"],
    );
    let given = Place::Given(vec![]);
    refused(
        rotary(Rotary::default(), given),
        &["positions", "0 values", "1 needed"],
    );
    for start in [i64::MAX, i64::MIN, 1 << 60] {
        let far = rotary(Rotary::default(), Place::Counted { start });
        refused(far, &["positions", "2^53"]);
    }
    for name in ["q", "heads"] {
        let flat = x(&[2, 3]);
        refused(
            split_heads(&flat, 1, name),
            &[name, "[2, 3]", "3 are needed"],
        );
        refused(merge_heads(&flat), &["heads", "[2, 3]", "4 are needed"]);
    }
}

/// A layer's cache given with fewer axes means the same, also for the positions after it.
#[test]
fn a_cache_of_fewer_axes() {
    let mut layer = layer();
    (layer.heads, layer.kv_heads) = (4, 1);
    layer.k = linear("W_K", [6, 2]);
    layer.v = linear("W_V", [6, 3]);
    layer.sinusoidal = Some(2);
    let mut rng = Rng(4);
    let (tokens, k, v) = (rng.reals(6), rng.reals(8), rng.reals(12));
    let tokens = tensor(&[1, 1, 6], &tokens);
    let run = |shape_k: &[usize], shape_v: &[usize]| {
        let (k, v) = (tensor(shape_k, &k), tensor(shape_v, &v));
        layer.steps(&tokens, None, Some((&k, &v))).unwrap()
    };
    let full = run(&[1, 1, 4, 2], &[1, 1, 4, 3]);
    assert_eq!(run(&[1, 4, 2], &[1, 4, 3]), full);
    assert_eq!(run(&[4, 2], &[4, 3]), full);
    // The first new token stands at 2 + 4.
    let table = qkv::position::sinusoidal(1, 6, 6);
    let positioned = full.get(StepName::XPositioned).unwrap();
    for c in 0..6 {
        assert_eq!(positioned.data()[c], tokens.data()[c] + table.data()[c]);
    }
}
