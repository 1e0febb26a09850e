//! Heads in a terminal.

use super::{
    MapView, first_key, first_share, head_name, is_aside, key_name, query_name, ranked_name,
    residual, sharing, weights,
};
use crate::Settings;
use crate::explanation::HeatMap;
use crate::labels::label;
use crate::number::{shown, shown_fixed};
use crate::text::{columns, heat, paragraph};
use crate::words::{self, Words};
use qkv_trace::{
    By, Facts, HeadStatistics, Place, Ranked, Ranking, Result, Source, Stage, Survey, strongest,
};

/// Heads that are drawn one by one; of more there is an overview only.
const MOST_MAPS: usize = 4;
/// Rows of a map; of more, neighbours are merged.
const MOST_ROWS: usize = 40;
/// Queries whose links are listed.
const MOST_LISTED: usize = 64;

/// What the heads did, as text for a terminal or a pipe.
///
/// One head or a few are drawn as heat maps, with each query's strongest links; of more there is an
/// overview, and rankings where they were asked for. Weights are as they are: only their shades
/// are relative to the largest that is drawn.
///
/// # Errors
/// Those of the source.
pub fn map_text(source: &mut dyn Source, view: &MapView, settings: &Settings) -> Result<String> {
    let survey = Survey::of(source, view.entry, view.without_first)?;
    let facts = source.facts().clone();
    let mut page = Page {
        out: String::new(),
        facts: &facts,
        view,
        settings,
        words: words::of(settings.lang),
    };
    page.opening(&survey);
    page.remarks(&survey);
    let sizes = residual::sizes(source, view.entry)?;
    page.residual(&sizes);
    let few = survey.heads.len() <= MOST_MAPS;
    if view.rankings.is_empty() && (!few || survey.heads.len() > 1) {
        page.overview(&survey);
    }
    for ranking in &view.rankings {
        page.ranking(ranking);
    }
    let drawn = if view.few_heads || few { MOST_MAPS } else { 0 };
    for (place, statistics) in survey.heads.iter().take(drawn) {
        let weights = weights(source, *place)?;
        page.head(*place, statistics, &weights);
    }
    if drawn > 0 && survey.heads.len() > drawn {
        page.dim(&page.words.map_more_heads(survey.heads.len() - drawn));
    }
    if drawn == 0 {
        page.gap();
        page.dim(page.words.map_one_head());
    }
    Ok(page.out)
}

struct Page<'a> {
    out: String,
    facts: &'a Facts,
    view: &'a MapView,
    settings: &'a Settings,
    words: &'a dyn Words,
}

impl Page<'_> {
    fn line(&mut self, text: &str) {
        self.out.push_str(text.trim_end());
        self.out.push('\n');
    }

    /// One empty line, but not two.
    fn gap(&mut self) {
        if !self.out.ends_with("\n\n") {
            self.out.push('\n');
        }
    }

    fn styled(&mut self, text: &str, code: &str) {
        for line in paragraph(text, self.settings.width, 0) {
            match self.settings.color {
                true => {
                    // The sample of a legend has the colour that it stands for.
                    let line = line.replace('█', heat::SAMPLE);
                    self.line(&format!("{code}{line}\x1b[0m"));
                }
                false => self.line(&line),
            }
        }
    }

    fn heading(&mut self, text: &str) {
        self.gap();
        self.styled(text, "\x1b[1m");
    }

    fn dim(&mut self, text: &str) {
        self.styled(text, "\x1b[2m");
    }

    fn plain(&mut self, text: &str) {
        paragraph(text, self.settings.width, 0)
            .iter()
            .for_each(|line| self.line(line));
    }

    fn number(&self, value: Option<f64>) -> String {
        value.map_or("–".into(), |value| {
            shown_fixed(value, self.settings.digits).text
        })
    }

    fn opening(&mut self, survey: &Survey) {
        let (facts, words) = (self.facts, self.words);
        self.styled(&words.map_title(&label_free(&facts.model)), "\x1b[1m");
        let mut sizes = words.map_sizes(
            facts.layers.len(),
            facts.heads.len(),
            facts.rows(),
            facts.keys(),
        );
        if facts.kv_heads < facts.all_heads {
            sizes = format!("{sizes} · {}", words.map_kv_heads(facts.kv_heads));
        }
        if facts.entries() > 1 {
            let batch = words.map_batch(self.view.entry, facts.entries());
            sizes = format!("{sizes} · {batch}");
        }
        self.plain(&sizes);
        self.dim(words.not_an_explanation());
        self.heading(words.map_tokens());
        const FIRST: usize = 200;
        let mut names: Vec<String> = (0..facts.keys().min(FIRST))
            .map(|key| key_name(facts, self.view.entry, key).replace(' ', "\u{a0}"))
            .collect();
        if facts.keys() > FIRST {
            names.push(format!("…\u{a0}{}", facts.keys() - 1));
        }
        for line in paragraph(&names.join(" · "), self.settings.width, 0) {
            self.line(&line.replace('\u{a0}', " "));
        }
        if !facts.conventions.is_empty() {
            self.heading(words.map_conventions());
            for (name, value) in &facts.conventions {
                let text = format!("{}: {}", label_free(name), label_free(value));
                self.plain(&text);
            }
        }
        self.gap();
        if let Some(share) = first_share(survey) {
            let first = key_name(facts, self.view.entry, first_key(facts, self.view.entry));
            let share = shown(share, self.settings.digits).text;
            self.plain(&words.map_first(&first, &share, self.view.without_first));
        }
    }

    /// How large the residual is, stage by stage.
    fn residual(&mut self, sizes: &[residual::Sizes]) {
        let (facts, words, entry) = (self.facts, self.words, self.view.entry);
        let kept = |row: &usize| facts.query(entry, *row).is_none_or(|token| !token.padding);
        let rows: Vec<usize> = (0..facts.rows()).filter(kept).collect();
        let name = |stage: Stage| match stage {
            Stage::Into(layer) => format!("L{layer}"),
            Stage::OutOf(layer) => format!("L{layer}→"),
            Stage::Normed => words.map_residual_normed().to_owned(),
        };
        let mut largest: Option<(f32, Stage, usize)> = None;
        let mut each = Vec::new();
        for residual::Sizes { stage, norms } in sizes {
            let own = rows.iter().map(|row| (norms[*row], *stage, *row));
            // After the last norm all are alike.
            let own = own.filter(|_| *stage != Stage::Normed);
            largest = own.chain(largest).max_by(|a, b| a.0.total_cmp(&b.0));
            let sum: f64 = rows.iter().map(|row| f64::from(norms[*row])).sum();
            let mean = shown(sum / rows.len().max(1) as f64, self.settings.digits).text;
            each.push(format!("{}\u{a0}{mean}", name(*stage)));
        }
        let Some((size, stage, row)) = largest else {
            return;
        };
        let size = shown(f64::from(size), self.settings.digits).text;
        let token = query_name(facts, entry, row);
        let says = words.map_residual_largest(&size, &name(stage), &token);
        self.heading(words.map_residual());
        for line in paragraph(&each.join(" · "), self.settings.width, 0) {
            self.line(&line.replace('\u{a0}', " "));
        }
        self.plain(&says);
    }

    /// What is odd about the weights.
    fn remarks(&mut self, survey: &Survey) {
        let words = self.words;
        if let Some(top) = self.facts.top {
            self.plain(&words.map_only_top(top));
        }
        let mark = |text: String| format!("{} {text}", words.warning());
        let mut warnings = Vec::new();
        for (place, head) in survey
            .heads
            .iter()
            .filter(|(_, head)| head.nan_rows > 0)
            .take(3)
        {
            let name = head_name(place.layer, place.head);
            warnings.push(words.map_nan_rows(&name, head.nan_rows));
        }
        if let Some((low, high)) = survey.sums_apart_from_1()
            && self.facts.top.is_none()
        {
            let text = |sum| shown(sum, self.settings.digits).text;
            warnings.push(words.map_sums(&text(low), &text(high)));
        }
        let outside = survey.heads.iter().map(|(_, head)| head.outside).sum();
        if outside > 0 {
            warnings.push(words.map_outside(outside));
        }
        for warning in warnings {
            self.plain(&mark(warning));
        }
    }

    /// Layers below each other, heads side by side.
    fn overview(&mut self, survey: &Survey) {
        let width = self.facts.heads.len();
        let names = words::of(self.settings.lang).page_words();
        self.heading(self.words.map_all_heads());
        let row = |layer: usize| format!("L{}", self.facts.layers[layer]);
        type Statistic = fn(&HeadStatistics) -> Option<f64>;
        let statistics: [(&str, Statistic); 2] = [
            (names.entropy, |head| head.entropy.value()),
            (names.first, |head| head.first.value()),
        ];
        for (name, statistic) in statistics {
            let values: Vec<f64> = survey
                .heads
                .iter()
                .map(|(_, head)| statistic(head).unwrap_or(0.0))
                .collect();
            let map = HeatMap {
                name: name.into(),
                rows: (0..self.facts.layers.len()).map(row).collect(),
                columns: self
                    .facts
                    .heads
                    .iter()
                    .map(|head| format!("H{head}"))
                    .collect(),
                values: values.chunks(width).map(<[f64]>::to_vec).collect(),
                at: None,
            };
            let rows = self.facts.layers.len();
            let drawn = heat::draw(&map, self.settings.width - 2, rows, self.settings);
            for line in &drawn.lines {
                self.line(&format!("  {line}"));
            }
            self.dim(&self.words.map_shades(name, &drawn.largest));
            self.gap();
        }
    }

    fn ranking(&mut self, ranking: &Ranking) {
        let words = self.words;
        let by = ranking.by.to_string();
        self.heading(&words.by_title(&label_free(&by), self.view.texts));
        let (says, target) = match &ranking.by {
            By::Pair { from, to } => (words.by_pair(&label_free(from), &label_free(to)), by),
            _ => (words.by_says(&by), by),
        };
        self.plain(&says);
        if ranking.heads.iter().all(|head| head.rows == 0) {
            return self.plain(words.by_none());
        }
        let control = words.by_control(ranking.control.as_deref().map(label).as_deref());
        let mut table = vec![words.by_columns(&label_free(&target), &control)];
        table.extend(ranking.heads.iter().take(self.view.most_heads).map(|head| {
            [
                ranked_name(head),
                self.number(head.mean),
                self.number(head.control),
                head.rows.to_string(),
            ]
        }));
        let widths: Vec<usize> = (0..4)
            .map(|c| table.iter().map(|row| columns(&row[c])).max().unwrap_or(0))
            .collect();
        for row in &table {
            let cells = row
                .iter()
                .zip(&widths)
                .enumerate()
                .map(|(c, (cell, width))| {
                    let room = " ".repeat(width - columns(cell));
                    if c == 0 {
                        format!("{cell}{room}")
                    } else {
                        format!("{room}{cell}")
                    }
                });
            let cells: Vec<String> = cells.collect();
            self.line(&format!("  {}", cells.join("  ")));
        }
        let first = ranking.heads.first();
        if let Some(best) = ranking.best_control
            && first.is_none_or(|first| (first.layer, first.head) != (best.layer, best.head))
        {
            let value = self.number(best.control);
            self.plain(&words.by_best_control(&ranked_name(&best), &value));
        }
        let zero = |head: &Ranked| head.mean.is_none_or(|mean| mean == 0.0);
        if ranking.heads.iter().all(zero) {
            self.plain(words.by_all_zero());
        }
        self.dim(words.by_proves_little());
    }

    /// A heat map, and the strongest links of each query.
    fn head(&mut self, place: Place, statistics: &HeadStatistics, weights: &[f32]) {
        let (facts, words) = (self.facts, self.words);
        let shared = sharing(facts, place.head);
        let shared = shared.as_ref().map(|(kv, heads)| (*kv, &heads[..]));
        self.heading(&words.map_head(place.layer, place.head, shared));
        let distance = statistics.distance.value();
        self.plain(&words.map_averages(
            &self.number(statistics.entropy.value()),
            distance.map(|_| self.number(distance)).as_deref(),
            &self.number(statistics.first.value()),
        ));
        let keys = facts.keys();
        let drawn: Vec<Vec<f64>> = weights
            .chunks(keys)
            .enumerate()
            .map(|(row, weights)| {
                let weights = weights.iter().enumerate();
                let kept = |key| !is_aside(facts, self.view, row, key);
                weights
                    .map(|(key, weight)| if kept(key) { f64::from(*weight) } else { 0.0 })
                    .collect()
            })
            .collect();
        let map = HeatMap {
            name: String::new(),
            rows: (0..facts.rows())
                .map(|row| query_name(facts, place.entry, row))
                .collect(),
            columns: (0..keys)
                .map(|key| key_name(facts, place.entry, key))
                .collect(),
            values: drawn,
            at: None,
        };
        let heat = heat::draw(&map, self.settings.width - 2, MOST_ROWS, self.settings);
        self.gap();
        for line in &heat.lines {
            self.line(&format!("  {line}"));
        }
        self.dim(&match heat.merged {
            Some((rows, columns)) => words.merged_cells(rows, columns),
            None => words.legend(&heat.largest),
        });
        if self.view.links > 0 {
            self.gap();
            self.links(place, weights);
        }
    }

    fn links(&mut self, place: Place, weights: &[f32]) {
        let (facts, words) = (self.facts, self.words);
        self.plain(&words.map_links(self.view.links));
        let listed = facts.rows().min(MOST_LISTED);
        let names: Vec<String> = (0..listed)
            .map(|row| query_name(facts, place.entry, row))
            .collect();
        let widest = names.iter().map(|name| columns(name)).max().unwrap_or(0);
        for (row, name) in names.iter().enumerate() {
            let own = &weights[row * facts.keys()..(row + 1) * facts.keys()];
            let links: Vec<String> = strongest(own, self.view.links + 1)
                .iter()
                .filter(|link| !is_aside(facts, self.view, row, link.key))
                .take(self.view.links)
                .map(|link| {
                    let weight = shown_fixed(f64::from(link.weight), self.settings.digits).text;
                    let key = key_name(facts, place.entry, link.key);
                    format!("{key} {weight}").replace(' ', "\u{a0}")
                })
                .collect();
            let links = match links.is_empty() {
                true => words.map_no_key().to_owned(),
                false => links.join(" · "),
            };
            let room = "\u{a0}".repeat(widest - columns(name));
            let name = name.replace(' ', "\u{a0}");
            let text = format!("{name}{room} ← {links}");
            let hang = (widest + 3).min(self.settings.width / 4);
            for line in paragraph(&text, self.settings.width.saturating_sub(2), hang) {
                self.line(&format!("  {}", line.replace('\u{a0}', " ")));
            }
        }
        if facts.rows() > listed {
            self.line(&format!("  … {}", facts.rows() - 1));
        }
    }
}

/// A name from outside, of any length, without what would act on a terminal.
fn label_free(text: &str) -> String {
    qkv_trace::shown(text)
}
