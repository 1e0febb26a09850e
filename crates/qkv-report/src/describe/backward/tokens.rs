//! What the projections' weights and biases get, and the tokens that they read.

use super::Back;
use super::linear::{Product, push_product};
use crate::describe::projection::shown_entries;
use crate::describe::run::worked;
use crate::entry::Number;
use crate::explanation::{Block, Part};
use crate::expr::{Expr, num, sum, times};
use qkv::{GradientName, Layer, Linear, StepName, Tensor};

/// One of the three projections.
struct Side<'x> {
    weight: &'static str,
    /// What JSON and entries call the weight.
    name: &'static str,
    letter: char,
    linear: &'x Linear,
    of_weight: GradientName,
    of_bias: GradientName,
    /// The gradient of what it made, head by head.
    of_heads: GradientName,
    head_dim: usize,
    /// Rows in front that came from a cache.
    past: usize,
    from_context: bool,
}

impl Side<'_> {
    /// The gradient of column c of token t, the heads side by side.
    fn gradient(&self, back: &Back<'_, '_>, b: usize, t: usize, c: usize) -> Number {
        let width = self.head_dim.max(1);
        back.entry(self.of_heads, &[b, c / width, self.past + t, c % width])
    }
}

pub(super) fn parts(
    back: &Back<'_, '_>,
    layer: &Layer<'_>,
    x: &Tensor<f64>,
    context: Option<&Tensor<f64>>,
) -> Vec<Part> {
    let run = back.run;
    let (cross, past) = (context.is_some(), run.subject.past_len);
    let sides = [
        Side {
            weight: "W_Q",
            name: "wq",
            letter: 'q',
            linear: &layer.q,
            of_weight: GradientName::GradWq,
            of_bias: GradientName::GradBq,
            of_heads: GradientName::GradQ,
            head_dim: run.dk,
            past: 0,
            from_context: false,
        },
        Side {
            weight: "W_K",
            name: "wk",
            letter: 'k',
            linear: &layer.k,
            of_weight: GradientName::GradWk,
            of_bias: GradientName::GradBk,
            of_heads: GradientName::GradK,
            head_dim: run.dk,
            past,
            from_context: cross,
        },
        Side {
            weight: "W_V",
            name: "wv",
            letter: 'v',
            linear: &layer.v,
            of_weight: GradientName::GradWv,
            of_bias: GradientName::GradBv,
            of_heads: GradientName::GradV,
            head_dim: run.dv,
            past,
            from_context: cross,
        },
    ];
    let positioned = |step: StepName| Some((step.as_str(), run.step(step)?));
    let x_in = positioned(StepName::XPositioned).unwrap_or(("x", x));
    let source = match context {
        Some(context) => positioned(StepName::ContextPositioned).unwrap_or(("context", context)),
        None => x_in,
    };
    let mut parts = vec![weights(back, &sides, x_in, source)];
    let (of_context, of_x): (Vec<_>, Vec<_>) = sides.iter().partition(|side| side.from_context);
    parts.push(tokens(back, &of_x, x, (GradientName::GradX, 'x')));
    if let Some(context) = context {
        parts.push(tokens(
            back,
            &of_context,
            context,
            (GradientName::GradContext, 'c'),
        ));
    }
    parts
}

fn weights(
    back: &Back<'_, '_>,
    sides: &[Side<'_>; 3],
    x: (&'static str, &Tensor<f64>),
    source: (&'static str, &Tensor<f64>),
) -> Part {
    let run = back.run;
    let names: Vec<GradientName> = sides
        .iter()
        .flat_map(|side| [side.of_weight, side.of_bias])
        .collect();
    let mark = match run.step(StepName::XPositioned) {
        Some(_) => "'",
        None => "",
    };
    let input = if sides[1].from_context { 'C' } else { 'X' };
    let formula = format!(
        "dW_Q = X{mark}ᵀ·dQ, dW_K = {input}{mark}ᵀ·dK, dW_V = {input}{mark}ᵀ·dV, \
         db[c] = Σ_t dq[t,c]"
    );
    let biased = sides.iter().any(|side| side.linear.bias().is_some());
    let formula = match biased {
        true => formula.as_str(),
        false => formula.split(", db").next().unwrap_or_default(),
    };
    let heading = back.words.heading_grad_layer();
    let mut part = back.part(&names, heading, formula);
    part.blocks.push(Block::Paragraph(
        back.words.grad_layer(run.subject.past_len),
    ));
    for side in sides {
        let (name, tokens) = if side.from_context { source } else { x };
        let &[batch, length, _] = tokens.shape() else {
            continue;
        };
        push_product(
            back,
            &Product {
                weight: side.weight,
                linear: side.linear,
                of_weight: side.of_weight,
                of_bias: side.of_bias,
                tokens: [batch, length],
                input: &|b, t, r| Number::of(name, tokens, &[b, t, r]),
                gradient: &|b, t, c| side.gradient(back, b, t, c),
            },
            &mut part,
        );
    }
    part
}

/// The gradient of tokens: back through each projection that read them, and through the residual.
fn tokens(
    back: &Back<'_, '_>,
    sides: &[&Side<'_>],
    tokens: &Tensor<f64>,
    (name, letter): (GradientName, char),
) -> Part {
    let (run, words) = (back.run, back.words);
    let residual = back
        .gradient(GradientName::GradResidual)
        .filter(|_| name == GradientName::GradX);
    let mut terms: Vec<String> = sides
        .iter()
        .map(|side| format!("Σ_c d{}[t,c]·{}[r,c]", side.letter, side.weight))
        .collect();
    terms.extend(residual.map(|_| "dr[t,r]".to_string()));
    let formula = format!("d{letter}[t,r] = {}", terms.join(" + "));
    let capital = letter.to_uppercase().to_string();
    let heading = words.heading_grad_tokens(&capital);
    let mut part = back.part(&[name], heading, &formula);
    part.blocks.push(Block::Paragraph(words.grad_tokens(
        &capital,
        sides.len(),
        residual.is_some(),
        run.step(StepName::XPositioned).is_some(),
    )));
    let &[batch, length, width] = tokens.shape() else {
        return part;
    };
    let shown: Vec<usize> = match run.large {
        true => length.checked_sub(1).into_iter().collect(),
        false => (0..length).collect(),
    };
    for b in shown_entries(run, batch) {
        if batch > 1 {
            let heading = words.group(Some(b), None, None);
            part.blocks.push(Block::Heading(heading));
        }
        for &t in &shown {
            for r in run.columns(width) {
                let mut terms: Vec<Expr> = Vec::new();
                for side in sides {
                    terms.extend((0..side.linear.out_width()).map(|c| {
                        let gradient = side.gradient(back, b, t, c);
                        let weight = Number::of(side.name, side.linear.weight(), &[r, c]);
                        times(gradient, weight)
                    }));
                }
                terms.extend(
                    residual.map(|_| num(back.entry(GradientName::GradResidual, &[b, t, r]))),
                );
                part.blocks.push(worked(
                    format!("d{letter}[{t},{r}]"),
                    vec![sum(terms)],
                    back.entry(name, &[b, t, r]),
                ));
            }
        }
        back.push_other_columns(width, &mut part);
        part.blocks
            .extend(back.matrix(&format!("d{capital}"), letter, None, name, &[b]));
    }
    part
}
