//! Problems with every option, drawn from a seed.

pub mod numbers;
pub mod page;
pub mod same;

use qkv::position::{Pairing, Rotary, Scaling};
use qkv::{
    Alibi, Attention, Bias, Block, Causal, Documents, Dropout, Inputs, KeyLengths, Layer, Linear,
    Mask, RmsNorm, Scale, Sinks, StepName, Steps, Tensor, View, Window,
};
use qkv_check::permute::{Source, permute};
use qkv_check::{contrast, decode, next_token};
use qkv_report::{Backward, Lang, More, Origin, Settings, Subject};

/// A small generator: xorshift64*.
pub struct Draw(u64);

impl Draw {
    pub fn new(seed: u64) -> Draw {
        Draw((seed + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    pub fn sometimes(&mut self) -> bool {
        self.below(3) == 0
    }

    /// From −2 to 2: a tenth, a whole number, or with all digits.
    pub fn number(&mut self) -> f64 {
        let fine = self.next() as f64 / (1_u64 << 48) as f64 * 4.0 - 2.0;
        match self.below(4) {
            0 => fine.round(),
            1 => fine,
            _ => (fine * 10.0).round() / 10.0,
        }
    }

    pub fn numbers(&mut self, n: usize) -> Vec<f64> {
        (0..n).map(|_| self.number()).collect()
    }

    pub fn tensor(&mut self, shape: &[usize]) -> Tensor<f64> {
        let n = shape.iter().product();
        Tensor::new(shape, self.numbers(n)).unwrap()
    }

    fn linear(&mut self, name: &'static str, shape: [usize; 2]) -> Linear {
        let weight = self.tensor(&shape);
        let bias = self.sometimes().then(|| self.numbers(shape[1]));
        Linear::new(name, weight, bias).unwrap()
    }
}

/// What `with_problem` hands over.
pub struct Problem<'a> {
    pub subject: Subject<'a>,
    /// The inputs of attention, for problems without projections.
    pub inputs: Option<Inputs<'a, f64>>,
    /// Cached keys and values of problems with projections.
    pub past: Option<(&'a Tensor<f64>, &'a Tensor<f64>)>,
}

/// Calls `check` with the problem's subject and its gradient: from ones, or from drawn numbers.
pub fn with_gradient(problem: &Problem<'_>, seed: u64, check: impl FnOnce(&Subject<'_>)) {
    let subject = &problem.subject;
    let (_, result) = subject.steps.result().unwrap();
    let given = !seed.is_multiple_of(3);
    let grad = match given {
        true => Draw::new(seed + 1_000).tensor(result.shape()),
        false => Tensor::new(result.shape(), vec![1.0; result.data().len()]).unwrap(),
    };
    let (gradients, difference) = match (subject.origin, &problem.inputs) {
        (Origin::Projected { layer, x, context }, _) => {
            let past_len = subject.past_len;
            let gradients = layer
                .gradients(subject.steps, x, context, past_len, &grad)
                .unwrap();
            let difference = layer
                .finite_difference(x, context, problem.past, &grad, &gradients)
                .unwrap();
            (gradients, difference)
        }
        (Origin::Given | Origin::Split, Some(inputs)) => {
            let block = subject.block;
            let gradients = block
                .gradients(subject.steps, subject.past_len, &grad)
                .unwrap();
            let difference = block.finite_difference(inputs, &grad, &gradients).unwrap();
            (gradients, difference)
        }
        (Origin::Given | Origin::Split, None) => return,
    };
    check(&Subject {
        backward: Some(Backward {
            gradients: &gradients,
            difference: difference.as_ref(),
            given,
        }),
        ..subject.clone()
    });
}

/// Draws a problem and calls `check` with it.
pub fn with_problem(seed: u64, check: impl FnOnce(&Problem<'_>)) {
    let draw = &mut Draw::new(seed);
    let batch = 1 + draw.below(2);
    let kv_heads = 1 + draw.below(2);
    let heads = kv_heads * (1 + draw.below(2));
    let dk = 2 * (1 + draw.below(2));
    let dv = 1 + draw.below(3);
    let queries = 1 + draw.below(4);
    let projected = draw.below(2) == 0;
    let cross = projected && draw.sometimes();
    let new = match projected && !cross {
        true => queries,
        false => 1 + draw.below(5),
    };
    let past = if draw.sometimes() {
        1 + draw.below(2)
    } else {
        0
    };
    let keys = new + past;

    let bias_data = draw.numbers(queries * keys);
    let mask_data: Vec<bool> = (0..queries * keys).map(|_| draw.below(4) > 0).collect();
    let drop_data: Vec<bool> = (0..keys).map(|_| draw.below(5) == 0).collect();
    let mut attention = Attention::default();
    if draw.sometimes() {
        attention.scale = Scale::Factor(draw.number());
    }
    if draw.sometimes() {
        attention.softcap = Some(3.0 + draw.number());
    }
    if draw.sometimes() {
        let view = View::new(&bias_data, &[queries, keys]).unwrap();
        attention.bias = Some(Bias(view.into()));
    }
    if draw.sometimes() {
        attention.alibi = Some(Alibi {
            slopes: (0..heads).map(|h| 0.5_f64.powi(h as i32 + 1)).collect(),
        });
    }
    if draw.sometimes() {
        let view = View::new(&mask_data, &[queries, keys]).unwrap();
        attention.masks.push(Mask::keep(view));
    }
    if draw.sometimes() {
        let view = View::new(&drop_data, &[1, keys]).unwrap();
        attention.masks.push(Mask::drop(view));
    }
    attention.causal = match draw.below(8) {
        0 if queries == keys => Some(Causal::Square),
        0 | 1 => Some(Causal::TopLeft),
        2 => Some(Causal::BottomRight),
        3 => Some(Causal::Offset(draw.below(4) as i64 - 1)),
        _ => None,
    };
    if draw.sometimes() {
        attention.window = Some(Window {
            back: draw.sometimes().then(|| draw.below(3)),
            forward: (!draw.sometimes()).then(|| draw.below(3)),
        });
    }
    if draw.sometimes() {
        let lengths = (0..batch).map(|_| draw.below(keys + 1)).collect();
        attention.lengths = Some(KeyLengths(lengths));
    } else if attention.causal != Some(Causal::Square) && queries > 1 && keys > 1 {
        let documents =
            Documents::with_key_lengths(vec![1, queries - 1], vec![keys - 1, 1]).unwrap();
        attention.documents = Some(documents);
    }
    if draw.sometimes() {
        attention.sinks = Some(Sinks(draw.numbers(heads)));
    }
    if draw.sometimes() {
        attention.dropout = Some(Dropout { p: 0.25, seed });
    }
    let mut block = Block {
        attention,
        concatenate: draw.sometimes(),
        ..Block::default()
    };
    if draw.sometimes() {
        block.q_norm = Some(RmsNorm::new(draw.numbers(dk)));
    }
    if draw.sometimes() {
        block.k_norm = Some(RmsNorm::new(draw.numbers(dk)));
    }
    if draw.sometimes() {
        block.rotary = Some(Rotary {
            pairing: match draw.below(2) {
                0 => Pairing::Halves,
                _ => Pairing::Interleaved,
            },
            dim: draw.sometimes().then_some(2),
            scaling: match draw.below(4) {
                0 => Scaling::Linear { factor: 2.0 },
                // Pairs that are kept, divided and in between.
                1 => Scaling::Llama3 {
                    factor: 4.0,
                    low_freq_factor: 1.0,
                    high_freq_factor: 1.0 + 4.0 * (1 + draw.below(3)) as f64,
                    original_length: 30.0,
                },
                _ => Scaling::None,
            },
            ..Rotary::default()
        });
    }
    let past_k = draw.tensor(&[batch, kv_heads, past, dk]);
    let past_v = draw.tensor(&[batch, kv_heads, past, dv]);

    if !projected {
        let q = draw.tensor(&[batch, heads, queries, dk]);
        let k = draw.tensor(&[batch, kv_heads, new, dk]);
        let v = draw.tensor(&[batch, kv_heads, new, dv]);
        let mut inputs =
            Inputs::new(q.view().unwrap(), k.view().unwrap(), v.view().unwrap()).unwrap();
        if past > 0 {
            inputs = inputs
                .with_past(past_k.view().unwrap(), past_v.view().unwrap())
                .unwrap();
        }
        let steps = block.steps(&inputs).unwrap();
        let source = (past == 0 && queries == new).then_some(Source::Given {
            block: &block,
            q: &q,
            k: &k,
            v: &v,
        });
        check(&Problem {
            subject: Subject {
                more: more(draw, &block, &steps, source),
                ..subject(&block, &steps, Origin::Given, past)
            },
            inputs: Some(inputs),
            past: None,
        });
        return;
    }
    let width = 1 + draw.below(3);
    block.output = (!draw.sometimes()).then(|| draw.linear("W_O", [heads * dv, width]));
    let context_width = 1 + draw.below(3);
    let kv_width = if cross { context_width } else { width };
    let layer = Layer {
        q: draw.linear("W_Q", [width, heads * dk]),
        k: draw.linear("W_K", [kv_width, kv_heads * dk]),
        v: draw.linear("W_V", [kv_width, kv_heads * dv]),
        heads,
        kv_heads,
        sinusoidal: draw.sometimes().then(|| draw.below(3)),
        residual: block.output.is_some() && draw.sometimes(),
        block,
    };
    let x = draw.tensor(&[batch, queries, width]);
    let context = cross.then(|| draw.tensor(&[batch, new, context_width]));
    let cached = (past > 0).then_some((&past_k, &past_v));
    let steps = layer.steps(&x, context.as_ref(), cached).unwrap();
    let alone = context.is_none() && past == 0;
    let source = alone.then_some(Source::Tokens {
        layer: &layer,
        x: &x,
    });
    let origin = Origin::Projected {
        layer: &layer,
        x: &x,
        context: context.as_ref(),
    };
    check(&Problem {
        subject: Subject {
            more: more(draw, &layer.block, &steps, source),
            ..subject(&layer.block, &steps, origin, past)
        },
        inputs: None,
        past: cached,
    });
}

/// What else to show; `source` is what can be run in another order.
fn more(draw: &mut Draw, block: &Block<'_>, steps: &Steps, source: Option<Source<'_>>) -> More {
    let mut more = More::default();
    if draw.sometimes() {
        let width = 1 + draw.below(9);
        more.contrast = contrast(&block.attention, steps, width).unwrap();
    }
    let shape = steps.get(StepName::Scores).unwrap().shape();
    if let (&[1, _, queries, keys], true) = (shape, draw.sometimes()) {
        let words = [
            "the",
            "ネコ",
            " a_b*",
            "\u{1b}|",
            "internationalisation",
            "e\u{301}",
            "<&>",
        ];
        more.tokens = (0..keys).map(|j| words[j % words.len()].into()).collect();
        if queries <= keys {
            more.next_token = next_token(&block.attention, steps);
        }
    }
    if let Some(source) = source {
        let tokens = steps.get(StepName::Q).unwrap().shape()[2];
        let order: Vec<usize> = (0..tokens).rev().collect();
        more.permuted = Some(permute(source, steps, &order).unwrap());
    } else {
        more.decoded = decode::against_one_call(block, steps).unwrap();
    }
    more
}

pub fn subject<'a>(
    block: &'a Block<'a>,
    steps: &'a Steps,
    origin: Origin<'a>,
    past_len: usize,
) -> Subject<'a> {
    Subject {
        block,
        steps,
        origin,
        past_len,
        backward: None,
        more: More::default(),
        built_in: false,
        notes: Vec::new(),
    }
}

/// Calls `check` with plain attention over three matrices of two axes.
pub fn with_matrices(
    block: &Block<'_>,
    [q, k, v]: [(&[f64], [usize; 2]); 3],
    check: impl FnOnce(&Subject<'_>),
) {
    let inputs = Inputs::new(
        View::new(q.0, &q.1).unwrap(),
        View::new(k.0, &k.1).unwrap(),
        View::new(v.0, &v.1).unwrap(),
    )
    .unwrap();
    let steps = block.steps(&inputs).unwrap();
    check(&subject(block, &steps, Origin::Given, 0));
}

pub fn settings(lang: Lang, width: usize) -> Settings {
    Settings {
        lang,
        width,
        ..Settings::default()
    }
}
