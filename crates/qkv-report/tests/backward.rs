//! What the text says of the gradient.
#![allow(clippy::unwrap_used, clippy::panic)]

#[allow(dead_code)]
mod common;

use common::same::{BOTH, line_widths, same_lines};
use common::{Draw, settings, subject, with_gradient, with_problem};
use qkv::{Attention, Block, Causal, Inputs, Layer, Linear, Mask, Scale, Sinks, Tensor, View};
use qkv_report::{Backward, Lang, Origin, Settings, Subject, json, text};

#[track_caller]
fn has(text: &str, what: &str) {
    assert!(text.contains(what), "no {what:?} in\n{text}");
}

fn tensor(shape: &[usize], data: &[f64]) -> Tensor<f64> {
    Tensor::new(shape, data.to_vec()).unwrap()
}

/// Calls `check` with a block's run and its gradient, from `grad` or ones.
fn with_block(
    block: &Block<'_>,
    [q, k, v]: [&Tensor<f64>; 3],
    grad: Option<&Tensor<f64>>,
    check: impl FnOnce(&Subject<'_>),
) {
    let inputs = Inputs::new(q.view().unwrap(), k.view().unwrap(), v.view().unwrap()).unwrap();
    let steps = block.steps(&inputs).unwrap();
    let (_, result) = steps.result().unwrap();
    let ones = Tensor::new(result.shape(), vec![1.0; result.data().len()]).unwrap();
    let gradients = block.gradients(&steps, 0, grad.unwrap_or(&ones)).unwrap();
    let difference = block
        .finite_difference(&inputs, grad.unwrap_or(&ones), &gradients)
        .unwrap();
    check(&Subject {
        backward: Some(Backward {
            gradients: &gradients,
            difference: difference.as_ref(),
            given: grad.is_some(),
        }),
        ..subject(block, &steps, Origin::Given, 0)
    });
}

fn built_in(grad: Option<&[f64]>, check: impl FnOnce(&Subject<'_>)) {
    let identity = tensor(&[1, 1, 2, 2], &[1.0, 0.0, 0.0, 1.0]);
    let v = tensor(&[1, 1, 2, 2], &[2.0, 0.0, 0.0, 4.0]);
    let grad = grad.map(|grad| tensor(&[1, 1, 2, 2], grad));
    let inputs = [&identity, &identity, &v];
    with_block(&Block::default(), inputs, grad.as_ref(), check);
}

#[track_caller]
fn gradient_is(subject: &Subject<'_>, name: &str, expected: &[f64]) {
    let gradients = subject.backward.unwrap().gradients;
    let (_, found) = gradients
        .iter()
        .find(|(other, _)| other.as_str() == name)
        .unwrap();
    let close = |(found, expected): (&f64, &f64)| (found - expected).abs() < 5e-8;
    assert!(
        found.data().len() == expected.len() && found.data().iter().zip(expected).all(close),
        "{name}: {found:?}, expected {expected:?}"
    );
}

/// By hand, with grad_output 1 everywhere. The weights are w = 1/(1 + exp(−1/√2)) = 0.66976155 on
/// the diagonal and 1 − w = 0.33023845 beside it.
///
/// ```text
/// dV[j]  = w_0j + w_1j                                    = 1 everywhere
/// dP     = [1 1]·Vᵀ                                       = [2 4; 2 4]
/// δ      = 2w + 4(1−w), 2(1−w) + 4w                       = 2.66047690, 3.33952310
/// dS     = w(2 − δ_0), (1−w)(4 − δ_0); …                  = ∓0.44236203 in both rows
/// d(QKᵀ) = dS/√2                                          = ∓0.31279719
/// dQ     = d(QKᵀ)·K = d(QKᵀ), for K = 1
/// dK     = d(QKᵀ)ᵀ·Q                                      = −0.31279719 twice, then +
/// ```
#[test]
fn ones_by_hand() {
    let d = 0.312_797_19;
    built_in(None, |subject| {
        gradient_is(subject, "grad_v", &[1.0; 4]);
        gradient_is(subject, "grad_weights", &[2.0, 4.0, 2.0, 4.0]);
        gradient_is(subject, "delta", &[2.660_476_90, 3.339_523_10]);
        gradient_is(subject, "grad_q", &[-d, d, -d, d]);
        gradient_is(subject, "grad_k", &[-d, -d, d, d]);
        for lang in BOTH {
            let text = text(subject, &settings(lang, 80));
            for line in [
                "dv[0,0] = 0.6698·1 + 0.3302·1 = 1",
                "dp[0,1] = 1·0 + 1·4 = 4",
                "δ[0] = 0.6698·2 + 0.3302·4 ≈ 2.6605",
                "do0·o0 = 1·1.3395 + 1·1.3210 ≈ 2.6605",
                "ds[0,0] = 0.6698·(2 − 2.6605) ≈ −0.4424",
                "Σ ds[0,·] = −0.4424 + 0.4424 = 0",
                "d(q0·k1) = 0.4424/√2 ≈ 0.4424/1.4142 ≈ 0.3128",
                "dq[0,1] = (−0.3128)·0 + 0.3128·1 ≈ 0.3128",
                "dk[0,1] = (−0.3128)·0 + (−0.3128)·1 ≈ −0.3128",
                "L(q[0,0] + h) ≈ 5.9996872404",
                "L(q[0,0] − h) ≈ 6.0003128347",
                "(L(+h) − L(−h))/2h = (−6.256×10⁻⁴)/0.002 ≈ −0.3128",
            ] {
                has(&text, line);
            }
        }
        let english = text(subject, &settings(Lang::En, 80));
        has(&english, "so dO is 1 everywhere");
        has(&english, "7 digits agree");
        has(&text(subject, &settings(Lang::Zh, 80)), "有7位数字相同");
    });
}

/// By hand, with grad_output [[1,0],[0,0]]: row 1 has no gradient, and in row 0
///
/// ```text
/// dV     = [w 0; 1−w 0]
/// dP     = [2 0], δ = 2w = 1.33952310
/// dS     = w(2 − δ), (1−w)(0 − δ)                         = ±0.44236203, /√2 = ±0.31279719
/// dQ     = [d −d; 0 0], dK = d(QKᵀ)ᵀ·Q                    = [d 0; −d 0]
/// ```
#[test]
fn one_number_by_hand() {
    let (w, d) = (0.669_761_55, 0.312_797_19);
    built_in(Some(&[1.0, 0.0, 0.0, 0.0]), |subject| {
        gradient_is(subject, "grad_v", &[w, 0.0, 1.0 - w, 0.0]);
        gradient_is(subject, "grad_weights", &[2.0, 0.0, 0.0, 0.0]);
        gradient_is(subject, "delta", &[1.339_523_10, 0.0]);
        gradient_is(subject, "grad_q", &[d, -d, 0.0, 0.0]);
        gradient_is(subject, "grad_k", &[d, 0.0, -d, 0.0]);
        let text = text(subject, &settings(Lang::En, 80));
        has(&text, "The gradient of the result was given");
        has(&text, "ds[0,1] = 0.3302·(0 − 1.3395) ≈ −0.4424");
        has(&text, "For query 1, moving weight from one key to another");
    });
}

#[test]
fn without_it_nothing_changes() {
    for seed in 0..40 {
        with_problem(seed, |problem| {
            with_gradient(problem, seed, |subject| {
                for lang in BOTH {
                    let settings = Settings {
                        lang,
                        ..Settings::default()
                    };
                    let plain = text(&problem.subject, &settings);
                    let whole = text(subject, &settings);
                    let forward = plain.split("\n\n").take(3).collect::<Vec<_>>();
                    assert!(whole.starts_with(&forward.join("\n\n")));
                    assert!(whole.len() > plain.len());
                }
                let (plain, mut whole) = (json(&problem.subject), json(subject));
                let object = whole.as_object_mut().unwrap();
                assert!(object.remove("gradients").is_some());
                assert!(object.remove("finite_difference").is_some());
                assert_eq!(plain, whole);
            });
        });
    }
}

#[test]
fn lines_fit_and_languages_agree() {
    for seed in 0..40 {
        with_problem(seed, |problem| {
            with_gradient(problem, seed, |subject| {
                same_lines(subject);
                for lang in BOTH {
                    line_widths(subject, &[40, 80], lang);
                }
            });
        });
    }
}

/// The sentences that a mask, a sink and a single key call for.
#[test]
fn dropped_keys_single_keys_and_sinks() {
    let q = tensor(&[1, 1, 2, 1], &[1.0, 2.0]);
    let v = tensor(&[1, 1, 2, 1], &[3.0, 5.0]);
    let mut block = Block {
        attention: Attention {
            causal: Some(Causal::Square),
            ..Attention::default()
        },
        ..Block::default()
    };
    with_block(&block, [&q, &q, &v], None, |subject| {
        let english = text(subject, &settings(Lang::En, 200));
        has(&english, "For query 0, key 1 is dropped: its weight is 0");
        has(&english, "Query 0 keeps one key only: its weight is 1");
        has(&english, "Each row adds up to 0");
        has(&english, "Key 1 lies above it (dp = 5)");
        let chinese = text(subject, &settings(Lang::Zh, 200));
        has(&chinese, "对查询0来说，键1已被屏蔽");
        has(&chinese, "查询0只保留一个键");
        has(&chinese, "每一行之和为0");
    });
    // s = 1 in row 0; w = e/(e + 1), o = 3w, and the sink gets −(1 − w)·δ of each row.
    block.attention.sinks = Some(Sinks(vec![0.0]));
    with_block(&block, [&q, &q, &v], None, |subject| {
        let english = text(subject, &settings(Lang::En, 200));
        has(&english, "With a sink a row does not add up to 0");
        has(&english, "w_sink[0] = exp(0 − 1)/1.3679 ≈ 0.2689");
        has(&english, "dsink[0] = (−0.2689)·2.1932");
        assert!(!english.contains("its weight is 1 whatever"));
    });
    let nothing = tensor(&[1, 1, 2, 1], &[0.0, 0.0]);
    with_block(&block, [&q, &q, &v], Some(&nothing), |subject| {
        let english = text(subject, &settings(Lang::En, 200));
        has(&english, "Every gradient here is 0");
    });
    let keep = [true, false, false, false];
    block.attention.sinks = None;
    block.attention.causal = None;
    let keep = View::new(&keep, &[2, 2]).unwrap();
    block.attention.masks.push(Mask::keep(keep));
    with_block(&block, [&q, &q, &v], None, |subject| {
        let english = text(subject, &settings(Lang::En, 200));
        has(&english, "Query 1 keeps no key: its output is 0");
        has(&english, "No query keeps key 1");
        has(
            &text(subject, &settings(Lang::Zh, 200)),
            "没有任何查询保留键1",
        );
    });
}

/// Equal values: dp − δ is 0 on paper, whatever the computer's rounding leaves.
#[test]
fn differences_that_are_rounding_are_called_so() {
    let q = tensor(&[1, 1, 1, 1], &[1.0]);
    let k = tensor(&[1, 1, 3, 1], &[0.1, 0.7, -0.4]);
    let v = tensor(&[1, 1, 3, 1], &[0.3; 3]);
    with_block(&Block::default(), [&q, &k, &v], None, |subject| {
        let english = text(subject, &settings(Lang::En, 200));
        has(
            &english,
            "For query 0, moving weight from one key to another",
        );
        assert!(!english.contains("lies above it"), "{english}");
        for line in english.lines() {
            let cancelled = line.contains("×10⁻¹") && line.trim_start().starts_with("ds[");
            assert!(!cancelled || line.contains("0 on paper"), "{line}");
        }
    });
}

#[test]
fn a_layer_gives_its_weights_gradients() {
    // One token: its weight is 1, so W_Q and W_K get nothing and W_V gets xᵀ·dO.
    let linear = |name, data: &[f64]| Linear::new(name, tensor(&[2, 2], data), None).unwrap();
    let identity = [1.0, 0.0, 0.0, 1.0];
    let layer = Layer {
        q: linear("W_Q", &identity),
        k: linear("W_K", &identity),
        v: linear("W_V", &[2.0, 0.0, 0.0, 3.0]),
        heads: 1,
        kv_heads: 1,
        sinusoidal: None,
        block: Block {
            output: Some(linear("W_O", &[0.0, 1.0, 1.0, 0.0])),
            ..Block::default()
        },
        residual: true,
    };
    let x = tensor(&[1, 1, 2], &[1.0, 0.5]);
    let steps = layer.steps(&x, None, None).unwrap();
    // r = x + x·W_V·W_O = [1 + 1.5, 0.5 + 2], L = 10·r_0 + r_1.
    let grad = tensor(&[1, 1, 2], &[10.0, 1.0]);
    let gradients = layer.gradients(&steps, &x, None, 0, &grad).unwrap();
    let difference = layer
        .finite_difference(&x, None, None, &grad, &gradients)
        .unwrap();
    let origin = Origin::Projected {
        layer: &layer,
        x: &x,
        context: None,
    };
    let subject = Subject {
        backward: Some(Backward {
            gradients: &gradients,
            difference: difference.as_ref(),
            given: true,
        }),
        ..subject(&layer.block, &steps, origin, 0)
    };
    for lang in BOTH {
        let text = text(&subject, &settings(lang, 80));
        for line in [
            "L = 2.5·10 + 2.5·1 = 27.5",
            // Z = [2, 1.5].
            "dW_O[1,0] = 1.5·10 = 15",
            "dz[0,0] = 10·0 + 1·1 = 1",
            "dz[0,1] = 10·1 + 1·0 = 10",
            "dW_Q[0,0] = 1·0 = 0",
            "dW_V[1,1] = 0.5·10 = 5",
            // 1·2 from W_V and 10 from the residual.
            "1·2 + 10·0 + 10 = 12",
            // The first gradient that is not 0 is W_V's, 10 at [0,1].
            "L(W_V[0,1] + h) = 27.51",
            "L(+h) − L(−h) = 27.51 − 27.49 = 0.02",
            "(L(+h) − L(−h))/2h = 0.02/0.002 ≈ 10",
        ] {
            has(&text, line);
        }
    }
}

#[test]
fn a_large_input_is_summed_up() {
    let mut draw = Draw::new(12);
    let shape = [1, 4, 128, 64];
    let [q, k, v] = [(); 3].map(|()| draw.tensor(&shape));
    let block = Block {
        attention: Attention {
            causal: Some(Causal::Square),
            scale: Scale::Factor(0.03),
            ..Attention::default()
        },
        ..Block::default()
    };
    with_block(&block, [&q, &k, &v], None, |subject| {
        let english = text(subject, &settings(Lang::En, 80));
        assert!(english.lines().count() < 560, "{}", english.lines().count());
        has(&english, "ds[127,");
        has(&english, "[the other 120 keys together: ");
        has(&english, " more terms …: ");
        assert!(!english.contains("ds[0,"));
        same_lines(subject);
        line_widths(subject, &[40, 80], Lang::Zh);
    });
}

#[test]
fn edges_do_not_panic() {
    let numbers = [
        [0.0; 8],
        [f64::NAN; 8],
        [f64::INFINITY; 8],
        [1e300; 8],
        [1e-300; 8],
        [f64::MAX, -1.0, 1e-9, 5e-324, 1.0, 0.1, 1e16, -3.0],
    ];
    let shapes: [[usize; 6]; 7] = [
        [0, 1, 2, 2, 2, 2],
        [1, 0, 2, 2, 2, 2],
        [1, 1, 0, 2, 2, 2],
        [1, 1, 2, 0, 2, 2],
        [1, 1, 2, 2, 1, 0],
        [2, 2, 1, 2, 1, 1],
        [1, 2, 2, 2, 2, 2],
    ];
    for values in &numbers {
        for [batch, heads, queries, keys, dk, dv] in shapes {
            let tensor = |shape: [usize; 4]| {
                let n: usize = shape.iter().product();
                Tensor::new(&shape, values[..n].to_vec()).unwrap()
            };
            let q = tensor([batch, heads, queries, dk]);
            let k = tensor([batch, heads, keys, dk]);
            let v = tensor([batch, heads, keys, dv]);
            for (causal, concatenate) in [(None, true), (Some(Causal::Offset(-1)), false)] {
                let mut block = Block {
                    concatenate,
                    ..Block::default()
                };
                block.attention.causal = causal;
                block.attention.softcap = concatenate.then_some(2.0);
                block.attention.sinks = concatenate.then(|| Sinks(vec![values[0]; heads]));
                if block.attention.check(&inputs(&q, &k, &v)).is_err() {
                    block.attention.sinks = None;
                }
                with_block(&block, [&q, &k, &v], None, |subject| {
                    for (digits, width) in [(0, 40), (17, 80)] {
                        for lang in BOTH {
                            let settings = Settings {
                                digits,
                                width,
                                lang,
                                rows: (width == 40).then(|| vec![1, 0, 99]),
                                ..Settings::default()
                            };
                            assert!(!text(subject, &settings).contains("-0"));
                        }
                    }
                    json(subject);
                });
            }
        }
    }
}

fn inputs<'a>(q: &'a Tensor<f64>, k: &'a Tensor<f64>, v: &'a Tensor<f64>) -> Inputs<'a, f64> {
    Inputs::new(q.view().unwrap(), k.view().unwrap(), v.view().unwrap()).unwrap()
}
