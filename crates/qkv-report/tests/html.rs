//! The page for a browser: its numbers are those of JSON, and it is well-formed.
#![allow(clippy::unwrap_used, clippy::panic)]

#[allow(dead_code)]
mod common;

use common::numbers::printed;
use common::page::{self, Element};
use common::{Draw, settings, subject, with_problem};
use qkv::{Block, Inputs};
use qkv_report::{Lang, Origin, Settings, Subject, html, json};
use serde_json::Value;

const BOTH: [Lang; 2] = [Lang::En, Lang::Zh];

/// `weights.0.0.1.0` in the JSON of a run; `None` if it is no step.
fn in_json(json: &Value, place: &str) -> Option<f64> {
    let (name, index) = place.split_once('.').unwrap();
    let steps = json["steps"].as_array().unwrap();
    let step = steps.iter().find(|step| step["name"] == name)?;
    let mut value = &step["values"];
    for at in index.split('.') {
        value = &value[at.parse::<usize>().unwrap()];
    }
    Some(match value.as_str() {
        Some(text) => text.parse().unwrap(),
        None => value.as_f64().unwrap_or_else(|| panic!("{place}: {value}")),
    })
}

/// Every number that says which one it is, is the one that JSON has there.
fn check_numbers(subject: &Subject<'_>, page: &[Element], digits: usize) -> usize {
    let json = json(subject);
    let mut compared = 0;
    for element in page {
        let Some(place) = element.get("data-e") else {
            continue;
        };
        let (shown, half) = printed(&element.text, digits).unwrap();
        let Some(value) = in_json(&json, place) else {
            let inputs = [
                "x", "context", "wq", "wk", "wv", "wo", "bq", "bk", "bv", "bo",
            ];
            let name = place.split('.').next().unwrap();
            assert!(inputs.contains(&name), "{place}");
            continue;
        };
        let same = shown == value || shown.is_nan() && value.is_nan();
        let near = (shown - value).abs() <= half * (1.0 + 1e-9) + 1e-15 * value.abs();
        assert!(same || near, "{place}: {shown} for {value}");
        compared += 1;
    }
    compared
}

#[test]
fn its_numbers_are_those_of_json() {
    let mut compared = 0;
    for seed in 0..220 {
        with_problem(seed, |problem| {
            for (lang, digits) in [(Lang::En, 4), (Lang::Zh, 2)] {
                let settings = Settings {
                    digits,
                    ..settings(lang, 80)
                };
                let page = page::check(&html(&problem.subject, &settings));
                compared += check_numbers(&problem.subject, &page, digits);
            }
        });
    }
    assert!(compared > 200_000, "{compared}");
}

#[test]
fn every_step_is_on_the_page_and_its_lines_lead_there() {
    let mut lines = 0;
    for seed in 0..220 {
        with_problem(seed, |problem| {
            let page = page::check(&html(&problem.subject, &settings(Lang::En, 80)));
            let of_cells: Vec<&str> = page.iter().filter_map(|e| e.get("data-e")).collect();
            let no_keys = !problem.subject.steps.empty_rows().is_empty();
            for (name, _) in problem.subject.steps.iter() {
                // A row without keys has no maximum to show.
                if no_keys && ["max", "exp", "sum"].contains(&name.as_str()) {
                    continue;
                }
                let start = format!("{}.", name.as_str());
                let found = of_cells.iter().any(|place| place.starts_with(&start));
                assert!(found, "seed {seed}: no {}", name.as_str());
            }
            for (at, line) in page.iter().enumerate() {
                let Some(of) = line.get("data-of") else {
                    continue;
                };
                // The last number of a line is its own.
                let inside = page[at + 1..].iter();
                let inside = inside.take_while(|e| e.name != "p" && e.name != "div");
                let last = inside.filter(|e| e.name == "b").last().unwrap();
                assert_eq!(last.get("data-e"), Some(of), "{}", line.text);
                lines += 1;
            }
        });
    }
    assert!(lines > 20_000, "{lines}");
}

#[test]
fn a_weight_comes_from_its_exponential_and_the_sum() {
    with_problem(3, |problem| {
        let page = page::check(&html(&problem.subject, &settings(Lang::En, 80)));
        let place = |name: &str| {
            let start = format!("{name}.");
            move |e: &&Element| e.get("data-of").is_some_and(|of| of.starts_with(&start))
        };
        let parts_of = |name: &str| {
            let line = page.iter().find(place(name)).unwrap();
            let at = page.iter().position(|e| std::ptr::eq(e, line)).unwrap();
            let inside = page[at + 1..].iter().take_while(|e| e.name != "p");
            let parts = inside.filter_map(|e| e.get("data-e")).map(String::from);
            (
                line.get("data-of").unwrap().to_string(),
                parts.collect::<Vec<_>>(),
            )
        };
        let (weight, parts) = parts_of("weights");
        let index = weight.strip_prefix("weights.").unwrap();
        let row = index.rsplit_once('.').unwrap().0;
        assert_eq!(
            parts,
            [format!("exp.{index}"), format!("sum.{row}"), weight]
        );
        let (_, parts) = parts_of("output");
        assert!(parts.iter().any(|part| part.starts_with("v.")), "{parts:?}");
    });
}

#[test]
fn a_large_page_stays_small() {
    let shape = [1, 12, 512, 8];
    let numbers = Draw::new(1).tensor(&shape);
    let view = || numbers.view().unwrap();
    let inputs = Inputs::new(view(), view(), view()).unwrap();
    let block = Block {
        concatenate: true,
        ..Block::default()
    };
    let steps = block.steps(&inputs).unwrap();
    let subject = subject(&block, &steps, Origin::Given, 0);
    for lang in BOTH {
        let text = html(&subject, &settings(lang, 80));
        assert!(text.len() < 400_000, "{}", text.len());
        let page = page::check(&text);
        assert_eq!(page.iter().filter(|e| e.name == "figure").count(), 3);
        let cells = page.iter().filter(|e| e.name == "td").count();
        assert!(cells >= 3 * 32 * 32, "{cells}");
        assert!(check_numbers(&subject, &page, 4) > 100);
    }
}

#[test]
fn labels_are_text_and_not_markup() {
    with_problem(5, |problem| {
        for lang in BOTH {
            let label = "<script>alert('1')</script> & \"x\"";
            let subject = Subject {
                notes: vec![label.into()],
                ..problem.subject.clone()
            };
            let page = page::check(&html(&subject, &settings(lang, 80)));
            assert!(
                page.iter()
                    .any(|e| e.name == "li" && e.text.trim() == label)
            );
            assert_eq!(page.iter().filter(|e| e.name == "script").count(), 1);
        }
    });
}

#[test]
fn it_says_its_language_and_can_be_skipped_to() {
    with_problem(1, |problem| {
        for (lang, name) in [(Lang::En, "en"), (Lang::Zh, "zh-CN")] {
            let page = page::check(&html(&problem.subject, &settings(lang, 80)));
            assert_eq!(page[0].get("lang"), Some(name));
            let first = page.iter().find(|e| e.name == "a").unwrap();
            assert_eq!(first.get("href"), Some("#main"));
            for needed in ["main", "nav", "aside", "h1", "details"] {
                assert!(page.iter().any(|e| e.name == needed), "{needed}");
            }
            // Without the script nothing is folded, and only what needs it is hidden.
            for e in &page {
                assert!(e.name != "details" || e.get("open").is_some());
                let of_script = e.name == "aside" || e.get("class") == Some("controls");
                assert_eq!(e.get("hidden").is_some(), of_script, "{e:?}");
            }
        }
    });
}
