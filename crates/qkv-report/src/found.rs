//! What a check found, described once, and its renderers: text, Markdown, HTML; LaTeX is in `latex/findings.rs`.

use crate::text::columns;
use crate::{Lang, Settings};
use std::fmt::Write;

/// How it looks: a checker's colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    Good,
    Bad,
    Open,
}

/// Everything that is said, in an order and in words, but in no format.
#[derive(Clone, Debug)]
pub struct Findings {
    pub(crate) mark: Mark,
    /// The verdict in a sentence.
    pub(crate) headline: String,
    pub(crate) facts: Vec<String>,
    /// Ids and sentences.
    pub(crate) causes: Vec<[String; 2]>,
    /// What follows the causes.
    pub(crate) remarks: Vec<String>,
    /// A heading, the names of columns, and rows.
    pub(crate) table: Option<Table>,
    /// Ids and sentences of what is odd.
    pub(crate) lint: Vec<[String; 2]>,
}

/// Rows with named columns.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub columns: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

impl Findings {
    pub(crate) fn new(mark: Mark, headline: String) -> Findings {
        Findings {
            mark,
            headline,
            facts: Vec::new(),
            causes: Vec::new(),
            remarks: Vec::new(),
            table: None,
            lint: Vec::new(),
        }
    }

    /// For a terminal or a pipe; the verdict is coloured where the settings say so.
    pub fn text(&self, settings: &Settings) -> String {
        let code = match (self.mark, settings.color) {
            (_, false) => "",
            (Mark::Good, true) => "\x1b[1;32m",
            (Mark::Bad, true) => "\x1b[1;31m",
            (Mark::Open, true) => "\x1b[1;33m",
        };
        let reset = if code.is_empty() { "" } else { "\x1b[0m" };
        let mut text = format!("{code}{}{reset}\n", self.headline);
        let mut line = |line: &str| {
            let _ = writeln!(text, "{line}");
        };
        self.facts.iter().for_each(|fact| line(fact));
        for [id, says] in &self.causes {
            line(&format!("- {id}: {says}"));
        }
        self.remarks.iter().for_each(|remark| line(remark));
        if let Some(Table {
            rows,
            columns: names,
        }) = &self.table
        {
            let widest = |c: usize| rows.iter().map(|row| columns(&row[c])).max().unwrap_or(0);
            let widths: Vec<usize> = (0..names.len()).map(widest).collect();
            for row in rows {
                let cells = row
                    .iter()
                    .zip(&widths)
                    .map(|(cell, width)| format!("{cell}{}", " ".repeat(width - columns(cell))));
                let cells: Vec<String> = cells.collect();
                line(format!("  {}", cells.join("  ")).trim_end());
            }
        }
        for [id, says] in &self.lint {
            line(&format!("! {id}: {says}"));
        }
        text
    }

    /// For a page or a comment.
    pub fn markdown(&self, settings: &Settings) -> String {
        let words = Titles::of(settings.lang);
        let mut text = format!("## {}\n", escaped(&self.headline));
        for fact in &self.facts {
            let _ = write!(text, "\n{}\n", escaped(fact));
        }
        let list = |text: &mut String, title: &str, entries: &[[String; 2]]| {
            if !entries.is_empty() {
                let _ = write!(text, "\n### {title}\n\n");
            }
            for [id, says] in entries {
                let _ = writeln!(text, "- `{id}`: {}", escaped(says));
            }
        };
        list(&mut text, words.causes, &self.causes);
        for remark in &self.remarks {
            let _ = write!(text, "\n{}\n", escaped(remark));
        }
        list(&mut text, words.lint, &self.lint);
        if let Some(Table { columns, rows }) = &self.table {
            let line = |cells: &[String]| {
                let cells: Vec<String> = cells.iter().map(|cell| escaped(cell)).collect();
                format!("| {} |\n", cells.join(" | "))
            };
            let _ = write!(
                text,
                "\n{}|{}\n",
                line(columns),
                "---|".repeat(columns.len())
            );
            rows.iter().for_each(|row| text.push_str(&line(row)));
        }
        text
    }

    /// As one page that asks for nothing from outside.
    pub fn html(&self, settings: &Settings) -> String {
        let words = Titles::of(settings.lang);
        let class = match self.mark {
            Mark::Good => "good",
            Mark::Bad => "bad",
            Mark::Open => "open",
        };
        let headline = in_html(&self.headline);
        let mut page = format!(
            "<!DOCTYPE html>\n<html lang=\"{}\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src \
             'unsafe-inline'\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n\
             <title>qkv check: {headline}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
             <h1 class=\"{class}\">{headline}</h1>\n",
            words.language
        );
        for fact in &self.facts {
            let _ = writeln!(page, "<p>{}</p>", in_html(fact));
        }
        let list = |page: &mut String, title: &str, entries: &[[String; 2]]| {
            if entries.is_empty() {
                return;
            }
            let _ = write!(page, "<h2>{title}</h2>\n<dl>\n");
            for [id, says] in entries {
                let (id, says) = (in_html(id), in_html(says));
                let _ = writeln!(page, "<dt><code>{id}</code></dt><dd>{says}</dd>");
            }
            page.push_str("</dl>\n");
        };
        list(&mut page, words.causes, &self.causes);
        for remark in &self.remarks {
            let _ = writeln!(page, "<p>{}</p>", in_html(remark));
        }
        list(&mut page, words.lint, &self.lint);
        if let Some(Table { columns, rows }) = &self.table {
            let line = |cells: &[String], tag: &str| {
                let cells = cells
                    .iter()
                    .map(|cell| format!("<{tag}>{}</{tag}>", in_html(cell)));
                format!("<tr>{}</tr>\n", cells.collect::<String>())
            };
            page.push_str("<div class=\"scroll\"><table>\n<thead>");
            page.push_str(&line(columns, "th"));
            page.push_str("</thead>\n<tbody>\n");
            rows.iter().for_each(|row| page.push_str(&line(row, "td")));
            page.push_str("</tbody>\n</table></div>\n");
        }
        page.push_str("</main>\n</body>\n</html>\n");
        page
    }
}

/// Headings.
pub(crate) struct Titles {
    language: &'static str,
    pub causes: &'static str,
    pub lint: &'static str,
}

impl Titles {
    pub fn of(lang: Lang) -> Titles {
        match lang {
            Lang::En => Titles {
                language: "en",
                causes: "What explains it",
                lint: "To be noted",
            },
            Lang::Zh => Titles {
                language: "zh-CN",
                causes: "原因",
                lint: "请注意",
            },
        }
    }
}

const STYLE: &str = "\
:root { --paper: #fff; --ink: #1b1f24; --soft: #57606a; --line: #d0d7de; --shade: #f3f5f8;
  --good: #116329; --bad: #a40e26; --open: #7d4e00; }
@media screen and (prefers-color-scheme: dark) { :root { --paper: #14181d; --ink: #e6eaee;
  --soft: #a9b3bd; --line: #3a434d; --shade: #1e242b; --good: #6fdd8b; --bad: #ff9d94;
  --open: #f0c36d; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 1rem/1.55 system-ui, \"Segoe UI\",
  Roboto, \"Noto Sans\", \"PingFang SC\", \"Noto Sans CJK SC\", \"Noto Sans SC\", \"Microsoft YaHei\",
  sans-serif; }
main { max-width: 52rem; margin: 0 auto; padding: 1rem 1rem 4rem; }
h1 { font-size: 1.4rem; line-height: 1.3; padding-left: .8rem; border-left: .4rem solid; }
h1.good { color: var(--good); }
h1.bad { color: var(--bad); }
h1.open { color: var(--open); }
h2 { font-size: 1.1rem; margin: 1.6rem 0 .4rem; }
p { margin: .5rem 0; overflow-wrap: anywhere; }
dl { margin: 0; }
dt { margin-top: .7rem; }
dd { margin: .1rem 0 0 1.2rem; }
code { font: .92em/1.4 ui-monospace, \"DejaVu Sans Mono\", Consolas, monospace; background: var(--shade);
  padding: .1rem .35rem; border-radius: .25rem; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .7rem; border: 1px solid var(--line); text-align: left; vertical-align: top; }
th { background: var(--shade); }
";

/// Text that Markdown leaves as it is.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '&' => out.push_str("&amp;"),
            '|' | '*' | '_' | '`' | '\\' | '[' | ']' => {
                out.push('\\');
                out.push(c);
            }
            c => out.push(c),
        }
    }
    out
}

/// Text that HTML leaves as it is.
fn in_html(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}
