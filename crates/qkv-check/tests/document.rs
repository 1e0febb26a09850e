//! docs/conventions.md is what the tables say. `QKV_WRITE_DOCS=1 cargo test -p qkv-check --test
//! document` writes it anew.

use qkv_check::{conventions, gradients, lint, presets};
use std::collections::HashSet;
use std::fmt::Write;
use std::path::Path;

/// The page, from the tables alone.
fn page() -> String {
    let mut page = String::from(
        "# Conventions\n\n\
         Generated from the tables of `crates/qkv-check`; a test sees that it is up to date.\n\n\
         What `qkv check` can name, by its id. In JSON a pair of them is one entry, `a+b`. Names in \
         braces are parameters.\n\n\
         | id | what the other side did | 对方的做法 | systems |\n|---|---|---|---|\n",
    );
    for convention in conventions::table() {
        let of = |preset: &&presets::Preset| {
            preset
                .choices
                .iter()
                .any(|choice| choice.id() == convention.id)
        };
        let systems: Vec<&str> = presets::PRESETS
            .iter()
            .filter(of)
            .map(|one| one.id)
            .collect();
        let (id, says) = (convention.id, convention.says);
        let systems = systems.join(", ");
        let _ = writeln!(
            page,
            "| `{id}` | {} | {} | {systems} |",
            cell(says.en),
            cell(says.zh)
        );
    }
    page.push_str(
        "\n## Gradients\n\nWhat `qkv check --grad-output` can name besides the above.\n\n\
         | id | what the other side did | 对方的做法 |\n|---|---|---|\n",
    );
    let mut seen = HashSet::new();
    for mistake in gradients::MISTAKES
        .iter()
        .filter(|mistake| seen.insert(mistake.id))
    {
        let (en, zh) = (cell(mistake.says.en), cell(mistake.says.zh));
        let _ = writeln!(page, "| `{}` | {en} | {zh} |", mistake.id);
    }
    page.push_str(
        "\n## Before any comparison\n\nWhat is odd about input or numbers, under `lint`.\n\n\
         | id | what it means | 含义 |\n|---|---|---|\n",
    );
    for rule in lint::RULES {
        let (en, zh) = (cell(rule.says.en), cell(rule.says.zh));
        let _ = writeln!(page, "| `{}` | {en} | {zh} |", rule.id);
    }
    page.push_str(
        "\n## Systems\n\nWhat `--against` knows of each: where it differs from the options as they \
         stand. Shared heads are repeated each, a row without a key gives 0, the softcap comes before \
         the mask, and lse is natural, unless it says otherwise. \"Seen in\" is the version that was \
         run on a CPU to verify it; the others were read of only.\n\n\
         | name | system | what it does | 做法 | seen in |\n|---|---|---|---|---|\n",
    );
    for preset in presets::PRESETS {
        let says = |zh: bool| -> String {
            let each = preset.choices.iter().map(|choice| match zh {
                true => choice.says().zh,
                false => choice.says().en,
            });
            each.collect::<Vec<_>>().join(if zh { "；" } else { "; " })
        };
        let seen = preset.verified.unwrap_or("not verified");
        let _ = writeln!(
            page,
            "| `{}` | {} | {} | {} | {seen} |",
            preset.id,
            preset.about,
            says(false),
            says(true)
        );
    }
    page
}

/// A text within a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

#[test]
fn the_page_is_what_the_tables_say() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/conventions.md");
    if std::env::var_os("QKV_WRITE_DOCS").is_some() {
        std::fs::write(&path, page()).expect("the page is written");
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == page(),
        "docs/conventions.md is out of date: QKV_WRITE_DOCS=1 cargo test -p qkv-check --test document"
    );
}

#[test]
fn ids_are_kebab_case_and_stand_for_one_thing() {
    let conventions = conventions::table().map(|one| one.id);
    let rules = lint::RULES.iter().map(|rule| rule.id);
    let systems = presets::PRESETS.iter().map(|preset| preset.id);
    for ids in [
        conventions.collect::<Vec<_>>(),
        rules.collect(),
        systems.collect(),
    ] {
        let mut seen = HashSet::new();
        for id in ids {
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
            assert!(id.chars().all(plain), "{id}");
            assert!(seen.insert(id), "{id} is there twice");
        }
    }
    for preset in presets::PRESETS {
        for choice in preset.choices {
            assert!(conventions::find(choice.id()).is_some(), "{}", choice.id());
        }
    }
}

#[test]
fn every_text_is_there_in_both_languages_with_the_same_parameters() {
    let conventions = conventions::table().map(|one| (one.id, one.says));
    let rules = lint::RULES.iter().map(|rule| (rule.id, rule.says));
    let gradients = gradients::MISTAKES.iter().map(|one| (one.id, one.says));
    for (id, says) in conventions.chain(rules).chain(gradients) {
        let parameters = |text: &str| -> Vec<String> {
            let parts = text.split('{').skip(1);
            let mut names: Vec<String> = parts
                .map(|part| part.split('}').next().unwrap_or_default().to_owned())
                .collect();
            names.sort();
            names.dedup();
            names
        };
        assert!(!says.en.is_empty() && !says.zh.is_empty(), "{id}");
        assert_eq!(parameters(says.en), parameters(says.zh), "{id}");
        assert!(
            says.zh
                .chars()
                .any(|c| ('\u{4e00}'..='\u{9fff}').contains(&c)),
            "{id}"
        );
    }
}
