//! From the bank's problems to the crate's.

use super::naive::{Align, Out, P};
use qkv::position::{Pairing, Rotary, Scaling};
use qkv::{
    Alibi, Attention, Bias, Block, Causal, DType, Documents, Dropout, Element, KeyLengths, Layer,
    Linear, Mask, RmsNorm, Scale, Sinks, StepName, Tensor, View, Window,
};
use qkv_check::{Claim, Problem, Report, check};

/// How often something is drawn, times what the environment asks for.
pub fn times(count: usize) -> usize {
    let factor = std::env::var("QKV_TEST_TIMES")
        .ok()
        .and_then(|n| n.parse().ok());
    count * factor.unwrap_or(1)
}

/// Theirs of a step, rounded to a number format.
pub fn claim(step: StepName, out: &Out, dtype: DType) -> Claim {
    let (shape, values) = match step {
        StepName::Output => (out.output_shape.clone(), &out.output),
        StepName::Weights => (out.weights_shape.clone(), &out.weights),
        StepName::Scores => (out.weights_shape.clone(), &out.scores),
        _ => (out.weights_shape[..3].to_vec(), &out.lse),
    };
    let rounded = values.iter().map(|x| match dtype {
        DType::F64 => *x,
        DType::F32 => f64::from(*x as f32),
        DType::F16 => Element::to_f64(<half::f16 as Element>::from_f64(*x)),
        DType::Bf16 => Element::to_f64(<half::bf16 as Element>::from_f64(*x)),
    });
    let values = Tensor::new(&shape, rounded.collect()).expect("the shape");
    Claim::new(step, values, dtype)
}

/// What `check` says.
pub fn report(p: &P, claims: &[Claim]) -> Report {
    let keep_shape = [p.b, 1, p.lq, p.lk];
    let padding_shape = [p.b, 1, 1, p.lk];
    let bias_shape = [1, p.h, p.lq, p.lk];
    let mut attention = Attention {
        scale: p.scale.map_or(Scale::InverseSqrt, Scale::Factor),
        softcap: p.softcap,
        causal: p.causal.map(|align| match align {
            Align::TopLeft => Causal::TopLeft,
            Align::BottomRight => Causal::BottomRight,
            Align::Offset(n) => Causal::Offset(n),
        }),
        window: p.window.map(|(back, forward)| Window { back, forward }),
        lengths: p.lengths.clone().map(KeyLengths),
        documents: p.docs.clone().map(Documents::new),
        alibi: p.slopes.clone().map(|slopes| Alibi { slopes }),
        sinks: p.sinks.clone().map(Sinks),
        dropout: p.dropout.map(|p| Dropout { p, seed: 5 }),
        ..Attention::default()
    };
    if let Some(keep) = &p.keep {
        let view = View::new(keep, &keep_shape).expect("a view");
        attention.masks.push(Mask::keep(view));
    }
    if let Some(keep) = &p.padding {
        let view = View::new(keep, &padding_shape).expect("a view");
        attention.masks.push(Mask::keep(view));
    }
    if let Some(bias) = &p.bias {
        let view = View::new(bias, &bias_shape).expect("a view");
        attention.bias = Some(Bias(view.into()));
    }
    let (q_norm, k_norm) = match &p.gains {
        Some((q, k)) => (Some(RmsNorm::new(q.clone())), Some(RmsNorm::new(k.clone()))),
        None => (None, None),
    };
    let rotary = p.turn.as_ref().map(|turn| Rotary {
        pairing: match turn.interleaved {
            true => Pairing::Interleaved,
            false => Pairing::Halves,
        },
        base: turn.base,
        dim: turn.dim,
        scaling: Scaling::None,
    });
    let mut block = Block {
        q_norm,
        k_norm,
        rotary,
        attention,
        ..Block::default()
    };
    let Some(t) = &p.tokens else {
        let tensor = |data: &[f64], h: usize, from: usize, to: usize, l: usize, d: usize| {
            let mut part = Vec::new();
            for block in 0..p.b * h {
                part.extend_from_slice(&data[(block * l + from) * d..(block * l + to) * d]);
            }
            Tensor::new(&[p.b, h, to - from, d], part).expect("a tensor")
        };
        let q = tensor(&p.q, p.h, 0, p.lq, p.lq, p.dk);
        let k = tensor(&p.k, p.g, p.past, p.lk, p.lk, p.dk);
        let v = tensor(&p.v, p.g, p.past, p.lk, p.lk, p.dv);
        let past_k = tensor(&p.k, p.g, 0, p.past, p.lk, p.dk);
        let past_v = tensor(&p.v, p.g, 0, p.past, p.lk, p.dv);
        let problem = Problem::Given {
            block: &block,
            q: &q,
            k: &k,
            v: &v,
            past: (p.past > 0).then_some((&past_k, &past_v)),
        };
        return check(&problem, claims).expect("a report");
    };
    let linear = |at: usize, inner: usize, out: usize| {
        let weight = Tensor::new(&[inner, out], t.w[at].clone()).expect("a weight");
        let bias = t.bias.as_ref().map(|bias| bias[at].clone());
        Linear::new("W", weight, bias).expect("a weight")
    };
    block.concatenate = true;
    block.output = t.has_output.then(|| linear(3, p.h * p.dv, t.out));
    let layer = Layer {
        q: linear(0, t.width, p.h * p.dk),
        k: linear(1, t.width, p.g * p.dk),
        v: linear(2, t.width, p.g * p.dv),
        heads: p.h,
        kv_heads: p.g,
        sinusoidal: None,
        block,
        residual: false,
    };
    let x = Tensor::new(&[p.b, p.lq, t.width], t.x.clone()).expect("tokens");
    let problem = Problem::Tokens {
        layer: &layer,
        x: &x,
        context: None,
        past: None,
    };
    check(&problem, claims).expect("a report")
}
