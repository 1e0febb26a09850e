//! Where queries, keys and values come from.

use super::run::{Run, rows, worked};
use crate::Origin;
use crate::entry::{Entry, Number};
use crate::explanation::{Block, Part};
use crate::expr::{Expr, Function, call, num, sum, times};
use crate::words::Projection;
use qkv::{Layer, Linear, StepName, Tensor};

pub(super) fn parts(run: &Run<'_>) -> Vec<Part> {
    match run.subject.origin {
        Origin::Given | Origin::Split => vec![given(run)],
        Origin::Projected { layer, x, context } => {
            let mut parts = Vec::new();
            if let Some(start) = layer.sinusoidal {
                parts.push(sinusoidal(run, x, context, start));
            }
            parts.push(projected(run, layer, x, context));
            parts
        }
    }
}

fn given(run: &Run<'_>) -> Part {
    let steps = [StepName::Q, StepName::K, StepName::V];
    let mut part = run.part(&steps, run.words.heading_origin(), "");
    part.blocks.push(Block::Paragraph(run.words.given()));
    push_split(run, &mut part);
    push_cached(run, &mut part);
    push_head_map(run, &mut part);
    for b in 0..run.batch {
        for h in 0..run.heads.max(run.kv_heads) {
            if run.large && (b, h) != (0, 0) {
                break;
            }
            if h < run.heads {
                part.blocks.extend(run.group_heading([b, h]));
                part.blocks
                    .push(run.step_matrix("Q", 'q', None, StepName::Q, &[b, h]));
            }
            let kv_head = run.kv_head(h);
            let first_user = h == 0 || kv_head != run.kv_head(h - 1);
            if first_user && kv_head < run.kv_heads {
                for (name, letter, step) in [("K", 'k', StepName::K), ("V", 'v', StepName::V)] {
                    part.blocks
                        .push(run.step_matrix(name, letter, None, step, &[b, kv_head]));
                }
            }
        }
    }
    part
}

/// Which columns of Q, K and V were whose, where they were given side by side.
fn push_split(run: &Run<'_>, part: &mut Part) {
    if !matches!(run.subject.origin, Origin::Split) {
        return;
    }
    let width = |step| run.subject.steps.get(step).map_or(0, |all| all.shape()[3]);
    for (name, step, heads) in [
        ("Q", StepName::Q, run.heads),
        ("K", StepName::K, run.kv_heads),
        ("V", StepName::V, run.kv_heads),
    ] {
        if heads > 1 {
            let says = run.words.split_columns(name, heads, width(step));
            part.blocks.push(Block::Item(says));
        }
    }
}

/// Which rows of K and V were there before.
fn push_cached(run: &Run<'_>, part: &mut Part) {
    let past = run.subject.past_len;
    if past > 0 {
        let new = run.keys.saturating_sub(past);
        part.blocks
            .push(Block::Paragraph(run.words.cached(run.queries, past, new)));
    }
}

/// Which key and value head each query head uses, where they share.
fn push_head_map(run: &Run<'_>, part: &mut Part) {
    const MOST: usize = 64;
    if run.heads != run.kv_heads && run.kv_heads > 0 {
        let pairs: Vec<(usize, usize)> = (0..run.heads.min(MOST))
            .map(|h| (h, run.kv_head(h)))
            .collect();
        part.blocks.push(Block::Paragraph(
            run.words.shared_heads(run.heads / run.kv_heads, &pairs),
        ));
    }
}

/// The tokens' sines and cosines.
fn sinusoidal(run: &Run<'_>, x: &Tensor<f64>, context: Option<&Tensor<f64>>, start: usize) -> Part {
    let mut steps = vec![StepName::XPositioned];
    if context.is_some() {
        steps.push(StepName::ContextPositioned);
    }
    let formula = "x'[t,2i] = x[t,2i] + sin(p/10000^(2i/D)), \
                   x'[t,2i+1] = x[t,2i+1] + cos(p/10000^(2i/D))";
    let mut part = run.part(&steps, run.words.heading_sinusoidal(), formula);
    let first = start + run.subject.past_len;
    part.blocks
        .push(Block::Paragraph(run.words.sinusoidal(first)));
    let both = [
        (Some(x), StepName::XPositioned, first, 'x'),
        (context, StepName::ContextPositioned, 0, 'c'),
    ];
    for (tokens, step, first, letter) in both {
        if let Some(tokens) = tokens {
            push_sinusoidal(run, tokens, step, first, letter, &mut part);
        }
    }
    part
}

fn push_sinusoidal(
    run: &Run<'_>,
    tokens: &Tensor<f64>,
    step: StepName,
    first: usize,
    letter: char,
    part: &mut Part,
) {
    let &[batch, length, width] = tokens.shape() else {
        return;
    };
    let one_of_two = matches!(
        run.subject.origin,
        Origin::Projected {
            context: Some(_),
            ..
        }
    );
    for b in shown_entries(run, batch) {
        if batch > 1 {
            let heading = run.words.group(Some(b), None, None);
            part.blocks.push(Block::Heading(heading));
        }
        let before = rows(token_name(letter), tokens, &[b]);
        let name = letter.to_uppercase().to_string();
        part.blocks.push(run.matrix(name, letter, None, before));
        // In self-attention every token makes a key too.
        let queries = letter == 'x' && one_of_two;
        for t in shown_tokens(run, length, queries) {
            for c in run.columns(width) {
                let even = c - c % 2;
                let angle = (first + t) as f64 / 10000_f64.powf(even as f64 / width as f64);
                let function = if c == even {
                    Function::Sin
                } else {
                    Function::Cos
                };
                let wave = call(function, num(angle));
                let table = wave.value();
                let token = Number::of(token_name(letter), tokens, &[b, t, c]);
                part.blocks.push(worked(
                    format!("{letter}'[{t},{c}]"),
                    vec![
                        Expr::Sum(vec![num(token.clone()), wave]),
                        Expr::Sum(vec![num(token), num(table)]),
                    ],
                    run.entry(step, &[b, t, c]),
                ));
            }
        }
        part.blocks.push(run.step_matrix(
            &format!("{}'", letter.to_uppercase()),
            letter,
            None,
            step,
            &[b],
        ));
    }
}

/// The batch entries that are worked out.
pub(super) fn shown_entries(run: &Run<'_>, batch: usize) -> std::ops::Range<usize> {
    0..if run.large { batch.min(1) } else { batch }
}

/// The tokens that are worked out: the rows' own, or of keys and values all of a small input.
fn shown_tokens(run: &Run<'_>, length: usize, queries: bool) -> Vec<usize> {
    if run.large || queries && run.rows_chosen {
        let mut tokens: Vec<usize> = run.rows.iter().copied().filter(|&i| i < length).collect();
        if tokens.is_empty() {
            tokens.extend(length.checked_sub(1));
        }
        return tokens;
    }
    (0..length).collect()
}

fn projected(
    run: &Run<'_>,
    layer: &Layer<'_>,
    x: &Tensor<f64>,
    context: Option<&Tensor<f64>>,
) -> Part {
    let words = run.words;
    let steps = [StepName::Q, StepName::K, StepName::V];
    let input = if context.is_some() { "C" } else { "X" };
    let mark = if layer.sinusoidal.is_some() { "'" } else { "" };
    let formula = format!("Q = X{mark}·W_Q, K = {input}{mark}·W_K, V = {input}{mark}·W_V");
    let mut part = run.part(&steps, words.heading_origin(), &formula);
    part.blocks
        .push(Block::Paragraph(words.projected(context.is_some(), mark)));
    push_cached(run, &mut part);
    let x_in = run.step(StepName::XPositioned).unwrap_or(x);
    let context_in = match context {
        Some(context) => run.step(StepName::ContextPositioned).unwrap_or(context),
        None => x_in,
    };
    if layer.sinusoidal.is_none() {
        push_tokens(run, x_in, 'x', &mut part);
        if context.is_some() {
            push_tokens(run, context_in, 'c', &mut part);
        }
    }
    let letter = if context.is_some() { 'c' } else { 'x' };
    let past = run.subject.past_len;
    let three = [
        (
            &layer.q,
            x_in,
            'x',
            'q',
            StepName::Q,
            run.dk,
            layer.heads,
            0,
        ),
        (
            &layer.k,
            context_in,
            letter,
            'k',
            StepName::K,
            run.dk,
            layer.kv_heads,
            past,
        ),
        (
            &layer.v,
            context_in,
            letter,
            'v',
            StepName::V,
            run.dv,
            layer.kv_heads,
            past,
        ),
    ];
    for (linear, tokens, input, name, step, head_dim, heads, past) in three {
        let projection = One {
            linear,
            tokens,
            input,
            mark,
            name,
            step,
            head_dim,
            heads,
            past,
        };
        push_projection(run, &projection, &mut part);
    }
    push_head_map(run, &mut part);
    part
}

/// The tokens as they were given.
fn push_tokens(run: &Run<'_>, tokens: &Tensor<f64>, letter: char, part: &mut Part) {
    let batch = tokens.shape().first().copied().unwrap_or(0);
    let name = letter.to_uppercase().to_string();
    for b in shown_entries(run, batch) {
        if batch > 1 {
            let heading = run.words.group(Some(b), None, None);
            part.blocks.push(Block::Heading(heading));
        }
        let rows = rows(token_name(letter), tokens, &[b]);
        part.blocks
            .push(run.matrix(name.clone(), letter, None, rows));
    }
}

/// One of the three projections.
struct One<'a> {
    linear: &'a Linear,
    tokens: &'a Tensor<f64>,
    input: char,
    /// "'" after positions were added.
    mark: &'static str,
    name: char,
    step: StepName,
    head_dim: usize,
    heads: usize,
    /// Rows of the step that were cached.
    past: usize,
}

impl One<'_> {
    /// Row t of its input.
    fn row(&self, run: &Run<'_>, b: usize, t: usize) -> Vec<Number> {
        let positioned = match self.input {
            'x' => StepName::XPositioned,
            _ => StepName::ContextPositioned,
        };
        let name = match run.step(positioned) {
            Some(_) => positioned.as_str(),
            None => token_name(self.input),
        };
        let columns = 0..self.linear.in_width();
        columns
            .map(|c| Number::of(name, self.tokens, &[b, t, c]))
            .collect()
    }
}

fn push_projection(run: &Run<'_>, one: &One<'_>, part: &mut Part) {
    let words = run.words;
    let capital = one.name.to_uppercase().to_string();
    let (in_width, out_width) = (one.linear.in_width(), one.linear.out_width());
    let &[batch, length, _] = one.tokens.shape() else {
        return;
    };
    part.blocks.push(Block::Heading(format!(
        "{capital} = {}{}·W_{capital}",
        one.input.to_uppercase(),
        one.mark
    )));
    part.blocks.push(Block::Item(words.projection(&Projection {
        input: &format!("{}{}", one.input.to_uppercase(), one.mark),
        name: &capital,
        tokens: length,
        in_width,
        out_width,
        bias: one.linear.bias().is_some(),
    })));
    push_linear(run, one.linear, one.name.to_ascii_uppercase(), part);
    // A row of the step, before it is cut into heads; the cached ones come first.
    let whole = |b: usize, row: usize| -> Vec<Number> {
        let width = one.head_dim.max(1);
        (0..out_width)
            .map(|c| run.entry(one.step, &[b, c / width, row, c % width]))
            .collect()
    };
    for b in shown_entries(run, batch) {
        if batch > 1 {
            part.blocks
                .push(Block::Heading(words.group(Some(b), None, None)));
        }
        for t in shown_tokens(run, length, one.name == 'q') {
            let row = whole(b, one.past + t);
            let input = one.row(run, b, t);
            for c in run.columns(out_width) {
                part.blocks.push(worked(
                    format!(
                        "{}[{},{c}] = {}",
                        one.name,
                        one.past + t,
                        words.row_times_column(
                            &format!("{}{}", one.input, one.mark),
                            t,
                            &capital,
                            c
                        )
                    ),
                    vec![linear_entry(
                        one.linear,
                        one.name.to_ascii_uppercase(),
                        &input,
                        c,
                    )],
                    row[c].clone(),
                ));
            }
        }
        if run.columns(out_width).len() < out_width {
            part.blocks
                .push(Block::Item(words.other_columns(out_width)));
        }
        let values = (0..one.past + length).map(|row| whole(b, row)).collect();
        part.blocks
            .push(run.matrix(capital.clone(), one.name, None, values));
    }
    if one.heads > 1 {
        part.blocks.push(Block::Item(words.split_columns(
            &capital,
            one.heads,
            one.head_dim,
        )));
    }
}

/// What tokens are called before anything is added to them.
fn token_name(letter: char) -> &'static str {
    if letter == 'x' { "x" } else { "context" }
}

/// What the weight and the bias of a projection are called.
fn linear_names(letter: char) -> [&'static str; 2] {
    match letter {
        'Q' => ["wq", "bq"],
        'K' => ["wk", "bk"],
        'V' => ["wv", "bv"],
        _ => ["wo", "bo"],
    }
}

/// The weight of a projection, and its bias.
pub(super) fn push_linear(run: &Run<'_>, linear: &Linear, letter: char, part: &mut Part) {
    let [weight, _] = linear_names(letter);
    let weight = rows(weight, linear.weight(), &[]);
    part.blocks
        .push(run.matrix(format!("W_{letter}"), ' ', None, weight));
    if let Some(bias) = linear.bias() {
        let bias = (0..bias.len()).map(|c| bias_entry(bias, letter, c));
        let bias = vec![bias.collect()];
        part.blocks
            .push(run.matrix(format!("b_{letter}"), ' ', None, bias));
    }
}

fn bias_entry(bias: &[f64], letter: char, c: usize) -> Number {
    let [_, of] = linear_names(letter);
    Number {
        value: bias[c],
        entry: Some(Entry { of, index: vec![c] }),
    }
}

/// Row of the input times column c of the weight, and the bias.
pub(super) fn linear_entry(linear: &Linear, letter: char, input: &[Number], c: usize) -> Expr {
    let [name, _] = linear_names(letter);
    let weight = |r: usize| Number::of(name, linear.weight(), &[r, c]);
    let mut terms: Vec<Expr> = input
        .iter()
        .enumerate()
        .map(|(r, value)| times(value.clone(), weight(r)))
        .collect();
    if let Some(bias) = linear.bias() {
        terms.push(num(bias_entry(bias, letter, c)));
    }
    sum(terms)
}
