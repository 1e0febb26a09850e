//! What the comparison of two dumps finds, as text and as JSON.

use crate::Lang;
use crate::check::{
    causes_json, causes_said, dtype_name, lint_json, lint_said, mark, places, short, verdict,
};
use crate::found::Findings;
use crate::json::Number;
use qkv_check::dumps::{FirstDifference, Report};
use serde_json::{Value as Json, json};

/// As [`check_json`](crate::check_json) has it, and `"equal"`, `"differing"`, `"missing"` and
/// `"extra"`: lists of names. `first_difference` also holds `"names"` (in both files), `"layer"`,
/// `"equal_inputs"` and `"shapes"`; its `step` is the name where that tells no step.
pub fn dumps_json(report: &Report, lang: Lang) -> Json {
    json!({
        "verdict": report.verdict.as_str(),
        "rounding": report.rounding.map(|dtype| json!({"dtype": dtype_name(dtype)})),
        "first_difference": report.first_difference.as_ref().map(first_json),
        "causes": causes_json(&report.causes, lang),
        "indistinguishable": [],
        "tell_apart": Json::Null,
        "bound": Number(report.bound),
        "max_abs_error": Number(report.max_abs_error),
        "places": report.places.as_ref().map(places),
        "lint": lint_json(&report.lint, lang),
        "equal": report.equal,
        "differing": report.differing,
        "missing": report.missing,
        "extra": report.extra,
    })
}

fn first_json(first: &FirstDifference) -> Json {
    let at = first.at.as_ref();
    json!({
        "step": step(first),
        "index": at.map_or(&[][..], |(index, ..)| index),
        "right": at.map(|(_, right, _)| Number(*right)),
        "theirs": at.map(|(.., theirs)| Number(*theirs)),
        "names": first.names,
        "layer": first.layer,
        "equal_inputs": first.equal_inputs,
        "shapes": first.shapes,
    })
}

fn step(first: &FirstDifference) -> &str {
    first.step.unwrap_or(&first.names[0])
}

/// The report for people, in no format yet.
pub fn dumps_findings(report: &Report, lang: Lang) -> Findings {
    let en = lang == Lang::En;
    let headline = verdict(report.verdict, report.rounding, lang);
    let mut findings = Findings::new(mark(report.verdict), headline);
    if let Some(first) = &report.first_difference {
        findings.facts = told(first, report.of_files, en);
    }
    let shapes = report
        .first_difference
        .as_ref()
        .and_then(|first| first.shapes.as_ref());
    if shapes.is_none() {
        let (largest, bound) = (short(report.max_abs_error), short(report.bound));
        findings.facts.push(match en {
            true => format!("Largest difference {largest}, allowed {bound}."),
            false => format!("最大差{largest}，允许{bound}。"),
        });
    }
    findings.causes = causes_said(&report.causes, lang);
    let lists = [
        (&report.equal, "Equal", "相等"),
        (&report.differing, "Different", "不同"),
        (
            &report.missing,
            "Only in the first file",
            "只在第一个文件中",
        ),
        (&report.extra, "Only in the second file", "只在第二个文件中"),
    ];
    for (names, title, title_zh) in lists {
        if !names.is_empty() {
            findings.remarks.push(match en {
                true => format!("{title} ({}): {}.", names.len(), listed(names)),
                false => format!("{title_zh}（{}）：{}。", names.len(), listed(names)),
            });
        }
    }
    findings.lint = lint_said(&report.lint, lang);
    findings
}

/// Where it is, and what is equal before it.
fn told(first: &FirstDifference, of_files: bool, en: bool) -> Vec<String> {
    let name = match (first.layer, en) {
        (Some(layer), true) => format!("layer {layer}, {}", step(first)),
        (Some(layer), false) => format!("第{layer}层，{}", step(first)),
        (None, _) => step(first).to_owned(),
    };
    let inputs = first.equal_inputs.join(", ");
    let mut lines = vec![match (inputs.is_empty(), en) {
        (true, true) => format!("First difference: {name}."),
        (true, false) => format!("最先不同之处：{name}。"),
        (false, true) => format!("First difference: {name}; inputs {inputs} equal."),
        (false, false) => format!("最先不同之处：{name}；输入{inputs}相等。"),
    }];
    if let Some([a, b]) = &first.shapes {
        lines.push(match en {
            true => format!("The shapes differ: {a:?} in the first file, {b:?} in the second."),
            false => format!("形状不同：第一个文件中是{a:?}，第二个文件中是{b:?}。"),
        });
    }
    if let Some((index, right, theirs)) = &first.at {
        let (right, theirs) = (short(*right), short(*theirs));
        lines.push(match (of_files, en) {
            (true, true) => {
                format!("At {index:?}: {right} in the first file, {theirs} in the second.")
            }
            (true, false) => {
                format!("在{index:?}：第一个文件中是{right}，第二个文件中是{theirs}。")
            }
            (false, true) => format!("At {index:?}: theirs {theirs}, right {right}."),
            (false, false) => format!("在{index:?}：对方{theirs}，正确{right}。"),
        });
    }
    lines
}

/// The first names, and how many more there are.
fn listed(names: &[String]) -> String {
    const SHOWN: usize = 12;
    let mut shown = names[..names.len().min(SHOWN)].join(", ");
    if names.len() > SHOWN {
        shown.push_str(", …");
    }
    shown
}
