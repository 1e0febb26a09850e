//! What a check finds, as text and as JSON.

use crate::json::Number;
use crate::{Lang, Settings};
use qkv::DType;
use qkv_check::conventions::find;
use qkv_check::report::{Lint, Parameters, Places, Value};
use qkv_check::{Cause, Report, Verdict};
use serde_json::{Map, Value as Json, json};
use std::fmt::Write;

/// `{"verdict": …, "rounding": {"dtype": …}|null, "first_difference": {"step": …, "index": […]}|null,
/// "causes": [{"id": …, "says": …, "max_abs_error": …, "parameters": {…}}], "indistinguishable":
/// [[ids…]], "tell_apart": null, "bound": …, "max_abs_error": …, "places": {…}|null, "lint": […]}`.
pub fn check_json(report: &Report, lang: Lang) -> Json {
    let cause = |cause: &Cause| {
        json!({
            "id": cause.id(),
            "says": says(cause, lang),
            "max_abs_error": Number(cause.max_abs_error),
            "parameters": parameters(&cause.parameters),
        })
    };
    let lint = |lint: &Lint| {
        json!({
            "id": lint.id,
            "says": lint_says(lint, lang),
            "parameters": parameters(&lint.parameters),
        })
    };
    json!({
        "verdict": report.verdict.as_str(),
        "rounding": report.rounding.map(|dtype| json!({"dtype": dtype_name(dtype)})),
        "first_difference": report.first_difference.as_ref().map(|first| json!({
            "step": first.step.as_str(),
            "index": first.index,
            "right": Number(first.right),
            "theirs": Number(first.theirs),
        })),
        "causes": report.causes.iter().map(cause).collect::<Vec<_>>(),
        "indistinguishable": report.indistinguishable,
        "tell_apart": Json::Null,
        "bound": Number(report.bound),
        "max_abs_error": Number(report.max_abs_error),
        "places": report.places.as_ref().map(places),
        "lint": report.lint.iter().map(lint).collect::<Vec<_>>(),
    })
}

fn places(places: &Places) -> Json {
    json!({
        "count": places.count,
        "of": places.of,
        "batches": places.batches,
        "heads": places.heads,
        "rows": places.rows,
        "ratio": places.ratio.map(Number),
    })
}

fn parameters(parameters: &Parameters) -> Json {
    let mut map = Map::new();
    for (name, value) in parameters {
        map.insert((*name).into(), parameter(value));
    }
    Json::Object(map)
}

fn parameter(value: &Value) -> Json {
    match value {
        Value::Number(number) => json!(Number(*number)),
        Value::Whole(number) => json!(number),
        Value::Name(name) => json!(name),
        Value::Names(names) => json!(names),
        Value::Wholes(numbers) => json!(numbers),
    }
}

/// As files and frameworks call it in short.
fn dtype_name(dtype: DType) -> &'static str {
    match dtype {
        DType::F16 => "f16",
        DType::Bf16 => "bf16",
        DType::F32 => "f32",
        DType::F64 => "f64",
    }
}

/// The sentences of a cause's conventions, with its parameters.
fn says(cause: &Cause, lang: Lang) -> String {
    let texts = cause.ids.iter().filter_map(|id| find(id));
    let sentences: Vec<String> = texts
        .map(|convention| {
            let text = match lang {
                Lang::En => convention.says.en,
                Lang::Zh => convention.says.zh,
            };
            filled(text, &cause.parameters)
        })
        .collect();
    sentences.join(match lang {
        Lang::En => " ",
        Lang::Zh => "",
    })
}

/// A text with the parameters in the place of their names in braces.
fn filled(text: &str, parameters: &Parameters) -> String {
    let mut text = text.to_owned();
    for (name, value) in parameters {
        let shown = match value {
            Value::Number(number) => short(*number),
            Value::Whole(number) => number.to_string(),
            Value::Name(name) => (*name).to_owned(),
            Value::Names(names) if names.is_empty() => "?".into(),
            Value::Names(names) => names.join(", "),
            Value::Wholes(numbers) => format!("{numbers:?}"),
        };
        text = text.replace(&format!("{{{name}}}"), &shown);
    }
    // A parameter that this variant does not have.
    while let (Some(open), Some(close)) = (text.find('{'), text.find('}')) {
        if close < open {
            break;
        }
        text.replace_range(open..=close, "?");
    }
    text
}

/// Six significant digits.
fn short(number: f64) -> String {
    if number == 0.0 || (1e-4..1e6).contains(&number.abs()) {
        let decimals = match number {
            0.0 => 0,
            _ => (5 - number.abs().log10().floor() as i32).max(0) as usize,
        };
        let text = format!("{number:.decimals$}");
        if text.contains('.') {
            return text.trim_end_matches('0').trim_end_matches('.').to_owned();
        }
        return text;
    }
    format!("{number:e}")
}

fn lint_says(lint: &Lint, lang: Lang) -> &'static str {
    match (lint.id, lang) {
        ("reference-nan", Lang::En) => {
            "The right answer itself holds NaN, since a number that is kept is NaN."
        }
        ("reference-nan", Lang::Zh) => "正确答案本身就含有NaN，因为参与计算的数中有NaN。",
        _ => "",
    }
}

/// The report for people.
pub fn check_text(report: &Report, settings: &Settings) -> String {
    let lang = settings.lang;
    let mut text = String::new();
    let mut line = |line: String| {
        let _ = writeln!(text, "{line}");
    };
    let verdict = match (report.verdict, lang) {
        (Verdict::Equal, Lang::En) => "Equal: every number is within the bound.".to_owned(),
        (Verdict::Equal, Lang::Zh) => "相等：每个数都在误差界之内。".to_owned(),
        (Verdict::Rounding, _) => {
            let dtype = report.rounding.map_or("", dtype_name);
            match lang {
                Lang::En => format!("Only rounding: the differences are those of {dtype}."),
                Lang::Zh => format!("只是舍入：差别属于{dtype}的舍入误差。"),
            }
        }
        (Verdict::Different, Lang::En) => "Different.".to_owned(),
        (Verdict::Different, Lang::Zh) => "不同。".to_owned(),
        (Verdict::Undecided, Lang::En) => "Undecided.".to_owned(),
        (Verdict::Undecided, Lang::Zh) => "无法判定。".to_owned(),
    };
    line(verdict);
    let (largest, bound) = (short(report.max_abs_error), short(report.bound));
    line(match lang {
        Lang::En => format!("Largest difference {largest}, allowed {bound}."),
        Lang::Zh => format!("最大差{largest}，允许{bound}。"),
    });
    if let Some(first) = &report.first_difference {
        let (step, index) = (first.step, &first.index);
        let (right, theirs) = (short(first.right), short(first.theirs));
        line(match lang {
            Lang::En => {
                format!("First difference: {step} {index:?}: theirs {theirs}, right {right}.")
            }
            Lang::Zh => format!("最先不同之处：{step} {index:?}：对方{theirs}，正确{right}。"),
        });
    }
    for cause in &report.causes {
        line(format!("- {}: {}", cause.id(), says(cause, lang)));
    }
    for group in &report.indistinguishable {
        let ids = group.join(", ");
        line(match lang {
            Lang::En => format!("This input does not tell apart: {ids}."),
            Lang::Zh => format!("这组输入无法区分：{ids}。"),
        });
    }
    for lint in &report.lint {
        line(format!("! {}: {}", lint.id, lint_says(lint, lang)));
    }
    text
}
