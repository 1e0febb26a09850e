//! What common mistakes would have given, beside the right numbers.

use super::beside::{Window, minus, with_totals};
use super::run::{Run, worked};
use crate::Origin;
use crate::explanation::{Block, Part};
use crate::expr::{Expr, num, over, sum};
use crate::words::{Factors, Same};
use qkv::{Sinks, StepName, Tensor};
use qkv_check::{Mistake, Recomputed, WrongScale};

pub(super) fn parts(run: &Run<'_>) -> Vec<Part> {
    let contrast = &run.subject.more.contrast;
    contrast.iter().map(|wrong| part(run, wrong)).collect()
}

fn part(run: &Run<'_>, wrong: &Recomputed) -> Part {
    let words = run.words;
    let heading = words.heading_contrast(wrong.mistake);
    let mut part = run.part(&[], heading, &formula(run, wrong.mistake));
    let same = same(run, wrong);
    part.blocks.extend(
        match wrong.mistake {
            Mistake::SoftmaxOverQueries => Some(words.contrast_over_queries()),
            Mistake::SoftmaxJoint => Some(words.contrast_joint()),
            // Of two equal factors there is nothing to say.
            Mistake::Scale(_) if same.is_some() => None,
            Mistake::Scale(kind) => Some(words.contrast_scale(kind, &factors(run, wrong))),
            Mistake::MaskPolarity => Some(words.contrast_mask()),
        }
        .map(Block::Paragraph),
    );
    if let Some(same) = same {
        part.blocks
            .push(Block::Paragraph(words.contrast_same(&same)));
        return part;
    }
    let (Some(weights), Some(output)) = (run.step(StepName::Weights), run.step(StepName::Output))
    else {
        return part;
    };
    for &[b, h] in &run.groups {
        part.blocks.extend(run.group_heading([b, h]));
        push_entry(run, wrong, weights, [b, h], &mut part);
        push_empty(run, wrong, [b, h], &mut part);
        let window = Window::of_weights(run, [b, h]);
        push_beside(
            run,
            ("w", &window),
            [weights, &wrong.weights],
            [b, h],
            &mut part,
        );
        let window = Window::of_output(run);
        push_beside(
            run,
            ("O", &window),
            [output, &wrong.output],
            [b, h],
            &mut part,
        );
    }
    part
}

fn formula(run: &Run<'_>, mistake: Mistake) -> String {
    let (_, s) = run.logits();
    match mistake {
        Mistake::SoftmaxOverQueries => format!("w[i,j] = exp({s}[i,j])/Σ_i exp({s}[i,j])"),
        Mistake::SoftmaxJoint => format!("w[i,j] = exp({s}[i,j])/Σ_i Σ_j exp({s}[i,j])"),
        Mistake::Scale(WrongScale::Missing) => "s[i,j] = q_i·k_j".into(),
        Mistake::Scale(WrongScale::ModelWidth(width)) => format!("s[i,j] = q_i·k_j/√{width}"),
        Mistake::MaskPolarity => String::new(),
    }
}

fn factors(run: &Run<'_>, wrong: &Recomputed) -> Factors {
    let right = run.subject.block.attention.scale.factor(run.dk.max(1));
    Factors {
        wrong: run.show(wrong.factor),
        right: run.show(right),
        times: run.show(wrong.factor / right),
        sharper: wrong.factor.abs() > right.abs(),
        of_x: matches!(run.subject.origin, Origin::Projected { .. }),
        heads: run.heads,
        dk: run.dk,
    }
}

/// Why the mistake makes no difference here, if it makes none.
fn same(run: &Run<'_>, wrong: &Recomputed) -> Option<Same> {
    if wrong.differs() {
        return None;
    }
    let attention = &run.subject.block.attention;
    let right = attention.scale.factor(run.dk.max(1));
    Some(match wrong.mistake {
        Mistake::SoftmaxJoint if run.queries == 1 => Same::OneQuery,
        Mistake::Scale(WrongScale::Missing) if wrong.factor == right => match attention.scale {
            qkv::Scale::InverseSqrt => Same::OneColumn,
            qkv::Scale::Factor(_) => Same::GivenFactor,
        },
        Mistake::Scale(WrongScale::ModelWidth(width)) if wrong.factor == right => {
            if width == run.dk {
                Same::ModelIsHead(width)
            } else {
                Same::GivenFactor
            }
        }
        Mistake::Scale(_) => Same::EqualScores,
        Mistake::MaskPolarity if run.step(StepName::Masked).is_none() => Same::NoMask,
        Mistake::SoftmaxOverQueries => Same::ColumnsSumToOne,
        _ => Same::Chance,
    })
}

/// The weight that differs most, worked out as the mistake has it.
fn push_entry(
    run: &Run<'_>,
    wrong: &Recomputed,
    weights: &Tensor<f64>,
    [b, h]: [usize; 2],
    part: &mut Part,
) {
    let window = Window::of_weights(run, [b, h]);
    let entries = window
        .rows
        .iter()
        .flat_map(|&i| window.columns.iter().map(move |&j| [i, j]));
    let error = |&[i, j]: &[usize; 2]| {
        let at = [b, h, i, j];
        (wrong.weights.at(&at) - weights.at(&at)).abs()
    };
    let finite = entries.filter(|at| error(at).is_finite());
    let Some([i, j]) = finite.max_by(|a, c| error(a).total_cmp(&error(c))) else {
        return;
    };
    let (right, value) = (weights.at(&[b, h, i, j]), wrong.weights.at(&[b, h, i, j]));
    let label = format!("w[{i},{j}]");
    part.blocks.push(Block::Item(run.words.contrast_entry(
        &label,
        &run.show(right),
        &run.show(value),
    )));
    if value != 0.0 {
        let label = run.words.wrong(&label);
        let chain = quotient(run, wrong, [b, h, i, j]);
        part.blocks
            .push(worked(label, chain.into_iter().collect(), value));
    }
}

/// exp / Σ exp over what the mistake sums.
fn quotient(run: &Run<'_>, wrong: &Recomputed, [b, h, i, j]: [usize; 4]) -> Option<Expr> {
    let members: Vec<[usize; 2]> = match wrong.mistake {
        Mistake::SoftmaxOverQueries => (0..run.queries).map(|i| [i, j]).collect(),
        Mistake::SoftmaxJoint => (0..run.queries)
            .flat_map(|i| (0..run.keys).map(move |j| [i, j]))
            .collect(),
        _ => (0..run.keys).map(|j| [i, j]).collect(),
    };
    let logit = |[i, j]: [usize; 2]| wrong.logits.at(&[b, h, i, j]);
    let logits: Vec<f64> = members.into_iter().map(logit).collect();
    let kept = logits
        .into_iter()
        .filter(|logit| *logit != f64::NEG_INFINITY);
    let kept: Vec<f64> = kept.collect();
    let max = kept.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let mut terms: Vec<Expr> = kept.iter().map(|logit| num((logit - max).exp())).collect();
    let sinks = match wrong.mistake {
        Mistake::SoftmaxOverQueries => 0,
        Mistake::SoftmaxJoint => run.queries,
        _ => 1,
    };
    if let Some(Sinks(all)) = &run.subject.block.attention.sinks {
        terms.extend(std::iter::repeat_n(num((all[h] - max).exp()), sinks));
    }
    let finite = max.is_finite() && !terms.is_empty();
    finite.then(|| over(num((logit([i, j]) - max).exp()), sum(terms)))
}

/// The rows that the mistake leaves without a key.
fn push_empty(run: &Run<'_>, wrong: &Recomputed, [b, h]: [usize; 2], part: &mut Part) {
    if wrong.mistake != Mistake::MaskPolarity {
        return;
    }
    let dropped = |i: usize| {
        let row = wrong.logits.row(&[b, h, i]);
        row.iter().all(|logit| *logit == f64::NEG_INFINITY)
    };
    let empty: Vec<usize> = (0..run.queries).filter(|&i| dropped(i)).collect();
    if !empty.is_empty() {
        part.blocks
            .push(Block::Item(run.words.contrast_empty(&empty)));
    }
}

/// Right, wrong and the difference.
fn push_beside(
    run: &Run<'_>,
    (name, window): (&str, &Window),
    [right, wrong]: [&Tensor<f64>; 2],
    group: [usize; 2],
    part: &mut Part,
) {
    let words = run.words;
    let weights = name == "w";
    let row = |i: usize| run.row_name(if weights { 'q' } else { 'o' }, i);
    let column = |j: usize| {
        if weights {
            run.row_name('k', j)
        } else {
            j.to_string()
        }
    };
    let step = if weights {
        StepName::Weights
    } else {
        StepName::Output
    };
    let values = [(right, Some(step)), (wrong, None)];
    let values = values.map(|(tensor, step)| window.of(tensor, step, group));
    let difference = minus(&values[1], &values[0]);
    let names = [words.right(name), words.wrong(name)];
    let mut beside = Vec::new();
    for ((name, values), tensor) in names.into_iter().zip(values).zip([right, wrong]) {
        let matrix = window.matrix(name, row, column, values);
        beside.push(match weights {
            true => with_totals(matrix, window, tensor, group),
            false => matrix,
        });
    }
    beside.push(window.matrix(words.difference(), row, column, difference));
    if window.rows.len() * window.columns.len() > 0 {
        part.blocks.push(Block::Beside(beside));
    }
}
