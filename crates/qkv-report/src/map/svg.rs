//! One head as a drawing.

use super::{MapView, is_aside, key_name, query_name, sharing, weights};
use crate::Settings;
use crate::explanation::HeatMap;
use crate::heat::Grid;
use crate::html::markup::escaped;
use crate::number::shown;
use crate::words::{self, Words};
use qkv_trace::{Facts, Place, Result, Source, strongest};
use std::fmt::Write;

/// Cells of a matrix in each direction; of more, neighbours are merged.
const MOST_CELLS: usize = 128;
/// Tokens that have names and lines; of more there is the matrix only.
const MOST_NAMED: usize = 96;
/// Lines of a query.
const LINES: usize = 8;
/// A weight below this has no line.
const FAINTEST: f32 = 0.02;
/// Pixels of a named row.
const ROW: f64 = 18.0;
/// Pixels of a name.
const NAME: f64 = 118.0;
const BLUE: &str = "#08519c";

/// One head as an SVG drawing: the weights as a matrix, rows queries and columns keys, and where there
/// is room for names, lines from each query to its keys, as strong as the weights.
///
/// It needs nothing from outside, and each cell and line has its numbers as a title.
///
/// # Errors
/// Those of the source.
pub fn map_svg(
    source: &mut dyn Source,
    place: Place,
    view: &MapView,
    settings: &Settings,
) -> Result<String> {
    let facts = source.facts().clone();
    let mut weights = weights(source, place)?;
    let keys = facts.keys().max(1);
    for (row, weights) in weights.chunks_mut(keys).enumerate() {
        for (key, weight) in weights.iter_mut().enumerate() {
            if is_aside(&facts, view, row, key) {
                *weight = 0.0;
            }
        }
    }
    let drawing = Drawing {
        facts: &facts,
        place,
        weights: &weights,
        settings,
        words: words::of(settings.lang),
    };
    Ok(drawing.svg())
}

struct Drawing<'a> {
    facts: &'a Facts,
    place: Place,
    weights: &'a [f32],
    settings: &'a Settings,
    words: &'a dyn Words,
}

impl Drawing<'_> {
    fn svg(&self) -> String {
        let named = self.facts.rows().max(self.facts.keys()) <= MOST_NAMED;
        let grid = self.grid();
        let cell = if named {
            ROW
        } else {
            512.0 / MOST_CELLS as f64
        };
        let rows = grid.cells.len() as f64 * cell;
        let columns = grid.cells.first().map_or(0, Vec::len) as f64 * cell;
        let edge = if named { NAME } else { 8.0 };
        let top = 52.0;
        let lines = if named { 2.0 * NAME + 200.0 } else { 0.0 };
        let width = (edge + columns + lines + 24.0).max(520.0);
        let height = top + edge.max(20.0) + rows.max(self.facts.keys() as f64 * cell) + 12.0;
        let shared = sharing(self.facts, self.place.head);
        let shared = shared.as_ref().map(|(kv, heads)| (*kv, &heads[..]));
        let title = self
            .words
            .map_head(self.place.layer, self.place.head, shared);
        let model = self.words.map_title(&qkv_trace::shown(&self.facts.model));
        let (title, model) = (clean(&title), clean(&model));
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             width=\"{width}\" height=\"{height}\" role=\"img\" font-family=\"system-ui, sans-serif\" \
             font-size=\"12\">\n<title>{title} · {model}</title>\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
             <text x=\"8\" y=\"22\" font-size=\"15\" font-weight=\"600\">{title}</text>\n\
             <text x=\"8\" y=\"40\" fill=\"#57606a\">{model}</text>\n"
        );
        let origin = (edge, top + edge.max(20.0));
        self.matrix(&mut out, &grid, origin, cell);
        if named {
            self.names(&mut out, origin);
            self.lines(&mut out, (origin.0 + columns + 16.0, origin.1));
        }
        out.push_str("</svg>\n");
        out
    }

    fn grid(&self) -> Grid {
        let keys = self.facts.keys().max(1);
        let values = self.weights.chunks(keys);
        let map = HeatMap {
            name: String::new(),
            rows: Vec::new(),
            columns: Vec::new(),
            values: values
                .map(|row| row.iter().map(|weight| f64::from(*weight)).collect())
                .collect(),
            at: None,
        };
        let merged = |count: usize| count.div_ceil(MOST_CELLS).max(1);
        Grid::new(&map, merged(self.facts.rows()), merged(keys))
    }

    fn query(&self, row: usize) -> String {
        clean(&query_name(self.facts, self.place.entry, row))
    }

    fn key(&self, key: usize) -> String {
        clean(&key_name(self.facts, self.place.entry, key))
    }

    fn matrix(&self, out: &mut String, grid: &Grid, (x, y): (f64, f64), cell: f64) {
        let columns = grid.cells.first().map_or(0, Vec::len) as f64;
        let _ = writeln!(
            out,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{}\" height=\"{}\" fill=\"none\" stroke=\"#8c959f\"/>",
            columns * cell,
            grid.cells.len() as f64 * cell
        );
        for (row, cells) in grid.cells.iter().enumerate() {
            for (column, found) in cells.iter().enumerate() {
                // What is fainter is not seen.
                let faint = found.share < 1.0 / 512.0;
                if faint {
                    continue;
                }
                let fill = match found.share.is_nan() {
                    true => "fill=\"#d1242f\"".to_owned(),
                    false => format!(
                        "fill=\"{BLUE}\" fill-opacity=\"{:.3}\"",
                        found.share.min(1.0)
                    ),
                };
                let (at_x, at_y) = (x + column as f64 * cell, y + row as f64 * cell);
                let weight = shown(found.weight, self.settings.digits).text;
                let names = format!(
                    "{} ← {}",
                    self.query(row * grid.queries),
                    self.key(column * grid.keys)
                );
                let _ = writeln!(
                    out,
                    "<rect x=\"{at_x}\" y=\"{at_y}\" width=\"{cell}\" height=\"{cell}\" {fill}>\
                     <title>{names}: {weight}</title></rect>"
                );
            }
        }
    }

    fn names(&self, out: &mut String, (x, y): (f64, f64)) {
        for row in 0..self.facts.rows() {
            let at = y + (row as f64 + 0.72) * ROW;
            let _ = writeln!(
                out,
                "<text x=\"{}\" y=\"{at}\" text-anchor=\"end\">{}</text>",
                x - 6.0,
                self.query(row)
            );
        }
        for key in 0..self.facts.keys() {
            let at = x + (key as f64 + 0.72) * ROW;
            let above = y - 6.0;
            let _ = writeln!(
                out,
                "<text transform=\"translate({at} {above}) rotate(-90)\">{}</text>",
                self.key(key)
            );
        }
    }

    fn lines(&self, out: &mut String, (x, y): (f64, f64)) {
        let (from, to) = (x + NAME, x + NAME + 160.0);
        let middle = |at: usize| y + (at as f64 + 0.5) * ROW;
        let keys = self.facts.keys().max(1);
        for (row, weights) in self.weights.chunks(keys).enumerate() {
            for link in strongest(weights, LINES) {
                // A NaN has no strength to draw.
                if link.weight.is_nan() || link.weight < FAINTEST {
                    continue;
                }
                let weight = shown(f64::from(link.weight), self.settings.digits).text;
                let _ = writeln!(
                    out,
                    "<line x1=\"{from}\" y1=\"{}\" x2=\"{to}\" y2=\"{}\" stroke=\"{BLUE}\" \
                     stroke-width=\"2\" stroke-opacity=\"{:.3}\"><title>{} ← {}: {weight}</title></line>",
                    middle(row),
                    middle(link.key),
                    link.weight.min(1.0),
                    self.query(row),
                    self.key(link.key)
                );
            }
        }
        let names = self.words.page_words();
        let _ = writeln!(
            out,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\" fill=\"#57606a\">{}</text>\n\
             <text x=\"{}\" y=\"{}\" fill=\"#57606a\">{}</text>",
            from - 6.0,
            y - 8.0,
            names.queries,
            to + 6.0,
            y - 8.0,
            names.keys
        );
        for row in 0..self.facts.rows() {
            let at = middle(row) + 4.0;
            let name = self.query(row);
            let _ = writeln!(
                out,
                "<text x=\"{}\" y=\"{at}\" text-anchor=\"end\">{name}</text>",
                from - 6.0
            );
        }
        for key in 0..self.facts.keys() {
            let at = middle(key) + 4.0;
            let name = self.key(key);
            let _ = writeln!(out, "<text x=\"{}\" y=\"{at}\">{name}</text>", to + 6.0);
        }
    }
}

/// Text as XML allows it: labels have no control characters, but names of models may.
fn clean(text: &str) -> String {
    let allowed = |c: &char| !matches!(c, '\0'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}');
    escaped(&text.chars().filter(allowed).collect::<String>())
}
