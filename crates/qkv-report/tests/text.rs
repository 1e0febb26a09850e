//! What the text says, and that it fits.
#![allow(clippy::unwrap_used, clippy::panic)]

#[allow(dead_code)]
mod common;

use common::same::{BOTH, line_widths, same_lines};
use common::{Draw, settings, subject, with_matrices, with_problem};
use qkv::{Attention, Block, Causal, Inputs, Layer, Linear, Mask, Scale, Sinks, Tensor, View};
use qkv_report::{Lang, Origin, Settings, Subject, text};

fn of(subject: &Subject<'_>, lang: Lang) -> String {
    text(subject, &settings(lang, 80))
}

#[track_caller]
fn has(text: &str, what: &str) {
    assert!(text.contains(what), "no {what:?} in\n{text}");
}

fn built_in(check: impl FnOnce(&Subject<'_>)) {
    let identity = ([1.0, 0.0, 0.0, 1.0], [2, 2]);
    let v = [2.0, 0.0, 0.0, 4.0];
    let q = (&identity.0[..], identity.1);
    with_matrices(&Block::default(), [q, q, (&v, [2, 2])], |subject| {
        check(&Subject {
            built_in: true,
            ..subject.clone()
        });
    });
}

#[test]
fn the_built_in_example() {
    built_in(|subject| {
        for lang in BOTH {
            let text = of(subject, lang);
            for line in [
                "q0·k0 = 1·1 + 0·0 = 1",
                "s[0,0] = 1/√2 ≈ 1/1.4142 ≈ 0.7071",
                "s[0,1] = 0/√2 = 0",
                "e[0,1] = exp(0 − 0.7071) = exp(−0.7071) ≈ 0.4931",
                "S[0] = 1 + 0.4931 ≈ 1.4931",
                "Σ w[0,·] = 0.6698 + 0.3302 = 1",
                "o[0,0] = 0.6698·2 + 0.3302·0 ≈ 1.3395",
                "o[0,1] = 0.6698·0 + 0.3302·4 ≈ 1.3210",
                "o0  1.3395  1.3210",
                "o1  0.6605  2.6790",
                "q0  0.6698  0.3302",
                "66.98%",
                "softmax(QKᵀ/√d_k + mask)·V",
            ] {
                has(&text, line);
            }
        }
        let english = of(subject, Lang::En);
        has(
            &english,
            "w[0,1] = 0.4931/1.4931 ≈ 0.3302 [shown digits give 0.3303]",
        );
        has(&english, "0.3302·4 ≈ 1.3210 [shown digits give 1.3208]");
        has(&english, "the built-in example");
        has(&english, "Query 0 asks, and key 0 matches it best");
        has(&english, "its output lies nearer to value 0");
        let chinese = of(subject, Lang::Zh);
        has(
            &chinese,
            "0.4931/1.4931 ≈ 0.3302 〔按显示的数字计算得0.3303〕",
        );
        has(&chinese, "内置的例子");
        has(&chinese, "按行做softmax");
        has(&chinese, "输出离值0比离另一个值更近");
    });
}

#[test]
fn more_digits_and_fewer() {
    built_in(|subject| {
        for (digits, weight) in [(0, "1"), (2, "0.67"), (6, "0.669762"), (17, "0.66976154")] {
            for lang in BOTH {
                let settings = Settings {
                    digits,
                    ..settings(lang, 80)
                };
                has(&text(subject, &settings), weight);
            }
        }
    });
}

/// What a line of several formulas says where its digits do not give the next.
#[test]
fn every_link_of_a_line_is_true_from_its_digits() {
    let lines = |q: &[f64], k: &[f64], width: usize, digits: usize| {
        let keys = k.len() / width;
        let v: Vec<f64> = (0..keys).map(|j| j as f64).collect();
        let three = [(q, [1, width]), (k, [keys, width]), (&v[..], [keys, 1])];
        let mut out = String::new();
        with_matrices(&Block::default(), three, |subject| {
            let settings = Settings {
                digits,
                ..settings(Lang::En, 200)
            };
            out = text(subject, &settings);
        });
        out
    };
    let text = lines(&[-3.0, -1.0], &[-3.0, -3.0, -1.0, -3.0, 2.0, -1.0], 2, 4);
    has(
        &text,
        "e[0,1] = exp(4.2426 − 8.4853) ≈ exp(−4.2426) ≈ 0.0144 [shown digits give \
         4.2426 − 8.4853 = −4.2427]",
    );
    has(&text, "exp(−3.5355 − 8.4853) = exp(−12.0208)");
    has(&lines(&[1.0, 0.0], &[1.0, 0.0], 2, 0), "1/√2 ≈ 1/1 ≈ 1");
    let text = lines(&[-1.73, 0.0, 0.0], &[1.0, 0.0, 0.0], 3, 2);
    has(&text, "s[0,0] = −1.73/√3 ≈ −1.73/1.73 ≈ −1.00\n");
    let text = lines(&[1.673_891, 0.0], &[1.0, 0.0], 2, 6);
    has(&text, "give 1.673891/1.414214 ≈ 1.183619: ");
    let text = lines(&[1.0, 0.0], &[1.0, 0.0], 2, 17);
    has(&text, "1/√2 ≈ 1/1.4142135623730951 ≈ 0.7071067811865475\n");
    let text = lines(&[f64::NEG_INFINITY, 1.0], &[1.0, 0.0, 0.1, 2.0], 2, 4);
    has(&text, "s[0,1] = −∞/√2 = −∞/1.4142 = −∞");
}

#[test]
fn no_line_is_wider_than_asked() {
    for seed in 0..60 {
        with_problem(seed, |problem| {
            for lang in BOTH {
                line_widths(&problem.subject, &[40, 60, 80, 120], lang);
            }
        });
    }
    built_in(|subject| {
        for lang in BOTH {
            line_widths(subject, &[40, 60, 80, 120], lang);
        }
    });
}

#[test]
fn both_languages_say_as_much() {
    for seed in 0..120 {
        with_problem(seed, |problem| same_lines(&problem.subject));
    }
}

/// Row 1 of B018: no key left.
#[test]
fn an_empty_row_is_listed() {
    let (zero, v) = ([0.0; 3], [1.0, 2.0, 6.0]);
    let keep = [true, true, true, false, false, false, true, true, true];
    let mut block = Block::default();
    block
        .attention
        .masks
        .push(Mask::keep(View::new(&keep, &[3, 3]).unwrap()));
    let three = [(&zero[..], [3, 1]), (&zero[..], [3, 1]), (&v[..], [3, 1])];
    with_matrices(&block, three, |subject| {
        let english = of(subject, Lang::En);
        has(
            &english,
            "row 1 keeps no key (fully masked): zero weights, zero output, lse −∞",
        );
        has(
            &english,
            "query 1 keeps no key; drops keys 0–2 (the keep mask says 0)",
        );
        has(&english, "o[0,0] = 0.3333·1 + 0.3333·2 + 0.3333·6 ≈ 3");
        let chinese = of(subject, Lang::Zh);
        has(&chinese, "第1行没有保留任何键（全部屏蔽）");
    });
}

/// B003: more queries than keys under bottom-right causal.
#[test]
fn top_rows_of_a_bottom_right_mask() {
    let block = Block {
        attention: Attention {
            causal: Some(Causal::BottomRight),
            ..Attention::default()
        },
        ..Block::default()
    };
    let (q, k, v) = ([0.0; 5], [0.0; 2], [10.0, 20.0]);
    let three = [(&q[..], [5, 1]), (&k[..], [2, 1]), (&v[..], [2, 1])];
    with_matrices(&block, three, |subject| {
        let english = of(subject, Lang::En);
        has(&english, "Causal, bottom-right: the offset is −3");
        has(&english, "o[4,0] = 0.5·10 + 0.5·20 = 15");
        for row in 0..3 {
            has(&english, &format!("row {row} keeps no key (fully masked)"));
        }
        has(
            &of(subject, Lang::Zh),
            "右下对齐（bottom-right）：偏移量为−3",
        );
    });
}

/// B022: a NaN is named and reported.
#[test]
fn a_nan_is_traced_to_its_input() {
    let q = [1.0, f64::NAN, 1.0];
    let (k, v) = ([1.0, 2.0], [1.0, 2.0]);
    let three = [(&q[..], [3, 1]), (&k[..], [2, 1]), (&v[..], [2, 1])];
    with_matrices(&Block::default(), three, |subject| {
        has(
            &of(subject, Lang::En),
            "row 1 is NaN because query 1 holds NaN",
        );
        has(&of(subject, Lang::Zh), "第1行是NaN，因为查询1含有NaN");
    });
}

/// B025: fine here, an overflow in half precision.
#[test]
fn half_precision_would_overflow() {
    let q = [256.0; 128];
    let mut k = vec![256.0; 128];
    k.extend([0.999 * 256.0; 128]);
    let v = [1.0, 2.0];
    let three = [(&q[..], [1, 128]), (&k[..], [2, 128]), (&v[..], [2, 1])];
    with_matrices(&Block::default(), three, |subject| {
        let english = of(subject, Lang::En);
        has(&english, "8388608");
        has(&english, "741455.2");
        has(&english, "a half-precision pipeline");
        let chinese = text(subject, &settings(Lang::Zh, 200));
        has(&chinese, "半精度的程序在这里会溢出");
    });
}

/// B049: 14 query heads, 2 kv heads.
#[test]
fn a_query_head_names_its_kv_head() {
    let mut draw = Draw::new(49);
    let (q, kv) = (draw.tensor(&[1, 14, 2, 2]), draw.tensor(&[1, 2, 2, 2]));
    let (q, kv) = (q.view().unwrap(), kv.view().unwrap());
    let block = Block::default();
    let steps = block.steps(&Inputs::new(q, kv, kv).unwrap()).unwrap();
    let subject = subject(&block, &steps, Origin::Given, 0);
    let wide = |lang| text(&subject, &settings(lang, 2000));
    has(&wide(Lang::En), "head 9 (kv head 1)");
    has(&wide(Lang::Zh), "头9（键值头1）");
}

fn linear(name: &'static str, shape: [usize; 2], weight: &[f64]) -> Linear {
    Linear::new(name, Tensor::new(&shape, weight.to_vec()).unwrap(), None).unwrap()
}

/// B103: a learner's example from X.
#[test]
fn a_layer_from_tokens() {
    let x = Tensor::new(&[1, 3, 2], vec![1.0, 0.0, 0.0, 2.0, 1.0, 1.0]).unwrap();
    let identity = [1.0, 0.0, 0.0, 1.0];
    let layer = Layer {
        q: linear("W_Q", [2, 2], &identity),
        k: linear("W_K", [2, 2], &[1.0, 1.0, 0.0, 1.0]),
        v: linear("W_V", [2, 2], &identity),
        heads: 1,
        kv_heads: 1,
        sinusoidal: None,
        block: Block::default(),
        residual: false,
    };
    let steps = layer.steps(&x, None, None).unwrap();
    let origin = Origin::Projected {
        layer: &layer,
        x: &x,
        context: None,
    };
    let subject = subject(&layer.block, &steps, origin, 0);
    for lang in BOTH {
        let settings = Settings {
            digits: 6,
            ..settings(lang, 80)
        };
        let text = text(&subject, &settings);
        for line in [
            "(3,2)·(2,2) → (3,2)",
            "k1  0  2",
            "q0  0.401112  0.197776  0.401112",
            "q1  0.108383  0.445808  0.445808",
            "q2  0.248255  0.248255  0.503490",
            "o0  0.802224  0.796664",
            "o1  0.554192  1.337425",
            "o2  0.751745  1",
        ] {
            has(&text, line);
        }
    }
    let english = of(&subject, Lang::En);
    has(&english, "k[2,1] = x2·W_K column 1 = 1·1 + 1·1 = 2");
    has(
        &english,
        "queries, keys and values are all made from the same",
    );
    has(
        &of(&subject, Lang::Zh),
        "k[2,1] = x2·W_K第1列 = 1·1 + 1·1 = 2",
    );
}

/// B105: no projections.
#[test]
fn x_as_queries_keys_and_values() {
    let x = [1.0, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0];
    let x = (&x[..], [3, 4]);
    with_matrices(&Block::default(), [x, x, x], |subject| {
        for lang in BOTH {
            let settings = Settings {
                digits: 6,
                ..settings(lang, 80)
            };
            let text = text(subject, &settings);
            has(&text, "0.506480  0.186324  0.307196");
            has(&text, "0.232697  0.383652  0.383652");
            has(&text, "o0  0.506480  0.493520  0.307196  0.813676");
        }
        has(&of(subject, Lang::En), "Q, K and V were given as they are");
    });
}

/// B107: one row, in plain sentences with the run's numbers.
#[test]
fn one_row_chosen() {
    let x = [1.0, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0];
    let x = (&x[..], [3, 4]);
    with_matrices(&Block::default(), [x, x, x], |subject| {
        let settings = Settings {
            rows: Some(vec![1]),
            ..settings(Lang::En, 80)
        };
        let text = text(subject, &settings);
        has(&text, "Query 1 asks");
        has(
            &text,
            "Query 1 gives the same share, 38.37%, to each of keys 1, 2",
        );
        has(&text, "Row 1 puts");
        assert!(
            !text.contains("o[0,0]") && !text.contains("Query 0"),
            "{text}"
        );
    });
}

/// B108: one step after a prompt of three.
#[test]
fn a_decode_step() {
    let q = Tensor::new(&[1, 1, 1, 2], vec![1.0, 0.5]).unwrap();
    let past = Tensor::new(&[1, 1, 3, 2], vec![1.0, 0.0, 0.0, 1.0, 1.0, 1.0]).unwrap();
    let inputs = Inputs::new(q.view().unwrap(), q.view().unwrap(), q.view().unwrap())
        .unwrap()
        .with_past(past.view().unwrap(), past.view().unwrap())
        .unwrap();
    let block = Block::default();
    let steps = block.steps(&inputs).unwrap();
    let subject = subject(&block, &steps, Origin::Given, 3);
    let english = text(&subject, &settings(Lang::En, 200));
    has(&english, "This step brings 1 new query row");
    has(&english, "K and V grow from 3 to 4 rows");
    has(&text(&subject, &settings(Lang::Zh, 200)), "从3行增加到4行");
}

#[test]
fn sinks_take_their_share() {
    let block = Block {
        attention: Attention {
            sinks: Some(Sinks(vec![0.0])),
            ..Attention::default()
        },
        ..Block::default()
    };
    let zero = (&[0.0, 0.0][..], [2, 1]);
    with_matrices(&block, [zero, zero, zero], |subject| {
        let english = of(subject, Lang::En);
        has(&english, "S[0] = 1 + 1 + 1 = 3");
        has(&english, "33.33% goes to the sink");
        has(&english, "adds up to less than 1");
        has(&of(subject, Lang::Zh), "33.33%归sink");
    });
}

#[test]
fn a_large_input_is_summed_up() {
    let mut draw = Draw::new(12);
    let shape = [1, 12, 512, 64];
    let (q, k, v) = (
        draw.tensor(&shape),
        draw.tensor(&shape),
        draw.tensor(&shape),
    );
    let inputs = Inputs::new(q.view().unwrap(), k.view().unwrap(), v.view().unwrap()).unwrap();
    let block = Block {
        attention: Attention {
            causal: Some(Causal::Square),
            scale: Scale::Factor(0.03),
            ..Attention::default()
        },
        ..Block::default()
    };
    let steps = block.steps(&inputs).unwrap();
    let subject = subject(&block, &steps, Origin::Given, 0);
    let english = of(&subject, Lang::En);
    // A few screens, a dozen lines of which tell how to read the formulas.
    assert!(english.lines().count() < 320, "{}", english.lines().count());
    has(&english, "--row I");
    has(
        &english,
        "Shape of scores: [1, 12, 512, 512] = batch, heads, queries, keys",
    );
    has(&english, "[… 58 more terms …: ");
    has(&english, "[the other 504 keys together: ");
    has(&english, "9 more heads are not drawn");
    has(&english, "█ = the largest");
    has(&english, "Query 511");
    line_widths(&subject, &[40, 80], Lang::En);
    line_widths(&subject, &[40, 80], Lang::Zh);
    let chosen = Settings {
        rows: Some(vec![3]),
        ..settings(Lang::Zh, 80)
    };
    has(&text(&subject, &chosen), "m[3]");
}

#[test]
fn edges_do_not_panic() {
    let numbers = [
        vec![0.0; 8],
        vec![f64::NAN; 8],
        vec![f64::INFINITY; 8],
        vec![f64::NEG_INFINITY; 8],
        vec![1e300; 8],
        vec![1e-300; 8],
        vec![-0.0; 8],
        vec![
            f64::MAX,
            -1.0,
            f64::MIN_POSITIVE,
            1e-9,
            5e-324,
            1.0,
            0.1,
            1e16,
        ],
    ];
    let shapes: [[usize; 6]; 8] = [
        [0, 1, 2, 2, 2, 2],
        [1, 0, 2, 2, 2, 2],
        [1, 1, 0, 2, 2, 2],
        [1, 1, 2, 0, 2, 2],
        [1, 1, 2, 2, 1, 0],
        [1, 1, 1, 1, 1, 1],
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
            let inputs =
                Inputs::new(q.view().unwrap(), k.view().unwrap(), v.view().unwrap()).unwrap();
            for causal in [None, Some(Causal::TopLeft), Some(Causal::Offset(-5))] {
                let block = Block {
                    attention: Attention {
                        causal,
                        ..Attention::default()
                    },
                    concatenate: true,
                    ..Block::default()
                };
                let steps = block.steps(&inputs).unwrap();
                let subject = subject(&block, &steps, Origin::Given, 0);
                for (digits, width) in [(0, 40), (4, 80), (17, 40), (17, 0), (400, 80)] {
                    for lang in BOTH {
                        let settings = Settings {
                            digits,
                            width,
                            lang,
                            rows: (width == 40).then(|| vec![1, 0, 1, 99]),
                            ..Settings::default()
                        };
                        assert!(!text(&subject, &settings).contains("-0"));
                    }
                }
            }
        }
    }
}
