//! All heads as one page for a browser, which asks for nothing from outside.
//!
//! The page holds what it draws as data: facts as JSON, each head's weights packed
//! ([`pack`]), and queries and keys in f32 where there is room for them. Its script unpacks one head
//! at a time.

mod data;
mod pack;

use super::{MapView, first_share, head_name, key_name, ranked_name};
use crate::Settings;
use crate::html::markup::escaped;
use crate::labels::label;
use crate::number::{shown, shown_fixed};
use crate::words::{self, Words};
use data::Data;
use qkv_trace::{By, Error, Facts, Ranking, Result, Source, Survey};
use std::fmt::Write;

const BASE: &str = include_str!("../../html/style.css");
const STYLE: &str = include_str!("page.css");
/// The script, a concept a file: they share one function's names, so that the page has none of its own.
const SCRIPT: &str = concat!(
    "(() => {\n\"use strict\";\n",
    include_str!("page/facts.js"),
    include_str!("page/numbers.js"),
    include_str!("page/colours.js"),
    include_str!("page/overview.js"),
    include_str!("page/head.js"),
    include_str!("page/lines.js"),
    include_str!("page/matrix.js"),
    include_str!("page/keyboard.js"),
    include_str!("page/row.js"),
    include_str!("page/beginning.js"),
    "})();\n",
);
/// Nothing is fetched from anywhere.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'";

/// All heads as one page for a browser: an overview of layers and heads, one head at a time as lines
/// between tokens or as a matrix, and q·k term by term where queries and keys are there.
///
/// The page stays below 25 MB: weights are a byte each or less, with as much detail as fits, the
/// strongest of each row exact to 4 decimals. It works offline and follows the reader's choice of light
/// or dark.
///
/// # Errors
/// Those of the source.
pub fn map_html(source: &mut dyn Source, view: &MapView, settings: &Settings) -> Result<String> {
    let survey = Survey::of(source, view.entry, view.without_first)?;
    let words = words::of(settings.lang);
    let data = Data::collect(source, view, &survey).map_err(|error| match error {
        data::Failed::Source(error) => error,
        data::Failed::Packing(error) => Error::Source(Box::new(error)),
    })?;
    let page = Page {
        facts: source.facts(),
        view,
        settings,
        words,
        survey: &survey,
    };
    Ok(page.html(&data))
}

struct Page<'a> {
    facts: &'a Facts,
    view: &'a MapView,
    settings: &'a Settings,
    words: &'a dyn Words,
    survey: &'a Survey,
}

impl Page<'_> {
    fn html(&self, data: &Data) -> String {
        let words = self.words;
        let title = escaped(&words.map_title(&qkv_trace::shown(&self.facts.model)));
        let mut out = format!(
            "<!DOCTYPE html>\n<html lang=\"{}\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n\
             <title>{title}</title>\n<style>\n{BASE}{STYLE}</style>\n</head>\n<body class=\"map\">\n\
             <a class=\"skip\" href=\"#one\">{}</a>\n<main>\n<h1>{title}</h1>\n",
            words.language(),
            words.skip(),
        );
        self.opening(&mut out);
        for ranking in &self.view.rankings {
            self.ranking(&mut out, ranking);
        }
        let names = words.page_words();
        let _ = write!(
            out,
            "<noscript><p class=\"warning\">{}</p></noscript>\n<div class=\"both\">\n\
             <section id=\"all\" aria-labelledby=\"all-title\"><h2 id=\"all-title\">{}</h2></section>\n\
             <section id=\"one\" aria-labelledby=\"one-title\" tabindex=\"-1\">\
             <h2 id=\"one-title\"></h2></section>\n</div>\n</main>\n",
            escaped(names.no_script),
            escaped(words.map_all_heads()),
        );
        data.write(&mut out, self.words);
        let _ = write!(out, "<script>\n{SCRIPT}</script>\n</body>\n</html>\n");
        out
    }

    fn opening(&self, out: &mut String) {
        let (facts, words) = (self.facts, self.words);
        let mut sizes = vec![words.map_sizes(
            facts.layers.len(),
            facts.heads.len(),
            facts.rows(),
            facts.keys(),
        )];
        if facts.kv_heads < facts.all_heads {
            sizes.push(words.map_kv_heads(facts.kv_heads));
        }
        if facts.entries() > 1 {
            sizes.push(words.map_batch(self.view.entry, facts.entries()));
        }
        let _ = writeln!(out, "<p>{}</p>", escaped(&sizes.join(" · ")));
        let _ = writeln!(out, "<p class=\"note\">{}</p>", words.not_an_explanation());
        let number = |value: f64| shown(value, self.settings.digits).text;
        if let Some(share) = first_share(self.survey) {
            let first = super::first_key(facts, self.view.entry);
            let name = key_name(facts, self.view.entry, first);
            let text = words.map_first(&name, &number(share), self.view.without_first);
            let _ = writeln!(out, "<p>{}</p>", escaped(&text));
        }
        if let Some(top) = facts.top {
            let _ = writeln!(out, "<p>{}</p>", escaped(&words.map_only_top(top)));
        }
        let mut warnings = Vec::new();
        let odd = self
            .survey
            .heads
            .iter()
            .filter(|(_, head)| head.nan_rows > 0);
        for (place, head) in odd.take(3) {
            let name = head_name(place.layer, place.head);
            warnings.push(words.map_nan_rows(&name, head.nan_rows));
        }
        if let Some((low, high)) = self.survey.sums_apart_from_1()
            && facts.top.is_none()
        {
            warnings.push(words.map_sums(&number(low), &number(high)));
        }
        let outside = self.survey.heads.iter().map(|(_, head)| head.outside).sum();
        if outside > 0 {
            warnings.push(words.map_outside(outside));
        }
        for warning in warnings {
            let _ = writeln!(
                out,
                "<p class=\"warning\"><strong>{}</strong> {}</p>",
                words.warning(),
                escaped(&warning)
            );
        }
        if !facts.conventions.is_empty() {
            let _ = write!(
                out,
                "<details><summary>{}</summary><dl>",
                escaped(words.map_conventions())
            );
            for (name, value) in &facts.conventions {
                let _ = write!(
                    out,
                    "<dt>{}</dt><dd>{}</dd>",
                    escaped(&qkv_trace::shown(name)),
                    escaped(&qkv_trace::shown(value))
                );
            }
            out.push_str("</dl></details>\n");
        }
    }

    fn ranking(&self, out: &mut String, ranking: &Ranking) {
        let words = self.words;
        let by = qkv_trace::shown(&ranking.by.to_string());
        let says = match &ranking.by {
            By::Pair { from, to } => words.by_pair(&qkv_trace::shown(from), &qkv_trace::shown(to)),
            _ => words.by_says(&by),
        };
        let title = words.by_title(&by, self.view.texts);
        let _ = write!(
            out,
            "<details class=\"by\" open><summary><h2>{}</h2></summary>\n<p>{}</p>\n",
            escaped(&title),
            escaped(&says)
        );
        if ranking.heads.iter().all(|head| head.rows == 0) {
            let _ = writeln!(out, "<p>{}</p></details>", words.by_none());
            return;
        }
        let control = words.by_control(ranking.control.as_deref().map(label).as_deref());
        let columns = words.by_columns(&by, &control).map(|name| escaped(&name));
        let _ = write!(
            out,
            "<div class=\"scroll\" role=\"group\" aria-label=\"{}\" tabindex=\"0\"><table><thead><tr>",
            escaped(&title)
        );
        for name in columns {
            let _ = write!(out, "<th scope=\"col\">{name}</th>");
        }
        out.push_str("</tr></thead><tbody>\n");
        let number = |value: Option<f64>| {
            value.map_or("–".into(), |value| {
                shown_fixed(value, self.settings.digits).text
            })
        };
        for head in ranking.heads.iter().take(self.view.most_heads) {
            let name = ranked_name(head);
            let _ = writeln!(
                out,
                "<tr><th scope=\"row\"><a href=\"#{name}\">{name}</a></th><td>{}</td><td>{}</td>\
                 <td>{}</td></tr>",
                number(head.mean),
                number(head.control),
                head.rows
            );
        }
        out.push_str("</tbody></table></div>\n");
        let first = ranking.heads.first();
        if let Some(best) = ranking.best_control
            && first.is_none_or(|first| (first.layer, first.head) != (best.layer, best.head))
        {
            let text = words.by_best_control(&ranked_name(&best), &number(best.control));
            let _ = writeln!(out, "<p>{}</p>", escaped(&text));
        }
        if ranking
            .heads
            .iter()
            .all(|head| head.mean.is_none_or(|mean| mean == 0.0))
        {
            let _ = writeln!(out, "<p>{}</p>", words.by_all_zero());
        }
        let _ = writeln!(
            out,
            "<p class=\"soft\">{}</p></details>",
            words.by_proves_little()
        );
    }
}
