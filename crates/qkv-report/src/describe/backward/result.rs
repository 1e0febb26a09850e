//! From the loss through residual and output projection to the heads.

use super::Back;
use super::linear::{Product, push_product};
use crate::describe::projection::shown_entries;
use crate::describe::run::worked;
use crate::entry::{Number, index};
use crate::explanation::{Block, Part};
use crate::expr::dot;
use qkv::{GradientName, StepName, Tensor};

pub(super) fn parts(back: &Back<'_, '_>) -> Vec<Part> {
    let mut parts = Vec::new();
    parts.extend(start(back));
    if back.gradient(GradientName::GradResidual).is_some() {
        parts.push(residual(back));
    }
    if back.gradient(GradientName::GradProjected).is_some() {
        parts.push(projected(back));
    }
    if back.gradient(GradientName::GradConcatenated).is_some() {
        parts.push(heads(back));
    }
    parts
}

/// The letter of a step of which a gradient may start or pass.
fn letter(step: StepName) -> char {
    match step {
        StepName::Residual => 'r',
        StepName::Projected => 'y',
        StepName::Concatenated => 'z',
        _ => 'o',
    }
}

fn start(back: &Back<'_, '_>) -> Option<Part> {
    let (run, words) = (back.run, back.words);
    let (step, result) = run.subject.steps.result()?;
    let (name, gradient) = back.backward.gradients.iter().next()?;
    let letter = letter(step);
    let formula = format!("L = Σ {letter}[i,c]·d{letter}[i,c]");
    let mut part = back.part(&[name], words.heading_gradient_start(), &formula);
    part.blocks
        .push(Block::Paragraph(words.what_a_gradient_is()));
    part.blocks.push(Block::Paragraph(
        words.gradient_start(letter, back.backward.given),
    ));
    let loss = dot(
        numbers(step.as_str(), result),
        numbers(name.as_str(), gradient),
    );
    let value = loss.value();
    part.blocks.push(worked("L", vec![loss], value));
    push_matrices(back, name, letter, &mut part);
    Some(part)
}

/// Every number of an array.
fn numbers(name: &'static str, tensor: &Tensor<f64>) -> impl Iterator<Item = Number> {
    let numbers = tensor.data().iter().enumerate();
    numbers.map(move |(at, &value)| Number::named(name, &index(tensor.shape(), at), value))
}

/// The gradient of a result, head by head or token by token.
fn push_matrices(back: &Back<'_, '_>, name: GradientName, letter: char, part: &mut Part) {
    let run = back.run;
    let text = format!("d{}", letter.to_uppercase());
    if name == GradientName::GradOutput {
        for &group in &run.groups {
            part.blocks.extend(run.group_heading(group));
            part.blocks
                .extend(back.matrix(&text, letter, None, name, &group));
        }
        return;
    }
    for b in shown_entries(run, run.batch) {
        push_entry_heading(back, b, part);
        part.blocks
            .extend(back.matrix(&text, letter, None, name, &[b]));
    }
}

fn push_entry_heading(back: &Back<'_, '_>, b: usize, part: &mut Part) {
    if back.run.batch > 1 {
        let heading = back.words.group(Some(b), None, None);
        part.blocks.push(Block::Heading(heading));
    }
}

fn residual(back: &Back<'_, '_>) -> Part {
    let next = match back.gradient(GradientName::GradProjected) {
        Some(_) => GradientName::GradProjected,
        None => GradientName::GradConcatenated,
    };
    let letter = if next == GradientName::GradProjected {
        'y'
    } else {
        'z'
    };
    let formula = format!("r = x + {letter}, d{letter}[i,c] = dr[i,c]");
    let heading = back.words.heading_back_residual();
    let mut part = back.part(&[next], heading, &formula);
    part.blocks
        .push(Block::Paragraph(back.words.back_residual(letter)));
    part
}

fn projected(back: &Back<'_, '_>) -> Part {
    let (run, words) = (back.run, back.words);
    let Some(linear) = &run.subject.block.output else {
        return Part::default();
    };
    let names = [
        GradientName::GradProjected,
        GradientName::GradWo,
        GradientName::GradBo,
        GradientName::GradConcatenated,
    ];
    let bias = match linear.bias() {
        Some(_) => ", db_O[c] = Σ_i dy[i,c]",
        None => "",
    };
    let formula = format!("dW_O[r,c] = Σ_i z[i,r]·dy[i,c]{bias}, dz[i,r] = Σ_c dy[i,c]·W_O[r,c]");
    let mut part = back.part(&names, words.heading_back_projection(), &formula);
    part.blocks.push(Block::Paragraph(words.back_projection()));
    push_product(
        back,
        &Product {
            weight: "W_O",
            linear,
            of_weight: GradientName::GradWo,
            of_bias: GradientName::GradBo,
            tokens: [run.batch, run.queries],
            input: &|b, i, r| run.entry(StepName::Concatenated, &[b, i, r]),
            gradient: &|b, i, c| back.entry(GradientName::GradProjected, &[b, i, c]),
        },
        &mut part,
    );
    part.blocks.push(Block::Heading("dZ = dY·W_Oᵀ".into()));
    for b in shown_entries(run, run.batch) {
        push_entry_heading(back, b, &mut part);
        for &i in &run.rows {
            for r in run.columns(linear.in_width()) {
                let columns = 0..linear.out_width();
                let gradient = columns
                    .clone()
                    .map(|c| back.entry(GradientName::GradProjected, &[b, i, c]));
                let weight = columns.map(|c| Number::of("wo", linear.weight(), &[r, c]));
                part.blocks.push(worked(
                    format!("dz[{i},{r}]"),
                    vec![dot(gradient, weight)],
                    back.entry(GradientName::GradConcatenated, &[b, i, r]),
                ));
            }
        }
        back.push_other_columns(linear.in_width(), &mut part);
        part.blocks
            .extend(back.matrix("dZ", 'z', None, GradientName::GradConcatenated, &[b]));
    }
    part
}

fn heads(back: &Back<'_, '_>) -> Part {
    let (run, words) = (back.run, back.words);
    let names = [GradientName::GradConcatenated, GradientName::GradOutput];
    let heading = words.heading_back_heads();
    let mut part = back.part(&names, heading, "[dO₀, dO₁, …] = dZ");
    part.blocks
        .push(Block::Paragraph(words.back_heads(run.heads, run.dv)));
    push_matrices(back, GradientName::GradOutput, 'o', &mut part);
    part
}
