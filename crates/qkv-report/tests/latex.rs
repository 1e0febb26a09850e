//! The LaTeX document: its numbers are those of the page, it is well-formed, and it compiles.
#![allow(clippy::unwrap_used, clippy::panic)]

#[allow(dead_code)]
mod common;

use common::page;
use common::{settings, with_gradient, with_problem};
use qkv_report::{Lang, Subject, html, latex};
use std::process::{Command, Stdio};

const BOTH: [Lang; 2] = [Lang::En, Lang::Zh];

/// A number in TeX as it is printed elsewhere.
fn printed(tex: &str) -> String {
    let tex = tex.trim().replace('-', "−").replace("\\infty", "∞");
    let tex = tex.replace("\\text{NaN}", "NaN");
    let Some((mantissa, power)) = tex.split_once("\\times 10^{") else {
        return tex;
    };
    let power = power.trim_end_matches('}').chars().map(|c| match c {
        '−' => '⁻',
        digit => "⁰¹²³⁴⁵⁶⁷⁸⁹"
            .chars()
            .nth(digit as usize - '0' as usize)
            .unwrap(),
    });
    format!("{}×10{}", mantissa.trim(), power.collect::<String>())
}

/// What stands in braces after every `name{`.
fn arguments<'a>(tex: &'a str, name: &str) -> Vec<&'a str> {
    let starts = tex.match_indices(name).map(|(at, _)| at + name.len());
    let argument = |start: usize| {
        let mut depth = 1;
        let end = tex[start..].find(|c| {
            depth += i32::from(c == '{') - i32::from(c == '}');
            depth == 0
        });
        &tex[start..start + end.unwrap()]
    };
    starts.map(argument).collect()
}

/// Results of lines, then the cells of matrices.
fn numbers_of_latex(tex: &str) -> [Vec<String>; 2] {
    let body = tex.split_once("\\begin{document}").unwrap().1;
    let results = arguments(body, "\\result{");
    let mut cells = Vec::new();
    for array in body.split("\\begin{array}").skip(1) {
        let array = array.split("\\end{array}").next().unwrap();
        for row in array.split("\\\\").skip(1) {
            let row = row.trim_start_matches(" \\hline");
            cells.extend(row.split(" & ").skip(1).map(printed));
        }
    }
    [results.into_iter().map(printed).collect(), cells]
}

fn numbers_of_html(text: &str) -> [Vec<String>; 2] {
    let all = page::check(text);
    let inside = |at: usize, name: &str, class: &str| {
        let mut outer = all[at].parent;
        while let Some(at) = outer {
            if all[at].name == name && all[at].get("class") == Some(class) {
                return Some(at);
            }
            outer = all[at].parent;
        }
        None
    };
    let mut results: Vec<(usize, String)> = Vec::new();
    let mut cells = Vec::new();
    for (at, e) in all.iter().enumerate() {
        if e.name == "b" && inside(at, "div", "lines").is_some() {
            let mut line = e.parent.unwrap();
            while all[line].name != "p" {
                line = all[line].parent.unwrap();
            }
            match results.last_mut() {
                Some((last, text)) if *last == line => *text = e.text.clone(),
                _ => results.push((line, e.text.clone())),
            }
        }
        if e.name == "td" && inside(at, "table", "matrix").is_some() {
            cells.push(e.text.clone());
        }
    }
    [results.into_iter().map(|(_, text)| text).collect(), cells]
}

fn same_numbers(subject: &Subject<'_>) -> usize {
    let mut compared = 0;
    for lang in BOTH {
        let settings = settings(lang, 80);
        let tex = latex(subject, &settings);
        check(&tex);
        // Names of tokens may be Japanese; nothing else of an English page is beyond pdflatex.
        let body = tex.split_once("\\begin{document}").unwrap().1;
        let latin = body.chars().all(|c| c < '\u{2e80}');
        let compiler = if latin { "pdflatex" } else { "xelatex" };
        let first = tex.lines().next().unwrap();
        assert!(first.contains(compiler), "{first}");
        let [results, cells] = numbers_of_latex(&tex);
        let [right_results, right_cells] = numbers_of_html(&html(subject, &settings));
        assert_eq!(results, right_results);
        assert_eq!(cells, right_cells);
        compared += results.len() + cells.len();
    }
    compared
}

/// Braces, environments and dollar signs are closed; special characters are escaped.
fn check(tex: &str) {
    let body = tex.split_once("\\begin{document}").unwrap().1;
    let body = body.split_once("\\end{document}").unwrap().0;
    let (mut depth, mut mathematics, mut open) = (0, false, Vec::new());
    let mut rest = body;
    while let Some(c) = rest.chars().next() {
        let at = body.len() - rest.len();
        let around = || {
            let from = (0..=at)
                .rev()
                .take(60)
                .filter(|&i| body.is_char_boundary(i));
            &body[from.last().unwrap()..at]
        };
        rest = &rest[c.len_utf8()..];
        match c {
            '\\' => {
                let letters = rest.chars().take_while(char::is_ascii_alphabetic).count();
                let name = &rest[..letters];
                rest = &rest[letters.max(1)..];
                if name == "begin" || name == "end" {
                    let argument = &rest[1..rest.find('}').unwrap()];
                    rest = &rest[argument.len() + 2..];
                    match name {
                        "begin" => open.push(argument),
                        _ => assert_eq!(open.pop(), Some(argument), "{}", around()),
                    }
                }
            }
            '{' => depth += 1,
            '}' => {
                depth -= 1;
                assert!(depth >= 0, "{}", around());
            }
            '$' => mathematics = !mathematics,
            '&' => {
                let table = open.iter().any(|name| ["array", "tabular"].contains(name));
                assert!(table, "{}", around());
            }
            '_' | '^' => assert!(mathematics, "{}", around()),
            '#' | '%' => panic!("{}", around()),
            _ => {}
        }
    }
    assert!(depth == 0 && !mathematics && open.is_empty(), "{open:?}");
    let sets = |c: char| c <= '\u{ff}' || "–—‘’“”…".contains(c);
    assert!(tex.starts_with("% ") && tex.lines().next().unwrap().contains("latex"));
    assert!(tex.contains("{ctexart}") || body.chars().all(sets));
}

#[test]
fn its_numbers_are_those_of_the_page() {
    let mut compared = 0;
    for seed in 0..220 {
        with_problem(seed, |problem| {
            compared += same_numbers(&problem.subject);
            if seed < 40 {
                with_gradient(problem, seed, |subject| compared += same_numbers(subject));
            }
        });
    }
    assert!(compared > 50_000, "{compared}");
}

#[test]
fn nothing_of_a_note_is_a_command() {
    with_problem(2, |problem| {
        for (note, compiler) in [
            ("\\input{x} $a$ & 5% #1 ~ ^ _ a_b {", "pdflatex"),
            ("词元 \\input{x}", "xelatex"),
        ] {
            let subject = Subject {
                notes: vec![note.into()],
                ..problem.subject.clone()
            };
            let tex = latex(&subject, &settings(Lang::En, 80));
            check(&tex);
            assert!(!tex.contains("\\input"), "{tex:.300}");
            assert!(tex.lines().next().unwrap().contains(compiler), "{tex:.99}");
        }
    });
}

/// Whether a program can be run.
fn installed(program: &str) -> bool {
    let mut command = Command::new(program);
    let command = command.arg("--version").stdout(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Compiles a document and returns what the compiler complains about.
fn complaints(compiler: &str, tex: &str) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.tex"), tex).unwrap();
    let output = Command::new(compiler)
        .args(["-interaction=nonstopmode", "-halt-on-error", "a.tex"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    let log = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{compiler}:\n{log}");
    let bad = ["Overfull", "Missing character", "! "];
    let lines = log
        .lines()
        .filter(|line| bad.iter().any(|b| line.contains(b)));
    lines.map(Into::into).collect()
}

/// Takes seconds a document, so that it waits for QKV_TEST_LATEX to be set.
#[test]
fn it_compiles_in_one_run() {
    if std::env::var_os("QKV_TEST_LATEX").is_none() {
        println!("skipped: set QKV_TEST_LATEX=1 to compile documents");
        return;
    }
    for compiler in ["pdflatex", "xelatex"] {
        if !installed(compiler) {
            println!("skipped: there is no {compiler}");
            return;
        }
    }
    for seed in 0..12 {
        with_problem(seed, |problem| {
            for lang in BOTH {
                let tex = latex(&problem.subject, &settings(lang, 80));
                let first = tex.lines().next().unwrap();
                let compiler = ["pdflatex", "xelatex"];
                let compiler = compiler.into_iter().find(|name| first.contains(name));
                assert_eq!(complaints(compiler.unwrap(), &tex), Vec::<String>::new());
            }
        });
    }
}
