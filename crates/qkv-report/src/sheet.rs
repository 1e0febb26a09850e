//! A corrected sheet, as text and as JSON.

use crate::Lang;
use crate::correct::{Corrected, Correction, State};
use crate::found::{Findings, Mark, Table};
use serde_json::{Value as Json, json};
use std::fmt::Write;

/// `{"verdict": "equal|different|undecided", "first_difference": {"step": …, "index": […]}|null,
/// "causes": [{"id": …, "says": …}], "counts": {"right": …, "empty": …, "wrong": …, "follows": …,
/// "unreadable": …}, "first_wrong": N|null, "blanks": [{"number": N, "asks": …, "label": …,
/// "typed": …, "right": …, "state": …, "slip": {"id": …, "says": …}|null}]}` and the other keys of
/// [`check_json`](crate::check_json), empty.
pub fn sheet_json(correction: &Correction, lang: Lang) -> Json {
    let slip = |one: &Corrected| {
        let slip = one.slip.as_ref();
        slip.map_or(Json::Null, |(id, says)| json!({"id": id, "says": says}))
    };
    let blank = |(at, one): (usize, &Corrected)| {
        json!({
            "number": at + 1,
            "asks": one.asks,
            "label": one.label,
            "typed": one.typed,
            "right": one.right,
            "state": one.state.as_str(),
            "slip": slip(one),
        })
    };
    let first = correction.first_wrong();
    let cause = first.and_then(|at| {
        let (id, _) = correction.blanks[at].slip.as_ref()?;
        Some(json!({
            "id": id,
            "says": first_says(correction, at, lang),
            "max_abs_error": 0.0,
            "parameters": {"blank": at + 1},
        }))
    });
    let counts: serde_json::Map<String, Json> = STATES
        .iter()
        .map(|state| (state.as_str().to_owned(), json!(correction.count(*state))))
        .collect();
    json!({
        "verdict": verdict(correction),
        "rounding": Json::Null,
        "first_difference": first.map(|at| place(&correction.blanks[at].asks)),
        "causes": cause.into_iter().collect::<Vec<_>>(),
        "indistinguishable": [],
        "tell_apart": Json::Null,
        "lint": [],
        "counts": counts,
        "first_wrong": first.map(|at| at + 1),
        "blanks": correction.blanks.iter().enumerate().map(blank).collect::<Vec<_>>(),
    })
}

const STATES: [State; 5] = [
    State::Right,
    State::Empty,
    State::Wrong,
    State::Follows,
    State::Unreadable,
];

/// As a check has it: different where something is wrong, undecided where something is empty.
fn verdict(correction: &Correction) -> &'static str {
    let all = correction.blanks.len();
    match () {
        () if correction.first_wrong().is_some() => "different",
        () if correction.count(State::Right) < all => "undecided",
        () => "equal",
    }
}

/// `scaled[0,0,1,0]` as step and index; what has no index as it stands.
fn place(asks: &str) -> Json {
    let (step, index) = asks.split_once('[').unwrap_or((asks, ""));
    let numbers = index.trim_end_matches(']').split(',');
    let index: Vec<usize> = numbers.filter_map(|number| number.parse().ok()).collect();
    json!({"step": step, "index": index})
}

impl Correction {
    /// Whether every blank is right.
    pub fn all_right(&self) -> bool {
        verdict(self) == "equal"
    }
}

/// The first wrong number, its cause, and how many follow from it.
fn first_says(correction: &Correction, at: usize, lang: Lang) -> String {
    let one = &correction.blanks[at];
    let follow = correction.count(State::Follows);
    let (label, number) = (&one.label, at + 1);
    let typed = one.typed.as_deref().unwrap_or_default();
    let mut says = match lang {
        Lang::En => format!(
            "({number}) {label} is off: {typed}, where {} is right",
            one.right
        ),
        Lang::Zh => format!(
            "第({number})空{label}有误：写的是{typed}，正确的是{}",
            one.right
        ),
    };
    if let Some((_, slip)) = &one.slip {
        let _ = match lang {
            Lang::En => write!(says, " ({slip})"),
            Lang::Zh => write!(says, "（{slip}）"),
        };
    }
    let _ = match (follow, lang) {
        (0, Lang::En) => write!(says, "."),
        (0, Lang::Zh) => write!(says, "。"),
        (1, Lang::En) => write!(says, "; 1 blank after it follows from wrong numbers."),
        (_, Lang::En) => write!(
            says,
            "; {follow} blanks after it follow from wrong numbers."
        ),
        (_, Lang::Zh) => write!(says, "；之后有{follow}空由错误的数推出。"),
    };
    says
}

/// The correction for people, in no format yet.
pub fn sheet_findings(correction: &Correction, lang: Lang) -> Findings {
    let [right, empty, wrong, follows, unreadable] = STATES.map(|state| correction.count(state));
    let all = correction.blanks.len();
    let off = wrong + unreadable;
    let mark = match verdict(correction) {
        "equal" => Mark::Good,
        "undecided" => Mark::Open,
        _ => Mark::Bad,
    };
    let headline = match lang {
        Lang::En => format!(
            "{right} of {all} blanks are right, {off} wrong, {follows} follow from wrong ones, \
             {empty} empty."
        ),
        Lang::Zh => {
            format!(
                "共{all}空：{right}空正确，{off}空错误，{follows}空由错误的数推出，{empty}空未填。"
            )
        }
    };
    let mut findings = Findings::new(mark, headline);
    if let Some(at) = correction.first_wrong() {
        let says = first_says(correction, at, lang);
        findings.facts.push(match lang {
            Lang::En => format!("The first: {says}"),
            Lang::Zh => format!("最先出错的是：{says}"),
        });
    }
    let states = |state: State| match (state, lang) {
        (State::Follows, Lang::En) => "follows",
        (State::Follows, Lang::Zh) => "由错误推出",
        (State::Unreadable, Lang::En) => "no number",
        (State::Unreadable, Lang::Zh) => "不是数",
        (_, Lang::En) => "wrong",
        (_, Lang::Zh) => "错误",
    };
    let off = |one: &&(usize, &Corrected)| !matches!(one.1.state, State::Right | State::Empty);
    let blanks: Vec<(usize, &Corrected)> = correction.blanks.iter().enumerate().collect();
    let rows: Vec<Vec<String>> = blanks
        .iter()
        .filter(off)
        .map(|(at, one)| {
            vec![
                format!("({}) {}", at + 1, one.label),
                one.typed.clone().unwrap_or_default(),
                states(one.state).to_owned(),
                one.right.clone(),
                one.slip
                    .as_ref()
                    .map_or(String::new(), |(_, says)| says.clone()),
            ]
        })
        .collect();
    let columns = match lang {
        Lang::En => ["blank", "written", "", "right", "likely cause"],
        Lang::Zh => ["空", "所写", "", "正确", "可能的原因"],
    };
    findings.table = (!rows.is_empty()).then(|| Table {
        columns: columns.map(str::to_owned).to_vec(),
        rows,
    });
    findings
}
