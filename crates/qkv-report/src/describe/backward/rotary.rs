//! The rotation of queries and keys, turned back.

use super::Back;
use crate::describe::position::{Side, sides};
use crate::describe::rotary::{columns, place};
use crate::describe::run::worked;
use crate::explanation::{Block, Part};
use crate::expr::{minus, sum, times};
use qkv::position::Rotary;
use qkv::{GradientName, StepName};

pub(super) fn part(back: &Back<'_, '_>) -> Option<Part> {
    let run = back.run;
    let rotary = run.subject.block.rotary.as_ref()?;
    let formula = "da = da'·cos θ + db'·sin θ, db = −da'·sin θ + db'·cos θ, θ = p·f";
    let of_queries = before(back, GradientName::GradQNormed, GradientName::GradQ);
    let of_keys = before(back, GradientName::GradKNormed, GradientName::GradK);
    let heading = back.words.heading_back_rotary();
    let mut part = back.part(&[of_queries, of_keys], heading, formula);
    part.blocks.push(Block::Paragraph(
        back.words.back_rotary(run.subject.past_len),
    ));
    let both = sides(
        run,
        [StepName::Q, StepName::QRotated],
        [StepName::K, StepName::KRotated],
    );
    let names = [
        (GradientName::GradQRotated, of_queries, StepName::QNormed),
        (GradientName::GradKRotated, of_keys, StepName::KNormed),
    ];
    for (side, (from, to, norm)) in both.into_iter().zip(names) {
        let marks = usize::from(run.step(norm).is_some());
        push_side(back, rotary, (&side, marks), [from, to], &mut part);
    }
    Some(part)
}

/// The gradient of what was rotated.
fn before(back: &Back<'_, '_>, normed: GradientName, given: GradientName) -> GradientName {
    match back.gradient(normed) {
        Some(_) => normed,
        None => given,
    }
}

/// `marks` is the number of marks on the letter after turning back.
fn push_side(
    back: &Back<'_, '_>,
    rotary: &Rotary,
    (side, marks): (&Side, usize),
    [from, to]: [GradientName; 2],
    part: &mut Part,
) {
    let run = back.run;
    let frequencies = rotary.inverse_frequencies(run.dk).unwrap_or_default();
    let name = format!("d{}{}", side.letter, "'".repeat(marks));
    for [b, h] in side.groups(run) {
        part.blocks.push(side.heading(run, [b, h]));
        for i in side.rows(run) {
            let place = place(run, side, b, i);
            for pair in run.columns(frequencies.len()) {
                let (left, right) = columns(rotary, frequencies.len(), pair);
                let (sin, cos) = (place as f64 * frequencies[pair]).sin_cos();
                let [a, c] = [left, right].map(|at| back.entry(from, &[b, h, i, at]));
                let of = |at| back.entry(to, &[b, h, i, at]);
                part.blocks.push(worked(
                    format!("{name}[{i},{left}]"),
                    vec![sum(vec![times(a.clone(), cos), times(c.clone(), sin)])],
                    of(left),
                ));
                part.blocks.push(worked(
                    format!("{name}[{i},{right}]"),
                    vec![minus(times(c, cos), times(a, sin))],
                    of(right),
                ));
            }
        }
        let letter = side.letter.to_uppercase();
        let text = format!("d{letter}{}", "'".repeat(marks));
        part.blocks
            .extend(back.matrix(&text, side.letter, None, to, &[b, h]));
    }
}
