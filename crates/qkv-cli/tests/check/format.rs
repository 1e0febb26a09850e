//! The verdict as text, Markdown and HTML.

use crate::common::{command, qkv, refusals, words};

const WEAK: &str = "check --q 1 --k '2;1;3' --v '1;10;100' --scale 1 --drop '0 0 1' \
                    --weights '.665241 .244728 .090031'";

#[test]
fn every_format_says_the_same() {
    let text = qkv(WEAK).out;
    let markdown = qkv(&format!("{WEAK} --format markdown")).out;
    let html = qkv(&format!("{WEAK} --format html")).out;
    for said in [&text, &markdown, &html] {
        for word in [
            "Different",
            "0.090031",
            "mask-fill-weak",
            "weight-on-dropped",
            "carries weight",
        ] {
            assert!(said.contains(word), "{word}: {said}");
        }
    }
    assert!(markdown.starts_with("## Different."), "{markdown}");
    assert!(html.starts_with("<!DOCTYPE html>") && html.trim_end().ends_with("</html>"));
    for outside in ["http://", "https://", "src=", "url("] {
        assert!(!html.contains(outside), "{outside}");
    }
    let zh = qkv(&format!("{WEAK} --format html --lang zh")).out;
    assert!(
        zh.contains("lang=\"zh-CN\"") && zh.contains("不同。") && zh.contains("被屏蔽的位置"),
        "{zh}"
    );
}

#[test]
fn what_could_be_markup_is_shown_as_it_is() {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, number) in [("a.json", 1), ("b.json", 3)] {
        let text = format!("{{\"<b>|x_\": [[{number}, 2]]}}");
        std::fs::write(folder.path().join(name), text).expect("a file");
    }
    let said = |format: &str| {
        let words = words(&format!("check a.json b.json --format {format}"));
        let out = command(folder.path())
            .args(&words)
            .output()
            .expect("it runs");
        String::from_utf8(out.stdout).expect("UTF-8")
    };
    let html = said("html");
    assert!(
        html.contains("&lt;b&gt;|x_") && !html.contains("<b>"),
        "{html}"
    );
    assert!(
        said("markdown").contains("&lt;b>\\|x\\_"),
        "{}",
        said("markdown")
    );
}

#[test]
fn latex_is_a_whole_document() {
    let tex = qkv(&format!("{WEAK} --format latex")).out;
    for part in [
        "\\begin{document}",
        "Different.",
        "\\texttt{mask-{}multiplied}",
        "\\texttt{weight-{}on-{}dropped}",
    ] {
        assert!(tex.contains(part), "{part}: {tex}");
    }
    assert!(tex.trim_end().ends_with("\\end{document}"), "{tex}");
    let zh = qkv(&format!("{WEAK} --format latex --lang zh")).out;
    assert!(zh.contains("{ctexart}") && zh.contains("不同。"), "{zh}");
}

#[test]
fn colour_is_for_terminals_and_safetensors_are_refused() {
    assert!(!qkv(WEAK).out.contains('\u{1b}'));
    assert!(
        qkv(&format!("{WEAK} --color always"))
            .out
            .starts_with("\u{1b}[1;31mDifferent.\u{1b}[0m\n")
    );
    let agrees = "check --q 1 --k 1 --v 1 --output 1 --color always";
    assert!(qkv(agrees).out.starts_with("\u{1b}[1;32mEqual"));
    refusals(
        "check",
        &std::env::temp_dir(),
        &["x.safetensors", "x.npy"].map(|file| {
            let says: &[&str] = &[
                "-o: the ending of x.",
                "use .txt, .md, .tex, .html or .json\n",
            ];
            (WEAK.replace("check ", "") + " -o " + file, says)
        }),
    );
}
