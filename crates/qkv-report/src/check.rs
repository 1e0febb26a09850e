//! What a check finds, as text and as JSON.

use crate::found::{Findings, Mark};
use crate::json::Number;
use crate::{Lang, Settings};
use qkv::DType;
use qkv_check::conventions::find;
use qkv_check::gradients;
use qkv_check::presets::{Against, Preset};
use qkv_check::report::{Lint, Parameters, Places, Value};
use qkv_check::{Cause, Report, Verdict};
use serde_json::{Map, Value as Json, json};

/// `{"verdict": …, "rounding": {"dtype": …}|null, "first_difference": {"step": …, "index": […]}|null,
/// "causes": [{"id": …, "says": …, "max_abs_error": …, "parameters": {…}}], "indistinguishable":
/// [[ids…]], "tell_apart": null, "bound": …, "max_abs_error": …, "places": {…}|null, "lint": […]}`.
pub fn check_json(report: &Report, lang: Lang) -> Json {
    json!({
        "verdict": report.verdict.as_str(),
        "rounding": report.rounding.map(|dtype| json!({"dtype": dtype_name(dtype)})),
        "first_difference": report.first_difference.as_ref().map(|first| json!({
            "step": first.step.as_str(),
            "index": first.index,
            "right": Number(first.right),
            "theirs": Number(first.theirs),
        })),
        "causes": causes_json(&report.causes, lang),
        "indistinguishable": report.indistinguishable,
        "tell_apart": Json::Null,
        "bound": Number(report.bound),
        "max_abs_error": Number(report.max_abs_error),
        "places": report.places.as_ref().map(places),
        "lint": lint_json(&report.lint, lang),
    })
}

/// As [`check_json`], and `"against": {"preset": …, "about": …, "verified": VERSION|null,
/// "conventions": [ids…], "give": [presets that would give these numbers], "others": […]}`.
pub fn against_json(against: &Against, lang: Lang) -> Json {
    let mut json = check_json(&against.report, lang);
    let names = |list: &[&Preset]| list.iter().map(|preset| preset.id).collect::<Vec<_>>();
    let choices = against.preset.choices.iter();
    json["against"] = json!({
        "preset": against.preset.id,
        "about": against.preset.about,
        "verified": against.preset.verified,
        "conventions": choices.map(|choice| choice.id()).collect::<Vec<_>>(),
        "give": names(&against.give),
        "others": names(&against.others),
    });
    json
}

/// As [`check_findings`], and which systems would give these numbers.
pub fn against_findings(against: &Against, lang: Lang) -> Findings {
    let names = |list: &[&Preset]| -> String {
        let others = list.iter().filter(|preset| preset.id != against.preset.id);
        others
            .map(|preset| preset.id)
            .collect::<Vec<_>>()
            .join(", ")
    };
    let (give, others) = (names(&against.give), names(&against.others));
    let id = against.preset.id;
    let agrees = against.report.verdict.agrees();
    let headline = match (agrees, lang) {
        (true, Lang::En) if others.is_empty() => format!("These numbers are what {id} would give."),
        (true, Lang::Zh) if others.is_empty() => format!("这些数正是{id}会给出的。"),
        (true, Lang::En) => format!("These numbers are what {id} would give, but not {others}."),
        (true, Lang::Zh) => format!("这些数正是{id}会给出的，但{others}不会。"),
        (false, Lang::En) if give.is_empty() => {
            format!("These numbers are not what {id} would give, nor any other system.")
        }
        (false, Lang::Zh) if give.is_empty() => {
            format!("这些数不是{id}会给出的，也不是其他系统的。")
        }
        (false, Lang::En) => {
            format!("These numbers are not what {id} would give, but what {give} would.")
        }
        (false, Lang::Zh) => format!("这些数不是{id}会给出的，而是{give}会给出的。"),
    };
    let mut findings = check_findings(&against.report, lang);
    if against.report.verdict == Verdict::Undecided && give.is_empty() {
        return findings;
    }
    let verdict = std::mem::replace(&mut findings.headline, headline);
    let about = against.preset.about;
    let mut facts = Vec::new();
    if agrees && !give.is_empty() {
        facts.push(match lang {
            Lang::En => format!("So would {give}."),
            Lang::Zh => format!("{give}也会给出同样的数。"),
        });
    }
    facts.push(match (against.preset.verified, lang) {
        (Some(version), Lang::En) => format!("{id}: {about}; seen in version {version}."),
        (Some(version), Lang::Zh) => format!("{id}：{about}；在{version}版上验证过。"),
        (None, Lang::En) => format!("{id}: {about}; from its documentation, not verified."),
        (None, Lang::Zh) => format!("{id}：{about}；依据文档，未经验证。"),
    });
    facts.push(verdict);
    facts.append(&mut findings.facts);
    findings.facts = facts;
    findings
}

pub(crate) fn causes_json(causes: &[Cause], lang: Lang) -> Json {
    let cause = |cause: &Cause| {
        json!({
            "id": cause.id(),
            "says": says(cause, lang),
            "max_abs_error": Number(cause.max_abs_error),
            "parameters": parameters(&cause.parameters),
        })
    };
    causes.iter().map(cause).collect()
}

pub(crate) fn lint_json(lint: &[Lint], lang: Lang) -> Json {
    let one = |lint: &Lint| {
        json!({
            "id": lint.id,
            "says": lint_says(lint, lang),
            "parameters": parameters(&lint.parameters),
        })
    };
    lint.iter().map(one).collect()
}

pub(crate) fn places(places: &Places) -> Json {
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
        Value::Numbers(numbers) => numbers.iter().map(|n| json!(Number(*n))).collect(),
    }
}

/// As files and frameworks call it in short.
pub(crate) fn dtype_name(dtype: DType) -> &'static str {
    match dtype {
        DType::F16 => "f16",
        DType::Bf16 => "bf16",
        DType::F32 => "f32",
        DType::F64 => "f64",
    }
}

/// The sentences of a cause's conventions, with its parameters.
pub(crate) fn says(cause: &Cause, lang: Lang) -> String {
    let text = |id: &&'static str| {
        let convention = find(id).map(|convention| convention.says);
        convention.or_else(|| gradients::find(id).map(|mistake| mistake.says))
    };
    let texts = cause.ids.iter().filter_map(text);
    let sentences: Vec<String> = texts
        .map(|says| {
            let text = match lang {
                Lang::En => says.en,
                Lang::Zh => says.zh,
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
            Value::Numbers(numbers) => {
                let numbers: Vec<String> = numbers.iter().map(|n| short(*n)).collect();
                numbers.join(", ")
            }
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
pub(crate) fn short(number: f64) -> String {
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
    let text = format!("{number:.5e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let mantissa = match mantissa.contains('.') {
        true => mantissa.trim_end_matches('0').trim_end_matches('.'),
        false => mantissa, // infinite, or no number
    };
    match number.is_finite() {
        true => format!("{mantissa}e{exponent}"),
        false => mantissa.to_owned(),
    }
}

pub(crate) fn lint_says(lint: &Lint, lang: Lang) -> String {
    let Some(rule) = qkv_check::lint::find(lint.id) else {
        return String::new();
    };
    let text = match lang {
        Lang::En => rule.says.en,
        Lang::Zh => rule.says.zh,
    };
    filled(text, &lint.parameters)
}

/// The report for people, as text.
pub fn check_text(report: &Report, settings: &Settings) -> String {
    check_findings(report, settings.lang).text(settings)
}

/// The report for people, in no format yet.
pub fn check_findings(report: &Report, lang: Lang) -> Findings {
    let headline = verdict(report.verdict, report.rounding, lang);
    let mut findings = Findings::new(mark(report.verdict), headline);
    let (largest, bound) = (short(report.max_abs_error), short(report.bound));
    findings.facts.push(match lang {
        Lang::En => format!("Largest difference {largest}, allowed {bound}."),
        Lang::Zh => format!("最大差{largest}，允许{bound}。"),
    });
    if let Some(first) = &report.first_difference {
        let (step, index) = (first.step, &first.index);
        let (right, theirs) = (short(first.right), short(first.theirs));
        findings.facts.push(match lang {
            Lang::En => {
                format!("First difference: {step} {index:?}: theirs {theirs}, right {right}.")
            }
            Lang::Zh => format!("最先不同之处：{step} {index:?}：对方{theirs}，正确{right}。"),
        });
    }
    findings.causes = causes_said(&report.causes, lang);
    for group in &report.indistinguishable {
        let ids = group.join(", ");
        findings.remarks.push(match lang {
            Lang::En => format!("This input does not tell apart: {ids}."),
            Lang::Zh => format!("这组输入无法区分：{ids}。"),
        });
    }
    findings.lint = lint_said(&report.lint, lang);
    findings
}

pub(crate) fn mark(verdict: Verdict) -> Mark {
    match verdict {
        Verdict::Equal | Verdict::Rounding => Mark::Good,
        Verdict::Different => Mark::Bad,
        Verdict::Undecided => Mark::Open,
    }
}

pub(crate) fn causes_said(causes: &[Cause], lang: Lang) -> Vec<[String; 2]> {
    let said = causes.iter().map(|cause| [cause.id(), says(cause, lang)]);
    said.collect()
}

pub(crate) fn lint_said(lint: &[Lint], lang: Lang) -> Vec<[String; 2]> {
    let said = lint
        .iter()
        .map(|lint| [lint.id.to_owned(), lint_says(lint, lang)]);
    said.collect()
}

/// The verdict in a sentence.
pub(crate) fn verdict(verdict: Verdict, rounding: Option<DType>, lang: Lang) -> String {
    match (verdict, lang) {
        (Verdict::Equal, Lang::En) => "Equal: every number is within the bound.".to_owned(),
        (Verdict::Equal, Lang::Zh) => "相等：每个数都在误差界之内。".to_owned(),
        (Verdict::Rounding, _) => {
            let dtype = rounding.map_or("", dtype_name);
            match lang {
                Lang::En => format!("Only rounding: the differences are those of {dtype}."),
                Lang::Zh => format!("只是舍入：差别属于{dtype}的舍入误差。"),
            }
        }
        (Verdict::Different, Lang::En) => "Different.".to_owned(),
        (Verdict::Different, Lang::Zh) => "不同。".to_owned(),
        (Verdict::Undecided, Lang::En) => "Undecided.".to_owned(),
        (Verdict::Undecided, Lang::Zh) => "无法判定。".to_owned(),
    }
}
